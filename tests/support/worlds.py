"""Schemas, tables, units and laws that tests share: numbers, flags, levels, one of every geometry.

`numbers`, `flags`, `levels` and `mixed` are the four schemas; `people` and `outcomes` are what an
analyst's table holds; the workplace of `tests/conftest.py` has the town's.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.schema.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighbouringRelation.REPLACE_ONE


def unit_of(relation: NeighbouringRelation, rows: int = 1) -> PrivacyUnit:
    return PrivacyUnit(relation=relation, max_rows=rows, id_column="id" if rows > 1 else None)


UNITS = tuple(unit_of(relation, rows) for relation in (ADD, REPLACE) for rows in (1, 3))
UNIT = UNITS[0]
"""A row comes or goes."""
REPLACED = UNITS[2]
"""A row is another."""


def declared(*columns: dict[str, Any], name: str = "s", **more: Any) -> PublicSchema:
    """Columns as a data dictionary's file states them."""
    return PublicSchema.from_mapping({"name": name, "columns": [*columns], **more})


def _role(is_target: bool) -> ColumnRole:
    return ColumnRole.TARGET if is_target else ColumnRole.FEATURE


def numbers(
    count: int, *, target: bool = False, nullable: bool = False, name: str = "numeric"
) -> PublicSchema:
    """Columns x0, x1, ... on [0, 1]; with a target the last of `count` is y."""
    names = [f"x{i}" for i in range(count - target)] + ["y"] * target
    columns = (
        Column(
            name=each, kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=nullable,
            role=_role(each == "y"),
        )
        for each in names
    )  # fmt: skip
    return PublicSchema(name=name, columns=tuple(columns))


def flags(*names: str, target: str = "", name: str = "canary") -> PublicSchema:
    """Booleans."""
    columns = (Column(name=n, kind=ColumnKind.BOOLEAN, role=_role(n == target)) for n in names)
    return PublicSchema(name=name, columns=tuple(columns))


def levels(
    count: int, of: int = 3, *, target: int | None = None, nullable: bool = False,
    name: str = "canary",
) -> PublicSchema:  # fmt: skip
    """Columns c0, c1, ... of levels a, b, ...; every other one may be missing if `nullable`."""
    columns = (
        Column(
            name=f"c{j}", kind=ColumnKind.CATEGORICAL, levels=tuple("abcdefghij"[:of]),
            role=_role(j == target), nullable=nullable and j % 2 == 1,
        )
        for j in range(count)
    )  # fmt: skip
    return PublicSchema(name=name, columns=tuple(columns))


def mixed() -> PublicSchema:
    """A number, a nullable one, flags, levels, nullable levels; an identifier and a target."""
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


def repeated(schema: PublicSchema, *codes: int) -> PrivateTable:
    """Rows that have the same code in every column."""
    values = np.array(codes, dtype=np.int32)
    scaled = ScaledTable({c.name: values for c in schema.columns}, len(codes))
    return PrivateTable(schema=schema, scaled=scaled)


def coded(schema: PublicSchema, codes: np.ndarray) -> PrivateTable:
    """Rows of these codes, one column of the array for each of the schema."""
    cells = np.asarray(codes, dtype=np.int32)
    columns = {column.name: cells[:, j].copy() for j, column in enumerate(schema.released)}
    return PrivateTable(schema=schema, scaled=ScaledTable(columns, len(cells)))


def people(rows: int = 400, *, seed: int = 31) -> pd.DataFrame:
    """Numbers, flags, levels and days; incomes and visits may be missing."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, rows),
            "income": np.where(rng.random(rows) < 0.1, np.nan, rng.gamma(2.0, 1000.0, rows)),
            "smoker": rng.random(rows) < 0.3,
            "region": rng.choice(["north", "south", "west"], rows),
            "visits": pd.array(rng.choice([1, 2, 3, None], rows), dtype="Int64"),
            "born": pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 9999, rows), "D"),
            "odd name": rng.normal(size=rows),
        }
    )


def outcomes(rows: int = 400, *, seed: int = 11) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """A number `y`, a flag and a positive cost that depend on x, z and levels g; and weights."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, rows))
    frame = pd.DataFrame({"x": x, "z": z, "g": rng.choice(list("pqr"), rows)})
    frame["h"] = rng.choice(["u", "v"], rows)
    frame["y"] = 1 + 2 * x - z + (frame["g"] == "q") + rng.normal(size=rows)
    frame["flag"] = rng.random(rows) < 1 / (1 + np.exp(-(0.3 + x - 0.5 * z)))
    frame["cost"] = np.exp(x / 2) * rng.gamma(3.0, 1.0, rows)
    return frame, rng.gamma(2.0, 1.0, rows)


class KnownMeans(MeansLaw):
    """The law of measured weights where features explain all: noise and samples, no guess."""

    @property
    def prior(self) -> NDArray[np.float64]:  # type: ignore[override]
        return np.zeros(len(self.weights))


def at_weights(estimator: Any, sample: Any) -> Any:
    """An estimator's values as a function of the sample's weights, shape (n,) to (p,)."""
    return lambda weights: estimator(replace(sample, weights=weights)).values
