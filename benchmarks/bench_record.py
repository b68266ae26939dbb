"""What `bench.py` keeps of a comparison, and how it takes the time."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class NotRunError(Exception):
    """Why a comparison was not made; the page says so."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What every comparison is told.

    Folders of the public data sets, of the peers' environments, and of tables while they are used;
    rows of tables that are read in one process, and turns.
    """

    data: Path | None
    environments: Path
    scratch: Path
    rows: int = 10**6
    repeats: int = 3
    with_peers: bool = True


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds: of a clock, and of all cores together, child processes included."""

    wall: float
    cpu: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(wall=self.wall + other.wall, cpu=self.cpu + other.cpu)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One line: ours, what it is held against, and what else is to be said."""

    ours: Cost
    reference: Cost
    told: str = ""


def _cpu() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, whose))


def timed(function: Callable[[], Any]) -> tuple[Any, Cost]:
    """What a function returns, and what it took."""
    wall, cpu = time.perf_counter(), _cpu()
    result = function()
    return result, Cost(wall=time.perf_counter() - wall, cpu=_cpu() - cpu)


def median(costs: list[Cost]) -> Cost:
    return Cost(
        wall=statistics.median(cost.wall for cost in costs),
        cpu=statistics.median(cost.cpu for cost in costs),
    )


def in_turns(
    ours: Callable[[], Any], reference: Callable[[], Any], *, repeats: int, told: str = ""
) -> Found:
    """Medians of both, which take turns, so that they meet the same load; one turn is not timed."""
    mine, theirs = [], []
    for turn in range(repeats + 1):
        for function, costs in ((ours, mine), (reference, theirs)):
            cost = timed(function)[1]
            if turn:
                costs.append(cost)
    return Found(ours=median(mine), reference=median(theirs), told=told)
