"""Neighbouring tables under published rows, random and adversarial."""

from __future__ import annotations

import numpy as np

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.privacy.units import PrivacyUnit
from tests.proof.adversary import extreme_rows
from tests.support.worlds import ADD, REPLACE


def constant_table(schema: PublicSchema, value: float, count: int) -> ScaledTable:
    """`count` equal rows."""
    columns = {column.name: np.full(count, value) for column in schema.released}
    return ScaledTable(columns, count)


def neighbours(
    unit: PrivacyUnit, schema: PublicSchema, rng: np.random.Generator, *, adversarial: bool
) -> tuple[ScaledTable, ScaledTable]:
    """Two tables: canaries at opposite corners, or random and extreme rows."""
    k = unit.max_rows
    if adversarial:
        top, bottom = (constant_table(schema, value, k) for value in (1.0, 0.0))
        before = bottom if unit.relation is REPLACE else top.take(np.arange(0))
        return before, top
    rows = extreme_rows(schema, k + 5, rng)
    fewer = rows.take(np.arange(k, k + 5))
    if unit.relation is ADD:
        return rows, fewer
    return rows, ScaledTable.concatenate([extreme_rows(schema, k + 3, rng).take(range(k)), fewer])
