"""A person who starts a run that is published: it is checked, and nothing else is started."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from rich.console import Console

from dpiw.errors import ChecksumError, LedgerTamperedError, ManifestError, SignatureError
from dpiw.ledger import Ledger
from dpiw.release.signing import create_key_pair
from dpiw.release.verification import verify
from dpiw.run import steps
from flows import console
from flows.server import ServerUnreachableError
from tests.flows.conftest import ROOT, free_port
from tests.support.whole_runs import publish_run


def start(place: Any, *before: str) -> subprocess.CompletedProcess[str]:
    """`python -m flows`, where no Prefect server answers and no other process may start."""
    code = "; ".join((*before, PATCH))
    return subprocess.run(
        [sys.executable, "-c", code, str(place.spec)],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {
            "PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api",
            "DPIW_SERVER_WAIT_SECONDS": "0",
        },
    )  # fmt: skip


PATCH = """import os, runpy, subprocess, sys
class refused(subprocess.Popen):  # annotations name Popen[bytes]
    def __init__(self, *_, **__):
        raise AssertionError("a process was started")
subprocess.Popen = os.fork = os.posix_spawn = refused
def told():
    print("loaded:", *sorted({"prefect", "great_expectations", "matplotlib"} & set(sys.modules)))
import atexit; atexit.register(told)
runpy.run_module("flows", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def started_here(monkeypatch, no_backoff):
    """The same start in this process, which starts no process and no flow: its exit status."""
    url = f"http://127.0.0.1:{free_port()}/api"
    monkeypatch.setattr(subprocess, "Popen", mock.Mock(side_effect=AssertionError))
    monkeypatch.setattr(console, "quiet_prefect", lambda: console.StepLog(Console()))
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        yield lambda place: console.main(pytest.fail, [str(place.spec)])


def bytes_of(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.iterdir()}


@pytest.fixture(scope="module")
def made(make_workplace):
    """A workplace with one published run; its bytes, and the ledger before it."""
    place = make_workplace()
    old_ledger = place.ledger.read_bytes()
    run, folder = publish_run(place.spec)
    shutil.copytree(place.root, place.root.with_suffix(".kept"))
    return SimpleNamespace(
        place=place, old_ledger=old_ledger, run=run, folder=folder, contents=bytes_of(folder)
    )


@pytest.fixture
def published(made):
    """Made once, and put back for each test."""
    root = made.place.root
    shutil.rmtree(root)
    shutil.copytree(root.with_suffix(".kept"), root)
    return made


@pytest.mark.slow
def test_nothing_is_started_spent_or_written(published):
    place, folder = published.place, published.folder
    head = Ledger.open(place.ledger).head()
    again = start(place)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "already published, nothing spent" in again.stdout
    assert re.search(rf"verify \S*{folder.name} --key \S+/test\.pub\n", again.stdout)
    for reason in verify(folder).certificate.diagnostics["reasons"]:
        assert f"\n           {reason}\n" in again.stdout
    assert "loaded:\n" in again.stdout  # neither Prefect nor what reads or draws
    assert Ledger.open(place.ledger).head() == head
    assert bytes_of(folder) == published.contents
    assert list(place.releases.iterdir()) == [folder]
    assert list((published.run.directory / "log").iterdir()) == []


@pytest.mark.crash
def test_a_run_that_is_new_asks_the_server(workplace, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "new" / "prefect"))
    first = start(workplace)
    assert first.returncode == ServerUnreachableError.exit_code, first.stdout + first.stderr
    assert "loaded: prefect\n" in first.stdout


def change(path: Path) -> None:
    """Another byte where one was."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))


def another_key(published: SimpleNamespace) -> None:
    keys = published.place.root / "state/keys"
    for half in ("key", "pub"):
        (keys / f"test.{half}").rename(keys / f"old.{half}")
    create_key_pair(keys, "test")


HARMS = {
    "another signing key": (another_key, SignatureError),
    "a changed table": (lambda p: change(p.folder / "synthetic.parquet"), ChecksumError),
    "one file more": (lambda p: (p.folder / "extra.txt").write_text("more"), ManifestError),
    "a changed draw": (lambda p: change(p.run.measurement("fit_generator")), LedgerTamperedError),
    "a draw that is gone": (
        lambda p: p.run.measurement("fit_weights").unlink(), LedgerTamperedError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_what_was_harmed_since_is_not_called_published(published, started_here, harm, capsys):
    done, error = HARMS[harm]
    done(published)
    assert started_here(published.place) == error.exit_code
    output = capsys.readouterr().out
    assert "already published" not in output


@pytest.mark.parametrize(
    ("file", "code", "said"),
    [
        ("report.html", ChecksumError.exit_code, "move it out of "),
        ("manifest.sig", SignatureError.exit_code, "nothing is released until that is done"),
    ],
)
def test_a_damaged_release_is_named_and_published_anew(
    published, capsys, started_here, file, code, said
):
    place, folder = published.place, published.folder
    spent = Ledger.open(place.ledger).spent("town")
    change(folder / file)
    assert started_here(place) == code
    output = " ".join(capsys.readouterr().out.split())
    assert f"{folder.name}" in output
    assert said in output
    folder.rename(place.root / "damaged")
    steps.publish(published.run)
    assert bytes_of(folder) == published.contents
    assert Ledger.open(place.ledger).spent("town") == spent


def test_a_release_that_is_gone_is_published_by_the_flow(published, started_here):
    published.folder.rename(published.folder.with_name("elsewhere"))
    assert started_here(published.place) == ServerUnreachableError.exit_code


def test_an_old_copy_of_the_ledger_is_found_out(published, started_here, capsys):
    ledger = published.place.ledger
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    ledger.write_bytes(published.old_ledger)
    # Not published in this ledger: the flow is to say why it cannot go on.
    assert started_here(published.place) == ServerUnreachableError.exit_code
    assert "already published" not in capsys.readouterr().out
