"""One-way marginals that a generator measured, as extra free targets for weights.

Targets are shares p of noisy counts with variance v, projected to the noisy total T. Before cutting
at zero (Wang et al. 2020, section 4), the covariance of p over s codes is

    v/T^2 (I - 11'/s) + Var(T)/T^2 (p - 1/s)(p - 1/s)'.

The first s - 1 indicators of a column are its features. Source: docs/method.md section 14.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.errors import ReleaseError, SchemaError

Array = NDArray[np.float64]

MOST_CODES = 64
"""Most codes of a column: larger columns have small cells and many features."""

MOST_INDICATORS = 1024
"""Most codes of all columns together; columns of fewest codes come first."""


@dataclass(frozen=True, kw_only=True)
class OneWayLaw:
    """Which marginals are known, and their noise.

    Attributes:
        bins: of numeric columns that declare neither `bins` nor `cuts`.
        columns: indices of the known released columns, ascending.
        variances: noise variance of one count, for each known column, > 0.
        total_variance: of the noisy number of rows, >= 0.
    """

    schema: PublicSchema
    bins: int
    columns: tuple[int, ...]
    variances: tuple[float, ...]
    total_variance: float

    @cached_property
    def domain(self) -> Domain:
        """Codes of every released column."""
        return Domain.from_schema(self.schema, bins=self.bins)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Codes of each known column."""
        return tuple(self.domain.sizes[j] for j in self.columns)

    @property
    def dimension(self) -> int:
        """Features of a row."""
        return sum(self.sizes) - len(self.sizes)

    def matrix(self, scaled: ScaledTable) -> Array:
        """Indicators of the rows' codes, without each column's last, shape (n, dimension)."""
        codes, indicators = self.domain.codes(scaled), np.zeros((scaled.rows, self.dimension))
        start = 0
        for column, size in zip(self.columns, self.sizes, strict=True):
            column_codes = codes[:, column]
            inside = np.flatnonzero(column_codes < size - 1)
            indicators[inside, start + column_codes[inside]] = 1.0
            start += size - 1
        return indicators

    def bins_of(self, scaled: ScaledTable) -> dict[str, NDArray[np.int32]]:
        """The rows' codes of the known columns of numbers, shape (n,) each, by name."""
        indices = {self.schema.released[j].name: j for j in self.columns}
        codes = self.domain.codes(scaled)
        return {n: codes[:, j] for n, j in indices.items() if self.schema.released[j].is_numeric}

    def covariance(self, shares: Array, rows: float) -> Array:
        """Return the covariance of the noise, (dimension, dimension), at means near the targets."""
        parts = [
            v * (np.eye(s - 1) - 1 / s) / rows**2
            for s, v in zip(self.sizes, self.variances, strict=True)
        ]
        if not parts:
            return np.zeros((0, 0))
        away = shares - np.concatenate([np.full(s - 1, 1 / s) for s in self.sizes])
        shared = self.total_variance / rows**2 * np.outer(away, away)
        return np.asarray(block_diagonal(*parts) + shared)

    def to_json(self) -> dict[str, Any]:
        """Public facts for the certificate."""
        names = [column.name for column in self.schema.released]
        column_variances = zip(self.columns, self.variances, strict=True)
        return {
            "bins": self.bins,
            "total_variance": self.total_variance,
            "variances": {names[j]: v for j, v in column_variances},
        }

    @classmethod
    def from_json(cls, facts: Any, schema: PublicSchema) -> Self:
        """Read what `to_json` wrote; ReleaseError if it does not fit the schema."""
        try:
            variances = dict(facts["variances"])
            bins, total = facts["bins"], float(facts["total_variance"])
            names = [column.name for column in schema.released]
            law = cls(
                schema=schema,
                bins=bins,
                columns=tuple(j for j, name in enumerate(names) if name in variances),
                variances=tuple(float(variances[name]) for name in names if name in variances),
                total_variance=total,
            )
            good = isinstance(bins, int) and len(law.columns) == len(variances)
            good = good and all(0 < v < math.inf for v in law.variances)
            good = (
                good
                and 0 <= total < math.inf
                and set(law.columns) <= set(_small_columns(law.domain.sizes))
            )
        except (KeyError, TypeError, ValueError, OverflowError, SchemaError):
            good = False
        if not good:
            fault = "its `one_way` does not fit the release's schema; report this to the curator"
            raise ReleaseError(fault, field="certificate")
        return law


@dataclass(frozen=True, kw_only=True, eq=False)
class OneWayMarginals:
    """One-way shares, (dimension,), and their noise; `total` is 0 without known columns."""

    law: OneWayLaw
    shares: Array = field(repr=False)
    total: float

    @classmethod
    def of(
        cls,
        domain: Domain,
        *,
        bins: int,
        marginals: Sequence[Array],
        variances: Sequence[float],
        total_variance: float,
    ) -> Self:
        """Build from the marginals of every released column; sizes decide which columns are kept.

        Args:
            domain: the codes.
            bins: the domain's setting.
            marginals: by released column, shape (s,), non-negative, all with one total.
            variances: of one count, by released column, > 0.
            total_variance: of that total.
        """
        columns = _small_columns(domain.sizes)
        law = OneWayLaw(
            schema=domain.schema,
            bins=bins,
            columns=columns,
            variances=tuple(float(variances[j]) for j in columns),
            total_variance=total_variance,
        )
        parts = [(marginals[j] / marginals[j].sum())[:-1] for j in columns]
        total = float(marginals[columns[0]].sum()) if columns else 0.0
        return cls(law=law, shares=np.concatenate([np.zeros(0), *parts]), total=total)

    def counts(self) -> Iterator[tuple[int, Array, float]]:
        """Index, counts (non-negative) and their variance of each known column."""
        law = self.law
        for column, part, variance in zip(law.columns, self._parts, law.variances, strict=True):
            yield column, self.total * np.maximum(np.append(part, 1 - part.sum()), 0.0), variance

    @property
    def _parts(self) -> list[Array]:
        ends = np.cumsum([size - 1 for size in self.law.sizes])
        return np.split(self.shares, ends)[:-1]

    def without(self, column: int) -> Self:
        """Without one released column, by its index; the others stay."""
        law, places = self.law, [j for j, other in enumerate(self.law.columns) if other != column]
        parts = self._parts
        new_law = replace(
            law,
            columns=tuple(law.columns[j] for j in places),
            variances=tuple(law.variances[j] for j in places),
        )
        return replace(
            self, law=new_law, shares=np.concatenate([np.zeros(0), *(parts[j] for j in places)])
        )


def _small_columns(sizes: Sequence[int]) -> tuple[int, ...]:
    """Columns of at most `MOST_CODES` codes, fewest first, within `MOST_INDICATORS`; ascending."""
    columns, room = [], MOST_INDICATORS
    for j in np.argsort(sizes, kind="stable"):
        if 1 < sizes[j] <= min(MOST_CODES, room):
            columns.append(int(j))
            room -= sizes[j]
    return tuple(sorted(columns))


def block_diagonal(*blocks: Array) -> Array:
    """Square blocks along the diagonal, zeros elsewhere; avoids SciPy for analysts."""
    width = sum(len(block) for block in blocks)
    matrix, start = np.zeros((width, width)), 0
    for block in blocks:
        stop = start + len(block)
        matrix[start:stop, start:stop] = block
        start = stop
    return matrix
