"""Randomised response: keep a level or exchange it for another, with exact probabilities.

Source: Warner (1965); k levels: Kairouz, Bonawitz & Ramage (2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, UncalibratedError
from dpiw.privacy.gaussian import gaussian_delta
from dpiw.privacy.mechanisms import draw_below
from dpiw.privacy.randomness import NoiseSource

DENOMINATOR = 2**60
"""Probabilities of keeping a level are whole multiples of 1 / DENOMINATOR."""


@dataclass(frozen=True, kw_only=True)
class RandomisedResponse:
    """Keep a level with probability `kept / DENOMINATOR`, else take any other, uniformly.

    Exact, no floats; `kept / DENOMINATOR` is in (1/levels, 1).
    """

    levels: int
    kept: int

    def __post_init__(self) -> None:
        enough = self.levels >= 2 and self.kept * self.levels > DENOMINATOR
        if not (enough and self.kept < DENOMINATOR):
            raise UncalibratedError(
                f"found {self.levels} levels, kept={self.kept}",
                field="randomised response",
                allowed="2 levels or more, and kept between 2^60 / levels and 2^60",
            )

    @classmethod
    def of_epsilon(cls, epsilon: float, levels: int) -> RandomisedResponse:
        """Return the response that costs at most `epsilon`, and less than 1e-7 below it.

        Raises UncalibratedError if epsilon is outside [1e-9, 20], or there are under two levels.
        """
        if not (1e-9 <= epsilon <= 20 and levels >= 2):
            raise UncalibratedError(
                f"found epsilon={epsilon:g}, {levels} levels",
                field="randomised response",
                allowed="epsilon in [1e-9, 20] and two levels or more",
            )
        share = 1 / (1 + (levels - 1) * math.exp(-epsilon))
        kept = math.floor(share * DENOMINATOR)
        while True:
            response = cls(levels=levels, kept=kept)
            if response.epsilon <= epsilon:
                return response
            kept -= 2**8  # a double is coarser than the denominator

    @property
    def keep(self) -> float:
        """Probability of keeping a level."""
        return self.kept / DENOMINATOR

    @property
    def exchange(self) -> float:
        """Probability of each other level."""
        return (DENOMINATOR - self.kept) / (DENOMINATOR * (self.levels - 1))

    @property
    def epsilon(self) -> float:
        """The privacy loss, natural log units: log(keep / exchange), rounded up."""
        ratio = (self.kept * (self.levels - 1)) / (DENOMINATOR - self.kept)
        return math.log(ratio) * (1 + 1e-15) + 1e-15

    def inverse(self) -> NDArray[np.float64]:
        """Inverse of P(told = i | true = j): the unbiased indicator of j given answer i."""
        gap = self.keep - self.exchange
        return (np.eye(self.levels) - self.exchange) / gap

    def joint_delta(self, noise_multiplier: float, epsilon: float) -> float:
        """Return the exact delta of one response and one Gaussian mechanism about one record.

        `noise_multiplier`: the Gaussian's standard deviation over L2 sensitivity.

        Source: docs/method.md section 17.
        """
        others = (self.levels - 2) * self.exchange
        losses = ((self.keep, self.epsilon), (self.exchange, -self.epsilon), (others, 0.0))
        return sum(
            probability * gaussian_delta(noise_multiplier, epsilon - loss)
            for probability, loss in losses
        )


def respond(
    indices: Sequence[int], *, response: RandomisedResponse, noise: NoiseSource
) -> list[int]:
    """Answer with each record's level, by randomised response; PrivacyError for no level.

    Privacy: unit: one record, replaced by any other. Event: (`response.epsilon`, 0) a record.
    """
    others = response.levels - 1
    if not all(0 <= index <= others for index in indices):
        raise PrivacyError(
            field="levels", allowed="whole numbers from 0 to the number of levels - 1"
        )
    answers = []
    for index in indices:
        exchanged = draw_below(DENOMINATOR * others, noise=noise) - response.kept * others
        # DENOMINATOR - kept draws for each other level
        step = 0 if exchanged < 0 else 1 + exchanged // (DENOMINATOR - response.kept)
        answers.append((index + step) % response.levels)
    return answers
