"""A step that fails is told in sentences: no traceback on a terminal, none lost of our own code."""

import importlib
import logging
import os
import signal
import stat
import subprocess
import sys
from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from prefect.exceptions import Abort
from rich.console import Console

from dpiw.errors import SpecError, StageFailedError
from dpiw.run.run import ReleaseRun
from flows import console
from flows import server as servers
from flows.server import ServerLostError, ServerUnreachableError
from tasks.failures import OwnFailures, StepFailedError, only_our_own, show_sentences
from tasks.step import step
from tests.flows.conftest import ROOT, pickled
from tests.hostile.leaks.canaries import hits
from tests.support.patience import SECONDS, until

KILLED = StageFailedError("fit_generator", StageFailedError.exit_code)

AS_A_WORKER_S_CHILD = """
import sys
from flows.release import release
try:
    release(sys.argv[1])
except Exception as error:
    sys.exit(error.exit_code)
"""

WAITS = """
import os, pathlib, sys, time
if 'dpiw.run.process' in ' '.join(sys.orig_argv) and 'fit_generator' in sys.orig_argv:
    import dpiw.methods.generators.histogram as h
    def wait(*_, **__):
        (pathlib.Path({folder!r}) / 'pid').write_text(str(os.getpid()))
        time.sleep(600)
    h.Histogram.measure = wait
"""


@pytest.mark.crash
@pytest.mark.flow
@pytest.mark.parametrize("words", [["-c", AS_A_WORKER_S_CHILD], ["-m", "dpiw.cli.main", "release"]])
def test_a_killed_stage_shows_a_sentence_and_no_traceback(
    prefect_server, workplace, tmp_path, words
):
    (tmp_path / "sitecustomize.py").write_text(WAITS.format(folder=str(tmp_path)))
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "COLUMNS": "300"}
    process = subprocess.Popen(
        [sys.executable, *words, str(workplace.spec)], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.STDOUT, env=prefect_server.environment() | paths, cwd=ROOT,
    )  # fmt: skip
    pid = tmp_path / "pid"
    until(lambda: (pid.exists() and pid.read_text()) or process.poll() is not None, what="the draw")
    os.kill(int(pid.read_text()), signal.SIGKILL)
    output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == StageFailedError.exit_code
    assert "Traceback" not in output, output
    assert "stage fit_generator ended with code 70" in output


def logged(error: Exception, *, name: str) -> tuple[bool, logging.LogRecord]:
    record = logging.LogRecord(
        name, logging.ERROR, "f.py", 1, "went wrong: %r", (error,), (type(error), error, None)
    )
    return OwnFailures().filter(record), record


@pytest.mark.parametrize("error", [KILLED, StepFailedError("debias failed: KeyError")])
def test_our_own_errors_are_one_sentence(error):
    show_sentences()
    show_sentences()
    for name in ("prefect.task_runs", "prefect.flow_runs"):
        assert [type(f) for f in logging.getLogger(name).filters].count(OwnFailures) == 1
    shown, record = logged(error, name="prefect.task_runs")
    assert shown
    assert record.exc_info is None
    assert record.getMessage().startswith(f"{type(error).__name__}: {error}. What to do: ")
    assert not logged(error, name="prefect.flow_runs")[0]  # its end says the same


def test_what_prefect_runs_into_is_shown_as_ever():
    shown, record = logged(OSError("no route"), name="prefect.flow_runs")
    assert shown
    assert record.exc_info is not None
    plain = logging.LogRecord("prefect.task_runs", logging.INFO, "f.py", 1, "fine", (), None)
    assert OwnFailures().filter(plain)


def broken(*_: Any, **__: Any) -> None:
    raise KeyError("of our own")


def test_a_step_s_own_failure_stands_in_the_run_s_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in ([], ["town"], [Path("nowhere")]):  # without a run nothing is kept
        with pytest.raises(StepFailedError):
            step("plan", done="done")(broken).fn(*given)
    assert not list(tmp_path.iterdir())
    (tmp_path / "log").mkdir()
    with pytest.raises(StepFailedError, match="debias failed: KeyError"):
        step("debias", done="done")(broken).fn(tmp_path)
    log = tmp_path / "log" / "debias.log"
    assert "KeyError: 'of our own'" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def fails(
    place: Any, monkeypatch: pytest.MonkeyPatch, flow: Callable[..., str], *, prepared: bool = True
) -> int:
    """What a person's run ends with whose flow does, as if a server had answered."""

    def publish(flow: Any, parsed: Any, request: Any, heard: Any, **_: Any) -> Path:
        heard.run = ReleaseRun.prepare(parsed.spec, period=None) if prepared else None
        return Path(flow())

    monkeypatch.setattr(console, "_publish", publish)
    monkeypatch.setattr(console, "quiet_prefect", lambda: console.StepLog(Console()))
    return console.main(flow, [str(place.spec)])


def test_what_nobody_thought_of_is_kept_and_not_shown(workplace, monkeypatch, capsys):
    """A failed step is told by its name; before a run is prepared nothing is hidden."""

    def step(*_):
        raise StepFailedError("debias failed: KeyError")

    with pytest.raises(KeyError):
        fails(workplace, monkeypatch, broken, prepared=False)
    assert fails(workplace, monkeypatch, step) == 1
    assert "not published: debias failed: KeyError\n" in capsys.readouterr().out
    assert fails(workplace, monkeypatch, broken) == 1
    captured = capsys.readouterr()
    assert "not published: KeyError\n(confidential log: " in captured.out
    assert "of our own" not in captured.out + captured.err
    log = ReleaseRun.prepare(workplace.spec, period=None).directory / "log" / "release.log"
    assert "KeyError: 'of our own'" in log.read_text()


CANARY = "Quillonworth7731"
"""A word of a file."""


class PanicError(BaseException):
    """As a library in Rust panics: no `Exception`."""


BODIES = {
    "release": (("flows.release", ("plan", "due", "reruns", "published")),
                {"spec": "r.yaml"}),
    "audit": (("flows.audit", ("release_folders", "key_files", "audit_task", "report_audit",
                               "found")),
              {"ledger": "l.sqlite", "releases": "inside"}),
    "series": (("flows.series", ("show_series", "check_complete")), {"spec": "r.yaml"}),
    "local": (("flows.local", ("collect_reports", "publish_reports")), {"spec": "r.yaml"}),
}  # fmt: skip
"""Every flow, and what its body calls, one after the other."""


@pytest.mark.parametrize(
    "error", [KeyError(CANARY), OSError(2, CANARY, CANARY), AssertionError(CANARY),
              UnicodeDecodeError("utf-8", CANARY.encode(), 0, 1, CANARY), PanicError(CANARY),
              httpx.ConnectError(CANARY), RecursionError(CANARY), ExceptionGroup(CANARY,
              [ValueError(CANARY)])], ids=lambda error: type(error).__name__
)  # fmt: skip
@pytest.mark.parametrize("name", BODIES)
def test_what_a_flow_s_own_body_runs_into_is_its_class(name, error, monkeypatch):
    (module_name, called), parameters = BODIES[name]
    module = importlib.import_module(module_name)
    flow = {"local": "collect"}.get(name, name)
    for file in ("load_local_spec", "spec_below_root", "ledger_below_root", "below_root"):
        monkeypatch.setattr(module, file, mock.MagicMock(), raising=False)
    if name == "audit":
        monkeypatch.setattr(module, "places", lambda *_: ("l.sqlite", Path("inside")))
    for place in range(len(called)):
        for function in called:
            monkeypatch.setattr(module, function, mock.MagicMock())

        def breaks(*_, **__):
            try:
                raise SpecError(CANARY)
            except SpecError:
                raise error  # noqa: B904 - what led to it must not leave either

        monkeypatch.setattr(module, called[place], mock.MagicMock(side_effect=breaks))
        if called[place] == "published":
            monkeypatch.setattr(module, "reruns", lambda: 0)
        with pytest.raises((StepFailedError, httpx.HTTPError)) as refusal:
            getattr(module, flow).fn(**parameters)
        assert str(refusal.value).endswith(f" failed: {type(error).__name__}"), called[place]
        assert hits(pickled(refusal.value), [CANARY]) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3), CancelledError(), Abort()])
def test_what_stops_a_run_by_intent_stops_it(stop):
    def body():
        raise stop

    for guarded in (only_our_own("x")(body), step("x", done="done")(body).fn):
        with pytest.raises(type(stop)) as caught:
            guarded()
        assert caught.value is stop


def test_every_flow_is_guarded():
    found = {path.stem for path in (ROOT / "flows").glob("*.py") if "@flow(" in path.read_text()}
    assert found == set(BODIES)


@pytest.mark.parametrize("error", [KeyError(CANARY), SpecError(CANARY), RecursionError(CANARY)])
def test_the_name_of_a_run_is_found_whatever_its_spec_does(error, monkeypatch):
    module = importlib.import_module("flows.release")
    for broken in ("load_spec", "spec_below_root", "due"):
        with monkeypatch.context() as patch:
            patch.setattr(module, "load_spec", mock.MagicMock())
            patch.setattr(module, "spec_below_root", mock.MagicMock())
            patch.setattr(module, broken, mock.MagicMock(side_effect=error))
            assert module.title(Path("desk/town.yaml"), None) == "town"


def test_a_server_that_went_away_is_told(monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr(servers, "wait_for_server", lambda _: None)  # it answered before
    with pytest.raises(ServerLostError) as caught, servers.prefect_server():
        raise httpx.ConnectError("[Errno 111] Connection refused")
    assert caught.value.exit_code == ServerUnreachableError.exit_code
    assert caught.value.__suppress_context__
    with pytest.raises(KeyError), servers.prefect_server():
        broken()


def test_a_server_of_the_run_s_own_that_ends_is_not_waited_for_and_its_words_are_kept(
    monkeypatch, tmp_path, capfd
):
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "600")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    real = subprocess.Popen
    words = ["sh", "-c", "echo Traceback >&2; exit 3"]
    monkeypatch.setattr(servers.subprocess, "Popen", lambda _, **given: real(words, **given))
    with pytest.raises(ServerUnreachableError) as caught, servers.prefect_server():
        pass
    log = tmp_path / "run-server.log"
    assert "ended with code 3 " in str(caught.value)
    assert os.path.relpath(log) in str(caught.value)
    assert log.read_text() == "Traceback\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert capfd.readouterr() == ("", "")
