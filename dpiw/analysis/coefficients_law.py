"""What a release lets an analyst know about the errors in its weights.

Weights are w = exp(b.phi) on a public feature map phi. The released b is S beta + z: beta the
coefficients an unpenalised fit would have, S = H/(H + Lam) the shrinkage by the penalty Lam, z the
privacy noise, whose law is published. H, the curvature of the fit, follows from the weighted
synthetic rows and the public n0. So noise and shrinkage are both known up to beta itself.

Everything here is post-processing of released values; it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.coefficients_verdict import objections
from dpiw.errors import ReleaseError
from dpiw.methods.weights.debiasing import log_debias, normalised, weighted_centre
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.analysis.sample import Estimate, WeightedSample
    from dpiw.methods.weights.objections import Objection

Array = NDArray[np.float64]

_SMALLEST = 1e-9
"""Directions of less than this share of the largest curvature are empty."""

_STEPS, _SETTLED, _LONGEST = 8, 0.01, 1.0
"""Gauss-Newton: most steps, when to stop, and the longest step (sd of log weights)."""

_UNSEEN = 1e-3
"""Directions that shrinkage leaves less than this share of keep their prior."""

_SPREADS = (0.03, 1000.0)
"""Range of the prior's spread, in standard deviations of the noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CoefficientsLaw:
    """The law of the weights of one release.

    Attributes:
        features: phi of the released rows, shape (n, d').
        coefficients: released b, shape (d',); known up to directions no row shows.
        noise: law of z.
        penalty: Lam.
        nominal_rows: n0.
        fitting_rows: synthetic rows the weights were fitted on.
        debias: whether the weights carry the debiasing factor.
        max_rows: most rows of one person among the confidential ones.
    """

    features: Array = field(repr=False)
    coefficients: Array = field(repr=False)
    noise: NoiseLaw
    penalty: float
    nominal_rows: int
    fitting_rows: int
    debias: bool
    max_rows: int = 1
    bins = MappingProxyType[str, np.ndarray]({})  # of no column: quantiles are not `use` here
    base_rows, count_noise = np.inf, 0.0  # all rows are used, and the generator's noise not known

    @property
    def variance(self) -> float:
        """Variance of one coordinate of z (docs/method.md section 4)."""
        factor = {
            NoiseKind.GAUSSIAN: 1.0,
            NoiseKind.SPHERICAL: self.noise.dimension + 1.0,
            NoiseKind.LAPLACE: 2.0,
        }[self.noise.kind]
        return factor * self.noise.scale**2

    def draw(self, rng: np.random.Generator) -> Array:
        """One z from the published law, shape (d',); simulation, never used for release."""
        kind, size, scale = self.noise.kind, self.noise.dimension, self.noise.scale
        if kind is NoiseKind.GAUSSIAN:
            return rng.normal(scale=scale, size=size)
        if kind is NoiseKind.LAPLACE:
            return rng.laplace(scale=scale, size=size)
        direction = rng.normal(size=size)
        return np.asarray(rng.gamma(size, scale) * direction / np.linalg.norm(direction))

    def reweighted(self, shift: Array) -> Array:
        """Weights of mean one at coefficients b + shift, debiased as the release was.

        Args:
            shift: shape (d',).
        """
        log_ratio = self.features @ (self.coefficients + shift)
        if self.debias:
            centred = self.features - weighted_centre(log_ratio, self.features)
            log_ratio = log_ratio + log_debias(self.noise, centred)
        return np.asarray(np.exp(normalised(log_ratio)))

    def parts(self, estimate: Estimate) -> dict[str, Array]:
        """Variance of each value by source, shape (p,) each; see `dpiw.analysis.intervals`."""
        sample, g = estimate.sample, estimate.influence
        w = sample.weights[:, None]
        # By the chain rule a shift of the coefficients moves the values by mean(w g phi').
        # mean(w g) is zero for ratios; for totals it is the weights' scale, which z moves as well.
        slope = (w * g).T @ self.features / len(g)
        parts = {
            "rows": np.diag(estimate.covariance()),
            "private": (w * g**2).mean(axis=0) / self.nominal_rows,
        }
        if self.max_rows > 1:
            parts["people"] = (self.max_rows - 1) * parts["private"]
        if sample.tilt is not None:
            return parts | {"coefficients": ((slope @ sample.tilt.factor) ** 2).sum(axis=1)}
        base = sample.spectrum
        squares = (slope @ base.directions) ** 2
        return parts | {
            "noise": squares.sum(axis=1) * base.noise,
            "fitting": squares @ base.fitting,
            "shrinkage": squares @ (1 - base.shrinkage) ** 2 * spread(base),
        }

    def support(self, estimate: Estimate) -> Array:
        """Share of each value that the weights can correct, shape (p,)."""
        return estimate.sample.ridge_projection.support(estimate.influence)

    def objections(self, estimate: Estimate, parts: dict[str, Array]) -> list[list[Objection]]:
        """Of each value, what keeps it from `use`, by support and shrinkage."""
        is_unshrunk = estimate.sample.original is not None
        return objections(self.support(estimate), parts, is_unshrunk=is_unshrunk)

    def draws(self, estimate: Estimate, replicates: int, rng: np.random.Generator) -> Array:
        """Estimates under drawn errors, shape (replicates, p).

        Rows get random multipliers of mean one and variance 1 (the synthetic sample) plus
        k n/(n0 w) (the confidential sample, whose rows are the weighted ones; k is `max_rows`).
        """
        if not estimate.facts.get("normalised", True):
            raise ReleaseError("method: bootstraps hold no scale; totals take `noise_aware`")
        sample, w = estimate.sample, estimate.sample.weights
        spread_of_rows = 1 + self.max_rows * w.size / (self.nominal_rows * np.maximum(w, 1e-12))
        base = sample.spectrum
        prior = spread(base)
        estimates = []
        for _ in range(replicates):
            moved = self._shifted(sample, base, prior, rng)
            multipliers = rng.gamma(1 / spread_of_rows, spread_of_rows)
            estimates.append(estimate.refit(moved * multipliers))
        return np.array(estimates)

    def _shifted(
        self, sample: WeightedSample, base: Spectrum, prior: float, rng: np.random.Generator
    ) -> Array:
        """Weights under one drawn error of the coefficients."""
        if sample.tilt is not None:
            shift = sample.tilt.factor @ rng.standard_normal(sample.tilt.factor.shape[1])
            moved = sample.weights * np.exp(self.features @ shift)
            return np.asarray(moved / moved.mean())
        deviations = np.sqrt(base.fitting + (1 - base.shrinkage) ** 2 * prior)
        return self.reweighted(
            self.draw(rng) + base.directions @ (deviations * rng.standard_normal(deviations.size))
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum:
    """The fit in the directions that its curvature separates.

    Attributes:
        directions: shape (d', m), orthonormal.
        curvature: eigenvalues h of H without the penalty, shape (m,), in rows.
        shrinkage: s = h/(h + Lam), shape (m,).
        fitting: variance of the released coefficients from the fit's own synthetic rows, (m,).
        coefficients: the released ones, shape (m,).
        noise: variance of z, one number for every direction.
    """

    directions: Array
    curvature: Array
    shrinkage: Array
    fitting: Array
    coefficients: Array
    noise: float


def spectrum(law: CoefficientsLaw, weights: Array) -> Spectrum:
    """Curvature, shrinkage and errors of the fit, from weighted synthetic rows.

    H = n0 mean((1 + w) p (1 - p) phi phi') with p = sigmoid(b.phi): private rows are the
    synthetic rows with weight w, and there are n0 of each (docs/method.md section 3).
    """
    x, size = law.features, law.nominal_rows
    p = 1 / (1 + np.exp(-np.clip(x @ law.coefficients, -500, 500)))
    root = x * np.sqrt((1 + weights) * p * (1 - p))[:, None]
    values, vectors = np.linalg.eigh(size * (root.T @ root) / len(x))
    positive = values > _SMALLEST * max(values[-1], 1e-300)
    values, vectors = values[positive], vectors[:, positive]
    pull = (x * p[:, None]) @ vectors
    fitting = size**2 / law.fitting_rows * pull.var(axis=0) / (values + law.penalty) ** 2
    return Spectrum(
        directions=vectors,
        curvature=values,
        shrinkage=values / (values + law.penalty),
        fitting=fitting,
        coefficients=vectors.T @ law.coefficients,
        noise=law.variance,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Tilt:
    """What is believed of beta, given the release.

    beta has a N(0, spread^2 I) prior (a Gaussian process for the log density ratio) whose spread
    is averaged over, given how large the released b is against its known noise. Frequentist
    coverage of such intervals is near nominal on average over estimands (Wahba 1983; Nychka
    1988), not for each.

    Attributes:
        shift: posterior mode of beta minus the released b, shape (d',); where the release says
            nothing the mode is zero.
        factor: shape (d', m); factor factor' is the posterior covariance of beta.
        weights: of the released rows at the mode, of mean one, shape (n,).
    """

    shift: Array = field(repr=False)
    factor: Array = field(repr=False)
    weights: Array = field(repr=False)


def spread(base: Spectrum) -> float:
    """The prior's variance: squared posterior median of the spread, which has a flat prior."""
    s, b = base.shrinkage, base.coefficients
    error = base.noise + base.fitting
    # The median: with few directions the posterior's tail is too heavy for a mean.
    spreads = np.concatenate([[0.0], np.geomspace(*_SPREADS, 120)]) * np.sqrt(base.noise)
    total = s**2 * spreads[:, None] ** 2 + error
    score = -0.5 * (np.log(total) + b**2 / total).sum(axis=1)
    mass = np.cumsum(np.exp(score - score.max()) * np.gradient(spreads))
    return float(spreads[np.searchsorted(mass, mass[-1] / 2)] ** 2)


def tilt(law: CoefficientsLaw, weights: Array) -> Tilt:
    """Posterior of beta: the shrinkage undone as far as the noise allows.

    With private rows distributed as the synthetic rows tilted by beta, the fit would be the b
    that solves n0 E_beta[phi p(-b.phi)] - n0 E_G[phi p(b.phi)] = Lam b. The mode weighs the
    distance of that b from the released one, in units of the noise, against the prior; found by
    Gauss-Newton steps, each linear in the moments of the weighted synthetic rows.
    """
    base = spectrum(law, weights)
    prior = spread(base)
    seen = base.shrinkage > _UNSEEN
    rest = base.directions[:, ~seen] * np.sqrt(prior)  # the release says nothing: the prior stays
    v, size, released = base.directions[:, seen], law.nominal_rows, base.coefficients[seen]
    x = law.features @ v
    error = base.noise + base.fitting[seen]
    p = 1 / (1 + np.exp(-np.clip(law.features @ law.coefficients, -500, 500)))
    target = size * (x * p[:, None]).mean(axis=0) + law.penalty * released
    beta, current = released.copy(), np.exp(normalised(x @ released))
    for _ in range(_STEPS):
        pulled = x * (current * (1 - p))[:, None]
        residual = size * pulled.mean(axis=0) - target
        centred = x - current @ x / len(x)
        moved = size * pulled.T @ centred / len(x)
        curve = x * ((1 + current) * p * (1 - p))[:, None]
        hessian = size * curve.T @ x / len(x) + law.penalty * np.eye(x.shape[1])
        jacobian = np.linalg.solve(hessian, moved)
        gap = jacobian @ beta - np.linalg.solve(hessian, residual)
        normal = (jacobian / error[:, None]).T
        precision = normal @ jacobian + np.eye(x.shape[1]) / max(prior, 1e-12)
        step = np.linalg.solve(precision, normal @ gap) - beta
        length = min(1.0, _LONGEST / max(float((x @ step).std()), 1e-300))
        beta = beta + length * step
        current = np.exp(normalised(x @ beta))
        if float((x @ step).std()) < _SETTLED:
            break
    values, vectors = np.linalg.eigh(precision)
    return Tilt(
        shift=v @ beta - law.coefficients,
        factor=np.hstack([v @ (vectors / np.sqrt(values)), rest]),
        weights=current,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RidgeProjection:
    """A weighted ridge regression on the weights' features, factored once.

    Attributes:
        centred: features less their weighted mean, shape (n, d').
        weights: shape (n,), mean one.
        inverse: of the ridge regression's matrix, shape (d', d').
    """

    centred: Array = field(repr=False)
    weights: Array = field(repr=False)
    inverse: Array = field(repr=False)

    def support(self, influence: Array) -> Array:
        """Share of an estimate's variance that lies where the weights could correct it, (p,).

        1 - min_a mean(w (g - a.(phi - mu))^2) / mean(w g^2) over ridge coefficients a with the
        penalty of the fit, 2 Lam/n0 per row (its curvature is about half the feature
        covariance). A misfit of the generator in the remaining share is not seen by the weights,
        and is in no interval. It can be asked before an analysis and costs nothing.

        Args:
            influence: shape (n, p).
        """
        w, rows = self.weights, len(self.weights)
        g = influence - w @ influence / rows
        ridge = self.inverse @ (self.centred.T @ (w[:, None] * g)) / rows
        rss = w @ (g - self.centred @ ridge) ** 2
        tss = w @ g**2
        return np.asarray(1 - np.divide(rss, tss, out=np.ones_like(rss), where=tss > 0))


def ridge_projection(law: CoefficientsLaw, weights: Array) -> RidgeProjection:
    """The ridge regression of `RidgeProjection.support`.

    Args:
        law: of the weights.
        weights: shape (n,), mean one.
    """
    rows = len(weights)
    x = law.features - weights @ law.features / rows
    scatter = (x * weights[:, None]).T @ x / rows
    ridge = 2 * law.penalty / law.nominal_rows
    return RidgeProjection(
        centred=x,
        weights=weights,
        inverse=np.asarray(np.linalg.inv(scatter + ridge * np.eye(len(scatter)))),
    )
