"""Weights of public rows from noisy means, with everything known about their errors.

For anybody with DP statistics and a synthetic table: base rows' features, noisy means and their
covariance in; weights, the variance of any weighted estimate and replicate weights out. Nothing
here reads private rows. Source: METHOD sections 15.2 to 15.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from dpiw.errors import SpecError
from dpiw.weights.credit import Misfit, evidence_credit, risk_credit
from dpiw.weights.tilting import BaseRows, Targets, Tilt, tilt

Array = NDArray[np.float64]

CREDITS = {"evidence": evidence_credit, "risk": risk_credit}
"""Rules for alpha by name."""


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
        """Factor of the Hessian C + alpha S."""
        matrix = self.tilt.covariance + self.tilt.credit * self.targets.covariance
        found: tuple[Array, bool] = cho_factor(matrix, lower=True)
        return found

    @cached_property
    def noise_root(self) -> Array:
        """A with A A' = V, the covariance of theta's privacy noise, shape (d, d).

        V = (C + alpha S)^-1 S (C + alpha S)^-1 to first order.
        """
        root = cholesky(self.targets.covariance, lower=True)
        return np.asarray(cho_solve(self._curvature, root))

    def log_weight_noise(self, base: BaseRows) -> Array:
        """Standard deviation of each base row's log weight from privacy noise, shape (M,)."""
        centre = self.tilt.means @ self.noise_root
        found = [
            np.sqrt(((block @ self.noise_root - centre) ** 2).sum(axis=1))
            for _, block in base.blocks()
        ]
        return np.concatenate(found)

    def gain(self) -> float:
        """Expected share of the means' squared error that the weights remove, at least 0.

        By Stein's estimates with and without weights, in units of the noise; zero where the
        distances are no larger than noise. Against the same rows without weights: a generator
        with the whole budget may need them less.
        """
        without = float((self.misfit.distances**2 - 1).sum())
        kept = np.interp(self.tilt.credit, self.misfit.credits, self.misfit.risk())
        return min(1.0, max(0.0, 1 - float(kept) / without)) if without > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Public facts for the certificate."""
        statistic, chance = self.misfit.chi_square()
        return {
            "rows": self.targets.rows,
            "credit": self.tilt.credit,
            "gap": self.tilt.gap,
            "steps": self.tilt.steps,
            "chi_square": statistic,
            "chi_square_p_value": chance,
            "evidence_p_value": self.p_value,
            "explained": self.misfit.explained(self.tilt.credit),
            "gain": self.gain(),
            "base_rows": self.misfit.base_rows,
            "effective_base_rows": float(1 / (self.tilt.weights**2).sum()),
            "dimension": self.targets.means.size,
        }


def reweight(
    base: BaseRows,
    targets: Targets,
    *,
    credit: str | float = "evidence",
    rng: np.random.Generator,
) -> Reweighted:
    """Weight base rows so that their feature means come close to the targets.

    Args:
        base: features of public rows.
        targets: noisy means with the law of their noise.
        credit: `evidence`, `risk`, or alpha itself.
        rng: of the test's simulation; no privacy noise.

    Raises:
        SpecError: an unknown rule.
        WeightError: shapes do not fit, or the tilting cannot be solved.
    """
    misfit = Misfit.of(base, targets)
    if isinstance(credit, str):
        if credit not in CREDITS:
            raise SpecError(f"credit: expected a number > 0 or one of {', '.join(CREDITS)}")
        credit = CREDITS[credit](misfit)
    return Reweighted(
        targets=targets,
        tilt=tilt(base, targets, credit=credit),
        misfit=misfit,
        p_value=misfit.evidence_test(rng),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class MeansLaw:
    """What weighted rows let an analyst know about the errors of weights made from noisy means.

    Attributes:
        features: phi of the rows, shape (n, d).
        weights: of the rows, of mean one, shape (n,).
        covariance: S of the noise of the means, shape (d, d).
        rows: N, private rows.
        credit: alpha.
    """

    features: Array = field(repr=False)
    weights: Array = field(repr=False)
    covariance: Array = field(repr=False)
    rows: float
    credit: float

    @cached_property
    def _centred(self) -> Array:
        return self.features - self.weights @ self.features / len(self.weights)

    @cached_property
    def _spread(self) -> Array:
        """C of the features under the weights."""
        x = self._centred
        return np.asarray((x * self.weights[:, None]).T @ x / len(x))

    @cached_property
    def _posterior(self) -> Array:
        """Root of (C + alpha (S + C/N))^-1: L with L L' the matrix, lower."""
        whole = self._spread + self.credit * (self.covariance + self._spread / self.rows)
        return np.asarray(cholesky(whole, lower=True))

    def _seen(self, influence: Array) -> tuple[Array, Array]:
        """K_gg and K_gF (...)^-1 K_Fg of influence values, shape (p,) each."""
        w, n = self.weights, len(self.weights)
        g = influence - w @ influence / n
        cross = self._centred.T @ (w[:, None] * g) / n
        half = solve_triangular(self._posterior, cross, lower=True)
        return np.asarray(w @ g**2 / n), np.asarray((half**2).sum(axis=0))

    def variance(self, influence: Array) -> Array:
        """Variance of weighted estimates from noise, private sample, shrinkage and prior, (p,).

        (K_gg - K_gF (C + alpha (S + C/N))^-1 K_Fg)/alpha. What no feature reaches keeps its prior
        variance K_gg/alpha. The base's own Monte Carlo error is not in it. Source: METHOD 15.4.

        Args:
            influence: shape (n, p), as of `dpiw.analysis.Estimate`.
        """
        whole, seen = self._seen(influence)
        return np.asarray(np.maximum(whole - seen, 0.0) / self.credit)

    def support(self, influence: Array) -> Array:
        """Share of the prior's variance that the measured means remove, in [0, 1], shape (p,)."""
        whole, seen = self._seen(influence)
        return np.divide(seen, whole, out=np.zeros_like(whole), where=whole > 0)

    def replicates(self, count: int, rng: np.random.Generator) -> tuple[Array, float]:
        """Replicate weights whose spread over any smooth estimate is its error, (n, count).

        Each is w (1 + step e) with e the posterior's random tilt: the prior's jitter, of variance
        n/(alpha w) a row, less its projection on what was measured, plus noise and sampling error
        of the means. `step` keeps every weight positive; the variance of an estimate is
        `scale` times the sum of squared differences from the full estimate.

        Args:
            count: R.
            rng: an analyst's or the release's generator; no privacy noise.

        Returns:
            The replicates, of mean one each, and `scale` = 1/(R step^2).
        """
        n, d = self.features.shape
        w = self.weights
        jitter = rng.standard_normal((n, count)) * np.sqrt(n / (self.credit * w))[:, None]
        jitter -= w @ jitter / n
        noise_root = cholesky(self.covariance + self._spread / self.rows, lower=True)
        shown = self._centred.T @ (w[:, None] * jitter) / n
        errors = noise_root @ rng.standard_normal((d, count)) - shown
        half = solve_triangular(self._posterior, errors, lower=True)
        theta = solve_triangular(self._posterior, half, lower=True, trans="T")
        moved = jitter + self._centred @ theta
        # The synthetic rows are themselves a sample: independent of all else.
        moved += rng.standard_normal((n, count))
        moved -= w @ moved / n
        step = 0.9 / float(np.abs(moved).max())
        found = w[:, None] * (1 + step * moved)
        return found, 1 / (count * step**2)


def design_effect(weights: Array) -> float:
    """N sum(w^2)/sum(w)^2 of non-negative weights."""
    total = float(weights.sum())
    return float(weights.size * (weights**2).sum() / total**2) if total > 0 else math.inf
