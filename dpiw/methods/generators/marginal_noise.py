"""Noise of measured marginals: sensitivity, scale, size, and how effort becomes multipliers."""

from __future__ import annotations

from math import cbrt, isfinite, sqrt

import numpy as np

from dpiw.errors import SpecError, UnsupportedRelationError
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, PrivacyUnit


def check_effort(method: str, *, rho: float, nominal_rows: int) -> None:
    """Raise SpecError unless the effort and the public nominal size are positive."""
    if not (isfinite(rho) and rho > 0):
        raise SpecError(f"{method}: expected an effort rho > 0")
    if nominal_rows < 1:
        raise SpecError(f"nominal_rows={nominal_rows}: expected a whole number >= 1")


def marginal_multiplier(kind: NoiseKind, *, rho: float, share: float, count: int) -> float:
    """Noise multiplier of each of `count` marginals that together get `share` of the effort.

    A Gaussian mechanism of multiplier m costs 1/(2 m^2). With Laplace noise the pure epsilon
    sqrt(2 rho) is shared instead, and a mechanism of multiplier m costs 1/m of it.
    """
    if kind is NoiseKind.LAPLACE:
        return count / (share * sqrt(2 * rho))
    return sqrt(count / (2 * rho * share))


def selection_epsilon(kind: NoiseKind, *, rho: float, share: float, count: int) -> float:
    """Epsilon of each of `count` exponential mechanisms that together get `share` of the effort.

    Beside Gaussian noise: epsilon^2/8 each, by bounded range (Cesar & Rogers 2021, lemma 3.2).
    """
    if kind is NoiseKind.LAPLACE:
        return share * sqrt(2 * rho) / count
    return sqrt(8 * rho * share / count)


def marginal_sensitivity(unit: PrivacyUnit, kind: NoiseKind) -> float:
    """How far one unit moves the counts of one marginal: L2 for Gaussian noise, L1 for Laplace.

    Add/remove: up to k = max_rows cells' worth of ones, worst in one cell: L1 = L2 = k.
    Replace-one: k rows leave one cell for another: L1 = 2 k, L2 = sqrt(2) k.
    """
    if unit.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        return float(unit.max_rows)
    if unit.relation is NeighbouringRelation.REPLACE_ONE:
        # One ulp up: sqrt(2) is rounded, and rounds against ourselves.
        factor = 2.0 if kind is NoiseKind.LAPLACE else float(np.nextafter(np.sqrt(2.0), 2.0))
        return factor * unit.max_rows
    raise UnsupportedRelationError(
        f"unit.relation={unit.relation}: marginals know no such relation"
    )


def noise_scale(kind: NoiseKind, *, multiplier: float, unit: PrivacyUnit) -> float:
    """Noise scale of a marginal in rows; rounded up, against ourselves."""
    return multiplier * marginal_sensitivity(unit, kind) * (1 + 1e-15)


def noise_size(kind: NoiseKind, scale: float) -> float:
    """Expected absolute noise in one cell: sqrt(2/pi) scale (Gaussian) or scale (Laplace)."""
    return scale if kind is NoiseKind.LAPLACE else scale * float(np.sqrt(2 / np.pi))


def noise_variance(kind: NoiseKind, scale: float) -> float:
    """Variance of the noise in one cell: scale^2 (Gaussian) or 2 scale^2 (Laplace)."""
    return scale**2 * (2.0 if kind is NoiseKind.LAPLACE else 1.0)


def useful_bins(most: int, nominal_rows: int) -> int:
    """Bins that a table of that public size can fill: nominal_rows^(1/3), from 2 to `most`.

    The rate at which a histogram's bias and variance balance. Source: Scott (1979), section 3.
    """
    return max(2, min(most, round(cbrt(nominal_rows))))
