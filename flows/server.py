"""The Prefect server of a run that a person starts: theirs, or a short-lived one of the run's own.

A server that starts, or restarts, or is busy makes a run late: Prefect repeats a request that was
not answered in time, but gives up at once where nobody listens yet. So such a run waits before its
flow, when nothing is read or spent. Prefect would start a short-lived server too, but only when the
flow begins, after importing the whole server; ours starts first, and the run gets ready beside it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dpiw.errors import DPIWError
from dpiw.run.shield import shielded

PAUSE_SECONDS = 0.1
"""Between two attempts."""

ONE_RUN = {
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}
"""What a server of one run does without: types of blocks, and automations. What is set wins."""

_STOP_SECONDS = 5.0

_pause = time.sleep


class ServerUnreachableError(DPIWError):
    """No Prefect server answered for `DPIW_SERVER_WAIT_SECONDS`. Nothing was read or spent."""

    exit_code = 71


class ServerLostError(ServerUnreachableError):
    """The Prefect server went away, or failed, while a flow ran."""


@contextlib.contextmanager
def prefect_server() -> Iterator[Callable[[], None]]:
    """The Prefect server for the flows inside.

    That is the one at `PREFECT_API_URL`; without it a short-lived one, stopped on the way out.

    Yields:
        Waits for its first answer, as `wait_for_server`. What needs no server comes before that.
    """
    with _told_if_lost(), contextlib.ExitStack() as stack:
        server = None
        if not os.environ.get("PREFECT_API_URL"):
            server = stack.enter_context(_own_server())
        from prefect.settings import PREFECT_API_URL  # while it comes up

        if server is None or PREFECT_API_URL.value():  # a profile of Prefect's may name one, too
            stack.close()
            yield wait_for_server
            return
        stack.enter_context(_at(server.url))
        yield lambda: wait_for_server(server)


@contextlib.contextmanager
def _told_if_lost() -> Iterator[None]:
    """Prefect gave a request up, after all its patience: our sentence instead of its traceback."""
    try:
        yield
    except Exception as error:
        from httpx import HTTPError

        if not isinstance(error, HTTPError):
            raise
        raise ServerLostError(
            "the Prefect server went away while this ran. The ledger is the record: start the same"
            " command again, and it goes on with what is drawn and published; what a server of the"
            f" run's own said stands in {_shown_log()}"
        ) from None


def _log_file() -> Path:
    """What servers of runs' own say: they share the home of Prefect, and seldom say anything."""
    return Path(os.environ["PREFECT_HOME"]).expanduser() / "run-server.log"


def _shown_log() -> str:
    return os.path.relpath(_log_file())


@dataclass(frozen=True, kw_only=True)
class _OwnServer:
    url: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def _own_server() -> Iterator[_OwnServer]:
    """Start a server in a process of its own; it may not answer yet.

    It inherits a socket that listens already: no other process can take its port, and what is
    asked early is answered when it is up. It inherits a pipe, too, of which the other end is held
    here alone: when this process ends, by whatever signal, so does the server. What it says goes to
    a file beside its database, and not to a person's terminal.
    """
    process = None
    held, life = os.pipe()
    try:
        with open(held, "rb"), socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            port = int(listening.getsockname()[1])
            handed = listening.fileno()
            log = os.open(_log_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            # It lives on when a step is to end first.
            with os.fdopen(log, "ab") as output, shielded():
                process = subprocess.Popen(  # noqa: S603 - our own module, our own argument
                    [sys.executable, "-m", "flows.server", str(handed), str(held)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[handed, held],
                    env=ONE_RUN | os.environ,
                )
        yield _OwnServer(url=f"http://127.0.0.1:{port}/api", process=process)
    finally:  # also of a Ctrl-C that was held back while it started
        os.close(life)
        if process is not None:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _at(url: str) -> Iterator[None]:
    """Prefect's threads find the address too: it is one of the environment's.

    The flow's thread tells no heartbeats, whatever a person set: nobody at a server of one run
    listens for them, and at its end a flow waits up to a second for the thread that tells them.
    """
    from prefect.context import refresh_global_settings_context
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    os.environ["PREFECT_API_URL"] = url
    refresh_global_settings_context()
    try:
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield
    finally:
        del os.environ["PREFECT_API_URL"]
        refresh_global_settings_context()


def wait_for_server(own: _OwnServer | None = None) -> None:
    """Return when the Prefect server at `PREFECT_API_URL` has answered.

    Waits for `DPIW_SERVER_WAIT_SECONDS`, and says so once.

    Args:
        own: the short-lived server that is meant; if it ends, nothing is waited for.

    Raises:
        ServerUnreachableError: it did not answer.
    """
    seconds = float(os.environ["DPIW_SERVER_WAIT_SECONDS"])
    deadline, is_announced = time.monotonic() + seconds, False
    while not _answers():
        if own is not None and own.process.poll() is not None:
            raise ServerUnreachableError(
                f"the run's own Prefect server ended with code {own.process.returncode} before it"
                f" answered; nothing was read or spent. What it said stands in {_shown_log()}"
            )
        if time.monotonic() > deadline:
            raise ServerUnreachableError(
                f"no Prefect server answered for {seconds:.0f} s (DPIW_SERVER_WAIT_SECONDS);"
                " nothing was read or spent. Is the server of PREFECT_API_URL up?"
            )
        if not is_announced:
            sys.stdout.write(f"  waiting for the Prefect server, up to {seconds:.0f} s\n")
            sys.stdout.flush()
            is_announced = True
        _pause(PAUSE_SECONDS)


def _answers() -> bool:
    from httpx import TransportError
    from prefect.client.orchestration import get_client

    try:
        with get_client(sync_client=True) as client:
            client.raise_for_api_version_mismatch()  # the flow's own first question
        return True
    except TransportError:
        return False
    except RuntimeError as error:
        if not isinstance(error.__cause__, TransportError):
            raise
        return False


def _end_with(life: int) -> None:
    """Wait until nobody holds the other end of a pipe; then end as by a signal."""
    os.read(life, 1)
    _hear_sigterm()
    os.kill(os.getpid(), signal.SIGTERM)


def _hear_sigterm() -> None:
    """In this thread; it was held back where the server was started."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _serve(descriptor: int, life: int) -> None:
    """Be the short-lived server, on a socket that listens already, as long as its run lives."""
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app(ephemeral=True, final=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    server.run(sockets=[socket.socket(fileno=descriptor)])
    _hear_sigterm()  # and end by it


__all__ = ["ServerLostError", "ServerUnreachableError", "prefect_server", "wait_for_server"]

if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
