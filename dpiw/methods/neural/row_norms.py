"""Every row's gradient and its norm, layer by layer: the door to what Opacus computes.

Dense layers and embeddings give norms in closed form (ghost norms; Li et al. 2022), the others the
rows' gradients, which are kept: the clipped sum is then made of the numbers that the norms were
found by, and of a dense layer's inputs and slopes, without another backward pass (Bu et al. 2023,
"book-keeping"). Embeddings keep nothing, and where a layer is used twice nothing is kept.

A row's gradient by a layer is a sum over its places (pixels, words). Where huge parts cancel, the
sum over all rows errs by a rounding of the parts, of which a small norm tells nothing. So no row's
norm is taken to be less than `SHARE` of what its parts' magnitudes can add up to: a continuous
function of the row, which says nothing new of rows whose parts do not cancel to a thousandth.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
from opacus.grad_sample.linear import compute_linear_norm_sample

from dpiw.errors import SpecError
from dpiw.methods.neural.backend import Array

_SUMS = (
    torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose2d,
)  # fmt: skip
"""Layers whose row gradient is a sum of products of inputs and slopes."""

_NORMALISATIONS = (torch.nn.LayerNorm, torch.nn.GroupNorm)

LAYERS = (*_SUMS, torch.nn.Embedding, *_NORMALISATIONS)
"""The layers, none of their subclasses, whose norms are tested against autograd's."""

_GRADIENTS = (*_SUMS, *_NORMALISATIONS)
"""Layers of which Opacus computes every row's gradient."""

SHARE = 2.0**-10
"""Of the magnitudes of its parts, that a row's norm is taken to have at least."""


class _Rows(NamedTuple):
    """Every row's gradient by a parameter, shape (n, entries)."""

    gradients: Array

    def sum(self, factors: Array) -> Array:
        return factors @ self.gradients


class _Dense(NamedTuple):
    """A dense layer's inputs and slopes, shape (n, width) each, of which its gradient is made."""

    inputs: Array
    slopes: Array

    def sum(self, factors: Array) -> Array:
        return ((factors[:, None] * self.slopes).T @ self.inputs).reshape(-1)


_Part = _Rows | _Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class ParameterGradients:
    """What a backward pass leaves of the rows' gradients by the parameters.

    Attributes:
        parts: of each parameter, in the order of their names.
    """

    parts: tuple[_Part, ...] = field(repr=False)

    def sum(self, factors: Array) -> Array:
        """Sum over rows of factor times gradient, shape (p,).

        Args:
            factors: shape (n,).
        """
        return torch.cat([part.sum(factors) for part in self.parts])


def trainable(module: Any) -> list[Any]:
    """The parameters that are trained, in the order of their names."""
    return [p for p in module.parameters() if p.requires_grad]


def smallest(module: Any) -> list[Any]:
    """Of each layer the trained parameter with the fewest numbers."""
    own = ([p for p in layer.parameters(recurse=False) if p.requires_grad]
           for layer in module.modules())  # fmt: skip
    return [min(parameters, key=torch.numel) for parameters in own if parameters]


class Watched(GradSampleModuleFastGradientClipping):  # type: ignore[misc]
    """A module with Opacus' hooks, for a loss that is a sum over rows.

    Args:
        module: changed: it bears the hooks from now on.
        ghost: dense layers and embeddings by their closed form.
    """

    def __init__(self, module: Any, *, ghost: bool) -> None:
        super().__init__(module, loss_reduction="sum", use_ghost_clipping=ghost)
        samplers = dict.fromkeys(_GRADIENTS, self._row_norms) | {torch.nn.Linear: self._dense_norms}
        self.NORM_SAMPLERS = {**self.NORM_SAMPLERS, **samplers}  # type: ignore[has-type]
        self.magnitudes: list[Array] = []
        self._kept: dict[Any, _Part] = {}

    def rearrange_grad_samples(self, *, module: Any, **keywords: Any) -> tuple[list[Array], Array]:
        """A layer's inputs, whose order in memory Opacus relies on, and slopes; rows first."""
        (inputs,), slopes = super().rearrange_grad_samples(module=module, **keywords)
        self.magnitudes.append(_magnitudes(module, inputs, slopes))
        return [inputs.contiguous()], slopes

    def norms(self) -> Array:
        """Of every row's gradient, after a backward pass, shape (n,)."""
        norms = self.get_norm_sample().detach()
        return torch.maximum(norms, SHARE * sum(self.magnitudes))

    def parameter_gradients(self) -> ParameterGradients | None:
        """What the backward pass left of the rows' gradients, once; None: not of all parameters."""
        kept, self._kept = self._kept, {}
        parameters = trainable(self)
        if not all(parameter in kept for parameter in parameters):
            return None
        return ParameterGradients(parts=tuple(kept[parameter] for parameter in parameters))

    def _row_norms(self, layer: Any, activations: list[Array], slopes: Array) -> dict[Any, Array]:
        """Norms of a layer's row gradients, which are kept, by parameter."""
        sampler = self.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
        gradients = sampler(layer, activations, slopes)
        self._kept |= {parameter: _Rows(rows.flatten(1)) for parameter, rows in gradients.items()}
        return {parameter: rows.flatten(1).norm(dim=1) for parameter, rows in gradients.items()}

    def _dense_norms(self, layer: Any, activations: list[Array], slopes: Array) -> dict[Any, Array]:
        """Norms of a dense layer's row gradients, by parameter.

        Where a row has several places, Opacus' ghost norm is the root of a difference of squares,
        which rounding can bring far below the norm if places cancel, and more than two axes it
        leaves out. There the row gradients are summed first.
        """
        if slopes.dim() > 2:
            return self._row_norms(layer, activations, slopes)
        self._kept[layer.weight] = _Dense(activations[0], slopes)
        if layer.bias is not None:
            self._kept[layer.bias] = _Rows(slopes)
        return dict(compute_linear_norm_sample(layer, activations, slopes))


def _magnitudes(layer: Any, inputs: Array, slopes: Array) -> Array:
    """At least the sum of the norms of the parts of each row's gradient, shape (n,).

    By Cauchy and Schwarz. Each input meets each place of a kernel once; a bias has the slopes
    alone; a word has them times one, and what a normalisation makes has a mean square of at most 1.
    """
    slopes = slopes.flatten(1)
    squares = torch.full_like(slopes[:, 0], slopes.shape[1])
    if isinstance(layer, _SUMS):
        kernel = math.prod(getattr(layer, "kernel_size", ()))
        squares = squares + kernel * inputs.flatten(1).square().sum(1)
    return slopes.norm(dim=1) * squares.sqrt()


def has_ghost_norms(module: Any, example: NDArray[np.float64]) -> bool:
    """Whether dense layers and embeddings are used once each, as their closed form asks.

    Raises:
        SpecError: Opacus cannot do a layer.
    """
    try:
        plain = Watched(copy.deepcopy(module), ghost=False)
    except NotImplementedError:
        raise SpecError("network: expected layers that Opacus can do") from None
    plain.use_ghost_clipping = True
    try:
        plain(torch.as_tensor(example))
    except NotImplementedError:  # it counts how often a parameter is used
        return False
    return True
