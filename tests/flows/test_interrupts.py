"""Ctrl-C, SIGTERM and SIGHUP in the middle of `dpiw release`: nothing lost, and it goes on."""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from dpiw.ledger import Ledger, RunState, StageState
from dpiw.release.verification import verify
from dpiw.run.launch import HELD
from flows import console, server
from flows.console import StepLog
from flows.interrupts import Interrupts
from tests.flows.conftest import ROOT
from tests.support.interrupts import in_the_foreground  # noqa: F401
from tests.support.patience import SECONDS, until
from tests.support.whole_runs import publish_run

pytestmark = pytest.mark.flow

SLOW_DRAW = """
import atexit, os, pathlib, sys, time
def left():
    '''Of what a run may leave behind: a server's code or address in it, and a process.'''
    found = ['server code'] * ('prefect.server.api.server' in sys.modules)
    found += ['server address'] * ('PREFECT_API_URL' in os.environ)
    try:
        os.waitpid(-1, 0)
        found.append('process')
    except ChildProcessError:
        pass
    (pathlib.Path({folder!r}) / 'left').write_text(' '.join(found))
if 'release' in sys.orig_argv:
    atexit.register(left)
if 'dpiw.run.process' in ' '.join(sys.orig_argv) and 'fit_generator' in sys.orig_argv:
    import dpiw.methods.generators.histogram as h
    measure = h.Histogram.measure
    def slow(self, table, *, noise):
        here = pathlib.Path({folder!r})
        (here / 'drawing').touch()
        while not (here / 'go').exists():
            time.sleep(0.05)
        return measure(self, table, noise=noise)
    h.Histogram.measure = slow
"""


@pytest.fixture
def environment(prefect_server, tmp_path):
    """Of a release whose generator waits in its draw until the file `go` is there."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_DRAW.format(folder=str(tmp_path)))
    return prefect_server.environment() | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "COLUMNS": "100"}


@contextmanager
def drawing(spec: Path, environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen]:
    """`dpiw release`, in a process group of its own, in the middle of a draw."""
    with (folder / "said").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dpiw.cli.main", "release", str(spec)],
            stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
    try:
        begun = lambda: (folder / "drawing").exists() or process.poll() is not None  # noqa: E731
        until(begun, what="the draw")
        assert process.poll() is None, (folder / "said").read_text()
        yield process
    finally:
        (folder / "go").touch()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def said(folder: Path) -> str:
    return (folder / "said").read_text()


NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
SENT = {signal.SIGINT: os.killpg, signal.SIGTERM: os.kill, signal.SIGHUP: os.killpg}
"""SIGTERM to the run alone: Prefect takes it while a flow runs, and would cut the draw off."""


@pytest.mark.crash
@pytest.mark.parametrize("number", SENT, ids=NAMES.get)
def test_a_draw_is_let_end_and_the_same_command_goes_on(environment, workplace, tmp_path, number):
    if number is signal.SIGINT:  # a server of the run's own is sent it, too
        environment |= {"PREFECT_HOME": str(tmp_path / "prefect")}
        del environment["PREFECT_API_URL"]
    with drawing(workplace.spec, environment, tmp_path) as process:
        SENT[number](process.pid, number)
        until(lambda: "stopping when" in said(tmp_path), what="the answer to the signal")
        (tmp_path / "go").touch()
        assert process.wait(timeout=SECONDS) == 128 + number
    text = said(tmp_path)
    last = text.strip().splitlines()[-1]
    assert last.startswith("stopped after fit_generator: all that was drawn is kept, and paid for")
    assert last.endswith(f" release {workplace.spec}")
    assert "Traceback" not in text
    ledger = Ledger.open(workplace.ledger)
    (run,) = ledger.runs("town")
    assert run.stages["fit_generator"].state is StageState.COMMITTED
    assert run.stages["fit_weights"].state is StageState.RESERVED
    spent = ledger.spent("town")
    if number is signal.SIGINT:
        assert (tmp_path / "left").read_text() == ""
        assert (tmp_path / "prefect" / "prefect.db").stat().st_mode & 0o077 == 0
    if number is signal.SIGTERM:
        done = subprocess.run(
            [sys.executable, "-m", "dpiw.cli.main", "release", str(workplace.spec)],
            capture_output=True, text=True, env=environment, cwd=ROOT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        publish_run(workplace.spec)
    assert ledger.spent("town") == spent
    assert [len(run.attempts) for run in ledger.runs("town")] == [1]
    (folder,) = workplace.releases.iterdir()
    assert verify(folder).certificate.epsilon == "2"


@pytest.mark.crash
def test_a_second_one_stops_at_once_and_says_what_stands(environment, workplace, tmp_path):
    with drawing(workplace.spec, environment, tmp_path) as process:
        os.killpg(process.pid, signal.SIGINT)
        until(lambda: "stopping when" in said(tmp_path), what="the answer to the first")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=SECONDS) == 128 + signal.SIGINT
        with pytest.raises(ProcessLookupError):  # its stage has ended, too
            os.killpg(process.pid, 0)
    text = said(tmp_path)
    assert "Traceback" not in text
    last = text.strip().splitlines()[-1]
    assert last.startswith("stopped in fit_generator, at once")
    assert "stays charged; this run cannot draw again (max_attempts 1)" in last
    (run,) = Ledger.open(workplace.ledger).runs("town")
    assert run.state is RunState.ARMED
    assert not workplace.releases.exists()


@pytest.mark.parametrize("number", HELD)
def test_before_the_first_step_it_ends_at_once_and_nothing_was_read(number):
    before = signal.getsignal(number)
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert "nothing was read or spent; to go on: it" in interrupts.told("it")
    assert interrupts.exit_code == 128 + number
    assert signal.getsignal(number) is before


def test_one_that_an_import_makes_its_own_error_is_told_as_what_it_is():
    def importing(*, interrupted):
        with contextlib.suppress(KeyboardInterrupt):
            if interrupted:
                signal.raise_signal(signal.SIGINT)
        raise ValueError("_ser_model: KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        importing(interrupted=True)
    assert interrupts.told("it").startswith("stopped before the first step")
    with pytest.raises(ValueError, match="_ser_model"), Interrupts():
        importing(interrupted=False)


STEPS = logging.getLogger("dpiw.progress")


@pytest.mark.parametrize(
    ("step", "charged"),
    [
        ("fit_generator", "a draw that was cut off stays charged"),
        ("ingest", "no draw was under way"),
    ],
)
@pytest.mark.parametrize("number", HELD)
def test_a_second_one_does_not_wait_for_the_step(step, charged, number, capfd):
    with Interrupts() as interrupts:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # somebody took it, as a flow does
        STEPS.warning(f"start {step}")
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    message = interrupts.told("it")
    assert message.endswith(f"{charged}; to go on: it")
    assert message.startswith(f"stopped in {step}, at once")
    assert capfd.readouterr().out.count("stopping when") == 1


@pytest.mark.parametrize(
    ("step", "following", "kept"),
    [
        ("ingest", "fit_generator", "nothing was drawn this time"),
        ("debias", "diagnose", "all that was drawn is kept, and paid for once"),
    ],
)
def test_one_lets_the_step_end(step, following, kept, capfd):
    with Interrupts() as interrupts:
        STEPS.warning(f"start {step}")
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            STEPS.warning(f"start {following}")
    assert interrupts.told("it") == f"stopped after {step}: {kept}; to go on: it"
    with Interrupts():
        STEPS.warning("start publish")
        signal.raise_signal(signal.SIGINT)
        STEPS.warning("done publish 0.1")
    assert capfd.readouterr().out.count("stopping when") == 2


def test_a_job_in_the_background_goes_on_ignoring_it():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.fixture
def nobody_reads(monkeypatch):
    """A standard output whose reader has gone, as of `| tee` after the same Ctrl-C."""
    reader, writer = os.pipe()
    os.close(reader)
    out = io.TextIOWrapper(io.FileIO(writer, "wb"), write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    yield out
    with contextlib.suppress(OSError):
        out.close()


@pytest.mark.usefixtures("nobody_reads")
def test_a_step_goes_on_where_nobody_reads_what_is_said():
    shown = StepLog(Console(file=io.StringIO()))
    with Interrupts() as interrupts:
        shown.handle(STEPS.makeRecord("dpiw.progress", 20, "", 0, "done plan 0.1", (), None))
        STEPS.warning("start fit_weights")
        signal.raise_signal(signal.SIGINT)  # nothing is raised: the stage is not killed
        with pytest.raises(KeyboardInterrupt):
            STEPS.warning("start debias")
    assert "stopped after fit_weights" in interrupts.told("it")


def test_a_run_whose_terminal_is_gone_still_ends_with_its_code(nobody_reads, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())

    def hangs_up(*_, **__):
        sys.stdout = nobody_reads
        signal.raise_signal(signal.SIGHUP)

    monkeypatch.setattr(console, "quiet_prefect", lambda: StepLog(Console(file=io.StringIO())))
    monkeypatch.setattr(console, "RunRequest", mock.Mock())
    monkeypatch.setattr(console, "_again", lambda *_: "")
    monkeypatch.setattr(console, "published", lambda *_: None)
    monkeypatch.setattr(console, "_publish", hangs_up)
    assert console.main(lambda _: "", ["release.yaml"]) == 128 + signal.SIGHUP
    assert sys.stdout is not nobody_reads  # Python flushes it when it ends


def test_a_server_that_starts_during_ctrl_c_is_stopped(monkeypatch, tmp_path):
    """It runs already and nobody knows it yet: it ends with the pipe that is held here alone."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def interrupted(*command, **settings):
        started.append(real(*command, **settings))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr(server.subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt), server._own_server():
        pass
    started[0].wait(timeout=SECONDS)
