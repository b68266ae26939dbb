"""A declared cost, as the audit sees it: named, recounted, and missed where nobody charged it."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.audit.auditing import _rows_paid_before
from dpiw.audit.records import AttemptTally, RunTally, StageTally, Tally, Units
from dpiw.ledger import Ledger
from dpiw.privacy import accounting
from dpiw.privacy.events import DeclaredEvent, GaussianEvent
from dpiw.privacy.units import PrivacyCost
from tests.support.ledger import ADD, ask, terms

OURS, THEIRS = GaussianEvent(noise_multiplier=6.0), DeclaredEvent(epsilon=0.5, delta=1e-7)


def test_a_declared_cost_is_named_and_a_charge_without_it_is_found(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(terms(epsilon=Decimal(5), delta=Decimal("1e-4")))
    stages = {
        "fit_generator": [accounting.event_to_json(THEIRS)],
        "fit_weights": [accounting.event_to_json(OURS)],
    }
    honest = accounting.epsilon([OURS, THEIRS], delta=1e-6)
    forgetful = accounting.epsilon([OURS], delta=1e-6)  # the planted bug: the rows are free
    for letter, epsilon in (("a", honest), ("b", forgetful)):
        charge = PrivacyCost.of(epsilon, Decimal("1e-6"), ADD)
        ledger.reserve(
            **ask(population="town", run_key=letter * 64, cost=charge, stages=stages, period=letter)
        )
    findings = audit(f"sqlite:///{tmp_path / 'ledger.sqlite'}", [], []).findings
    named = {(f.code, f.subject) for f in findings}
    assert named - {("key_not_pinned", "releases")} == {
        ("cost_declared", f"run {'a' * 12} attempt 1"),
        ("cost_declared", f"run {'b' * 12} attempt 1"),
        ("cost_above_charge", f"run {'b' * 12} attempt 1"),
    }


def payer(**changes: Any) -> RunTally:
    """A run that drew rows at the cost of `THEIRS`, as the ledger writes it."""
    event = {"type": "declared", "epsilon": "0.5", "delta": "1e-07", "count": 1}
    stage = StageTally(state=changes.pop("state", "committed"), events=[event | changes])
    attempt = AttemptTally(
        number=1, cost=Units(), stages={"fit_generator": stage}, seq=1, at="", stated={}
    )
    return RunTally(
        key="a" * 64, population="town", plan_digest="0" * 64, period="once", max_attempts=1,
        attempts=[attempt],
    )  # fmt: skip


def release(population: str = "town", **settings: Any) -> Any:
    rows = {"epsilon": 0.5, "delta": 1e-7, "charged": False}
    generator = {"settings": settings, "made_elsewhere": rows}
    certificate = SimpleNamespace(generator=generator, population=population)
    return SimpleNamespace(name="again", release=SimpleNamespace(certificate=certificate))


def test_a_release_whose_rows_another_run_paid_for_is_always_told():
    counted = Tally(runs={"a" * 64: payer()})
    (finding,) = _rows_paid_before(release(counted_by="a" * 64), counted)
    assert (finding.code, finding.subject) == ("rows_paid_before", "release again")
    assert _rows_paid_before(release(counted_by="a" * 64), None) == [finding]
    assert _rows_paid_before(release(counted_by=None), counted) == []
    assert _rows_paid_before(release(), counted) == []


@pytest.mark.parametrize(
    ("run", "population"),
    [(payer(state="lost"), "town"), (payer(epsilon="0.4"), "town"), (payer(delta="0.0"), "town"),
     (payer(type="gaussian"), "town"), (payer(), "city"), (None, "town")],
)  # fmt: skip
def test_rows_that_the_named_run_did_not_pay_for_are_found(run, population):
    counted = Tally(runs={} if run is None else {run.key: run})
    findings = _rows_paid_before(release(population, counted_by="a" * 64), counted)
    assert [finding.code for finding in findings] == ["rows_paid_before", "rows_not_paid"]
