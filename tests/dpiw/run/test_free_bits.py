"""Reads of the confidential table: seen by operators, paid by nobody, limited for life."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dpiw.audit.tally import tally
from dpiw.errors import BudgetExceededError, LedgerConflictError, SourceError, StageFailedError
from dpiw.ledger import MAX_UNPAID_READS, EntryKind, Ledger
from dpiw.ledger.book import Book
from dpiw.ledger.entries import chained
from dpiw.plan.sections import SourceSpec
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.ledger import NONE, restore
from tests.support.whole_runs import finish, fit, fitted, ingested, prepared, reserved

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 3
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
TORN = "age,income,region,ill\n1,2,north,true,5\n"


@pytest.fixture
def place(make_workplace):
    """A population that may see three reads without a draw."""
    workplace = make_workplace(population="village", weights="none", epsilon="100")
    ledger = Ledger.open(workplace.ledger)
    town = ledger.population("town")
    ledger.register(dataclasses.replace(town, name="village", max_unpaid_reads=LIMIT))
    return workplace


def unpaid(place: Any, population: str = "village") -> int:
    return Ledger.open(place.ledger).account(population).unpaid_reads


def given_back(place: Any, run: ReleaseRun) -> None:
    steps.ingest(run)
    run.open_ledger().void(run.key, 1)


def torn(place: Any, run: ReleaseRun) -> None:
    good = place.source.read_bytes()
    place.source.write_text(TORN)
    with pytest.raises(SourceError):
        steps.ingest(run)
    place.source.write_bytes(good)


def crashed(place: Any, run: ReleaseRun) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpiw.data.source.batches.os.fstat", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            steps.ingest(run)


@pytest.mark.parametrize("end", [torn, crashed, given_back])
def test_every_read_without_a_draw_counts_for_life(place, end):
    """A new period, and so a new run, gives no new looks; nor does one reserved in time."""
    ahead = (f"2027-{month:02d}" for month in range(1, 13))
    late = reserved(place, period="2026-12")
    for number in range(LIMIT):
        assert unpaid(place) == number
        end(place, reserved(place, period=next(ahead)))
    entries = len(Ledger.open(place.ledger).entries())
    run = prepared(place, period=next(ahead))
    with pytest.raises(BudgetExceededError) as refused:
        steps.reserve(run)
    assert (refused.value.requested, refused.value.remaining) == ("1 read", "0 reads")
    with pytest.raises(BudgetExceededError):  # the ledger decides at the read itself, too
        steps.ingest(late)
    assert not late.snapshot.exists()
    assert len(Ledger.open(place.ledger).entries()) == entries  # and nothing is held for it
    assert Ledger.open(place.ledger).verify().ok


def test_a_read_is_on_record_before_the_source_is_opened(place, monkeypatch):
    seen = []

    def opened(*_):
        seen.append(Ledger.open(place.ledger).entries()[-1].kind)
        raise SourceError("stop here")

    monkeypatch.setattr("dpiw.data.source.ingest.copy_source", opened)
    with pytest.raises(SourceError):
        steps.ingest(reserved(place, period="2027-01"))
    assert seen == [EntryKind.READ]


KILLED = """
import os, signal, sys
from pathlib import Path
import dpiw.data.source.ingest
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
dpiw.data.source.ingest.validate_structure = lambda *_, **__: {}
dpiw.data.source.ingest.canonical_frame = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
steps.ingest(ReleaseRun.load(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_read_that_was_killed_counts(place):
    run = reserved(place, period="2027-01")
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(run.directory)], cwd=ROOT, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert child.returncode == -signal.SIGKILL
    assert unpaid(place) == 1
    left = [path for path in run.private.iterdir() if path.name.startswith(".")]
    assert len(left) == 2  # a copy and a part of a snapshot
    fit(run)
    assert not [path for path in run.private.iterdir() if path.name.startswith(".")]
    assert unpaid(place) == 1  # the second read was paid for, the killed one never is


def test_a_fit_that_died_counts_too(place):
    """Its memory grows with the table; armed and lost it is paid for, and its end is not."""
    place.write_spec(population="village", weights="none", max_attempts=9)
    run = ingested(place, period="2027-01")
    for number in range(1, LIMIT):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpiw.run.draw._measured", lambda *_, **__: 1 / 0)
            with pytest.raises(StageFailedError):
                steps.fit_generator(run, noise=SecureNoise())
        steps.reserve(run)  # settles what died, and pays for another draw
        assert unpaid(place) == number + 1  # and the read, as long as nothing is drawn
    with pytest.raises(BudgetExceededError, match="max_unpaid_reads=3"):
        steps.fit_generator(run, noise=SecureNoise())
    assert Ledger.open(place.ledger).verify().ok


@pytest.mark.slow
def test_bisecting_a_limit_ends_at_the_registered_number(place):
    """Before: 20 periods of `max_rows` gave the exact number of rows. What is left is memory."""
    spec, low, high, refused = place.spec.read_text(), 1, 1 << 8, 0
    for number in range(8):
        middle = (low + high) // 2
        limited = f"path: data.csv, format: csv, max_cell_bytes: {middle}"
        place.spec.write_text(spec.replace("path: data.csv, format: csv", limited))
        try:
            run = ingested(place, period=f"p{number}")
            high = middle
            run.open_ledger().void(run.key, 1)
        except SourceError:
            low = middle
        except BudgetExceededError:
            refused += 1
    assert refused == 8 - LIMIT


@pytest.mark.parametrize(
    "limit", sorted(name for name in SourceSpec.model_fields if name.startswith("max_"))
)
def test_other_limits_are_another_run(place, limit):
    """So what fails at one limit is not tried at another under the same reservation."""
    spec, keys = place.spec.read_text(), set()
    for value in (1 << 33, 1 << 34) if limit == "max_memory_bytes" else (50, 51):
        limited = f"path: data.csv, format: csv, {limit}: {value}"
        place.spec.write_text(spec.replace("path: data.csv, format: csv", limited))
        keys.add(ReleaseRun.prepare(place.spec, period="2027-01").key)
    assert len(keys) == 2


def test_a_head_cannot_be_found_by_trying(place):
    """The same chain twice, to the second, and two certificates: four different heads."""
    run = fitted(place, period="2027-01")
    before = place.ledger.read_bytes()
    heads = []
    for _ in range(2):
        restore(place, before)
        ledger = Ledger.open(place.ledger, clock=lambda: NOON)
        heads += [ledger.certify(run.key), ledger.certify(run.key)]
        assert ledger.verify().ok
        del ledger
    assert len(set(heads)) == 4


def test_a_certificate_without_a_random_number_is_no_legal_step(place):
    run = fitted(place, period="2027-01")
    ledger = Ledger.open(place.ledger)
    entries = ledger.entries()
    plain = chained(
        entries[-1].head, kind=EntryKind.CERTIFY, payload={}, at=entries[-1].at,
        population="village", run_key=run.key,
    )  # fmt: skip
    book = Book()
    for entry in entries:
        book.apply(entry)
    with pytest.raises(KeyError):
        book.apply(plain)
    findings = tally([entry.to_json() for entry in (*entries, plain)]).findings
    assert [finding.code for finding in findings] == ["illegal_step"]
    with pytest.raises(LedgerConflictError, match="can be certified"):
        ledger.certify(reserved(place, period="2027-02").key)


def test_the_certificate_states_the_rate_and_not_the_count(place):
    run = reserved(place, period="2027-01")
    torn(place, run)
    steps.reserve(run)
    fit(run)
    steps.draw_synthetic(run)
    certificate = json.loads((finish(run) / "certificate.json").read_bytes())
    assert any("at most 3 of these" in sentence for sentence in certificate["assumptions"])
    assert certificate["account"]["max_unpaid_reads"] == LIMIT
    assert len(certificate["attempts"]) == 1
    assert float(certificate["attempts"][0]["delta"]) > 0


def test_the_rate_that_the_documents_state():
    """Reads that end in success or in one of two failures, of which at most F are unpaid."""

    def bits(reads):
        ways = sum(math.comb(reads, k) * 2**k for k in range(MAX_UNPAID_READS + 1))
        return math.ceil(math.log2(ways))

    text = " ".join((ROOT / "docs" / "privacy.md").read_text().split())
    assert f"with F = {MAX_UNPAID_READS}, {bits(MAX_UNPAID_READS)} bits in 20 reads" in text
    assert f"{bits(120)} bits spread over 120 monthly ones" in text


def changed(place: Any, epsilon: float = 1) -> None:
    """Another plan: as a curator writes it who obeys what a statement advises."""
    place.write_spec(population="village", weights="none", epsilon=epsilon)


def drawn_after(place: Any, *, another: bool = True) -> ReleaseRun:
    if another:
        changed(place)
    return fitted(place, period="2027-02")


def read_before(end: Callable[..., None], *, another: bool = True) -> Callable[[Any], ReleaseRun]:
    def act(place: Any) -> ReleaseRun:
        end(place, reserved(place, period="2027-01"))
        return drawn_after(place, another=another)

    return act


def paid_for_or_later(place: Any) -> ReleaseRun:
    fitted(place, period="2027-01")
    run = drawn_after(place)
    changed(place, 0.5)
    ingested(place, period="2027-03")
    return run


def chosen_between_two_reserved_plans(place: Any) -> ReleaseRun:
    """Both reserved before anything was read: the choice may follow the read all the same."""
    read = reserved(place, period="2027-01")
    changed(place)
    run = reserved(place, period="2027-02")
    steps.ingest(read)
    fit(run)
    return run


def stated_by_a_recovery(place: Any) -> ReleaseRun:
    Ledger.open(place.ledger).recover("village", [], loss=NONE, reads=1)
    return fitted(place, period="2027-02")


READS: dict[str, tuple[Callable[[Any], ReleaseRun], bool]] = {
    "torn": (read_before(torn), True),
    "crashed": (read_before(crashed), True),
    "given back": (read_before(given_back), True),
    "read and waiting": (read_before(lambda _, run: steps.ingest(run)), True),
    "under the same plan": (read_before(crashed, another=False), False),
    "paid for by a draw, or later": (paid_for_or_later, False),
    "between two reserved plans": (chosen_between_two_reserved_plans, True),
    "stated by a recovery": (stated_by_a_recovery, True),
}


@pytest.mark.parametrize("name", READS)
def test_the_first_assumption_states_a_read_under_another_plan(place, name):
    act, stated = READS[name]
    run = act(place)
    steps.draw_synthetic(run)
    first, *others = verify(finish(run)).certificate.assumptions
    assert ("read before under another plan" in first) == stated
    assert not any("under another plan" in sentence for sentence in others)
