"""`deployments/serve.sh` as it stops: workers first, each told once, and the server last.

`prefect` and `python` are stand-ins here, which note what reaches them: a real worker that is told
twice kills its run, and one that has lost its server says so at length.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.patience import SECONDS, until

ROOT = Path(__file__).resolve().parents[2]

PREFECT = """#!{python} -IS
import os, signal, sys, time

command = sys.argv[1:3]
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

HEALTHY = "#!/usr/bin/env bash\ncat > /dev/null\n"


def stand_in(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def lines_of(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def hears_ctrl_c() -> None:
    """Bash traps no signal that was ignored when it began, as of a suite in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_after_ctrl_c_workers_stop_first_and_are_told_once(tmp_path: Path) -> None:
    tools, notes = tmp_path / "tools", tmp_path / "notes"
    tools.mkdir()
    stand_in(tools / "prefect", PREFECT.format(python=sys.executable))
    stand_in(tools / "python", HEALTHY)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}", "NOTES": str(notes), "LC_ALL": "C",
        "PREFECT_HOME": str(tmp_path / "home"), "DPIW_GPU": "1", "DPIW_STOP_SECONDS": "60",
    }  # fmt: skip
    with subprocess.Popen(
        [str(ROOT / "deployments/serve.sh")], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=hears_ctrl_c,
    ) as served:  # fmt: skip
        started = {"server started", "worker dpiw started", "worker dpiw-gpu started"}
        try:
            until(
                lambda: set(lines_of(notes)) == started or served.poll() is not None,
                what="server and workers",
            )
            assert set(lines_of(notes)) == started
            os.killpg(served.pid, signal.SIGINT)  # as a terminal does: all of the group
            _, complaints = served.communicate(timeout=SECONDS)
        finally:
            served.terminate()  # which stops what it started, if it is still there
    assert served.returncode == 0
    assert not complaints
    stopping = lines_of(notes)[len(started) :]
    assert sorted(stopping[:4]) == sorted(
        f"worker {pool} {what}" for pool in ("dpiw", "dpiw-gpu") for what in ("told", "ended")
    )
    assert stopping[4:] == ["server told", "server ended"]
