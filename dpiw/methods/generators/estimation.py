"""From noisy marginals to the conditional tables of a network: post-processing, free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.consistency import (
    combine,
    estimate_total,
    marginal,
    project_to_total,
    reconcile,
    total_variance,
)
from dpiw.methods.generators.sampling import Conditional
from dpiw.methods.one_way import OneWayMarginals
from dpiw.privacy.measurement import Measurement


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyMarginal:
    """Released counts of some columns, and how noisy they are.

    Attributes:
        columns: indices into the released columns, in axis order.
        values: noisy counts.
        variance: of a cell's noise.
        merged: how many cells each value is the sum of, in the shape of the values.
    """

    columns: tuple[int, ...]
    values: NDArray[np.float64] = field(repr=False)
    variance: float
    merged: float | NDArray[np.float64] = 1.0

    @property
    def stddev(self) -> NDArray[np.float64]:
        """Of each value's noise, in the shape of the values."""
        return np.asarray(np.broadcast_to(np.sqrt(self.variance * self.merged), self.values.shape))


def measured_domain(measurement: Measurement, *, kind: str, schema: PublicSchema) -> Domain:
    """The domain a measurement was made on.

    Raises:
        SpecError: the measurement is of another method, schema or discretisation.
    """
    if measurement.kind != kind:
        raise SpecError(f"measurement.kind: expected {kind}")
    facts = measurement.facts
    domain = Domain.from_schema(schema, bins=int(facts["bins"]))
    names = [column.name for column in schema.released]
    if list(domain.sizes) != facts["sizes"] or names != facts["columns"]:
        raise SpecError("measurement: its columns or sizes are not this schema's")
    return domain


def distribution(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
    """A noisy one-way marginal as a distribution."""
    total = max(1.0, float(noisy.sum()))
    return project_to_total(noisy, total) / total


def combined(
    tables: Sequence[NoisyMarginal], columns: int
) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Best unbiased one-way marginals, and the variance of a cell of each.

    Every table that shows a column votes, by its precision. Cells of one column have independent
    noise; those of two columns may share noise, in the totals alone.

    Args:
        tables: noisy marginals, every column in at least one; one variance for all of its cells.
        columns: how many there are.
    """
    estimates: list[list[NDArray[np.float64]]] = [[] for _ in range(columns)]
    variances: list[list[float]] = [[] for _ in range(columns)]
    for table in tables:
        for axis, column in enumerate(table.columns):
            size = table.values.shape[axis]
            estimates[column].append(marginal(table.values, axis))
            several = table.values.ndim > 1
            variances[column].append(
                table.variance * table.values.size / size if several else table.variance
            )
    marginals = [combine(e, v) for e, v in zip(estimates, variances, strict=True)]
    return marginals, [1 / float(np.sum(1 / np.asarray(v))) for v in variances]


def known_one_way(
    domain: Domain,
    tables: Sequence[NoisyMarginal],
    *,
    bins: int,
    votes: Sequence[NoisyMarginal] | None = None,
) -> tuple[OneWayMarginals, list[NDArray[np.float64]]]:
    """What all noisy marginals together say of the columns: targets for weights, and counts.

    Args:
        domain: the codes.
        tables: every noisy marginal; all of them show the number of rows.
        bins: the domain was made with.
        votes: those that show columns in the domain's own codes; None: all.

    Returns:
        The targets, and each column's counts, non-negative and of one total.
    """
    counts, variances = combined(tables if votes is None else votes, len(domain.sizes))
    measured, noises = [table.values for table in tables], [table.variance for table in tables]
    total = estimate_total(measured, noises)
    marginals = [project_to_total(table, total) for table in counts]
    one_way = OneWayMarginals.of(
        domain,
        bins=bins,
        marginals=marginals,
        variances=variances,
        total_variance=total_variance(measured, noises),
    )
    return one_way, marginals


def conditionals(
    marginals: Sequence[NDArray[np.float64]],
    families: Sequence[Family],
    tables: Sequence[NDArray[np.float64]],
) -> tuple[Conditional, ...]:
    """Conditional tables in sampling order.

    Args:
        marginals: one-way marginal of each column, non-negative and of one total.
        families: in sampling order; the first is the root.
        tables: noisy marginals of all families but the root.
    """
    root = families[0]
    per_family = [Conditional.from_table(root, marginals[root.child], marginals[root.child])]
    for family, table in zip(families[1:], tables, strict=True):
        agreed = reconcile(table, [marginals[j] for j in family.members])
        per_family.append(Conditional.from_table(family, agreed, marginals[family.child]))
    return tuple(per_family)
