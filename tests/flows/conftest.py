"""A real Prefect server for the flow tests, and a way to run the flow as a person would."""

import contextlib
import http.server
import importlib.metadata
import json
import logging
import os
import pickle
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows import PATIENCE
from tests.support.patience import SECONDS, until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def progress_is_told_to_all_again():
    """After a flow that ran in this process and showed its steps on its own terminal."""
    logger = logging.getLogger("dpiw.progress")
    level, propagate, handlers = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers[:] = propagate, handlers


@dataclass(frozen=True, kw_only=True)
class PrefectServer:
    """A server of our own: its address and its home folder."""

    url: str
    home: Path

    def environment(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
        return clean | {
            "PREFECT_API_URL": self.url,
            "PREFECT_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            "DPIW_ROOT": "/",  # workplaces of tests lie anywhere
            **PATIENCE,
        }

    def python(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Python with these words, which finds this server."""
        return subprocess.run(
            [sys.executable, *map(str, words)], capture_output=True, text=True, cwd=ROOT,
            env=self.environment() | environment, check=False,
        )  # fmt: skip

    def run_flow(self, spec: Path) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "flows", spec)

    def results(self) -> dict[str, bytes]:
        """What Prefect stores of results, by file: a failed run's error, whatever the settings."""
        files = (path for path in (self.home / "storage").rglob("*") if path.is_file())
        return {path.name: path.read_bytes() for path in files}

    def everything_stored(self) -> bytes:
        """Every byte Prefect keeps: database, write-ahead log, results, server log."""
        files = [path for path in self.home.rglob("*") if path.is_file()]
        assert any(path.name == "prefect.db" for path in files)
        return b"".join(map(_bytes, files))

    def api(self, path: str, body: dict[str, Any] | None = None, *, method: str = "POST") -> Any:
        """Ask the server; `path` lies below `/api/`."""
        request = urllib.request.Request(
            f"{self.url}/{path}", data=json.dumps(body or {}).encode(), method=method,
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        return until(lambda: _answer(request), every=0.5, what=f"an answer to {path}")[0]

    def newest_run(self) -> dict[str, Any]:
        """The flow run that started last."""
        return self.api("flow_runs/filter", {"sort": "START_TIME_DESC"})[0]

    def run_of(self, spec: Path) -> dict[str, Any]:
        """The one flow run of a spec."""
        runs = self.api("flow_runs/filter", {"sort": "START_TIME_DESC"})
        (run,) = [
            candidate for candidate in runs if candidate["parameters"].get("spec") == str(spec)
        ]
        return run

    def tasks(self, run: dict[str, Any], *, last: str) -> list[dict[str, Any]]:
        """The tasks of a flow run that has ended, in order, once Prefect has recorded them all.

        They are recorded asynchronously. A run ends with its task `last`, or with one that failed.
        """

        def ended() -> list[dict[str, Any]]:
            mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}
            recorded = self.api("task_runs/filter", mine)
            over = all(task["state_type"] in ("COMPLETED", "FAILED") for task in recorded)
            names = [task["name"].rsplit("-", 1)[0] for task in recorded]
            failed = any(task["state_type"] == "FAILED" for task in recorded)
            return recorded if over and (failed or last in names) else []

        return sorted(
            until(ended, what="the end of the tasks"), key=lambda task: task["start_time"]
        )

    def log_lines(self, run: dict[str, Any], number: int) -> list[dict[str, Any]]:
        """The lines of a flow run, in order, once this many have been recorded."""
        body = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "sort": "TIMESTAMP_ASC"}

        def recorded() -> list[dict[str, Any]]:
            lines = self.api("logs/filter", body)
            return lines if len(lines) >= number else []

        return until(recorded, every=0.5, what=f"{number} lines")


def _answer(request: urllib.request.Request) -> list[Any]:
    """The answer, in a list; an empty one from a busy server, which says 503."""
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return [json.loads(response.read() or b"null")]
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 503:
                raise
        return []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # a server's journals come and go
        return b""


def _healthy(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/health", timeout=30).close()
    except OSError:
        return False
    return True


@pytest.fixture
def no_backoff(monkeypatch):
    """Where nobody listens, Prefect's client tries again at once, and not after 1.5 s."""
    with contextlib.suppress(ImportError):  # a later one may keep it elsewhere: it takes 1.5 s
        import httpcore._sync.connection as connection

        monkeypatch.setattr(connection, "RETRIES_BACKOFF_FACTOR", 0.0, raising=False)


TEMPLATE = ROOT / "build" / "tests" / f"prefect-{importlib.metadata.version('prefect')}.db"
"""Prefect's finished, empty database: to make it takes a server longer than all else of a start."""


def finished_database(home: Path) -> Path:
    """A home for a server to start in, with that database if some server has made it before."""
    home.mkdir(mode=0o700, exist_ok=True)
    if TEMPLATE.exists():
        shutil.copyfile(TEMPLATE, home / "prefect.db")
    return home


def _keep_database(home: Path) -> None:
    """Of a server that is up, before anything runs on it."""
    if not TEMPLATE.exists():
        TEMPLATE.parent.mkdir(parents=True, exist_ok=True)
        own = TEMPLATE.with_suffix(f".{os.getpid()}")
        with (
            contextlib.closing(sqlite3.connect(home / "prefect.db")) as made,
            contextlib.closing(sqlite3.connect(own)) as kept,
        ):
            made.backup(kept)
        own.replace(TEMPLATE)


Answer = Callable[[http.server.BaseHTTPRequestHandler], object]


@contextlib.contextmanager
def answering(answer: Answer, *, port: int = 0) -> Iterator[tuple[str, list[str]]]:
    """A server that takes every request to `answer`: where it is, and what it is asked."""
    met: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            met.append(self.path)
            answer(self)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """A test's output is its own."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/api", met
        finally:
            server.shutdown()
            thread.join()


def answer_json(request: http.server.BaseHTTPRequestHandler, body: object, code: int = 200) -> None:
    text = json.dumps(body).encode()
    request.send_response(code)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory):
    """Start `prefect server start` on a free port; stopped at the end of the session."""
    home = finished_database(tmp_path_factory.mktemp("prefect"))
    port = free_port()
    server = PrefectServer(url=f"http://127.0.0.1:{port}/api", home=home)
    environment = server.environment() | {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1",
             "--port", str(port)],
            stdout=log, stderr=log, env=environment, umask=0o077,
        )  # fmt: skip
        try:
            ended = lambda: process.poll() is not None  # noqa: E731
            until(lambda: _healthy(server.url) or ended(), what="the start of the server")
            assert not ended(), (home / "server.log").read_text()
            _keep_database(home)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=SECONDS)


DESCRIPTION = (
    r"(fit_generator|fit_weights): step \d{1,6} of \d{1,6}\. The run's epsilon [\d.]+ \(delta"
    r" [\d.E+-]+\) was charged in full before the first step\."
)
"""All that the progress artefact of a training may say."""

NEURAL = {
    "settings: {bins: 4}": "settings: {steps: 20, lot: 64, batch: 32, generator: [8],"
                           " discriminator: [8], device: auto}",
    "when_infeasible: keep": "when_infeasible: keep, settings: {steps: 30, lot: 64, hidden: [8]}",
}  # fmt: skip


@pytest.fixture
def train():
    """Make a workplace's spec train: a GAN that may use a GPU, and weights that may not."""

    def train(place):
        place.write_spec(generator="dpgan", weights="dp_mlp")
        for old, new in NEURAL.items():
            place.rewrite(old, new)

    return train


def pickled(error: BaseException) -> bytes:
    """An error as processes pickle it, and as Prefect does."""
    import cloudpickle

    kept = [pickle.dumps(error, protocol=protocol) for protocol in range(2, 6)]
    return b"".join([*kept, cloudpickle.dumps(error)])
