"""Populations registered with `renyi`: what the filter grants, refuses, and keeps for ever."""

import json
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from dpiw import errors
from dpiw.audit.tally import tally
from dpiw.ledger import CompositionRule, EntryKind, Ledger, Population
from dpiw.ledger.accounts import Account
from dpiw.ledger.values import Charge
from dpiw.privacy.accounting import LATTICE_MARGIN, gaussian_noise_multiplier, renyi_vector
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.renyi import BEYOND, ORDERS, RenyiVector
from dpiw.release.verification import verify
from tests.support.ledger import ask as a_request
from tests.support.ledger import cli, cost, digest, filled, refused, told
from tests.support.ledger import terms as basic_terms
from tests.support.stores import both_stores
from tests.support.whole_runs import draw, finish, reserved

SMALL = 21.5  # noise multiplier of the small releases: (0.2, 1e-7)


def terms(**changes: Any) -> Population:
    defaults = {"epsilon": Decimal(4), "composition": CompositionRule.RENYI}
    return basic_terms(**(defaults | changes))


def vector(multiplier: float) -> RenyiVector:
    return RenyiVector(units=renyi_vector([GaussianEvent(noise_multiplier=multiplier)]))


def ask(run: int, multiplier: float = SMALL, **changes: Any) -> dict[str, Any]:
    events = [{"type": "gaussian", "noise_multiplier": multiplier, "count": 1}]
    request = a_request(
        population="town", run_key=digest(run), cost=cost("0.2", "1e-7"), stages={"s": events},
        plan_digest=digest(run), renyi=vector(multiplier),
    )  # fmt: skip
    return request | changes


@pytest.fixture
def ledger(store_url):
    created = Ledger.create(store_url)
    created.register(terms())
    return created


def test_a_hundred_small_releases_where_basic_admits_twenty(figures):
    """(4, 1e-5) for life; each release is a Gaussian that costs (0.2, 1e-7) alone."""
    multiplier = gaussian_noise_multiplier(0.2, 1e-7)
    alone = cost("0.2", "1e-7")
    small = Charge(cost=alone, renyi=vector(multiplier))
    renyi, hundred = filled(Account.opened(terms()), small, 100)
    renyi, beyond = filled(renyi, small, 1000)
    basic = Account.opened(terms(composition=CompositionRule.BASIC))
    _, plain = filled(basic, Charge(cost=alone), 100)
    assert (plain, hundred) == (20, 100)
    assert 4 * Decimal("0.99") < Decimal(renyi.spent.epsilon) <= 4
    figures("renyi_vs_basic", basic=plain, renyi=hundred + beyond, of_100=hundred)


def test_the_ledger_grants_by_the_filter_and_names_both_sides(ledger):
    """Few big releases, so that the whole way through SQL is short."""
    granted = 14
    for run in range(1, granted + 1):
        ledger.reserve(**ask(run, 5.0))
    with pytest.raises(errors.BudgetExceededError) as caught:
        ledger.reserve(**ask(granted + 1, 5.0))
    assert caught.value.requested == "epsilon=0.2, delta=1E-7"
    left = ledger.remaining("town")
    assert caught.value.remaining == str(left)
    assert "Renyi filter would stand at epsilon=4.0" in str(caught.value)
    spent = ledger.spent("town")
    assert spent.epsilon_units + left.epsilon_units == 4 * 10**12
    assert (spent.delta_units, left.delta_units) == (10**13, 10**13)
    assert ledger.account("town").held.renyi == RenyiVector(
        units=tuple(granted * units for units in vector(5.0).units)
    )
    ledger.reserve(**ask(201, 60.0))  # a smaller one still fits
    assert ledger.verify().ok
    assert Ledger.open(ledger.location).spent("town") == ledger.spent("town")


def test_a_population_says_its_rule_and_keeps_it(ledger):
    stored = next(e for e in ledger.entries() if e.kind is EntryKind.REGISTER).payload["renyi"]
    assert stored["rule"] == "renyi-1"
    assert stored["orders"] == [str(order) for order in ORDERS]
    assert ledger.register(terms()) == ledger.population("town") == terms()
    for change in ({"composition": CompositionRule.BASIC}, {"epsilon": Decimal(5)}):
        refused(ledger, errors.LedgerConflictError, lambda c=change: ledger.register(terms(**c)))
    for field, value in (("delta", "0"), ("epsilon", "0.001"), ("epsilon", "10000")):
        with pytest.raises(errors.SpecError, match=rf"population\.{field}"):
            terms(**{field: Decimal(value)})
    assert str(ledger.spent("town")) == "epsilon=0, delta=0"
    assert str(ledger.remaining("town")) == "epsilon=4, delta=1E-5"


@pytest.mark.parametrize(("epsilon", "delta"), [("9999.9999", "0.9"), ("9999.999", "0.3")])
def test_no_budget_pays_for_a_divergence_that_was_cut(tmp_path, epsilon, delta):
    """A large delta lowers the conversion at high orders; `BEYOND` stands for any divergence."""
    opened = Ledger.create(tmp_path / "ledger")
    opened.register(terms(epsilon=Decimal(epsilon), delta=Decimal(delta)))
    loud = vector(1e-9)
    assert set(loud.units) == {BEYOND}
    with pytest.raises(errors.BudgetExceededError):
        opened.reserve(**ask(1, renyi=loud))
    opened.recover("town", [], loss=cost("0", delta))
    assert opened.account("town").overdrawn
    assert opened.spent("town").epsilon_units >= BEYOND
    assert [finding.code for finding in tally(opened.snapshot().export()).findings] == ["overspent"]


def test_the_vector_must_be_the_populations_kind_and_does_not_change(ledger):
    ledger.register(terms(name="plain", composition=CompositionRule.BASIC))
    for change in (
        {"renyi": None}, {"population": "plain"}, {"renyi": RenyiVector(units=(0,) * 16)},
        {"renyi": RenyiVector(units=(BEYOND + 1,) * 16)},
        {"renyi": RenyiVector(units=(1,) * 16, lost_delta=1)},
    ):  # fmt: skip
        refused(ledger, errors.SpecError, lambda change=change: ledger.reserve(**ask(1, **change)))
    assert ledger.account("plain").held.renyi is None
    first = ledger.reserve(**ask(1))
    assert ledger.reserve(**ask(1)) == first
    for changed in (vector(9.0), None):
        again = ask(1, renyi=changed)
        refused(ledger, errors.LedgerConflictError, lambda again=again: ledger.reserve(**again))


@both_stores
def test_lost_and_conflicting_draws_stay_in_the_vector_and_voided_ones_do_not(ledger):
    charged = vector(SMALL)
    ledger.reserve(**ask(1))
    ledger.void(digest(1), 1)
    assert ledger.account("town").held.renyi == RenyiVector.nothing()
    ledger.reserve(**ask(1, attempt=2))
    ledger.arm(digest(1), 2, "s")
    ledger.lose(digest(1), 2, "s")
    ledger.reserve(**ask(1, attempt=3))
    grant = ledger.arm(digest(1), 3, "s")
    ledger.commit(grant, digest(8))
    with pytest.raises(errors.LedgerConflictError):
        ledger.commit(grant, digest(9))
    assert ledger.account("town").held.renyi == RenyiVector(
        units=tuple(3 * u for u in charged.units)
    )
    with pytest.raises(errors.GrantSpentError):
        ledger.void(digest(1), 2)
    assert ledger.verify().ok


@both_stores
def test_the_database_itself_refuses_overspending(ledger, monkeypatch):
    """With the rules in Python switched off, the sums in SQL still hold, to the unit."""
    most = terms().to_payload()["renyi"]["budget_units"]
    exact = [BEYOND] * 16
    exact[7] = most[7]
    over = [*exact]
    over[7] += 1
    ledger.register(terms(name="plain", composition=CompositionRule.BASIC))
    monkeypatch.setattr("dpiw.ledger.book.Book.check", lambda *_: None)
    short = {"renyi": None}
    for change in ({"renyi": RenyiVector(units=tuple(over))}, short, {"population": "ghost"}):
        refused(
            ledger, errors.LedgerError, lambda change=change: ledger.reserve(**ask(1, **change))
        )
    ledger.reserve(**ask(1, renyi=RenyiVector(units=tuple(exact))))
    refused(ledger, errors.LedgerError, lambda: ledger.reserve(**ask(2)))
    monkeypatch.undo()
    ledger.void(digest(1), 1)
    monkeypatch.setattr("dpiw.ledger.book.Book.check", lambda *_: None)
    ledger.reserve(**ask(2))  # what was given back may be spent
    ledger.reserve(**ask(3, population="plain", renyi=None))


class Oracle:
    """The filter in exact fractions of what was asked, and budgets of 90 digits."""

    def __init__(self, epsilon: Decimal, delta: Decimal) -> None:
        with localcontext() as context:
            context.prec = 90
            share = delta / 16
            self.budgets = [
                Fraction(epsilon - ((a - 1) / a).ln() + ((share * a).ln()) / (a - 1))
                for a in ORDERS
            ]
        self.spent = Fraction(0)  # sum of 1/m^2, margin included: every order's share follows

    def slack(self, multiplier: float) -> Fraction:
        """By how much the best order stays within its budget after one more (< 0: beyond)."""
        after = self.spent + self.part(multiplier)
        return max(b - Fraction(a) * after / 2 for a, b in zip(ORDERS, self.budgets, strict=True))

    @staticmethod
    def part(multiplier: float) -> Fraction:
        return 1 / Fraction(multiplier / (1 + LATTICE_MARGIN)) ** 2


def compared(spends: int, seed: int) -> dict[str, int]:
    """Random spends against the oracle. Draws are near the end of the budget most of the time."""
    rng = random.Random(seed)
    tally = {"spends": 0, "granted": 0, "overspent": 0, "falsely_denied": 0, "populations": 0}
    while tally["spends"] < spends:
        epsilon = Decimal(rng.randrange(5, 200)) / 10
        delta = Decimal(10) ** -rng.randrange(3, 10)
        population = terms(epsilon=epsilon, delta=delta)
        account, oracle = Account.opened(population), Oracle(epsilon, delta)
        tally["populations"] += 1
        rounding = Fraction(0)
        for _ in range(rng.randrange(20, 200)):
            multiplier = rng.uniform(1, 20) * rng.choice([1, 1, 5, 25])
            slack = oracle.slack(multiplier)
            # merging takes a root in floats: far less than a unit against 90 digits' slack
            rounding += Fraction(4, 10**12) + oracle.part(multiplier) * 512 / 10**12
            charge = Charge(cost=cost("0.1", "1e-9"), renyi=vector(multiplier))
            tally["spends"] += 1
            try:
                account.admit(charge)
            except errors.BudgetExceededError:
                tally["falsely_denied"] += slack > rounding
                continue
            account = account.plus(charge)
            oracle.spent += oracle.part(multiplier)
            tally["granted"] += 1
            tally["overspent"] += slack < -Fraction(1, 10**12)
    return tally


@pytest.mark.parametrize("spends", [600, pytest.param(20_000, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_random_spends_against_exact_fractions(spends, figures):
    """A fault in one decision of 1,000 is missed by 20,000 with chance 0.999^20000 = 2e-9."""
    tally = compared(spends, seed=2)
    if spends > 600:
        figures("renyi_random_spends", **tally)
    assert tally["overspent"] == tally["falsely_denied"] == 0
    assert tally["granted"] > spends / 3
    assert tally["spends"] - tally["granted"] > spends / 5


def test_the_oracle_sees_a_filter_that_splits_nothing(monkeypatch):
    """The control: budgets at the whole delta instead of a sixteenth are found out."""
    honest = terms().to_payload()["renyi"]["budget_units"]
    monkeypatch.setattr("dpiw.ledger.accounts.budgets", lambda _: tuple(b + 10**11 for b in honest))
    account, oracle = Account.opened(terms()), Oracle(Decimal(4), Decimal("1e-5"))
    charge = Charge(cost=cost("0.1", "1e-9"), renyi=vector(9.0))
    account, granted = filled(account, charge, 1000)
    oracle.spent = (granted - 1) * oracle.part(9.0)
    assert oracle.slack(9.0) < 0


@pytest.mark.slow
def test_a_release_of_a_renyi_population(workplace):
    ledger = Ledger.open(workplace.ledger)
    ledger.register(terms(name="village", epsilon=Decimal(5), delta=Decimal("1e-4")))
    workplace.write_spec(population="village")
    run = reserved(workplace)
    expected = run.plan.stage_renyi(frozenset({"fit_generator", "fit_weights"}))
    assert ledger.account("village").held.renyi == expected
    assert ledger.run(run.key).held.cost == run.plan.spec.cost  # the auditor's, of the run
    certificate = verify(finish(draw(run))).certificate
    assert certificate.epsilon == "2"
    assert certificate.spent_epsilon == str(ledger.spent("village")).split(",")[0][8:]
    assert 0 < Decimal(certificate.spent_epsilon) < 3
    assert certificate.spent_delta == certificate.budget_delta
    assert ledger.verify().ok


def test_the_command_line_registers_and_shows(tmp_path):
    path = str(tmp_path / "ledger")
    text = told(
        "register", "town", "--epsilon", "4", "--delta", "1e-5", "--relation",
        "add_or_remove_one", "--composition", "renyi", "--create", "--ledger", path,
    )  # fmt: skip
    assert "add_or_remove_one, composition renyi; each row is a person" in text
    ledger = Ledger.open(path)
    ledger.reserve(**ask(1))
    shown = json.loads(cli("show", "--json", "--ledger", path)[1])["populations"][0]
    assert shown["renyi"]["spent_units"] == list(vector(SMALL).units)
    assert shown["spent"] == str(ledger.spent("town"))
