"""Real processes on one ledger: racing for a budget, for a grant, and dying half-way."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import GrantSpentError
from dpiw.ledger import EntryKind, Ledger, StageState
from tests.support.ledger import adult, digest, spend
from tests.support.stores import both_stores

ROOT = Path(__file__).resolve().parents[3]

# One process: reads a task as a line of JSON, does it, answers with a line. Several answers of
# `hammer` may precede the process's death; each is given only after its operation returned.
WORKER = """
import json, os, signal, sys
from decimal import Decimal
from dpiw.errors import DPIWError, BudgetExceededError
from dpiw.ledger import Ledger, Population
from dpiw.ledger.stores import store
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE

def say(answer):
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()

def key(number):
    return f"{number:064x}"

def reserve(ledger, number, epsilon="0.01"):
    return ledger.reserve(
        population="adult", run_key=key(number), attempt=1, plan_digest=key(1), period="p",
        max_attempts=1, stages={"s": [{"count": 1}]},
        cost=PrivacyCost.of(Decimal(epsilon), Decimal(0), ADD))

def spend(ledger, task):
    granted = 0
    for number in range(task["tries"]):
        try:
            reserve(ledger, 1000 * (task["worker"] + 1) + number)
            granted += 1
        except BudgetExceededError:
            pass
    return granted

def arm(ledger, task):
    return ledger.arm(key(task["run"]), 1, "s").token

def void(ledger, task):
    ledger.void(key(task["run"]), 1)
    return "voided"

def same(ledger, task):
    return reserve(ledger, task["run"]).seq

def register(ledger, task):
    ledger.register(Population(name="beta", relation=ADD, max_rows=1, delta=Decimal(0),
                               epsilon=Decimal(task["worker"] + 1)))
    return task["worker"]

def hammer(ledger, task):
    number = 10**6 * (task["worker"] + 1)
    while True:
        number += 1
        reserve(ledger, number, "1e-9")
        say(["reserved", key(number)])
        grant = ledger.arm(key(number), 1, "s")
        say(["armed", key(number)])
        ledger.commit(grant, key(2))
        say(["committed", key(number)])

def die(ledger, task):
    child = os.fork()  # of a process with no open connection
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    real = store.Store.append
    def append(self, connection, entry):
        if task["point"] == "before_insert":
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, connection, entry)
        if task["point"] == "after_insert":
            os.kill(os.getpid(), signal.SIGKILL)
    store.Store.append = append
    reserve(ledger, 5)
    os.kill(os.getpid(), signal.SIGKILL)

say("ready")
for line in sys.stdin:
    task = json.loads(line)
    try:
        opened = Ledger.create if task["do"] == "create" else Ledger.open
        ledger = opened(task["ledger"], busy_timeout_seconds=600)  # SQLite's queue is not fair
        act = globals().get(task["do"])
        say({"ok": act(ledger, task) if act else ledger.head().hash})
    except DPIWError as error:
        say({"error": type(error).__name__})
"""


class Workers:
    """Processes that are warm before a race begins; more are started when a race needs them."""

    def __init__(self, count: int) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.grow(count)

    def grow(self, count: int) -> None:
        pipe = subprocess.PIPE
        new = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
            )
            for _ in range(count - len(self.processes))
        ]
        for process in new:
            assert self.answer(process) == "ready"
        self.processes += new

    def answer(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def tell(self, ledger: str, tasks: list[dict[str, Any]]) -> None:
        for number, (process, task) in enumerate(zip(self.processes, tasks, strict=False)):
            assert process.stdin is not None
            process.stdin.write(json.dumps({"worker": number, "ledger": ledger, **task}) + "\n")
            process.stdin.flush()

    def race(self, ledger: str, tasks: list[dict[str, Any]]) -> list[Any]:
        self.grow(len(tasks))
        self.tell(ledger, tasks)
        return [self.answer(p) for p, _ in zip(self.processes, tasks, strict=False)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    pool = Workers(4)
    yield pool
    pool.close()


@pytest.fixture
def ledger(store_url) -> Ledger:
    """On each store in turn."""
    created = Ledger.create(store_url)
    created.register(adult(epsilon=Decimal("0.21"), delta=Decimal(0)))
    return created


@both_stores
@pytest.mark.crash_cases("8")
@pytest.mark.parametrize("count", [4, 8])
def test_racers_get_exactly_the_budget(ledger, workers, count):
    """0.21 in parts of 0.01: 21 grants, however many ask for more."""
    answers = workers.race(ledger.location, [{"do": "spend", "tries": 48 // count}] * count)
    assert all("ok" in answer for answer in answers), answers
    assert sum(answer["ok"] for answer in answers) == 21
    assert ledger.remaining("adult").epsilon_units == 0
    assert ledger.verify().ok


@both_stores
@pytest.mark.crash_cases("8")
@pytest.mark.parametrize("count", [2, 8])
def test_exactly_one_racer_arms(ledger, workers, count):
    for number in range(10):
        spend(ledger, number)
        answers = workers.race(ledger.location, [{"do": "arm", "run": number}] * count)
        assert [list(answer) for answer in answers].count(["ok"]) == 1
        assert {answer.get("error", "GrantSpentError") for answer in answers} == {"GrantSpentError"}
    assert [e.kind for e in ledger.entries()].count(EntryKind.ARM) == 10
    assert ledger.verify().ok


@both_stores
def test_a_racing_void_and_arm_never_both_win(ledger, workers):
    for number in range(10):
        spend(ledger, number)
        tasks = [{"do": "void", "run": number}, {"do": "arm", "run": number}]
        answers = workers.race(ledger.location, tasks if number % 2 else tasks[::-1])
        won = [answer["ok"] for answer in answers if "ok" in answer]
        assert len(won) == 1
        state = ledger.run(digest(number)).stages["s"].state
        assert state is (StageState.VOIDED if won == ["voided"] else StageState.ARMED)
    assert ledger.verify().ok


@both_stores
def test_racers_share_one_reservation_and_register_one_budget(ledger, workers):
    """With the same key, and with other terms."""
    answers = workers.race(ledger.location, [{"do": "same", "run": 7}] * 4)
    assert answers == [{"ok": 3}] * 4
    assert ledger.head().seq == 3
    answers = workers.race(ledger.location, [{"do": "register"}] * 4)
    (winner,) = [answer["ok"] for answer in answers if "ok" in answer]
    assert ledger.population("beta").epsilon == winner + 1
    assert answers.count({"error": "LedgerConflictError"}) == 3


@both_stores
def test_racing_creators_make_one_ledger(store_url, workers):
    answers = workers.race(store_url, [{"do": "create"}] * 4)
    assert answers == [{"ok": Ledger.open(store_url).head().hash}] * 4


@both_stores
@pytest.mark.parametrize(
    ("point", "kept"), [("before_insert", False), ("after_insert", False), ("at_end", True)]
)
def test_killed_in_a_write_transaction(ledger, workers, point, kept):
    """Not committed: as if it never was, and the lock is free. Committed: there."""
    before = ledger.head()
    assert workers.race(ledger.location, [{"do": "die", "point": point}]) == [
        {"ok": -signal.SIGKILL}
    ]
    assert (ledger.head().seq == before.seq + 1) == kept
    assert (ledger.find_run(digest(5)) is not None) == kept
    assert ledger.verify().ok
    spend(ledger, 5)
    assert ledger.head().seq == before.seq + 1


@both_stores
@pytest.mark.crash
def test_killed_at_any_time_the_chain_holds_and_nothing_told_is_lost(ledger):
    """Four writers per round, each killed at its own random moment."""
    rng = random.Random(20270101)
    answered: dict[str, str] = {}
    for round_number in range(3):
        workers = Workers(4)
        tasks = [{"do": "hammer", "worker": 4 * round_number + number} for number in range(4)]
        workers.tell(ledger.location, tasks)
        for process in workers.processes:
            # By progress, not by time, so that a busy machine changes nothing.
            for _ in range(rng.randint(2, 4)):
                state, run = workers.answer(process)
                answered[run] = state
            time.sleep(rng.uniform(0, 0.004))
            process.kill()
        for process in workers.processes:
            assert process.stdout is not None
            output = process.stdout.read()
            whole = output[: output.rfind("\n") + 1].splitlines()  # the last line may be torn
            answered.update({run: state for state, run in map(json.loads, whole)})
        workers.close()
        fresh = Ledger.open(ledger.location)
        report = fresh.verify()
        assert report.ok, report.fault
        order = ["reserved", "armed", "committed"]
        for run, state in answered.items():
            stored = fresh.run(run).stages["s"].state.value
            assert order.index(stored) >= order.index(state)
        entries = fresh.entries()
        reserved = [e for e in entries if e.kind is EntryKind.RESERVE]
        assert fresh.spent("adult").epsilon_units == 1000 * len(reserved)
    assert len(answered) >= 12
    (armed, *_) = [run for run, state in answered.items() if state != "reserved"]
    with pytest.raises(GrantSpentError):
        ledger.arm(armed, 1, "s")
