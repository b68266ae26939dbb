"""SIGKILL at random times over real runs, resumed until they are published."""

import itertools
import random
import signal
import time
from collections import Counter

import pytest

from tests.crash.harness import ForkServer, Place, check, check_charge, check_published
from tests.crash.stores import on_stores

MILESTONES = ("s", "i", "a", "p")
"""The clock starts at: the first step, the end of ingest, the first arm, before `publish`."""


def until_published(
    server: ForkServer, place: Place, *, seed: int, kills: int, length: dict[str, float]
) -> Counter[str]:
    """Kill up to `kills` processes of one run at random moments, then let it end."""
    rng = random.Random(seed)
    counts = Counter[str](histories=1)
    for _ in range(kills):
        milestone = rng.choice(MILESTONES)
        end = server.run(place, milestone=milestone, after=rng.uniform(0, length[milestone]))
        assert end in (0, -signal.SIGKILL)
        check(place)
        if end == 0:  # it was published before its time came
            counts["too late"] += 1
            break
        counts["kills"] += 1
    assert server.run(place) == 0
    check_published(place)
    counts["lost draws"] = check_charge(place)
    return counts


@pytest.fixture(scope="module")
def length(servers, new_place):
    """How long a whole run takes from each milestone on, about."""
    assert servers.run(new_place()) == 0  # from then on the verdicts are known
    place = new_place()
    started = time.monotonic()
    assert servers.run(place) == 0
    whole = time.monotonic() - started
    return {"s": 0.9 * whole, "i": 0.25 * whole, "a": 0.15 * whole, "p": 0.1 * whole}


@pytest.mark.crash
@on_stores("sqlite", "postgresql")
def test_many_random_kills(servers, new_place, length, figures):
    """A fault that one kill in fifty shows is missed by all 200 with 0.98^200 = 0.02."""
    until = 150 if new_place.kind == "sqlite" else 50

    def one(server, seed):
        place = new_place(max_attempts=10)
        counts = until_published(server, place, seed=seed, kills=5, length=length)
        new_place.done(place)
        return counts

    totals, seeds, together = Counter[str](), itertools.count(), max(2, until // 50)
    while totals["kills"] < until:
        totals += sum(servers.each(list(itertools.islice(seeds, together)), one), Counter[str]())
    assert totals["lost draws"] > 0  # about one kill in ten hits the expensive window
    figures(f"random-time kills, {new_place.kind}", **totals, violations=0)
