"""From a released density ratio to the weights of the synthetic rows: post-processing, free."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpiw.diagnostics import Diagnostics, diagnose
from dpiw.errors import WeightError
from dpiw.privacy import NoiseLaw
from dpiw.weights.debiasing import (
    debias_self_normalised,
    debias_unnormalised,
    log_weight_noise,
    normalised,
    weighted_centre,
)

if TYPE_CHECKING:
    from dpiw.tables import SyntheticTable
    from dpiw.weights.base import DensityRatio


class Normalisation(enum.Enum):
    """What the weights are scaled to.

    `SELF`: mean one; estimates are ratios, with a bias of second order. `UNNORMALISED`: as they
    are; debiased estimates are unbiased for those with the non-private weights.
    """

    SELF = "self"
    UNNORMALISED = "unnormalised"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Importance weights of synthetic rows.

    Attributes:
        log_weights: shape (n,), natural log; mean weight one after self-normalisation.
        steps: what was done to the noisy log ratio, in order.
        law: law of the coefficient noise; None when the weights carry none.
        noise: shape (n,), standard deviation of each log weight's privacy noise:
            sigma norm(x - mu) after self-normalisation, sigma norm(x) before.
        diagnostics: effective sample size, k-hat, verdict.
    """

    log_weights: NDArray[np.float64]
    steps: tuple[str, ...]
    law: NoiseLaw | None
    noise: NDArray[np.float64]
    diagnostics: Diagnostics

    @property
    def rows(self) -> int:
        """Number of synthetic rows."""
        return int(self.log_weights.size)


def uniform_weights(rows: int) -> Weights:
    """Weight one for every row: always a legitimate outcome."""
    if rows < 1:
        raise WeightError("weights: expected at least one synthetic row")
    log_weights = np.zeros(rows)
    return Weights(
        log_weights=log_weights,
        steps=("none",),
        law=None,
        noise=np.zeros(rows),
        diagnostics=diagnose(log_weights),
    )


def weigh(
    ratio: DensityRatio,
    synthetic: SyntheticTable,
    *,
    debias: bool,
    normalisation: Normalisation = Normalisation.SELF,
    resolution: float | None = None,
) -> Weights:
    """Weight the rows of `synthetic` by a released ratio.

    Args:
        ratio: the ratio with the law of its noise.
        synthetic: the rows to weight, public.
        debias: divide out the mean of the noise's exponential (`beta_debiased`) or not.
        normalisation: self-normalised or as they are.
        resolution: the plan's public forecast; enters the verdict when given.

    Raises:
        WeightError: no rows, or the debiasing factor does not exist.
    """
    features, log_ratio = ratio.features(synthetic), ratio.log_ratio(synthetic)
    if log_ratio.size == 0:
        raise WeightError("weights: expected at least one synthetic row")
    found, steps, offset = _apply(log_ratio, features, ratio.law, debias, normalisation)
    noise = log_weight_noise(ratio.law, features - offset)
    return Weights(
        log_weights=found,
        steps=steps,
        law=ratio.law if ratio.law.scale > 0 else None,
        noise=noise,
        diagnostics=diagnose(found, noise=noise, resolution=resolution),
    )


def _apply(
    log_ratio: NDArray[np.float64],
    features: NDArray[np.float64],
    law: NoiseLaw,
    debias: bool,
    normalisation: Normalisation,
) -> tuple[NDArray[np.float64], tuple[str, ...], NDArray[np.float64]]:
    origin = np.zeros(features.shape[1])
    if normalisation is Normalisation.UNNORMALISED:
        if debias:
            return debias_unnormalised(log_ratio, features, law), ("debias b(x)",), origin
        return log_ratio, (), origin
    if debias:
        found, centre = debias_self_normalised(log_ratio, features, law)
        return found, ("debias b(x - mu)", "self-normalise"), centre
    return normalised(log_ratio), ("self-normalise",), weighted_centre(log_ratio, features)
