"""Every row's gradient by a layer's parameters, in the form in which it is cheapest to hold.

For a dense layer with input a and slope d, one row's gradient is the outer product of (a, 1) and
d, so its squared norm is |d|^2 (|a|^2 + 1), and scaling d by a row's clip factor before multiplying
out gives the sum of clipped gradients: no row's gradient is ever stored (Goodfellow 2015). Of every
other layer Opacus makes the rows' gradients (`dpiw.methods.neural.convolutions`), and the sum is
made of the numbers that the norms were found by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from dpiw.methods.neural.backend import Array, library

SHARE = 2.0**-10
"""Of the magnitudes of its parts, that a row's norm is taken to have at least.

Where a row's gradient by a layer is a sum (over pixels), huge parts may cancel, and a sum over rows
then errs by a rounding of the parts. Parts that cancel have magnitudes of at most C / SHARE: a sum
over n rows with N parts together errs by at most n N 2^-43 C, to first order."""


class RowGradients(Protocol):
    """The gradients of n rows by the parameters of one layer."""

    def squares(self) -> Array:
        """Squared norm of each row's gradient, shape (n,)."""
        ...

    def magnitudes(self) -> Array | None:
        """At least the sum of the norms of what each row's gradient is a sum of, shape (n,).

        None where it is one product, in which nothing cancels.
        """
        ...

    def sum(self, factors: Array) -> Array:
        """Sum over rows of factor times gradient, shape (size,); factors of shape (n,)."""
        ...

    def kept(self, keep: Array) -> Self:
        """With zeros for the rows that are not kept, shape (n,), even after NaN."""
        ...


@dataclass(frozen=True, eq=False)
class DenseGradients:
    """A dense layer's, by what it was given and its slopes, shapes (n, inputs) and (n, outputs)."""

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

    def kept(self, keep: Array) -> DenseGradients:
        """See `RowGradients`."""
        return DenseGradients(
            self.inputs.where(keep[:, None], 0.0), self.slopes.where(keep[:, None], 0.0)
        )


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

    def kept(self, keep: Array) -> StoredGradients:
        """See `RowGradients`."""
        return StoredGradients(self.rows.where(keep[:, None], 0.0), self.parts.where(keep, 0.0))


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

    def kept(self, keep: Array) -> AllGradients:
        """With zeros for the rows that are not kept, shape (n,), even after NaN."""
        return AllGradients(tuple(layer.kept(keep) for layer in self.layers))


def _squares(rows: Array) -> Array:
    return (rows * rows).sum(1)
