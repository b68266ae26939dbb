"""What a certificate says, compared with what the ledger's entries say of its run."""

import dataclasses

import pytest

from dpiw.audit.folders import _check_previous, _differences
from dpiw.audit.tally import tally
from dpiw.ledger import EntryKind, Ledger
from dpiw.privacy.units import PrivacyUnit
from dpiw.release.verification import verify
from tests.support.ledger import ADD


def belonging(site, index):
    release = verify(site.folders[index])
    counted = tally(Ledger.open(site.ledger).export())
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
