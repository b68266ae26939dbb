"""Real processes as in production: the flow's process and the stage's own, either one killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dpiw.errors import GrantSpentError, StageFailedError
from dpiw.ledger import EntryKind, StageState
from dpiw.run import steps
from dpiw.run.launch import launch_stage
from tests.crash.harness import ROOT, Place, check_charge, check_published, units
from tests.flows.conftest import PrefectServer
from tests.support.patience import SECONDS, until

pytestmark = pytest.mark.crash

# Runs in the stage's own process, before it: the measurement waits until a file is there.
SLOW_DRAW = """
import sys
if "dpiw.run.process" in " ".join(sys.orig_argv) and "fit_generator" in sys.orig_argv:
    import json, os, pathlib, time
    import dpiw.methods.generators.histogram as h
    measure = h.Histogram.measure
    def slow(self, table, *, noise):
        drawn = measure(self, table, noise=noise)
        here = pathlib.Path(__file__).parent
        (here / "drawing").write_text(str(os.getpid()))
        while not (here / "go").exists():
            time.sleep(0.02)
        return drawn
    h.Histogram.measure = slow
"""

FLOW = """
import sys
from pathlib import Path
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from dpiw.run.launch import launch_stage
run = ReleaseRun.load(Path(sys.argv[1]))
steps.reserve(run)
launch_stage("ingest", run.directory)
launch_stage("fit_generator", run.directory)
"""


class Slow:
    """A draw that waits inside its stage process until it is told to go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sitecustomize.py").write_text(SLOW_DRAW)

    def wait_for_stage(self) -> int:
        """The id of the stage's process, once its noise is drawn."""
        path = self.folder / "drawing"
        return int(until(lambda: path.exists() and path.read_text(), every=0.01, what="a draw"))

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def slow(tmp_path, monkeypatch):
    slow_run = Slow(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield slow_run
    slow_run.go()


def start_flow(place: Place) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", FLOW, str(place.run.directory)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def ends(pid: int) -> None:
    """Wait until every thread is gone: a zombie's other threads still hold its files and locks."""

    def is_gone() -> bool:
        try:
            process = psutil.Process(pid)
            return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() == 1
        except psutil.NoSuchProcess:
            return True

    until(is_gone, every=0.01, what=f"the end of {pid}")


def finish(place: Place) -> None:
    """A rerun, stages in processes of their own."""
    steps.reserve(place.run)
    for stage in ("ingest", "fit_generator"):
        launch_stage(stage, place.run.directory)
    steps.draw_synthetic(place.run)
    launch_stage("fit_weights", place.run.directory)
    steps.debias(place.run)
    steps.diagnose(place.run)
    steps.publish(place.run)
    check_published(place)


def state(place: Place) -> StageState:
    return place.ledger().run(place.run.key).stages["fit_generator"].state


def test_the_stage_dies_and_the_flow_lives(new_place, slow):
    """The flow learns a code and no more; the next run pays for the draw that was lost."""
    place = new_place()
    flow = start_flow(place)
    os.kill(slow.wait_for_stage(), signal.SIGKILL)
    assert flow.wait(timeout=SECONDS) == 1  # StageFailedError, as any other failure
    assert state(place) is StageState.ARMED
    with pytest.raises(StageFailedError):  # a bare retry of the stage is refused
        launch_stage("fit_generator", place.run.directory)
    assert units(place.ledger().spent("town")) == units(place.whole_cost)
    slow.go()
    finish(place)
    assert check_charge(place) == 1


def test_the_flow_dies_and_the_stage_lives_on(new_place, slow):
    """An orphan keeps its draw: nobody may settle or repeat it, and its output is used."""
    place = new_place()
    flow = start_flow(place)
    orphan = slow.wait_for_stage()
    flow.kill()
    flow.wait()
    with pytest.raises(GrantSpentError, match="another process is drawing it now"):
        steps.reserve(place.run)  # the rerun meets the orphan and keeps its hands off
    assert state(place) is StageState.ARMED
    slow.go()
    ends(orphan)
    assert state(place) is StageState.COMMITTED
    finish(place)
    assert check_charge(place) == 0


def test_both_die(new_place, slow):
    place = new_place(max_attempts=1)
    flow = start_flow(place)
    stage = slow.wait_for_stage()
    flow.kill()
    os.kill(stage, signal.SIGKILL)
    flow.wait()
    ends(stage)
    for _ in range(2):
        with pytest.raises(GrantSpentError, match="max_attempts=1"):
            steps.reserve(place.run)
    assert state(place) is StageState.LOST
    assert units(place.ledger().spent("town")) == units(place.whole_cost)
    assert not place.releases.exists()


# --- under Prefect -------------------------------------------------------------------------------

FAILS_ONCE = """
import sys
if "dpiw.run.process" in " ".join(sys.orig_argv) and "fit_generator" in sys.orig_argv:
    import pathlib
    import dpiw.methods.generators.histogram as h
    measure = h.Histogram.measure
    once = pathlib.Path(__file__).parent / "failed"
    def failing(self, table, *, noise):
        drawn = measure(self, table, noise=noise)
        if not once.exists():
            once.touch()
            raise RuntimeError("after the noise was drawn")
        return drawn
    h.Histogram.measure = failing
"""

RETRIED = """
import sys
from flows.release import release
print(release.with_options(retries=2)(sys.argv[1]))
"""


def armed(place: Place) -> int:
    return sum(entry.kind is EntryKind.ARM for entry in place.ledger().entries())


def check_ended(place: Place, server: PrefectServer | None, *, arms: int, again: int) -> None:
    """Published, perhaps by one more run of the flow, with so many draws and charges beyond one."""
    if server is not None:
        done = server.run_flow(place.root / "release.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    check_published(place)
    assert armed(place) == arms
    assert check_charge(place) == again


def prefect_process(server: PrefectServer, *arguments: str) -> subprocess.Popen[bytes]:
    python_path = os.environ.get("PYTHONPATH", "")
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT,
        env=server.environment() | {"PYTHONPATH": python_path},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.flow
def test_prefect_retries_the_whole_flow(prefect_server, new_place, slow):
    """A retry after the draw is a second draw: it is paid for, and only as `max_attempts` allow."""
    (slow.folder / "sitecustomize.py").write_text(FAILS_ONCE)
    place = new_place()
    release = str(place.root / "release.yaml")
    flow = prefect_process(prefect_server, "-c", RETRIED, release)
    assert flow.wait(timeout=SECONDS) == 0
    check_ended(place, None, arms=3, again=1)

    (slow.folder / "failed").unlink()
    refused = new_place(max_attempts=1)
    flow = prefect_process(prefect_server, "-c", RETRIED, str(refused.root / "release.yaml"))
    assert flow.wait(timeout=SECONDS) != 0  # both retries refused
    assert armed(refused) == 1
    assert units(refused.ledger().spent("town")) == units(refused.whole_cost)


@pytest.mark.flow
def test_a_flow_killed_in_mid_stage_and_run_again_by_hand(prefect_server, new_place, slow):
    """kill -9 on flow and stage; Prefect is told that it crashed; a person starts it again."""
    place = new_place()
    spec = place.root / "release.yaml"
    flow = prefect_process(prefect_server, "-m", "flows", str(spec))
    stage = slow.wait_for_stage()
    flow.kill()
    os.kill(stage, signal.SIGKILL)
    flow.wait()
    ends(stage)
    (run, *_) = prefect_server.api("flow_runs/filter", {"sort": "START_TIME_DESC"})
    assert run["state_type"] == "RUNNING"  # nobody told Prefect: it is the alarm clock only
    crashed = {"state": {"type": "CRASHED"}, "force": True}
    prefect_server.api(f"flow_runs/{run['id']}/set_state", crashed)
    slow.go()
    check_ended(place, prefect_server, arms=3, again=1)


@pytest.mark.flow
def test_two_flows_at_once_on_the_same_run(prefect_server, new_place):
    """A duplicate worker: whoever is second is refused or finds it done; it never draws."""
    place = new_place()
    spec = str(place.root / "release.yaml")
    both = [prefect_process(prefect_server, "-m", "flows", spec) for _ in range(2)]
    codes = [flow.wait(timeout=SECONDS) for flow in both]
    assert set(codes) <= {0, GrantSpentError.exit_code, StageFailedError.exit_code}
    check_ended(place, prefect_server, arms=2, again=0)
