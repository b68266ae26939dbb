"""Is a released log ratio more than chance? One rule for all of the paper's weights; free.

If the real and the synthetic law were the same, the released log ratio would be privacy noise, and
the sampling error of two finite tables. Both are drawn again, R times, and the variance of the log
ratio over the published rows is compared with theirs. It guards against weights that are stable,
have a high effective sample size, and carry nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.privacy.units import NoiseKind, NoiseLaw

Array = NDArray[np.float64]

DRAWS = 999
"""R, where the law of the noise is known; of networks it is the setting `replays`."""


@dataclass(frozen=True, kw_only=True)
class FitFacts:
    """Public facts of a regression fit.

    Attributes:
        penalty: Lam.
        nominal_rows: n0.
        synthetic_rows: N_G, that it used.
        max_rows: k, most rows of one person.
    """

    penalty: float
    nominal_rows: int
    synthetic_rows: int
    max_rows: int = 1

    @classmethod
    def of_measurement(cls, facts: Mapping[str, Any]) -> FitFacts:
        """As a measurement of these weights states them."""
        return cls(**{field.name: facts[field.name] for field in fields(cls)})


def sampling_covariance(features: Array, fit: FitFacts) -> Array:
    """Covariance of the exact coefficients when real and synthetic law agree, shape (d', d').

    At b = 0 every row's slope is 1/2 and curvature 1/4. With C and M the covariance and second
    moment of the features, the gradient's covariance is at most (n0/4)(k + n0/N_G) C, as a person's
    k rows may be alike, and the Hessian Lam I + (n0/2) M. Assumes a real table of about n0 rows.

    Args:
        features: rows x of a table with the synthetic law, shape (n, d').
        fit: the fit's public facts.
    """
    size, rows = fit.nominal_rows, len(features)
    centred = features - features.mean(axis=0)
    chance = fit.max_rows + size / fit.synthetic_rows
    gradient = size / 4 * chance * (centred.T @ centred) / rows
    hessian = size / 2 * (features.T @ features) / rows
    hessian[np.diag_indices_from(hessian)] += fit.penalty
    half = np.linalg.solve(hessian, gradient)
    return np.asarray(np.linalg.solve(hessian, half.T))


def public_number(released: Array) -> int:
    """Fixed by released values, so that what is simulated for them can be repeated."""
    return int.from_bytes(hashlib.sha256(released.tobytes()).digest()[:8], "big")


def simulated_noise(law: NoiseLaw, draws: int, rng: np.random.Generator) -> Array:
    """Draws of a noise law for comparisons alone, shape (draws, dimension); never released."""
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
