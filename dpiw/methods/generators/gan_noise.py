"""What `dpgan` and `dpcgan` decide before they see data: the noise of training and histograms."""

from __future__ import annotations

from dataclasses import dataclass

from dpiw.data.schema import PublicSchema
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.neural.dp_sgd import PrivateTraining
from dpiw.privacy.units import PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class DPGANNoise:
    """What `calibrate` decides.

    Attributes:
        schema: for which schema.
        training: every constant of the discriminator's DP-SGD.
        histogram: noise multiplier of the labels' histogram; None where none is drawn.
        marginals: the calibrated histogram of every column; None where none is drawn.
    """

    schema: PublicSchema
    training: PrivateTraining
    histogram: float | None
    marginals: Histogram | None

    @property
    def unit(self) -> PrivacyUnit:
        """For which unit."""
        return self.training.unit
