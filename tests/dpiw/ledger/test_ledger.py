"""The ledger on both stores: populations, reservations, sums, published heads."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from dpiw.errors import (
    BudgetExceededError,
    LedgerConflictError,
    LedgerError,
    SpecError,
    UnknownPopulationError,
    UnsupportedRelationError,
)
from dpiw.ledger import Ledger, RunState
from dpiw.ledger.entries import canonical
from dpiw.privacy.units import PrivacyBudget, PrivacyCost
from tests.support.ledger import ADD, BOTH, REPLACE, RUN, adult, ask, cost, digest, refused
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
        refused(ledger, LedgerError, lambda wrong=wrong: ledger.reserve(**wrong))
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
        refused(ledger, LedgerConflictError, lambda c=change: ledger.register(adult(**c)))
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
        with pytest.raises(SpecError, match=f"population.{field}"):
            adult(**{field: value})
    with pytest.raises(SpecError, match=r"population\.id_column"):
        adult(max_rows=2)  # rows of whom?


def test_an_unknown_population_is_refused(ledger):
    for act in (ledger.population, ledger.spent, ledger.remaining, ledger.runs):
        with pytest.raises(UnknownPopulationError, match="ghost"):
            act("ghost")
    unknown = ask(population="ghost")
    refused(ledger, UnknownPopulationError, lambda: ledger.reserve(**unknown))


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
        refused(ledger, LedgerConflictError, lambda other=other: ledger.reserve(**other))


@both_stores
def test_one_unit_too_much_is_refused_and_the_exact_rest_is_granted(ledger):
    for over in (cost("2.000000000001"), cost("2", "1.0000000000001e-5")):
        refused(ledger, BudgetExceededError, lambda over=over: ledger.reserve(**ask(cost=over)))
    ledger.reserve(**ask(cost=cost("1.2", "1e-6")))
    again = ask(run_key=digest(7), cost=cost("1.2", "1e-6"))
    error = refused(ledger, BudgetExceededError, lambda: ledger.reserve(**again))
    assert error.requested == "epsilon=1.2, delta=1E-6"
    assert error.remaining == "epsilon=0.8, delta=9E-6"
    ledger.reserve(**ask(run_key=digest(7), cost=cost("0.8", "9e-6")))
    assert ledger.remaining("adult") == PrivacyBudget(epsilon_units=0, delta_units=0, relation=ADD)
    one = PrivacyCost(epsilon_units=0, delta_units=1, relation=ADD)
    smallest = ask(run_key=digest(8), cost=one)
    refused(ledger, BudgetExceededError, lambda: ledger.reserve(**smallest))


def test_another_relation_is_refused(ledger):
    other = ask(cost=cost("0.1", relation=REPLACE))
    refused(ledger, UnsupportedRelationError, lambda: ledger.reserve(**other))


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
        error = refused(ledger, SpecError, lambda request=request: ledger.reserve(**request))
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
    with pytest.raises(SpecError, match="zone"):
        Ledger.create(store_url, clock=lambda: datetime(2027, 1, 1))
