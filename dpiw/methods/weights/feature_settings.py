"""Which features of a row a regression weighs by: the settings, and the map they name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.base import CriticKind, Judge
from dpiw.methods.weights.critic_features import CriticMap, JudgeScale
from dpiw.methods.weights.features import FeatureMap, feature_map
from dpiw.methods.weights.settings import check_features
from dpiw.methods.weights.weigh import RatioEstimator


@dataclass(frozen=True, kw_only=True)
class FeatureSettings(RatioEstimator):
    """Settings of a feature map; frozen and public.

    Attributes:
        features: `linear`, `interactions` or `fourier` (see `dpiw.methods.weights.features`), or
            `critic` (see `dpiw.methods.weights.critic_features`).
        frequencies, frequency_scale, omega_seed: of the `fourier` features.
        critic: of the fitted generator, for the map of that name; public, set by `informed`.
    """

    features: str = "linear"
    frequencies: int = 300
    frequency_scale: float | None = None
    omega_seed: int | None = None
    critic: JudgeScale | None = field(default=None, repr=False, compare=False)

    set_later: ClassVar[frozenset[str]] = frozenset({"calibrated", "critic"})

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        scale = check_features(
            self.features, self.frequencies, self.frequency_scale, self.omega_seed
        )
        object.__setattr__(self, "frequency_scale", scale)

    @property
    def needs_critic(self) -> bool:
        """With the feature map of that name."""
        return self.features == "critic"

    def check_critic(self, critic: CriticKind) -> None:
        """Refuse a generator without a discriminator where the features ask one.

        Raises:
            SpecError: it has none.
        """
        if self.needs_critic and critic is CriticKind.NONE:
            raise SpecError(
                "weights.settings.features=critic: expected generator.method dpgan, dpcgan or"
                " pategan"
            )

    def informed(self, judge: Judge | None) -> Self:
        """With the judge on a public scale, where the features ask it."""
        if not self.needs_critic or judge is None:
            return self
        return replace(self, critic=JudgeScale.of(judge))

    def feature_map(self, schema: PublicSchema) -> FeatureMap:
        """The public feature map on this schema."""
        if self.needs_critic:
            return CriticMap(schema, self.critic)
        return feature_map(
            self.features,
            schema,
            frequencies=self.frequencies,
            frequency_scale=self.frequency_scale,
            omega_seed=self.omega_seed,
        )
