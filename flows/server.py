"""The Prefect server of a run that a person starts: theirs, or one of the run's own.

The run waits for it before the flow, as Prefect gives up at once if nobody listens. The own
server's socket (descriptor 4) is opened by the run: no other process can take its port and see what
runs. Prefect's temporary server outlives killed runs and ends before a step does.
"""

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
from dpiw.run.launch import shielded

PAUSE_SECONDS = 0.5

_WITH_ITS_RUN = (
    'exec 3<&0 4>&1 >&2; { read -r _ <&3; kill -s USR1 $$; } 4>&- & exec "$@" 3<&- </dev/null'
)
"""Shell: run the command on socket 4 (standard output); SIGUSR1 when standard input closes."""

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
    """Provide a Prefect server that has answered: at `PREFECT_API_URL`, else a temporary one.

    Raises ServerUnreachableError before the block, ServerLostError if it went away during it.
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
    """Replace Prefect's traceback by one sentence once it gives up a request."""
    try:
        yield
    except Exception as error:
        from httpx import HTTPError

        if not isinstance(error, HTTPError):
            raise
        raise ServerLostError(
            "the Prefect server stopped answering during the run. Start the same command again: the"
            " ledger knows what was drawn and published, and the run continues from there. If dpiw"
            f" started the server, its output is in {os.path.relpath(_log_file())}"
        ) from None


def _log_file() -> Path:
    return Path(os.environ["PREFECT_HOME"]).expanduser() / "run-server.log"


@contextlib.contextmanager
def _own_server() -> Iterator[subprocess.Popen[bytes]]:
    """Start a server process and direct Prefect to it; it may not answer yet.

    Only this process holds the other end of its standard input, so the server ends with it,
    whatever signal ends it. It is shielded from the run's signals: a step that ends first keeps its
    server.
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
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _serve() -> int:
    """Serve on an inherited socket, as `prefect server start` does on its own."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import PREFECT_SERVER_LOGGING_LEVEL

    level = PREFECT_SERVER_LOGGING_LEVEL.value().lower()
    server = uvicorn.Server(uvicorn.Config(create_app(final=True), log_level=level))
    signal.signal(signal.SIGUSR1, lambda *_: setattr(server, "should_exit", True))
    server.run([socket.socket(fileno=_SOCKET)])
    return 0 if server.started else ServerUnreachableError.exit_code


@contextlib.contextmanager
def _at(url: str) -> Iterator[None]:
    """Set the address in the environment, where Prefect's threads read it."""
    from prefect.context import refresh_global_settings_context

    os.environ["PREFECT_API_URL"] = url
    refresh_global_settings_context()
    try:
        yield
    finally:
        del os.environ["PREFECT_API_URL"]
        refresh_global_settings_context()


def wait_for_server(own: subprocess.Popen[bytes] | None = None) -> None:
    """Return when the server has answered, or raise ServerUnreachableError.

    Waits for `DPIW_SERVER_WAIT_SECONDS`, announced unless `own`, the run's server, is given.
    """
    seconds = float(os.environ["DPIW_SERVER_WAIT_SECONDS"])
    deadline, is_announced = time.monotonic() + seconds, False
    while not _answers():
        if own is not None and own.poll() is not None:
            raise ServerUnreachableError(
                f"the Prefect server that dpiw started ended with code {own.returncode} before it"
                " answered; nothing was read or spent. Read its output in"
                f" {os.path.relpath(_log_file())}, and start the run again"
            )
        if time.monotonic() > deadline:
            raise ServerUnreachableError(
                f"no Prefect server answered for {seconds:.0f} s (DPIW_SERVER_WAIT_SECONDS);"
                " nothing was read or spent. Start the server at PREFECT_API_URL, or raise"
                " DPIW_SERVER_WAIT_SECONDS, and start the run again"
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
            client.raise_for_api_version_mismatch()  # the flow's own first request
        return True
    except TransportError:
        return False
    except RuntimeError as error:
        if not isinstance(error.__cause__, TransportError):
            raise
        return False


if __name__ == "__main__":
    sys.exit(_serve())
