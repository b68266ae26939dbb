"""Our own count of a ledger: against the ledger's, and where entries break the rules."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit import Severity, audit
from dpiw.audit.costs import recompute
from dpiw.audit.records import worth
from dpiw.audit.tally import tally
from dpiw.errors import BudgetExceededError, GrantSpentError, LedgerConflictError
from dpiw.ledger import CompositionRule, Ledger
from dpiw.privacy import accounting
from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.renyi import RenyiVector
from tests.support.ledger import adult, ask, chain, cost, digest, terms

GAUSSIAN = accounting.event_to_json(GaussianEvent(noise_multiplier=10.0))
LAPLACE = accounting.event_to_json(LaplaceEvent(noise_multiplier=4.0))
BOTH = {"one": [GAUSSIAN], "two": [LAPLACE]}
ENOUGH = "0.7"  # for one Gaussian event of multiplier 10 and one Laplace event of epsilon 0.25


@pytest.fixture
def ledger(tmp_path):
    created = Ledger.create(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    for name in ("adult", "beta"):
        created.register(terms(name=name, epsilon=Decimal(4), delta=Decimal("1e-4")))
    return created


def reserve(ledger: Ledger, run: int, **changes: Any) -> None:
    charge = cost(changes.pop("epsilon", ENOUGH), changes.pop("delta", "1e-6"))
    terms = {"run_key": digest(run), "stages": BOTH, "period": f"2027-{run}", "max_attempts": 2}
    ledger.reserve(**ask(**terms | {"cost": charge} | changes))


def codes(ledger: Ledger) -> list[str]:
    return [finding.code for finding in audit(ledger.location, [], []).findings]


def twice(ledger: Ledger) -> list[tuple[str, str]]:
    findings = audit(ledger.location, [], []).findings
    found = [finding for finding in findings if finding.code == "period_twice"]
    assert {finding.severity for finding in found} <= {Severity.NOTE}
    return [(finding.subject, finding.text) for finding in found]


def test_one_release_drawn_twice_for_one_period_is_told(ledger):
    def drawn(run, release, period, population="adult"):
        reserve(
            ledger, run, release=release, period=period, population=population, epsilon="0.4",
            stages={"one": [GAUSSIAN]},
        )  # fmt: skip
        ledger.commit(ledger.arm(digest(run), 1, "one"), digest(100 + run))

    drawn(1, "town", "2027")
    drawn(2, "town", "2028")  # another period, release, population; none that is named
    drawn(3, "city", "2027")
    drawn(4, "town", "2027", "beta")
    drawn(5, None, "2027")
    drawn(6, None, "2027")
    again = {"release": "town", "period": "2027", "epsilon": "0.4", "stages": {"one": [GAUSSIAN]}}
    for run in (7, 8):
        reserve(ledger, run, **again)
    ledger.void(digest(7), 1)
    ledger.arm(digest(8), 1, "one")
    ledger.lose(digest(8), 1, "one")  # it left no output
    assert twice(ledger) == []
    reserve(ledger, 8, attempt=2, **again)
    assert twice(ledger) == []  # nothing is drawn
    ledger.arm(digest(8), 2, "one")
    expected = (
        f"run {digest(8)[:12]}", f"release town, period 2027: run {digest(1)[:12]} drew for it too"
    )  # fmt: skip
    assert twice(ledger) == [expected]


def renyi_ledger(tmp_path: Path, epsilon: str = "2") -> Ledger:
    made = Ledger.create(tmp_path / "renyi.sqlite")
    delta, rule = Decimal("1e-6"), CompositionRule.RENYI
    made.register(adult(epsilon=Decimal(epsilon), delta=delta, composition=rule))
    return made


def renyi_vector(factor: float = 1.0) -> RenyiVector:
    events = [GaussianEvent(noise_multiplier=10.0), LaplaceEvent(noise_multiplier=4.0)]
    units = accounting.renyi_vector(events)
    return RenyiVector(units=tuple(int(one * factor) for one in units))


def test_vectors_are_summed_and_converted_as_the_ledger_does(tmp_path):
    ledger = renyi_ledger(tmp_path, epsilon="4")
    granted = 0
    for run in range(1, 40):
        try:
            reserve(ledger, run, renyi=renyi_vector())
        except BudgetExceededError:
            break
        granted += 1
        if run == 2:
            ledger.void(digest(run), 1)
            granted -= 1
    assert granted > 8  # basic composition would admit 6 runs of 0.63
    counted = tally(ledger.snapshot().export())
    assert counted.findings == []
    population, spent = counted.populations["adult"], ledger.spent("adult")
    value, twice = (worth(population, population.spent.times(n)) for n in (1, 2))
    assert (value.epsilon, value.delta) == (spent.epsilon_units, spent.delta_units)
    assert value.epsilon <= population.budget.epsilon < twice.epsilon
    assert codes(ledger) == ["attempt_voided"]


def test_a_vector_below_what_its_events_diverge(tmp_path):
    ledger = renyi_ledger(tmp_path)
    reserve(ledger, 1, renyi=renyi_vector(0.999))
    assert codes(ledger) == ["cost_above_charge"]


def test_events_that_cost_more_than_was_charged(ledger):
    total = accounting.epsilon([GaussianEvent(noise_multiplier=10.0),
                                LaplaceEvent(noise_multiplier=4.0)], delta=1e-6)  # fmt: skip
    reserve(ledger, 1, epsilon=total)
    assert codes(ledger) == []
    reserve(ledger, 2, epsilon=total * (1 - 1e-6))
    assert codes(ledger) == ["cost_above_charge"]


def test_pure_events_are_summed_exactly_and_gaussian_ones_need_a_delta(ledger):
    reserve(ledger, 1, epsilon="0.25", delta="0", stages={"two": [LAPLACE]})
    assert codes(ledger) == []
    reserve(ledger, 2, epsilon="0.2499", delta="0", stages={"two": [LAPLACE]})
    reserve(ledger, 3, epsilon="1", delta="0", stages={"one": [GAUSSIAN]})
    assert codes(ledger) == ["cost_above_charge"] * 2


def test_a_lost_stage_is_judged_by_its_own_events(ledger):
    reserve(ledger, 1)
    ledger.arm(digest(1), 1, "two")
    ledger.lose(digest(1), 1, "two")
    reserve(ledger, 1, attempt=2, stages={"two": [LAPLACE]}, epsilon="0.2")
    assert codes(ledger) == ["cost_above_charge", "draw_lost", "unpaid_reads"]
    counted = tally(ledger.snapshot().export())
    costs, _ = recompute(counted)
    both, again = (costs[digest(1), attempt].bounds.pld for attempt in (1, 2))
    assert both > again == pytest.approx(0.25, rel=1e-3)


def test_events_nobody_can_read(ledger):
    reserve(ledger, 1, stages={"one": [{"noise_multiplier": 2.5}]})
    reserve(ledger, 2, stages={"one": [{"type": "gaussian", "noise_multiplier": "x", "count": 1}]})
    assert codes(ledger) == ["events_unreadable"] * 2


def test_draws_under_way_lost_doubled_voided_and_waiting(ledger):
    reserve(ledger, 1)
    reserve(ledger, 2)
    ledger.void(digest(2), 1)
    ledger.arm(digest(1), 1, "one")
    assert codes(ledger) == ["stage_armed", "attempt_voided"]
    ledger.commit_found(digest(1), 1, "one", digest(7))
    with pytest.raises(LedgerConflictError):
        ledger.commit_found(digest(1), 1, "one", digest(8))
    ledger.arm(digest(1), 1, "two")
    ledger.commit_found(digest(1), 1, "two", digest(9))
    assert codes(ledger) == ["draw_conflict", "not_published", "attempt_voided"]
    spent = tally(ledger.snapshot().export()).populations["adult"].spent
    assert spent.epsilon == 14 * 10**11  # the doubled draw is paid twice


def test_a_clock_that_went_back(tmp_path):
    days = iter((2, 1, 3))
    times = (datetime.datetime(2027, 1, day, tzinfo=datetime.UTC) for day in days)
    ledger = Ledger.create(tmp_path / "ledger", clock=lambda: next(times))
    ledger.register(adult(epsilon=Decimal(1), delta=Decimal(0)))
    (finding,) = audit(ledger.location, [], []).findings
    assert (finding.code, finding.subject) == ("clock_backwards", "entry 2")


def test_a_table_that_was_read_too_often(ledger):
    """Reads of attempts that were given back, or of which nothing was armed yet."""
    for attempt in range(1, 20):
        reserve(ledger, 1, attempt=attempt)
        ledger.read(digest(1), attempt)
        ledger.void(digest(1), attempt)
    reserve(ledger, 1, attempt=20)
    ledger.read(digest(1), 20)
    entries = ledger.snapshot().export()
    counted = tally(entries)
    assert (counted.findings, counted.unpaid_reads("adult")) == ([], 20)
    with pytest.raises(BudgetExceededError, match="max_unpaid_reads=20"):
        ledger.read(digest(1), 20)
    (finding,) = tally(chain([*entries, dict(entries[-1])])).findings
    assert finding.code == "too_many_reads"
    for number, stage in enumerate(BOTH):
        grant = ledger.arm(digest(1), 20, stage)  # it goes on with the read before it
        ledger.commit(grant, digest(number))
    assert tally(ledger.snapshot().export()).unpaid_reads("adult") == 19
    assert "unpaid_reads" in codes(ledger)
    with pytest.raises(GrantSpentError, match="no stage that waits"):
        ledger.read(digest(1), 20)


def test_a_read_that_nothing_waits_for(ledger):
    reserve(ledger, 1, stages={"one": BOTH["one"]})
    ledger.read(digest(1), 1)
    ledger.arm(digest(1), 1, "one")
    ledger.lose(digest(1), 1, "one")
    entries = ledger.snapshot().export()
    assert codes(ledger) == ["draw_lost", "unpaid_reads"]
    again = next(dict(e) for e in entries if e["kind"] == "read") | {"at": entries[-1]["at"]}
    (finding,) = tally(chain([*entries, again])).findings
    assert (finding.code, "no stage waits" in finding.text) == ("illegal_step", True)


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e[3].update(at="2020-01-01T00:00:00Z"),
        lambda e: e[3].update(hash=digest(1)),
        lambda e: e.pop(3),
        lambda e: e.insert(3, e.pop(4)),
    ],
    ids=["edited", "another hash", "removed", "swapped"],
)
def test_a_chain_that_does_not_hold(ledger, change):
    reserve(ledger, 1)
    ledger.commit(ledger.arm(digest(1), 1, "one"), digest(5))
    entries = ledger.snapshot().export()
    change(entries)
    assert "chain_broken" in {finding.code for finding in tally(entries).findings}
