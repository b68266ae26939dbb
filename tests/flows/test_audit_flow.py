"""The audit flow: what its command line refuses; with a real server, its end and its record."""

import contextlib
import functools
import json
import shutil
from pathlib import Path

import pytest

from dpiw.audit import AuditFailedError
from dpiw.errors import SpecError
from dpiw.release.manifest import SIGNATURE
from dpiw.release.signing import create_key_pair
from flows.audit import key_files, main, places
from flows.parameters import typed_here
from tests.hostile.leaks.canaries import hits
from tests.support.locations import MISTYPED, SECRET
from tests.support.whole_runs import publish_run

NAME = "Quillonworth7731"
"""Of a folder among the releases: a copy, which is warned of."""


@pytest.fixture(autouse=True)
def by_a_person(monkeypatch):
    monkeypatch.setattr("flows.audit.quiet_prefect", lambda: None)
    monkeypatch.setattr("flows.audit.prefect_server", lambda: contextlib.nullcontext())
    with typed_here():
        yield


@pytest.mark.parametrize("text", MISTYPED)
def test_the_audit_flow_hears_nothing_of_it(text, capsys):
    """Prefect keeps a flow's parameters, also of one that fails: it must not be started."""
    assert main(pytest.fail, ["--ledger", text]) == SpecError.exit_code
    out = capsys.readouterr()
    assert SECRET not in out.out + out.err


def test_the_audit_flow_is_started_with_a_sound_one():
    given: list[object] = []
    run = lambda *parameters: given.extend(parameters) or "page"  # noqa: E731
    assert main(run, ["--ledger", "sqlite:///l", "--releases", "r", "--out", "o"]) == 0
    assert given == ["sqlite:///l", "r", None, "o"]
    words = ["--ledger", "sqlite:///l", "--releases", "r", "--key", "a.pub", "--key", "b.pub"]
    assert main(run, words) == 0
    assert given[4:] == ["sqlite:///l", "r", ["a.pub", "b.pub"], "audit"]
    for key, files in ((None, []), ("a.pub", ["a.pub"]), (["a", "b"], ["a", "b"])):
        assert key_files(key) == [Path(file) for file in files]


def test_a_spec_names_its_own_ledger_and_releases(workplace):
    expected = (f"sqlite:///{workplace.ledger}", workplace.releases)
    assert places(str(workplace.spec), None) == expected
    assert places(str(workplace.spec), "here") == (expected[0], Path("here"))
    assert places("ledger.sqlite", "here") == ("ledger.sqlite", Path("here"))
    location = f"sqlite:///{workplace.root}/books.yaml"  # a ledger named like a spec
    assert places(location, "here") == (location, Path("here"))
    (workplace.root / SIGNATURE).write_bytes(b"")  # the folder of one release holds none
    for folder in (None, str(workplace.root)):
        with pytest.raises(SpecError):
            places("ledger.sqlite", folder)


@pytest.mark.flow
@pytest.mark.crash
def test_a_clean_audit_ends_well_and_a_tampered_one_alarms(prefect_server, workplace):
    place = workplace
    place.rewrite("name: town", "name: harbour")
    _, folder = publish_run(place.spec)
    shutil.copytree(folder, place.releases / NAME)
    key, out = place.root / "state" / "keys" / "test.pub", place.root / "audit"
    where = ("--ledger", f"sqlite:///{place.ledger}", "--releases", place.releases)
    audit = functools.partial(prefect_server.python, "-m", "flows.audit", "--out", out)
    clean = audit(*where, "--key", key)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert "no errors" in clean.stdout
    assert NAME in clean.stdout
    assert json.loads((out / "audit.json").read_bytes())["ok"] is True
    for path in (out, out / "audit.json", out / "audit.html"):
        assert path.stat().st_mode & 0o077 == 0
    assert prefect_server.newest_run()["state_type"] == "COMPLETED"
    stored = prefect_server.everything_stored()
    assert b"dpiw-audit" in stored
    assert hits(stored, [NAME, folder.name]) == []

    shutil.rmtree(place.releases / NAME)
    (folder / "report.html").write_text("other")
    _, second = create_key_pair(place.root, "second")
    keys = ("--key", second, "--key", key)
    failed = audit("--ledger", place.spec, *keys)
    assert failed.returncode == AuditFailedError.exit_code == 33
    assert f"error: release {folder.name}: " in failed.stdout
    facts = json.loads((out / "audit.json").read_bytes())
    assert [finding["code"] for finding in facts["findings"]] == ["folder_unsound"]
    assert len(facts["given_keys"]) == 2
    assert prefect_server.newest_run()["state_type"] == "FAILED"
