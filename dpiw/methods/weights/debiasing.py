"""The closed-form debiasing of log-linear weights with known noise (docs/method.md section 4).

With noisy coefficients b_bar = b_hat + z and feature row x, exp(b_bar.x) is on average
exp(b_hat.x) E exp(z.x). The law of z is public, so the factor b(x) = 1 / E exp(z.x) is too:

- unnormalised use: log w = b_bar.x + log b(x) is unbiased for the non-private weight of each row;
- self-normalised use: log w = b_bar.x + log b(x - mu), mu the weighted mean of the features.
  The printed b(x) is the wrong correction there: it can increase the bias.

Everything here is post-processing of public values. Imports nothing but NumPy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError
from dpiw.privacy.units import NoiseKind, NoiseLaw

Array = NDArray[np.float64]


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
    """Logarithm of E exp(z.x) = 1/b(x) per row, shape (n,); infinite where the mean does not exist.

    Args:
        law: law of the coefficient noise z.
        features: rows x, shape (n, d').

    Source: docs/method.md section 4, rows "E exp(z.x)" and "mean exists".
    """
    if law.scale == 0:
        return np.zeros(len(features))
    if law.kind is NoiseKind.GAUSSIAN:
        return np.asarray(law.scale**2 * _squared_norms(features) / 2)
    if law.kind is NoiseKind.SPHERICAL:
        return _log_mean_spherical(law.scale, features, law.dimension)
    return _log_mean_laplace(law.scale, features)


def log_debias(law: NoiseLaw, features: Array) -> Array:
    """Natural log of b(x) per row, shape (n,), <= 0.

    Raises:
        WeightError: for some row the noise's exponential has no mean, so no factor exists.
    """
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


def normalised(log_weights: Array) -> Array:
    """Shift log weights so that the weights have mean one, shape (n,)."""
    if log_weights.size == 0 or not np.all(np.isfinite(log_weights)):
        raise WeightError("weights: expected at least one row and finite log weights")
    top = log_weights.max()
    return np.asarray(log_weights - (top + np.log(np.mean(np.exp(log_weights - top)))))


def weighted_centre(log_weights: Array, features: Array) -> Array:
    """Weighted mean of the features, shape (d',): mu_hat of docs/method.md section 5."""
    return np.asarray(np.exp(normalised(log_weights)) @ features / len(features))


def debias_unnormalised(log_ratio: Array, features: Array, law: NoiseLaw) -> Array:
    """b_bar.x + log b(x): unbiased for the non-private weight, row by row.

    Not scaled: with s0 = n0/N_G the mean weight estimates N_D/n0.
    """
    return np.asarray(log_ratio + log_debias(law, features))


def debias_self_normalised(log_ratio: Array, features: Array, law: NoiseLaw) -> tuple[Array, Array]:
    """b_bar.x + log b(x - mu_hat), scaled to mean weight one; and mu_hat.

    mu_hat is the mean of the features under the noisy weights. The bias of the weighted means is
    of second order in the noise after this; before it, and with the printed b(x), of first.
    """
    centre = weighted_centre(log_ratio, features)
    return normalised(log_ratio + log_debias(law, features - centre)), centre
