"""The ledger on both stores: populations, reservations, sums, published heads."""

from __future__ import annotations

import itertools
import json
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpiw.errors import (
    BudgetExceededError,
    GrantSpentError,
    LedgerConflictError,
    LedgerError,
    LedgerTamperedError,
    SpecError,
    UnknownPopulationError,
    UnsupportedRelationError,
)
from dpiw.ledger import CompositionRule, EntryKind, Ledger, PublishedHead, RunState
from dpiw.ledger.entries import canonical
from dpiw.privacy.units import PrivacyBudget, PrivacyCost, PrivacyUnit
from tests.support.ledger import ADD, BOTH, REPLACE, RUN, adult, ask, cost, digest, refused

pytestmark = pytest.mark.usefixtures("in_memory")


def test_two_ledgers_never_share_a_head(
    store_kind: str, new_ledger_url: Callable[[str], str]
) -> None:
    first, second = (Ledger.create(new_ledger_url(store_kind)) for _ in range(2))
    assert first.head() != second.head()


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
    assert [population.name for population in ledger.populations()] == ["adult", "beta"]
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
    assert first == head
    assert Ledger.open(ledger.location).reserve(**ask()) == first
    assert ledger.head() == head
    assert ledger.spent("adult") == cost("0.5")
    assert ledger.run(RUN).state is RunState.RESERVED
    ledger.confirm_reserved(RUN, 1, "weights")


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
    message = "lacks the published head .* Spending is refused"
    refused(ledger, LedgerTamperedError, message, lambda: ledger.check_heads([*known, foreign]))


def test_entries_are_filtered_and_exported(ledger: Ledger) -> None:
    ledger.register(adult(name="beta"))
    ledger.reserve(**ask())
    kinds = [entry.kind for entry in ledger.entries()]
    assert kinds == [EntryKind.GENESIS, EntryKind.REGISTER, EntryKind.REGISTER, EntryKind.RESERVE]
    assert [e.seq for e in ledger.entries(population="beta")] == [3]
    assert [e.seq for e in ledger.entries(run_key=RUN)] == [4]
    exported = json.loads(json.dumps(ledger.export()))
    assert [record["seq"] for record in exported] == [1, 2, 3, 4]
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
    second = Ledger.open(ledger.location)
    second.reserve(**ask())
    assert ledger.spent("adult") == second.spent("adult") == cost("0.5")
    grant = ledger.arm(RUN, 1, "weights")
    second.confirm(grant)
    refused(second, GrantSpentError, "armed", lambda: second.arm(RUN, 1, "weights"))


def test_a_column_whose_name_is_no_label_stands_as_its_digest(tmp_path: Path) -> None:
    """Entries hold no free text."""
    created = Ledger.create(tmp_path / "ledger")
    created.register(adult(id_column="Persönliche Nummer"))
    payload = created.entries()[-1].payload
    assert payload["id_column"].startswith("sha256:")
    assert len(payload["id_column"]) == 71
    known = Ledger.open(created.path).population("adult")
    assert known.protects(PrivacyUnit(relation=ADD, id_column="Persönliche Nummer"))
    assert not known.protects(PrivacyUnit(relation=ADD, id_column="Personalnummer"))
    created.register(adult(id_column="Persönliche Nummer"))
