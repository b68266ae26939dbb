"""`discriminator`: the logit of the generator's own discriminator as the log weight; free.

Post-processing (docs/method.md section 12); approximate, with noise of unknown law.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.base import CriticKind, Judge, StatedNoise
from dpiw.methods.weights.paper.ratio import LIMIT, ClassifierRatio, RatioEstimator
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class DiscriminatorWeights(RatioEstimator):
    """Settings of the free weights; public. `informed` sets the fitted generator, `judge`."""

    judge: Judge | None = field(default=None, repr=False, compare=False)

    method: ClassVar[str] = "discriminator"
    private: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = (
        "Weights are those of the generator's own discriminator: an approximate density ratio,"
        " noised in every step of its training. That noise has no known law: weights are not"
        " debiased, no noise is stated for them, and no interval includes it.",
    )
    draws: ClassVar[bool] = False
    needs_critic: ClassVar[bool] = True
    set_later: ClassVar[frozenset[str]] = frozenset({"judge"})
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"limit": (LIMIT,)}

    def check_critic(self, critic: CriticKind) -> None:
        """Raise SpecError for a critic that is no log ratio."""
        if critic is not CriticKind.LOG_RATIO:
            raise SpecError(
                field="weights.method=discriminator",
                allowed="generator.method dpgan or dpcgan with loss: logistic (other critics are no"
                " ratios), or weights.method: measured",
            )

    def informed(self, judge: Judge | None) -> Self:
        """These settings with the fitted generator; SpecError if its critic is no log ratio."""
        if judge is None or not judge.ratio:
            raise SpecError(
                "this generator's critic is no log ratio",
                field="weights.method=discriminator",
                allowed="loss: logistic, or weights.method: measured",
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

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Return nothing: no noise is drawn."""
        return ()

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """What the curator should know."""
        return (
            "discriminator: its weights cost nothing and nothing forecasts them; their noise has no"
            " known law: they are not debiased, no interval includes it, and the verdict is at"
            " best `use with care`",
        )

    def parameters(self) -> dict[str, Any]:
        """Public settings, JSON values."""
        return {"limit": LIMIT, "debias": self.debias}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """An empty measurement: the ratio is in the generator's.

        Privacy:
            The table is not read. Unit: any. Sensitivity 0. No event.
        """
        return Measurement(kind=self.method, arrays={}, facts={}, publishable=True)

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> ClassifierRatio:
        """The judge's log ratio; UncalibratedError before `informed`."""
        judge = self.judge
        if judge is None:
            raise UncalibratedError("call `informed` first, with a judge", field="discriminator")
        return ClassifierRatio(logits=lambda synthetic: judge.critic(synthetic.scaled))
