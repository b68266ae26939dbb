"""`deployments/serve.sh`: what is deployed stays, and as it stops the server is last.

`prefect` and `python` are stand-ins here, which note what reaches them: a real worker that is told
twice kills its run, and one that has lost its server says so at length.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import SECONDS, until

ROOT = Path(__file__).resolve().parents[2]

PREFECT = """#!{python} -IS
import os, signal, sys, time

command = sys.argv[1:3]
if command == ["deployment", "ls"]:
    print(os.environ["DEPLOYED_BEFORE"])
if "deploy" in sys.argv:
    with open(os.environ["NOTES"] + ".deploy", "a") as notes:
        notes.write(" ".join(sys.argv[1:]) + "\\n")
if command not in (["server", "start"], ["worker", "start"]):
    sys.exit()
name = "server" if command[0] == "server" else f"worker {{sys.argv[4]}}"


def note(what):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{{name}} {{what}}\\n")


def told(*_):
    note("told")
    time.sleep(0.3)
    note("ended")
    os._exit(0)


signal.signal(signal.SIGINT, told)
signal.signal(signal.SIGTERM, told)
note("started")
time.sleep(600)
"""
"""Ends some time after it was told to; one that is told again meanwhile notes that too."""

HEALTHY = """#!/usr/bin/env bash
[[ ${{2:-}} == */health ]] || exec {python} "$@"
cat > /dev/null
"""
"""Python, but for the question whether the server is up."""

NAMES = ["monthly", "weekly", "gpu", "assurance", "collect"]
"""What the repository deploys."""

STARTED = {"server started", "worker dpiw started", "worker dpiw-gpu started"}

OWN_SPEC = (
    "  export PREFECT_API_URL=http://127.0.0.1:4200/api PREFECT_SERVER_ANALYTICS_ENABLED=false",
    "  DPIW_CHECKOUT=$PWD prefect --no-prompt deploy --name monthly --param spec=/",
    "  prefect deployment schedule create dpiw-release/monthly --replace --accept-yes --cron ",
)
"""What a curator types for a spec of their own."""


def stand_in(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def lines_of(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def hears_ctrl_c() -> None:
    """Bash traps no signal that was ignored when it began, as of a suite in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def serving(tmp_path: Path, *, deployed: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The script, with a server and two workers that run; `deployed` was there before."""
    tools, notes = tmp_path / "tools", tmp_path / "notes"
    tools.mkdir()
    stand_in(tools / "prefect", PREFECT.format(python=sys.executable))
    stand_in(tools / "python", HEALTHY.format(python=sys.executable))
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}", "NOTES": str(notes), "LC_ALL": "C",
        "PREFECT_HOME": str(tmp_path / "home"), "DPIW_GPU": "1", "DPIW_STOP_SECONDS": "60",
        "DEPLOYED_BEFORE": json.dumps([{"name": name, "parameters": {}} for name in deployed]),
    }  # fmt: skip
    with subprocess.Popen(
        [str(ROOT / "deployments/serve.sh")], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=hears_ctrl_c,
    ) as served:  # fmt: skip
        try:
            until(
                lambda: set(lines_of(notes)) == STARTED or served.poll() is not None,
                what="server and workers",
            )
            assert set(lines_of(notes)) == STARTED
            yield served
        finally:
            served.terminate()  # which stops what it started, if it is still there


def test_after_ctrl_c_workers_stop_first_and_are_told_once(tmp_path: Path) -> None:
    with serving(tmp_path, deployed=[]) as served:
        os.killpg(served.pid, signal.SIGINT)  # as a terminal does: all of the group
        _, complaints = served.communicate(timeout=SECONDS)
    assert served.returncode == 0
    assert not complaints
    stopping = lines_of(tmp_path / "notes")[len(STARTED) :]
    assert sorted(stopping[:4]) == sorted(
        f"worker {pool} {what}" for pool in ("dpiw", "dpiw-gpu") for what in ("told", "ended")
    )
    assert stopping[4:] == ["server told", "server ended"]


@pytest.mark.parametrize("deployed", [[], ["monthly", "mine"], NAMES])
def test_what_is_deployed_stays_as_it_is(tmp_path: Path, deployed: list[str]) -> None:
    """Else a server that starts again publishes the example in the place of somebody's own spec."""
    with serving(tmp_path, deployed=deployed) as served:
        os.killpg(served.pid, signal.SIGINT)
        shown, complaints = served.communicate(timeout=SECONDS)
    assert not complaints
    missing = [name for name in NAMES if name not in deployed]
    named = " ".join(f"--name {name}" for name in missing)
    expected = [f"--no-prompt deploy {named} --prefect-file deployments/prefect.yaml"]
    assert lines_of(tmp_path / "notes.deploy") == (expected if missing else [])
    kept = " ".join(name for name in NAMES if name in deployed)
    told = f"kept as deployed before, parameters and schedule: {kept}\n"
    assert (told in shown) == bool(kept)
    for line in OWN_SPEC:
        assert line in shown
