"""Convolutional layers: torch computes them, and Opacus every row's gradient.

Opacus (Yousefpour et al. 2021) is asked for one thing: what the gradient of each row is, of a
layer's inputs and slopes. Lots, clipping, noise and checkpoints are ours.

A row's gradient is a sum over pixels. Where huge parts cancel, the sum over all rows errs by a
rounding of the parts, of which a small norm tells nothing; so a row's norm is never taken to be
less than a share of its parts' magnitudes (`dpiw.methods.neural.row_norms.SHARE`).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpiw.methods.neural.backend import Array
from dpiw.methods.neural.row_norms import RowGradients, StoredGradients


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution, or a transposed one, padded with zeros; public.

    Attributes:
        module: a layer of torch with a bias, on the device `meta`: it has shapes, no numbers, and
            draws none of torch's random numbers.
        held: as of `dpiw.methods.neural.networks.Layer`.
    """

    module: Any
    held: int

    @property
    def size(self) -> int:
        """Number of parameters: the weights by rows, then the biases."""
        return int(self.module.weight.numel() + self.module.bias.numel())

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Starting parameters: uniform weights (He), biases zero.

        The layer's inputs are taken to be all axes of its weights but the first.
        """
        weights = self.module.weight
        reach = math.sqrt(6.0 * len(weights) / weights.numel())
        drawn = rng.uniform(-reach, reach, weights.numel())
        return np.concatenate([drawn, np.zeros(self.module.bias.numel())])

    def __call__(self, parameters: Array, values: Array) -> Array:
        """What it makes of images, shape (n, channels, height, width)."""
        weights, biases = parameters.split([self.module.weight.numel(), self.module.bias.numel()])
        named = {"weight": weights.view(self.module.weight.shape), "bias": biases}
        return torch.func.functional_call(self.module, named, (values,))

    def row_gradients(self, values: Array, slopes: Array) -> RowGradients:
        """See `dpiw.methods.neural.networks.Layer`; a transposed one sees no private row."""
        assert type(self.module) is torch.nn.Conv2d  # whose rows are tested against autograd's
        found = samplers()[type(self.module)](self.module, [values.contiguous()], slopes)
        parts = [found[self.module.weight], found[self.module.bias]]
        rows = torch.cat([part.flatten(1) for part in parts], 1)
        return StoredGradients(rows, _magnitudes(self.module, values, slopes))


@cache
def samplers() -> Any:
    """What finds row gradients, by kind of layer; ImportError where Opacus is not installed.

    Importing Opacus gives the process's log a place, which is the process's own to choose.
    """
    handlers = logging.root.handlers[:]
    from opacus.grad_sample import GradSampleModule

    logging.root.handlers[:] = handlers
    return GradSampleModule.GRAD_SAMPLERS


def _magnitudes(module: Any, inputs: Array, slopes: Array) -> Array:
    """At least the sum of the norms of the parts of each row's gradient, shape (n,).

    By Cauchy and Schwarz. Each input meets each place of the kernel once; a bias has the slopes
    alone.
    """
    slopes, kernel = slopes.flatten(1), math.prod(module.kernel_size)
    squares = slopes.shape[1] + kernel * inputs.flatten(1).square().sum(1)
    return slopes.norm(dim=1) * squares.sqrt()
