"""Terms and cost of resuming a training that was killed: all public (docs/privacy.md section 3).

T noised steps leave a checkpoint every K, so R resumes repeat at most R K. T + R K steps are
accounted from the beginning, needed or not, so no crash changes the cost (adaptive composition).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from dpiw.errors import SpecError

CHECKPOINTS = 20
"""Approximate number of checkpoints, and of progress reports, of a training."""


def interval(steps: int) -> int:
    """Return K, the steps between checkpoints."""
    return math.ceil(steps / CHECKPOINTS)


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """Public terms of a training: T `steps`, `every` K a checkpoint, at most R `resumes`.

    SpecError unless each is a whole number >= 1.
    """

    steps: int
    every: int
    resumes: int

    def __post_init__(self) -> None:
        """See the class."""
        for name, value in self.to_json().items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(field=f"resumption.{name}", allowed="a whole number >= 1")

    @classmethod
    def of(cls, *, steps: int, resumes: int) -> Self | None:
        """Return the terms of a training; None if it is never resumed."""
        return cls(steps=steps, every=interval(steps), resumes=resumes) if resumes else None

    @property
    def reserve(self) -> int:
        """R K: most steps that resumed processes may repeat."""
        return self.resumes * self.every

    def is_paid_by(self, events: Sequence[Mapping[str, Any]]) -> bool:
        """Whether one of a stage's events, as the ledger holds them, counts T + R K draws."""
        counts = [event.get("count") for event in events]
        if any(type(count) is not int for count in counts):
            return False
        draws = self.steps + self.reserve
        return counts.count(draws) == 1 and all(count in (1, draws) for count in counts)

    def to_json(self) -> dict[str, int]:
        """JSON values."""
        return {"steps": self.steps, "every": self.every, "resumes": self.resumes}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; SpecError for anything else."""
        if set(facts) != {"steps", "every", "resumes"}:
            raise SpecError(field="resumption", allowed="steps, every and resumes")
        return cls(**facts)


Progress = Callable[[int, int], None]
"""Receives (steps taken, steps) now and then; both are public."""


def silent(step: int, steps: int) -> None:
    """Ignore progress."""


class TrainingWatch(Protocol):
    """Receiver of a training's checkpoints; sees nothing that was not noised."""

    def resumed(self) -> bytes | None:
        """Return the checkpoint to continue from; None: begin."""

    def at(self, step: int, steps: int, state: Callable[[], bytes]) -> None:
        """Receive the state every K steps, also before the first and after the last.

        The next step is not drawn before the checkpoint, `state()`, is durable and recorded.
        """


class Unwatched:
    """No checkpoint, no progress."""

    def resumed(self) -> bytes | None:
        """Return None."""
        return None

    def at(self, step: int, steps: int, state: Callable[[], bytes]) -> None:
        """Do nothing."""


UNWATCHED = Unwatched()


@runtime_checkable
class Watched(Protocol):
    """A method whose `measure` takes `watch`, a `TrainingWatch`."""

    @property
    def resumption(self) -> Resumption | None:
        """Its terms; None: a training that dies is lost."""
