"""Uniform rows of a schema, for forecasts from public facts alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable


def reference_rows(schema: PublicSchema, rows: int, rng: np.random.Generator) -> ScaledTable:
    """Numbers uniform over their range, levels equally likely; missing cells count as a level.

    Args:
        schema: public.
        rows: how many.
        rng: of the simulation.
    """
    columns: dict[str, NDArray[Any]] = {}
    for column in schema.released:
        if column.is_numeric:
            values = rng.random(rows)
            missing = rng.random(rows) < 0.5
            columns[column.name] = np.where(missing, np.nan, values) if column.nullable else values
        else:
            low = -1 if column.nullable else 0
            codes = rng.integers(low, column.cardinality, rows)
            columns[column.name] = codes.astype(np.int32)
    return ScaledTable(columns, rows)
