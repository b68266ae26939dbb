"""A run waits for its Prefect server: one that is late, or busy, makes it late and no more."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import prefect
import pytest
from prefect.client import orchestration
from prefect.client.orchestration import get_client
from prefect.settings import (
    PREFECT_API_URL,
    Settings,
    temporary_settings,
)
from rich.console import Console

import flows
from dpiw.run.shield import HELD as HELD_BACK
from flows import audit, console
from flows import server as waiting
from flows.server import ServerUnreachableError, wait_for_server
from tests.flows.conftest import ROOT, _healthy, free_port
from tests.support.patience import SECONDS, until


class Version(http.server.BaseHTTPRequestHandler):
    """Answers as a Prefect server does when it is asked for its version."""

    def do_GET(self) -> None:
        body = json.dumps(prefect.__version__).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, no_backoff: None) -> Iterator[str]:
    """The address of a Prefect server where nobody listens yet."""
    url = f"http://127.0.0.1:{free_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        yield url


@pytest.fixture
def comes(nobody: str) -> Iterator[Callable[[float], None]]:
    """Let the server come up; it is to be called in a pause of whoever waits for it."""
    running: list[tuple[http.server.HTTPServer, threading.Thread]] = []

    def start(_: float) -> None:
        if not running:
            address = ("127.0.0.1", int(nobody.split(":")[2].split("/")[0]))
            server = http.server.ThreadingHTTPServer(address, Version)
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            running.append((server, thread))

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_late_server_is_waited_for(
    comes: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", flows.PATIENCE["DPIW_SERVER_WAIT_SECONDS"])
    monkeypatch.setattr(waiting, "_pause", comes)
    wait_for_server()
    assert capsys.readouterr().out == "  waiting for the Prefect server, up to 600 s\n"


def test_a_server_that_is_up_is_not_waited_for(
    comes: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    comes(0.0)
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    wait_for_server()
    assert capsys.readouterr().out == ""


def test_without_waiting_it_fails(nobody: str) -> None:
    """The control: Prefect alone gives up at once, as a flow did before."""
    with (
        get_client(sync_client=True) as client,
        pytest.raises(RuntimeError, match="Failed to reach API"),
    ):
        client.raise_for_api_version_mismatch()


def test_the_wait_ends(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    with pytest.raises(ServerUnreachableError, match="answered for 0 s") as error:
        wait_for_server()
    assert "nothing was read or spent" in str(error.value)
    assert error.value.exit_code == 71


def test_another_error_is_not_waited_for(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("Found incompatible versions")

    monkeypatch.setattr(orchestration, "get_client", broken)
    with pytest.raises(RuntimeError, match="incompatible"):
        wait_for_server()


def without_a_server(home: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT")}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=ROOT,
        env=clean | flows.PATIENCE | {"PREFECT_HOME": str(home)} | more,
    )  # fmt: skip


HELD = """
import os, time
from flows.server import prefect_server
with prefect_server():
    print(os.environ["PREFECT_API_URL"], flush=True)
    time.sleep(600)
"""
"""A run under way, once its own server is up."""


@pytest.mark.crash
@pytest.mark.flow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_a_run_that_a_signal_ends_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=os.environ | {"PREFECT_HOME": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert _healthy(url)
    process.send_signal(number)
    assert process.communicate(timeout=SECONDS)[0] == ""
    assert process.returncode == -number
    until(lambda: not _healthy(url), what="the end of the server")


@pytest.mark.crash
def test_only_its_run_ends_an_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager may send SIGTERM to every process, while a draw is to end first."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    with waiting._own_server() as process:
        url = os.environ["PREFECT_API_URL"]
        until(lambda: _healthy(url), what="the server")
        for number in HELD_BACK:
            process.send_signal(number)
        time.sleep(0.5)
        assert _healthy(url)
    until(lambda: not _healthy(url), what="the end of the server")


@pytest.mark.crash
def test_an_audit_s_own_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    nowhere = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:////dev/null/none.db"}
    done = without_a_server(tmp_path, "-m", "flows.audit", "--ledger", "sqlite:///l", **nowhere)
    assert done.returncode == ServerUnreachableError.exit_code, done.stderr
    assert "own Prefect server ended with code" in done.stdout


def test_an_own_server_that_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", flows.PATIENCE["DPIW_SERVER_WAIT_SECONDS"])
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    real = subprocess.Popen
    monkeypatch.setattr(waiting.subprocess, "Popen", lambda *_, **__: real(["sh", "-c", "exit 3"]))
    with pytest.raises(ServerUnreachableError, match="code 3 "), waiting.prefect_server():
        pass


@pytest.mark.parametrize("option", [None, socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_nobody_takes_the_port_of_an_own_server_while_it_starts(
    monkeypatch: pytest.MonkeyPatch, option: int | None
) -> None:
    """Another person's server there would be told what runs; once ours is gone, nobody listens."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    real = subprocess.Popen

    def starts(command: list[str], **facts: Any) -> subprocess.Popen[bytes]:
        with socket.socket() as other, socket.socket(fileno=os.dup(facts["stdout"])) as held:
            if option is not None:
                other.setsockopt(socket.SOL_SOCKET, option, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(held.getsockname())
        return real([*command[:4], "sleep", "600"], **facts)

    monkeypatch.setattr(waiting.subprocess, "Popen", starts)
    with waiting._own_server() as process:
        port = int(os.environ["PREFECT_API_URL"].split(":")[2].split("/")[0])
        socket.create_connection(("127.0.0.1", port)).close()
        process.kill()
        process.wait()
        refused = False
        for _ in range(100):  # the shell's other half may hold it for some moments more
            with socket.socket() as asked:
                refused = refused or asked.connect_ex(("127.0.0.1", port)) != 0
            time.sleep(0 if refused else 0.05)
        assert refused


def test_prefect_takes_the_stated_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name is one that this Prefect knows, and its value arrives."""
    for name, value in flows.PATIENCE.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert [
        settings.server.ephemeral.startup_timeout_seconds, settings.api.request_timeout,
        settings.client.max_retries, settings.server.database.timeout,
        settings.server.database.connection_timeout,
    ] == [float(flows.PATIENCE[name]) for name in flows.PATIENCE if "PREFECT" in name]  # fmt: skip


def test_a_server_that_a_profile_names_is_the_run_s(
    comes: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    comes(0.0)
    monkeypatch.delenv("PREFECT_API_URL")
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    monkeypatch.setattr(waiting, "_own_server", None)  # which would fail
    with waiting.prefect_server():
        assert "PREFECT_API_URL" not in os.environ


@pytest.mark.parametrize("module", [console, audit])
def test_both_flows_wait_before_they_start(
    module: Any, nobody: str, workplace: Any,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    monkeypatch.setattr(module, "quiet_prefect", lambda: console.StepLog(Console()))
    arguments = [str(workplace.spec)] if module is console else ["--ledger", "sqlite:///l"]
    started: list[object] = []
    assert module.main(lambda *given: started.append(given), arguments) == 71
    assert started == []
    assert "no Prefect server answered" in capsys.readouterr().out


def test_the_server_s_script_states_the_same_settings() -> None:
    """`deployments/serve.sh` starts the server itself: it repeats them, word for word."""
    text = (ROOT / "deployments/serve.sh").read_text()
    exported = dict(
        word.split("=", 1)
        for line in text.splitlines()
        if line.startswith("export ")
        for word in line.removeprefix("export ").split()
    )
    ours = {k: v for k, v in exported.items() if k in flows.PREFECT_DEFAULTS and "$" not in v}
    left_out = {"PREFECT_HOME", "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS",
                "DPIW_RERUN_SECONDS", "DPIW_SERVER_WAIT_SECONDS"}  # fmt: skip
    assert ours == {k: v for k, v in flows.PREFECT_DEFAULTS.items() if k not in left_out}
