"""Weights of public rows from noisy means, with everything known about their errors.

For anybody with DP statistics and a synthetic table: base rows' features, noisy means and their
covariance in, weights out; `dpiw.methods.weights.means_law` has the variance of any weighted
estimate and replicate weights. Nothing here reads private rows. Source: docs/method.md section 14.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky

from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.base_rows import BaseRows
from dpiw.methods.weights.credit import Misfit, evidence_credit, risk_credit
from dpiw.methods.weights.targets import Targets
from dpiw.methods.weights.tilting import Tilt, reached, tilt

Array = NDArray[np.float64]

CREDITS = {"evidence": evidence_credit, "risk": risk_credit}
"""Rules for alpha by name."""

MOST_CREDIT = 0.2
"""Largest credit that a rule may give, as a share of the private rows. The generator was itself
fitted to them, with noise; where the measured features find no misfit, no credit is too large for
the evidence, and an interval would rest on that alone. Chosen by simulation of the populations of
benchmarks/results/coverage_measured.md, on other releases."""

_LARGER = 10.0 ** np.arange(0, 31, 2)

_LEAST_RELATIVE = 1e-3
"""Of the products' credit over alpha."""

_LEAST = 1e-12
"""Of a credit, as a share of the private rows."""


def solvable(
    base: BaseRows, targets: Targets, credit: float, *, covariance: Array | None = None
) -> Tilt:
    """The tilting at `credit`, or at the least larger one of a ladder that can be solved for.

    Args:
        base: the rows to weight.
        targets: what their weighted means should come close to.
        credit: alpha > 0.
        covariance: near that of the rows, shape (d, d), and the answer's: spares making it.

    Raises:
        SpecError: a credit that is not positive and finite.
        WeightError: none can be solved for.
    """
    if not (math.isfinite(credit) and credit > 0):
        raise SpecError("credit: expected a finite number > 0")
    least = max(credit, _LEAST * targets.rows)
    if covariance is not None:
        start = np.zeros(base.dimension)
        with suppress(WeightError):  # one that rounding has made indefinite
            solved = reached(base, targets, least, start, covariance=covariance)
            if solved is not None:
                return solved
    for factor in _LARGER[:-1]:
        try:
            return tilt(base, targets, credit=least * float(factor))
        except WeightError:
            continue
    return tilt(base, targets, credit=least * float(_LARGER[-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Reweighted:
    """Base rows weighted towards targets.

    Attributes:
        targets: the noisy means.
        tilt: the solved tilting; its weights are those of the base rows.
        misfit: of the base before it was weighted.
        p_value: of the generator's being right on the features (`Misfit.evidence_test`).
    """

    targets: Targets = field(repr=False)
    tilt: Tilt = field(repr=False)
    misfit: Misfit = field(repr=False)
    p_value: float

    @cached_property
    def _curvature(self) -> tuple[Array, bool]:
        """Factor of the Hessian C + alpha R."""
        matrix = self.tilt.covariance + self.tilt.credit * self.targets.ridge
        factor: tuple[Array, bool] = cho_factor(matrix, lower=True)
        return factor

    @cached_property
    def noise_root(self) -> Array:
        """A with A A' = V, the covariance of theta's privacy noise, shape (d, f).

        V = (C + alpha R)^-1 S_f (C + alpha R)^-1 to first order, S_f the noise of the f fresh
        features: of the others the base holds the same noise as the targets, and theta none.
        """
        fresh = slice(self.targets.fresh)
        factor = cholesky(self.targets.covariance[fresh, fresh], lower=True)
        root = np.zeros((self.targets.means.size, len(factor)))
        root[: len(factor)] = factor
        return np.asarray(cho_solve(self._curvature, root))

    def log_weight_noise(self, base: BaseRows) -> Array:
        """Standard deviation of each base row's log weight from privacy noise, shape (M,)."""
        centre = self.tilt.means @ self.noise_root

        def of(_: slice, block: Array) -> Array:
            return np.asarray(np.sqrt(((block @ self.noise_root - centre) ** 2).sum(axis=1)))

        return np.concatenate([*base.mapped(of)])

    @property
    def residual(self) -> Array:
        """By what the noisy means differ from the best fitted ones, alpha R theta, shape (d,)."""
        return np.asarray(self.tilt.credit * self.targets.ridge @ self.tilt.coefficients)

    @property
    def pairs_credit(self) -> float:
        """Of the features that are products of two columns; alpha where they have none."""
        relative = self.targets.relative
        return self.tilt.credit * (1.0 if relative is None else float(relative.min()))

    @cached_property
    def _left(self) -> Array:
        """`Misfit.left` of a fit to the fresh features alone, with the credits that it has."""
        fresh = slice(self.targets.fresh)
        return self.misfit.left(self.tilt.credit * self.targets.ridge[fresh, fresh])

    @property
    def gain(self) -> float:
        """Expected share of the fresh means' squared error that the weights remove, at least 0.

        By Stein's estimates with and without weights, in units of the noise (`Misfit.gain`).
        Against the same rows without weights: a generator with the whole budget may need them
        less. Of a fit to the fresh features alone, products with their own credit.
        """
        return self.misfit.gain(self._left)

    def to_json(self) -> dict[str, Any]:
        """Public facts for the certificate."""
        statistic, chance = self.misfit.chi_square()
        return {
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
            "effective_base_rows": float(1 / (self.tilt.weights**2).sum()),
            "dimension": self.targets.means.size,
            "residual": [float(f"{value:.5g}") for value in self.residual],
        }


def reweight(
    base: BaseRows,
    targets: Targets,
    *,
    credit: str | float = "evidence",
    rng: np.random.Generator,
    pairs: NDArray[np.int64] | None = None,
) -> Reweighted:
    """Weight base rows so that their feature means come close to the targets.

    Args:
        base: features of public rows.
        targets: noisy means with the law of their noise.
        credit: `evidence`, `risk`, or alpha itself. The rules give `MOST_CREDIT` a private row at
            most. Where double precision cannot solve for it, the next larger power of ten times it
            that it can (`Tilt.credit` says which).
        rng: of the test's simulation; no privacy noise.
        pairs: which features are products of two columns. A rule gives them a credit of their own,
            alpha at most: a generator may hold every column and lose what goes together.

    Raises:
        SpecError: an unknown rule.
        WeightError: shapes do not fit, or no credit can be solved for.
    """
    some = () if pairs is None or not pairs.size else (pairs,)
    misfit, *parts = Misfit.by_part(base, targets, some)
    if isinstance(credit, str):
        if credit not in CREDITS:
            raise SpecError(f"credit: expected a number > 0 or one of {', '.join(CREDITS)}")
        rule = CREDITS[credit]
        credit = min(rule(misfit), MOST_CREDIT * targets.rows)
        for pairs_misfit in parts:
            relative = np.ones(targets.means.size)
            relative[pairs] = max(_LEAST_RELATIVE, min(1.0, rule(pairs_misfit) / credit))
            targets = replace(targets, relative=relative)
    return Reweighted(
        targets=targets,
        tilt=solvable(base, targets, credit),
        misfit=misfit,
        p_value=misfit.evidence_test(rng),
    )
