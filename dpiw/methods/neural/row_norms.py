"""Norms of every row's gradient, layer by layer: the door to what Opacus computes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.grad_sample.linear import compute_linear_grad_sample, compute_linear_norm_sample

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array


def trainable(module: Any) -> list[Any]:
    """The parameters that are trained, in the order of their names."""
    return [p for p in module.parameters() if p.requires_grad]


def watched(module: Any, *, ghost: bool) -> Any:
    """The module with Opacus' hooks, for a loss that is a sum over rows.

    Args:
        module: changed: it bears the hooks from now on.
        ghost: dense layers and embeddings by their closed form.
    """
    hooked = GradSampleModuleFastGradientClipping(
        module, loss_reduction="sum", use_ghost_clipping=ghost
    )
    hooked.NORM_SAMPLERS = {**hooked.NORM_SAMPLERS, torch.nn.Linear: _dense_norms}
    return hooked


def _dense_norms(layer: Any, activations: list[Array], slopes: Array) -> dict[Any, Array]:
    """Norms of a dense layer's row gradients, by parameter.

    Where a row has several places, Opacus' ghost norm is the root of a difference of squares, which
    rounding can bring far below the norm if places cancel, and more than two axes it leaves out.
    There the row gradients are summed first.
    """
    if slopes.dim() == 2:
        return dict(compute_linear_norm_sample(layer, activations, slopes))
    gradients = compute_linear_grad_sample(layer, activations, slopes)
    return {parameter: rows.flatten(1).norm(dim=1) for parameter, rows in gradients.items()}


def has_ghost_norms(module: Any, example: NDArray[np.float64]) -> bool:
    """Whether dense layers and embeddings are used once each, as their closed form asks.

    Raises:
        SpecError: Opacus cannot do a layer.
    """
    try:
        plain = watched(copy.deepcopy(module), ghost=False)
    except NotImplementedError:
        raise SpecError("network: expected layers that Opacus can do") from None
    plain.use_ghost_clipping = True
    try:
        plain(torch.as_tensor(example))
    except NotImplementedError:  # it counts how often a parameter is used
        return False
    return True
