"""What a torch module must be for Opacus' norms to bound a row: checked once, on public rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.validators import ModuleValidator

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array
from dpiw.methods.neural.engine import AnyArchitecture

_CLOSE = 1e-8
"""Relative difference that the checks allow: far above rounding in doubles, below anything else."""


class Architecture(AnyArchitecture, Protocol):
    """A module's."""

    @property
    def example(self) -> NDArray[np.float64]:
        """Public rows that it is made for, shape (m, inputs)."""
        ...


def check_layers(module: Any) -> None:
    """SpecError for a layer that Opacus refuses."""
    kinds = sorted({type(layer).__name__ for layer in module.modules() if _is_refused(layer)})
    if kinds:
        raise SpecError(
            f"network: {', '.join(kinds)}: expected layers in which a row's gradient depends on"
            " that row alone and that Opacus knows, as GroupNorm in the place of BatchNorm"
        )


def _is_refused(layer: Any) -> bool:
    """Also without parameters, where the validator does not look."""
    refuse = ModuleValidator.VALIDATORS.get(type(layer))
    return bool(refuse and refuse(layer))


def check_rows(architecture: Architecture) -> None:
    """SpecError unless example rows alone and together agree; one of them is there twice."""
    example = torch.as_tensor(np.concatenate([architecture.example, architecture.example[:1]]))
    network = architecture.network(architecture.initial(np.random.default_rng(0)))
    together = network.forward(example)
    if together.outputs.dim() != 2 or together.outputs.dtype != torch.float64:
        raise SpecError("network: expected outputs of shape (rows, outputs) in double precision")
    slopes = torch.linspace(0.5, 1.5, together.outputs.numel(), dtype=torch.float64)
    slopes = slopes.reshape(together.outputs.shape)
    backward = together.backward(slopes)
    try:
        norms = backward.norms
    except (AttributeError, RuntimeError):
        raise SpecError(
            "network: expected every trainable parameter in the forward pass of its own layer, and"
            " rows along that layer's first axis"
        ) from None
    for place in range(len(example)):
        row = slice(place, place + 1)
        forward = network.forward(example[row])
        alone = forward.backward(slopes[row])
        gradient, own = alone.gradient(), torch.eye(len(example), dtype=torch.float64)[place]
        if not (
            _agree(together.outputs[row], forward.outputs)
            and _agree(backward.gradient(own), gradient)
            and _agree(backward.row_gradients()[row], alone.row_gradients())
        ):
            raise SpecError(
                "network: expected layers in which a row's output and gradient depend on that row"
                " alone, without random numbers (no batch statistics, no dropout)"
            )
        if norms.shape != (len(example),) or not _agree(norms[place], gradient.norm()):
            raise SpecError(
                "network: expected layers whose row gradients Opacus knows; of these it finds"
                " another norm than they have"
            )


def _agree(one: Array, other: Array) -> bool:
    return bool((one - other).abs().max() <= _CLOSE * max(1e-300, float(other.abs().max())))
