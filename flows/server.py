"""The Prefect server of a run that a person starts: theirs, or one of the run's own.

A server that starts, or restarts, or is busy makes a run late: Prefect repeats a request that was
not answered in time, but gives up at once where nobody listens yet. So such a run waits before its
flow, when nothing is read or spent. The server of a run's own serves what `prefect server start`
does, on a socket that the run has opened: nobody else can take its port and be told what runs. The
one that Prefect starts by itself outlives a run that is killed, ends with the first Ctrl-C, before
the step under way, and writes to the terminal.

    python -P flows/server.py    (that server; its socket is descriptor 4)
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dpiw.errors import DPIWError
from dpiw.run.shield import shielded

PAUSE_SECONDS = 0.5
"""Between two attempts."""

_WITH_ITS_RUN = (
    'exec 3<&0 4>&1 >&2; { read -r _ <&3; kill -s USR1 $$; } 4>&- & exec "$@" 3<&- </dev/null'
)
"""A shell's words: become a command, and send it SIGUSR1 when standard input is closed.

Standard output is the socket to serve on, which the command gets as descriptor 4.
"""

_SOCKET = 4

_STOP_SECONDS = 5.0

_pause = time.sleep


class ServerUnreachableError(DPIWError):
    """No Prefect server answered for `DPIW_SERVER_WAIT_SECONDS`. Nothing was read or spent."""

    exit_code = 71


class ServerLostError(ServerUnreachableError):
    """The Prefect server went away, or failed, while a flow ran."""


@contextlib.contextmanager
def prefect_server() -> Iterator[None]:
    """The Prefect server for the flows inside, once it has answered.

    That is the one at `PREFECT_API_URL`, of the environment or of a profile of Prefect's; without
    it a short-lived one, stopped on the way out.

    Raises:
        ServerUnreachableError: as `wait_for_server`; nothing inside was run.
        ServerLostError: it went away while something inside ran.
    """
    from prefect.settings import PREFECT_API_URL

    with contextlib.ExitStack() as stack:
        server = None
        if not (os.environ.get("PREFECT_API_URL") or PREFECT_API_URL.value()):
            server = stack.enter_context(_own_server())
        wait_for_server(server)
        with _told_if_lost():
            yield


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


@contextlib.contextmanager
def _own_server() -> Iterator[subprocess.Popen[bytes]]:
    """Start a server in a process of its own, and let Prefect ask it; it may not answer yet.

    Its standard input is a pipe, of which the other end is held here alone: when this process ends,
    by whatever signal, so does the server. What a terminal or a service manager sends to stop the
    run is for the run alone to hear: a step that ends first has a server until then. What it says
    goes to a file beside its database.

    Its socket listens before it starts, and is open in that process alone: when it ends, nobody
    listens there.
    """
    process = None
    held, life = os.pipe()
    try:
        log = os.open(_log_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with (
            open(held, "rb") as pipe,
            os.fdopen(log, "ab") as output,
            socket.create_server(("127.0.0.1", 0)) as listener,
            shielded(),
        ):
            port = int(listener.getsockname()[1])
            process = subprocess.Popen(  # noqa: S603 - our own words and arguments
                ["/bin/sh", "-c", _WITH_ITS_RUN, "sh", sys.executable, "-P", __file__],
                stdin=pipe, stdout=listener.fileno(), stderr=output, start_new_session=True,
                env={"PREFECT_SERVER_UI_ENABLED": "false"} | os.environ,
            )  # fmt: skip
        with _at(f"http://127.0.0.1:{port}/api"):
            yield process
    finally:
        os.close(life)
        if process is not None:
            _stop(process)


def _serve() -> int:
    """Serve on a socket that is open already, as `prefect server start` does on one of its own."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import PREFECT_SERVER_LOGGING_LEVEL

    level = PREFECT_SERVER_LOGGING_LEVEL.value().lower()
    server = uvicorn.Server(uvicorn.Config(create_app(final=True), log_level=level))
    signal.signal(signal.SIGUSR1, lambda *_: setattr(server, "should_exit", True))
    server.run([socket.socket(fileno=_SOCKET)])
    return 0 if server.started else ServerUnreachableError.exit_code


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _at(url: str) -> Iterator[None]:
    """Prefect's threads find the address too: it is one of the environment's."""
    from prefect.context import refresh_global_settings_context

    os.environ["PREFECT_API_URL"] = url
    refresh_global_settings_context()
    try:
        yield
    finally:
        del os.environ["PREFECT_API_URL"]
        refresh_global_settings_context()


def wait_for_server(own: subprocess.Popen[bytes] | None = None) -> None:
    """Return when the Prefect server at `PREFECT_API_URL` has answered.

    Waits for `DPIW_SERVER_WAIT_SECONDS`, and says so once where it is not the run's own.

    Args:
        own: the process of a short-lived one; if it ends, nothing is waited for.

    Raises:
        ServerUnreachableError: it did not answer.
    """
    seconds = float(os.environ["DPIW_SERVER_WAIT_SECONDS"])
    deadline, is_announced = time.monotonic() + seconds, False
    while not _answers():
        if own is not None and own.poll() is not None:
            raise ServerUnreachableError(
                f"the run's own Prefect server ended with code {own.returncode} before it"
                f" answered; nothing was read or spent. What it said stands in {_shown_log()}"
            )
        if time.monotonic() > deadline:
            raise ServerUnreachableError(
                f"no Prefect server answered for {seconds:.0f} s (DPIW_SERVER_WAIT_SECONDS);"
                " nothing was read or spent. Is the server of PREFECT_API_URL up?"
            )
        if own is None and not is_announced:
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


__all__ = ["ServerLostError", "ServerUnreachableError", "prefect_server", "wait_for_server"]


if __name__ == "__main__":
    sys.exit(_serve())
