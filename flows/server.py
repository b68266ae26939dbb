"""Waiting for the Prefect server: one that starts, or restarts, or is busy makes a run late.

Prefect repeats a request that was not answered in time, but gives up at once where nobody listens
yet, and where the short-lived server that it starts itself takes 5 seconds for its first answer.
So a run that a person starts waits here before its flow, when nothing is read or spent.
"""

from __future__ import annotations

import os
import sys
import time

from httpx import TransportError
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL

from dpiw.errors import DPIWError

PAUSE_SECONDS = 1.0
"""Between two attempts."""

_pause = time.sleep


class ServerUnreachableError(DPIWError):
    """No Prefect server answered for `DPIW_SERVER_WAIT_SECONDS`. Nothing was read or spent."""

    exit_code = 71


def wait_for_server() -> None:
    """Return when the Prefect server that a flow would use has answered.

    That is the one at `PREFECT_API_URL`; without it a short-lived one, which is started. Waits for
    `DPIW_SERVER_WAIT_SECONDS`, and says so once.

    Raises:
        ServerUnreachableError: it did not answer.
    """
    seconds = float(os.environ["DPIW_SERVER_WAIT_SECONDS"])
    deadline, said = time.monotonic() + seconds, False
    while not _answers():
        if time.monotonic() > deadline:
            raise ServerUnreachableError(
                f"no Prefect server answered for {seconds:.0f} s (DPIW_SERVER_WAIT_SECONDS);"
                " nothing was read or spent. Is the server of PREFECT_API_URL up?"
            )
        if not said:
            sys.stdout.write(f"  waiting for the Prefect server, up to {seconds:.0f} s\n")
            sys.stdout.flush()
            said = True
        _pause(PAUSE_SECONDS)


def _answers() -> bool:
    try:
        with get_client(sync_client=True) as client:
            client.raise_for_api_version_mismatch()  # the flow's own first question
        return True
    except TransportError:
        pass
    except RuntimeError as error:
        if not isinstance(error.__cause__, TransportError):
            raise
    _stop_own_server()
    return False


def _stop_own_server() -> None:
    """Give up a short-lived server that did not answer; the next attempt starts another."""
    if not PREFECT_API_URL.value():
        from prefect.server.api.server import SubprocessASGIServer

        SubprocessASGIServer().stop()


__all__ = ["ServerUnreachableError", "wait_for_server"]
