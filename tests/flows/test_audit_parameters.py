"""What the audit flow's command line refuses before Prefect hears of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import SpecError
from dpiw.ledger import Ledger
from dpiw.release.manifest import SIGNATURE
from flows.audit import key_files, main, places
from flows.parameters import typed_here
from tests.support.locations import MISTYPED, SECRET


@pytest.mark.parametrize("text", MISTYPED)
def test_the_audit_flow_hears_nothing_of_it(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect keeps a flow's parameters, also of one that fails: it must not be started."""
    monkeypatch.setattr("flows.audit.quiet_prefect", lambda: None)
    started: list[str] = []
    code = main(lambda *parameters: started.append("yes") or "", ["--ledger", text])
    assert code == SpecError.exit_code
    assert started == []
    out = capsys.readouterr()
    assert SECRET not in out.out + out.err


def test_the_audit_flow_is_started_with_a_sound_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.audit.quiet_prefect", lambda: None)
    monkeypatch.setattr("flows.audit.prefect_server", lambda: contextlib.nullcontext())
    given: list[object] = []
    run = lambda *parameters: given.extend(parameters) or "page"  # noqa: E731
    assert main(run, ["--ledger", "sqlite:///l", "--releases", "r", "--out", "o"]) == 0
    assert given == ["sqlite:///l", "r", None, "o"]
    words = ["--ledger", "sqlite:///l", "--releases", "r", "--key", "a.pub", "--key", "b.pub"]
    assert main(run, words) == 0
    assert given[4:] == ["sqlite:///l", "r", ["a.pub", "b.pub"], "audit"]


@pytest.mark.parametrize(
    ("key", "files"), [(None, []), ([], []), ("a.pub", ["a.pub"]), (["a", "b"], ["a", "b"])]
)
def test_a_deployment_names_one_key_or_several(
    key: list[str] | str | None, files: list[str]
) -> None:
    with typed_here():
        assert key_files(key) == [Path(file) for file in files]


@pytest.fixture
def by_a_person() -> Iterator[None]:
    with typed_here():
        yield


@pytest.mark.usefixtures("by_a_person")
def test_a_spec_names_its_own_ledger_and_releases(workplace: Any) -> None:
    expected = (f"sqlite:///{workplace.ledger}", workplace.releases)
    assert places(str(workplace.spec), None) == expected
    assert places(str(workplace.spec), "here") == (expected[0], Path("here"))
    assert places("ledger.sqlite", "here") == ("ledger.sqlite", Path("here"))
    with pytest.raises(SpecError, match=r"releases: .* to audit a ledger alone, name an empty"):
        places("ledger.sqlite", None)


@pytest.mark.usefixtures("by_a_person")
def test_a_ledger_named_like_a_spec_is_a_ledger(tmp_path: Path) -> None:
    """As every command of `dpiw ledger` takes it."""
    file = tmp_path / "books.yaml"
    Ledger.create(str(file))
    for location in (str(file), f"sqlite:///{file}"):
        assert places(location, "here") == (location, Path("here"))


@pytest.mark.usefixtures("by_a_person")
def test_the_folder_of_one_release_holds_no_releases(tmp_path: Path) -> None:
    (tmp_path / SIGNATURE).write_bytes(b"")
    with pytest.raises(SpecError, match="is one release; name the folder that holds them"):
        places("ledger.sqlite", str(tmp_path))
