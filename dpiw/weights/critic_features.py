"""The feature map `critic`: what the generator's frozen discriminator says of a row.

The discriminator is an output of the generator's accounted mechanism, so by the time weights are
fitted it is a public function of a row, like any other feature map. It is the repair of METHOD
section 6: a Wasserstein critic or a PATE student is no log ratio, but the regression on it is. With
the constant there are two features, whatever the table's width, and the noise is as small.

The critic's scale is arbitrary, so its output is standardised over synthetic rows, and clamped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import UncalibratedError
from dpiw.schema import PublicSchema, ScaledTable
from dpiw.tables import SyntheticTable
from dpiw.weights.features import CONSTANT, FeatureBounds, bounds_of

Array = NDArray[np.float64]

REACH = 3.0
"""Standard deviations over synthetic rows at which the critic is clamped."""

_ROWS = 4000
_REFERENCE = 2021
"""Fixes the synthetic rows by which the critic is standardised; public, and no privacy noise."""


class Judge(Protocol):
    """A fitted generator that can tell its rows from real ones."""

    @property
    def ratio(self) -> bool:
        """Whether `critic` is a log ratio, up to a constant."""
        ...

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """Synthetic rows."""
        ...

    def critic(self, scaled: ScaledTable) -> Array:
        """The discriminator's output, shape (rows,), higher where more real; row by row."""
        ...


_FLATTEST = 1e-6
"""Least spread of a critic's outputs, as a share of their size: 10^10 times their rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Critic:
    """A judge on a public scale.

    Attributes:
        judge: the fitted generator.
        centre, spread: mean and standard deviation of its output over synthetic rows.
    """

    judge: Judge
    centre: float
    spread: float

    @classmethod
    def of(cls, judge: Judge) -> Self:
        """Standardise by synthetic rows; the same judge gives the same critic.

        A row's output is rounded differently at another place of a table. The spread is at least
        a millionth of the outputs' size, so that no judge, however flat, makes this rounding seen.
        """
        rows = judge.sample(_ROWS, rng=np.random.default_rng(_REFERENCE))
        found = np.nan_to_num(judge.critic(rows.scaled), posinf=0.0, neginf=0.0)
        least = _FLATTEST * (1 + float(np.abs(found).max()))
        return cls(judge=judge, centre=float(found.mean()), spread=max(float(found.std()), least))

    def values(self, scaled: ScaledTable) -> Array:
        """In [-1/2, 1/2], shape (rows,).

        Privacy:
            Row-local, so a neighbouring table has neighbouring values; as confidential as its rows.
        """
        found = (self.judge.critic(scaled) - self.centre) / (REACH * self.spread)
        return np.asarray(np.clip(np.nan_to_num(found, posinf=0.0, neginf=0.0), -1.0, 1.0) / 2)


@dataclass(frozen=True)
class CriticMap:
    """The critic and the constant 1/2: the geometry of one centred column, known without it.

    Attributes:
        schema: the public schema.
        critic: known once the generator is fitted; needed by `matrix` alone.
    """

    schema: PublicSchema
    critic: Critic | None = field(default=None, compare=False)

    @property
    def bounds(self) -> FeatureBounds:
        """R = sqrt(1/2), diameter 1."""
        return bounds_of(
            dimension=2,
            squared_norm=0.25 + CONSTANT**2,
            squared_diameter=1.0,
            l1_norm=0.5 + CONSTANT,
            l1_diameter=1.0,
            coordinate=0.5,
            reference=1 / 12 + CONSTANT**2,
        )

    def reference_eigenvalues(self) -> Array:
        """1/12, as of a uniform column, and 0 for the constant."""
        return np.array([1 / 12, 0.0])

    def matrix(self, scaled: ScaledTable) -> Array:
        """Critic and constant, shape (rows, 2); UncalibratedError before a generator is there."""
        if self.critic is None:
            raise UncalibratedError("features=critic: expected a fitted generator to ask")
        return np.column_stack([self.critic.values(scaled), np.full(scaled.rows, CONSTANT)])
