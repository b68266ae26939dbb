"""Where student and generator of PATE stand between two rounds: nothing of a teacher is in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpiw.errors import PrivacyError
from dpiw.methods.generators.adversarial import GeneratorState
from dpiw.methods.generators.game import packed, unpacked
from dpiw.methods.generators.teachers import Student
from dpiw.methods.neural.checkpoints import read_checkpoint
from dpiw.privacy.measurement import Measurement

_KIND = "pate_state"


@dataclass(frozen=True, kw_only=True, eq=False)
class PATEState:
    """The state after some rounds: a function of noisy votes and public values.

    Attributes:
        turn: rounds taken.
        student: with the rows and noisy labels it remembers.
        player: the generator.
        marginals: the histogram that was drawn before the first round, if one was.
        settings: digest of the public facts of the run; a state of other ones is refused.
        publishable: whether all noise in it came from a publishable source.
    """

    turn: int
    student: Student
    player: GeneratorState
    marginals: Measurement | None
    settings: str
    publishable: bool

    def to_bytes(self) -> bytes:
        """The same bytes for the same state; a checkpoint belongs in the confidential workspace."""
        student, player = self.student, self.player
        width = student.network.architecture.inputs
        return Measurement(
            kind=_KIND,
            arrays={
                "student": student.parameters,
                "student_moments": student.moments,
                "rows": np.concatenate([np.zeros((0, width)), *student.rows]),
                "labels": np.concatenate([np.zeros(0), *student.labels]),
                "parameters": player.parameters,
                "moments": player.moments,
                "average": player.average,
            }
            | packed(self.marginals),
            facts={
                "turn": self.turn,
                "remembered": len(student.rows),
                "student_step": student.step,
                "step": player.step,
                "settings": self.settings,
            },
            publishable=self.publishable,
        ).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, *, start: PATEState, marginals: bool) -> PATEState:
        """Read what `to_bytes` wrote.

        Args:
            data: a checkpoint.
            start: the state before the first round, of the same settings.
            marginals: whether these draw a histogram.

        Raises:
            PrivacyError: the bytes are no state, or one of other settings.
        """
        stored = read_checkpoint(data, kind=_KIND)
        arrays, facts = stored.arrays, stored.facts
        if facts["settings"] != start.settings or ("marginals" in arrays) != marginals:
            raise PrivacyError("training: the state is of other settings")
        rounds = facts["remembered"]
        network = start.student.network.architecture.network(arrays["student"])
        student = replace(
            start.student,
            network=network,
            moments=arrays["student_moments"],
            rows=tuple(np.split(arrays["rows"], rounds)) if rounds else (),
            labels=tuple(np.split(arrays["labels"], rounds)) if rounds else (),
            step=facts["student_step"],
        )
        player = GeneratorState(
            step=facts["step"],
            parameters=arrays["parameters"],
            moments=arrays["moments"],
            average=arrays["average"],
        )
        return cls(
            turn=facts["turn"],
            student=student,
            player=player,
            marginals=unpacked(arrays),
            settings=start.settings,
            publishable=start.publishable and stored.publishable,
        )
