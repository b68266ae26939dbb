"""How much the base rows are to be believed: alpha, and a test of the generator, from public facts.

With d = m - m(u) the distance of the noisy means from the base's, both bases of which are public,

    d ~ N(0, C/alpha + S + C/N + C/M):

what the generator misses, the privacy noise, and the sampling errors of the N private and M base
rows. In the directions that C and S share as axes it is a product of normals, so everything here
costs one decomposition. Source: docs/method.md section 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.special import gammaincc

from dpiw.errors import WeightError
from dpiw.methods.weights.base_rows import BaseRows
from dpiw.methods.weights.targets import Targets

Array = NDArray[np.float64]

_GRID = 241
"""Credits that are compared: a grid in the logarithm, twenty to a factor of ten."""

_REPLAYS = 1999
"""Of the evidence test: its p-value can reach 0.0005."""

_DROP = 1.92
"""Half of the 95% quantile of a chi-square of one degree of freedom."""

_DECADES = (-4.0, 8.0)
"""Of the credit, around the private rows' own number."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Misfit:
    """The base's distance from the targets, along the axes that C and S share.

    Attributes:
        axes: A, shape (d, d): A S A' is the identity, and A C A' diagonal.
        distances: of the means, in standard deviations of the noise, shape (d,).
        spreads: variance of the base's features over that of the noise, shape (d,).
        rows: N, private rows.
        base_rows: M.
        max_rows: k, most rows of one person among the private ones.
    """

    axes: Array = field(repr=False)
    distances: Array = field(repr=False)
    spreads: Array = field(repr=False)
    rows: float
    base_rows: int
    max_rows: int = 1

    @classmethod
    def by_part(
        cls, base: BaseRows, targets: Targets, parts: Sequence[NDArray[np.int64]]
    ) -> list[Misfit]:
        """Of base rows of equal weight, by all fresh features, and by each part of some of them.

        Raises:
            WeightError: the covariance of the noise is not positive definite.
        """
        means, covariance = base.even
        indices = np.arange(targets.means.size)[: targets.fresh]
        return [cls._by(part, means, covariance, targets, base.rows) for part in (indices, *parts)]

    @classmethod
    def _by(
        cls, part: NDArray[np.int64], means: Array, covariance: Array, targets: Targets, rows: int
    ) -> Misfit:
        block = np.ix_(part, part)
        covariance = covariance[block]
        try:
            root = cholesky(targets.covariance[block], lower=True)
        except np.linalg.LinAlgError:
            raise WeightError("targets: expected a positive definite covariance") from None
        half = solve_triangular(root, covariance, lower=True)
        scaled = solve_triangular(root, half.T, lower=True)
        spreads, turned = np.linalg.eigh((scaled + scaled.T) / 2)
        axes = solve_triangular(root, turned, lower=True, trans="T").T
        return cls(
            axes=axes,
            distances=axes @ (targets.means - means)[part],
            spreads=np.maximum(spreads, 0.0),
            rows=targets.rows,
            base_rows=rows,
            max_rows=targets.max_rows,
        )

    @property
    def chance(self) -> Array:
        """Variances of the distances if the generator is right on the features, shape (d,).

        At most: a person's k rows may be alike. Tests ask it; the credit is that of rows that are
        not, which believes the generator less.
        """
        return 1 + self.spreads * (self.max_rows / self.rows + 1 / self.base_rows)

    def chi_square(self) -> tuple[float, float]:
        """Statistic and p-value of: the generator is right on the features, d degrees of freedom.

        Exact for normal errors of the means, and weak where most features are noise. Source:
        docs/method.md section 14.
        """
        statistic = float((self.distances**2 / self.chance).sum())
        return statistic, float(gammaincc(self.distances.size / 2, statistic / 2))

    def evidence_test(self, rng: np.random.Generator, *, replays: int = _REPLAYS) -> float:
        """p-value of the same hypothesis by the evidence ratio, which looks where C is large.

        The ratio of the largest evidence to that of an infinite credit, against its law when the
        generator is right, by simulation: p is valid, and at least 1/(replays + 1).

        Args:
            rng: of the simulation; no privacy noise.
            replays: how often the distances are drawn anew.
        """
        credits = self.credits[::6]
        extra = self.spreads / credits[:, None]
        variances = self.chance + extra
        # 2 log ratio = sum_j z_j^2 (1 - chance/variance) - log(variance/chance), z standard.
        pull, level = extra / variances, np.log(variances / self.chance).sum(axis=1)

        def ratios(squares: Array) -> Array:
            return np.asarray(np.maximum(squares @ pull.T - level, 0.0).max(axis=-1))

        observed = float(ratios(self.distances**2 / self.chance))
        null_ratios = [
            ratios(rng.standard_normal((count, self.spreads.size)) ** 2)
            for count in np.diff([*range(0, replays, 500), replays])
        ]
        return float((1 + (np.concatenate(null_ratios) >= observed).sum()) / (1 + replays))

    @property
    def credits(self) -> Array:
        """The grid of credits, ascending."""
        return np.asarray(self.rows * np.logspace(*_DECADES, _GRID))

    def log_evidence(self) -> Array:
        """Log density of the distances at every credit of the grid, up to a constant."""
        chance = 1 + self.spreads * (1 / self.rows + 1 / self.base_rows)
        variances = chance + self.spreads / self.credits[:, None]
        return np.asarray(-0.5 * (np.log(variances) + self.distances**2 / variances).sum(axis=1))

    def least_credit(self) -> float:
        """The smallest credit that the distances do not speak against.

        Of the grid, that whose log evidence is within `_DROP` of the largest: a profile likelihood
        interval's lower end. Far below the best one where few directions tell.
        """
        evidence = self.log_evidence()
        return float(self.credits[int(np.argmax(evidence >= evidence.max() - _DROP))])

    def risk(self) -> Array:
        """Stein's estimate of E norm(S^-1/2 (m(w) - true m))^2 at every credit of the grid.

        Of one credit for all features, to first order in theta: the residual's shrinkage is 1 - h
        with h = l/(l + alpha).
        """
        hat_values = self.spreads / (self.spreads + self.credits[:, None])
        return np.asarray(
            (((1 - hat_values) * self.distances) ** 2 + 2 * hat_values - 1).sum(axis=1)
        )

    def left(self, ridge: Array) -> Array:
        """What a tilting leaves of the distances, to first order: I - C (C + ridge)^-1, (d, d).

        Args:
            ridge: alpha R of the same features, shape (d, d), positive definite.
        """
        shrunk = self.axes @ ridge @ self.axes.T
        ratios, shared = eigh(np.diag(self.spreads), (shrunk + shrunk.T) / 2)
        return np.asarray(shrunk @ (shared / (1 + np.maximum(ratios, 0.0))) @ shared.T)

    def gain(self, left: Array) -> float:
        """Stein's estimate of the share of the squared error that a tilting removes, in [0, 1].

        Zero where the distances are no larger than noise.

        Args:
            left: of that tilting.
        """
        without = float((self.distances**2 - 1).sum())
        remains = float(((left @ self.distances) ** 2).sum() - (2 * np.diag(left) - 1).sum())
        return _share(without - remains, without)

    def explained(self, left: Array) -> float:
        """Share of the squared distance beyond chance that a tilting removes, in [0, 1].

        Args:
            left: of that tilting.
        """
        total = float((self.distances**2 - self.chance).sum())
        remains = float(((left @ self.distances) ** 2).sum() - (left**2 @ self.chance).sum())
        return _share(total - remains, total)


def _share(part: float, total: float) -> float:
    return min(1.0, max(0.0, part / total)) if total > 0 else 0.0


def evidence_credit(misfit: Misfit) -> float:
    """The credit of the largest evidence; the grid's largest if the generator looks right."""
    return float(misfit.credits[int(np.argmax(misfit.log_evidence()))])


def risk_credit(misfit: Misfit) -> float:
    """The credit of the smallest estimated risk."""
    return float(misfit.credits[int(np.argmin(misfit.risk()))])
