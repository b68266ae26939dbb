"""What is started in the shield does not hear Ctrl-C; who starts it hears it afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from dpiw.run.shield import shielded
from tests.support.interrupts import foreground

SAYS = (
    "import signal, sys; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()));"
    " sys.stdout.flush(); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def in_the_foreground() -> Iterator[None]:
    with foreground():
        yield


@pytest.mark.parametrize("inside", [True, False])
def test_a_process_started_inside_does_not_hear_ctrl_c(inside: bool) -> None:
    def start() -> subprocess.Popen[str]:
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
        process.send_signal(signal.SIGINT)
        process.communicate("")
    assert (process.returncode == 0) is inside


def test_who_starts_it_hears_ctrl_c_at_the_end() -> None:
    heard: list[str] = []

    def start() -> None:
        with shielded():
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # other threads may hear it
            heard.append("not inside")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert heard == ["not inside"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
