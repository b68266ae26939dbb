"""The ledger: every transition, every refusal, sums against exact fractions."""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import sqlite3
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from dpiw.cli.ledger import add_ledger_commands
from dpiw.data import files as durable
from dpiw.errors import (
    BudgetExceededError,
    DPIWError,
    GrantSpentError,
    LedgerConflictError,
    LedgerError,
    LedgerTamperedError,
    PrivacyError,
    SpecError,
    UnknownPopulationError,
    UnsupportedRelationError,
)
from dpiw.ledger import (
    CompositionRule,
    EntryKind,
    Grant,
    Ledger,
    Population,
    PublishedHead,
    RunState,
    StageState,
)
from dpiw.ledger.entries import canonical
from dpiw.ledger.stores import files
from dpiw.ledger.stores import sqlite as store_sqlite
from dpiw.privacy.units import NeighbouringRelation, PrivacyBudget, PrivacyCost, PrivacyUnit

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighbouringRelation.REPLACE_ONE
BOTH = {
    "generator": [{"type": "gaussian", "noise_multiplier": 1.5, "count": 3}],
    "weights": [{"type": "laplace", "noise_multiplier": 4.0, "count": 1}],
}


def digest(number: int) -> str:
    return f"{number:064x}"


RUN, PLAN, OUT, MANIFEST = digest(1), digest(2), digest(3), digest(4)


def adult(**changes: Any) -> Population:
    terms: dict[str, Any] = {
        "name": "adult",
        "relation": ADD,
        "max_rows": 1,
        "epsilon": Decimal("2"),
        "delta": Decimal("1e-5"),
    }
    return Population(**{**terms, **changes})


def cost(epsilon: str = "1.2", delta: str = "1e-6", relation: Any = ADD) -> PrivacyCost:
    return PrivacyCost.of(Decimal(epsilon), Decimal(delta), relation)


def ask(**changes: Any) -> dict[str, Any]:
    terms: dict[str, Any] = {
        "population": "adult",
        "run_key": RUN,
        "attempt": 1,
        "cost": cost("0.5"),
        "stages": BOTH,
        "plan_digest": PLAN,
        "period": "2027-q1",
        "max_attempts": 3,
    }
    return {**terms, **changes}


@pytest.fixture
def ledger(store_url: str) -> Ledger:
    """On each store in turn."""
    made = Ledger.create(store_url)
    made.register(adult())
    return made


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.sqlite")
    made.register(adult())
    return made


def refused(ledger: Ledger, error: type[DPIWError], match: str, act: Callable[[], Any]) -> Any:
    """`act` raises, and not one entry was written."""
    before = ledger.head()
    with pytest.raises(error, match=match) as caught:
        act()
    assert type(caught.value) is error
    assert ledger.head() == before
    return caught.value


def finish(ledger: Ledger, run_key: str = RUN, attempt: int = 1) -> None:
    for number, name in enumerate(sorted(BOTH)):
        ledger.commit(ledger.arm(run_key, attempt, name), digest(10 + number))


# --- opening and creating; the file itself (test_store_postgresql.py has the server) ---


def test_create_makes_a_private_file_and_again_is_the_same_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first = Ledger.create(path)
    first.register(adult())
    head = first.head()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Ledger.create(f"sqlite:///{path}").head() == head
    assert Ledger.open(path).head() == head
    assert first.path == path
    assert [p.name for p in tmp_path.iterdir() if "-" not in p.name] == ["ledger.sqlite"]


def test_two_ledgers_never_share_a_head(
    store_kind: str, new_ledger_url: Callable[[str], str]
) -> None:
    one, other = (Ledger.create(new_ledger_url(store_kind)) for _ in range(2))
    assert one.head() != other.head()


def test_open_never_creates(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no such file"):
        Ledger.open(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_deleted_under_us_fails_closed_and_stays_deleted(sqlite_ledger: Ledger) -> None:
    for path in sqlite_ledger.path.parent.iterdir():
        path.unlink()
    with pytest.raises(LedgerError, match="no such file"):
        sqlite_ledger.reserve(**ask())
    assert list(sqlite_ledger.path.parent.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 50])
def test_what_is_not_a_ledger_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    path.chmod(0o600)
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerError, match="not a database"):
            act(path)
    assert path.read_bytes() == content


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a dpiw ledger"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_refused(sqlite_ledger: Ledger) -> None:
    for number in range(40):
        sqlite_ledger.register(adult(name=f"p{number}"))
    connection = sqlite3.connect(sqlite_ledger.path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(sqlite_ledger.path.read_bytes())
    data[4096 : 4096 + 2000] = os.urandom(2000)
    sqlite_ledger.path.write_bytes(bytes(data))
    with pytest.raises(LedgerError):
        Ledger.open(sqlite_ledger.path).verify()


def test_a_folder_a_link_to_nothing_and_two_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="not a regular file"):
        Ledger.open(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(LedgerError, match="no such file"):
        Ledger.create(tmp_path / "link")
    with pytest.raises(LedgerError, match="in one that does not exist"):
        Ledger.create(tmp_path / "none" / "missing" / "ledger")
    (tmp_path / "state").symlink_to(tmp_path / "unmounted")
    with pytest.raises(LedgerError, match="folder cannot be made"):
        Ledger.create(tmp_path / "state" / "ledger")
    assert {path.name for path in tmp_path.iterdir()} == {"link", "state"}  # nothing was made


def test_a_file_others_may_write_is_refused(sqlite_ledger: Ledger) -> None:
    sqlite_ledger.path.chmod(0o660)
    with pytest.raises(LedgerError, match="others may write"):
        Ledger.open(sqlite_ledger.path)


def test_the_log_of_a_removed_ledger_is_not_replayed_into_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "ledger-wal").write_bytes(b"old")
    with pytest.raises(LedgerError, match="remains of a removed ledger"):
        Ledger.create(tmp_path / "ledger")


def test_a_disk_that_renames_nothing_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(durable, "rename_exclusively", lambda source, target: False)
    monkeypatch.setattr(store_sqlite.os, "link", refused)
    with pytest.raises(LedgerError, match="cannot be put in its place"):
        Ledger.create(tmp_path / "ledger")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, durable.rename_exclusively

    def watched_fsync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def watched_rename(source: Path, target: Path) -> bool:
        steps.append("rename")
        return rename(source, target)

    monkeypatch.setattr(files.os, "fsync", watched_fsync)
    monkeypatch.setattr(durable, "rename_exclusively", watched_rename)
    Ledger.create(tmp_path / "ledger")
    assert steps == ["file", "rename", "folder"]


@pytest.mark.parametrize("renames", [True, False])
def test_two_creators_make_one_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    real = durable.rename_exclusively if renames else lambda source, target: False

    def overtaken(source: Path, target: Path) -> bool:
        monkeypatch.setattr(durable, "rename_exclusively", real)
        Ledger.create(target).register(adult())
        return real(source, target)

    monkeypatch.setattr(durable, "rename_exclusively", overtaken)
    late = Ledger.create(tmp_path / "ledger")
    assert late.populations() == (adult(),)
    assert [path.name for path in tmp_path.iterdir() if "-" not in path.name] == ["ledger"]


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("postgresql://u:secret@host/db", "postgresql is not supported"),
        ("postgresql+asyncpg://u:secret@host/db", "asyncpg is not supported"),
        ("mysql+pymysql://u:secret@host/db", r"mysql\+pymysql is not supported"),
        ("postgresql+psycopg://u:secret@host/db", "must hold no password"),
        ("postgresql+psycopg://u@host/db?password=secret", "must hold no password"),
        ("postgresql+psycopg://u@host/db?options=-csecret", "option that is not admissible"),
        ("postgresql+psycopg://u:secret@host:port/db", "must hold no password"),
        ("postgresql+psycopg://u@host:secret/db", "expected a path"),
        ("postgresql+psycopg://u@host", "one host and a database"),
        ("postgresql+psycopg://host/db", "with a user, one host"),
        ("postgresql+psycopg://u@/db", "one host and a database"),
        ("postgresql+psycopg://u@one/db?host=two", "one host and a database"),
        ("postgresql+psycopg://u@/db?host=one,two", "one host and a database"),
        ("postgresql+psycopg://u@/db?host=one&host=two", "one host and a database"),
        ("sqlite://", "plain file"),
        ("sqlite:///:memory:", "plain file"),
        ("sqlite:///x?mode=ro", "option that is not admissible"),
        ("sqlite:///file:x", "plain file"),
        ("://", "expected a path"),
        ("postgresql+psycopg://u@host/db", "expected sslmode=verify-full"),
        (
            "postgresql+psycopg://u@/db?host=10.0.0.1&sslmode=require",
            "expected sslmode=verify-full",
        ),
        ("postgresql+psycopg://u@localhost.example/db", "expected sslmode=verify-full"),
    ],
)
def test_an_unsupported_url_is_refused_without_repeating_it(url: str, match: str) -> None:
    with pytest.raises(LedgerError, match=match) as caught:
        Ledger.open(url)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_network_file_system_is_refused(
    tmp_path: Path, sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = f"/dev/sda / ext4 rw 0 0\nshort\nhost:/x {tmp_path} nfs4 rw 0 0\n"
    monkeypatch.setattr(files, "_mounts", lambda: mounts)
    for act in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerError, match=r"network file system \(nfs4\)"):
            act(sqlite_ledger.path)
    with pytest.raises(LedgerError, match="network file system"):
        Ledger.create(tmp_path / "new")


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/a/b", "ext4"), ("/a b/c", "cifs"), ("/x", "xfs"), ("/xy", "ext4"), ("/x/y", "fuse.sshfs")],
)
def test_the_deepest_and_latest_mount_counts(folder: str, kind: str) -> None:
    mounts = "d / ext4 rw\nd /a\\040b cifs rw\nd /x tmpfs rw\nd /x xfs rw\nd /x/y fuse.sshfs rw\n"
    assert files.filesystem_type(Path(folder), mounts) == kind
    assert files.filesystem_type(Path(folder), "") is None


@pytest.mark.parametrize(("name", "weaker"), [("synchronous", "NORMAL"), ("foreign_keys", "OFF")])
def test_a_connection_with_weaker_settings_is_refused(
    sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, name: str, weaker: str
) -> None:
    _, expected = store_sqlite._SETTINGS[name]
    monkeypatch.setitem(store_sqlite._SETTINGS, name, (weaker, expected))
    with pytest.raises(LedgerError, match=f"SQLite refused {name}={weaker}"):
        sqlite_ledger.reserve(**ask())


def test_every_connection_is_wal_and_full(sqlite_ledger: Ledger) -> None:
    with sqlite_ledger._store.transaction(write=True) as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sqlite, "_OLDEST_SQLITE", (99, 0, 0))
    with pytest.raises(LedgerError, match=r"SQLite 3\.38"):
        Ledger.create(tmp_path / "ledger")


def test_a_held_lock_ends_in_an_error_not_in_a_wait(sqlite_ledger: Ledger) -> None:
    patient = Ledger.open(sqlite_ledger.path, busy_timeout_seconds=0.2)
    other = sqlite3.connect(sqlite_ledger.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked by another process"):
        patient.reserve(**ask())
    assert patient.spent("adult") == cost("0", "0")  # readers do not wait
    other.execute("ROLLBACK")
    other.close()
    patient.reserve(**ask())


def test_a_full_disk_writes_nothing(sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = sqlite3.connect(sqlite_ledger.path).execute("PRAGMA page_count").fetchone()[0]
    real = store_sqlite._on_begin

    def small(connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        real(connection)

    full = Ledger.open(sqlite_ledger.path)
    store_sqlite.event.remove(full._store._engine, "begin", store_sqlite._on_begin)
    store_sqlite.event.listen(full._store._engine, "begin", small)
    many = {f"s{number}": BOTH["generator"] * 20 for number in range(40)}
    refused(sqlite_ledger, LedgerError, "cannot be used", lambda: full.reserve(**ask(stages=many)))
    sqlite_ledger.reserve(**ask(stages=many))
    assert sqlite_ledger.verify().ok


def test_the_database_itself_refuses_change(sqlite_ledger: Ledger) -> None:
    raw = sqlite3.connect(sqlite_ledger.path, isolation_level=None)
    for statement in (
        "UPDATE entries SET at = 'x'",
        "DELETE FROM entries WHERE seq = 2",
        "INSERT INTO entries SELECT 9, previous, hash, kind, population, run_key, attempt, stage,"
        " payload, at FROM entries WHERE seq = 2",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE seq = 2",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|continue the chain"):
            raw.execute(statement)
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT"):
        raw.execute(
            "INSERT INTO entries SELECT 3, hash, hash, kind, population, run_key, 'x', stage,"
            " payload, at FROM entries WHERE seq = 2"
        )
    raw.close()
    assert sqlite_ledger.verify().ok


@pytest.mark.parametrize("part", ["epsilon", "delta"])
def test_the_database_itself_refuses_overspending(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """With the rules in Python switched off, the sum in SQL still holds."""
    ledger.reserve(**ask())
    monkeypatch.setattr("dpiw.ledger.book.Book.check", lambda *_: None)
    exact = {"epsilon": cost("1.5", "1e-7"), "delta": cost("0.1", "9e-6")}[part]
    over = cost("1.500000000001", "1e-7") if part == "epsilon" else cost("0.1", "9.000000000001e-6")
    refused(
        ledger,
        LedgerError,
        "refused the entry",
        lambda: ledger.reserve(**ask(run_key=digest(7), cost=over)),
    )
    refused(
        ledger,
        LedgerError,
        "refused the entry",
        lambda: ledger.reserve(**ask(run_key=digest(7), population="ghost")),
    )
    ledger.reserve(**ask(run_key=digest(7), cost=exact))


# --- populations --------------------------------------------------------------------------------


def test_register_is_once_and_for_ever(ledger: Ledger) -> None:
    head = ledger.head()
    assert ledger.register(adult(epsilon=Decimal("2.000"))) == adult()
    assert ledger.head() == head
    other_terms: list[dict[str, Any]] = [
        {"epsilon": Decimal("2.1")},
        {"delta": Decimal("1e-6")},
        {"relation": REPLACE},
        {"id_column": "person"},
        {"id_column": "person", "max_rows": 2},
    ]
    for change in other_terms:
        refused(
            ledger, LedgerConflictError, "set once", lambda c=change: ledger.register(adult(**c))
        )
    ledger.register(adult(name="beta"))
    assert [one.name for one in ledger.populations()] == ["adult", "beta"]
    assert ledger.population("adult") == adult()


def test_a_budget_is_rounded_down(store_url: str) -> None:
    ledger = Ledger.create(store_url)
    ledger.register(adult(epsilon=Decimal("1.9999999999999"), delta=Decimal("1.9e-18")))
    assert ledger.remaining("adult") == PrivacyBudget(
        epsilon_units=1_999_999_999_999, delta_units=1, relation=ADD
    )


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Adult"},
        {"name": "../x"},
        {"name": ""},
        {"name": "a" * 64},
        {"name": "adult\n"},
        {"epsilon": Decimal(0)},
        {"epsilon": Decimal("1e-13")},
        {"epsilon": Decimal("-1")},
        {"epsilon": Decimal("NaN")},
        {"epsilon": Decimal("Infinity")},
        {"epsilon": Decimal("1e6")},
        {"epsilon": 1.0},
        {"delta": Decimal("-1e-9")},
        {"delta": Decimal(1)},
        {"delta": 1e-6},
        {"max_rows": 0},
        {"id_column": None, "max_rows": 2},  # rows of whom?
        {"id_column": ""},
        {"id_column": 1},
        {"max_rows": True},
        {"max_rows": 1.5},
        {"relation": "replace_one"},
        {"composition": "pld"},
    ],
)
def test_malformed_terms_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"population.{next(iter(change))}"):
        adult(**change)


def test_basic_and_renyi_are_the_only_compositions() -> None:
    assert list(CompositionRule) == [CompositionRule.BASIC, CompositionRule.RENYI]


def test_an_unknown_population_is_refused(ledger: Ledger) -> None:
    for act in (ledger.population, ledger.spent, ledger.remaining, ledger.runs):
        with pytest.raises(UnknownPopulationError, match="ghost"):
            act("ghost")
    refused(
        ledger,
        UnknownPopulationError,
        "ghost",
        lambda: ledger.reserve(**ask(population="ghost")),
    )


# --- reserve ------------------------------------------------------------------------------------


def test_reserve_is_durable_and_idempotent(ledger: Ledger) -> None:
    first = ledger.reserve(**ask())
    head = ledger.head()
    assert first.head == head
    assert Ledger.open(ledger.location).reserve(**ask()) == first
    assert ledger.head() == head
    assert ledger.spent("adult") == cost("0.5")
    assert ledger.run(RUN).state is RunState.RESERVED
    assert ledger.confirm_reserved(RUN, 1, "weights") == first


@pytest.mark.parametrize(
    "change",
    [
        {"cost": cost("0.4")},
        {"cost": cost("0.5", relation=REPLACE)},
        {"stages": {"generator": BOTH["generator"]}},
        {"stages": {**BOTH, "weights": [{"type": "laplace", "noise_multiplier": 4.5}]}},
        {"plan_digest": digest(9)},
        {"period": "2027-q2"},
        {"max_attempts": 4},
        {"population": "beta"},
    ],
)
def test_the_same_key_with_other_content_conflicts(ledger: Ledger, change: dict[str, Any]) -> None:
    ledger.register(adult(name="beta"))
    ledger.reserve(**ask())
    refused(ledger, LedgerConflictError, "another|other", lambda: ledger.reserve(**ask(**change)))


def test_overspending_is_refused_with_both_sides_named(ledger: Ledger) -> None:
    ledger.reserve(**ask(cost=cost("1.2", "1e-6")))
    error = refused(
        ledger,
        BudgetExceededError,
        "asks epsilon=1.2, delta=1E-6; epsilon=0.8, delta=9E-6 is left",
        lambda: ledger.reserve(**ask(run_key=digest(7), cost=cost("1.2", "1e-6"))),
    )
    assert error.requested == "epsilon=1.2, delta=1E-6"
    assert error.remaining == "epsilon=0.8, delta=9E-6"


def test_one_unit_too_much_is_refused_and_the_exact_rest_is_granted(ledger: Ledger) -> None:
    for over in (cost("2.000000000001"), cost("2", "1.0000000000001e-5")):
        refused(
            ledger,
            BudgetExceededError,
            "is left",
            lambda over=over: ledger.reserve(**ask(cost=over)),
        )
    ledger.reserve(**ask(cost=cost("2", "1e-5")))
    assert ledger.remaining("adult") == PrivacyBudget(epsilon_units=0, delta_units=0, relation=ADD)
    smallest = PrivacyCost(epsilon_units=0, delta_units=1, relation=ADD)
    refused(
        ledger,
        BudgetExceededError,
        "is left",
        lambda: ledger.reserve(**ask(run_key=digest(7), cost=smallest)),
    )


def test_another_relation_is_refused(ledger: Ledger) -> None:
    refused(
        ledger,
        UnsupportedRelationError,
        "registered under add_or_remove_one",
        lambda: ledger.reserve(**ask(cost=cost("0.1", relation=REPLACE))),
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"run_key": "abc"}, "run_key"),
        ({"run_key": digest(1).replace("0", "A")}, "run_key"),
        ({"plan_digest": "x" * 64}, "plan_digest"),
        ({"period": "the first quarter"}, "period"),
        ({"period": ""}, "period"),
        ({"attempt": 0}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"population": "Adult"}, "population"),
        ({"stages": {}}, "stages"),
        ({"stages": {"Bad Name": []}}, "stage"),
        ({"stages": {"s": [{"note": "free text"}]}}, "free text"),
        ({"stages": {"s": [{"a note": 1}]}}, "keys"),
        ({"stages": {"s": [{1: 1}]}}, "keys"),
        ({"stages": {"s": [{"x": float("nan")}]}}, "finite"),
        ({"stages": {"s": [{"x": Decimal("Infinity")}]}}, "finite"),
        ({"stages": {"s": [{"x": b"bytes"}]}}, "finite"),
        ({"cost": PrivacyCost(epsilon_units=0, delta_units=0, relation=ADD)}, "no draw is free"),
    ],
)
def test_malformed_requests_are_refused(ledger: Ledger, change: dict[str, Any], match: str) -> None:
    refused(ledger, SpecError, match, lambda: ledger.reserve(**ask(**change)))


def test_no_float_is_stored(ledger: Ledger) -> None:
    events = [{"a": 0.1, "b": np.float64(1e-300), "c": np.int64(3), "d": Decimal("1.50"), "e": [2]}]
    ledger.reserve(**ask(stages={"s": events}))
    stored = ledger.run(RUN).stages["s"].events[0]
    assert stored == {"a": "0.1", "b": "1e-300", "c": 3, "d": "1.5", "e": [2]}
    assert float(stored["b"]) == 1e-300
    for entry in ledger.entries():
        json.dumps(entry.to_json(), allow_nan=False)
        assert "float" not in {type(value).__name__ for value in _leaves(entry.to_json())}
    assert canonical({"x": [None, True]}, field="f") == {"x": [None, True]}


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


# --- transitions --------------------------------------------------------------------------------


def test_the_whole_way(ledger: Ledger) -> None:
    ledger.reserve(**ask())
    grant = ledger.arm(RUN, 1, "generator")
    ledger.confirm(grant)
    assert ledger.run(RUN).state is RunState.ARMED
    assert ledger.confirm_reserved(RUN, 1, "generator").attempt == 1
    ledger.commit(grant, OUT)
    head = ledger.head()
    ledger.commit(grant, OUT)
    ledger.commit_found(RUN, 1, "generator", OUT)
    assert ledger.head() == head
    ledger.commit(ledger.arm(RUN, 1, "weights"), OUT)
    assert ledger.run(RUN).state is RunState.COMMITTED
    published = ledger.publish(RUN, MANIFEST)
    assert published == ledger.head()
    assert ledger.publish(RUN, MANIFEST) == published == ledger.head()
    refused(ledger, LedgerConflictError, "another manifest", lambda: ledger.publish(RUN, digest(5)))
    run = ledger.run(RUN)
    assert run.state is RunState.PUBLISHED
    assert run.manifest_digest == MANIFEST
    assert run.stages["generator"].output_digest == OUT
    assert ledger.find_run(RUN) == run
    assert ledger.find_run(digest(99)) is None
    assert ledger.runs("adult") == (run,)
    assert ledger.verify().ok


def bring(ledger: Ledger, state: StageState) -> Grant | None:
    """Reserve, and take stage `generator` of attempt 1 to `state`."""
    ledger.reserve(**ask())
    if state is StageState.VOIDED:
        ledger.void(RUN, 1)
    if state in (StageState.RESERVED, StageState.VOIDED):
        return None
    grant = ledger.arm(RUN, 1, "generator")
    if state is StageState.COMMITTED:
        ledger.commit(grant, OUT)
    if state is StageState.LOST:
        ledger.lose(RUN, 1, "generator")
    return grant


FORGED = Grant(
    population="adult", run_key=RUN, attempt=1, stage="generator", token=digest(0), seq=3
)

VERBS: dict[str, Callable[[Ledger, Grant | None], Any]] = {
    "arm": lambda one, _: one.arm(RUN, 1, "generator"),
    "confirm": lambda one, grant: one.confirm(grant or FORGED),
    "confirm_reserved": lambda one, _: one.confirm_reserved(RUN, 1, "generator"),
    "commit": lambda one, grant: one.commit(grant or FORGED, OUT),
    "commit_found": lambda one, _: one.commit_found(RUN, 1, "generator", OUT),
    "lose": lambda one, _: one.lose(RUN, 1, "generator"),
    "void": lambda one, _: one.void(RUN, 1),
    "publish": lambda one, _: one.publish(RUN, MANIFEST),
}

LEGAL = {
    StageState.RESERVED: {"arm", "confirm_reserved", "void"},
    StageState.ARMED: {"confirm", "confirm_reserved", "commit", "commit_found", "lose"},
    StageState.COMMITTED: {"commit", "commit_found"},  # the same digest: no change
    StageState.LOST: {"lose"},  # again: no change
    StageState.VOIDED: {"void"},  # again: no change
}


@pytest.mark.parametrize("state", list(StageState))
@pytest.mark.parametrize("verb", list(VERBS))
def test_every_transition_legal_and_illegal(ledger: Ledger, state: StageState, verb: str) -> None:
    grant = bring(ledger, state)
    assert ledger.run(RUN).stages["generator"].state is state
    if verb in LEGAL[state]:
        VERBS[verb](ledger, grant)
    else:
        error = LedgerConflictError if verb == "publish" else GrantSpentError
        said = state.value if grant or verb not in ("confirm", "commit") else "not the one"
        refused(ledger, error, said, lambda: VERBS[verb](ledger, grant))
    assert ledger.verify().ok


def test_transitions_of_what_was_never_reserved(ledger: Ledger) -> None:
    for verb in VERBS.values():
        refused(ledger, LedgerConflictError, "no reservation", lambda v=verb: v(ledger, None))
    refused(ledger, LedgerConflictError, "no reservation", lambda: ledger.run(RUN))
    ledger.reserve(**ask())
    refused(ledger, LedgerConflictError, "no stage", lambda: ledger.arm(RUN, 1, "ghost"))
    for attempt in (0, 2, -1):
        refused(
            ledger,
            LedgerConflictError,
            "no such attempt",
            lambda a=attempt: ledger.arm(RUN, a, "weights"),
        )


def test_malformed_digests_are_refused(ledger: Ledger) -> None:
    grant = bring(ledger, StageState.ARMED)
    assert grant is not None
    refused(ledger, SpecError, "output_digest", lambda: ledger.commit(grant, "x"))
    refused(ledger, SpecError, "manifest_digest", lambda: ledger.publish(RUN, "x"))


def test_a_grant_is_known_by_its_token_and_the_ledger_does_not_tell_it(ledger: Ledger) -> None:
    grant = bring(ledger, StageState.ARMED)
    assert grant is not None
    for verb in ("confirm", "commit"):
        refused(
            ledger,
            GrantSpentError,
            "not the one that was armed",
            lambda v=verb: VERBS[v](ledger, FORGED),
        )
    assert grant.token not in json.dumps(ledger.export())
    assert grant.token not in repr(grant)


def test_a_second_output_is_put_on_record_and_charged_again(ledger: Ledger) -> None:
    grant = bring(ledger, StageState.COMMITTED)
    assert grant is not None
    for digest_two, times in ((digest(6), 2), (digest(6), 2), (digest(8), 3)):
        with pytest.raises(LedgerConflictError, match="another output"):
            ledger.commit(grant, digest_two)
        assert ledger.spent("adult").epsilon_units == times * cost("0.5").epsilon_units
    with pytest.raises(LedgerConflictError, match="another output"):
        ledger.commit_found(RUN, 1, "generator", digest(8))
    record = ledger.run(RUN).stages["generator"]
    assert record.output_digest == OUT
    assert record.conflicts == (digest(6), digest(8))
    assert [e.kind for e in ledger.entries()].count(EntryKind.CONFLICT) == 2
    ledger.commit(ledger.arm(RUN, 1, "weights"), OUT)
    ledger.publish(RUN, MANIFEST)
    assert ledger.verify().ok


def test_conflicts_beyond_the_budget_leave_nothing_and_no_less(ledger: Ledger) -> None:
    ledger.reserve(**ask(cost=cost("1.5")))
    grant = ledger.arm(RUN, 1, "generator")
    ledger.commit(grant, OUT)
    with pytest.raises(LedgerConflictError):
        ledger.commit(grant, digest(6))
    assert ledger.spent("adult") == cost("3", "2e-6")
    assert ledger.remaining("adult").epsilon_units == 0
    assert ledger.verify().ok
    refused(
        ledger,
        BudgetExceededError,
        "is left",
        lambda: ledger.reserve(**ask(run_key=digest(7), cost=cost("0.1"))),
    )


# --- attempts -----------------------------------------------------------------------------------


def test_a_lost_stage_is_drawn_again_in_a_new_attempt_at_a_new_cost(ledger: Ledger) -> None:
    bring(ledger, StageState.LOST)
    assert ledger.run(RUN).state is RunState.LOST
    again = ask(attempt=2, stages={"generator": BOTH["generator"]}, cost=cost("0.3"))
    ledger.reserve(**again)
    assert ledger.spent("adult") == cost("0.8", "2e-6")
    assert ledger.run(RUN).stages["generator"].attempt == 2
    refused(ledger, GrantSpentError, "lost", lambda: ledger.arm(RUN, 1, "generator"))
    ledger.commit(ledger.arm(RUN, 2, "generator"), OUT)
    ledger.commit(ledger.arm(RUN, 1, "weights"), OUT)  # the first attempt's own stage goes on
    ledger.publish(RUN, MANIFEST)
    assert ledger.verify().ok


@pytest.mark.parametrize("state", [StageState.RESERVED, StageState.ARMED, StageState.COMMITTED])
def test_only_a_lost_stage_may_be_drawn_again(ledger: Ledger, state: StageState) -> None:
    bring(ledger, state)
    refused(
        ledger,
        GrantSpentError,
        f"generator is {state.value}",
        lambda: ledger.reserve(**ask(attempt=2, stages={"generator": BOTH["generator"]})),
    )


def test_attempts_have_no_gaps_and_keep_the_plan(ledger: Ledger) -> None:
    refused(
        ledger, LedgerConflictError, "first attempt is 1", lambda: ledger.reserve(**ask(attempt=2))
    )
    bring(ledger, StageState.LOST)
    one = {"generator": BOTH["generator"]}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"attempt": 3}, "next attempt is 2"),
        ({"attempt": 2, "plan_digest": digest(9)}, "plan_digest"),
        ({"attempt": 2, "period": "later"}, "period"),
        ({"attempt": 2, "max_attempts": 9}, "max_attempts"),
        ({"attempt": 2, "stages": {"generator": BOTH["weights"]}}, "events"),
        ({"attempt": 2, "stages": {"other": BOTH["weights"]}}, "stage other"),
    ]
    for change, match in wrong:
        terms = ask(**{"stages": one, **change})
        refused(ledger, LedgerConflictError, match, lambda t=terms: ledger.reserve(**t))


def test_max_attempts_ends_it(ledger: Ledger) -> None:
    one = {"generator": BOTH["generator"]}
    for attempt in (1, 2):
        ledger.reserve(**ask(attempt=attempt, stages=one, max_attempts=2, cost=cost("0.1")))
        ledger.arm(RUN, attempt, "generator")
        ledger.lose(RUN, attempt, "generator")
    refused(
        ledger,
        GrantSpentError,
        "max_attempts=2",
        lambda: ledger.reserve(**ask(attempt=3, stages=one, max_attempts=2, cost=cost("0.1"))),
    )
    assert ledger.spent("adult") == cost("0.2", "2e-6")


def test_a_void_gives_back_once_and_burns_the_number_but_no_attempt(ledger: Ledger) -> None:
    most = cost("1.5", "9e-6")
    ledger.reserve(**ask(max_attempts=1, cost=most))
    ledger.void(RUN, 1)
    head = ledger.head()
    ledger.void(RUN, 1)
    assert ledger.head() == head
    assert ledger.spent("adult") == cost("0", "0")
    assert ledger.run(RUN).state is RunState.VOIDED
    refused(
        ledger,
        LedgerConflictError,
        "key reused after void",
        lambda: ledger.reserve(**ask(max_attempts=1, cost=most)),
    )
    ledger.reserve(**ask(attempt=2, max_attempts=1, cost=most))
    finish(ledger, attempt=2)
    ledger.publish(RUN, MANIFEST)
    assert ledger.verify().ok


def test_voiding_a_second_attempt_leaves_the_first_one_lost(ledger: Ledger) -> None:
    bring(ledger, StageState.LOST)
    ledger.reserve(**ask(attempt=2, stages={"generator": BOTH["generator"]}, cost=cost("0.3")))
    ledger.void(RUN, 2)
    assert ledger.run(RUN).state is RunState.LOST
    assert ledger.spent("adult") == cost("0.5")


# --- heads, queries, clock ----------------------------------------------------------------------


def test_published_heads_must_be_in_the_chain(ledger: Ledger) -> None:
    old = ledger.head()
    ledger.reserve(**ask())
    new = ledger.head()
    known = [PublishedHead(hash=head.hash) for head in (old, new)]
    ledger.check_heads(known)
    assert ledger.contains(old.hash)
    assert not ledger.contains(digest(5))
    foreign = PublishedHead(hash=digest(5))
    refused(ledger, LedgerTamperedError, "lacks", lambda: ledger.check_heads([*known, foreign]))
    for terms in (ask(run_key=digest(7)), ask()):
        refused(
            ledger,
            LedgerTamperedError,
            "Spending is refused",
            lambda t=terms: ledger.reserve(**t, published_heads=[foreign]),
        )
    ledger.reserve(**ask(run_key=digest(7)), published_heads=[old, new])


def test_entries_are_filtered_and_exported(ledger: Ledger) -> None:
    ledger.register(adult(name="beta"))
    ledger.reserve(**ask())
    kinds = [entry.kind for entry in ledger.entries()]
    assert kinds == [EntryKind.GENESIS, EntryKind.REGISTER, EntryKind.REGISTER, EntryKind.RESERVE]
    assert [e.seq for e in ledger.entries(population="beta")] == [3]
    assert [e.seq for e in ledger.entries(run_key=RUN)] == [4]
    exported = json.loads(json.dumps(ledger.export()))
    assert [one["seq"] for one in exported] == [1, 2, 3, 4]
    assert all(b["previous"] == a["hash"] for a, b in itertools.pairwise(exported))


def test_the_clock_is_a_label_only(store_url: str) -> None:
    times = iter(
        [
            datetime(2027, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2017, 1, 1, tzinfo=UTC),
            datetime(2016, 1, 1, tzinfo=UTC),
        ]
    )
    ledger = Ledger.create(store_url, clock=lambda: next(times))
    ledger.register(adult())
    ledger.reserve(**ask())
    assert [entry.at for entry in ledger.entries()] == [
        "2027-01-01T00:00:00Z",
        "2017-01-01T00:00:00Z",
        "2016-01-01T00:00:00Z",
    ]
    assert ledger.verify().ok
    with pytest.raises(SpecError, match="zone"):
        Ledger.create(store_url, clock=lambda: datetime(2027, 1, 1))


def test_one_ledger_object_sees_what_another_wrote(ledger: Ledger) -> None:
    other = Ledger.open(ledger.location)
    other.reserve(**ask())
    assert ledger.spent("adult") == other.spent("adult") == cost("0.5")
    grant = ledger.arm(RUN, 1, "weights")
    other.confirm(grant)
    refused(other, GrantSpentError, "armed", lambda: other.arm(RUN, 1, "weights"))


# --- against an oracle --------------------------------------------------------------------------

amounts = st.decimals(min_value="0", max_value="1", places=6).map(lambda d: d.normalize())


@settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    asked=st.lists(
        st.tuples(
            st.fractions(min_value=0, max_value=Fraction(1, 2), max_denominator=997),
            st.fractions(min_value=0, max_value=Fraction(1, 10**5), max_denominator=10**9),
        ),
        max_size=10,
    )
)
def test_grants_are_those_of_exact_fractions(
    ledger: Ledger, asked: list[tuple[Fraction, Fraction]]
) -> None:
    """Whatever is granted, the true costs (not their roundings) stay within the true budget."""
    name = f"p{len(ledger.populations())}"  # one ledger, a population for each example
    ledger.register(adult(name=name, epsilon=Decimal("1.1"), delta=Decimal("2e-5")))
    true, rounded = [Fraction(0)] * 2, [Fraction(0)] * 2
    caps = [Fraction(11, 10), Fraction(2, 10**5)]
    for number, pair in enumerate(asked, start=1000 * len(ledger.populations())):
        one = PrivacyCost.of(*[_up(part) for part in pair], relation=ADD)
        if one.epsilon_units == one.delta_units == 0:
            continue
        units = [Fraction(one.epsilon_units, 10**12), Fraction(one.delta_units, 10**18)]
        fits = all(r + u <= cap for r, u, cap in zip(rounded, units, caps, strict=True))
        try:
            ledger.reserve(**ask(population=name, run_key=digest(number), cost=one))
            granted = True
        except BudgetExceededError:
            granted = False
        assert granted == fits
        if granted:
            true = [t + p for t, p in zip(true, pair, strict=True)]
            rounded = [r + u for r, u in zip(rounded, units, strict=True)]
    assert all(t <= r <= cap for t, r, cap in zip(true, rounded, caps, strict=True))
    spent, left = ledger.spent(name), ledger.remaining(name)
    assert Fraction(spent.epsilon_units, 10**12) == rounded[0]
    assert Fraction(spent.delta_units, 10**18) == rounded[1]
    assert Fraction(left.epsilon_units, 10**12) == caps[0] - rounded[0]


def _up(value: Fraction) -> Decimal:
    """At least `value`, within 1e-25."""
    return Decimal(-((-value * 10**25) // 1)) / Decimal(10**25)


class LedgerMachine(RuleBasedStateMachine):
    """Random histories of two runs with two stages against a small, obviously right model."""

    new_url: Callable[[], str]

    @initialize()
    def start(self) -> None:
        self.ledger = Ledger.create(self.new_url())
        self.ledger.register(adult())
        self.budget, self.charged, self.conflicts = 20, {}, 0
        # (run, attempt) -> {stage: state}; voided attempts keep their stages as "voided"
        self.states: dict[tuple[int, int], dict[str, str]] = {}
        self.grants: dict[tuple[int, int, str], Grant] = {}
        self.published: set[int] = set()
        self.reserve(run=0, skip=0, tenths=3, only=None)
        self.reserve(run=1, skip=0, tenths=2, only="weights")

    runs = st.integers(0, 1)
    # Mostly a place where the verb is legal, so that histories get somewhere; sometimes any place.
    picks = st.tuples(st.sampled_from([1, 1, 1, 1, 1, 0]), st.integers(0, 11))

    def _pick(self, pick: tuple[int, int], *wanted: str) -> tuple[int, int, str]:
        aim, number = pick
        places = [(run, n, name) for run in (0, 1) for n in (1, 2, 3) for name in sorted(BOTH)]
        fitting = [p for p in places if self.states.get(p[:2], {}).get(p[2]) in wanted]
        chosen = fitting if aim and fitting else places
        return chosen[number % len(chosen)]

    def _now(self, run: int, name: str) -> str | None:
        """State of a stage in its run: that of the latest attempt that was not voided."""
        found = [
            (state[name] != "voided", attempt, state[name])
            for (r, attempt), state in sorted(self.states.items())
            if r == run and name in state
        ]
        return max(found)[2] if found else None

    def _try(self, legal: bool, act: Callable[[], Any]) -> Any:
        if legal:
            return act()
        before = self.ledger.head()
        with pytest.raises((PrivacyError, LedgerError)):
            act()
        assert self.ledger.head() == before
        return None

    @rule(
        run=runs,
        skip=st.sampled_from([0, 0, 0, 0, 1]),
        tenths=st.integers(1, 6),
        only=st.sampled_from([None, None, None, *sorted(BOTH)]),
    )
    def reserve(self, run: int, skip: int, tenths: int, only: str | None) -> None:
        last = max((a for r, a in self.states if r == run), default=0)
        attempt = last + 1 + skip
        again = [n for n in sorted(BOTH) if self._now(run, n) in ("lost", "voided")]
        wanted = [only] if only else again or sorted(BOTH)
        first = {n for (r, a), s in self.states.items() if (r, a) == (run, 1) for n in s}
        live = sum(r == run and "voided" not in s.values() for (r, _), s in self.states.items())
        legal = (
            attempt == last + 1
            and live < 2
            and all(
                last == 0 or (n in first and self._now(run, n) in ("lost", "voided"))
                for n in wanted
            )
            and self._held() + tenths <= self.budget
        )
        terms = ask(
            run_key=digest(run),
            attempt=attempt,
            cost=cost(str(Decimal(tenths) / 10)),
            stages={n: BOTH[n] for n in wanted},
            max_attempts=2,
        )
        self._try(legal, lambda: self.ledger.reserve(**terms))
        if legal:
            self.states[run, attempt] = dict.fromkeys(wanted, "reserved")
            self.charged[run, attempt] = tenths

    @rule(pick=picks)
    def arm(self, pick: tuple[int, int]) -> None:
        run, attempt, name = self._pick(pick, "reserved")
        state = self.states.get((run, attempt), {})
        legal = state.get(name) == "reserved"
        grant = self._try(legal, lambda: self.ledger.arm(digest(run), attempt, name))
        if legal:
            state[name] = "armed"
            self.grants[run, attempt, name] = grant

    @rule(pick=picks, found=st.booleans())
    def commit(self, pick: tuple[int, int], found: bool) -> None:
        run, attempt, name = self._pick(pick, "armed", "committed")
        state = self.states.get((run, attempt), {})
        grant = self.grants.get((run, attempt, name), FORGED)
        legal = state.get(name) in ("armed", "committed")
        self._try(
            legal,
            lambda: (
                self.ledger.commit_found(digest(run), attempt, name, OUT)
                if found
                else self.ledger.commit(grant, OUT)
            ),
        )
        if legal:
            state[name] = "committed"

    @rule(pick=picks)
    def lose(self, pick: tuple[int, int]) -> None:
        run, attempt, name = self._pick(pick, "armed", "lost")
        state = self.states.get((run, attempt), {})
        legal = state.get(name) in ("armed", "lost")
        self._try(legal, lambda: self.ledger.lose(digest(run), attempt, name))
        if legal:
            state[name] = "lost"

    @rule(pick=picks)
    def void(self, pick: tuple[int, int]) -> None:
        run, attempt, _ = self._pick(pick, "reserved") if pick[1] == 7 else self._pick((0, pick[1]))
        state = self.states.get((run, attempt), {})
        legal = bool(state) and set(state.values()) <= {"reserved"} | {"voided"}
        self._try(legal, lambda: self.ledger.void(digest(run), attempt))
        if legal:
            state.update(dict.fromkeys(state, "voided"))
            self.charged[run, attempt] = 0

    @rule(picks=st.lists(picks, min_size=1, max_size=4), fate=st.sampled_from("cccl"), run=runs)
    def go_on(self, picks: list[tuple[int, int]], fate: str, run: int) -> None:
        """What a run does when left alone: arm, then commit or lose, then publish or retry."""
        for pick in picks:
            self.arm(pick)
            if fate == "c":
                self.commit(pick, found=pick[1] % 2 == 0)
            else:
                self.lose(pick)
                self.reserve(run=run, skip=0, tenths=1, only=None)
        self.publish(run)

    @rule(run=runs)
    def publish(self, run: int) -> None:
        names = {n for (r, a), s in self.states.items() if (r, a) == (run, 1) for n in s}
        legal = bool(names) and all(self._now(run, n) == "committed" for n in names)
        self._try(legal, lambda: self.ledger.publish(digest(run), MANIFEST))
        if legal:
            self.published.add(run)

    @rule()
    def reopen(self) -> None:
        self.ledger = Ledger.open(self.ledger.location)

    def _held(self) -> int:
        return sum(self.charged.values())

    @invariant()
    def the_ledger_agrees(self) -> None:
        if not hasattr(self, "ledger"):
            return
        book = self.ledger._read(lambda book: book)  # one transaction for all questions
        spent = book.account("adult").spent.epsilon_units
        assert spent == self._held() * 10**11
        assert 0 <= spent <= self.budget * 10**11
        for run in (0, 1):
            record = book.runs.get(digest(run))
            stages = {} if record is None else record.stages
            for name in BOTH:
                found = stages[name].state.value if name in stages else None
                assert found == self._now(run, name)
            assert (record is not None and record.state is RunState.PUBLISHED) == (
                run in self.published
            )

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            assert self.ledger.verify().ok


def try_histories(new_url: Callable[[], str], count: int) -> None:
    class Machine(LedgerMachine):
        pass

    Machine.new_url = staticmethod(new_url)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=count,
            stateful_step_count=30,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_random_histories_agree_with_a_model(
    store_kind: str, new_ledger_url: Callable[[str], str]
) -> None:
    try_histories(lambda: new_ledger_url(store_kind), {"sqlite": 15, "postgresql": 8}[store_kind])


@pytest.mark.crash
def test_many_random_histories_agree_with_a_model(
    store_kind: str, new_ledger_url: Callable[[str], str], figures: Callable[..., None]
) -> None:
    histories = 100
    try_histories(lambda: new_ledger_url(store_kind), histories)
    figures("ledger_random_histories", store=store_kind, histories=histories, violations=0)


# --- command line -------------------------------------------------------------------------------


def cli(*words: str) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    add_ledger_commands(parser.add_subparsers())
    arguments = parser.parse_args(["ledger", *words])
    arguments.stream = io.StringIO()
    return arguments.handler(arguments), arguments.stream.getvalue()


def test_the_command_line_tells_and_does(
    store_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = store_url
    terms = ["--epsilon", "2", "--delta", "1e-5", "--relation", "add_or_remove_one"]
    register = ["register", "adult", *terms, "--max-rows", "1", "--ledger", path]
    with pytest.raises(LedgerError, match="never created by opening it"):
        cli(*register)
    assert cli(*register, "--create")[0] == 0
    assert cli(*register) == (0, "population adult: epsilon=2, delta=1E-5, add_or_remove_one\n")
    assert "no runs" in cli("show", "--ledger", path)[1]
    ledger = Ledger.open(path)
    ledger.reserve(**ask())
    (tmp_path / "workspace" / "adult" / RUN[:32]).mkdir(parents=True)
    assert cli("void", RUN, "--attempt", "1", "--ledger", path, "--state", str(tmp_path)) == (
        0,
        "voided; population adult has epsilon=2, delta=1E-5 left\n",
    )
    ledger.reserve(**ask(attempt=2))
    finish(ledger, attempt=2)
    ledger.publish(RUN, MANIFEST)
    text = cli("show", "--ledger", path)[1]
    for part in (
        "population adult  (add_or_remove_one, max_rows=1, id_column=None, composition basic)",
        "budget     epsilon=2, delta=1E-5",
        "spent      epsilon=0.5, delta=1E-6",
        "remaining  epsilon=1.5, delta=9E-6",
        "2027-q1",
        "generator=committed weights=committed",
        "generator=voided weights=voided",
        "published",
    ):
        assert part in text
    facts = json.loads(cli("show", "--json", "--run", RUN, "--ledger", path)[1])
    run = facts["populations"][0]["runs"][0]
    assert run["manifest_digest"] == MANIFEST
    assert [one["held"] for one in run["attempts"]] == [
        "epsilon=0, delta=0",
        "epsilon=0.5, delta=1E-6",
    ]
    head = ledger.head()
    good, bad = head.hash, digest(5)
    assert cli("verify", "--ledger", path, "--head", good)[0] == 0
    with pytest.raises(LedgerTamperedError):
        cli("verify", "--ledger", path, "--head", bad)
    parser = argparse.ArgumentParser()
    add_ledger_commands(parser.add_subparsers())
    arguments = parser.parse_args(["ledger", "verify", "--ledger", path])
    assert arguments.handler(arguments) == 0
    assert capsys.readouterr().out.startswith(f"ok: {head.seq} entries, head {good}")


def test_the_command_line_registers_a_unit_of_several_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger")
    terms = ["--epsilon", "2", "--delta", "1e-5", "--relation", "add_or_remove_one", "--create"]
    words = ["register", "adult", *terms, "--max-rows", "3", "--ledger", path]
    with pytest.raises(SpecError, match="id_column"):
        cli(*words)
    text = cli(*words, "--id-column", "person")[1]
    assert text == "population adult: epsilon=2, delta=1E-5, add_or_remove_one, id_column=person\n"
    assert "max_rows=3, id_column=person" in cli("show", "--ledger", path)[1]
    unit = PrivacyUnit(relation=ADD, max_rows=3, id_column="person")
    known = Ledger.open(path).population("adult")
    assert known.protects(unit)
    for other in (
        PrivacyUnit(relation=ADD, max_rows=3, id_column="visit"),
        PrivacyUnit(relation=ADD, max_rows=2, id_column="person"),
        PrivacyUnit(relation=ADD),
        PrivacyUnit(relation=REPLACE, max_rows=3, id_column="person"),
    ):
        assert not known.protects(other)


def test_a_column_whose_name_is_no_label_stands_as_its_digest(tmp_path: Path) -> None:
    """Entries hold no free text."""
    made = Ledger.create(tmp_path / "ledger")
    made.register(adult(id_column="Persönliche Nummer"))
    payload = made.entries()[-1].payload
    assert payload["id_column"].startswith("sha256:")
    assert len(payload["id_column"]) == 71
    known = Ledger.open(made.path).population("adult")
    assert known.protects(PrivacyUnit(relation=ADD, id_column="Persönliche Nummer"))
    assert not known.protects(PrivacyUnit(relation=ADD, id_column="Personalnummer"))
    made.register(adult(id_column="Persönliche Nummer"))


def test_the_command_line_refuses_clearly(ledger: Ledger) -> None:
    path = ledger.location
    ledger.register(adult(name="beta"))
    ledger.reserve(**ask())
    for head in ("x", f"{digest(5)}:", f"7:{digest(5)}", f"{digest(5)}:a", digest(5).upper() + "A"):
        with pytest.raises(SpecError, match="HASH:MANIFEST, 64"):
            cli("verify", "--ledger", path, "--head", head)
    with pytest.raises(SpecError, match="exact decimal"):
        cli(
            *["register", "c", "--epsilon", "1,0", "--delta", "0", "--relation", "replace_one"],
            *["--ledger", path],
        )
    with pytest.raises(SpecError, match="another population"):
        cli("show", "--ledger", path, "--run", RUN, "--population", "beta")
    assert '"name": "beta"' in cli("show", "--ledger", path, "--population", "beta", "--json")[1]


def test_the_command_line_module_loads_no_database_library() -> None:
    code = "import sys, dpiw.cli.ledger; sys.exit('sqlalchemy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
