"""Schemas and tables that the tests of the weights share."""

from __future__ import annotations

import numpy as np
import pytest

from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit


def numeric_schema(count: int, *, target: bool = False) -> PublicSchema:
    columns = [
        Column(name=f"x{i}", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0)
        for i in range(count - int(target))
    ]
    if target:
        columns.append(
            Column(
                name="y", kind=ColumnKind.CONTINUOUS, role=ColumnRole.TARGET, lower=0.0, upper=1.0
            )
        )
    return PublicSchema(name="numeric", columns=tuple(columns))


def mixed_schema() -> PublicSchema:
    return PublicSchema(
        name="mixed",
        columns=(
            Column(name="id", kind=ColumnKind.CATEGORICAL, role=ColumnRole.IDENTIFIER),
            Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0),
            Column(name="sex", kind=ColumnKind.BOOLEAN),
            Column(name="job", kind=ColumnKind.CATEGORICAL, levels=("a", "b", "c"), nullable=True),
            Column(name="pay", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True),
            Column(name="sick", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET),
        ),
    )


def uniform_rows(
    schema: PublicSchema, rows: int, rng: np.random.Generator, *, power: float = 1.0
) -> ScaledTable:
    """Uniform rows with every level, missing included, equally likely; numbers to a power."""
    columns = {}
    for column in schema.released:
        if column.is_numeric:
            values = rng.random(rows) ** power
            if column.nullable:
                values = np.where(rng.random(rows) < 0.5, np.nan, values)
            columns[column.name] = values
        else:
            low = -1 if column.nullable else 0
            columns[column.name] = rng.integers(low, column.cardinality, rows).astype(np.int32)
    return ScaledTable(columns, rows)


@pytest.fixture
def unit() -> PrivacyUnit:
    return PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)


@pytest.fixture
def replace_unit() -> PrivacyUnit:
    return PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE)


@pytest.fixture
def numeric():
    return numeric_schema


@pytest.fixture
def mixed() -> PublicSchema:
    return mixed_schema()


@pytest.fixture
def rows():
    return uniform_rows
