"""What certificates and recoveries state, compared with what the ledger charged."""

import dataclasses
import json
import math
import shutil
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from dpiw.audit import audit
from dpiw.audit.auditing import _rows_paid_before
from dpiw.audit.folders import FolderFacts, _check_previous, _differences
from dpiw.audit.records import AttemptTally, RunTally, StageTally, Tally, Units
from dpiw.audit.stated_noise import check_stated_noise, check_thresholds
from dpiw.audit.tally import tally
from dpiw.ledger import EntryKind, Ledger
from dpiw.ledger.from_releases import missing_releases, verified_releases
from dpiw.ledger.from_releases import recover as take_up
from dpiw.methods.generators.histogram import Histogram
from dpiw.privacy import accounting
from dpiw.privacy.events import (
    DeclaredEvent,
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    ThresholdEvent,
    level_threshold,
)
from dpiw.privacy.units import PrivacyCost, PrivacyUnit
from dpiw.release.certificate import CertifiedStage
from dpiw.release.verification import verify
from tests.support.ledger import ADD, REPLACE, ask, chain, terms
from tests.support.whole_runs import publish_run


def folder_of(release: Any) -> FolderFacts:
    return FolderFacts(name="r", manifest_digest=None, run_key=None, release=release)


def as_json(*events: PrivacyEvent) -> tuple[dict[str, Any], ...]:
    return tuple(map(accounting.event_to_json, events))


def belonging(site, index):
    release = verify(site.folders[index])
    counted = tally(Ledger.open(site.ledger).snapshot().export())
    run = counted.runs[[*counted.runs][index]]
    return release, run, counted


CHANGES = {
    "population": {"population": "village"},
    "period": {"period": "2027-01"},
    "plan_digest": {"plan_digest": "a" * 64},
    "epsilon and delta": {"epsilon": "1.9"},
    "unit": {"unit": PrivacyUnit(relation=ADD, id_column="person")},
    "spent_epsilon and spent_delta": {"spent_epsilon": "2"},
    "account": {
        "account": {"composition": "basic", "held": {}, "drawn": {}, "max_unpaid_reads": 20}
    },
    "budget_epsilon and budget_delta": {"budget_epsilon": "50"},
    "attempts": {"attempts": ({"epsilon": "2"},)},
    "stages and events": {"stages": ()},
}
ROWS = PrivacyUnit(relation=ADD, max_rows=2, id_column="person")


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_certificate_that_says_something_else(site, name):
    release, run, counted = belonging(site, 1)
    assert _differences(release.certificate, run, counted) == []
    forged = dataclasses.replace(release.certificate, **CHANGES[name])
    assert _differences(forged, run, counted) == [name]
    for change in ({"unit": ROWS}, {"delta": "1.0000000000000001E-6"}):  # between two units
        forged = dataclasses.replace(release.certificate, **change)
        assert len(_differences(forged, run, counted)) == 1


def test_a_certificate_that_names_an_entry_of_another_kind(site):
    release, run, counted = belonging(site, 1)
    for entry in Ledger.open(site.ledger).entries():
        forged = dataclasses.replace(release.certificate, ledger_head=entry.hash)
        own = entry.kind is EntryKind.CERTIFY and entry.run_key == run.key
        assert _differences(forged, run, counted) == ([] if own else ["ledger_head"])


def test_a_disagreeing_certificate_is_a_finding(site, monkeypatch):
    monkeypatch.setattr("dpiw.audit.folders._differences", lambda *_: ["period"])
    report = site.audit()
    assert {one.code for one in report.findings} == {"certificate_disagrees"}
    assert not report.ok


@pytest.mark.parametrize("previous", [None, "f" * 64])
def test_a_release_that_does_not_continue_the_one_before(site, previous):
    release, run, counted = belonging(site, 1)
    assert _check_previous(release, run, counted) == []
    facts = dataclasses.replace(release.manifest.facts, previous=previous)
    forged = dataclasses.replace(
        release, manifest=dataclasses.replace(release.manifest, facts=facts)
    )
    (found,) = _check_previous(forged, run, counted)
    assert found.code == "previous_disagrees"


THEIRS = DeclaredEvent(epsilon=0.5, delta=1e-7)


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


def release_of(population: str = "town", **settings: Any) -> Any:
    rows = {"epsilon": 0.5, "delta": 1e-7, "charged": False}
    generator = {"settings": settings, "made_elsewhere": rows}
    certificate = SimpleNamespace(generator=generator, population=population)
    return SimpleNamespace(name="again", release=SimpleNamespace(certificate=certificate))


def test_a_release_whose_rows_another_run_paid_for_is_always_told():
    counted = Tally(runs={"a" * 64: payer()})
    (finding,) = _rows_paid_before(release_of(counted_by="a" * 64), counted)
    assert (finding.code, finding.subject) == ("rows_paid_before", "release again")
    assert _rows_paid_before(release_of(counted_by="a" * 64), None) == [finding]
    assert _rows_paid_before(release_of(counted_by=None), counted) == []
    assert _rows_paid_before(release_of(), counted) == []


@pytest.mark.parametrize(
    ("run", "population"),
    [(payer(state="lost"), "town"), (payer(epsilon="0.4"), "town"), (payer(delta="0.0"), "town"),
     (payer(type="gaussian"), "town"), (payer(), "city"), (None, "town")],
)  # fmt: skip
def test_rows_that_the_named_run_did_not_pay_for_are_found(run, population):
    counted = Tally(runs={} if run is None else {run.key: run})
    findings = _rows_paid_before(release_of(population, counted_by="a" * 64), counted)
    assert [finding.code for finding in findings] == ["rows_paid_before", "rows_not_paid"]


GAUSSIAN = GaussianEvent(noise_multiplier=5.0, count=4)
LAPLACE = LaplaceEvent(noise_multiplier=5.0)
STEPS = PoissonSampledGaussianEvent(noise_multiplier=5.0, sampling_probability=0.1, count=9)
CHOICE = ExponentialMechanismEvent(epsilon=0.1)
SOUND = {"values": "counts", "law": "gaussian", "scale": 10.0, "sensitivity": 2.0, "event": 0}
SMALL, OPEN = "noise_too_small", "noise_not_checked"


def noise_codes(events: Any, *noise: Any) -> list[str]:
    stage = CertifiedStage(
        stage="fit_generator", method="toy", events=as_json(*events), parameters={}, noise=noise
    )
    release: Any = SimpleNamespace(certificate=SimpleNamespace(stages=[stage]))
    return [finding.code for finding in check_stated_noise(folder_of(release))]


@pytest.mark.parametrize(
    ("events", "changes", "codes"),
    [
        ([GAUSSIAN], {}, []),
        ([STEPS], {}, []),
        ([LAPLACE], {"law": "laplace"}, []),
        ([LAPLACE], {"law": "spherical"}, []),
        ([CHOICE, GAUSSIAN], {"event": 1}, []),
        ([GAUSSIAN, dataclasses.replace(GAUSSIAN, count=1)], {}, []),  # of the same noise
        ([GAUSSIAN], {"scale": 10 * (1 - 1e-12)}, []),
        ([GAUSSIAN], {"scale": 10 * (1 - 1e-6)}, [SMALL]),
        ([GAUSSIAN], {"scale": 10 / 3}, [SMALL]),
        ([STEPS], {"scale": 10 / 3}, [SMALL]),
        ([LAPLACE], {"law": "laplace", "scale": 9.0}, [SMALL]),
        ([LAPLACE], {"law": "gaussian"}, [SMALL]),
        ([GAUSSIAN], {"law": "laplace"}, [SMALL]),
        ([CHOICE, GAUSSIAN], {}, [SMALL, OPEN]),  # names the selection
        ([GAUSSIAN, LAPLACE], {}, [OPEN]),
        *(
            ([GAUSSIAN], {name: value}, [SMALL])
            for name in ("scale", "sensitivity", "event")
            for value in (-1, True, "9", None, [])
        ),
        ([GAUSSIAN], {"event": 1}, [SMALL]),
    ],
)
def test_a_scale_is_compared_with_its_event(events, changes, codes):
    assert noise_codes(events, SOUND | changes) == codes


def test_an_earlier_certificate_is_not_checked_and_says_so():
    earlier = {"values": "counts", "law": "gaussian", "scale": 1.0}
    assert noise_codes([GAUSSIAN], earlier) == noise_codes([GAUSSIAN]) == [OPEN]
    assert noise_codes([CHOICE]) == []
    assert check_stated_noise(folder_of(None)) == []


MEASURE = Histogram.measure


def third(self: Histogram, *args: Any, **rest: Any) -> Any:
    assert self.calibrated is not None
    low = dataclasses.replace(self.calibrated, one_way=self.calibrated.one_way / 3)
    return MEASURE(dataclasses.replace(self, calibrated=low), *args, **rest)


@pytest.mark.parametrize("measure", [MEASURE, third])
@pytest.mark.slow
def test_a_release_drawn_with_a_third_of_its_noise_is_found(make_workplace, monkeypatch, measure):
    """The certificate states what was drawn, beside the sensitivity and what was charged."""
    monkeypatch.setattr(Histogram, "measure", measure)
    place = make_workplace(weights="none")
    _, folder = publish_run(place.spec)
    report = audit(f"sqlite:///{place.ledger}", [folder], [place.key])
    assert [finding.code for finding in report.findings] == [SMALL] * (measure is third)
    (stage,) = verify(folder).certificate.stages
    (law,) = stage.noise
    assert json.dumps(sorted(law)) == '["event", "law", "scale", "sensitivity", "values"]'
    share = law["scale"] / law["sensitivity"] / stage.events[law["event"]]["noise_multiplier"]
    assert share == pytest.approx(1 / 3 if measure is third else 1)


PERSON_ROWS, COLUMNS, MULTIPLIER, DELTA = 3, 2, 6.0, 2.5e-7
SCALE = PERSON_ROWS * MULTIPLIER
NOISE = GaussianEvent(noise_multiplier=MULTIPLIER, count=COLUMNS)
THRESHOLD = ThresholdEvent(delta=DELTA, count=COLUMNS)
UNIT = PrivacyUnit(relation=ADD, max_rows=PERSON_ROWS, id_column="id")
PARAMETERS = {
    "columns": ["trade", "title"],
    "threshold": level_threshold(scale=SCALE, rows=PERSON_ROWS, delta=DELTA),
}


def threshold_texts(unit: PrivacyUnit = UNIT, **changes: Any) -> str:
    """What the audit says of a release whose certificate states this."""
    facts: dict[str, Any] = {
        "stage": "fit_generator", "method": "levels", "parameters": PARAMETERS,
        "events": as_json(NOISE, THRESHOLD),
        "noise": ({"scale": SCALE, "law": "gaussian", "values": "levels"},),
    }  # fmt: skip
    certificate = SimpleNamespace(stages=[CertifiedStage(**{**facts, **changes})], unit=unit)
    release: Any = SimpleNamespace(certificate=certificate)
    findings = check_thresholds(folder_of(release))
    assert {(one.code, one.subject) for one in findings} <= {("threshold_too_low", "release r")}
    return "; ".join(one.text for one in findings)


def test_what_was_paid_for_is_sound():
    assert threshold_texts() == ""
    assert (
        threshold_texts(method="histogram", parameters={}, events=as_json(NOISE)) == ""
    )  # shows no levels
    single = PrivacyUnit(relation=REPLACE)
    noise = ({"scale": MULTIPLIER * 2**0.5},)
    low = level_threshold(scale=MULTIPLIER * 2**0.5, rows=1, delta=DELTA)
    assert threshold_texts(single, noise=noise, parameters={**PARAMETERS, "threshold": low}) == ""
    assert check_thresholds(folder_of(None)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": {**PARAMETERS, "threshold": PARAMETERS["threshold"] - 1}}, "up to 3."),
        ({"noise": ({"scale": SCALE * 2 / 3},)}, "less than the charge needs"),
        ({"noise": ({"scale": SCALE * 1.1},)}, "shown with probability up to"),
        ({"unit": PrivacyUnit(relation=ADD, max_rows=4, id_column="id")}, "less than the charge"),
        ({"events": as_json(NOISE)}, "shows levels of 2 columns, and paid for another number"),
        ({"events": as_json(NOISE, dataclasses.replace(THRESHOLD, count=1))}, "of 2 columns"),
        ({"events": as_json(THRESHOLD)}, "less than the charge needs"),
        ({"events": as_json(NOISE, dataclasses.replace(THRESHOLD, delta=1e-9))}, "1e-09 was"),
    ],
)  # fmt: skip
def test_what_was_not_is_found(changes, said):
    assert said in threshold_texts(**changes)


def test_what_cannot_be_read_is_found():
    no_number = {"type": "threshold", "delta": math.nan, "count": COLUMNS}
    unread: list[dict[str, Any]] = [
        {"parameters": {}}, {"parameters": {}, "events": as_json(NOISE)}, {"noise": ()},
        {"method": "histogram", "parameters": {}}, {"noise": ({"scale": math.nan},)},
        {"events": (*as_json(NOISE), no_number)},
        *({"parameters": PARAMETERS | {"threshold": it}} for it in (math.nan, math.inf, "high")),
    ]  # fmt: skip
    for changes in unread:
        assert "cannot be read" in threshold_texts(**changes), changes


@pytest.mark.parametrize(
    ("stages", "named"),
    [({"fit_generator": [THEIRS], "fit_weights": [GaussianEvent(noise_multiplier=6.0)]},
      "cost_declared"),
     ({"fit_generator": [NOISE, THRESHOLD]}, "")],
    ids=["declared", "threshold"],
)  # fmt: skip
def test_a_charge_that_forgets_a_declared_cost_or_a_threshold_is_found(tmp_path, stages, named):
    ledger = Ledger.create(tmp_path / "ledger.sqlite")
    ledger.register(terms(epsilon=Decimal(5), delta=Decimal("1e-4")))
    whole = [event for events in stages.values() for event in events]
    noise = [event for event in whole if isinstance(event, GaussianEvent)]
    for letter, events in (("a", whole), ("b", noise)):
        charge = PrivacyCost.of(accounting.epsilon(events, delta=1e-6), Decimal("1e-6"), ADD)
        stated = {name: list(as_json(*events)) for name, events in stages.items()}
        ledger.reserve(
            **ask(population="town", run_key=letter * 64, cost=charge, stages=stated, period=letter)
        )
    findings = audit(f"sqlite:///{tmp_path / 'ledger.sqlite'}", [], []).findings
    a, b = (f"run {letter * 12} attempt 1" for letter in "ab")
    expected = {("cost_above_charge", b)} | ({(named, a), (named, b)} if named else set())
    found = {(finding.code, finding.subject) for finding in findings}
    assert found - {("key_not_pinned", "releases")} == expected


def recover(site, *, epsilon="0.5"):
    """The ledger lost everything after its registration; both releases are taken up again."""
    site.sql("DELETE FROM entries WHERE seq > 2")
    ledger = Ledger.open(site.ledger)
    missing = missing_releases(ledger, verified_releases([site.releases], [site.key]))
    loss = {"loss_epsilon": Decimal(epsilon), "loss_delta": Decimal("1e-7"), "loss_reads": 0}
    take_up(ledger, "town", missing["town"], **loss)


def test_a_recovered_ledger(site):
    recover(site)
    report = site.audit()
    assert [f.code for f in report.findings] == ["recovered", "recovered", "loss_stated"]
    assert "epsilon=0.5, delta=1E-7" in report.findings[2].text
    spent = report.counted.populations["town"].spent
    assert (spent.epsilon, spent.delta) == (45 * 10**11, 21 * 10**11)
    shutil.rmtree(site.folders[0])
    assert site.codes() == {"recovered", "loss_stated", "folder_missing"}


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon_units": 10**12},
        {"previous": "a" * 64},
        {"held": {"epsilon_units": 9 * 10**12, "delta_units": 9 * 10**12}},
        {"drawn": {"epsilon_units": 1, "delta_units": 1}},
    ],
    ids=["cost", "previous", "held", "drawn"],
)
def test_a_recovery_that_states_something_else_than_the_release(site, change):
    recover(site)
    site.rewrite(3, lambda entry: entry["payload"]["releases"][1].update(change))
    assert "certificate_disagrees" in site.codes()


@pytest.mark.slow
def test_a_recovery_that_states_another_entry_than_the_release_before_it(site):
    """The first release is known here; the second continues it, by the entry its own one names."""
    site.sql("DELETE FROM entries WHERE seq > 8")
    ledger = Ledger.open(site.ledger)
    missing = missing_releases(ledger, verified_releases([site.releases], [site.key]))
    (second,) = missing["town"]
    assert second.after is not None
    take_up(ledger, "town", [second], loss_epsilon=Decimal(0), loss_delta=Decimal(0), loss_reads=0)
    assert "certificate_disagrees" not in site.codes()
    registered = ledger.entries()[1].hash
    site.rewrite(9, lambda entry: entry["payload"]["releases"][0].update(after=registered))
    assert "certificate_disagrees" in site.codes()


def test_a_run_whose_release_was_recovered_is_not_reserved_again(site):
    lost = Ledger.open(site.ledger).snapshot().export()
    recover(site)
    entries = chain([*Ledger.open(site.ledger).snapshot().export(), lost[2]])
    findings = [f for f in tally(entries).findings if f.code != "clock_backwards"]
    assert [(f.code, "was recovered" in f.text) for f in findings] == [("illegal_step", True)]


@pytest.mark.slow
def test_a_copy_by_the_backup_api_is_audited_like_the_ledger(site, back_up):
    """As docs/operations.md says: an auditor of a SQLite ledger needs a copy of their own."""
    copy = back_up(str(site.ledger))
    report = site.audit(ledger_url=copy)
    assert report.findings == ()
    assert report.head == site.audit().head
