"""The ledger on both stores: populations, reservations, sums, published heads, authors."""

import json
import os
import pwd
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpiw import errors
from dpiw.audit.tally import tally
from dpiw.ledger import FaultKind, Ledger, RunState
from dpiw.ledger.book import Book
from dpiw.ledger.entries import Author, Entry, canonical, entry_json, from_stored, operator
from dpiw.ledger.reading import replay
from dpiw.ledger.stores import open_store
from dpiw.privacy.units import PrivacyBudget, PrivacyCost
from dpiw.release.signing import create_key_pair, load_private_key
from tests.support.ledger import (
    ADD,
    BOTH,
    MANIFEST,
    REPLACE,
    RUN,
    adult,
    ask,
    chain,
    cost,
    digest,
    finish,
    refused,
    spend,
    stored,
)
from tests.support.stores import both_stores

pytestmark = pytest.mark.usefixtures("in_memory")


@both_stores
def test_two_ledgers_never_share_a_head(store_kind, new_ledger_url):
    first, second = (Ledger.create(new_ledger_url(store_kind)) for _ in range(2))
    assert first.head() != second.head()


@both_stores
@pytest.mark.parametrize(
    ("exact", "over"),
    [
        (cost("1.5", "1e-7"), cost("1.500000000001", "1e-7")),
        (cost("0.1", "9e-6"), cost("0.1", "9.000000000001e-6")),
    ],
    ids=["epsilon", "delta"],
)
def test_the_database_itself_refuses_overspending(ledger, monkeypatch, exact, over):
    """With the rules in Python switched off, the sum in SQL still holds."""
    ledger.reserve(**ask())
    monkeypatch.setattr("dpiw.ledger.book.Book.check", lambda *_: None)
    for change in ({"cost": over}, {"population": "ghost"}):
        wrong = ask(run_key=digest(7), **change)
        refused(ledger, errors.LedgerError, lambda wrong=wrong: ledger.reserve(**wrong))
    ledger.reserve(**ask(run_key=digest(7), cost=exact))


@both_stores
def test_register_is_once_and_for_ever(ledger):
    head = ledger.head()
    assert ledger.register(adult(epsilon=Decimal("2.000"))) == adult()
    assert ledger.head() == head
    other_terms: list[dict[str, Any]] = [
        {"epsilon": Decimal("2.1")}, {"delta": Decimal("1e-6")}, {"relation": REPLACE},
        {"id_column": "person"}, {"id_column": "person", "max_rows": 2},
    ]  # fmt: skip
    for change in other_terms:
        refused(ledger, errors.LedgerConflictError, lambda c=change: ledger.register(adult(**c)))
    ledger.register(adult(name="beta", epsilon=Decimal("1.9999999999999"), delta=Decimal("2e-18")))
    assert [population.name for population in ledger.populations()] == ["adult", "beta"]
    assert ledger.population("adult") == adult()
    assert ledger.remaining("beta") == PrivacyBudget(  # rounded down
        epsilon_units=1_999_999_999_999, delta_units=2, relation=ADD
    )


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", ["Adult", "../x", "", "a" * 64, "adult\n"]),
        ("epsilon", [*map(Decimal, ["0", "1e-13", "-1", "NaN", "Infinity", "1e6"]), 1.0]),
        ("delta", [Decimal("-1e-9"), Decimal(1), 1e-6]),
        ("max_rows", [0, True, 1.5]),
        ("id_column", ["", 1]),
        ("relation", ["replace_one"]),
        ("composition", ["pld"]),
    ],
)
def test_malformed_terms_are_refused(field, values):
    for value in values:
        with pytest.raises(errors.SpecError, match=f"population.{field}"):
            adult(**{field: value})
    with pytest.raises(errors.SpecError, match=r"population\.id_column"):
        adult(max_rows=2)  # rows of whom?


def test_an_unknown_population_is_refused(ledger):
    for act in (ledger.population, ledger.spent, ledger.remaining, ledger.runs):
        with pytest.raises(errors.UnknownPopulationError, match="ghost"):
            act("ghost")
    unknown = ask(population="ghost")
    refused(ledger, errors.UnknownPopulationError, lambda: ledger.reserve(**unknown))


@both_stores
def test_reserve_is_durable_and_idempotent(ledger):
    first = ledger.reserve(**ask())
    head = ledger.head()
    assert first == head
    assert Ledger.open(ledger.location).reserve(**ask()) == first
    assert ledger.head() == head
    assert ledger.spent("adult") == cost("0.5")
    assert ledger.run(RUN).state is RunState.RESERVED
    ledger.confirm_reserved(RUN, 1, "weights")


def test_the_same_key_with_other_content_conflicts(ledger):
    ledger.register(adult(name="beta"))
    ledger.reserve(**ask())
    louder = {**BOTH, "weights": [{"type": "laplace", "noise_multiplier": 4.5}]}
    for change in (
        {"cost": cost("0.4")}, {"cost": cost("0.5", relation=REPLACE)}, {"stages": louder},
        {"stages": {"generator": BOTH["generator"]}}, {"plan_digest": digest(9)},
        {"period": "2027-q2"}, {"max_attempts": 4}, {"population": "beta"},
    ):  # fmt: skip
        other = ask(**change)
        refused(ledger, errors.LedgerConflictError, lambda other=other: ledger.reserve(**other))


@both_stores
def test_one_unit_too_much_is_refused_and_the_exact_rest_is_granted(ledger):
    for over in (cost("2.000000000001"), cost("2", "1.0000000000001e-5")):
        refused(
            ledger, errors.BudgetExceededError, lambda over=over: ledger.reserve(**ask(cost=over))
        )
    ledger.reserve(**ask(cost=cost("1.2", "1e-6")))
    again = ask(run_key=digest(7), cost=cost("1.2", "1e-6"))
    error = refused(ledger, errors.BudgetExceededError, lambda: ledger.reserve(**again))
    assert error.requested == "epsilon=1.2, delta=1E-6"
    assert error.remaining == "epsilon=0.8, delta=9E-6"
    ledger.reserve(**ask(run_key=digest(7), cost=cost("0.8", "9e-6")))
    assert ledger.remaining("adult") == PrivacyBudget(epsilon_units=0, delta_units=0, relation=ADD)
    one = PrivacyCost(epsilon_units=0, delta_units=1, relation=ADD)
    smallest = ask(run_key=digest(8), cost=one)
    refused(ledger, errors.BudgetExceededError, lambda: ledger.reserve(**smallest))


def test_another_relation_is_refused(ledger):
    other = ask(cost=cost("0.1", relation=REPLACE))
    refused(ledger, errors.UnsupportedRelationError, lambda: ledger.reserve(**other))


NOTHING = PrivacyCost(epsilon_units=0, delta_units=0, relation=ADD)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("run_key", ["abc", digest(1).replace("0", "A")]),
        ("plan_digest", ["x" * 64]),
        ("period", ["the first quarter", ""]),
        ("attempt", [0, True]),
        ("max_attempts", [0]),
        ("population", ["Adult"]),
        ("cost", [NOTHING]),
        ("stages", [
            {}, {"Bad Name": []}, {"s": [{"note": "free text"}]}, {"s": [{"a note": 1}]},
            {"s": [{1: 1}]}, {"s": [{"x": float("nan")}]}, {"s": [{"x": Decimal("Infinity")}]},
            {"s": [{"x": b"bytes"}]},
        ]),
    ],
)  # fmt: skip
def test_malformed_requests_are_refused(ledger, field, values):
    for value in values:
        request = ask(**{field: value})
        error = refused(ledger, errors.SpecError, lambda request=request: ledger.reserve(**request))
        assert str(error).startswith(field.removesuffix("s")), value


def test_no_float_is_stored(ledger):
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


def test_entries_are_filtered_and_the_clock_is_a_label_only(store_url):
    times = iter(
        [
            datetime(2027, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            *(datetime(year, 1, 1, tzinfo=UTC) for year in (2017, 2016, 2015)),
        ]
    )
    ledger = Ledger.create(store_url, clock=lambda: next(times))
    ledger.register(adult())
    ledger.register(adult(name="beta"))
    ledger.reserve(**ask())
    assert [e.seq for e in ledger.entries(population="beta")] == [3]
    assert [e.seq for e in ledger.entries(run_key=RUN)] == [4]
    years = ("2027", "2017", "2016", "2015")
    assert [entry.at for entry in ledger.entries()] == [f"{y}-01-01T00:00:00Z" for y in years]
    assert ledger.verify().ok
    with pytest.raises(errors.SpecError, match="zone"):
        Ledger.create(store_url, clock=lambda: datetime(2027, 1, 1))


@pytest.fixture
def key(tmp_path):
    return load_private_key(create_key_pair(tmp_path, "curator")[0])


@pytest.fixture
def signed(store_url, key):
    made = Ledger.create(store_url, actor=lambda: "curator@desk-1", key=key)
    made.register(adult())
    made.reserve(**ask(release="my-release"))
    finish(made)
    made.publish(RUN, MANIFEST)
    return made


def verdict(entries: list[dict]) -> FaultKind | None:
    """What replaying exported entries finds, all of them linked again."""
    _, fault = replay(stored(chain(entries)), book=Book(), head=None)
    return None if fault is None else fault.kind


@both_stores
def test_every_entry_names_and_signs_who_wrote_it(signed, key):
    entries = signed.entries()
    assert {str(entry.by) for entry in entries} == {f"curator@desk-1 (key {key.public.key_id})"}
    assert all(entry.by.signature and entry.authored() for entry in entries if entry.by)
    assert signed.verify().ok
    assert not tally(signed.snapshot().export()).findings
    (attempt,) = signed.run(RUN).attempts
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
    with pytest.raises(errors.SpecError, match=r"^DPIW_ACTOR: ") as caught:
        spend(sqlite_ledger, 2)
    assert "not a name" not in str(caught.value)


def test_a_signature_fits_one_entry_at_one_place(signed):
    entries = signed.snapshot().export()
    assert verdict(signed.snapshot().export()) is None
    moved = [*entries[:-1], {**entries[-1], "at": "2030-01-01T00:00:00Z"}]
    assert verdict(moved) is FaultKind.ILLEGAL_TRANSITION
    for change in ({"actor": "somebody@else"}, {"public_key": "0" * 64}):
        entries = signed.snapshot().export()
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
    entries = sqlite_ledger.snapshot().export()
    entries[-1]["payload"]["by"] = by
    assert verdict(entries) is FaultKind.EDITED
    with pytest.raises(ValueError, match="by: "):
        from_stored(stored(entries)[-1])


def test_what_cannot_be_read_again_is_never_written(tmp_path):
    for name in ("alice smith", "alice\n", "a" * 500, ""):
        with pytest.raises(ValueError, match="no short name"):
            Ledger.create(tmp_path / "new.sqlite", actor=lambda name=name: name)


def test_a_ledger_without_authors_loads_verifies_and_goes_on(tmp_path, key):
    new = Ledger.create(tmp_path / "new.sqlite")
    new.register(adult())
    new.reserve(**ask(release="my-release"))
    new.void(RUN, 1)
    entries = new.snapshot().export()
    for entry in entries:  # the same history as an earlier version of dpiw wrote it
        entry["payload"].pop("by")
        entry["payload"].pop("release", None)
    entries[0]["payload"]["format"] = 2
    chain(entries)
    old = _written(tmp_path / "old.sqlite", entries)
    assert old.snapshot().export() == entries
    assert old.verify().ok
    assert {entry.by for entry in old.entries()} == {None}
    assert old.run(RUN).release is None
    assert old.run(RUN).attempts[0].by is None

    old.reserve(**ask(attempt=2, release="my-release"))
    finish(old, attempt=2)
    old.publish(RUN, MANIFEST)
    assert old.verify().ok
    assert not tally(old.snapshot().export()).findings
    assert old.run(RUN).release == "my-release"
    assert old.snapshot().export()[: len(entries)] == entries
    assert old.spent("adult").epsilon == Decimal("0.5")


def _written(path: Path, entries: list[dict]) -> Ledger:
    """A ledger of these very entries, each written by the store that every version shares."""
    rows = [from_stored({**one, "payload": entry_json(one["payload"])}) for one in entries]
    store = open_store(path)
    assert store.create(rows[0])
    for row in rows[1:]:
        assert isinstance(row, Entry)
        with store.transaction(write=True) as connection:
            store.append(connection, row)
    return Ledger.open(path)
