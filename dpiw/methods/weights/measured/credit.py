"""The credit alpha of the base rows, a test of the generator, and weights at that credit.

The distance m - m(u) of the means is N(0, C/alpha + S + C/N + C/M). Reads DP statistics and
synthetic rows only. Source: docs/method.md section 14.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh, solve_triangular
from scipy.special import gammaincc

from dpiw.errors import WeightError
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.constants import KEPT, MOST_CREDIT
from dpiw.methods.weights.measured.targets import EVIDENCE, INDEFINITE, Targets, loudest
from dpiw.methods.weights.measured.tilting import Tilt, reached, tilt

Array = NDArray[np.float64]

_GRID = 241
"""Number of credits compared: twenty per factor of ten."""

_REPLAYS = 1999
"""Simulations of the evidence test: its least p-value is 0.0005."""

_DROP = 1.92
"""Half of the 95% quantile of a chi-square of one degree of freedom."""

_DECADES = (-4.0, 8.0)
"""Powers of ten of the grid's ends, in private rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Misfit:
    """The base's distance from the targets, along the axes that C and S share.

    Attributes:
        axes: A, shape (d, d): A S A' is the identity, and A C A' diagonal.
        distances: of the means, in standard deviations of the noise, shape (d,).
        spreads: variance of the base's features over that of the noise, shape (d,).
        rows, base_rows: N private rows, and M.
        max_rows: k, most rows of one person among the private ones.
    """

    axes: Array = field(repr=False)
    distances: Array = field(repr=False)
    spreads: Array = field(repr=False)
    rows: float
    base_rows: int
    max_rows: int = 1

    @classmethod
    def of(cls, base: BaseRows, targets: Targets, part: NDArray[np.int64] | None = None) -> Misfit:
        """For base rows, by all fresh features or by a part; may raise WeightError."""
        means, covariance = base.untilted
        if part is None:
            part = np.arange(targets.means.size)[: targets.fresh]
        block = np.ix_(part, part)
        covariance = covariance[block]
        try:
            root = cholesky(targets.covariance[block], lower=True)
        except np.linalg.LinAlgError:
            raise WeightError(INDEFINITE, field="targets") from None
        half = solve_triangular(root, covariance, lower=True)
        scaled = solve_triangular(root, half.T, lower=True)
        spreads, turned = np.linalg.eigh((scaled + scaled.T) / 2)
        axes = solve_triangular(root, turned, lower=True, trans="T").T
        return cls(
            axes=axes,
            distances=axes @ (targets.means - means)[part],
            spreads=np.maximum(spreads, 0.0),
            rows=targets.rows,
            base_rows=base.rows,
            max_rows=targets.max_rows,
        )

    @property
    def chance(self) -> Array:
        """Bound on the distances' variances under a right generator, shape (d,); for tests."""
        return 1 + self.spreads * (self.max_rows / self.rows + 1 / self.base_rows)

    def chi_square(self) -> tuple[float, float]:
        """Statistic and p-value, d degrees of freedom; weak where most features are noise."""
        statistic = float((self.distances**2 / self.chance).sum())
        return statistic, float(gammaincc(self.distances.size / 2, statistic / 2))

    def evidence_test(self, rng: np.random.Generator, *, replays: int = _REPLAYS) -> float:
        """p-value, >= 1/(replays + 1), of a right generator, by simulated evidence ratios."""
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
        """The smallest credit whose log evidence is within `_DROP` of the largest."""
        evidence = self.log_evidence()
        return float(self.credits[int(np.argmax(evidence >= evidence.max() - _DROP))])

    def left(self, ridge: Array) -> Array:
        """I - C (C + ridge)^-1, (d, d): the distances that a tilting leaves; `ridge` is alpha R."""
        shrunk = self.axes @ ridge @ self.axes.T
        ratios, shared = eigh(np.diag(self.spreads), (shrunk + shrunk.T) / 2)
        return np.asarray(shrunk @ (shared / (1 + np.maximum(ratios, 0.0))) @ shared.T)

    def gain(self, left: Array) -> float:
        """Stein's estimate of the share of the squared error that a tilting removes, in [0, 1]."""
        without = float((self.distances**2 - 1).sum())
        remains = float(((left @ self.distances) ** 2).sum() - (2 * np.diag(left) - 1).sum())
        return _share(without - remains, without)

    def explained(self, left: Array) -> float:
        """Share of the squared distance beyond chance that a tilting removes."""
        total = float((self.distances**2 - self.chance).sum())
        remains = float(((left @ self.distances) ** 2).sum() - (left**2 @ self.chance).sum())
        return _share(total - remains, total)


def _share(part: float, total: float) -> float:
    return min(1.0, max(0.0, part / total)) if total > 0 else 0.0


def evidence_credit(misfit: Misfit) -> float:
    """The credit of the largest evidence; the grid's largest if the generator looks right."""
    return float(misfit.credits[int(np.argmax(misfit.log_evidence()))])


_LARGER = 10.0 ** np.arange(0, 31, 2)

_LEAST_RELATIVE = 1e-3
"""Least credit of products over alpha."""

_FIRST, _LEAST_FORCED, _FORCINGS = 1e-2, 1e-9, 5
"""First step and least of the credit of what was asked, over alpha; most solutions on the way."""

_NEARER = 4.0
"""Least factor by which a further step lowers that credit, once a lower one lost too many rows."""

_WORTH = 0.7
"""Least effective base rows after such a step, as a share of those before: noise may ask for means
that no rows have, and few rows would then carry all weight. Our choice."""

_LEAST = 1e-12
"""Least credit, as a share of the private rows."""


def solvable(
    base: BaseRows, targets: Targets, credit: float, *, covariance: Array | None = None
) -> Tilt:
    """The tilting at `credit`, or at the least larger one of a ladder that can be solved.

    `covariance`, near that of the rows, (d, d), saves computing it. WeightError if none can be.
    """
    least = max(credit, _LEAST * targets.rows)
    if covariance is not None:
        start = np.zeros(base.dimension)
        with suppress(WeightError):  # one that rounding has made indefinite
            solved = reached(base, targets, least, start, covariance=covariance)
            if solved is not None:
                return solved
    for factor in _LARGER[:-1]:
        with suppress(WeightError):
            return tilt(base, targets, credit=least * float(factor))
    return tilt(base, targets, credit=least * float(_LARGER[-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Reweighted:
    """Base rows weighted towards targets; `misfit` is the base's before weighting.

    `p_value` is that of a generator that is right on the features (`Misfit.evidence_test`);
    `pairs_credit` and `forced_credit` are those of products and of the features in `forced`.
    """

    targets: Targets = field(repr=False)
    tilt: Tilt = field(repr=False)
    misfit: Misfit = field(repr=False)
    p_value: float
    pairs_credit: float
    forced_credit: float
    forced: NDArray[np.int64] = field(repr=False)

    @cached_property
    def noise_root(self) -> Array:
        """A with A A' = V, the covariance of theta's privacy noise, shape (d, f), to first order.

        V = (C + alpha R)^-1 S_f (C + alpha R)^-1, S_f of the f fresh features: base and targets
        share the noise of the others.
        """
        fresh = slice(self.targets.fresh)
        factor = cholesky(self.targets.covariance[fresh, fresh], lower=True)
        root = np.zeros((self.targets.means.size, len(factor)))
        root[: len(factor)] = factor
        hessian = self.tilt.covariance + self.tilt.credit * self.targets.ridge
        return np.asarray(cho_solve(cho_factor(hessian, lower=True), root))

    def log_weight_noise(self, base: BaseRows) -> Array:
        """Standard deviation of each base row's log weight from privacy noise, shape (M,)."""
        centre = self.tilt.means @ self.noise_root

        def of(_: slice, block: Array) -> Array:
            return np.asarray(np.sqrt(((block @ self.noise_root - centre) ** 2).sum(axis=1)))

        return np.concatenate([*base.mapped(of)])

    @property
    def residual(self) -> Array:
        """Noisy means less the fitted ones, alpha R theta, shape (d,)."""
        return np.asarray(self.tilt.credit * self.targets.ridge @ self.tilt.theta)

    @cached_property
    def _left(self) -> Array:
        fresh = slice(self.targets.fresh)
        return self.misfit.left(self.tilt.credit * self.targets.ridge[fresh, fresh])

    @property
    def gain(self) -> float:
        """Expected share, >= 0, of the fresh means' squared error that the weights remove."""
        return self.misfit.gain(self._left)

    def to_json(self) -> dict[str, Any]:
        """Public facts for the certificate."""
        statistic, chance = self.misfit.chi_square()
        facts = {
            "rows": self.targets.rows,
            "credit": self.tilt.credit,
            "pairs_credit": self.pairs_credit,
            "least_credit": min(self.tilt.credit, self.misfit.least_credit()),
            "gap": self.tilt.gap,
            "steps": self.tilt.steps,
            "chi_square": statistic,
            "chi_square_p_value": chance,
            "evidence_p_value": self.p_value,
            "explained": self.misfit.explained(self._left),
            "gain": self.gain,
            "base_rows": self.misfit.base_rows,
            "effective_base_rows": _effective(self.tilt),
            "dimension": self.targets.means.size,
            "residual": _rounded(self.residual, 5),
            "theta": _rounded(self.tilt.theta, 10),
        }
        if self.forced.size:
            facts |= {"forced": self.forced.tolist(), "forced_credit": self.forced_credit}
        return facts


def reweight(
    base: BaseRows,
    targets: Targets,
    *,
    credit: str | float = EVIDENCE,
    rng: np.random.Generator,
    pairs: NDArray[np.int64] | None = None,
    asked: NDArray[np.int64] | None = None,
) -> Reweighted:
    """Weight base rows so that their feature means come close to the targets.

    `credit`: `EVIDENCE`, or alpha itself; a larger one is taken where double precision cannot solve
    (`Tilt.credit`). `pairs`: indices of products of two columns, to which the evidence gives a
    credit of their own. `asked`: indices of features whose means are kept to (`_kept`). `rng` draws
    no privacy noise. WeightError if no credit can be solved for.
    """
    misfit, of_pairs = Misfit.of(base, targets), 1.0
    if isinstance(credit, str):
        credit = min(evidence_credit(misfit), MOST_CREDIT * targets.rows)
        if pairs is not None and pairs.size:
            own = evidence_credit(Misfit.of(base, targets, pairs)) / credit
            of_pairs = max(_LEAST_RELATIVE, min(1.0, own))
            relative = np.ones(targets.means.size)
            relative[pairs] = of_pairs
            targets = replace(targets, relative=relative)
    solved, forced, of_forced = solvable(base, targets, credit), np.zeros(0, dtype=np.int64), 1.0
    if asked is not None and asked.size:
        most = loudest(misfit.least_credit())
        quiet = np.diag(targets.covariance) <= most * np.diag(solved.covariance)
        forced = asked[quiet[asked]]
        targets, solved, of_forced = _kept(base, targets, solved, forced, most=most)
    return Reweighted(
        targets=targets,
        tilt=solved,
        misfit=misfit,
        p_value=misfit.evidence_test(rng),
        pairs_credit=solved.credit * of_pairs,
        forced_credit=solved.credit * of_forced,
        forced=forced,
    )


def _kept(
    base: BaseRows, targets: Targets, solved: Tilt, forced: NDArray[np.int64], *, most: float
) -> tuple[Targets, Tilt, float]:
    """Lower the credit of some features until their means are within `KEPT` of the targets.

    Judged along the features' own axes that rows can move: not the sum of a column's levels, which
    is one whatever was measured. The last tilting that could be solved with `_WORTH` of the rows
    counts, as no rows have a share below zero. `most`: largest noise variance of an axis over its
    spread.
    """
    share, too_low, least_rows = 1.0, 0.0, _WORTH * _effective(solved)
    block = np.ix_(forced, forced)
    spreads, axes = np.linalg.eigh(solved.covariance[block])
    noise = ((targets.covariance[block] @ axes) * axes).sum(axis=0)
    quiet = noise <= most * spreads
    axes, deviations = axes[:, quiet], np.sqrt(noise[quiet])
    for _ in range(_FORCINGS if deviations.size else 0):
        left = axes.T @ (solved.credit * targets.ridge[forced] @ solved.theta)
        worst = float(np.abs(left / deviations).max())
        if worst <= KEPT or share <= _LEAST_FORCED:
            break
        lower = max(_LEAST_FORCED, share * max(_FIRST, KEPT / worst / 2))
        lower = max(lower, math.sqrt(share * too_low))
        if too_low and lower > share / _NEARER:
            break
        even = np.ones(targets.means.size) if targets.relative is None else targets.relative
        relative = even.copy()
        relative[forced] = lower
        lowered = replace(targets, relative=relative)
        near, found = solved, None
        with suppress(WeightError):
            found = reached(base, lowered, near.credit, near, covariance=near.covariance)
        with suppress(WeightError):
            found = found or reached(base, lowered, near.credit, near)
        if found is None or _effective(found) < least_rows:
            too_low = lower
            continue
        solved = found
        targets, share = lowered, lower
    return targets, solved, share


def _rounded(values: Array, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]


def _effective(solved: Tilt) -> float:
    """Kish's effective number of base rows."""
    return float(1 / (solved.weights**2).sum())
