"""A generator's model that is fitted when rows are asked of it, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.tables import SyntheticTable
from dpiw.methods.generators.consistency import estimate_total
from dpiw.methods.generators.estimation import NoisyMarginal
from dpiw.methods.generators.inference import FINAL_ITERATIONS, FittedModel, Inference
from dpiw.methods.generators.merging import Merging, spread
from dpiw.methods.generators.sampling import Conditional, NetworkModel
from dpiw.methods.one_way import OneWayMarginals


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphicalModel:
    """A graphical model of noisy marginals: a pure function of a measurement.

    Attributes:
        domain: the public discretisation.
        marginals: that it is fitted to, in merged codes.
        merging: of each column.
        one_way: the one-way distributions that were measured; known without the fit.
    """

    domain: Domain
    marginals: Sequence[NoisyMarginal] = field(repr=False)
    merging: Sequence[Merging] = field(repr=False)
    one_way: OneWayMarginals

    judge: ClassVar[None] = None
    """It has no discriminator."""

    @cached_property
    def network(self) -> NetworkModel:
        """The fit, in the order of its junction tree: what rows are drawn from, independently.

        mbi's own rows are not used: its default gives the children of one parent the same ranks.
        """
        with Inference() as process:
            fitted = process.fit(
                self.marginals,
                [merger.size for merger in self.merging],
                total=rows_of(self.marginals),
                iterations=FINAL_ITERATIONS,
            )
        return NetworkModel(
            domain=self.domain, conditionals=self._conditionals(fitted), one_way=self.one_way
        )

    def _conditionals(self, fitted: FittedModel) -> tuple[Conditional, ...]:
        conditionals = []
        for family, table in zip(fitted.families, fitted.tables, strict=True):
            joint = spread(table, [self.merging[j] for j in family.members])
            law = joint.reshape(-1, joint.shape[-1]).sum(axis=0)
            conditionals.append(Conditional.from_table(family, joint, law))
        return tuple(conditionals)

    def sample_codes(self, rows: int, *, rng: np.random.Generator) -> NDArray[np.int32]:
        """Independent rows as codes, shape (rows, d)."""
        return self.network.sample_codes(rows, rng=rng)

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent synthetic rows; the same `rng` state gives the same rows.

        Raises:
            StageFailedError: the process of the fit ended without an answer.
        """
        return self.network.sample(rows, rng=rng)


def rows_of(marginals: Sequence[NoisyMarginal]) -> float:
    """The noisy number of rows that all marginals show together, at least 1."""
    return estimate_total(
        [marginal.values for marginal in marginals],
        [marginal.variance * float(np.mean(marginal.merged)) for marginal in marginals],
    )
