"""Backup and restore on each store; and ledgers that version 0.1 made, which open for ever."""

import contextlib
import json
import lzma
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import (
    LedgerConflictError,
    LedgerError,
    LedgerTamperedError,
    ReleaseError,
)
from dpiw.ledger import EntryKind, Ledger, RunState
from dpiw.ledger.backup import read_backup, restore, write_backup
from dpiw.ledger.keyring import Role
from dpiw.ledger.location import Faults
from dpiw.ledger.stores.store import KIND_CHECK
from dpiw.release.verification import verify
from dpiw.run import steps
from tests.golden import make_ledger
from tests.support.ledger import RUN, ask, chain, cli, cost, digest, finish, recover, spend, told
from tests.support.rings import CURATOR
from tests.support.stores import both_stores
from tests.support.whole_runs import draw, fitted, prepared
from tests.support.whole_runs import finish as published

GOLDEN = Path(__file__).parents[2] / "golden"
KEPT = {2: 0, 3: 43}
"""Formats of the kept ledgers, and how many of their 43 entries are signed."""
KINDS = {
    "genesis", "register", "reserve", "read", "void", "arm", "checkpoint", "resume", "commit",
    "conflict", "lose", "certify", "publish", "recover",
}  # fmt: skip
"""Kinds of entries of version 0.1."""


@pytest.fixture(params=KEPT)
def kept(request, tmp_path):
    """A copy of a kept ledger; its format."""
    packed = GOLDEN / f"ledger-format-{request.param}.sqlite.xz"
    path = tmp_path / "ledger.sqlite"
    path.touch(mode=0o600)
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path, request.param


def exported(ledger):
    return [entry.to_json() for entry in ledger.entries()]


def test_a_kept_ledger_opens_verifies_shows_and_goes_on(kept):
    path, number = kept
    ledger = Ledger.open(path)
    assert ledger.verify().ok
    entries = ledger.entries()
    assert entries[0].payload["format"] == number
    assert {entry.kind.value for entry in entries} == KINDS
    signed = [entry for entry in entries if entry.by is not None and entry.by.signature]
    assert len(signed) == KEPT[number]
    assert all(entry.authored() for entry in entries)
    assert ledger.spent("town") == cost("3.75", "8e-7")
    assert ledger.account("town").unpaid_reads == 4
    states = [run.state for run in ledger.runs("town")]
    assert states.count(RunState.PUBLISHED) == 2
    shown = told("show", "--ledger", str(path))
    assert "recovered  by entry 43" in shown
    assert "composition renyi" in shown
    assert told("verify", "--ledger", str(path)).startswith("ok: 43 entries")

    more = ask(population="town", run_key=digest(8), cost=cost("0.5", "1e-7"))
    ledger.reserve(**more)
    finish(ledger, digest(8))
    ledger.certify(digest(8))
    ledger.publish(digest(8), digest(208))
    again = Ledger.open(path)
    assert again.verify().ok
    assert again.run(digest(8)).state is RunState.PUBLISHED
    assert again.spent("town") == cost("4.25", "9e-7")
    assert exported(again)[:43] == [entry.to_json() for entry in entries]


def test_the_maker_makes_such_a_ledger(tmp_path):
    make_ledger.main(tmp_path / "ledger.sqlite")
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    assert ledger.verify().ok
    assert {entry.kind.value for entry in ledger.entries()} == KINDS
    assert ledger.spent("town") == cost("3.75", "8e-7")


def test_a_restored_ledger_has_the_table_of_this_version(kept, tmp_path):
    """A kept ledger admits the kinds of its time alone; its backup restored admits today's."""
    path, _ = kept
    write_backup(Ledger.open(path), tmp_path / "backup.jsonl")
    new = restore(str(tmp_path / "new.sqlite"), read_backup(tmp_path / "backup.jsonl"))
    assert exported(new) == exported(Ledger.open(path))
    with contextlib.closing(sqlite3.connect(tmp_path / "new.sqlite")) as raw:
        (table,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'entries'").fetchone()
    assert all(f"'{kind.value}'" in table for kind in EntryKind)
    spend_town(new)


def spend_town(ledger):
    ledger.reserve(**ask(population="town", run_key=digest(9), cost=cost("0.1", "0")))
    assert ledger.verify().ok


@both_stores
def test_a_kind_that_a_ledger_does_not_know_is_told_with_the_way_out(
    ledger, store_url, connect_owner
):
    """As if an earlier version, which did not know `reserve`, had made it."""
    before = exported(ledger)
    if store_url.startswith("postgresql"):
        with connect_owner(store_url) as raw:
            raw.execute(f"ALTER TABLE entries DROP CONSTRAINT {KIND_CHECK}")
            raw.execute(
                f"ALTER TABLE entries ADD CONSTRAINT {KIND_CHECK} CHECK (kind <> 'reserve')"
            )
    else:
        path = store_url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute("PRAGMA writable_schema = ON")
            raw.execute(
                "UPDATE sqlite_master SET sql = replace(sql, ' ''reserve'',', '')"
                " WHERE name = 'entries'"
            )
    with pytest.raises(LedgerError, match=re.escape(Faults.OLDER)):
        spend(Ledger.open(store_url), 5)
    assert exported(Ledger.open(store_url)) == before


@both_stores
def test_a_backup_is_restored_on_either_store_and_goes_on(
    ledger, store_url, new_ledger_url, tmp_path
):
    ledger.reserve(**ask())
    finish(ledger)
    file = tmp_path / "backup.jsonl"
    assert "verified" in told("backup", str(file), "--ledger", store_url)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line) for line in file.read_text().splitlines()] == exported(ledger)
    for kind in ("sqlite", "postgresql"):
        url = new_ledger_url(kind)
        new = restore(url, read_backup(file))
        assert exported(new) == exported(ledger)
        spend(new, 5)
        assert new.verify().ok
        with pytest.raises(LedgerConflictError):
            restore(url, read_backup(file))
        write_backup(new, ahead := tmp_path / f"{kind}.jsonl")
        with pytest.raises(LedgerTamperedError):  # which lacks what the restored one spent
            write_backup(ledger, ahead)


def test_a_backup_grows_with_its_ledger_and_never_goes_back(sqlite_ledger, tmp_path):
    file, path = tmp_path / "backup.jsonl", Path(sqlite_ledger.location)
    write_backup(sqlite_ledger, file)
    old = path.read_bytes()
    spend(sqlite_ledger, 1)
    assert write_backup(sqlite_ledger, file) == 3
    whole = file.read_bytes()
    for leftover in path.parent.glob("ledger.sqlite-*"):
        leftover.unlink()
    path.write_bytes(old)
    with pytest.raises(LedgerTamperedError, match="stays as it was"):
        write_backup(Ledger.open(path), file)
    spend(Ledger.open(path), 2)  # as many entries, of another history
    with pytest.raises(LedgerTamperedError):
        write_backup(Ledger.open(path), file)
    assert file.read_bytes() == whole
    assert [p.name for p in tmp_path.iterdir() if "backup" in p.name] == ["backup.jsonl"]


NUMBERS: dict[str, Any] = {"a truth": True, "a fraction": 1.5, "a text": "1", "huge": 2**70}
"""Attempts, in an entry that needs none, that a database keeps as another value, or not at all."""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, LedgerError), ("no JSON", LedgerError), ("[]", LedgerError), ("{}", LedgerError),
        ("", LedgerTamperedError), ("cut", LedgerTamperedError), ("edit", LedgerTamperedError),
        *((text, LedgerTamperedError) for text in NUMBERS),
    ],
)  # fmt: skip
def test_what_is_no_sound_backup_makes_no_ledger(text, error, sqlite_ledger, tmp_path):
    spend(sqlite_ledger, 1)
    file, new = tmp_path / "backup.jsonl", tmp_path / "new.sqlite"
    write_backup(sqlite_ledger, file)
    lines = file.read_text().splitlines(keepends=True)
    if text == "cut":
        text = lines[0] + lines[2]
    elif text == "edit":
        entry = json.loads(lines[2])
        entry["payload"]["epsilon_units"] -= 1
        text = "".join(lines[:2]) + json.dumps(entry)
    elif text in NUMBERS:
        entries = [json.loads(line) for line in lines[:2]]
        entries[1]["attempt"] = NUMBERS[text]
        text = "".join(f"{json.dumps(entry)}\n" for entry in chain(entries))
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with pytest.raises(LedgerError) as caught:
        cli("restore", str(file), "--ledger", str(new), "--releases", "r", "--key", "k")
    assert type(caught.value) is error
    assert not new.exists()


@pytest.mark.slow
def test_a_backup_of_a_run_under_way_is_restored_recovered_and_goes_on(make_workplace, tmp_path):
    place = make_workplace(epsilon="9")
    run = fitted(place, period="2026-11")
    file = tmp_path / "backup.jsonl"
    told("backup", str(file), "--ledger", str(place.ledger))
    draw(run)
    folder = published(run)
    location = ("--ledger", str(place.ledger))
    words = ("restore", str(file), *location, "--releases", str(place.releases), "--key")
    for leftover in place.ledger.parent.glob("ledger.sqlite*"):
        leftover.unlink()
    with pytest.raises(ReleaseError):
        cli(*words, str(tmp_path / "none.pub"))
    assert not place.ledger.exists()

    code, text = cli(*words, str(place.key))
    assert code == LedgerTamperedError.exit_code
    assert f"missing: {folder.name}" in text
    assert "dpiw ledger recover" in text
    later = prepared(place, period="2026-12")
    with pytest.raises(LedgerTamperedError):
        steps.reserve(later)  # nothing is spent from a ledger that lacks a published head
    recover(place)
    release = verify(folder)
    head = f"{release.certificate.ledger_head}:{release.manifest.digest}"
    assert told("verify", *location, "--head", head)
    again = published(draw(later))
    assert verify(again, public_key=place.key).pinned
    ledger = Ledger.open(place.ledger)
    assert ledger.verify().ok
    assert ledger.spent("town").epsilon >= 4  # both releases are paid


def test_a_restored_ledger_that_lost_nothing_is_told_so(sqlite_ledger, tmp_path):
    sqlite_ledger.reserve(**ask())
    file, new = tmp_path / "backup.jsonl", tmp_path / "new.sqlite"
    (tmp_path / "none").mkdir()
    write_backup(sqlite_ledger, file)
    text = told("restore", str(file), "--ledger", str(new), "--releases", str(tmp_path / "none"),
                "--key", "curator.pub")  # fmt: skip
    assert "missing" not in text
    assert "--loss-only" in text
    assert "--sign-with" not in text
    assert Ledger.open(new).run(RUN).state is RunState.RESERVED
    sqlite_ledger.add_key("adult", CURATOR.public, Role.CURATOR)
    write_backup(sqlite_ledger, file)
    text = told("restore", str(file), "--ledger", str(tmp_path / "keys.sqlite"), "--releases",
                str(tmp_path / "none"), "--key", "curator.pub")  # fmt: skip
    assert "--sign-with CURATOR.key" in text  # an unsigned recovery would be refused
