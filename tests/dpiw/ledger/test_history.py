"""What was charged when, and how many more such releases the ledger's own accountant admits."""

import csv
import json
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.errors import BudgetExceededError
from dpiw.ledger import CompositionRule, Ledger, RunState
from dpiw.ledger.accounts import MOST_ADMITTED, Account
from dpiw.ledger.history import count_text, more_such, spending
from dpiw.ledger.values import Charge
from dpiw.privacy.accounting import renyi_vector
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.renyi import RenyiVector
from tests.support.ledger import (
    BOTH,
    MANIFEST,
    RUN,
    adult,
    ask,
    cost,
    digest,
    finish,
    spend,
    terms,
    told,
)


def granted(account: Account, charge: Charge) -> int:
    """How many times in a row `admit` lets the charge pass."""
    count = 0
    while True:
        try:
            account.admit(charge)
        except BudgetExceededError:
            return count
        account, count = account.plus(charge), count + 1


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(budget=st.integers(1, 300), asked=st.integers(1, 100), before=st.integers(0, 300))
def test_the_count_is_what_the_sum_grants(budget, asked, before):
    population = terms(epsilon=Decimal(budget) / 100, delta=Decimal("1e-5"))
    account = Account.opened(population)
    if before:
        account = account.plus(Charge(cost=cost(str(Decimal(before) / 100), "0")))
    charge = Charge(cost=cost(str(Decimal(asked) / 100), "1e-7"))
    expected = 0 if account.overdrawn else granted(account, charge)
    assert account.admits(charge) == expected


@pytest.mark.parametrize("multiplier", [3.0, 8.0, 21.5])
def test_the_count_is_what_the_renyi_filter_grants(multiplier):
    population = terms(epsilon=Decimal(4), composition=CompositionRule.RENYI)
    vector = RenyiVector(units=renyi_vector([GaussianEvent(noise_multiplier=multiplier)]))
    charge = Charge(cost=cost("0.2", "1e-7"), renyi=vector)
    account = Account.opened(population).plus(charge)
    count = account.admits(charge)
    assert count == granted(account, charge)
    assert count > 3.8 / 0.2 or multiplier < 20  # more than division would say


def test_nothing_more_fits_where_no_read_is_left_and_small_charges_have_an_end():
    account = Account.opened(terms(epsilon=Decimal(2)))
    small = Charge(cost=cost("1e-7", "0"))
    assert account.admits(small) == MOST_ADMITTED
    assert replace(account, unpaid_reads=20).admits(small) == 0
    assert [count_text(n) for n in (0, 1, 2, MOST_ADMITTED)] == [
        "no more such release fits", "1 more such release fits", "2 more such releases fit",
        "at least 1000000 more such releases fit",
    ]  # fmt: skip


def test_what_fits_instead_is_told_where_a_spec_of_its_kind_does():
    account = Account.opened(terms(epsilon=Decimal(2), delta=Decimal("1e-6")))

    def told(epsilon, delta):
        return account.what_fits(Charge(cost=cost(epsilon, delta)))

    assert told("2", "1e-6") == ""
    assert told("2.1", "0") == "; epsilon: 2 fits"
    assert told("2", "1e-5") == "; delta: 1E-6 fits"
    assert told("3", "1e-5") == "; epsilon: 2 and delta: 1E-6 fit"
    account = account.plus(Charge(cost=cost("1", "1e-6")))
    assert told("2", "1e-6") == ""  # no delta is left: another method would be needed
    assert told("2", "0") == "; epsilon: 1 fits"
    account = account.plus(Charge(cost=cost("1", "0")))
    assert told("2", "0") == ""


@pytest.fixture
def history(ledger):
    """Reserved, given back, reserved again and published, on each store in turn; then another."""
    ledger.reserve(**ask(release="my-release"))
    ledger.void(RUN, 1)
    ledger.reserve(**ask(attempt=2, release="my-release"))
    finish(ledger, attempt=2)
    ledger.publish(RUN, MANIFEST)
    spend(ledger, 7, "0.25")
    return ledger


def test_spending_is_every_change_of_what_is_held(history):
    run = history.run(RUN)
    states = [run.attempt_state(number) for number in run.attempts]
    assert states == [RunState.VOIDED, RunState.PUBLISHED]  # each attempt's own, not the run's
    text = told("show", "--ledger", history.location, "--run", RUN)
    rows = [line.split() for line in text.splitlines() if RUN[:12] in line]
    assert [row[3] for row in rows] == ["voided", "published"]
    changes = spending(history.entries())
    assert [(change.entry.kind.value, change.epsilon, change.delta) for change in changes] == [
        ("reserve", "0.5", "1E-6"), ("void", "-0.5", "-1E-6"), ("reserve", "0.5", "1E-6"),
        ("reserve", "0.25", "0"),
    ]  # fmt: skip
    assert [str(change.spent) for change in changes] == [
        "epsilon=0.5, delta=1E-6", "epsilon=0, delta=0", "epsilon=0.5, delta=1E-6",
        "epsilon=0.75, delta=1E-6",
    ]  # fmt: skip
    assert changes[-1].spent == history.spent("adult")
    assert [change.run.release for change in changes if change.run] == ["my-release"] * 3 + [None]
    assert more_such(history.account("adult"), history.run(RUN)) == "2 more such releases fit"


def test_show_speaks_of_releases_and_says_what_still_fits(history):
    text = told("show", "--ledger", history.location)
    assert "my-release  2027-q1" in text
    assert "forecast   5 more such releases fit, such as (not named) p (epsilon=0.25" in text
    facts = json.loads(told("show", "--ledger", history.location, "--json"))
    (population,) = facts["populations"]
    assert [record["release"] for record in population["runs"]] == ["my-release", None]
    assert population["forecast"]["told"] == "5 more such releases fit"
    last = int(population["spending"][-1]["seq"])
    recent = json.loads(told("show", "--ledger", history.location, "--json", "--since", str(last)))
    assert [record["seq"] for record in recent["populations"][0]["spending"]] == [last]


def test_a_lost_draw_s_charge_is_lost_in_every_form(tmp_path):
    """The run is published by its second attempt; the first one's charge stays what it is."""
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(adult())
    ledger.reserve(**ask(release="my-release"))
    assert "drew nothing: 1" in told("show", "--ledger", ledger.location)
    ledger.arm(RUN, 1, "generator")
    ledger.lose(RUN, 1, "generator")
    ledger.reserve(**ask(attempt=2, stages={"generator": BOTH["generator"]}))
    assert ledger.run(RUN).state is RunState.RESERVED
    assert "drew nothing" not in told("show", "--ledger", ledger.location)  # a part is lost
    ledger.commit(ledger.arm(RUN, 1, "weights"), digest(10))
    ledger.commit(ledger.arm(RUN, 2, "generator"), digest(11))
    ledger.publish(RUN, MANIFEST)
    table = told("show", "--ledger", ledger.location, "--csv")
    of_csv = {row["attempt"]: row["state"] for row in csv.DictReader(table.splitlines())}
    facts = json.loads(told("show", "--ledger", ledger.location, "--json"))["populations"][0]
    of_json = {str(record["attempt"]): record["state"] for record in facts["spending"]}
    of_runs = {str(record["attempt"]): record["state"] for record in facts["runs"][0]["attempts"]}
    assert of_csv == of_json == of_runs == {"1": "lost", "2": "published"}


def test_show_exports_csv(tmp_path, monkeypatch):
    monkeypatch.setenv("DPIW_ACTOR", "alice@desk")
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(adult())
    ledger.reserve(**ask(release="my-release"))
    ledger.register(terms(name="beta"))
    text = told("show", "--ledger", ledger.location, "--csv")
    (row,) = csv.DictReader(text.splitlines())
    assert row["population"] == "adult"
    assert (row["release"], row["period"], row["actor"]) == ("my-release", "2027-q1", "alice@desk")
    assert (row["epsilon"], row["spent_epsilon"], row["spent_delta"]) == ("0.5", "0.5", "1E-6")
    assert row["budget"] == "epsilon=2, delta=1E-5"
    assert (row["run_key"], row["key_id"]) == (digest(1), "")
    terms_of = (row["state"], row["relation"], row["max_rows"])
    assert terms_of == ("reserved", "add_or_remove_one", "1")
    assert row["mechanisms"] == (
        "generator: 3 × gaussian (noise multiplier 1.5); weights: 1 × laplace (noise multiplier 4)"
    )
    other = told("show", "--ledger", ledger.location, "--csv", "--population", "beta")
    assert other.count("\n") == 1
