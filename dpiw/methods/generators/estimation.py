"""Consistent estimates from noisy marginals: free post-processing of released values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.base import OTHER_SCHEMA
from dpiw.methods.generators.bayesian_network import Conditional, Family
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.measurement import Measurement

_RAKING_ROUNDS = 10


def project_to_total(values: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Project (Euclidean) onto non-negative tables that sum to `total` > 0 ("norm-sub").

    Source: Wang et al. (2020), section 4; Duchi et al. (2008), figure 1.
    """
    flat = values.ravel()
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, flat.size + 1)
    support_size = int(np.count_nonzero(descending > excess))
    projected = np.maximum(values - excess[max(support_size, 1) - 1], 0.0)
    # Rounding of huge noise against a small total may leave nothing; one cell always stays.
    if projected.sum() <= 0:
        projected = (values == values.max()).astype(np.float64)
    return np.asarray(projected * (total / projected.sum()))


def estimate_total(tables: Sequence[NDArray[np.float64]], variances: Sequence[float]) -> float:
    """Return the noisy number of rows, at least 1: precision-weighted mean of the tables' sums.

    `variances` are of one cell of each table.
    """
    sums = np.array([table.sum() for table in tables])
    weights = 1.0 / np.array([t.size * v for t, v in zip(tables, variances, strict=True)])
    return max(1.0, float(np.sum(sums * weights) / np.sum(weights)))


def total_variance(tables: Sequence[NDArray[np.float64]], variances: Sequence[float]) -> float:
    """Variance of `estimate_total`, from the same arguments."""
    return 1 / sum(1 / (t.size * v) for t, v in zip(tables, variances, strict=True))


def combine(
    estimates: Sequence[NDArray[np.float64]], variances: Sequence[float]
) -> NDArray[np.float64]:
    """Precision-weighted mean of noisy estimates of the same vector."""
    weights = 1.0 / np.asarray(variances)
    stacked = np.stack(estimates)
    return np.asarray(np.tensordot(weights / weights.sum(), stacked, axes=1))


def marginal(table: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """One-way marginal of a table along `axis`."""
    return np.asarray(table.sum(axis=tuple(a for a in range(table.ndim) if a != axis)))


def _along(vector: NDArray[np.float64], axis: int, ndim: int) -> NDArray[np.float64]:
    return vector.reshape(tuple(-1 if a == axis else 1 for a in range(ndim)))


def reconcile(
    table: NDArray[np.float64], marginals: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Make a noisy table, one axis per column, non-negative with the given one-way marginals.

    Least squares, projection onto non-negative tables, then raking. Marginals (non-negative, all
    with one total) are not met on empty slices.
    """
    result = table
    for axis, target in enumerate(marginals):
        cells = table.size // table.shape[axis]
        gap = (target - marginal(result, axis)) / cells
        result = result + _along(gap, axis, table.ndim)
    result = project_to_total(result, float(marginals[0].sum()))
    for _ in range(_RAKING_ROUNDS):
        for axis, target in enumerate(marginals):
            present = marginal(result, axis)
            factor = np.divide(target, present, out=np.ones_like(target), where=present > 0)
            result = result * _along(factor, axis, table.ndim)
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyMarginal:
    """Released counts of some columns, and their noise.

    Attributes:
        columns: indices into the released columns, in axis order.
        variance: noise variance of one unmerged cell.
        merged: cells that each value sums, broadcast to the values' shape.
    """

    columns: tuple[int, ...]
    values: NDArray[np.float64] = field(repr=False)
    variance: float
    merged: float | NDArray[np.float64] = 1.0

    def along(self, axis: int) -> NoisyMarginal:
        """The marginal of the column of an axis, of unmerged cells."""
        if self.values.ndim == 1:
            return self
        return NoisyMarginal(
            columns=(self.columns[axis],),
            values=marginal(self.values, axis),
            variance=self.variance * self.values.size / self.values.shape[axis],
        )

    @property
    def stddev(self) -> NDArray[np.float64]:
        """Standard deviation of each value's noise, in the shape of the values."""
        return np.asarray(np.broadcast_to(np.sqrt(self.variance * self.merged), self.values.shape))


def one_way_tables(
    arrays: Mapping[str, NDArray[np.float64]], columns: int, *, variance: float
) -> list[NoisyMarginal]:
    """Return each column's own marginal, of one noise variance, from a measurement's arrays."""
    return [
        NoisyMarginal(columns=(j,), values=arrays[f"one_way_{j}"], variance=variance)
        for j in range(columns)
    ]


def measured_domain(measurement: Measurement, *, kind: str, schema: PublicSchema) -> Domain:
    """Return a measurement's domain; SpecError for another method, schema or discretisation."""
    if measurement.kind != kind:
        raise SpecError(f"found {measurement.kind}", field="measurement.kind", allowed=kind)
    facts = measurement.facts
    domain = Domain.from_schema(schema, bins=int(facts["bins"]))
    names = [column.name for column in schema.released]
    if list(domain.sizes) != facts["sizes"] or names != facts["columns"]:
        raise SpecError(OTHER_SCHEMA, field="measurement")
    return domain


def distribution(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
    """A noisy one-way marginal as a distribution."""
    total = max(1.0, float(noisy.sum()))
    return project_to_total(noisy, total) / total


def pooled(marginals: Sequence[NoisyMarginal]) -> list[NoisyMarginal]:
    """Precision-weighted mean of the measurements of each set of columns."""
    same: dict[tuple[int, ...], list[NoisyMarginal]] = {}
    for one in marginals:
        same.setdefault(one.columns, []).append(one)
    return [
        NoisyMarginal(
            columns=columns,
            values=combine([one.values for one in group], [one.variance for one in group]),
            variance=1 / float(np.sum([1 / one.variance for one in group])),
        )
        for columns, group in same.items()
    ]


def combined(tables: Sequence[NoisyMarginal]) -> list[NoisyMarginal]:
    """Return the best unbiased marginal of each column that a table has, in their order.

    Weighs the tables of a column by precision. Cells of one column have independent noise; noise
    shared between columns affects only totals.
    """
    singles = [table.along(axis) for table in tables for axis in range(len(table.columns))]
    return sorted(pooled(singles), key=lambda one: one.columns)


def known_one_way(
    domain: Domain,
    tables: Sequence[NoisyMarginal],
    *,
    bins: int,
    votes: Sequence[NoisyMarginal] | None = None,
) -> tuple[OneWayMarginals, list[NDArray[np.float64]]]:
    """Return one-way targets for weights, and each column's counts (>= 0, all with one total).

    `tables` count the same rows; `votes` are marginals in the domain's own codes (None: `tables`).
    """
    best = combined(tables if votes is None else votes)
    measured, noises = [table.values for table in tables], [table.variance for table in tables]
    total = estimate_total(measured, noises)
    marginals = [project_to_total(table.values, total) for table in best]
    one_way = OneWayMarginals.of(
        domain,
        bins=bins,
        marginals=marginals,
        variances=[table.variance for table in best],
        total_variance=total_variance(measured, noises),
    )
    return one_way, marginals


def conditionals(
    marginals: Sequence[NDArray[np.float64]],
    families: Sequence[Family],
    tables: Sequence[NDArray[np.float64]],
) -> tuple[Conditional, ...]:
    """Return conditional tables in sampling order; `tables` are noisy, without the root's.

    `marginals` are non-negative, all with one total.
    """
    root = families[0]
    per_family = [Conditional.from_table(root, marginals[root.child], marginals[root.child])]
    for family, table in zip(families[1:], tables, strict=True):
        agreed = reconcile(table, [marginals[j] for j in family.members])
        per_family.append(Conditional.from_table(family, agreed, marginals[family.child]))
    return tuple(per_family)
