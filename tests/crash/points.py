"""The points of RELIABILITY section 3.6 in the real pipeline, and what a death there costs."""

from __future__ import annotations

from dataclasses import dataclass

from tests.crash.harness import CALIBRATION, STAGES, Place, units

# Armed, and no output is durable under its own name: the draw is lost and its charge stands.
LOSING = ("after_arm", "mid_draw", "after_draw", "mid_stage_write", "after_stage_fsync")
KEEPING = ("after_stage_rename", "before_commit", "in_commit_tx", "after_commit")

RESERVING = ("before_reserve", "in_reserve_tx", "after_reserve")
PUBLISHING = (
    "before_build_rename", "after_build_rename", "in_publish_tx", "after_publish",
    "before_rename", "after_rename", "after_dirsync",
)  # fmt: skip
SETTLING = ("in_lose_tx", "after_lose")
"""Reached only by a run that takes up a lost draw."""


def drawing(stage: str) -> tuple[str, ...]:
    """The points of one private stage."""
    return tuple(f"{point}:{stage}" for point in ("in_arm_tx", *LOSING, *KEEPING))


SINGLE = (*RESERVING, *(point for stage in STAGES for point in drawing(stage)), *PUBLISHING)
THIRD = drawing(CALIBRATION)
"""Reached only where the plan has a third private stage."""

ALL = (*SINGLE, *SETTLING)


def loses(point: str) -> str | None:
    """The stage whose draw a death at `point` loses."""
    name, _, stage = point.partition(":")
    return stage if name in LOSING else None


@dataclass(kw_only=True)
class Account:
    """What a history must have been charged, kept beside the ledger and without it."""

    place: Place
    reserved: bool = False
    lost: str | None = None
    charged: tuple[int, int] = (0, 0)

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

    def _charge(self, cost: tuple[int, int]) -> None:
        self.charged = (self.charged[0] + cost[0], self.charged[1] + cost[1])

    def settle(self) -> None:
        """Compare with the ledger."""
        assert units(self.place.ledger().spent("town")) == self.charged
