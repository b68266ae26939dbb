"""A differentially private GAN of the other columns given the target, `dpcgan`.

The target's level is given to both networks. The levels' proportions are public and stand in the
spec, or are those of a noisy histogram, drawn first and charged beside the steps.

Source: Torkzadehmahani et al. (2019), with the corrections of docs/method.md section 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.errors import SpecError
from dpiw.methods.generators.adversarial import Array
from dpiw.methods.generators.design import Design
from dpiw.methods.generators.dpgan import DPGAN
from dpiw.methods.generators.estimation import distribution
from dpiw.methods.generators.gan_model import PUBLIC_PROPORTIONS
from dpiw.methods.generators.gan_noise import DPGANNoise
from dpiw.methods.generators.gan_settings import check_real
from dpiw.methods.generators.marginals_stage import label_law
from dpiw.privacy import mechanisms
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, NoiseLaw


@dataclass(frozen=True, kw_only=True)
class DPCGAN(DPGAN):
    """A differentially private GAN that is given the target and makes the other columns.

    Attributes:
        proportions: public shares of the target's levels, in the schema's order, missing last if
            nullable; empty (default): those of a noisy histogram.
        proportions_share: share of the effort that a histogram of the target gets where
            `marginals_share` is 0; otherwise the target's is one of those of every column.
    """

    proportions: tuple[float, ...] = ()
    proportions_share: float = 0.05

    conditional: ClassVar[bool] = True
    method: ClassVar[str] = "dpcgan"

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        super().__post_init__()
        value = check_real("proportions_share", self.proportions_share, above=0, at_most=0.9)
        object.__setattr__(self, "proportions_share", value)
        if not isinstance(self.proportions, list | tuple):
            raise SpecError("generator.settings.proportions: expected a list of numbers")
        shares = tuple(
            check_real("proportions", share, above=-1e-300, at_most=1e300)
            for share in self.proportions
        )
        if shares and not sum(shares) > 0:
            raise SpecError("generator.settings.proportions: expected one number > 0 at least")
        object.__setattr__(self, "proportions", shares)

    def design(self, schema: PublicSchema) -> Design:
        """As `GANSettings.design`; SpecError for another number of public proportions."""
        design = super().design(schema)
        if self.proportions and len(self.proportions) != design.given.width:
            raise SpecError(
                f"generator.settings.proportions: expected {design.given.width} numbers, one per"
                " level of the target (and one for missing, if nullable)"
            )
        return design

    def parameters(self) -> Mapping[str, Any]:
        """As `DPGAN.parameters`."""
        settings = {
            "proportions": list(self.proportions),
            "proportions_share": self.proportions_share,
        }
        return {**super().parameters(), **settings}

    @property
    def _histogram_share(self) -> float:
        known = self.proportions or self.marginals_share != 0
        return 0.0 if known else self.proportions_share

    def _facts(self, design: Design, ready: DPGANNoise) -> dict[str, Any]:
        public = {PUBLIC_PROPORTIONS: True} if self.proportions else {}
        return super()._facts(design, ready) | public

    def _known_proportions(self, design: Design, marginals: Measurement) -> Array:
        if self.proportions:
            return np.array(self.proportions) / sum(self.proportions)
        return label_law(design, marginals)

    def _proportions(
        self, design: Design, scaled: ScaledTable, ready: DPGANNoise, noise: NoiseSource
    ) -> Array:
        if self.proportions:
            return np.array(self.proportions) / sum(self.proportions)
        counts = design.given.encode(scaled).sum(axis=0).astype(np.int64)
        law = NoiseLaw(
            kind=NoiseKind.GAUSSIAN, scale=self._histogram_scale(ready), dimension=counts.size
        )
        return distribution(mechanisms.noisy_counts(counts, law=law, noise=noise))
