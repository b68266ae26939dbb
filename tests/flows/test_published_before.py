"""A person who starts a run that is published: it is checked, and nothing else is started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from rich.console import Console

from dpiw.errors import ChecksumError, LedgerTamperedError, ManifestError, SignatureError
from dpiw.ledger import Ledger
from dpiw.release.signing import create_key_pair, load_public_key
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
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
def refused(*_, **__):
    raise AssertionError("a process was started")
subprocess.Popen = os.fork = os.posix_spawn = refused
def told():
    print("loaded:", *sorted({"prefect", "great_expectations", "matplotlib"} & set(sys.modules)))
import atexit; atexit.register(told)
runpy.run_module("flows", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def started_here(
    monkeypatch: pytest.MonkeyPatch, no_backoff: None
) -> Iterator[Callable[[Any], int]]:
    """The same start in this process: its exit status."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a process or a flow was started")

    url = f"http://127.0.0.1:{free_port()}/api"
    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.setattr(console, "quiet_prefect", lambda: console.StepLog(Console()))
    monkeypatch.setenv("DPIW_SERVER_WAIT_SECONDS", "0")
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        yield lambda place: console.main(refused, [str(place.spec)])


def bytes_of(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.iterdir()}


def test_nothing_is_started_spent_or_written(workplace: Any) -> None:
    run, folder = publish_run(workplace.spec)
    head, contents = Ledger.open(workplace.ledger).head(), bytes_of(folder)
    again = start(workplace)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "already published, nothing spent" in again.stdout
    assert re.search(rf"verify \S*{folder.name} --key \S+/test\.pub\n", again.stdout)
    for reason in verify(folder).certificate.diagnostics["reasons"]:
        assert f"\n           {reason}\n" in again.stdout
    assert "loaded:\n" in again.stdout  # neither Prefect nor what reads or draws
    assert Ledger.open(workplace.ledger).head() == head
    assert bytes_of(folder) == contents
    assert list(workplace.releases.iterdir()) == [folder]
    assert list((run.directory / "log").iterdir()) == []


@pytest.mark.crash
def test_a_run_that_is_new_asks_the_server(
    workplace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what is not published goes the whole way, and tells of Prefect's folder."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "new" / "prefect"))
    first = start(workplace)
    assert f"made {os.path.relpath(tmp_path, ROOT)}/new/prefect: Prefect's record" in first.stdout
    assert first.returncode == ServerUnreachableError.exit_code, first.stdout + first.stderr
    assert "loaded: prefect\n" in first.stdout


def change(path: Path) -> None:
    """Another byte where one was."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))


def of_the_release(run: ReleaseRun, folder: Path) -> None:
    change(folder / "synthetic.parquet")


def of_the_manifest(run: ReleaseRun, folder: Path) -> None:
    (folder / "extra.txt").write_text("more")


def of_the_draw(run: ReleaseRun, folder: Path) -> None:
    change(run.measurement("fit_generator"))


def of_a_draw_that_is_gone(run: ReleaseRun, folder: Path) -> None:
    run.measurement("fit_weights").unlink()


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (of_the_release, ChecksumError.exit_code),
        (of_the_manifest, ManifestError.exit_code),
        (of_the_draw, LedgerTamperedError.exit_code),
        (of_a_draw_that_is_gone, LedgerTamperedError.exit_code),
    ],
)
def test_what_was_harmed_since_is_not_called_published(
    workplace: Any, started_here: Callable[[Any], int], capsys: pytest.CaptureFixture[str],
    harm: Callable[[ReleaseRun, Path], None], code: int,
) -> None:  # fmt: skip
    harm(*publish_run(workplace.spec))
    assert started_here(workplace) == code
    output = capsys.readouterr().out
    assert "already published" not in output
    assert "not published:" in output


def test_a_damaged_release_is_named_and_published_anew(
    workplace: Any, capsys: pytest.CaptureFixture[str], started_here: Callable[[Any], int]
) -> None:
    """What the message says to do gives the same bytes, and spends nothing."""
    run, folder = publish_run(workplace.spec)
    contents, spent = bytes_of(folder), Ledger.open(workplace.ledger).spent("town")
    change(folder / "report.html")
    assert started_here(workplace) == ChecksumError.exit_code
    output = capsys.readouterr().out
    assert f"{folder.name} is not as it was published: move it out of " in output
    assert "the same command again, which publishes the same bytes at no cost" in output
    folder.rename(workplace.root / "damaged")
    steps.publish(run)
    assert bytes_of(folder) == contents
    assert Ledger.open(workplace.ledger).spent("town") == spent


def test_a_damaged_signature_says_how_to_go_on(
    workplace: Any, capsys: pytest.CaptureFixture[str], started_here: Callable[[Any], int]
) -> None:
    run, folder = publish_run(workplace.spec)
    contents = bytes_of(folder)
    change(folder / "manifest.sig")
    assert started_here(workplace) == SignatureError.exit_code
    output = " ".join(capsys.readouterr().out.split())
    assert f"releases/{folder.name}: the signature does not verify" in output
    assert "; get it again; or, if it is no release, or `dpiw ledger show" in output
    assert "; nothing is released until that is done" in output
    folder.rename(workplace.root / "damaged")
    steps.publish(run)
    assert bytes_of(folder) == contents


def test_another_signing_key_is_told_to_be_another(
    workplace: Any, capsys: pytest.CaptureFixture[str], started_here: Callable[[Any], int]
) -> None:
    """The curator is told, who has both; not to ask the curator."""
    _, folder = publish_run(workplace.spec)
    keys = workplace.root / "state/keys"
    old = load_public_key(keys / "test.pub").key_id
    for half in ("key", "pub"):
        (keys / f"test.{half}").rename(keys / f"old.{half}")
    create_key_pair(keys, "test")
    new = load_public_key(keys / "test.pub").key_id
    assert started_here(workplace) == SignatureError.exit_code
    output = " ".join(capsys.readouterr().out.split())
    assert (
        f"{folder.name}: it was signed by key id {old}, and signing_key is key id {new}" in output
    )
    assert "put the old key back, or name it in signing_key" in output
    assert "ask the curator" not in output


def test_a_release_that_is_gone_is_published_by_the_flow(
    workplace: Any, started_here: Callable[[Any], int]
) -> None:
    _, folder = publish_run(workplace.spec)
    folder.rename(folder.with_name("elsewhere"))
    assert started_here(workplace) == ServerUnreachableError.exit_code


def test_an_old_copy_of_the_ledger_is_found_out(
    workplace: Any, started_here: Callable[[Any], int], capsys: pytest.CaptureFixture[str]
) -> None:
    old = workplace.ledger.read_bytes()
    publish_run(workplace.spec)
    for suffix in ("-wal", "-shm"):
        workplace.ledger.with_name(workplace.ledger.name + suffix).unlink(missing_ok=True)
    workplace.ledger.write_bytes(old)
    # Not published in this ledger: the flow is to say why it cannot go on.
    assert started_here(workplace) == ServerUnreachableError.exit_code
    assert "already published" not in capsys.readouterr().out
