"""The feature map `critic`: what the generator's frozen discriminator says of a row.

The discriminator is an output of the generator's accounted mechanism, so by the time weights are
fitted it is a public function of a row, like any other feature map. It is the repair of
docs/method.md section 12: a Wasserstein critic or a PATE student is no log ratio, but the
regression on it is. With the constant there are two features, whatever the table's width, and the
noise is as small.

The critic's scale is arbitrary, so its output is standardised over synthetic rows, and clamped.
That may multiply it by any number, so nothing here may rest on rounding errors being small. Nothing
does. In double precision, for every judge that keeps the protocol's word and whatever it says:

1. **Bound.** A value is in [-1/2, 1/2]: NaN and infinities become 0, and then comes a clamp, which
   compares exactly. The constant is exactly 1/2. So the norm of a row's two features, as the
   doubles they are, is at most sqrt(1/2), and two rows' features are at most 1 apart.
2. **Row by row.** The judge gives a row the same bits wherever it stands, and all that follows is
   elementwise with two public numbers, each step one IEEE operation. So neighbouring tables have
   the same features to the last bit but for the rows in which they differ. Of a tanh this is known
   of the build at hand alone: a test compares its bits at many offsets and lengths.

The sensitivity of docs/method.md section 3 asks for exactly 1 and 2, of features that are any
numbers, so it holds for these doubles themselves, without slack, at any spread: 1e-300 as well as
1.

The floor under the spread is no part of this. It keeps a flat critic's features nearly constant,
where its standardised rounding errors would mean nothing; and were a judge to break its word and
jitter by r times the size of its outputs, features would stay within r/6e-6 (of 2^-50: 2e-10).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.errors import UncalibratedError
from dpiw.methods.base import Judge
from dpiw.methods.weights.features import CONSTANT, FeatureBounds, bounds_of

Array = NDArray[np.float64]

REACH = 3.0
"""Standard deviations over synthetic rows at which the critic is clamped."""

_ROWS = 4000
_REFERENCE = 2021
"""Fixes the synthetic rows by which the critic is standardised; public, and no privacy noise."""


_FLATTEST = 1e-6
"""Least spread of a critic's outputs, as a share of 1 and their largest size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgeScale:
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
        """Standardise by synthetic rows; the same judge gives the same critic. Public."""
        rows = judge.sample(_ROWS, rng=np.random.default_rng(_REFERENCE))
        scores = np.nan_to_num(judge.critic(rows.scaled), posinf=0.0, neginf=0.0)
        least = _FLATTEST * (1 + float(np.abs(scores).max()))
        with np.errstate(over="ignore"):  # an infinite spread: features are all 0
            return cls(
                judge=judge, centre=float(scores.mean()), spread=max(float(scores.std()), least)
            )

    def values(self, scaled: ScaledTable) -> Array:
        """In [-1/2, 1/2], shape (rows,).

        Privacy:
            Row-local to the last bit (see the module); as confidential as its rows.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # of a private row: neither told nor met
            scores = (self.judge.critic(scaled) - self.centre) / (REACH * self.spread)
        return np.asarray(np.clip(np.nan_to_num(scores, posinf=0.0, neginf=0.0), -1.0, 1.0) / 2)


@dataclass(frozen=True)
class CriticMap:
    """The critic and the constant 1/2: the geometry of one centred column, known without it.

    Attributes:
        schema: the public schema.
        critic: known once the generator is fitted; needed by `matrix` alone.
    """

    schema: PublicSchema
    critic: JudgeScale | None = field(default=None, compare=False)

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
