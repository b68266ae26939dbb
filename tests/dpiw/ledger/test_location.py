"""A ledger's location holds no password, however mistyped, and nobody repeats one that does."""

import copy
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.errors import DPIWError, LedgerError, SpecError
from dpiw.ledger import Ledger
from dpiw.ledger.location import absolute_location, check_location
from dpiw.plan.spec import load_spec, parse_spec
from tests.support.locations import MISTYPED, SECRET
from tests.support.specs import GOOD

SOUND = [
    "ledger.sqlite",
    "/a b/ledger=1.sqlite",
    "~/ledger.sqlite",
    "sqlite:///ledger.sqlite",
    "sqlite:////a/ledger.sqlite?local_file_system=virtiofs",
    "postgresql+psycopg://user@[::1]:5432/ledger",
    "postgresql+psycopg://user@db:5432/ledger?sslmode=verify-full&sslrootcert=/ca.crt",
    "postgresql+psycopg://user@/ledger?host=/run/postgresql&passfile=/home/user/.pgpass",
]


def spec_of(text: str) -> Any:
    return parse_spec(copy.deepcopy(GOOD) | {"ledger": text})


ACTS: dict[str, tuple[Callable[[str], object], type[DPIWError]]] = {
    "spec": (spec_of, SpecError),
    "open": (Ledger.open, LedgerError),
    "create": (Ledger.create, LedgerError),
    "audit": (lambda text: audit(text, [], []), SpecError),
}


@pytest.mark.parametrize("text", MISTYPED)
@pytest.mark.parametrize("act", list(ACTS))
def test_a_mistyped_location_is_refused_and_not_repeated(act, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    do, error = ACTS[act]
    with pytest.raises(error, match="ledger") as caught:
        do(text)
    told = "".join(traceback.format_exception(caught.value, limit=0))
    assert SECRET not in told
    assert "ter2" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://u@host/db", "postgresql+psycopg://u@host:secret/db", "://",
        "postgresql+psycopg://u@host", "postgresql+psycopg://host/db", "postgresql+psycopg://u@/db",
        "postgresql+psycopg://u@one/db?host=two", "postgresql+psycopg://u@/db?host=one,two",
        "postgresql+psycopg://u@/db?host=one&host=two", "sqlite:///x?mode=ro", "sqlite://",
        "sqlite:///:memory:", "sqlite:///file:x",
    ],
)  # fmt: skip
def test_an_unsupported_url_is_refused_without_repeating_it(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url)
    told = "".join(traceback.format_exception(caught.value))
    assert not any(words in told for words in ("secret", "no answer", "no such file"))


def test_a_sound_location_passes():
    for text in SOUND:
        check_location(text, error=SpecError)
        assert spec_of(text).ledger == text


def test_a_command_line_does_not_repeat_it_either():
    done = subprocess.run(
        [sys.executable, "-m", "dpiw.cli.main", "ledger", "show", "--ledger", MISTYPED[0]],
        capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip
    assert done.returncode == LedgerError.exit_code
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ledger.sqlite", "{base}/ledger.sqlite"),
        ("../l/ledger.sqlite", "{base}/../l/ledger.sqlite"),
        ("/a/ledger.sqlite", "/a/ledger.sqlite"),
        ("sqlite:///ledger.sqlite", "sqlite:///{base}/ledger.sqlite"),
        ("sqlite:////a/ledger.sqlite", "sqlite:////a/ledger.sqlite"),
        ("sqlite:///l?local_file_system=x", "sqlite:///{base}/l?local_file_system=x"),
        ("postgresql+psycopg://u@localhost/d", "postgresql+psycopg://u@localhost/d"),
    ],
)
def test_a_relative_file_is_taken_from_a_folder(tmp_path, text, found):
    assert absolute_location(text, tmp_path) == found.format(base=tmp_path)


def test_a_spec_names_the_same_ledger_from_wherever_it_is_run(workplace, tmp_path, monkeypatch):
    text = workplace.spec.read_text()
    for written in ("state/ledger.sqlite", "sqlite:///state/ledger.sqlite"):
        workplace.spec.write_text(f"{text}ledger: {written}\n")
        monkeypatch.chdir(tmp_path)
        location = load_spec(workplace.spec).ledger
        assert location is not None
        assert Ledger.open(location).path == workplace.ledger
