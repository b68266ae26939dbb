"""A warm process that forks writers, or publishers, and starts them all at one moment.

    python -m tests.crash.racer

Reads a task as a line of JSON, runs one round, answers when every child has ended.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpiw.errors import BudgetExceededError, ReleaseError
from dpiw.release.publication import publish_built
from dpiw.release.signing import load_public_key
from tests.support.ledger import opened
from tests.support.ledger import spend as reserve


def spend(task: dict[str, Any], number: int) -> list[Any]:
    """Reserve until refused; tells each grant only after the ledger has returned."""
    ledger = opened(task["url"], wait=600)
    granted = []
    for turn in range(1_000):
        run = 10_000 * (number + 1) + turn
        try:
            reserve(ledger, run)
        except BudgetExceededError:
            return granted
        granted.append(run)
        _tell(task, {"granted": run, "worker": number})
    raise AssertionError("never refused")


def spend_naively(task: dict[str, Any], number: int) -> list[Any]:
    """The control: read what is left, then write, without holding a lock in between."""
    connection = sqlite3.connect(task["file"], timeout=600, isolation_level=None)
    granted = []
    for turn in range(1_000):
        (spent,) = connection.execute("SELECT count(*) FROM spent").fetchone()
        if spent >= task["parts"]:
            return granted
        time.sleep(0.002)  # so that others come between, however busy the machine is
        connection.execute("INSERT INTO spent VALUES (?)", (1_000 * number + turn,))
        granted.append(turn)
    raise AssertionError("never refused")


def publish(task: dict[str, Any], number: int) -> list[Any]:
    """Publish one of the built folders; what comes of it, in one word."""
    built = Path(task["built"][number % len(task["built"])])
    try:
        done = publish_built(
            built,
            destination=Path(task["destination"]),
            key=load_public_key(Path(task["key"])),
            commit=lambda digest: None,
        )
    except ReleaseError:
        return ["refused"]
    return ["published" if done else "there already"]


def _tell(task: dict[str, Any], line: Any) -> None:
    log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(log, (json.dumps(line) + "\n").encode())
    os.close(log)


ACTS: dict[str, Callable[[dict[str, Any], int], list[Any]]] = {
    "spend": spend, "spend_naively": spend_naively, "publish": publish,
}  # fmt: skip


def round_of(task: dict[str, Any]) -> dict[str, Any]:
    """Fork the children, let them go together, kill some if asked, wait for all."""
    gate_in, gate_out = os.pipe()
    children = []
    for number in range(task["count"]):
        pid = os.fork()
        if pid == 0:
            os.close(gate_out)
            os._exit(_child(task, number, gate_in))
        children.append(pid)
    os.close(gate_in)
    os.close(gate_out)  # the start: every child's read returns
    started = time.monotonic()
    rng = random.Random(task.get("seed", 0))
    moments = sorted(rng.uniform(0, task["within"]) for _ in range(task.get("kills", 0)))
    for pid, moment in zip(rng.sample(children, len(moments)), moments, strict=True):
        time.sleep(max(0.0, started + moment - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return {"ends": ends, "seconds": time.monotonic() - started}


def _child(task: dict[str, Any], number: int, gate: int) -> int:
    try:
        os.read(gate, 1)
        _tell(task, {"worker": number, "did": ACTS[task["do"]](task, number)})
    except BaseException:
        _tell(task, {"worker": number, "failed": traceback.format_exc()})
        return 1
    return 0


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(round_of(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
