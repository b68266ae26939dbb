"""What a released density ratio p_real/p_synthetic is, and what it is by default."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import Signal
from dpiw.privacy.units import NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.tables import SyntheticTable

Array = NDArray[np.float64]


class DensityRatio(abc.ABC):
    """A released log ratio: log-linear in features, with the law of its coefficients' noise."""

    texts: ClassVar[tuple[str, ...]] = ()
    """What was done to make it, for the certificate."""
    argument: ClassVar[tuple[str, str]] = ("x", "x - mu")
    """Of the debiasing factor b, unnormalised and self-normalised, for the certificate."""

    if TYPE_CHECKING:  # fields of some ratios: a property here would be their default

        @property
        def law(self) -> NoiseLaw | None:
            """Law of the noise in the coefficients, of dimension d'; None: of unknown law."""

        @property
        def coefficients(self) -> Array:
            """Noisy coefficients, shape (d',)."""

    @abc.abstractmethod
    def features(self, synthetic: SyntheticTable) -> Array:
        """Feature matrix, shape (rows, d')."""

    @abc.abstractmethod
    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """Noisy log ratio up to a constant, shape (rows,), natural log, not debiased."""

    def chance(self, synthetic: SyntheticTable) -> Array | None:
        """Variances of the log ratio that chance alone gives, shape (R,); None: not known.

        As if real and synthetic law agreed. Free: from released values, the published rows and
        nominal_rows.
        """
        return None

    def noise_parts(self, synthetic: SyntheticTable) -> list[tuple[NoiseLaw, Array]]:
        """Independent noises z and the features f with which z.f enters the log weights."""
        return [] if self.law is None else [(self.law, self.features(synthetic))]

    def signal(self, synthetic: SyntheticTable) -> Signal | None:
        """Whether it is more than chance; None where that cannot be asked."""
        null = self.chance(synthetic)
        return None if null is None else Signal.of(self.log_ratio(synthetic), null)


class RatioWithoutLaw(DensityRatio):
    """A ratio whose noise went through every step of a training, and has no known law."""

    law: ClassVar[None] = None

    @property
    def coefficients(self) -> Array:
        """None, shape (0,)."""
        return np.zeros(0)

    def features(self, synthetic: SyntheticTable) -> Array:
        """None, shape (rows, 0)."""
        return np.zeros((synthetic.rows, 0))
