"""Recoveries as the audit sees them: of real releases, and the second count in perfect chains."""

import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit.tally import tally
from dpiw.ledger import CompositionRule, Ledger, RecoveredRelease
from dpiw.ledger.from_releases import missing_releases, verified_releases
from dpiw.ledger.from_releases import recover as take_up
from dpiw.ledger.values import Charge
from dpiw.privacy.renyi import BEYOND, ORDERS, RenyiVector
from tests.support.ledger import ask, chain, cost, digest, terms


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


# More that breaks the rules of a recovery: `FORGED`, below.
def test_a_recovery_that_charges_too_little_or_what_is_not_missing(site):
    recover(site)
    exported = json.dumps(Ledger.open(site.ledger).export())
    assert tally(json.loads(exported)).findings == []
    first = json.loads(exported)[0]["hash"]
    for change in (
        lambda payload: payload.update(epsilon_units=44 * 10**11),
        lambda payload: payload["releases"][0].update(epsilon_units=5 * 10**12),
        lambda payload: payload["releases"][0].update(hash=first),
        lambda payload: payload["releases"].append(payload["releases"][0]),
    ):
        entries = json.loads(exported)
        change(entries[2]["payload"])
        assert "illegal_step" in {f.code for f in tally(chain(entries)).findings}


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


RECOVER = 4  # place of the recovering entry; before it: genesis, register, reserve, arm


def history(tmp_path: Path, composition: CompositionRule) -> list[dict[str, Any]]:
    """A draw, then a release that continues it is recovered, with a loss."""
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register(terms(epsilon=Decimal(9), delta=Decimal("1e-4"), composition=composition))
    renyi = composition is CompositionRule.RENYI
    vectors = [RenyiVector(units=(n * 10**9,) * len(ORDERS)) if renyi else None for n in (1, 2)]
    one, two = (Charge(cost=cost(e), renyi=v) for e, v in zip("12", vectors, strict=True))
    charge = {"cost": one.cost, "renyi": one.renyi, "stages": {"s": [{"type": "x"}]}}
    ledger.reserve(**ask(population="town", **charge))
    ledger.arm(digest(1), 1, "s")
    release = RecoveredRelease(
        hash=digest(3), manifest_digest=digest(4), previous=digest(5),
        after=ledger.head().hash, run="ab" * 4, plan_digest=digest(6), period="p", charge=one,
        held=two, drawn=two,
    )  # fmt: skip
    ledger.recover("town", [release], loss=cost("0.5", "2e-6"), reads=4)
    assert ledger.verify().ok
    spent = ledger.account("town").held.cost
    assert spent == cost("2.5", "4e-6")  # 1 here, of the 2 held there 1 is it; and the loss
    return ledger.export()


@pytest.mark.parametrize("composition", list(CompositionRule))
def test_an_honest_recovery_has_nothing_to_find(tmp_path, composition):
    counted = tally(history(tmp_path, composition))
    assert counted.findings == []
    assert [(seq, loss.delta) for seq, _, loss in counted.losses] == [(5, 2 * 10**12)]
    assert counted.unpaid_reads("town") == 4


def release(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return entries[RECOVER]["payload"]["releases"][0]


def without_release_and_loss(entries: list[dict[str, Any]]) -> None:
    payload = entries[RECOVER]["payload"]
    payload.update(releases=[], reads=0, loss=dict(payload["loss"], epsilon_units=0, delta_units=0))


Change = Callable[[list[dict[str, Any]]], Any]
NO_RELEASE, LESS = "it names a release before it", "it charges less"
LESS_THAN_STATED = "less than what its loss states"


def of_release(**change: Any) -> Change:
    return lambda entries: release(entries).update(change)


def of_loss(**change: Any) -> Change:
    return lambda entries: entries[RECOVER]["payload"]["loss"].update(change)


FORGED: dict[str, tuple[str, Change]] = {
    "a baseline that is not here": (NO_RELEASE, of_release(after=digest(9))),
    "a baseline without a release before it": (NO_RELEASE, of_release(previous=None)),
    "a baseline left out": (LESS, of_release(after=None)),
    "an earlier baseline": (LESS, lambda e: release(e).update(after=e[2]["hash"])),
    "more held": (LESS, lambda e: release(e)["held"].update(epsilon_units=10**13)),
    "more drawn than held": (
        "more as drawn than as held",
        lambda e: release(e)["drawn"].update(epsilon_units=10**13),
    ),
    "a larger loss": (LESS, of_loss(epsilon_units=10**13)),
    "nothing at all": ("neither a release, nor a loss, nor a read", without_release_and_loss),
    "rows of nobody": (
        "rows of a unit that nothing names",
        lambda e: e[1]["payload"].update(max_rows=2),
    ),
}
RENYI: dict[str, tuple[str, Change]] = {
    "a loss of too small a vector": (
        LESS_THAN_STATED,
        lambda e: e[RECOVER]["payload"]["loss"]["renyi"].update(units=[1] * len(ORDERS)),
    ),
    "a loss that takes no delta": (
        LESS_THAN_STATED,
        lambda e: e[RECOVER]["payload"]["loss"]["renyi"].pop("lost_delta_units"),
    ),
    "a loss of more delta than is left": (LESS_THAN_STATED, of_loss(delta_units=10**14)),
    "one order left out": (
        LESS,
        lambda e: e[RECOVER]["payload"]["renyi"]["units"].__setitem__(7, 1),
    ),
    "a reservation that states a loss": (
        "it reserves a loss",
        lambda e: e[2]["payload"]["renyi"].update(lost_delta_units=1),
    ),
}


@pytest.mark.parametrize(
    ("composition", "name"),
    [(c, name) for c in CompositionRule for name in FORGED]
    + [(CompositionRule.RENYI, name) for name in RENYI],
)  # fmt: skip
def test_a_forged_recovery_in_a_perfect_chain(tmp_path, composition, name):
    entries = history(tmp_path, composition)
    text, change = (FORGED | RENYI)[name]
    change(entries)
    found = [one for one in tally(chain(entries)).findings if one.code == "illegal_step"]
    assert any(text in one.text for one in found), found


def test_an_order_that_was_cut_can_pay_for_nothing(tmp_path):
    """At a delta near 1 high orders convert to less than their sum; not at `BEYOND`."""
    entries = history(tmp_path, CompositionRule.RENYI)
    entries[1]["payload"].update(epsilon_units=9999 * 10**12, delta_units=9 * 10**17)
    units = [BEYOND] * len(ORDERS)
    entries[2]["payload"]["renyi"].update(units=units)
    assert "overspent" in {one.code for one in tally(chain(entries[:3])).findings}
