"""A declared cost, as the audit sees it: named, recounted, and missed where nobody charged it."""

from decimal import Decimal
from pathlib import Path

from dpiw.audit import audit
from dpiw.ledger import Ledger, Population
from dpiw.privacy import accounting
from dpiw.privacy.events import DeclaredEvent, GaussianEvent
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost

ADD = NeighbouringRelation.ADD_OR_REMOVE_ONE
OURS, THEIRS = GaussianEvent(noise_multiplier=6.0), DeclaredEvent(epsilon=0.5, delta=1e-7)


def test_a_declared_cost_is_named_and_a_charge_without_it_is_found(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(
        Population(name="town", relation=ADD, max_rows=1, epsilon=Decimal(5), delta=Decimal("1e-4"))
    )
    stages = {
        "fit_generator": [accounting.event_to_json(THEIRS)],
        "fit_weights": [accounting.event_to_json(OURS)],
    }
    honest = accounting.epsilon([OURS, THEIRS], delta=1e-6)
    forgetful = accounting.epsilon([OURS], delta=1e-6)  # the planted bug: the rows are free
    for letter, epsilon in (("a", honest), ("b", forgetful)):
        ledger.reserve(
            population="town", run_key=letter * 64, attempt=1,
            cost=PrivacyCost.of(epsilon, Decimal("1e-6"), ADD), stages=stages,
            plan_digest="0" * 64, period="once", release="rows", max_attempts=1,
        )  # fmt: skip
    found = audit(f"sqlite:///{tmp_path / 'ledger.sqlite'}", [], None).findings
    named = {(one.code, one.subject) for one in found}
    for letter in "ab":
        assert ("cost_declared", f"run {letter * 12} attempt 1") in named
    assert {one for one in named if one[0] != "cost_declared"} <= {
        ("cost_above_charge", f"run {'b' * 12} attempt 1"), ("key_not_pinned", "releases"),
    }  # fmt: skip
    assert ("cost_above_charge", f"run {'b' * 12} attempt 1") in named
