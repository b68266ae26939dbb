"""Recoveries as the audit sees them: of real releases, and the second count in perfect chains."""

import shutil
from decimal import Decimal

import pytest

from dpiw.audit.tally import tally
from dpiw.ledger import Ledger
from dpiw.ledger.from_releases import missing_releases, verified_releases
from dpiw.ledger.from_releases import recover as take_up
from tests.support.ledger import chain


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
    lost = Ledger.open(site.ledger).export()
    recover(site)
    entries = chain([*Ledger.open(site.ledger).export(), lost[2]])
    findings = [f for f in tally(entries).findings if f.code != "clock_backwards"]
    assert [(f.code, "was recovered" in f.text) for f in findings] == [("illegal_step", True)]


def test_a_copy_by_the_backup_api_is_audited_like_the_ledger(site, back_up):
    """As docs/operations.md says: an auditor of a SQLite ledger needs a copy of their own."""
    copy = back_up(str(site.ledger))
    report = site.audit(ledger_url=copy)
    assert report.findings == ()
    assert report.head == site.audit().head
