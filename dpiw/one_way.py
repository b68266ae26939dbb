"""How well a generator knows the one-way distributions of its rows: features and their noise.

A generator that measured one-way marginals knows every column's distribution up to noise of known
variance. Weights that are fitted to other features move those distributions; with the marginals as
further targets, at what the generator's rows show, they do so only as far as either measurement
allows. It costs nothing.

Of a column of s codes the first s - 1 indicators are features. Counts are read as shares of their
total: what is left of the noise has the covariance v (I - 11'/s), and noise that two columns share,
as they were measured in one table, is gone, since it is in their totals alone. Source: METHOD
section 15.7 (b). That is for the noise as drawn: rows are sampled from marginals that were made
non-negative, which only brings them nearer to the truth (Wang et al. 2020, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from dpiw.domain import Domain
from dpiw.schema import PublicSchema, ScaledTable

Array = NDArray[np.float64]

MOST_CODES = 64
"""Columns of more codes are left out: their cells are small, and every code is a feature."""

MOST_INDICATORS = 1024
"""Of all columns together; those of fewest codes come first."""


@dataclass(frozen=True, kw_only=True)
class OneWayLaw:
    """Which marginals are known, and how well.

    Attributes:
        schema: the public schema.
        bins: of numeric columns that declare neither `bins` nor `cuts`.
        columns: indices of the released columns that are known, ascending.
        variances: of a noisy count of each of them, > 0.
    """

    schema: PublicSchema
    bins: int
    columns: tuple[int, ...]
    variances: tuple[float, ...]

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

    @property
    def levels(self) -> Array:
        """Shares that an error of the number of rows does not move: 1/s, shape (dimension,)."""
        return np.concatenate([np.zeros(0), *(np.full(s - 1, 1 / s) for s in self.sizes)])

    def matrix(self, scaled: ScaledTable) -> Array:
        """Indicators of the rows' codes, without each column's last, shape (n, dimension)."""
        codes, found = self.domain.codes(scaled), np.zeros((scaled.rows, self.dimension))
        start = 0
        for column, size in zip(self.columns, self.sizes, strict=True):
            own = codes[:, column]
            inside = np.flatnonzero(own < size - 1)
            found[inside, start + own[inside]] = 1.0
            start += size - 1
        return found

    def covariance(self, rows: float) -> Array:
        """Of the means' noise but for the error of `rows`, by which counts are divided."""
        parts = [
            v * (np.eye(s - 1) - 1 / s) / rows**2
            for s, v in zip(self.sizes, self.variances, strict=True)
        ]
        return np.asarray(block_diag(*parts)) if parts else np.zeros((0, 0))

    @classmethod
    def of(cls, domain: Domain, *, bins: int, variances: Sequence[float]) -> Self:
        """Of marginals of every released column; a rule of their sizes says which are kept.

        Args:
            domain: the codes.
            bins: it was made with.
            variances: of a noisy count of each released column, > 0.
        """
        kept = _kept(domain.sizes)
        return cls(
            schema=domain.schema,
            bins=bins,
            columns=kept,
            variances=tuple(float(variances[j]) for j in kept),
        )

    def to_json(self) -> dict[str, Any]:
        """Public facts for the certificate."""
        names = [column.name for column in self.schema.released]
        own = zip(self.columns, self.variances, strict=True)
        return {"bins": self.bins, "variances": {names[j]: v for j, v in own}}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any], schema: PublicSchema) -> Self:
        """What `to_json` said.

        Raises:
            KeyError: a column that the schema does not release, or a fact that is missing.
        """
        names = [column.name for column in schema.released]
        told = {str(name): float(v) for name, v in facts["variances"].items()}
        unknown = sorted(set(told) - set(names))
        if unknown:
            raise KeyError(f"column {unknown[0]}")
        columns = tuple(j for j, name in enumerate(names) if name in told)
        variances = tuple(told[names[j]] for j in columns)
        return cls(schema=schema, bins=int(facts["bins"]), columns=columns, variances=variances)


def _kept(sizes: Sequence[int]) -> tuple[int, ...]:
    """Columns of at most `MOST_CODES` codes, fewest first while there is room; ascending."""
    found, room = [], MOST_INDICATORS
    for j in np.argsort(sizes, kind="stable"):
        if 1 < sizes[j] <= min(MOST_CODES, room):
            found.append(int(j))
            room -= sizes[j]
    return tuple(sorted(found))
