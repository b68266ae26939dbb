"""From noisy marginals to the conditional tables of a network: post-processing, free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.consistency import (
    combine,
    marginal,
    project_to_total,
    reconcile,
)
from dpiw.methods.generators.sampling import Conditional
from dpiw.privacy.measurement import Measurement


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
    one_way: Sequence[NDArray[np.float64]],
    families: Sequence[Family],
    tables: Sequence[NDArray[np.float64]],
    *,
    one_way_variance: float,
    family_variance: float,
) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Best unbiased one-way marginals, and the variance of a cell of each.

    Every table that shows a column votes, by its precision. Cells of one column have independent
    noise; those of two columns may share noise, in the totals alone.

    Args:
        one_way: noisy one-way marginal of each column.
        families: in sampling order; the first is the root.
        tables: noisy marginals of all families but the root.
        one_way_variance: noise variance of one cell of a one-way marginal.
        family_variance: the same of a family's marginal.
    """
    estimates = [[direct] for direct in one_way]
    variances = [[one_way_variance] for _ in one_way]
    for family, table in zip(families[1:], tables, strict=True):
        for axis, column in enumerate(family.members):
            estimates[column].append(marginal(table, axis))
            variances[column].append(family_variance * table.size / table.shape[axis])
    marginals = [combine(e, v) for e, v in zip(estimates, variances, strict=True)]
    return marginals, [1 / float(np.sum(1 / np.asarray(v))) for v in variances]


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
