"""Beta calibration of a released log ratio (Kull et al. 2017): the map and its features.

With u the log ratio clipped to [-L, L] and s = sigmoid(u), the calibrated log ratio is
a log s - b log(1-s) + c. As -log(1-s) + log s = u, a = b = 1 and c = 0 change nothing. In the
features g = ((log s + m)/L, (-log(1-s) - m)/L, 1/2) with m = (softplus(L) + softplus(-L))/2 the
map is linear, and both coordinates run over [-1/2, 1/2]: the geometry of two centred columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.debiasing import log_debias
from dpiw.methods.weights.density_ratio import DensityRatio
from dpiw.methods.weights.diagnostics import Signal
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.tables import SyntheticTable
    from dpiw.methods.weights.beta_ratio import BetaRatio

Array = NDArray[np.float64]

DIMENSION = 3
CONSTANT = 0.5


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


@dataclass(frozen=True, kw_only=True)
class DebiasedRatio(DensityRatio):
    """A released ratio with its own debiasing factor in it: what a calibration starts from.

    It is a public function of a row once the coefficients are released, and so may be calibrated
    as the ratio itself may. A calibration that changes nothing then leaves the debiased weights.

    Attributes:
        base: the released ratio, on a feature map.
        centre: mu, shape (d',), the weighted mean of the features over rows that are not
            published.
    """

    base: BetaRatio
    centre: Array

    texts: ClassVar[tuple[str, ...]] = ("debias b(x - mu) before the calibration",)

    @property
    def law(self) -> NoiseLaw:
        """That of the base."""
        return self.base.law

    @property
    def coefficients(self) -> Array:
        """Those of the base."""
        return self.base.coefficients

    def features(self, synthetic: SyntheticTable) -> Array:
        """Those of the base, shape (rows, d')."""
        return self.base.features(synthetic)

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """b_bar.x + log b(x - centre), shape (rows,)."""
        features = self.features(synthetic)
        factor = log_debias(self.law, features - self.centre)
        return np.asarray(self.base.score(features) + factor)

    def chance(self, synthetic: SyntheticTable) -> Array | None:
        """That of the base."""
        return self.base.chance(synthetic)


@dataclass(frozen=True, kw_only=True)
class CalibratedRatio(DensityRatio):
    """A released ratio seen through a beta calibration: log-linear in g, whatever it was before.

    It is fitted to the released ratio as it is, noise included, and so corrects what that noise
    does; its own three coefficients hold none.

    Attributes:
        base: the ratio that is calibrated.
        coefficients: on g, shape (3,).
        limit: public clip bound of the log ratio.
    """

    base: DensityRatio
    coefficients: Array
    limit: float

    @property
    def law(self) -> NoiseLaw:
        """Of noise of scale 0: the numbers were fitted on public rows."""
        return NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.0, dimension=DIMENSION)

    def features(self, synthetic: SyntheticTable) -> Array:
        """The features g of the base's log ratio, shape (rows, 3)."""
        return calibration_features(self.base.log_ratio(synthetic), self.limit)

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """Calibrated log ratio, shape (rows,)."""
        return np.asarray(self.features(synthetic) @ self.coefficients)

    def noise_parts(self, synthetic: SyntheticTable) -> list[tuple[NoiseLaw, Array]]:
        """The base's, passed on by the slope, to first order.

        The calibration has seen the base's noise and removes some of it; that is not subtracted.
        """
        slope = self.slope(synthetic)[:, None]
        return [(law, slope * x) for law, x in self.base.noise_parts(synthetic)]

    def signal(self, synthetic: SyntheticTable) -> Signal | None:
        """That of the base: a calibration adds nothing to it."""
        return self.base.signal(synthetic)

    def slope(self, synthetic: SyntheticTable) -> Array:
        """d(calibrated)/d(base log ratio) per row: a (1-s) + b s inside the limit, 0 outside."""
        u = self.base.log_ratio(synthetic)
        share = np.exp(-softplus(-u))
        a, b, _ = to_map(self.coefficients, self.limit)
        return np.where(np.abs(u) < self.limit, a * (1 - share) + b * share, 0.0)


@dataclass(frozen=True, kw_only=True)
class TemperedRatio(DensityRatio):
    """A ratio to the power alpha: the same coefficients and noise on features alpha x.

    So every formula of section 2 holds with alpha x for x, and b(alpha x) debiases.
    """

    base: DensityRatio
    alpha: float

    argument: ClassVar[tuple[str, str]] = ("alpha x", "alpha (x - mu)")

    @property
    def law(self) -> NoiseLaw | None:
        """That of the base."""
        return self.base.law

    @property
    def coefficients(self) -> Array:
        """Those of the base."""
        return self.base.coefficients

    def features(self, synthetic: SyntheticTable) -> Array:
        """The features alpha x, shape (rows, d')."""
        return np.asarray(self.alpha * self.base.features(synthetic))

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """Alpha times the base's."""
        return np.asarray(self.alpha * self.base.log_ratio(synthetic))

    def noise_parts(self, synthetic: SyntheticTable) -> list[tuple[NoiseLaw, Array]]:
        """The base's, times alpha."""
        return [(law, self.alpha * x) for law, x in self.base.noise_parts(synthetic)]

    def signal(self, synthetic: SyntheticTable) -> Signal | None:
        """That of the base: tempering adds nothing to it."""
        return self.base.signal(synthetic)
