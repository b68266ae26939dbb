"""Every row's gradient by the parameters of one layer, in its cheapest form.

Source: Goodfellow (2015) for dense layers; Opacus (Yousefpour et al. 2021) for convolutions.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.neural.backend import Array, library

SHARE = 2.0**-10
"""Least norm of a row's gradient, as a share of the magnitudes of its parts, which may cancel.

A sum over n rows with N parts together then errs by at most n N 2^-43 C, to first order."""


@dataclass(frozen=True, eq=False)
class DenseGradients:
    """A dense layer's, by its inputs and slopes, shapes (n, inputs) and (n, outputs)."""

    inputs: Array
    slopes: Array

    def squares(self) -> Array:
        """See `RowGradients`."""
        return _squares(self.slopes) * (_squares(self.inputs) + 1.0)

    def magnitudes(self) -> None:
        """See `RowGradients`."""

    def sum(self, factors: Array) -> Array:
        """See `RowGradients`."""
        scaled = factors[:, None] * self.slopes
        return library().cat([(self.inputs.T @ scaled).reshape(-1), scaled.sum(0)])


@dataclass(frozen=True, eq=False)
class StoredGradients:
    """A layer's row by row, shape (n, size), with the magnitudes of their parts."""

    rows: Array
    parts: Array

    def squares(self) -> Array:
        """See `RowGradients`."""
        return _squares(self.rows)

    def magnitudes(self) -> Array:
        """See `RowGradients`."""
        return self.parts

    def sum(self, factors: Array) -> Array:
        """See `RowGradients`."""
        return factors @ self.rows


RowGradients = DenseGradients | StoredGradients
"""The gradients of n rows by the parameters of one layer.

`squares`: of each row's norm, shape (n,). `magnitudes`: bound on the sum of the norms of each row's
parts, shape (n,), or None for one product. `sum`: over rows, of factor times gradient, shape
(size,).
"""


@dataclass(frozen=True, eq=False)
class AllGradients:
    """The gradients of n rows by all parameters of a network, layer by layer."""

    layers: tuple[RowGradients, ...]

    def norms(self) -> Array:
        """L2 norm of each row's gradient, biases included, or `SHARE` of its magnitudes."""
        norms = sum(layer.squares() for layer in self.layers).sqrt()
        parts = [part for part in (layer.magnitudes() for layer in self.layers) if part is not None]
        return library().maximum(norms, SHARE * sum(parts)) if parts else norms

    def sum(self, factors: Array) -> Array:
        """Sum over rows of factor times gradient, shape (p,); factors of shape (n,)."""
        return library().cat([layer.sum(factors) for layer in self.layers])


def _squares(rows: Array) -> Array:
    return (rows * rows).sum(1)


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution, or a transposed one, padded with zeros; public.

    `module` is torch's, with a bias, on `meta`: it holds no numbers and draws no random ones.
    """

    module: Any
    held: int

    @property
    def size(self) -> int:
        """Number of parameters: the weights by rows, then the biases."""
        return int(self.module.weight.numel() + self.module.bias.numel())

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Starting parameters: uniform weights (He), biases zero."""
        weights = self.module.weight
        reach = math.sqrt(6.0 * len(weights) / weights.numel())
        drawn = rng.uniform(-reach, reach, weights.numel())
        return np.concatenate([drawn, np.zeros(self.module.bias.numel())])

    def __call__(self, parameters: Array, values: Array) -> Array:
        """The output for images, shape (n, channels, height, width)."""
        weights, biases = parameters.split([self.module.weight.numel(), self.module.bias.numel()])
        named = {"weight": weights.view(self.module.weight.shape), "bias": biases}
        return library().func.functional_call(self.module, named, (values,))

    def row_gradients(self, values: Array, slopes: Array) -> RowGradients:
        """Every row's gradient by the parameters; a transposed layer sees no private row."""
        torch = library()
        assert type(self.module) is torch.nn.Conv2d  # whose rows are tested against autograd's
        found = samplers()[type(self.module)](self.module, [values.contiguous()], slopes)
        parts = [found[self.module.weight], found[self.module.bias]]
        rows = torch.cat([part.flatten(1) for part in parts], 1)
        return StoredGradients(rows, _magnitudes(self.module, values, slopes))


@cache
def samplers() -> Any:
    """Opacus's functions for row gradients, by kind of layer; keeps the process's log handlers."""
    handlers = logging.root.handlers[:]
    from opacus.grad_sample import GradSampleModule

    logging.root.handlers[:] = handlers
    return GradSampleModule.GRAD_SAMPLERS


def _magnitudes(module: Any, inputs: Array, slopes: Array) -> Array:
    """Bound on the sum of the norms of each row's parts, shape (n,), by Cauchy and Schwarz."""
    slopes, kernel = slopes.flatten(1), math.prod(module.kernel_size)
    squares = slopes.shape[1] + kernel * inputs.flatten(1).square().sum(1)
    return slopes.norm(dim=1) * squares.sqrt()
