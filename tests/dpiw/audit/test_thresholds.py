"""Thresholds of found levels, as the audit sees them: recounted, and missed where nobody paid."""

import dataclasses
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.audit.folders import FolderFacts
from dpiw.audit.stated_noise import check_thresholds
from dpiw.ledger import Ledger
from dpiw.privacy import accounting
from dpiw.privacy.events import GaussianEvent, ThresholdEvent, level_threshold
from dpiw.privacy.units import PrivacyCost, PrivacyUnit
from dpiw.release.certificate import CertifiedStage
from tests.support.ledger import ADD, REPLACE, ask, terms

ROWS, COLUMNS, MULTIPLIER, DELTA = 3, 2, 6.0, 2.5e-7
SCALE = ROWS * MULTIPLIER
NOISE = GaussianEvent(noise_multiplier=MULTIPLIER, count=COLUMNS)
THRESHOLD = ThresholdEvent(delta=DELTA, count=COLUMNS)
UNIT = PrivacyUnit(relation=ADD, max_rows=ROWS, id_column="id")
PARAMETERS = {
    "columns": ["trade", "title"],
    "threshold": level_threshold(scale=SCALE, rows=ROWS, delta=DELTA),
}


def told(unit: PrivacyUnit = UNIT, **changes: Any) -> str:
    """What the audit says of a release whose certificate states this."""
    facts: dict[str, Any] = {
        "stage": "fit_generator", "method": "levels", "parameters": PARAMETERS,
        "events": tuple(map(accounting.event_to_json, (NOISE, THRESHOLD))),
        "noise": ({"scale": SCALE, "law": "gaussian", "values": "levels"},),
    }  # fmt: skip
    certificate = SimpleNamespace(stages=[CertifiedStage(**{**facts, **changes})], unit=unit)
    release: Any = SimpleNamespace(certificate=certificate)
    folder = FolderFacts(name="r", manifest_digest=None, run_key=None, release=release)
    findings = check_thresholds(folder)
    assert {(one.code, one.subject) for one in findings} <= {("threshold_too_low", "release r")}
    return "; ".join(one.text for one in findings)


def events(*stated: GaussianEvent | ThresholdEvent) -> tuple[dict[str, Any], ...]:
    return tuple(map(accounting.event_to_json, stated))


def test_what_was_paid_for_is_sound():
    assert told() == ""
    assert told(method="histogram", parameters={}, events=events(NOISE)) == ""  # shows no levels
    single = PrivacyUnit(relation=REPLACE)
    noise = ({"scale": MULTIPLIER * 2**0.5},)
    low = level_threshold(scale=MULTIPLIER * 2**0.5, rows=1, delta=DELTA)
    assert told(single, noise=noise, parameters={**PARAMETERS, "threshold": low}) == ""
    nothing = FolderFacts(name="r", manifest_digest=None, run_key=None, release=None)
    assert check_thresholds(nothing) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": {**PARAMETERS, "threshold": PARAMETERS["threshold"] - 1}}, "up to 3."),
        ({"noise": ({"scale": SCALE * 2 / 3},)}, "less than what it paid for"),
        ({"noise": ({"scale": SCALE * 1.1},)}, "shown with probability up to"),
        ({"unit": PrivacyUnit(relation=ADD, max_rows=4, id_column="id")}, "less than what it"),
        ({"events": events(NOISE)}, "shows levels of 2 columns; charged for fewer or more"),
        ({"events": events(NOISE, dataclasses.replace(THRESHOLD, count=1))}, "levels of 2 columns"),
        ({"events": events(THRESHOLD)}, "less than what it paid for"),
        ({"events": events(NOISE, dataclasses.replace(THRESHOLD, delta=1e-9))}, "was 1e-09"),
    ],
)  # fmt: skip
def test_what_was_not_is_found(changes, said):
    assert said in told(**changes)


def test_what_cannot_be_read_is_found():
    no_number = {"type": "threshold", "delta": math.nan, "count": COLUMNS}
    unread: list[dict[str, Any]] = [
        {"parameters": {}}, {"parameters": {}, "events": events(NOISE)}, {"noise": ()},
        {"method": "histogram", "parameters": {}}, {"noise": ({"scale": math.nan},)},
        {"events": (*events(NOISE), no_number)},
        *({"parameters": PARAMETERS | {"threshold": it}} for it in (math.nan, math.inf, "high")),
    ]  # fmt: skip
    for changes in unread:
        assert "cannot be read" in told(**changes), changes


def test_a_charge_that_forgets_the_threshold_is_found(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(terms(epsilon=Decimal(5), delta=Decimal("1e-4")))
    honest = accounting.epsilon([NOISE, THRESHOLD], delta=1e-6)
    forgetful = accounting.epsilon([NOISE], delta=1e-6)
    for letter, epsilon in (("a", honest), ("b", forgetful)):
        charge = PrivacyCost.of(epsilon, Decimal("1e-6"), ADD)
        stages = {"fit_generator": list(events(NOISE, THRESHOLD))}
        ledger.reserve(
            **ask(population="town", run_key=letter * 64, cost=charge, stages=stages, period=letter)
        )
    report = audit(f"sqlite:///{tmp_path / 'ledger.sqlite'}", [], [])
    assert {(one.code, one.subject) for one in report.findings} == {
        ("cost_above_charge", f"run {'b' * 12} attempt 1")
    }
