"""What a release lets an analyst know about the errors in its weights.

Weights are w = exp(b.phi) on a public feature map phi. The released b is S beta + z: beta the
coefficients an unpenalised fit would have, S = H/(H + Lam) the shrinkage by the penalty Lam, z the
privacy noise, whose law is published. H, the curvature of the fit, follows from the weighted
synthetic rows and the public n0. So noise and shrinkage are both known up to beta itself.

Everything here is post-processing of released values; it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import ReleaseError
from dpiw.privacy import NoiseKind, NoiseLaw
from dpiw.weights.debiasing import log_debias, normalised, weighted_centre

if TYPE_CHECKING:
    from dpiw.release import Release

Array = NDArray[np.float64]

_RECOVERY = 1e-6
"""Largest misfit, in log weights, of coefficients recovered from a release."""

_SMALLEST = 1e-9
"""Directions of less than this share of the largest curvature are empty (METHOD section 14)."""


_STEPS, _SETTLED, _LONGEST = 8, 0.01, 1.0
"""Gauss-Newton: most steps, when to stop, and the longest step in log weight (standard deviation)."""

_SPREADS = (0.03, 1000.0)
"""Range of the prior's spread, in standard deviations of the noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightLaw:
    """The law of the weights of one release.

    Attributes:
        features: phi of the released rows, shape (n, d').
        coefficients: released b, shape (d',); known up to directions no row shows.
        noise: law of z.
        penalty: Lam.
        nominal_rows: n0.
        fitting_rows: synthetic rows the weights were fitted on.
        debias: whether the weights carry the debiasing factor.
    """

    features: Array = field(repr=False)
    coefficients: Array = field(repr=False)
    noise: NoiseLaw
    penalty: float
    nominal_rows: int
    fitting_rows: int
    debias: bool

    @property
    def variance(self) -> float:
        """Variance of one coordinate of z (METHOD section 2.2)."""
        factor = {
            NoiseKind.GAUSSIAN: 1.0,
            NoiseKind.SPHERICAL: self.noise.dimension + 1.0,
            NoiseKind.LAPLACE: 2.0,
        }[self.noise.kind]
        return factor * self.noise.scale**2

    def draw(self, rng: np.random.Generator) -> Array:
        """One z from the published law, shape (d',); simulation, never used for release."""
        size, scale = self.noise.dimension, self.noise.scale
        if self.noise.kind is NoiseKind.GAUSSIAN:
            return rng.normal(scale=scale, size=size)
        if self.noise.kind is NoiseKind.LAPLACE:
            return rng.laplace(scale=scale, size=size)
        direction = rng.normal(size=size)
        return np.asarray(rng.gamma(size, scale) * direction / np.linalg.norm(direction))

    def reweighted(self, shift: Array, *, debias: Array | None = None) -> Array:
        """Weights of mean one at coefficients b + shift.

        Args:
            shift: shape (d',).
            debias: shape (d',) or None: variances of the error that the weights are debiased
                for; None: as the release was debiased.
        """
        log_ratio = self.features @ (self.coefficients + shift)
        if debias is None:
            if not self.debias:
                return np.exp(normalised(log_ratio))
            centred = self.features - weighted_centre(log_ratio, self.features)
            return np.exp(normalised(log_ratio + log_debias(self.noise, centred)))
        centred = self.features - weighted_centre(log_ratio, self.features)
        return np.asarray(np.exp(normalised(log_ratio - (centred**2) @ debias / 2)))


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


def spectrum(law: WeightLaw, weights: Array) -> Spectrum:
    """Curvature, shrinkage and errors of the fit, from weighted synthetic rows.

    H = n0 mean((1 + w) p (1 - p) phi phi') with p = sigmoid(b.phi): private rows are the
    synthetic rows with weight w, and there are n0 of each (METHOD section 1).
    """
    x, size = law.features, law.nominal_rows
    p = 1 / (1 + np.exp(-np.clip(x @ law.coefficients, -500, 500)))
    root = x * np.sqrt((1 + weights) * p * (1 - p))[:, None]
    values, vectors = np.linalg.eigh(size * (root.T @ root) / len(x))
    kept = values > _SMALLEST * max(values[-1], 1e-300)
    values, vectors = values[kept], vectors[:, kept]
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
        shift: posterior mode of beta minus the released b, shape (d',).
        factor: shape (d', m); factor factor' is the posterior covariance of beta.
        weights: of the released rows at the mode, of mean one, shape (n,).
        prior_variance: spread^2.
    """

    shift: Array = field(repr=False)
    factor: Array = field(repr=False)
    weights: Array = field(repr=False)
    prior_variance: float


def spread(found: Spectrum) -> float:
    """Posterior mean of the prior's variance, with a flat prior on the spread."""
    s, b = found.shrinkage, found.coefficients
    error = found.noise + found.fitting
    spreads = np.concatenate([[0.0], np.geomspace(*_SPREADS, 120)]) * np.sqrt(found.noise)
    total = s**2 * spreads[:, None] ** 2 + error
    score = -0.5 * (np.log(total) + b**2 / total).sum(axis=1)
    mass = np.exp(score - score.max()) * np.gradient(spreads)
    return float(mass @ spreads**2 / mass.sum())


def tilt(law: WeightLaw, weights: Array) -> Tilt:
    """Posterior of beta: the shrinkage undone as far as the noise allows.

    With private rows distributed as the synthetic rows tilted by beta, the fit would be the b
    that solves n0 E_beta[phi p(-b.phi)] - n0 E_G[phi p(b.phi)] = Lam b. The mode weighs the
    distance of that b from the released one, in units of the noise, against the prior; found by
    Gauss-Newton steps, each linear in the moments of the weighted synthetic rows.
    """
    base = spectrum(law, weights)
    prior = spread(base)
    v, size, released = base.directions, law.nominal_rows, base.coefficients
    x = law.features @ v
    error = base.noise + base.fitting
    p = 1 / (1 + np.exp(-np.clip(law.features @ law.coefficients, -500, 500)))
    target = size * (x * p[:, None]).mean(axis=0) + law.penalty * released
    beta, current = released.copy(), weights
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
        shift=v @ (beta - released),
        factor=v @ (vectors / np.sqrt(values)),
        weights=current,
        prior_variance=prior,
    )


def law_of_release(release: Release) -> WeightLaw | None:
    """The law of a release's weights, from its certificate, schema and rows.

    None where weights are not published, or were changed after debiasing by steps this version
    does not model (the certificate's `post_processing` names them).

    Raises:
        ReleaseError: the weights are not what certificate and rows say.
    """
    certificate = release.certificate
    if not certificate.weights.get("published", False):
        return None
    stage = next((s for s in certificate.stages if s.stage == certificate.weights["stage"]), None)
    if stage is None or "scale" not in stage.parameters:
        return None
    from dpiw.schema import PublicSchema
    from dpiw.weights.features import feature_map

    facts: dict[str, Any] = dict(stage.parameters)
    schema = PublicSchema.from_mapping(release.schema)
    features = feature_map(
        facts["features"],
        schema,
        frequencies=facts.get("frequencies", 0),
        frequency_scale=facts.get("frequency_scale"),
        omega_seed=facts.get("omega_seed"),
    ).matrix(schema.scale(release.table))
    noise = NoiseLaw(
        kind=NoiseKind(facts["noise"]), scale=float(facts["scale"]), dimension=features.shape[1]
    )
    steps = set(certificate.post_processing)
    if not steps <= {"debias b(x - mu)", "debias b(x)", "self-normalise"}:
        return None
    logs = np.asarray(release.log_weights, dtype=np.float64)
    coefficients = recover(logs, features, noise, steps=steps)
    return WeightLaw(
        features=features,
        coefficients=coefficients,
        noise=noise,
        penalty=float(facts["penalty"]),
        nominal_rows=certificate.nominal_rows,
        fitting_rows=len(features),
        debias=bool(facts["debias"]),
    )


def recover(log_weights: Array, features: Array, noise: NoiseLaw, *, steps: set[str]) -> Array:
    """The released coefficients from the released weights, shape (d',).

    log w = b.phi + log b(phi - mu) + constant has the known debiasing factor, so b follows by
    least squares; mu, the centre under the weights without the factor, by iteration.

    Raises:
        ReleaseError: no coefficients explain the weights: rows, features or steps do not match.
    """
    free = np.column_stack([features, np.ones(len(features))])
    target = log_weights
    if "debias b(x)" in steps:
        target = log_weights - log_debias(noise, features)
    if "debias b(x - mu)" in steps:
        for _ in range(100):
            centre = weighted_centre(target, features)
            moved = log_weights - log_debias(noise, features - centre)
            change = float(np.ptp(moved - target))
            target = moved
            if change < 1e-12:
                break
    found = np.linalg.lstsq(free, target, rcond=1e-10)[0]
    if np.ptp(target - free @ found) > _RECOVERY:
        raise ReleaseError("weights: they do not follow from the certificate's feature map")
    return np.asarray(found[:-1])
