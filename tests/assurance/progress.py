"""Progress of a suite, one line a part, and how long it will take."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence

from tests.assurance.parts import Part

TAIL = 40
"""Lines shown of a failing part."""


class Progress:
    """Tells what has ended and about how long the rest takes."""

    def __init__(self, total: int, known: Mapping[str, float], jobs: int) -> None:
        self._total, self._jobs = total, jobs
        self._known, self._seen = dict(known), []
        self._done = 0
        self._begun: dict[str, float] = {}
        self._waiting: set[str] = set()

    def plan(self, nodes: Sequence[str], kept: int) -> None:
        """Say what is to be run."""
        self._waiting, self._done = set(nodes), kept
        self.say(
            f"{self._total} parts: {kept} kept from earlier, {len(nodes)} to run,"
            f" {self._jobs} at once{self._left()}"
        )

    def ended(self, part: Part, log: str) -> None:
        """Say how a part ended; of a red one, the end of what it said."""
        self._waiting.discard(part.node)
        self._seen.append(part.seconds)
        self._done += 1
        end = "ok" if part.green else "FAILED"
        count = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        self.say(f"{count} {end:6} {part.seconds:7.1f} s  {part.node}{self._left()}")
        if not part.green:
            tail = log.splitlines()[-TAIL:]
            self.say("\n".join([f"    {part.why}", *(f"    | {line}" for line in tail)]))

    def _left(self) -> str:
        """From earlier durations; for the others the mean of all that are known."""
        known = [*self._known.values(), *self._seen]
        if not self._waiting or not known:
            return ""
        mean = statistics.mean(known)
        durations = [self._known.get(node, mean) for node in self._waiting]
        seconds = max(sum(durations) / self._jobs, max(durations))
        unknown = sum(node not in self._known for node in self._waiting)
        guess = f" ({unknown} guessed)" if unknown else ""
        return f"  left {_clock(seconds)}{guess}"

    @staticmethod
    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes else "under a minute"
