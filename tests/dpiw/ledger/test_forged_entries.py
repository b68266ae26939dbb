"""Entries that break a rule in a perfect chain: the ledger's replay and the audit see each."""

import copy
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from dpiw.audit.auditing import findings_of_runs
from dpiw.audit.tally import tally
from dpiw.ledger import CompositionRule, EntryKind, FaultKind, Ledger, RecoveredRelease, RunState
from dpiw.ledger.book import Book
from dpiw.ledger.entries import FORMAT
from dpiw.ledger.reading import replay
from dpiw.ledger.values import Charge
from dpiw.privacy import accounting
from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from dpiw.privacy.renyi import BEYOND, ORDERS, RenyiVector
from dpiw.release.withdrawal import ReleaseName
from tests.support.ledger import adult, ask, chain, cost, digest, stored, terms, withdrawal

Entries = list[dict[str, Any]]
GAUSSIAN = accounting.event_to_json(GaussianEvent(noise_multiplier=10.0))
LAPLACE = accounting.event_to_json(LaplaceEvent(noise_multiplier=4.0))
ORDER_COUNT = len(ORDERS)


def plain(ledger: Ledger) -> None:
    """1 genesis; 2-3 register; 4 reserve; 5-6 arm, commit one; 7-8 arm, lose two; 9 reserve again;

    10-11 arm, commit two; 12 publish; 13-14 reserve and void another run; 15 reserve a third.
    """
    for name in ("adult", "beta"):
        ledger.register(adult(name=name, epsilon=Decimal(2), delta=Decimal("1e-5")))
    both = {"one": [GAUSSIAN], "two": [LAPLACE]}
    few = {"run_key": digest(1), "max_attempts": 2}
    ledger.reserve(**ask(**few, cost=cost("0.7"), stages=both))
    ledger.commit(ledger.arm(digest(1), 1, "one"), digest(5))
    ledger.arm(digest(1), 1, "two")
    ledger.lose(digest(1), 1, "two")
    ledger.reserve(**ask(**few, attempt=2, cost=cost("0.3"), stages={"two": [LAPLACE]}))
    ledger.commit(ledger.arm(digest(1), 2, "two"), digest(6))
    ledger.publish(digest(1), digest(7))
    for run in (2, 3):
        ledger.reserve(**ask(run_key=digest(run), cost=cost("0.3"), stages=both))
        if run == 2:
            ledger.void(digest(2), 1)


def of_vectors(ledger: Ledger) -> None:
    """1 genesis, 2 register by the Renyi filter, 3 reserve, 4 void."""
    ledger.register(adult(epsilon=Decimal(4), composition=CompositionRule.RENYI))
    units = accounting.renyi_vector([GaussianEvent(noise_multiplier=21.5)])
    ledger.reserve(**ask(cost=cost("0.2", "1e-7"), renyi=RenyiVector(units=units)))
    ledger.void(digest(1), 1)


def recovered(ledger: Ledger, composition: CompositionRule = CompositionRule.BASIC) -> None:
    """1 genesis, 2 register, 3-4 reserve and arm, 5 recover what continues it, with a loss."""
    ledger.register(terms(epsilon=Decimal(9), delta=Decimal("1e-4"), composition=composition))
    renyi = composition is CompositionRule.RENYI
    vectors = [RenyiVector(units=(n * 10**9,) * ORDER_COUNT) if renyi else None for n in (1, 2)]
    one, two = (Charge(cost=cost(e), renyi=v) for e, v in zip("12", vectors, strict=True))
    stages = {"s": [{"type": "x"}]}
    ledger.reserve(**ask(population="town", cost=one.cost, renyi=one.renyi, stages=stages))
    ledger.arm(digest(1), 1, "s")
    release = RecoveredRelease(
        hash=digest(3), manifest_digest=digest(4), previous=digest(5),
        after=ledger.head().hash, run="ab" * 4, plan_digest=digest(6), period="p", charge=one,
        held=two, drawn=two,
    )  # fmt: skip
    ledger.recover("town", [release], loss=cost("0.5", "2e-6"), reads=4)
    spent = ledger.account("town").held.cost
    assert spent == cost("2.5", "4e-6")  # 1 here, of the 2 held there 1 is it; and the loss


def withdrawn(ledger: Ledger) -> None:
    """1 genesis; 2-3 register; 4-7 reserve, arm, commit, publish a run; 8-11 another; 12 more rows;

    13 recover a third, 14 withdraw the first for the second, 15 those rows, 16 the recovered one.
    """
    for name in ("adult", "beta"):
        ledger.register(adult(name=name, epsilon=Decimal(4), delta=Decimal("1e-4")))
    for run in (1, 2):
        ledger.reserve(**ask(run_key=digest(run), cost=cost("0.7"), stages={"one": [GAUSSIAN]}))
        ledger.commit(ledger.arm(digest(run), 1, "one"), digest(5))
        ledger.publish(digest(run), digest(100 + run))
    ledger.publish_rows(digest(1), digest(103))
    one = Charge(cost=cost("0.1"))
    lost = RecoveredRelease(
        hash=digest(3), manifest_digest=digest(104), previous=None, after=None, run="ab" * 4,
        plan_digest=digest(6), period="p", charge=one, held=one, drawn=one,
    )  # fmt: skip
    ledger.recover("adult", [lost], loss=cost("0", "0"))
    spent = ledger.spent("adult")
    other = ReleaseName(release_id="revision", manifest=digest(102))
    for manifest, rows_of, replaced_by in (
        (101, None, other), (103, digest(101), None), (104, None, None),
    ):  # fmt: skip
        stated = withdrawal(manifest=digest(manifest), rows_of=rows_of, replaced_by=replaced_by)
        assert ledger.withdraw("adult", stated) == stated
        assert ledger.withdraw("adult", stated) == stated  # no second entry
    assert [e.seq for e in ledger.entries() if e.kind is EntryKind.WITHDRAW] == [14, 15, 16]
    assert ledger.spent("adult") == spent  # withdrawn is not unspent
    assert ledger.run(digest(1)).state is RunState.WITHDRAWN


HISTORIES = {
    "plain": plain, "vectors": of_vectors, "recovered": recovered, "withdrawn": withdrawn,
    "recovered vectors": partial(recovered, composition=CompositionRule.RENYI),
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    entries = {}
    for name, write in HISTORIES.items():
        ledger = Ledger.create(tmp_path_factory.mktemp("ledger") / "ledger.sqlite")
        write(ledger)
        entries[name] = ledger.snapshot().export()
    return entries


@pytest.mark.parametrize("history", HISTORIES)
def test_an_honest_history_has_nothing_to_find(written, history):
    entries = written[history]
    assert replay(stored(entries), book=Book(), head=None)[1] is None
    counted = tally(entries)
    assert counted.findings == []
    if "recovered" in history:
        assert [(seq, loss.delta) for seq, _, loss in counted.losses] == [(5, 2 * 10**12)]
        assert counted.unpaid_reads("town") == 4


Change = Callable[[Entries], Any]


def at(seq: int, payload: dict[str, Any] | None = None, **fields: Any) -> Change:
    """Change fields of an entry, and of its payload; of another kind, it has no other fields."""

    def change(entries: Entries) -> None:
        entry = entries[seq - 1]
        kept = {} if payload and "kind" in fields else entry["payload"]
        merged = {**kept, **(payload or {})}
        entry.update(fields, payload={n: value for n, value in merged.items() if value is not ...})

    return change


def renyi_at(seq: int, **changes: Any) -> Change:
    def change(entries: Entries) -> None:
        entries[seq - 1]["payload"]["renyi"].update(changes)

    return change


def both(*changes: Change) -> Change:
    return lambda entries: [change(entries) for change in changes]


CHARGED = {"epsilon_units": 7 * 10**11, "delta_units": 10**12}
HALF = {**CHARGED, "epsilon_units": 1}
NO_CHARGE = {"output_digest": digest(9), **dict.fromkeys(CHARGED, 0)}
LOUDER = {"two": [{**LAPLACE, "noise_multiplier": "1.0"}]}
NO_TEXT = {"period": ["once"], "release": ["x"]}
PLAIN: dict[str, Change] = {
    "armed twice": at(6, {"token_digest": digest(1)}, kind="arm"),
    "committed unarmed": at(5, {"output_digest": digest(1)}, kind="commit"),
    "lost unarmed": at(5, kind="lose"),
    "published unfinished": at(9, {"manifest_digest": digest(3)}, kind="publish", attempt=None),
    "a refund of what was armed": at(6, CHARGED, kind="void", stage=None),
    "half a refund": at(14, {"epsilon_units": 1}),
    "more than a refund": at(14, {"epsilon_units": 9 * 10**11}),
    "a refund again": lambda entries: entries.append(copy.deepcopy(entries[13])),
    "a doubled draw at no charge": at(7, NO_CHARGE, kind="conflict", stage="one"),
    "a doubled draw of the same output": at(
        7, {"output_digest": digest(5), **CHARGED}, kind="conflict", stage="one"
    ),
    "a first entry of another kind": at(1, kind="lose"),
    "a second genesis": at(3, {"nonce": digest(1), "format": FORMAT}, kind="genesis"),
    "a second registration": at(3, population="adult"),
    "a rule that cannot hold": at(3, {"composition": "renyi", "delta_units": 0}),
    "a rule nobody knows": at(3, {"composition": "pld"}),
    "rows of nobody": at(3, {"max_rows": 2}),
    "a fractional cost": at(4, {"epsilon_units": 0.5}),
    "a negative cost": at(4, {"epsilon_units": -1}),
    "another relation": at(4, {"relation": "replace_one"}),
    "an unknown relation": at(4, {"relation": "any"}),
    "no such population": at(4, population="ghost"),
    "no stages": at(4, {"stages": {}}),
    "a field left out": at(4, {"period": ...}),
    "a payload without fields": lambda entries: entries[3].update(payload={}),
    "vectors of no whole numbers": at(4, {"renyi": {"rule": "renyi-1", "units": [0.5]}}),
    "a period that is no text": both(at(4, NO_TEXT), at(9, NO_TEXT), at(5, kind="lose")),
    "another population's run": at(5, population="beta"),
    "an unknown run": at(5, run_key=digest(77)),
    "an unknown stage": at(5, stage="t"),
    "an unknown attempt": at(5, attempt=2),
    "a manifest that is no digest": at(12, {"manifest_digest": None}),
    "a manifest in capitals": at(12, {"manifest_digest": "A" * 64}),
    "other terms later": at(9, {"period": "2028"}),
    "an attempt left out": at(9, attempt=3),
    "a committed stage again": at(9, {"stages": {"one": [GAUSSIAN]}}),
    "a second attempt of a run under way": at(15, run_key=digest(2), attempt=3),
}
OTHERWISE: dict[str, tuple[FaultKind, str, Change]] = {
    "a smaller budget": (FaultKind.OVERSPENT, "overspent", at(2, {"epsilon_units": 10**11})),
    "a larger cost": (FaultKind.OVERSPENT, "overspent", at(9, {"delta_units": 10**15})),
    "one attempt too many": (
        FaultKind.ILLEGAL_TRANSITION, "too_many_attempts",
        both(at(4, {"max_attempts": 1}), at(9, {"max_attempts": 1})),
    ),
    "louder events in the second attempt": (
        FaultKind.ILLEGAL_TRANSITION, "events_changed", at(9, {"stages": LOUDER}),
    ),
    "a kind nobody knows": (FaultKind.EDITED, "unknown_entry", at(8, kind="forgive")),
}  # fmt: skip
VECTORS: dict[str, Change] = {
    "other orders": lambda e: e[1]["payload"]["renyi"]["orders"].reverse(),
    "a larger budget of one order": lambda e: e[1]["payload"]["renyi"]["budget_units"].__setitem__(
        9, 10
    ),
    "another rule": renyi_at(2, rule="renyi-0"),
    "no rule": at(2, {"renyi": ...}),
    "no vector": at(3, {"renyi": ...}),
    "a short vector": lambda e: e[2]["payload"]["renyi"]["units"].pop(),
    "no divergence": renyi_at(3, units=[0] * ORDER_COUNT),
    "fractions of units": renyi_at(3, units=[1.5] * ORDER_COUNT),
    "a reservation that states a loss": renyi_at(3, lost_delta_units=1),
    "a smaller refund": lambda e: e[3]["payload"]["renyi"]["units"].__setitem__(0, 1),
    "a refund of no vector": at(4, {"renyi": ...}),
}


def release(entries: Entries) -> dict[str, Any]:
    return entries[4]["payload"]["releases"][0]


def of_release(**change: Any) -> Change:
    return lambda entries: release(entries).update(change)


def of_loss(**change: Any) -> Change:
    return lambda entries: entries[4]["payload"]["loss"].update(change)


def nothing_at_all(entries: Entries) -> None:
    payload = entries[4]["payload"]
    payload.update(releases=[], reads=0, loss=dict(payload["loss"], epsilon_units=0, delta_units=0))


MUCH = 10**13
RECOVERED: dict[str, Change] = {
    "a smaller charge": at(5, {"epsilon_units": 1}),
    "a fractional charge": at(5, {"epsilon_units": 0.5}),
    "a larger cost of a release": of_release(epsilon_units=MUCH),
    "a head that is not missing": lambda e: release(e).update(hash=e[0]["hash"]),
    "one release twice": lambda e: e[4]["payload"]["releases"].append(release(e)),
    "a baseline that is not here": of_release(after=digest(9)),
    "a malformed baseline": of_release(after={"seq": 2, "hash": digest(0)}),
    "a baseline without a release before it": of_release(previous=None),
    "a baseline left out": of_release(after=None),
    "an earlier baseline": lambda e: release(e).update(after=e[2]["hash"]),
    "more held": lambda e: release(e)["held"].update(epsilon_units=MUCH),
    "more drawn than held": lambda e: release(e)["drawn"].update(epsilon_units=MUCH),
    "a larger loss": of_loss(epsilon_units=MUCH),
    "no loss": at(5, {"loss": ...}),
    "nothing at all": nothing_at_all,
}
RECOVERED_VECTORS: dict[str, Change] = {
    "a loss of too small a vector": lambda e: e[4]["payload"]["loss"]["renyi"].update(
        units=[1] * ORDER_COUNT
    ),
    "a loss that takes no delta": lambda e: e[4]["payload"]["loss"]["renyi"].pop(
        "lost_delta_units"
    ),
    "a loss of more delta than is left": of_loss(delta_units=10**14),
    "one order left out": lambda e: e[4]["payload"]["renyi"]["units"].__setitem__(7, 1),
}


def again(seq: int, payload: dict[str, Any], **fields: Any) -> Change:
    """Another entry at the end, made of one that is there."""

    def change(entries: Entries) -> None:
        entries.append(copy.deepcopy(entries[seq - 1]))
        at(len(entries), payload, **fields)(entries)

    return change


WITHDRAWN: dict[str, Change] = {
    "withdrawn twice": again(14, {}),
    "withdrawn before it was published": at(7, kind="withdraw", run_key=None, payload={
        "release_id": "town", "manifest": digest(101), "rows_of": None, "reason": "error",
        "replaced_by": None, "withdrawn_at": "2027-01-01T00:00:00Z",
    }),
    "what nobody published": at(14, {"manifest": digest(9)}),
    "rows that nobody published": at(15, {"manifest": digest(9)}),
    "rows as another run's": at(15, {"rows_of": digest(102)}),
    "rows as a release": at(15, {"rows_of": None}),
    "by a run": at(14, run_key=digest(1)),
    "another population's": at(14, population="beta"),
    "a recovered one of another population": at(16, population="beta"),
    "a recovered one by a run": at(16, run_key=digest(1)),
    "rows of what was not recovered": at(16, {"manifest": digest(9), "rows_of": digest(102)}),
    "a run's release as rows of a recovered one": at(
        16, {"manifest": digest(102), "rows_of": digest(104)}
    ),
    "a recovered one as rows of itself": at(16, {"rows_of": digest(104)}),
    "no such reason": at(14, {"reason": "shame"}),
    "replaced by itself": at(14, {"replaced_by": {"release_id": "x", "manifest": digest(101)}}),
    "replaced by more rows": at(14, {"replaced_by": {"release_id": "x", "manifest": digest(103)}}),
    "replaced by nothing known": at(
        14, {"replaced_by": {"release_id": "x", "manifest": digest(9)}}
    ),
    "no name": at(14, {"release_id": ...}),
    "a name that is no text": at(14, {"release_id": 5}),
    "replaced by a release of no name": at(14, {"replaced_by": {"manifest": digest(102)}}),
    "replaced by more than a release": at(14, {"replaced_by": {
        "release_id": "x", "manifest": digest(102), "also": 1,
    }}),
    "no moment": at(14, {"withdrawn_at": "today"}),
    "other terms": at(14, {"epsilon": "0"}),
    "more rows after it": again(12, {"manifest_digest": digest(9)}),
}  # fmt: skip
FORGED: dict[str, tuple[FaultKind, str, Change]] = {
    **{f"plain: {name}": forged for name, forged in OTHERWISE.items()},
    "vectors: overspent": (
        FaultKind.OVERSPENT, "overspent", renyi_at(3, units=[BEYOND] * ORDER_COUNT),
    ),
    **{
        f"{history}: {name}": (FaultKind.ILLEGAL_TRANSITION, "illegal_step", change)
        for history, table in (
            ("plain", PLAIN), ("vectors", VECTORS), ("recovered", RECOVERED),
            ("recovered vectors", RECOVERED | RECOVERED_VECTORS), ("withdrawn", WITHDRAWN),
        )
        for name, change in table.items()
    },
}  # fmt: skip
NOT_COUNTED = {"plain: a second genesis", "vectors: other orders", "vectors: another rule",
               "vectors: no rule", "vectors: a larger budget of one order"}  # fmt: skip
"""What the audit's count passes over: it counts by orders and budgets of its own."""


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_entry_in_a_perfect_chain(written, name):
    kind, code, change = FORGED[name]
    honest = written[name.partition(":")[0]]
    entries = copy.deepcopy(honest)
    change(entries)
    changed = {n for n, entry in enumerate(entries, start=1) if entry not in honest[n - 1 : n]}
    chain(entries)
    _, fault = replay(stored(entries), book=Book(), head=None)
    assert fault.kind is kind
    assert fault.seq in changed or kind is FaultKind.OVERSPENT
    assert "dpiw ledger" not in fault.reason  # commands are for who was refused
    counted = tally(entries)
    assert (code in {finding.code for finding in counted.findings}) == (name not in NOT_COUNTED)
    findings_of_runs(counted)  # raises nothing of what an entry says
