"""Convolutional networks of a GAN for small grey images; every pixel is a column.

Strided convolutions down to the discriminator's output, transposed ones up to the generator's
pixels (Radford et al. 2016), without batch normalisation, which mixes rows. A label enters the
discriminator as a projection of its features (Miyato & Koyama 2018), written as one output per
label of which the row's own is taken: so the first logits are of order one. The generator has it
as inputs.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import torch

from dpiw.methods.neural.backend import Array
from dpiw.methods.neural.opacus_engine import ModuleArchitecture

_SLOPE = 0.2
"""Of the leaky rectifiers, where they are negative."""


@lru_cache(maxsize=8)
def image_discriminator(
    sides: tuple[int, ...], labels: int, channels: tuple[int, ...]
) -> ModuleArchitecture:
    """From a row, its pixels line by line and then its label, to one output.

    Args:
        sides: lines of the image, and pixels in each.
        labels: width of the one-hot label; 0 for none.
        channels: of each layer, which halves the image.
    """
    module = _Discriminator(sides, labels, channels)
    return ModuleArchitecture(module=module, example=_example(math.prod(sides) + labels))


@lru_cache(maxsize=8)
def image_generator(
    sides: tuple[int, ...], inputs: int, channels: tuple[int, ...]
) -> ModuleArchitecture:
    """From latents and a label to the pixels, line by line, of any size.

    Args:
        sides: lines of the image, and pixels in each; divisible by 2 for each layer.
        inputs: latents and the width of the label.
        channels: at the input of each layer, which doubles the image.
    """
    start = tuple(side // 2 ** len(channels) for side in sides)
    layers = [torch.nn.Linear(inputs, channels[0] * math.prod(start))]
    layers.append(torch.nn.Unflatten(1, (channels[0], *start)))
    for channels_in, channels_out in itertools.pairwise((*channels, 1)):
        layers += [
            torch.nn.LeakyReLU(_SLOPE),
            torch.nn.ConvTranspose2d(channels_in, channels_out, 4, 2, 1),
        ]
    module = torch.nn.Sequential(*layers, torch.nn.Flatten())
    return ModuleArchitecture(module=module, example=_example(inputs))


def _example(width: int) -> Array:
    """Two public rows of irregular numbers in [-1, 1]."""
    return np.cos(np.arange(2.0 * width) ** 1.5).reshape(2, width)


class _Discriminator(torch.nn.Module):  # type: ignore[misc]
    """See `image_discriminator`."""

    def __init__(self, sides: tuple[int, ...], labels: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.sides, layers = sides, []
        for channels_in, channels_out in itertools.pairwise((1, *channels)):
            layers += [
                torch.nn.Conv2d(channels_in, channels_out, 5, 2, 2),
                torch.nn.LeakyReLU(_SLOPE),
            ]
            sides = tuple(-(-side // 2) for side in sides)
        width = math.prod(sides) * (channels[-1] if channels else 1)
        self.features = torch.nn.Sequential(*layers, torch.nn.Flatten())
        self.last = torch.nn.Linear(width, 1)
        self.labels = torch.nn.Linear(width, labels) if labels else None

    def forward(self, rows: Array) -> Array:
        """The logit of each row, shape (n, 1)."""
        pixels = math.prod(self.sides)
        features = self.features(rows[:, :pixels].unflatten(1, (1, *self.sides)))
        logit = self.last(features)
        if self.labels is None:
            return logit
        return logit + (self.labels(features) * rows[:, pixels:]).sum(1, keepdim=True)
