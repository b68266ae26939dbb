"""Real processes on one ledger: racing for a grant (for a budget: tests/crash), dying half-way."""

import json
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.ledger import EntryKind, Ledger, StageState
from tests.support.ledger import adult, digest, spend
from tests.support.stores import both_stores

pytestmark = both_stores

ROOT = Path(__file__).resolve().parents[3]

# One process: reads a task as a line of JSON, does it, answers with a line. Races at length, and
# kills at random moments: tests/crash.
WORKER = """
import json, os, signal, sys
from decimal import Decimal
from dpiw.errors import DPIWError
from dpiw.ledger import Ledger
from dpiw.ledger.stores import store
from tests.support.ledger import digest as key, opened, spend as reserve, terms

def say(answer):
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()

def arm(ledger, task):
    return ledger.arm(key(task["run"]), 1, "s").token

def void(ledger, task):
    ledger.void(key(task["run"]), 1)
    return "voided"

def same(ledger, task):
    return reserve(ledger, task["run"]).seq

def register(ledger, task):
    ledger.register(terms(name="beta", epsilon=Decimal(task["worker"] + 1)))
    return task["worker"]

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
        if task["do"] == "create":
            Ledger.create(task["ledger"])
        ledger = opened(task["ledger"], wait=600)  # SQLite's queue is not fair
        act = globals().get(task["do"])
        say({"ok": act(ledger, task) if act else ledger.head().hash})
    except DPIWError as error:
        say({"error": type(error).__name__})
"""


class Workers:
    def __init__(self, count: int) -> None:
        command, pipe = [sys.executable, "-c", WORKER], subprocess.PIPE
        self.processes = [
            subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
            for _ in range(count)
        ]
        for process in self.processes:
            assert self.answer(process) == "ready"

    def answer(self, process: subprocess.Popen[str]) -> Any:
        return json.loads(process.stdout.readline())

    def race(self, ledger: str, tasks: list[dict[str, Any]]) -> list[Any]:
        racers = self.processes[: len(tasks)]
        for number, (process, task) in enumerate(zip(racers, tasks, strict=True)):
            process.stdin.write(json.dumps({"worker": number, "ledger": ledger, **task}) + "\n")
            process.stdin.flush()
        return [self.answer(process) for process in racers]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def workers():
    pool = Workers(4)
    yield pool
    pool.close()


@pytest.fixture
def ledger(store_url):
    created = Ledger.create(store_url)
    created.register(adult(epsilon=Decimal("0.21"), delta=Decimal(0)))
    return created


def test_exactly_one_racer_arms(ledger, workers):
    for number in range(10):
        spend(ledger, number)
        answers = workers.race(ledger.location, [{"do": "arm", "run": number}] * 4)
        assert [list(answer) for answer in answers].count(["ok"]) == 1
        assert {answer.get("error", "GrantSpentError") for answer in answers} == {"GrantSpentError"}
    assert [e.kind for e in ledger.entries()].count(EntryKind.ARM) == 10
    assert ledger.verify().ok


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


def test_racers_share_one_reservation_and_register_one_budget(ledger, workers):
    """With the same key, and with other terms."""
    answers = workers.race(ledger.location, [{"do": "same", "run": 7}] * 4)
    assert answers == [{"ok": 3}] * 4
    assert ledger.head().seq == 3
    answers = workers.race(ledger.location, [{"do": "register"}] * 4)
    (winner,) = [answer["ok"] for answer in answers if "ok" in answer]
    assert ledger.population("beta").epsilon == winner + 1
    assert answers.count({"error": "LedgerConflictError"}) == 3


def test_racing_creators_make_one_ledger(store_url, workers):
    answers = workers.race(store_url, [{"do": "create"}] * 4)
    assert answers == [{"ok": Ledger.open(store_url).head().hash}] * 4


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
