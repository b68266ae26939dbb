"""The measures of a rehearsal: distances of weighted rows from a public truth.

Everything works on scaled rows and public bins, with weights that sum to one.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import Column, ColumnKind, PublicSchema, ScaledTable
from dpiw.plan.rehearsal.populations import WeightedRows

Array = NDArray[np.float64]

MEASURES: Mapping[str, str] = {
    "one_way": "sum 1-way TV",
    "two_way": "mean 2-way TV",
    "wasserstein": "sum 1-D W",
    "coefficients": "coefficients",
    "means": "means",
}
"""Names in a record, and in the table's head."""

RELATIVE = frozenset({"coefficients", "means"})
"""Distances divided by the truth's mean norm; squared for coefficients (docs/method.md section 8).
"""

PENALTY_PER_ROW = 1e-3
"""The same penalty per row on both sides, as docs/method.md section 8 requires."""

MOST_PAIRS = 300
MOST_PAIR_CELLS = 4096
_BINS, _PAIR_BINS, _GRID = 16, 8, 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Portrait:
    """The compared quantities of one table.

    Attributes:
        one_way: shares of every column's public bins, missing included.
        two_way: shares of the joint bins of every compared pair.
        cumulative: distribution functions of present cells, shape (ordered columns, grid).
        coefficients: of the target on the other columns, intercept included.
        means: of the encoded row, shape (width,).
    """

    one_way: tuple[Array, ...]
    two_way: tuple[Array, ...]
    cumulative: Array
    coefficients: Array
    means: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Scorer:
    """The measures of one schema: the keys of `MEASURES` that it admits, and pairs of columns."""

    schema: PublicSchema
    pairs: tuple[tuple[int, int], ...]
    measures: tuple[str, ...]

    @classmethod
    def of(cls, schema: PublicSchema, *, rng: np.random.Generator) -> Self:
        """Choose the pairs: all whose joint table is small, at most `MOST_PAIRS` at random."""
        sizes = Domain.from_schema(schema, bins=_PAIR_BINS).sizes
        pairs = [
            (i, j)
            for i, j in itertools.combinations(range(len(sizes)), 2)
            if sizes[i] * sizes[j] <= MOST_PAIR_CELLS
        ]
        if len(pairs) > MOST_PAIRS:
            chosen = sorted(rng.choice(len(pairs), size=MOST_PAIRS, replace=False))
            pairs = [pairs[index] for index in chosen]
        lacking = set() if pairs else {"two_way"}
        if not any(_has_distance(column) for column in schema.released):
            lacking.add("wasserstein")
        if schema.target is None or len(schema.released) < 2:
            lacking.add("coefficients")
        return cls(
            schema=schema,
            pairs=tuple(pairs),
            measures=tuple(name for name in MEASURES if name not in lacking),
        )

    def portrait(self, rows: WeightedRows) -> Portrait:
        """Compute everything that is compared; `rows.weights` sum to one."""
        scaled, weights = rows.scaled, rows.weights
        fine = Domain.from_schema(self.schema, bins=_BINS)
        codes = fine.codes(scaled)
        one_way = tuple(
            _shares(codes[:, j].astype(np.intp), weights, size) for j, size in enumerate(fine.sizes)
        )
        coarse = Domain.from_schema(self.schema, bins=_PAIR_BINS)
        codes = coarse.codes(scaled)
        sizes = coarse.sizes
        two_way = tuple(
            _shares(
                codes[:, i].astype(np.intp) * sizes[j] + codes[:, j], weights, sizes[i] * sizes[j]
            )
            for i, j in self.pairs
        )
        measured = "coefficients" in self.measures
        return Portrait(
            one_way=one_way,
            two_way=two_way,
            cumulative=self._cumulative(scaled, weights),
            coefficients=self._coefficients(scaled, weights) if measured else np.zeros(0),
            means=weights @ self.schema.encode(scaled),
        )

    def distances(self, portrait: Portrait, truth: Portrait) -> dict[str, float]:
        """Return every measure; those of `RELATIVE` not yet divided by `norms`."""
        distances = {
            "one_way": sum(map(_variation, portrait.one_way, truth.one_way)),
            "two_way": sum(map(_variation, portrait.two_way, truth.two_way))
            / max(1, len(self.pairs)),
            "wasserstein": float(np.abs(portrait.cumulative - truth.cumulative).sum() / _GRID),
            "coefficients": float(((portrait.coefficients - truth.coefficients) ** 2).sum()),
            "means": float(np.linalg.norm(portrait.means - truth.means)),
        }
        return {name: distances[name] for name in self.measures}

    def norms(self, truth: Portrait) -> dict[str, float]:
        """Return the truth's norms, which divide the distances in `RELATIVE`."""
        norms = {
            "coefficients": float((truth.coefficients**2).sum()),
            "means": float(np.linalg.norm(truth.means)),
        }
        return {name: norms[name] for name in self.measures if name in RELATIVE}

    def _cumulative(self, scaled: ScaledTable, weights: Array) -> Array:
        rows = []
        for column in self.schema.released:
            if not _has_distance(column):
                continue
            place, present = _places(column, scaled)
            cells = np.minimum(place[present] * _GRID, _GRID - 1).astype(np.intp)
            mass = _shares(cells, weights[present], _GRID)
            rows.append(np.cumsum(mass) / max(mass.sum(), 1e-300))
        return np.array(rows).reshape(len(rows), _GRID)

    def _coefficients(self, scaled: ScaledTable, weights: Array) -> Array:
        """Ridge of the target on centred features: logistic for two levels, else least squares."""
        target = self.schema.target
        if target is None:
            return np.zeros(0)
        target_columns = np.concatenate(
            [np.arange(b.start, b.stop) for b in self.schema.blocks if b.column == target.name]
        )
        x = np.delete(self.schema.centred(scaled), target_columns, axis=1)
        place, present = _places(target, scaled)
        x, place, share = x[present], place[present], weights[present]
        share = share / max(share.sum(), 1e-300)
        if target.is_discrete and target.cardinality == 2:
            return _logistic(x, place, share)
        if target.kind is ColumnKind.CATEGORICAL:
            levels = np.arange(target.cardinality)
            codes = scaled.columns[target.name][present]
            return _least_squares(x, (codes[:, None] == levels).astype(np.float64), share)
        return _least_squares(x, place[:, None], share)


def _shares(codes: NDArray[np.intp], weights: Array, size: int) -> Array:
    return np.asarray(np.bincount(codes, weights=weights, minlength=size), dtype=np.float64)


def _variation(shares: Array, truth: Array) -> float:
    return float(np.abs(shares - truth).sum() / 2)


def _has_distance(column: Column) -> bool:
    return column.kind is not ColumnKind.CATEGORICAL or column.cardinality == 2


def _places(column: Column, scaled: ScaledTable) -> tuple[Array, NDArray[np.bool_]]:
    """Return positions in [0, 1], shape (rows,), and where the cell is present."""
    values: NDArray[Any] = scaled.columns[column.name]
    if column.is_numeric:
        return values.astype(np.float64), ~np.isnan(values)
    return values / max(1, column.cardinality - 1), values >= 0


def _logistic(x: Array, y: Array, share: Array) -> Array:
    """Return coefficients and intercept, shape (p + 1,); zeros where one class has no weight."""
    from sklearn.linear_model import LogisticRegression

    ones = y > 0.5
    if not (share[ones].sum() > 0 and share[~ones].sum() > 0):
        return np.zeros(x.shape[1] + 1)
    model = LogisticRegression(C=1 / (PENALTY_PER_ROW * len(x)), max_iter=5000)
    model.fit(x, ones, sample_weight=share * len(x))
    return np.concatenate([model.coef_[0], model.intercept_])


def _least_squares(x: Array, y: Array, share: Array) -> Array:
    """Return flat coefficients and intercepts; penalty: a constant times half the squared norm."""
    x_mean, y_mean = share @ x, share @ y
    centred = x - x_mean
    curvature = (centred * share[:, None]).T @ centred
    curvature[np.diag_indices_from(curvature)] += PENALTY_PER_ROW
    coefficients = np.linalg.solve(curvature, (centred * share[:, None]).T @ (y - y_mean))
    return np.concatenate([coefficients.ravel(), y_mean - x_mean @ coefficients])
