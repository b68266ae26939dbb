"""A worker's run that failed starts again by itself: its loop, and a real server and worker."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dpiw.errors import DPIWError, StageFailedError
from dpiw.ledger import Ledger, StageState
from dpiw.release.verification import verify
from dpiw.run.continuation import Rerun
from dpiw.run.run import ReleaseRun
from flows import release as flow_module
from tests.flows.conftest import ROOT, PrefectServer, _healthy, finished_database, free_port
from tests.support.patience import SECONDS, until

KILLED = StageFailedError("fit_generator", StageFailedError.exit_code)


@pytest.fixture
def started(workplace, monkeypatch):
    """Run the flow's loop: how often it may start again, what the ledger says, when it succeeds."""
    run = ReleaseRun.prepare(workplace.spec, period=None)
    monkeypatch.setenv("DPIW_ROOT", str(workplace.root))

    def started(reruns, allowed, error, succeeds):
        starts, waited, answers = [], [], iter(allowed)

        def published(directory):
            starts.append(directory)
            if len(starts) < succeeds:
                raise error
            return directory

        patch = monkeypatch.setattr
        patch(flow_module, "plan", lambda *_: run.directory)
        patch(flow_module, "published", published)
        patch(flow_module, "reruns", lambda: reruns)
        patch(flow_module, "rerun", lambda *_: next(answers))
        patch(flow_module, "wait", lambda _, cost, *__: waited.append(cost))
        try:
            flow_module.release.fn(str(workplace.spec))
        except DPIWError:
            waited.append(Rerun.NEVER)
        return waited

    return started


FREE, PAID, NEVER = Rerun.FREE, Rerun.PAID, Rerun.NEVER


@pytest.mark.parametrize(
    ("reruns", "allowed", "succeeds", "ends"),
    [
        (3, [], 1, []),
        (3, [FREE], 2, [FREE]),
        (3, [FREE, PAID, FREE], 4, [FREE, PAID, FREE]),
        (3, [FREE, FREE, FREE], 9, [FREE, FREE, FREE, NEVER]),
        (3, [NEVER], 9, [NEVER]),
        (3, [PAID, NEVER], 9, [PAID, NEVER]),
        (0, [], 9, [NEVER]),  # a person's
        (0, [], 1, []),
    ],
)
def test_the_ledger_is_asked_before_each_rerun(started, reruns, allowed, succeeds, ends):
    assert started(reruns, allowed, KILLED, succeeds) == ends


SITE = """
import os, pathlib, signal, sys, time
if "dpiw.run.process" in sys.orig_argv and "fit_generator" in sys.orig_argv:
    import dpiw.methods.generators.histogram as h
    real = h.Histogram.measure
    def measure(self, *words, **options):
        here = pathlib.Path(__file__).parent
        if not (here / "begun").exists():
            (here / "begun").touch()
            if (here / "kills").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(15)
        return real(self, *words, **options)
    h.Histogram.measure = measure
"""
"""The first draw kills its own process, or takes long enough for another one to be killed."""

OVER = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@dataclass(kw_only=True)
class Site:
    """A server and a worker of our own, which a test may kill and start again."""

    server: PrefectServer
    patch: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return self.server.environment() | {
            "PATH": path, "DPIW_CHECKOUT": str(ROOT), "DPIW_RERUN_SECONDS": "1",
            "PYTHONPATH": f"{self.patch}{os.pathsep}{ROOT}", "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_SERVER_UI_V2_ENABLED": "false",
        }  # fmt: skip

    def prefect(self, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *words], cwd=ROOT,
            env=self.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, name: str) -> None:
        port = self.server.url.rpartition(":")[2].partition("/")[0]
        words = {
            "server": ["server", "start", "--host", "127.0.0.1", "--port", port],
            "worker": ["worker", "start", "--pool", "dpiw", "--type", "process"],
        }  # fmt: skip
        with (self.server.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "prefect", *words[name]], cwd=ROOT, env=self.environment(),
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if name == "server":
            until(lambda: _healthy(self.server.url), what="the start of the server")

    def kill(self, name: str, sent: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(sent)
        process.wait(timeout=SECONDS)

    def run(self, place: Any, *, kills: bool) -> str:
        """Deploy a workplace's spec and start it now, by the API; the flow run's id."""
        for name, wanted in (("begun", False), ("kills", kills)):
            (self.patch / name).unlink(missing_ok=True)
            if wanted:
                (self.patch / name).touch()
        file = YAML(typ="safe").load((ROOT / "deployments/prefect.yaml").read_text())
        deployment = file["deployments"][0] | {"parameters": {"spec": str(place.spec)}}
        del deployment["schedules"]
        path = self.patch / "prefect.yaml"
        path.write_text(json.dumps(file | {"deployments": [deployment]}))
        self.prefect("deploy", "--all", "--prefect-file", str(path))
        found = self.server.api("deployments/name/dpiw-release/monthly", method="GET")
        made = self.server.api(
            f"deployments/{found['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}}
        )
        return str(made["id"])

    def ended(self, run: str) -> str:
        """In what state the flow run ends."""

        def state() -> str:
            if not _healthy(self.server.url):
                return ""
            told = self.server.api(f"flow_runs/{run}", method="GET")["state_type"]
            return told if told in OVER else ""

        return until(state, every=1, what="the end of the flow run")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One for all tests of this file: each ends with both of its processes at work."""
    patch = tmp_path_factory.mktemp("patch")
    home = finished_database(tmp_path_factory.mktemp("home"))
    (patch / "sitecustomize.py").write_text(SITE)
    server = PrefectServer(url=f"http://127.0.0.1:{free_port()}/api", home=home)
    running = Site(server=server, patch=patch)
    try:
        running.start("server")
        running.prefect("work-pool", "create", "dpiw", "--type", "process")
        running.start("worker")
        yield running
    finally:
        for name in list(running.processes):
            running.kill(name, signal.SIGTERM)


@pytest.mark.flow
@pytest.mark.crash
@pytest.mark.parametrize("attempts", [2, 1])
def test_a_killed_stage_starts_again_where_the_spec_allows_it(make_workplace, site, attempts):
    place = make_workplace(max_attempts=attempts)
    assert site.ended(site.run(place, kills=True)) == ("COMPLETED" if attempts == 2 else "FAILED")
    (record,) = Ledger.open(place.ledger).runs("town")
    states = [stage.state for stage in record.attempts[0].stages.values()]
    if attempts == 1:
        assert states[0] is StageState.ARMED
        assert not place.releases.exists()
        return
    assert states[0] is StageState.LOST
    (folder,) = place.releases.iterdir()
    assert len(verify(folder).certificate.attempts) == 2


@pytest.mark.flow
@pytest.mark.crash
@pytest.mark.parametrize("killed", ["worker", "server"])
def test_a_killed_worker_or_server_draws_nothing_twice(make_workplace, site, killed):
    place = make_workplace()
    run = site.run(place, kills=False)
    until(lambda: (site.patch / "begun").exists(), what="the draw")
    site.kill(killed)
    site.start(killed)
    if site.ended(run) != "COMPLETED":  # its process died with the worker: Retry
        site.server.api(
            f"flow_runs/{run}/set_state",
            {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True},
        )
        until(lambda: place.releases.exists(), what="the release")
        assert site.ended(run) == "COMPLETED"
    (folder,) = place.releases.iterdir()
    assert len(verify(folder).certificate.attempts) == 1
    assert Ledger.open(place.ledger).spent("town").epsilon == 2
