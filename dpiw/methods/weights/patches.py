"""Random convolutional features of square grey images, with a public norm bound.

The columns of numbers, but the target, are the pixels of a square image, line by line, each in
[0, 1]. A random filter f and a patch z of centred pixels give cos(f.z) and sin(f.z), the random
Fourier features of patches (Rahimi & Recht 2007); they are averaged over the patches of a part of
the image. For F filters and R parts the mean of unit vectors has norm at most 1, so that all
features over sqrt(F R) have norm at most 1 for every image; an image of one grey meets it.

The filters are public: they come from the public integer `omega_seed` and are no privacy noise. A
row's features are a function of that row alone to the last bit: every step is elementwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.methods.weights.public_normals import public_normals

Array = NDArray[np.float64]

KERNEL = 5
"""Pixels of a filter's side."""

_LARGE = 20
"""From so many pixels of an image's side on, every second patch in a line is taken."""

_MOST_PARTS = 4
"""Of an image's side that features are averaged over, at most."""


@dataclass(frozen=True, kw_only=True)
class PatchMap:
    """Cosines and sines of random filters' responses, averaged over parts of an image.

    Attributes:
        schema: whose columns of numbers are pixels.
        frequencies: features are about twice as many: two for each filter and part.
        scales: of the filters, in public scales, in turn.
        omega_seed: public integer that fixes them.
    """

    schema: PublicSchema
    frequencies: int
    scales: tuple[float, ...]
    omega_seed: int

    @cached_property
    def pixels(self) -> tuple[str, ...]:
        """Columns of numbers without missing cells, but the target."""
        target = self.schema.target
        columns = [c for c in self.schema.released if c.is_numeric and c is not target]
        return tuple(column.name for column in columns if not column.nullable)

    @property
    def side(self) -> int:
        """Pixels of the image's side; 0 where the columns are no image that holds a filter."""
        side = math.isqrt(len(self.pixels))
        return side if side**2 == len(self.pixels) and side >= KERNEL else 0

    @cached_property
    def _bands(self) -> list[Array]:
        """Where the patches of each part of a side begin."""
        places = np.arange(0, self.side - KERNEL + 1, 2 if self.side >= _LARGE else 1)
        return np.array_split(places, min(_MOST_PARTS, places.size))

    @property
    def _filters(self) -> int:
        return max(1, self.frequencies // len(self._bands) ** 2)

    @property
    def dimension(self) -> int:
        """Features of a row."""
        return 2 * self._filters * len(self._bands) ** 2

    @cached_property
    def _omega(self) -> Array:
        """Shape (5, 5, F): of `public_scale` for a uniform patch, times `scales`."""
        normal = public_normals(self.omega_seed, KERNEL**2 * self._filters, stream=1)
        scales = np.resize(np.asarray(self.scales), self._filters)
        stddevs = math.sqrt(5.0 / 3.0 / (KERNEL**2 / 12)) * scales
        return np.ascontiguousarray(stddevs * normal.reshape(KERNEL, KERNEL, -1))

    def matrix(self, scaled: ScaledTable) -> Array:
        """Feature rows, shape (rows, dimension), of norm at most 1."""
        names = np.array(self.pixels).reshape(self.side, self.side)
        images = [[scaled.columns[name] - 0.5 for name in line] for line in names]
        parts = [self._part(images, ys, xs) for ys in self._bands for xs in self._bands]
        return np.asarray(np.hstack(parts) / math.sqrt(self._filters * len(parts)))

    def _part(self, images: list[list[Array]], ys: Array, xs: Array) -> Array:
        """The mean over the patches that begin at some lines and places, shape (rows, 2 F)."""
        rows, count = images[0][0].size, self._filters
        total = np.zeros((rows, 2 * count))
        for y in ys:
            for x in xs:
                angle = np.zeros((rows, count))
                for line, weights in zip(images[y : y + KERNEL], self._omega, strict=True):
                    for pixel, omega in zip(line[x : x + KERNEL], weights, strict=True):
                        angle += pixel[:, None] * omega
                total[:, :count] += np.cos(angle)
                total[:, count:] += np.sin(angle)
        return total / (ys.size * xs.size)
