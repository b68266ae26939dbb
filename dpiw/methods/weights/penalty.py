"""Sensitivity of the regression and the public rule for its penalty: numbers, no data.

With x a feature row, R >= norm(x) and D >= norm(x - x'), the minimiser of the Lam-strongly convex
objective moves by at most R/Lam when a private row is added or removed and by max(D, R)/Lam when
one is replaced: both rows carry the same label, so the label-free 2R/Lam of Chaudhuri et al. is
not needed. A unit of k rows multiplies both. Source: docs/method.md section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError
from dpiw.methods.weights.features import FeatureBounds
from dpiw.methods.weights.solver import GRADIENT_TOLERANCE
from dpiw.privacy.mechanisms import calibrated_law
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit

_ROUNDING = 1 + 1e-9
"""Upward factor on every bound: a computed row may exceed its norm bound by rounding."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Every public number of one calibrated regression.

    Attributes:
        unit: the unit and relation of the sensitivity.
        nominal_rows: n0; synthetic rows weigh n0/N_G each in the fit.
        bounds: of the feature map.
        multiplier: noise scale / sensitivity, as accounted.
        noise_level: K; the log-weight noise at a reference row has standard deviation K/Lam.
        penalty: Lam.
        capped: whether Lam was set by the cap on tau instead of sqrt(0.05 K n0).
        sensitivity: of the released vector before rounding, solver error included: L2, or L1
            for laplace noise.
        law: of the noise; its scale covers the lattice rounding as well.
    """

    unit: PrivacyUnit
    nominal_rows: int
    bounds: FeatureBounds
    multiplier: float
    noise_level: float
    penalty: float
    capped: bool
    sensitivity: float
    law: NoiseLaw

    def to_json(self) -> dict[str, Any]:
        """Public numbers for the certificate."""
        return {
            "relation": self.unit.relation.value,
            "max_rows": self.unit.max_rows,
            "nominal_rows": self.nominal_rows,
            "dimension": self.bounds.dimension,
            "norm_bound": self.bounds.norm,
            "diameter_bound": self.bounds.diameter,
            "penalty": self.penalty,
            "sensitivity": self.sensitivity,
            "noise_multiplier": self.multiplier,
            "scale": self.law.scale,
            "predicted_log_weight_noise": self.noise_level / self.penalty,
        }


def l2_reach(bounds: FeatureBounds, unit: PrivacyUnit) -> float:
    """Lam * Delta2 of the exact minimiser."""
    if unit.relation is NeighbouringRelation.REPLACE_ONE:
        return unit.max_rows * max(bounds.norm, bounds.diameter)
    return unit.max_rows * bounds.norm


def l1_reach(bounds: FeatureBounds, unit: PrivacyUnit) -> float:
    """Lam * Delta1 of the exact minimiser: (norm(Dg)_1 + sqrt(d') norm(Dg)_2) / 2.

    Delta b = Q Delta g / Lam with 0 <= Q <= I, and {Q v} is the ball with diameter [0, v].
    """
    l1 = bounds.l1_norm
    if unit.relation is NeighbouringRelation.REPLACE_ONE:
        l1 = max(l1, bounds.l1_diameter)
    return (unit.max_rows * l1 + math.sqrt(bounds.dimension) * l2_reach(bounds, unit)) / 2


def noise_level(
    bounds: FeatureBounds, *, noise: NoiseKind, unit: PrivacyUnit, multiplier: float
) -> float:
    """K: Lam times the standard deviation of z.x at a row of the reference norm.

    c R2 r_ref with c = s_w (gaussian), sqrt(d'+1)/epsilon (spherical), and sqrt(2)/epsilon with
    the L1 reach in place of R2 (laplace).
    """
    if noise is NoiseKind.LAPLACE:
        return math.sqrt(2) * multiplier * l1_reach(bounds, unit) * bounds.reference_norm
    factor = 1.0 if noise is NoiseKind.GAUSSIAN else math.sqrt(bounds.dimension + 1)
    return factor * multiplier * l2_reach(bounds, unit) * bounds.reference_norm


def penalty_rule(level: float, *, nominal_rows: int, tau: float) -> float:
    """Lam = max(sqrt(0.05 K n0), K/tau). Source: docs/method.md section 6; 162 settings."""
    return max(math.sqrt(0.05 * level * nominal_rows), level / tau)


def calibration(
    bounds: FeatureBounds,
    *,
    multiplier: float,
    noise: NoiseKind,
    unit: PrivacyUnit,
    nominal_rows: int,
    tau: float,
    penalty: float | None = None,
    level_factor: float = 1.0,
) -> Calibration:
    """Penalty, sensitivity and noise law of a regression.

    Args:
        bounds: of the feature map.
        multiplier: scale over sensitivity, as accounted.
        noise: the law.
        unit: unit and relation.
        nominal_rows: n0.
        tau: cap on the predicted log-weight noise.
        penalty: Lam, if the curator fixed it.
        level_factor: K is multiplied by it; for noise that is added elsewhere than to the
            coefficients (`dpiw.methods.weights.output`).
    """
    level = level_factor * noise_level(bounds, noise=noise, unit=unit, multiplier=multiplier)
    rule = penalty_rule(level, nominal_rows=nominal_rows, tau=tau)
    capped = rule == level / tau
    penalty = rule if penalty is None else penalty
    laplace = noise is NoiseKind.LAPLACE
    reach = l1_reach(bounds, unit) if laplace else l2_reach(bounds, unit)
    # Each of two fits is within tolerance/Lam of its minimiser in L2, times sqrt(d') in L1.
    slack = 2 * GRADIENT_TOLERANCE * bounds.norm
    if laplace:
        slack *= math.sqrt(bounds.dimension)
    sensitivity = (reach + slack) / penalty * _ROUNDING
    law = calibrated_law(
        kind=noise,
        noise_multiplier=multiplier,
        sensitivity=sensitivity,
        dimension=bounds.dimension,
    )
    return Calibration(
        unit=unit,
        nominal_rows=nominal_rows,
        bounds=bounds,
        multiplier=multiplier,
        noise_level=level,
        penalty=penalty,
        capped=capped,
        sensitivity=sensitivity,
        law=law,
    )


def check_moments(law: NoiseLaw, bounds: FeatureBounds) -> None:
    """Refuse noise whose exponential has no variance at some admissible row. Public.

    Needs scale * norm(x) < 1/2 (laplace: scale * max|x_j| < 1/2) for x and for x - mu. Gaussian
    noise always passes.

    Args:
        law: of the coefficient noise.
        bounds: of the features.

    Raises:
        SpecError: names the field, the value and the range.
    """
    if law.kind is NoiseKind.GAUSSIAN:
        return
    laplace = law.kind is NoiseKind.LAPLACE
    reach = 2 * bounds.coordinate if laplace else max(bounds.norm, bounds.diameter)
    product = law.scale * reach
    if product >= 0.5:
        lacking = "variance" if product < 1 else "mean"
        raise SpecError(
            f"weights.settings.noise={law.kind.value}: debiased weights may have no {lacking}:"
            f" scale times row length is {product:.3g} (expected < 0.5); raise epsilon,"
            " nominal_rows or penalty, lower tau, or use gaussian noise"
        )


def resolved_share(eigenvalues: NDArray[np.float64], *, nominal_rows: int, penalty: float) -> float:
    """sum_j l_j h_j / sum_j l_j, h_j = (n0/2) l_j / ((n0/2) l_j + Lam); 0 without variance."""
    total = float(eigenvalues.sum())
    if total <= 0:
        return 0.0
    curvature = nominal_rows / 2 * eigenvalues
    return float(eigenvalues @ (curvature / (curvature + penalty)) / total)
