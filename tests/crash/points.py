"""Where a process can die in the real pipeline, and what a death there costs."""

import itertools
from dataclasses import dataclass

from dpiw.ledger import EntryKind
from tests.crash.harness import STAGES, Place, units

# Armed, and no output is durable under its own name: the draw is lost and its charge stands.
LOSING = ("after_arm", "mid_draw", "after_draw", "mid_stage_write", "after_stage_fsync")
CHOSEN = "after_choice"
"""Between the private choices of `measured` and its sum; no point of the usual spec."""

KEEPING = ("after_stage_rename", "before_commit", "in_commit_tx", "after_commit")

KINDS = (
    ("before_reserve", "in_reserve_tx", "after_reserve"),
    ("in_read_tx", "after_read"),
    *(
        tuple(f"{point}:{stage}" for point in kind)
        for stage in STAGES
        for kind in (("in_arm_tx",), LOSING, KEEPING)
    ),
    ("in_certify_tx", "after_certify", "before_build_rename", "after_build_rename"),
    ("in_publish_tx", "after_publish", "before_rename", "after_rename", "after_dirsync"),
)
"""In the order in which a run comes to them."""

SETTLING = ("in_lose_tx", "after_lose")
"""Reached only by a run that takes up a lost draw."""

SINGLE = tuple(point for kind in KINDS for point in kind)
ALL = (*SINGLE, *SETTLING)


def each_and_the_next() -> list[tuple[str, str]]:
    """Each point as a second that is met: after the one before it, where it is passed again."""
    following = [(SINGLE[0], SINGLE[0]), *itertools.pairwise(SINGLE)]
    following[-1] = ("before_rename", SINGLE[-1])  # what is visible is not moved a second time
    lost = [point for point in SINGLE if loses(point)]
    return [*following, *zip((lost[0], lost[-1]), SETTLING, strict=True)]


def pairs_of_kinds() -> list[tuple[str, str]]:
    """A covering design of the ordered pairs of points: after each kind, each kind.

    The points of a kind take turns, each in the first place. Each is met as a second one in
    `each_and_the_next`.
    """
    return [
        (first[then % len(first)], second[at % len(second)])
        for at, first in enumerate(KINDS)
        for then, second in enumerate((*KINDS, SETTLING))
    ]


def loses(point: str) -> str | None:
    """The stage whose draw a death at `point` loses."""
    name, _, stage = point.partition(":")
    return stage if name in (*LOSING, CHOSEN) else None


@dataclass(kw_only=True)
class Account:
    """What a history must have been charged and read, kept beside the ledger and without it."""

    place: Place
    reserved: bool = False
    lost: str | None = None
    charged: tuple[int, int] = (0, 0)
    reads: int = 0
    openings: int = 0
    ingested: bool = False

    def died(self, point: str | None) -> None:
        """A run went as far as `point`, or to its end."""
        if point in (*SETTLING, "before_reserve", "in_reserve_tx"):
            return
        if not self.reserved:
            self._charge(units(self.place.whole_cost))
            self.reserved = True
        elif self.lost is not None:
            self._charge(units(self.place.stage_cost(self.lost)))
            self.lost = None
        self.lost = loses(point or "")
        if not self.ingested and point not in ("after_reserve", "in_read_tx"):
            self._ingest(point)

    def _ingest(self, point: str | None) -> None:
        """A read is on record before the table is opened, and stays there whatever follows."""
        self.reads += 1
        if point != "after_read":
            self.openings += 1
            self.ingested = True

    def _charge(self, cost: tuple[int, int]) -> None:
        self.charged = (self.charged[0] + cost[0], self.charged[1] + cost[1])

    def settle(self) -> None:
        """Compare with the ledger, and the openings with what the children noted."""
        ledger = self.place.ledger()
        assert units(ledger.spent("town")) == self.charged
        assert sum(entry.kind is EntryKind.READ for entry in ledger.entries()) == self.reads
        assert self.place.openings() == self.openings
