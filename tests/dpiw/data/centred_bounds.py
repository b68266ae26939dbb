"""Bounds of the centred features from the schema alone: a second way to those of `features`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema


def squared_norm(schema: PublicSchema) -> float:
    """Sup over rows: 1/4 a value, (1 - 1/L)/2 a block."""
    return float(sum((1 - 1 / b.width) / 2 if b.indicator else 0.25 for b in schema.blocks))


def squared_diameter(schema: PublicSchema) -> float:
    """Sup over pairs of rows of the squared distance.

    Per column: numeric 1; levels 1 (0 if there is only one); nullable numeric 5/4, a present value
    at a bound against a missing one.
    """
    total = 0.0
    for column in schema.released:
        if column.is_numeric:
            total += 1.25 if column.nullable else 1.0
        else:
            total += float(column.cardinality + column.nullable > 1)
    return total


def centred_reference_variances(schema: PublicSchema) -> NDArray[np.float64]:
    """Variance of each centred coordinate of a uniform row, shape (width,).

    Value 1/12; block coordinate (1/L)(1 - 1/L)/2.
    """
    variances = np.empty(schema.width)
    for block in schema.blocks:
        share = 1.0 / block.width
        variance = share * (1 - share) / 2 if block.indicator else 1 / 12
        variances[block.start : block.stop] = variance
    return variances


def reference_squared_norm(schema: PublicSchema) -> float:
    """Expected squared norm for a uniform row: the variances' sum."""
    return float(centred_reference_variances(schema).sum())
