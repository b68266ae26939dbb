"""2 to 32 processes race for the last of a budget: exactly the budget is granted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.ledger import EntryKind, Ledger, Population
from tests.crash.harness import LineServer
from tests.crash.racer import ADD, PART, reserve
from tests.crash.stores import Ledgers, on_stores

PARTS = 7
COUNTS = (2, 4, 8, 16, 32)


class Round:
    """One race on a new ledger, and what it left."""

    def __init__(self, racer: LineServer, folder: Path, url: str, **task: Any) -> None:
        self.log = folder / "log"
        Ledger.create(url).register(
            Population(
                name="adult", relation=ADD, max_rows=1, epsilon=PARTS * PART, delta=Decimal(0)
            )
        )
        self.ends = racer.ask(do="spend", url=url, log=str(self.log), **task)["ends"]
        self.lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        self.ledger = Ledger.open(url)

    @property
    def failed(self) -> list[str]:
        return [line["failed"] for line in self.lines if "failed" in line]

    @property
    def told(self) -> list[int]:
        """Runs whose process learned that they were granted."""
        return [line["granted"] for line in self.lines if "granted" in line]

    @property
    def reserved(self) -> list[str]:
        return [str(e.run_key) for e in self.ledger.entries() if e.kind is EntryKind.RESERVE]

    def check(self) -> None:
        assert self.failed == []
        assert self.ledger.verify().ok
        assert self.ledger.spent("adult").epsilon_units == len(self.reserved) * 10**10
        assert {f"{run:064x}" for run in self.told} <= set(self.reserved)  # nothing told is lost


def race(
    racer: LineServer, ledgers: Ledgers, folder: Path, count: int, seed: int
) -> dict[str, int]:
    """One clean round or, every third time, one with SIGKILLs."""
    folder.mkdir()
    url = ledgers.new(folder)
    kills = count // 2 if seed % 3 == 2 else 0
    done = Round(racer, folder, url, count=count, kills=kills, seed=seed, within=0.02 / count)
    done.check()
    granted = len(done.reserved)
    assert granted <= PARTS
    if kills == 0:
        assert len(done.told) == granted == PARTS
    for number in range(granted, PARTS):  # whatever the killed left is still to be had, no more
        reserve(done.ledger, 10**6 + number)
    with pytest.raises(Exception, match=r"epsilon=0, .*is left"):
        reserve(done.ledger, 10**7)
    assert done.ledger.remaining("adult").epsilon_units == 0
    done.check()
    ledgers.done(url)
    return {"rounds": 1, "kills": done.ends.count(-9), "left by the killed": PARTS - granted}


@pytest.mark.parametrize("count", [4, 16])
def test_racing_writers_get_exactly_the_budget(
    racer: LineServer, ledgers: Ledgers, tmp_path: Path, count: int
) -> None:
    for number in (0, 2):
        race(racer, ledgers, tmp_path / str(number), count, number)


@pytest.mark.crash
@on_stores("sqlite", "postgresql")
@pytest.mark.parametrize("count", COUNTS)
def test_a_hundred_rounds(
    racer: LineServer,
    ledgers: Ledgers,
    tmp_path: Path,
    count: int,
    figures: Callable[..., None],
) -> None:
    total: dict[str, int] = {}
    for number in range(100):
        for name, found in race(racer, ledgers, tmp_path / str(number), count, number).items():
            total[name] = total.get(name, 0) + found
    figures(f"races for the last of a budget, {ledgers.kind}", writers=count, **total, overspent=0)


def test_the_race_shows_a_ledger_that_reads_and_then_writes(
    racer: LineServer, tmp_path: Path
) -> None:
    """The control: without a lock between reading and writing the same race overspends."""
    granted = 0
    for number in range(10):
        file = tmp_path / f"naive{number}"
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE spent (run)")
        connection.commit()
        racer.ask(
            do="spend_naively", file=str(file), parts=PARTS, count=16, log=str(tmp_path / "log")
        )
        granted = max(granted, *connection.execute("SELECT count(*) FROM spent").fetchone())
        connection.close()
        if granted > PARTS:
            break
    assert granted > PARTS
