"""`deployments/serve.sh`: what people set stays deployed, and as it stops the server is last."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from uuid import uuid4

import pytest
from ruamel.yaml import YAML

from tests.flows.conftest import ROOT, Answer, answer_json, answering
from tests.support.patience import SECONDS, until

PREFECT = """#!{python} -IS
import os, shutil, signal, sys, time

command = sys.argv[1:3]
if "deploy" in sys.argv:
    with open(os.environ["NOTES"] + ".deploy", "a") as notes:
        notes.write(" ".join(sys.argv[1:-1]) + "\\n")
    shutil.copy(sys.argv[-1], os.environ["NOTES"] + ".yaml")
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

NAMES = [
    "dpiw-release/monthly", "dpiw-audit/weekly", "dpiw-series/catch-up", "dpiw-release/gpu",
    "dpiw-local/collect",
]  # fmt: skip
"""What the repository deploys."""

STARTED = {"server started", "worker dpiw started", "worker dpiw-gpu started"}

SCHEDULES = [
    {"schedule": {"cron": "0 3 2 * *", "timezone": "Europe/Berlin", "day_or": True}},
    {"schedule": {"interval": 3600.0, "anchor_date": "2026-01-01T00:00:00Z", "timezone": "UTC"}},
    {"schedule": {"rrule": "FREQ=DAILY", "timezone": "UTC"}, "slug": "daily"},
]
"""As a server tells them, set by somebody."""

OWN_SPEC = (
    "  DPIW_CHECKOUT=$PWD prefect --no-prompt deploy --name monthly --param spec=/",
    "  prefect deployment schedule create dpiw-release/monthly --replace --accept-yes --cron ",
)
"""What a curator types for a spec of their own."""


def told_of(deployed: list[str]) -> Answer:
    """Of an older checkout's deployments, with a spec and schedules of somebody's own."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        name = "/".join(request.path.split("/")[-2:])
        there = {
            "id": str(uuid4()), "flow_id": str(uuid4()), "name": name.split("/")[1],
            "parameters": {"spec": "/own.yaml"}, "job_variables": {"env": {"OLD": "1"}},
            "entrypoint": "flows.old.release", "paused": True,
            "schedules": [{"id": str(uuid4()), "active": False, **told} for told in SCHEDULES],
        }  # fmt: skip
        answer_json(request, *((there,) if name in deployed else ({}, 404)))

    return answer


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
    }  # fmt: skip
    with answering(told_of(deployed)) as (url, _), subprocess.Popen(
        [str(ROOT / "deployments/serve.sh")], cwd=ROOT, text=True,
        env=environment | {"DPIW_PREFECT_PORT": url.split(":")[2].removesuffix("/api")},
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


def check_stopped(notes: Path) -> None:
    """Workers stop first, and each is told once."""
    stopping = lines_of(notes)[len(STARTED) :]
    assert sorted(stopping[:4]) == sorted(
        f"worker {pool} {what}" for pool in ("dpiw", "dpiw-gpu") for what in ("told", "ended")
    )
    assert stopping[4:] == ["server told", "server ended"]


def check_commands(shown: str, tools: Path) -> None:
    """`prefect` may be in an inactive environment, and paths may hold spaces."""
    lines = [line.strip() for line in shown.splitlines()]
    assert f"export PATH={tools}:$PATH" in lines
    assert "The weekly audit is of the worked example's ledger until it is given yours" in shown
    deploys = [shlex.split(line) for line in lines if " deploy " in line]
    assert len(deploys) == 2
    assert {words[-1] for words in deploys} == {str(ROOT / "deployments/prefect.yaml")}
    for line in OWN_SPEC:
        assert line in shown


@pytest.mark.nightly_cases("deployed0")
@pytest.mark.parametrize("deployed", [[], ["dpiw-release/monthly", "mine/weekly"]])
@pytest.mark.slow
def test_what_people_set_stays_and_all_else_is_the_file_s(tmp_path, deployed):
    """Else a server that starts again publishes the example instead of somebody's own spec.

    And a checkout that was moved would go on reading the old folder's ledger, and a setting for
    privacy that is new would never arrive.
    """
    with serving(tmp_path, deployed=deployed) as served:
        os.killpg(served.pid, signal.SIGINT)  # as a terminal does: all of the group
        shown, complaints = served.communicate(timeout=SECONDS)
    assert not complaints
    assert served.returncode == 0
    check_stopped(tmp_path / "notes")
    check_commands(shown, tmp_path / "tools")
    assert lines_of(tmp_path / "notes.deploy") == ["--no-prompt deploy --all --prefect-file"]
    file = YAML(typ="safe").load((ROOT / "deployments/prefect.yaml").read_text())
    sent = YAML(typ="safe").load((tmp_path / "notes.yaml").read_text())
    assert sent["pull"] == file["pull"]
    for name, entry, wanted in zip(NAMES, sent["deployments"], file["deployments"], strict=True):
        people_s = {key: entry.pop(key, None) for key in ("parameters", "schedules", "paused")}
        theirs = {key: wanted.pop(key, None) for key in people_s}
        assert entry == wanted
        if name in deployed:
            for told, time in zip(SCHEDULES, people_s.pop("schedules"), strict=True):
                own = {"active": False, "parameters": {}} | told | told["schedule"]
                del own["schedule"]
                assert time | ({"interval": 3600.0} if "interval" in time else {}) == own
            assert people_s == {"parameters": {"spec": "/own.yaml"}, "paused": True}
        else:
            assert people_s == theirs
    kept = " ".join(name for name in NAMES if name in deployed)
    told = f"kept as deployed before, parameters and schedule: {kept}; all else as deployments/"
    assert (told in shown) == bool(kept)
