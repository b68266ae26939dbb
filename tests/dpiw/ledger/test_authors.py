"""Who wrote an entry: named, signed where there is a key, and no part of any rule."""

import os
import pwd
from decimal import Decimal
from pathlib import Path

import pytest

from dpiw.audit.tally import tally
from dpiw.errors import SpecError
from dpiw.ledger import FaultKind, Ledger
from dpiw.ledger.book import Book
from dpiw.ledger.entries import Author, Entry, entry_json, from_stored, operator
from dpiw.ledger.reading import replay
from dpiw.ledger.stores import open_store
from dpiw.release.signing import create_key_pair, load_private_key
from tests.support.ledger import MANIFEST, RUN, adult, ask, chain, finish, spend, stored
from tests.support.stores import both_stores


def curator() -> str:
    return "curator@desk-1"


@pytest.fixture
def key(tmp_path):
    return load_private_key(create_key_pair(tmp_path, "curator")[0])


@pytest.fixture
def signed(store_url, key):
    """On each store in turn, with a run that was published."""
    made = Ledger.create(store_url, actor=curator, key=key)
    made.register(adult())
    made.reserve(**ask(release="my-release"))
    finish(made)
    made.publish(RUN, MANIFEST)
    return made


def verdict(entries: list[dict]) -> FaultKind | None:
    """What replaying exported entries finds, all of them linked anew."""
    _, fault = replay(stored(chain(entries)), book=Book(), head=None)
    return None if fault is None else fault.kind


@both_stores
def test_every_entry_names_and_signs_who_wrote_it(signed, key):
    entries = signed.entries()
    assert {str(entry.by) for entry in entries} == {f"curator@desk-1 (key {key.public.key_id})"}
    assert all(entry.by.signature and entry.authored() for entry in entries if entry.by)
    assert signed.verify().ok
    assert not tally(signed.export()).findings
    (attempt,) = signed.run(RUN).attempts
    assert attempt.by is not None
    assert attempt.by.actor == "curator@desk-1"
    assert signed.run(RUN).release == "my-release"
    assert "by" not in entries[1].payload  # no rule sees it


def test_who_acts_is_the_user_on_the_host_unless_a_variable_says_else(sqlite_ledger, monkeypatch):
    monkeypatch.delenv("DPIW_ACTOR", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "-Žluť host!")
    alice = pwd.struct_passwd(("alice", "x", os.getuid(), 0, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", {os.getuid(): alice}.__getitem__)
    assert operator() == "alice@_lu_host_"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert operator() == f"uid{os.getuid()}@_lu_host_"
    monkeypatch.setenv("DPIW_ACTOR", "data-office")
    spend(sqlite_ledger, 1)
    assert sqlite_ledger.entries()[-1].by == Author(actor="data-office")
    monkeypatch.setenv("DPIW_ACTOR", "not a name")
    with pytest.raises(SpecError, match=r"^DPIW_ACTOR: ") as caught:
        spend(sqlite_ledger, 2)
    assert "not a name" not in str(caught.value)


def test_a_signature_fits_one_entry_at_one_place(signed):
    entries = signed.export()
    assert verdict(signed.export()) is None
    moved = [*entries[:-1], {**entries[-1], "at": "2030-01-01T00:00:00Z"}]
    assert verdict(moved) is FaultKind.ILLEGAL_TRANSITION
    for change in ({"actor": "somebody@else"}, {"public_key": "0" * 64}):
        entries = signed.export()
        entries[-1]["payload"]["by"].update(change)
        assert verdict(entries) is FaultKind.ILLEGAL_TRANSITION


@pytest.mark.parametrize(
    "by",
    [
        "alice", {}, {"actor": 1}, {"actor": "a b"}, {"actor": "-a"}, {"actor": "a" * 129},
        {"actor": "a", "note": "x"}, {"actor": "a", "public_key": "0" * 64},
        {"actor": "a", "public_key": "0" * 63, "signature": "0" * 128},
        {"actor": "a", "public_key": "0" * 64, "signature": "é" * 128},
    ],
)  # fmt: skip
def test_a_malformed_author_is_found(by, sqlite_ledger):
    entries = sqlite_ledger.export()
    entries[-1]["payload"]["by"] = by
    assert verdict(entries) is FaultKind.EDITED
    with pytest.raises(ValueError, match="by: "):
        from_stored(stored(entries)[-1])


def test_what_cannot_be_read_again_is_never_written(tmp_path):
    for name in ("alice smith", "alice\n", "a" * 500, ""):
        with pytest.raises(ValueError, match="no short name"):
            Ledger.create(tmp_path / "new.sqlite", actor=lambda name=name: name)


def without_authors(entries: list[dict]) -> list[dict]:
    """The same history as an earlier version of dpiw wrote it."""
    for entry in entries:
        entry["payload"].pop("by")
        entry["payload"].pop("release", None)
    entries[0]["payload"]["format"] = 2
    return chain(entries)


def test_a_ledger_without_authors_loads_verifies_and_goes_on(tmp_path, key):
    new = Ledger.create(tmp_path / "new.sqlite")
    new.register(adult())
    new.reserve(**ask(release="my-release"))
    new.void(RUN, 1)
    entries = without_authors(new.export())
    old = _written(tmp_path / "old.sqlite", entries)
    assert old.export() == entries
    assert old.verify().ok
    assert {entry.by for entry in old.entries()} == {None}
    assert old.run(RUN).release is None
    assert old.run(RUN).attempts[0].by is None

    old.reserve(**ask(attempt=2, release="my-release"))
    finish(old, attempt=2)
    old.publish(RUN, MANIFEST)
    assert old.verify().ok
    assert not tally(old.export()).findings
    assert old.run(RUN).release == "my-release"
    assert old.export()[: len(entries)] == entries
    assert old.spent("adult").epsilon == Decimal("0.5")


def _written(path: Path, entries: list[dict]) -> Ledger:
    """A ledger of these very entries, each written by the store that every version shares."""
    rows = [from_stored({**one, "payload": entry_json(one["payload"])}) for one in entries]
    store = open_store(path, busy_timeout_seconds=30)
    assert store.create(rows[0])
    for row in rows[1:]:
        assert isinstance(row, Entry)
        with store.transaction(write=True) as connection:
            store.append(connection, row)
    return Ledger.open(path)
