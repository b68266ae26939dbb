"""The paper's regression: features with public bounds, penalty, sensitivity, and a solver.

The distance to the minimiser is part of the sensitivity: the solver certifies it, as usual stopping
rules err by more than the sensitivity. A replaced row keeps its label, so it moves the minimiser by
at most max(D, R)/Lam (docs/method.md section 3).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.errors import WeightError
from dpiw.methods.weights.geometry import blocks
from dpiw.privacy.mechanisms import calibrated_law
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit

Array = NDArray[np.float64]

GRADIENT_TOLERANCE = 1e-6
"""The certificate: norm(grad J) <= GRADIENT_TOLERANCE * R, R the public row norm bound."""

_CHUNK_ROWS = 8192
_MAX_STEPS = 500
_MAX_HALVINGS = 60

CONSTANT = 0.5
"""Value of the appended constant; 1/2 matches the centred box (docs/method.md section 3)."""


@dataclass(frozen=True, kw_only=True)
class FeatureBounds:
    """Public bounds on feature rows x, x' of a map.

    Attributes:
        dimension: d', length of a row, constant included.
        norm, diameter: R, bound on norm(x)_2, and bound on norm(x - x')_2.
        l1_norm, l1_diameter: the same in L1.
        coordinate: bound on |x_j|.
        reference_norm: r_ref, root mean square norm of a row under a uniform public row.
    """

    dimension: int
    norm: float
    diameter: float
    l1_norm: float
    l1_diameter: float
    coordinate: float
    reference_norm: float


@dataclass(frozen=True)
class LinearMap:
    """The centred row and the constant 1/2; corrects first moments only (method.md section 8)."""

    schema: PublicSchema

    @cached_property
    def bounds(self) -> FeatureBounds:
        """Attained at the corners of the schema's box; L1 by Cauchy and Schwarz where tighter."""
        parts = blocks(self.schema)
        dimension = parts[-1].stop + 1
        root = math.sqrt(dimension)
        norm = math.sqrt(math.fsum(part.squared_norm for part in parts) + CONSTANT**2)
        squared_diameter = math.fsum(part.squared_diameter for part in parts)
        diameter = min(2 * norm, math.sqrt(squared_diameter))
        l1_norm = min(math.fsum(part.l1_norm for part in parts) + CONSTANT, root * norm)
        l1_diameter = math.fsum(part.l1_diameter for part in parts)
        variance = math.fsum(part.reference_squared_norm for part in parts)
        return FeatureBounds(
            dimension=dimension,
            norm=norm,
            diameter=diameter,
            l1_norm=l1_norm,
            l1_diameter=min(l1_diameter, 2 * l1_norm, root * diameter),
            coordinate=max(CONSTANT, *(part.coordinate for part in parts)),
            reference_norm=math.sqrt(variance + CONSTANT**2),
        )

    def reference_eigenvalues(self) -> NDArray[np.float64]:
        """1/12 per numeric column, 1/(2L) per level direction, 0 for the constant."""
        return np.array([v for part in blocks(self.schema) for v in part.variances] + [0.0])

    def matrix(self, scaled: ScaledTable) -> NDArray[np.float64]:
        """Centred coordinates, then the constant."""
        rows, start = np.full((scaled.rows, self.schema.width + 1), CONSTANT), 0
        for block in scaled.batches(_CHUNK_ROWS):
            rows[start : start + block.rows, :-1] = self.schema.centred(block)
            start += block.rows
        return rows

    def chunks(self, scaled: ScaledTable) -> Iterator[Array]:
        """Make the rows of `matrix` as they are read: held, a million may take a GiB."""
        return map(self.matrix, scaled.batches(_CHUNK_ROWS))


Rows = Array | Callable[[], Iterator[Array]]
"""Feature rows, held or made in chunks whenever they are read."""


def _chunks(rows: Rows) -> Iterator[Array]:
    if not isinstance(rows, np.ndarray):
        return rows()
    return (rows[start : start + _CHUNK_ROWS] for start in range(0, len(rows), _CHUNK_ROWS))


_ROUNDING = 1 + 1e-9
"""Upward factor on every bound: a computed row may exceed its norm bound by rounding."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Every public number of one calibrated regression: n0, K, Lam and the rest.

    Attributes:
        multiplier: noise scale / sensitivity, as accounted.
        noise_level: K; the log-weight noise at a reference row has standard deviation K/Lam.
        capped: whether the cap on tau set Lam, instead of sqrt(0.05 K n0).
        sensitivity: before rounding, solver error included: L2, or L1 for laplace noise.
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

    c R2 r_ref: c = s_w (gaussian), sqrt(d'+1)/epsilon (spherical), sqrt(2)/epsilon with the L1
    reach (laplace).
    """
    if noise is NoiseKind.LAPLACE:
        return math.sqrt(2) * multiplier * l1_reach(bounds, unit) * bounds.reference_norm
    factor = 1.0 if noise is NoiseKind.GAUSSIAN else math.sqrt(bounds.dimension + 1)
    return factor * multiplier * l2_reach(bounds, unit) * bounds.reference_norm


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
    """Penalty, sensitivity and noise law; `level_factor` multiplies K for noise on outputs.

    Lam = max(sqrt(0.05 K n0), K/tau) by default. Source: docs/method.md section 6; 162 settings.
    """
    level = level_factor * noise_level(bounds, noise=noise, unit=unit, multiplier=multiplier)
    rule = max(math.sqrt(0.05 * level * nominal_rows), level / tau)
    penalty = rule if penalty is None else penalty
    laplace = noise is NoiseKind.LAPLACE
    reach = l1_reach(bounds, unit) if laplace else l2_reach(bounds, unit)
    # Each of two fits is within tolerance/Lam of its minimiser in L2, times sqrt(d') in L1.
    slack = 2 * GRADIENT_TOLERANCE * bounds.norm
    if laplace:
        slack *= math.sqrt(bounds.dimension)
    sensitivity = (reach + slack) / penalty * _ROUNDING
    law = calibrated_law(
        kind=noise, noise_multiplier=multiplier, sensitivity=sensitivity, dimension=bounds.dimension
    )
    return Calibration(
        unit=unit,
        nominal_rows=nominal_rows,
        bounds=bounds,
        multiplier=multiplier,
        noise_level=level,
        penalty=penalty,
        capped=rule == level / tau,
        sensitivity=sensitivity,
        law=law,
    )


def resolved_share(eigenvalues: NDArray[np.float64], *, nominal_rows: int, penalty: float) -> float:
    """sum_j l_j h_j / sum_j l_j, h_j = (n0/2) l_j / ((n0/2) l_j + Lam); 0 without variance."""
    total = float(eigenvalues.sum())
    if total <= 0:
        return 0.0
    curvature = nominal_rows / 2 * eigenvalues
    return float(eigenvalues @ (curvature / (curvature + penalty)) / total)


def sigmoid(t: Array) -> Array:
    """1/(1+exp(-t)) without overflow for either sign."""
    tail = np.exp(-np.abs(t))
    return np.where(t >= 0, 1.0, tail) / (1.0 + tail)


@dataclass(frozen=True, kw_only=True)
class Regression:
    """One regression problem. Holds confidential rows: lives only inside `measure`.

    Attributes:
        private, synthetic: feature rows, of shapes (N_D, d') and (N_G, d'); the first may be empty.
        synthetic_weight: s0 > 0, weight of each synthetic row.
        penalty: Lam > 0.
        centre: public point the penalty pulls to, shape (d',); None: the origin. No sensitivity.
    """

    private: Rows = field(repr=False)
    synthetic: Rows = field(repr=False)
    synthetic_weight: float
    penalty: float
    centre: Array | None = None

    def gradient(self, b: Array) -> Array:
        """Gradient of J at `b`, shape (d',)."""
        total = self.penalty * (b if self.centre is None else b - self.centre)
        for chunk in _chunks(self.private):
            total = total - chunk.T @ sigmoid(-(chunk @ b))
        for chunk in _chunks(self.synthetic):
            total = total + chunk.T @ (self.synthetic_weight * sigmoid(chunk @ b))
        return np.asarray(total)

    def hessian(self, b: Array) -> Array:
        """Hessian of J at `b`, shape (d', d'), computed in chunks of rows."""
        total = self.penalty * np.eye(b.size)
        for rows, weight in ((self.private, 1.0), (self.synthetic, self.synthetic_weight)):
            for chunk in _chunks(rows):
                share = sigmoid(chunk @ b)
                root = chunk * np.sqrt(weight * share * (1.0 - share))[:, None]
                total += root.T @ root
        return total


def solve(problem: Regression, *, tolerance: float) -> Array:
    """Return b, shape (d',), with norm(grad J(b)) <= `tolerance`, or WeightError, by Newton steps.

    Privacy:
        Confidential. Results of neighbouring tables differ by at most Delta2 + 2 tolerance/Lam
        (docs/method.md section 3). Never report the number of steps or the final gradient: they
        depend on the data. The error's message is the same for every table.
    """
    from scipy.linalg import cho_factor, cho_solve  # heavy: only a curator's stage needs it

    b = np.zeros(next(_chunks(problem.synthetic)).shape[1])
    gradient = problem.gradient(b)
    norm = math.sqrt(gradient @ gradient)
    factor = None
    for _ in range(_MAX_STEPS):
        if norm <= tolerance:
            break
        fresh = factor is None
        if factor is None:
            factor = cho_factor(problem.hessian(b), lower=True, check_finite=False)
        direction = -cho_solve(factor, gradient, check_finite=False)
        length = 1.0
        # A kept Hessian gets one full step and no damping: if that fails, it is renewed.
        for _ in range(_MAX_HALVINGS if fresh else 1):
            moved = b + length * direction
            gradient_moved = problem.gradient(moved)
            norm_moved = math.sqrt(gradient_moved @ gradient_moved)
            if norm_moved <= (1.0 - 0.1 * length) * norm:
                break
            length /= 2
        if norm_moved > 0.1 * norm:
            factor = None
        if norm_moved < norm:
            b, gradient, norm = moved, gradient_moved, norm_moved
        elif fresh:
            break
    if norm > tolerance:
        fault = "the regression did not reach the precision that its privacy proof needs; raise"
        raise WeightError(f"{fault} `penalty`, or use weights.method: measured", field="weights")
    return b
