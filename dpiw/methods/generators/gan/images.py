"""Convolutional networks of a GAN for small grey images; every pixel is a column.

No batch normalisation, which mixes rows. The label selects one output per label, so first logits
are of order one. Source: Radford et al. (2016); Miyato & Koyama (2018).
"""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from dpiw.methods.neural.backend import Array
from dpiw.methods.neural.networks import Dense, Layer, Layered, Plain
from dpiw.methods.neural.row_norms import Convolution

_SLOPE = 0.2
"""Of the leaky rectifiers, where they are negative."""

_GAIN = 6.0

_PER_ENTRY = 64
"""Numbers that a row's pass through a convolution holds for each of its inputs or outputs."""


def _leaky(values: Array, _: Array) -> Array:
    return torch.nn.functional.leaky_relu(values, _SLOPE)


def _flat(values: Array, _: Array) -> Array:
    return values.flatten(1)


def _convolution(module: Any, pixels: int) -> Convolution:
    size = int(module.weight.numel() + module.bias.numel())
    return Convolution(module, held=max(size, _PER_ENTRY * pixels))


@dataclass(frozen=True, kw_only=True)
class ImageDiscriminator(Layered):
    """From pixels, line by line, then a label of width `labels` (0: none), to one output."""

    sides: tuple[int, ...]
    labels: int
    channels: tuple[int, ...]

    @property
    def inputs(self) -> int:
        """See `Layered`."""
        return math.prod(self.sides) + self.labels

    @cached_property
    def parts(self) -> tuple[Layer | Plain, ...]:
        """See `Layered`; the last layer has an output, and one more for each label."""
        parts: list[Layer | Plain] = [self._image]
        sides = self.sides
        for channels in itertools.pairwise((1, *self.channels)):
            module = torch.nn.Conv2d(*channels, 5, 2, 2, device="meta")
            parts += [_convolution(module, math.prod(sides)), _leaky]
            sides = tuple(-(-side // 2) for side in sides)
        width = math.prod(sides) * (1, *self.channels)[-1]
        return (*parts, _flat, Dense(width, 1 + self.labels, _GAIN), self._logit)

    def _image(self, values: Array, _: Array) -> Array:
        return values[:, : math.prod(self.sides)].unflatten(1, (1, *self.sides))

    def _logit(self, values: Array, rows: Array) -> Array:
        labels = rows[:, math.prod(self.sides) :]
        return values[:, :1] + (values[:, 1:] * labels).sum(1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class ImageGenerator(Layered):
    """From latents and a label, of width `given`, to unbounded pixels, line by line."""

    sides: tuple[int, ...]
    given: int
    channels: tuple[int, ...]

    @property
    def inputs(self) -> int:
        """See `Layered`."""
        return self.given

    @property
    def _start(self) -> tuple[int, ...]:
        return tuple(side // 2 ** len(self.channels) for side in self.sides)

    @cached_property
    def parts(self) -> tuple[Layer | Plain, ...]:
        """See `Layered`."""
        first = Dense(self.given, self.channels[0] * math.prod(self._start), _GAIN)
        parts: list[Layer | Plain] = [first, self._image]
        for channels in itertools.pairwise((*self.channels, 1)):
            module = torch.nn.ConvTranspose2d(*channels, 4, 2, 1, device="meta")
            parts += [_leaky, _convolution(module, math.prod(self.sides))]
        return (*parts, _flat)

    def _image(self, values: Array, _: Array) -> Array:
        return values.unflatten(1, (self.channels[0], *self._start))
