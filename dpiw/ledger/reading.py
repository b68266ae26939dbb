"""Reading the ledger, and the transaction that every operation uses."""

import enum
import hmac
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from dpiw.errors import BudgetExceededError, Command, DPIWError, GrantSpentError, Next, SpecError
from dpiw.ledger.accounts import Account, Population
from dpiw.ledger.book import Book, known_run, known_stage
from dpiw.ledger.entries import (
    NO_ENTRY,
    Actor,
    Entry,
    EntryKind,
    LedgerHead,
    PublishedHead,
    after,
    authored,
    entry_hash,
    from_stored,
    operator,
)
from dpiw.ledger.keyring import Keyring
from dpiw.ledger.location import tampered
from dpiw.ledger.recovery import Recovery
from dpiw.ledger.stores.store import Connection, Store
from dpiw.ledger.values import Grant, RunRecord, StageRecord, StageState
from dpiw.privacy.units import PrivacyBudget, PrivacyCost
from dpiw.release.signing import PrivateKey
from dpiw.release.withdrawal import Withdrawal

Row = Mapping[str, Any]

_EMPTY = "it has no entries, not even its first: somebody removed them"


class FaultKind(enum.Enum):
    """What `verify` found wrong first."""

    EDITED = "edited"
    MISSING = "missing"
    OUT_OF_ORDER = "out_of_order"
    ILLEGAL_TRANSITION = "illegal_transition"
    OVERSPENT = "overspent"


@dataclass(frozen=True)
class Fault:
    """The first fault of the chain, and the entry it shows at."""

    kind: FaultKind
    seq: int
    reason: str

    def __str__(self) -> str:
        return f"entry {self.seq}: {self.kind.value}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """The result of replaying the ledger.

    A cut tail or a replaced chain shows only against published manifests (`Ledger.check_heads`).
    """

    entries: int
    head: LedgerHead | None
    fault: Fault | None

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return self.fault is None


@dataclass(frozen=True, kw_only=True)
class LedgerSnapshot:
    """Everything that a ledger held at one moment: stored rows; the book up to the first fault."""

    location: str
    rows: tuple[Row, ...]
    report: VerifyReport
    book: Book

    def export(self) -> list[dict[str, Any]]:
        """All entries as JSON values. Raises LedgerTamperedError if a row is no entry."""
        return [entry.to_json() for entry in _entries(self.rows, self.location)]


def _entries(rows: Sequence[Row], location: str) -> list[Entry]:
    try:
        return [from_stored(row) for row in rows]
    except ValueError as error:
        found = "it holds an unreadable entry, which somebody changed or damaged"
        raise tampered(location, found) from error


def replay(
    rows: Sequence[Row], *, book: Book, head: LedgerHead | None
) -> tuple[LedgerHead | None, Fault | None]:
    """Apply `rows` (by seq) to `book`, which stands at `head`; return the head and first fault."""
    for index, row in enumerate(rows):
        entry = _sound_entry(row)
        if entry is None or (entry.seq, entry.previous) != after(head):
            return head, _chain_fault(rows, index, entry, head)
        fault = _rule_fault(book, entry)
        if fault is not None:
            return head, fault
        head = entry.head
    return head, None


def _sound_entry(row: Row) -> Entry | None:
    try:
        entry = from_stored(row)
    except (TypeError, ValueError, RecursionError):
        return None
    return entry if entry.expected_hash() == entry.hash else None


def _chain_fault(
    rows: Sequence[Row], index: int, entry: Entry | None, head: LedgerHead | None
) -> Fault:
    seq, _ = after(head)
    row = rows[index]
    if row["seq"] != seq:
        found = "the ledger has no entry of this number: entries were removed or lost"
        return Fault(FaultKind.MISSING, seq, found)
    hashes = {stored["hash"] for stored in rows}
    if entry is None:
        edited = Fault(FaultKind.EDITED, seq, "its content does not match its hash")
        return _moved_fault(row, hashes, len(rows)) or edited
    if entry.previous in hashes:
        return Fault(FaultKind.OUT_OF_ORDER, seq, "it was written after another entry")
    # Its own hash is sound, so the likelier forgery is the entry before it, hashed again.
    reason = "the next entry was written after another version of this one"
    return Fault(FaultKind.EDITED, max(1, seq - 1), reason)


def _moved_fault(row: Row, hashes: set[str], count: int) -> Fault | None:
    try:
        fields = from_stored(row).to_json()
    except (TypeError, ValueError, RecursionError):
        return None
    del fields["hash"]
    for seq in range(1, 2 * count + 16):
        if entry_hash({**fields, "seq": seq}) == row["hash"]:
            moved = row["previous"] in hashes or row["previous"] == NO_ENTRY
            kind = FaultKind.OUT_OF_ORDER if moved else FaultKind.MISSING
            return Fault(kind, row["seq"], f"this entry was written as number {seq}")
    return None


def _rule_fault(book: Book, entry: Entry) -> Fault | None:
    if entry.seq == 1 and entry.kind is not EntryKind.GENESIS:
        return Fault(FaultKind.ILLEGAL_TRANSITION, 1, "its kind is not genesis")
    try:
        book.apply(entry)
    except BudgetExceededError as error:
        return Fault(FaultKind.OVERSPENT, entry.seq, error.message)
    except DPIWError as error:
        return Fault(FaultKind.ILLEGAL_TRANSITION, entry.seq, error.message)
    except (KeyError, TypeError, ValueError, AttributeError):
        reason = f"its payload is not one that dpiw writes for kind {entry.kind.value}"
        return Fault(FaultKind.ILLEGAL_TRANSITION, entry.seq, reason)
    return None


Clock = Callable[[], datetime]
_Answer = TypeVar("_Answer")


def utc_now() -> datetime:
    """The system's clock. The ledger uses it for labels only."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Page:
    """The book inside one transaction, and the place where the next entry goes."""

    connection: Connection
    book: Book
    head: LedgerHead


class LedgerReader:
    """All queries of a ledger. `Ledger` adds what writes."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = utc_now,
        actor: Actor = operator,
        key: PrivateKey | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._actor = actor
        self._key = key
        self._lock = threading.Lock()
        self._book = Book()
        self._head: LedgerHead | None = None

    @property
    def location(self) -> str:
        """The path or URL by which another process opens this ledger; holds no password."""
        return self._store.location

    def population(self, name: str) -> Population:
        """The registered terms. Raises UnknownPopulationError."""
        return self._read(lambda book: book.account(name).population)

    def populations(self) -> tuple[Population, ...]:
        """All registered populations, by name."""
        populations = self._read(lambda book: list(book.populations.values()))
        return tuple(sorted(populations, key=lambda population: population.name))

    def spent(self, name: str) -> PrivacyCost:
        """What is held against the budget: every attempt not voided, and every conflict."""
        return self._read(lambda book: book.account(name).spent)

    def remaining(self, name: str) -> PrivacyBudget:
        """Lifetime budget less what is held; never below zero."""
        return self._read(lambda book: book.account(name).remaining)

    def account(self, name: str) -> Account:
        """All that is held, at one moment. Raises UnknownPopulationError."""
        return self._read(lambda book: book.account(name))

    def keyring(self, name: str) -> Keyring:
        """A population's keys and approvals. Raises UnknownPopulationError."""
        return self._read(lambda book: book.keyring(name))

    def recoveries(self, name: str | None = None) -> tuple[Recovery, ...]:
        """Recorded recoveries of one or all populations, in order."""
        recoveries = self._read(lambda book: tuple(book.recoveries))
        return tuple(recovery for recovery in recoveries if name in (None, recovery.population))

    def recovery_of_run(self, run_key: str, plan_digest: str, period: str) -> Recovery | None:
        """The recovery by which this run is spent, or None."""
        return self._read(lambda book: book.recovered_by(run_key, plan_digest, period))

    def withdrawals(self) -> Mapping[str, Withdrawal]:
        """Every withdrawal, by SHA-256 of the withdrawn manifest."""
        return self._read(lambda book: dict(book.withdrawals))

    def check_not_withdrawn(self, run: RunRecord | None) -> None:
        """Raise WithdrawnError if the run's release was withdrawn: it is never published again."""
        if run is not None:
            self._read(lambda book: book.check_not_withdrawn(run.manifest_digest))

    def confirm(self, grant: Grant) -> None:
        """Raise GrantSpentError unless the ledger now holds `grant` as armed and unused."""
        _check_state(self._read(lambda book: granted(book, grant)), StageState.ARMED)

    def confirm_reserved(self, run_key: str, attempt: int, stage: str) -> None:
        """Raise GrantSpentError unless this stage may still be drawn (RESERVED or ARMED)."""
        record = self._read(lambda book: known_stage(known_run(book, run_key), attempt, stage))
        _check_state(record, StageState.RESERVED, StageState.ARMED)

    def run(self, run_key: str) -> RunRecord:
        """The run's record. Raises LedgerConflictError if it has no reservation."""
        return self._read(lambda book: known_run(book, run_key))

    def find_run(self, run_key: str) -> RunRecord | None:
        """The run's record, or None."""
        return self._read(lambda book: book.runs.get(run_key))

    def runs(self, population: str) -> tuple[RunRecord, ...]:
        """All runs of a population, in the order of their first reservation."""
        return self._read(lambda book: book.runs_of(population))

    def entries(
        self, *, population: str | None = None, run_key: str | None = None
    ) -> tuple[Entry, ...]:
        """Entries in order, not verified; LedgerTamperedError if a row is no entry."""
        with self._store.transaction(write=False) as connection:
            rows = self._store.rows(connection)
        return tuple(
            entry
            for entry in _entries(rows, self.location)
            if population in (None, entry.population) and run_key in (None, entry.run_key)
        )

    def head(self) -> LedgerHead:
        """The last entry."""
        with self._page(write=False) as page:
            return page.head

    def contains(self, hash: str) -> bool:
        """Whether an entry has this hash."""
        return self._read(lambda book: book.in_chain(hash))

    def knows(self, head: PublishedHead) -> bool:
        """Whether the chain has this release's head, or a recovery recorded the release."""
        return self._read(lambda book: book.knows(head))

    def check_heads(self, heads: Iterable[PublishedHead]) -> None:
        """Raise LedgerTamperedError unless every head is in the chain, or its release recovered."""
        with self._page(write=False) as page:
            lacking = next((head.hash for head in heads if not page.book.knows(head)), None)
        if lacking is not None:
            raise tampered(
                self.location,
                f"lacks the published head {lacking[:12]}: it was restored from an old copy, or it"
                " is another ledger. dpiw spends nothing from it until it is recovered",
                next=[Next("to recover it", Command.RECOVER)],
            )

    def snapshot(self) -> LedgerSnapshot:
        """All entries and what they amount to, from one read; also if the chain is broken."""
        with self._store.transaction(write=False) as connection:
            rows = self._store.rows(connection)
        book = Book()
        head, fault = replay(rows, book=book, head=None)
        if not rows:
            fault = Fault(FaultKind.MISSING, 1, _EMPTY)
        report = VerifyReport(entries=len(rows), head=head, fault=fault)
        return LedgerSnapshot(location=self.location, rows=tuple(rows), report=report, book=book)

    def verify(self) -> VerifyReport:
        """Replay everything: hashes, order, legality of every step, sums against budgets.

        Cannot find a cut tail or a chain rewritten as a whole; `check_heads` does, from manifests.
        """
        return self.snapshot().report

    def check(self) -> VerifyReport:
        """As `verify`, but raise LedgerTamperedError for a fault."""
        report = self.verify()
        if report.fault is not None:
            raise tampered(self.location, report.fault)
        return report

    @contextmanager
    def _page(self, *, write: bool) -> Iterator[Page]:
        with self._lock, self._store.transaction(write=write) as connection:
            head = self._catch_up(connection)
            yield Page(connection=connection, book=self._book, head=head)

    def _read(self, question: Callable[[Book], _Answer]) -> _Answer:
        with self._page(write=False) as page:
            return question(page.book)

    def _catch_up(self, connection: Connection) -> LedgerHead:
        seen = self._head
        if seen is not None and self._store.hash_at(connection, seen.seq) != seen.hash:
            found = f"entry {seen.seq} is no longer what it was when this process read it"
            raise tampered(self.location, found)
        rows = self._store.rows(connection, after=0 if seen is None else seen.seq)
        self._head, fault = replay(rows, book=self._book, head=seen)
        if fault is not None:
            # From the beginning, so that it is named the same whatever was seen before.
            _, replayed_fault = replay(self._store.rows(connection), book=Book(), head=None)
            raise tampered(self.location, replayed_fault or fault)
        if self._head is None:
            raise tampered(self.location, _EMPTY)
        return self._head

    def _append(self, page: Page, **fields: Any) -> Entry:
        at = label(self._clock)
        entry = authored(page.head, actor=self._actor, key=self._key, at=at, **fields)
        page.book.check(entry)
        self._store.append(page.connection, entry)
        return entry

    def _append_for_run(
        self,
        page: Page,
        kind: EntryKind,
        run_key: str,
        attempt: int | None = None,
        stage: str | None = None,
        **payload: Any,
    ) -> Entry:
        return self._append(
            page,
            kind=kind,
            population=known_run(page.book, run_key).population,
            run_key=run_key,
            attempt=attempt,
            stage=stage,
            payload=payload,
        )


def label(clock: Clock) -> str:
    """The time as an entry shows it: UTC, ISO 8601, whole seconds."""
    now = clock()
    if now.tzinfo is None:
        raise SpecError(field="clock", allowed="a datetime with a time zone: datetime.now(UTC)")
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def granted(book: Book, grant: Grant) -> StageRecord:
    """The stage `grant` was given for; GrantSpentError if the token is not the one armed."""
    run = known_run(book, grant.run_key)
    record = known_stage(run, grant.attempt, grant.stage)
    token = record.token_digest or ""
    same = hmac.compare_digest(token, grant.digest)
    if not same or run.population != grant.population:
        found = "this grant is not the one that `arm` or `resume` gave last for the stage"
        raise GrantSpentError(found, field=f"stage {grant.stage}")
    return record


def _check_state(record: StageRecord, *usable: StageState) -> None:
    if record.state not in usable:
        place = f"stage {record.stage} of attempt {record.attempt}"
        needed = " or ".join(state.value for state in usable)
        raise GrantSpentError(f"{place} is {record.state.value}; only one that is {needed} draws")
