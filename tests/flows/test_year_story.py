"""examples/year, shortened: the story of `make year` and `make year-story`, with all its claims.

The nightly test starts the server, kills it, and stops all. Its twin of every suite fills the
calendar in this process, where the run that loses its server raises what Prefect's client does.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from docs import journeys
from dpiw.audit import audit, write_report
from flows import console, series
from flows.server import ServerLostError
from tests.flows.conftest import ROOT
from tests.support import whole_runs
from tests.support.patience import SECONDS, until
from tests.support.undrawn import draw_no_figures

SCRIPT = ROOT / "examples/year/year.py"
CLAIMS = 18


@pytest.fixture(scope="module")
def year():
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("year", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["year"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["year"]


@pytest.fixture
def played_here(year, tmp_path, monkeypatch, capsys):
    """A story of four months whose back-fills and audits need no server."""
    draw_no_figures(monkeypatch.setattr)
    monkeypatch.setattr(year, "ROWS", 400)
    monkeypatch.setattr(series, "prefect_server", contextlib.nullcontext)
    monkeypatch.setattr("flows.server.prefect_server", contextlib.nullcontext)
    place = year.Place.of(tmp_path / "year", 4)
    place.prepare()
    spec = place.folder / "release.yaml"
    spec.write_text(spec.read_text().replace("method: measured", "method: none"))

    class Played(year.Story):
        def first_fill(self):
            return self.fill()

        def fill(self, *, dies_in=None):
            def release(spec, period):
                run = whole_runs.draw(whole_runs.ReleaseRun.prepare(Path(spec), period=period))
                if period == dies_in:
                    raise ServerLostError("gone")
                return str(whole_runs.finish(run))

            monkeypatch.setattr(console, "release_flow", release)
            capsys.readouterr()
            series.main([str(place.folder / "release.yaml"), "--fill"])
            return capsys.readouterr().out

        def audit(self):
            keys = [place.folder / f"keys/{name}.pub" for name in ("curator", "second")]
            folders = sorted((place.folder / "site/releases").iterdir())
            report = audit(f"sqlite:///{place.folder / 'state/ledger.sqlite'}", folders, keys)
            write_report(report, place.folder / "audit")

    return Played(place)


@pytest.mark.slow
def test_the_story_holds_without_a_server(played_here):
    assert played_here.play() == 0, played_here.claims
    assert len(played_here.claims) == CLAIMS


@pytest.mark.nightly
def test_its_pictures_are_small(played_here, browser_path):
    assert played_here.play() == 0, played_here.claims
    shots = journeys.of_a_year(played_here.place.folder)
    with ThreadPoolExecutor(1) as thread:  # playwright's loop would be in the way of other tests
        taken = thread.submit(lambda: dict(journeys.pictures(shots, browser_path))).result()
    assert {*taken} <= {path.name for path in (ROOT / "docs/images").iterdir()}
    assert all(f"images/{name}" in (ROOT / "docs/year.md").read_text() for name in taken)
    sizes = {name: len(picture) for name, picture in taken.items()}
    assert len(sizes) == 3
    assert all(1_000 < size < 60_000 for size in sizes.values()), sizes


def running(group):
    """Whether a process of a group is there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


@pytest.mark.flow
@pytest.mark.nightly
def test_the_story_is_played_with_server_and_worker(year, tmp_path):
    folder, log = tmp_path / "year", tmp_path / "log"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "DPIW"))}
    words = [sys.executable, str(SCRIPT)]
    options = ["--folder", str(folder), "--months", "4"]
    with log.open("wb") as output:
        serving = subprocess.Popen(
            [*words, "serve", *options], env=environment, cwd=ROOT, stdout=output, stderr=output
        )
    try:
        until(
            lambda: b"\nsite " in log.read_bytes() or serving.poll() is not None, what="the start"
        )
        assert serving.poll() is None, log.read_text()
        told = subprocess.run(
            [*words, "story", *options], env=environment, cwd=ROOT, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert told.returncode == 0, told.stdout
        assert f"{CLAIMS} of {CLAIMS} claims hold" in told.stdout
        assert b"the Prefect server died and is started again" in log.read_bytes()
        facts = year.Place.of(folder).facts()
        assert year.answers(facts["pages"])
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(timeout=SECONDS) == 0
    assert not [name for name in ("server", "worker", "site") if running(facts[name])]
    again = subprocess.run([*words, "story", *options], env=environment, cwd=ROOT, check=False)
    assert again.returncode == 1  # played before
