"""A run waits for its Prefect server: one that is late, or busy, makes it late and no more."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import time
from unittest import mock

import prefect
import pytest
from prefect.client import orchestration
from prefect.settings import PREFECT_API_URL, Settings, temporary_settings
from rich.console import Console

import flows
from dpiw.run.launch import HELD as HELD_BACK
from flows import audit, console
from flows import server as waiting
from flows.server import ServerUnreachableError, wait_for_server
from tests.flows import conftest as server
from tests.support.patience import SECONDS, until


@pytest.fixture
def nobody(monkeypatch, no_backoff):
    """The address of a Prefect server where nobody listens yet."""
    url = f"http://127.0.0.1:{server.free_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        yield url


@pytest.fixture
def comes(nobody):
    """Let the server come up; it is to be called in a pause of whoever waits for it."""
    with contextlib.ExitStack() as running:

        @functools.cache
        def start():
            version = lambda request: server.answer_json(request, prefect.__version__)  # noqa: E731
            port = int(nobody.split(":")[2].split("/")[0])
            running.enter_context(server.answering(version, port=port))

        yield lambda _: start()


def test_a_late_server_is_waited_for_and_one_that_is_up_is_not(comes, monkeypatch, capsys):
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", flows.PATIENCE["DPIW_SERVER_WAIT_SECONDS"])
    monkeypatch.setattr(waiting, "_pause", comes)
    wait_for_server()
    assert capsys.readouterr().out == "  waiting for the Prefect server, up to 600 s\n"
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    wait_for_server()
    assert capsys.readouterr().out == ""


def test_the_wait_ends(nobody, monkeypatch):
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    with pytest.raises(ServerUnreachableError) as error:
        wait_for_server()
    assert error.value.exit_code == 71
    broken = mock.Mock(side_effect=RuntimeError("Found incompatible versions"))
    monkeypatch.setattr(orchestration, "get_client", broken)
    with pytest.raises(RuntimeError, match="incompatible"):  # which is not waited for
        wait_for_server()


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
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_a_signal_ends_leaves_no_server(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True, cwd=server.ROOT,
        env=os.environ | {"PREFECT_HOME": str(server.finished_database(tmp_path))},
    )  # fmt: skip
    url = process.stdout.readline().strip()
    assert server._healthy(url)
    process.send_signal(number)
    assert process.communicate(timeout=SECONDS)[0] == ""
    assert process.returncode == -number
    until(lambda: not server._healthy(url), what="the end of the server")


@pytest.mark.crash
def test_only_its_run_ends_an_own_server(tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(server.finished_database(tmp_path)))
    with waiting._own_server() as process:
        url = os.environ["PREFECT_API_URL"]
        until(lambda: server._healthy(url), what="the server")
        for number in HELD_BACK:
            process.send_signal(number)
        time.sleep(0.5)
        assert server._healthy(url)
    until(lambda: not server._healthy(url), what="the end of the server")


@pytest.mark.parametrize("option", [None, socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_nobody_takes_the_port_of_an_own_server_while_it_starts(monkeypatch, option):
    """Another person's server there would be told what runs; once ours is gone, nobody listens."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    real = subprocess.Popen

    def starts(command, **facts):
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


def test_prefect_takes_the_stated_patience(monkeypatch):
    for name, value in flows.PATIENCE.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert [
        settings.server.ephemeral.startup_timeout_seconds, settings.api.request_timeout,
        settings.client.max_retries, settings.server.database.timeout,
        settings.server.database.connection_timeout,
    ] == [float(flows.PATIENCE[name]) for name in flows.PATIENCE if "PREFECT" in name]  # fmt: skip


def test_a_server_that_a_profile_names_is_the_run_s(comes, monkeypatch):
    comes(0.0)
    monkeypatch.delenv("PREFECT_API_URL")
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    monkeypatch.setattr(waiting, "_own_server", None)  # which would fail
    with waiting.prefect_server():
        assert "PREFECT_API_URL" not in os.environ


@pytest.mark.parametrize("module", [console, audit])
def test_both_flows_wait_before_they_start(module, nobody, workplace, monkeypatch):
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    monkeypatch.setattr(module, "quiet_prefect", lambda: console.StepLog(Console()))
    arguments = [str(workplace.spec)] if module is console else ["--ledger", "sqlite:///l"]
    started: list[object] = []
    assert module.main(lambda *given: started.append(given), arguments) == 71
    assert started == []


def test_the_server_s_script_states_the_same_settings():
    """`deployments/serve.sh` starts the server itself: it repeats them, word for word."""
    text = (server.ROOT / "deployments/serve.sh").read_text()
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
