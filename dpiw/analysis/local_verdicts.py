"""What keeps an estimate from local reports from the verdict `use`.

The bounds are our choice, from simulations: docs/method.md section 17.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.objections import Objection

Array = NDArray[np.float64]

USE_BIAS, CARE_BIAS = 0.25, 0.5
"""Largest bias, in standard deviations of a coefficient: 95% intervals cover 94% and 92% then."""

USE_SPREAD, CARE_SPREAD = 4.0, 2.0
"""Least spread of the features, net of the noise, in its own standard errors."""


def edge_objection(values: Array, norm: float) -> list[Objection]:
    """That parameters, shape (d,), lie at the edge of their ball."""
    if float(np.linalg.norm(values)) < norm * (1 - 1e-9):
        return []
    return [Objection(Verdict.DO_NOT_USE, f"at the edge of the ball of norm {norm:g}")]


def curvature_objection(hessian: Array, mu: float) -> list[Objection]:
    """That some curvature of H, shape (d, d), is not above mu / 2: steps forget too slowly."""
    least = float(np.linalg.eigvalsh(hessian).min())
    if least > mu / 2:
        return []
    return [Objection(Verdict.DO_NOT_USE, f"curvature {least:.3g} (expected > {mu / 2:.3g})")]


def bias_objection(bias: Array, covariance: Array) -> list[Objection]:
    """That start and ball still show in some coefficient beside its error of chance.

    Args:
        bias: of the coefficients, shape (d,).
        covariance: of the coefficients, shape (d, d).
    """
    ratio = float((np.abs(bias) / np.sqrt(np.diag(covariance))).max())
    if ratio <= USE_BIAS:
        return []
    leaves = Verdict.CARE if ratio <= CARE_BIAS else Verdict.DO_NOT_USE
    text = f"start and ball moved the end by {ratio:.2f} standard errors (expected <= {USE_BIAS:g})"
    return [Objection(leaves, f"{text}: more reports, a smaller mu, or a larger ball")]


def net_spread(told: Array, variances: Array) -> tuple[float, float]:
    """Least spread of told features net of the noise, over all directions, after scaling.

    Features are centred and scaled to unit told variance. In each eigenvector v of their
    covariance less the noise's the net spread is an average over reports of (v'w)^2 - v'S v, whose
    standard error is that of (v'w)^2.

    Args:
        told: shape (n, p).
        variances: of the noise, shape (p,).

    Returns:
        The least net spread, as a share of the told one, and the least of net spread over standard
        error: near or below 2 the matrix may be positive by luck. Infinite without features.
    """
    if not told.shape[1]:
        return np.inf, np.inf
    centred = told - told.mean(axis=0)
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    scaled = centred / scale
    net, axes = np.linalg.eigh(scaled.T @ scaled / len(told) - np.diag(variances / scale**2))
    error = ((scaled @ axes) ** 2).std(axis=0) / np.sqrt(len(told))
    return float(net.min()), float((net / np.maximum(error, 1e-300)).min())


def spread_objection(ratio: float) -> list[Objection]:
    """That a net spread is too few of its standard errors above zero."""
    if ratio >= USE_SPREAD:
        return []
    leaves = Verdict.CARE if ratio >= CARE_SPREAD else Verdict.DO_NOT_USE
    text = f"features' spread net of the noise {ratio:.1f} standard errors"
    return [
        Objection(leaves, f"{text} (expected >= {USE_SPREAD:g}): fewer features, or more reports")
    ]
