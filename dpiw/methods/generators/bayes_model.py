"""What `bayes` fits: a law of the target, and of every other column given the target's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.data.discretisation import Domain
from dpiw.data.schema import ColumnRole
from dpiw.data.tables import SyntheticTable
from dpiw.errors import SpecError
from dpiw.methods.generators.bayesian_network import Family
from dpiw.methods.generators.grid_laws import ColumnLaw, column_law
from dpiw.methods.generators.sampling import Conditional, NetworkModel


@dataclass(frozen=True, kw_only=True)
class BayesDesign:
    """The public structure: nothing in it has seen data.

    Attributes:
        domain: codes of every released column.
        given_target: whether columns are given the target's code, if there is a target.
        shaped: whether numeric columns have a shape, not splits.
        prior, smallest: see `grid_laws.column_law`.
    """

    domain: Domain
    given_target: bool
    shaped: bool
    prior: float
    smallest: float

    @property
    def root(self) -> int | None:
        """The target, if columns are given it and the schema has one."""
        roles = [column.role for column in self.domain.schema.released]
        if not self.given_target or ColumnRole.TARGET not in roles:
            return None
        return roles.index(ColumnRole.TARGET)

    def family(self, column: int) -> Family:
        """The column and what it is given."""
        root = self.root
        return Family(child=column, parents=() if root is None or root == column else (root,))

    def law(self, column: int) -> ColumnLaw:
        """The column's grid."""
        bins = self.domain.columns[column]
        return column_law(bins, shaped=self.shaped, prior=self.prior, smallest=self.smallest)

    def network(self, points: Mapping[int, NDArray[np.int64]]) -> NetworkModel:
        """The joint law at chosen points.

        Args:
            points: by column, shape (codes of its parent or 1, parts).
        """
        order = sorted(range(len(self.domain.sizes)), key=lambda column: column != self.root)
        conditionals = []
        for column in order:
            law = self.law(column)
            table = np.array([law.pmf(chosen) for chosen in points[column].tolist()])
            family = self.family(column)
            conditionals.append(Conditional.from_table(family, table, table.mean(axis=0)))
        return NetworkModel(domain=self.domain, conditionals=tuple(conditionals), one_way=None)


@dataclass(frozen=True, kw_only=True)
class BayesModel:
    """A mixture of networks in equal parts, one for each draw of the parameters."""

    networks: Sequence[NetworkModel]

    one_way: ClassVar[None] = None
    """It measured no marginals."""

    judge: ClassVar[None] = None
    """It has no discriminator."""

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Draw `rows` independent synthetic rows; the same `rng` state gives the same rows."""
        if rows < 0:
            raise SpecError(f"rows={rows}: expected a whole number >= 0")
        domain = self.networks[0].domain
        draw_of_row = rng.integers(len(self.networks), size=rows)
        codes = np.zeros((rows, len(domain.sizes)), dtype=np.int32, order="F")
        for draw, network in enumerate(self.networks):
            row_mask = draw_of_row == draw
            codes[row_mask] = network.sample_codes(int(row_mask.sum()), rng=rng)
        return SyntheticTable(schema=domain.schema, scaled=domain.fill(codes, rng=rng))
