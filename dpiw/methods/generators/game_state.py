"""Where a game of generator and discriminator stands: all that a resumed one needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.adversarial import Array, GeneratorState
from dpiw.methods.neural.training_state import TrainingState, read_checkpoint
from dpiw.privacy.measurement import Measurement

_KIND = "game_state"


@dataclass(frozen=True, kw_only=True, eq=False)
class GameState:
    """Both players between two steps of the discriminator.

    Attributes:
        discriminator: a function of noisy sums and public values.
        generator: learns from the discriminator alone.
        proportions: shares of the labels' levels, public or noised, shape (levels,).
        marginals: the histogram that was drawn before the training, if one was.
        settings: digest of the public facts of the run; a state of other ones is refused.
    """

    discriminator: TrainingState
    generator: GeneratorState
    settings: str
    proportions: Array = field(default_factory=lambda: np.zeros(0))
    marginals: Measurement | None = None

    def to_bytes(self) -> bytes:
        """The same bytes for the same state; a checkpoint belongs in the confidential workspace."""
        player = self.generator
        return Measurement(
            kind=_KIND,
            arrays=packed(self.marginals)
            | {
                "discriminator": np.frombuffer(self.discriminator.to_bytes(), dtype=np.uint8),
                "parameters": player.parameters,
                "moments": player.moments,
                "average": player.average,
                "proportions": self.proportions,
            },
            facts={"step": player.step, "settings": self.settings},
            publishable=self.discriminator.publishable,
        ).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> GameState:
        """Read what `to_bytes` wrote.

        Raises:
            PrivacyError: the bytes are no state.
        """
        stored = read_checkpoint(data, kind=_KIND)
        arrays: dict[str, NDArray[np.float64]] = dict(stored.arrays)
        return cls(
            discriminator=TrainingState.from_bytes(stored.arrays["discriminator"].tobytes()),
            generator=GeneratorState(
                step=stored.facts["step"],
                parameters=arrays["parameters"],
                moments=arrays["moments"],
                average=arrays["average"],
            ),
            settings=str(stored.facts.get("settings")),  # of earlier versions: of no settings
            proportions=arrays["proportions"],
            marginals=unpacked(stored.arrays),
        )


def packed(marginals: Measurement | None) -> dict[str, NDArray[Any]]:
    """A histogram as an array of a checkpoint; nothing where there is none."""
    if marginals is None:
        return {}
    return {"marginals": np.frombuffer(marginals.to_bytes(), dtype=np.uint8)}


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> Measurement | None:
    """The histogram of a checkpoint, if it has one."""
    data = arrays.get("marginals")
    return None if data is None else Measurement.from_bytes(data.tobytes())
