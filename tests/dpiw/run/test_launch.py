"""A stage's process: its signals, what it inherits, its exit code, and that none is left behind."""

import signal
import subprocess
import sys
import threading
import time
from typing import Any
from unittest import mock

import pytest

from dpiw.errors import StageFailedError
from dpiw.run import launch
from dpiw.run.launch import HELD, launch_stage, shielded
from tests.support.interrupts import in_the_foreground  # noqa: F401

SAYS = (
    "import signal, sys; held = signal.pthread_sigmask(signal.SIG_BLOCK, ());"
    " print({signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= held);"
    " sys.stdout.flush(); sys.stdin.read()"
)


@pytest.mark.parametrize("number", HELD)
@pytest.mark.parametrize("inside", [True, False])
def test_a_process_started_inside_does_not_hear_it(inside, number):
    def start():
        return subprocess.Popen(
            [sys.executable, "-c", SAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    if inside:
        with shielded():
            process = start()
    else:
        process = start()
    with process:
        assert process.stdout.readline() == f"{inside}\n"
        process.send_signal(number)
        process.communicate("")
    assert (process.returncode == 0) is inside


@pytest.mark.parametrize("number", HELD)
@pytest.mark.parametrize("thread", ["its own", "another"])
def test_who_starts_it_hears_it_at_the_end(number, thread):
    """Also if another thread is given the signal, whose handler is the main thread's."""
    heard: list[str] = []
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    before = signal.signal(number, signal.default_int_handler)

    def start():
        with shielded():
            ident = threading.get_ident() if thread == "its own" else other.ident
            signal.pthread_kill(ident, number)
            time.sleep(0.2)
            heard.append("not inside")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
        over.set()
        other.join()
    assert heard == ["not inside"]
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_stage_that_starts_during_a_second_ctrl_c_is_killed(folder, monkeypatch):
    """Held back while it starts, the signal is heard where the stage is waited for."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def sleeper(*_, **__):
        started.append(real(["sleep", "600"]))
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return started[0]

    monkeypatch.setattr(launch.subprocess, "Popen", sleeper)
    monkeypatch.setattr(launch, "_environment", lambda _: {})
    with pytest.raises(KeyboardInterrupt):
        launch_stage("ingest", folder)
    assert started[0].returncode is not None


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log").mkdir()
    return tmp_path


def typed(monkeypatch: pytest.MonkeyPatch, script: str) -> list[dict[str, str]]:
    """Let stages run a shell script, with their socket as its output; their environments."""
    real, environments = subprocess.Popen, list[dict[str, str]]()

    def start(_: object, *, pass_fds: list[int], env: dict[str, str], **__: Any) -> Any:
        environments.append(env)
        return real(["sh", "-c", script], stdout=pass_fds[0])

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    return environments


def test_progress_is_two_numbers_and_nothing_else(folder, monkeypatch):
    told: list[tuple[int, int]] = []
    typed(monkeypatch, "echo 1 20; echo 12 a; echo 123456789 1; echo cell 7; echo 20 20")
    launch_stage("fit_generator", folder, progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 20), (20, 20)]


@pytest.mark.parametrize(("script", "code"), [("exit 12", 12), ("kill -9 $$", 70)])
def test_a_stage_that_fails_tells_its_name_and_its_code(folder, monkeypatch, script, code):
    typed(monkeypatch, script)
    with pytest.raises(StageFailedError, match=f"ingest ended with code {code}"):
        launch_stage("ingest", folder)


def test_a_stage_without_a_gpu_sees_none(folder, monkeypatch):
    environments = typed(monkeypatch, "exit 0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    launch_stage("fit_generator", folder)
    launch_stage("fit_generator", folder, without_gpu=True)
    assert [env["CUDA_VISIBLE_DEVICES"] for env in environments] == ["0", ""]


def test_an_interrupted_start_leaves_no_process(folder, monkeypatch):
    real, started = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def start(_, *, pass_fds, **__):
        started.append(real(["sh", "-c", "echo 1 2; sleep 60"], stdout=pass_fds[0]))
        return started[-1]

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        launch_stage("ingest", folder, progress=mock.Mock(side_effect=KeyboardInterrupt))
    assert started[0].returncode == -9
