"""`discriminator`: the logit of the generator's own discriminator as the log weight; free.

A discriminator that learnt by the logistic loss under DP-SGD, against the final generator and with
known proportions, estimates log p_real/p_synthetic up to a constant; it is an output of the
generator's stage, so its weights are post-processing and take no budget (docs/method.md section
12). It lags the generator, is noised and regularised: an approximate ratio whose noise has no known
law. A Wasserstein critic and a PATE student are refused: they are no ratios, and serve as the
feature map `critic` of `beta_*` (`dpiw.methods.weights.critic_features`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.weights.critic_features import Judge
from dpiw.methods.weights.settings import real
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import PrivacyUnit

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class DiscriminatorRatio:
    """The clamped logit of a fitted generator's discriminator.

    Attributes:
        judge: the fitted generator.
        limit: public bound of the log ratio.
    """

    judge: Judge
    limit: float

    law = None
    """No law: the noise went through every step of the training."""

    @property
    def coefficients(self) -> Array:
        """None, shape (0,)."""
        return np.zeros(0)

    def features(self, synthetic: SyntheticTable) -> Array:
        """None, shape (rows, 0)."""
        return np.zeros((synthetic.rows, 0))

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """The clamped logit, shape (rows,): log(p_real/p_synthetic) + log(N_D/n0), noisy."""
        found = np.nan_to_num(self.judge.critic(synthetic.scaled))
        return np.asarray(np.clip(found, -self.limit, self.limit))

    def sampling_covariance(self, synthetic: SyntheticTable) -> None:
        """None: nothing is known of it."""


@dataclass(frozen=True, kw_only=True)
class DiscriminatorWeights:
    """Settings of the free weights; public.

    Attributes:
        limit: public bound of the log weight, in (0, 20].
        judge: the fitted generator, set by `informed`; public.
    """

    limit: float = 5.0
    judge: Judge | None = field(default=None, repr=False, compare=False)

    method: ClassVar[str] = "discriminator"
    private: ClassVar[bool] = True
    debias: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises SpecError: the limit is out of range."""
        object.__setattr__(self, "limit", real("limit", self.limit, above=0, at_most=20))

    def informed(self, judge: Judge) -> Self:
        """These settings with the fitted generator.

        Raises:
            SpecError: its discriminator is no log ratio.
        """
        if not judge.ratio:
            raise SpecError(
                "weights.method=discriminator: this generator's critic is no log ratio; expected"
                " loss: logistic, or weights.settings.features: critic"
            )
        return replace(self, judge=judge)

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Nothing to calibrate."""
        return self

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """None: nothing is read."""
        return ()

    def predicted_log_weight_noise(self, *, schema: PublicSchema) -> float:
        """Zero: no noise of its own, and that of the discriminator has no forecast."""
        return 0.0

    def resolution(self, *, schema: PublicSchema, nominal_rows: int) -> float:
        """Zero: nothing can be said from public facts, so a plan makes no forecast of it."""
        return 0.0

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """What the curator should know."""
        return (
            "discriminator: its weights cost nothing and nothing forecasts them; their noise has no"
            " known law: they are not debiased, no interval includes it, and the verdict is at"
            " best `use with care`",
        )

    def parameters(self) -> dict[str, Any]:
        """Public settings, JSON values."""
        return {"limit": self.limit, "debias": self.debias}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """An empty measurement: the ratio is in the generator's.

        Privacy:
            The table is not read. Unit: any. Sensitivity 0. No event.
        """
        return Measurement(kind=self.method, arrays={}, facts={}, publishable=True)

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> DiscriminatorRatio:
        """The judge's log ratio; the measurement is not looked at.

        Raises:
            UncalibratedError: before `informed`.
        """
        if self.judge is None:
            raise UncalibratedError("discriminator: expected a fitted generator to ask")
        return DiscriminatorRatio(judge=self.judge, limit=self.limit)
