"""What is started in the shield hears no Ctrl-C, SIGTERM or SIGHUP; who starts it does."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from dpiw.run import launch
from dpiw.run.launch import HELD, shielded
from tests.support.interrupts import foreground

SAYS = (
    "import signal, sys; held = signal.pthread_sigmask(signal.SIG_BLOCK, ());"
    " print({signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= held);"
    " sys.stdout.flush(); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def in_the_foreground():
    with foreground():
        yield


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
        assert process.stdout is not None
        assert process.stdout.readline() == f"{inside}\n"
        process.send_signal(number)
        process.communicate("")
    assert (process.returncode == 0) is inside


@pytest.mark.parametrize("number", HELD)
def test_who_starts_it_hears_it_at_the_end(number):
    heard: list[str] = []
    before = signal.signal(number, signal.default_int_handler)

    def start():
        with shielded():
            signal.pthread_kill(threading.get_ident(), number)  # other threads may hear it
            heard.append("not inside")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert heard == ["not inside"]
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_another_thread_that_is_given_the_signal_does_not_end_what_is_inside():
    heard: list[str] = []
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()

    def start():
        with shielded():
            assert other.ident is not None
            signal.pthread_kill(other.ident, signal.SIGINT)  # its handler is the main thread's
            time.sleep(0.2)
            heard.append("not inside")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        over.set()
        other.join()
    assert heard == ["not inside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_stage_that_starts_during_a_second_ctrl_c_is_killed(tmp_path, monkeypatch):
    """Held back while it starts, the signal is heard where the stage is waited for."""
    (tmp_path / "log").mkdir()
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def sleeper(*_, **__):
        started.append(real(["sleep", "600"]))
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return started[0]

    monkeypatch.setattr(launch.subprocess, "Popen", sleeper)
    monkeypatch.setattr(launch, "_environment", lambda _: {})
    with pytest.raises(KeyboardInterrupt):
        launch.launch_stage("ingest", tmp_path)
    assert started[0].returncode is not None
