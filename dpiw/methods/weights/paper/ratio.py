"""A released density ratio p_real/p_synthetic, and the noise in the weights that it gives.

Unnormalised weights take the factor b(x), self-normalised ones b(x - mu) (docs/method.md section
4). A beta calibration (Kull et al. 2017) is linear in the features g of `calibration_features`.
"""

from __future__ import annotations

import abc
import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError
from dpiw.methods.weights.diagnostics import Signal
from dpiw.methods.weights.weigh import normalised
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.tables import SyntheticTable

Array = NDArray[np.float64]

DRAWS = 999
"""R of the signal test where the law of the noise is known; of networks the setting `replays`."""

DIMENSION = 3
CONSTANT = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """A log ratio at some rows, and how noise enters it.

    Attributes:
        log_ratio: shape (n,), natural log, up to a constant, not debiased.
        features: shape (n, d'); noise z of the law adds z.features.
        factor: argument of b, unnormalised and self-normalised; None: no factor.
    """

    log_ratio: Array
    features: Array
    law: NoiseLaw | None
    factor: tuple[str, str] | None = ("x", "x - mu")
    texts: tuple[str, ...] = ()


class DensityRatio(abc.ABC):
    """A released log ratio; by default the law of its noise is unknown."""

    @abc.abstractmethod
    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """Noisy log ratio up to a constant, shape (rows,), natural log, not debiased."""

    def scored(self, synthetic: SyntheticTable) -> Scored:
        """The log ratio, and how its noise enters."""
        features = np.zeros((synthetic.rows, 0))
        return Scored(log_ratio=self.log_ratio(synthetic), features=features, law=None)

    def chance(self, synthetic: SyntheticTable) -> Array | None:
        """Variances of the log ratio if real and synthetic law agree, shape (R,), or None."""
        return None

    def signal(self, synthetic: SyntheticTable) -> Signal | None:
        """The test whether the log ratio is more than chance; None: not testable."""
        null = self.chance(synthetic)
        return None if null is None else Signal.of(self.log_ratio(synthetic), null)


def _squared_norms(features: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", features, features))


def _log_mean_laplace(scale: float, features: Array) -> Array:
    terms = 1.0 - (scale * features) ** 2
    exists = np.all(terms > 0, axis=1)
    safe = np.where(terms > 0, terms, 1.0)
    return np.where(exists, -np.log(safe).sum(axis=1), np.inf)


def _log_mean_spherical(scale: float, features: Array, dimension: int) -> Array:
    terms = 1.0 - scale**2 * _squared_norms(features)
    safe = np.where(terms > 0, terms, 1.0)
    return np.where(terms > 0, -(dimension + 1) / 2 * np.log(safe), np.inf)


def log_noise_mean(law: NoiseLaw, features: Array) -> Array:
    """Log of E exp(z.x) = 1/b(x) per row, shape (n,), or infinite (docs/method.md section 4)."""
    if law.scale == 0:
        return np.zeros(len(features))
    if law.kind is NoiseKind.GAUSSIAN:
        return np.asarray(law.scale**2 * _squared_norms(features) / 2)
    if law.kind is NoiseKind.SPHERICAL:
        return _log_mean_spherical(law.scale, features, law.dimension)
    return _log_mean_laplace(law.scale, features)


def log_debias(law: NoiseLaw, features: Array) -> Array:
    """Natural log of b(x) per row, shape (n,), <= 0; WeightError where it does not exist."""
    log_means = log_noise_mean(law, features)
    if not np.all(np.isfinite(log_means)):
        raise WeightError(
            f"debiasing: {law.kind.value} noise of scale {law.scale:.4g} has no exponential mean at"
            " some feature rows; expected scale * norm(x) < 1 (laplace: scale * max|x_j| < 1)"
        )
    return -log_means


def log_weight_noise(law: NoiseLaw, features: Array) -> Array:
    """Standard deviation of z.x per row, shape (n,). Source: docs/method.md section 4."""
    factor = {
        NoiseKind.GAUSSIAN: 1.0,
        NoiseKind.SPHERICAL: law.dimension + 1.0,
        NoiseKind.LAPLACE: 2.0,
    }[law.kind]
    return np.asarray(law.scale * np.sqrt(factor * _squared_norms(features)))


def weighted_centre(log_weights: Array, features: Array) -> Array:
    """Weighted mean of the features, shape (d',): mu_hat of docs/method.md section 5."""
    return np.asarray(np.exp(normalised(log_weights)) @ features / len(features))


def debias_unnormalised(log_ratio: Array, features: Array, law: NoiseLaw) -> Array:
    """b_bar.x + log b(x): unbiased per row; with s0 = n0/N_G the mean weight estimates N_D/n0."""
    return np.asarray(log_ratio + log_debias(law, features))


def debias_self_normalised(log_ratio: Array, features: Array, law: NoiseLaw) -> tuple[Array, Array]:
    """b_bar.x + log b(x - mu_hat) of mean weight one, and mu_hat; its bias is of second order."""
    centre = weighted_centre(log_ratio, features)
    return normalised(log_ratio + log_debias(law, features - centre)), centre


def public_number(released: Array) -> int:
    """A seed that follows from released values, so that simulations can be repeated."""
    return int.from_bytes(hashlib.sha256(released.tobytes()).digest()[:8], "big")


def simulated_noise(law: NoiseLaw, draws: int, rng: np.random.Generator) -> Array:
    """Draws of a noise law for comparison, shape (draws, dimension); never released."""
    shape = (draws, law.dimension)
    if law.kind is NoiseKind.LAPLACE:
        return rng.laplace(scale=law.scale, size=shape)
    normals = rng.standard_normal(shape)
    if law.kind is NoiseKind.GAUSSIAN:
        return np.asarray(law.scale * normals)
    radii = rng.gamma(law.dimension, law.scale, draws)
    return np.asarray(normals * (radii / np.linalg.norm(normals, axis=1))[:, None])


def simulated_errors(covariance: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws of normal errors with a covariance that may be singular, shape (draws, d')."""
    values, axes = np.linalg.eigh(covariance)
    roots = axes * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.standard_normal((draws, len(values))) @ roots.T)


def softplus(t: Array) -> Array:
    """log(1 + exp(t)) without overflow."""
    return np.asarray(np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t))))


def middle(limit: float) -> float:
    """m: the middle of -log s over u in [-limit, limit]."""
    return limit / 2 + math.log1p(math.exp(-limit))


def calibration_features(log_ratio: Array, limit: float) -> Array:
    """The features g, shape (n, 3); norm(g)^2 <= 3/4 and norm(g - g')^2 <= 2."""
    clipped = np.clip(log_ratio, -limit, limit)
    centre = middle(limit)
    first = (centre - softplus(-clipped)) / limit
    second = (softplus(clipped) - centre) / limit
    return np.column_stack([first, second, np.full(clipped.size, CONSTANT)])


def identity(limit: float) -> Array:
    """Coefficients on g of the map that changes nothing, shape (3,)."""
    return np.array([limit, limit, 0.0])


def to_coefficients(a: float, b: float, c: float, limit: float) -> Array:
    """Coefficients on g of a log s - b log(1-s) + c."""
    centre = middle(limit)
    return np.array([a * limit, b * limit, (c - (a - b) * centre) / CONSTANT])


def to_map(coefficients: Array, limit: float) -> tuple[float, float, float]:
    """(a, b, c) from coefficients on g."""
    a, b = float(coefficients[0] / limit), float(coefficients[1] / limit)
    return a, b, float(coefficients[2] * CONSTANT + (a - b) * middle(limit))


def calibrated(log_ratio: Array, map_: tuple[float, float, float], limit: float) -> Array:
    """The calibrated log ratio, shape (n,)."""
    return np.asarray(calibration_features(log_ratio, limit) @ to_coefficients(*map_, limit))


def calibration_slope(log_ratio: Array, map_: tuple[float, float, float], limit: float) -> Array:
    """d(calibrated)/d(log ratio), shape (n,): a (1-s) + b s inside the limit, 0 outside."""
    share = np.exp(-softplus(-log_ratio))
    a, b, _ = map_
    return np.where(np.abs(log_ratio) < limit, a * (1 - share) + b * share, 0.0)
