"""The book: what all entries so far amount to, and which entry may come next.

`Ledger` asks these rules before it writes; `verify` replays every stored entry through them. Stage
states: docs/privacy.md, section 3. Beyond that table:

* A stage with terms of resumption may leave checkpoints while ARMED: the first at step 0, no two
  further apart than the terms allow. A resume from the last one moves the right to a new token.
* A run's first reservation fixes its population, plan, period, `max_attempts`, stages and events.
* A further attempt holds only LOST or VOIDED stages; voided ones do not count as attempts.
* While the account is overdrawn (by a recovery or a conflict), reservations may only be voided.
* A read is an entry made before the table's first byte is read; a committed draw of its attempt
  pays for it. Unpaid reads, and fits that died (LOST or resumed), count for life, because how they
  ended can be seen and no epsilon pays for that. At the limit nothing is read, armed or resumed.
* A run whose release was recovered (`dpiw.ledger.recovery`) is never reserved, armed or voided.
* More rows of a published run: a `publish` entry with its first manifest (`rows_of`) and no cost.
* A withdrawn release, or further rows of one, stay charged, and are never published again.
* A certificate carries the hash of its own `certify` entry, whose 256 random bits hide all else.
* Keys, revocations and approvals change a population's keyring alone (`dpiw.ledger.keyring`).
* Held = every attempt not voided, and again for each conflicting output: two outputs, two draws.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

from dpiw.errors import (
    Command,
    GrantSpentError,
    LedgerConflictError,
    Next,
    UnknownPopulationError,
    nearest,
)
from dpiw.ledger.accounts import Account, Population, check_kind
from dpiw.ledger.entries import (
    Entry,
    EntryKind,
    PublishedHead,
    check_digest,
    check_fields,
    check_genesis,
    check_name,
)
from dpiw.ledger.keyring import OF_KEYS, SIGNED, Keyring
from dpiw.ledger.recovery import Recovery, recovered, recovery_of
from dpiw.ledger.reservations import run_with_attempt
from dpiw.ledger.values import (
    AttemptRecord,
    Charge,
    Checkpoint,
    RunRecord,
    RunState,
    StageRecord,
    StageState,
)
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.withdrawal import Withdrawal

_STATES = Next("the runs and their states", Command.SHOW)

_Stated = Population | Recovery | Withdrawal | RunRecord


class Book:
    """Populations, runs and held costs after a prefix of the chain. Changed only by `apply`."""

    def __init__(self) -> None:
        self.populations: dict[str, Population] = {}
        self.runs: dict[str, RunRecord] = {}
        self.recoveries: list[Recovery] = []
        self.withdrawals: dict[str, Withdrawal] = {}
        self._accounts: dict[str, Account] = {}
        self._drawn: dict[str, list[tuple[int, Charge]]] = {}
        self._places: dict[str, int] = {}
        self._keyrings: dict[str, Keyring] = {}

    def account(self, name: str) -> Account:
        """Return what a population holds against its budget, or raise UnknownPopulationError."""
        if name not in self._accounts:
            near = nearest(name, self._accounts)
            why = "if these are other people, register them once, for life"
            raise UnknownPopulationError(
                f"no population {name!r} is registered in this ledger{near}",
                next=[Next(why if near else "register it once, for life", Command.REGISTER)],
            )
        return self._accounts[name]

    def keyring(self, name: str) -> Keyring:
        """Return a population's keys and approvals; raises UnknownPopulationError."""
        self.account(name)
        return self._keyrings.get(name) or Keyring(population=name)

    def drawn_by(self, name: str, hash: str) -> Charge:
        """What a population's account had irrevocably drawn after the entry with this hash."""
        history = self._drawn[name]
        after = bisect_right(history, self._places[hash], key=lambda pair: pair[0])
        return history[after - 1][1]

    def in_chain(self, hash: str) -> bool:
        """Whether the chain has an entry with this hash."""
        return hash in self._places

    def knows(self, head: PublishedHead) -> bool:
        """Whether the chain has this head, or a recovery recorded its release."""
        return self.in_chain(head.hash) or any(
            (release.hash, release.manifest_digest) == (head.hash, head.manifest_digest)
            for release in recovered(self.recoveries)
        )

    def recovered_by(self, run_key: str, plan_digest: str, period: str) -> Recovery | None:
        """The recovery that lists this run's release, or None."""
        run = (run_key, plan_digest, period)
        found = (r for r in self.recoveries if any(release.is_of(*run) for release in r.releases))
        return next(found, None)

    def runs_of(self, name: str) -> tuple[RunRecord, ...]:
        """All runs of a population, in the order of their first reservation."""
        self.account(name)
        return tuple(run for run in self.runs.values() if run.population == name)

    def check_not_withdrawn(self, manifest_digest: str | None) -> None:
        """Raise WithdrawnError if this release, or these further rows, were withdrawn."""
        withdrawal = self.withdrawals.get(manifest_digest or "")
        if withdrawal is not None:
            raise withdrawal.refusal()

    def check(self, entry: Entry) -> None:
        """Raise unless `entry` may come next (BudgetExceededError: no budget); changes nothing."""
        self._stated(entry)

    def _stated(self, entry: Entry) -> tuple[_Stated | None, Keyring | None]:
        check_fields(entry)
        if not entry.authored():
            raise LedgerConflictError("the signature does not match this entry", field="by")
        if entry.kind is EntryKind.GENESIS:
            check_genesis(entry)
            return None, None
        if entry.kind is EntryKind.REGISTER:
            name = check_name("population.name", entry.population or "")
            if name in self.populations:
                raise LedgerConflictError("registered a second time", field=f"population {name}")
            return Population.from_payload(name, entry.payload), None
        ring = None
        if entry.kind in SIGNED:
            ring = self.keyring(entry.population or "").after(entry)
        return None if entry.kind in OF_KEYS else _RULES[entry.kind](self, entry), ring

    def apply(self, entry: Entry) -> None:
        """Check `entry` and take it into account."""
        stated, ring = self._stated(entry)
        if isinstance(stated, Population):
            self.populations[stated.name] = stated
            self._accounts[stated.name] = Account.opened(stated)
            self._drawn[stated.name] = [(0, self._accounts[stated.name].drawn)]
        elif isinstance(stated, Recovery):
            self.recoveries.append(stated)
            account = self.account(stated.population)
            self._keep(account.plus(stated.charged, reads=stated.reads), entry)
        elif isinstance(stated, Withdrawal):
            self.withdrawals[stated.manifest] = stated
            for run in self.runs_of(entry.population or ""):
                if run.manifest_digest == stated.manifest:
                    self.runs[run.run_key] = replace(run, withdrawn=stated.reason)
        elif stated is not None:
            before = self.runs.get(stated.run_key)
            account = self.account(stated.population).run_changed(before, stated)
            self.runs[stated.run_key] = stated
            self._keep(account, entry)
        if ring is not None:
            self._keyrings[ring.population] = ring
        self._places[entry.hash] = entry.seq

    def _keep(self, account: Account, entry: Entry) -> None:
        name = account.population.name
        if account.drawn != self._accounts[name].drawn:
            self._drawn[name].append((entry.seq, account.drawn))
        self._accounts[name] = account


def _reserve(book: Book, entry: Entry) -> RunRecord:
    payload = entry.payload
    account = book.account(entry.population or "")
    charge = Charge.from_payload(payload, NeighbouringRelation(payload["relation"]))
    check_kind(account.population, charge)
    run = run_with_attempt(book.runs.get(entry.run_key or ""), entry, charge)
    _not_recovered(book, run)
    account.admit(charge)
    return run


def _not_recovered(book: Book, run: RunRecord) -> None:
    recovery = book.recovered_by(run.run_key, run.plan_digest, run.period)
    if recovery is not None:
        raise GrantSpentError(
            f"this run's release was recovered by entry {recovery.head.seq}, so its cost is spent."
            " A new source.snapshot or period in the spec makes a new run, and pays again"
        )


def _void(book: Book, entry: Entry) -> RunRecord:
    run = _own_run(book, entry)
    attempt = known_attempt(run, entry.attempt)
    if attempt.voided:
        raise LedgerConflictError(f"attempt {attempt.attempt} was given back before")
    for stage in attempt.stages.values():
        if stage.state is not StageState.RESERVED:
            raise GrantSpentError(
                f"attempt {attempt.attempt} cannot be voided, because its stage {stage.stage} is"
                f" {stage.state.value}. A charge is given back only while every stage is reserved",
                next=[_STATES],
            )
    _not_recovered(book, run)
    if attempt.charge.to_payload() != dict(entry.payload):
        raise LedgerConflictError(field="void", allowed="exactly the cost of the attempt")
    voided = {
        name: replace(stage, state=StageState.VOIDED) for name, stage in attempt.stages.items()
    }
    return _with_attempt(run, replace(attempt, voided=True, stages=voided))


def _read(book: Book, entry: Entry) -> RunRecord:
    run = _own_run(book, entry)
    attempt = known_attempt(run, entry.attempt)
    if not any(stage.state is StageState.RESERVED for stage in attempt.stages.values()):
        raise GrantSpentError(
            f"attempt {attempt.attempt} has no stage that waits for a draw: each was drawn, lost or"
            " given back. The table is not read. Wait until no other process works on this run,"
            " then start it again",
            next=[Next("the state of each stage", Command.SHOW)],
        )
    _not_recovered(book, run)
    book.account(run.population).check_readable()
    return _with_attempt(run, replace(attempt, reads=attempt.reads + 1))


def _arm(book: Book, entry: Entry) -> RunRecord:
    run, stage = _stage_in(book, entry, StageState.RESERVED)
    _not_recovered(book, run)
    _check_drawable(book, run, run.attempts[stage.attempt - 1])
    token = check_digest("token_digest", entry.payload["token_digest"])
    return _with_stage(run, replace(stage, state=StageState.ARMED, token_digest=token))


def _check_drawable(book: Book, run: RunRecord, attempt: AttemptRecord) -> None:
    account = book.account(run.population)
    account.check_drawable(attempt.charge)
    account.check_readable(pending=attempt.pending_read)


def _conflict_at(stage: StageRecord, found: str) -> LedgerConflictError:
    return LedgerConflictError(found, field=f"stage {stage.stage}")


def _checkpoint(book: Book, entry: Entry) -> RunRecord:
    run, stage = _stage_in(book, entry, StageState.ARMED)
    step, terms, last = entry.payload["step"], stage.resumption, stage.checkpoint
    if terms is None:
        raise _conflict_at(stage, "a checkpoint needs a reservation with `resumptions`")
    first, most = (0, 0) if last is None else (last.step + 1, last.step + terms.every)
    if type(step) is not int or not first <= step <= min(most, terms.steps):
        found = f"step {step!r:.20} is no place of its next checkpoint; expected a whole number"
        raise _conflict_at(stage, f"{found} from {first} to {min(most, terms.steps)}")
    digest = check_digest("digest", entry.payload["digest"])
    return _with_stage(run, replace(stage, checkpoint=Checkpoint(step=step, digest=digest)))


def _resume(book: Book, entry: Entry) -> RunRecord:
    run, stage = _stage_in(book, entry, StageState.ARMED)
    _not_recovered(book, run)
    _check_drawable(book, run, run.attempts[stage.attempt - 1])
    if stage.checkpoint is None or stage.resumes_left < 1:
        found = "it left no checkpoint, or was resumed as often as its reservation pays for"
        raise GrantSpentError(found, field=f"stage {stage.stage}", next=[_STATES])
    step = entry.payload["step"]
    if type(step) is not int or step != stage.checkpoint.step:
        raise _conflict_at(stage, f"it can be resumed from step {stage.checkpoint.step} only")
    token = check_digest("token_digest", entry.payload["token_digest"])
    if token in stage.tokens:
        raise _conflict_at(stage, "its token was used before; each resume needs a new one")
    return _with_stage(run, replace(stage, token_digest=token, earlier_tokens=stage.tokens))


def _commit(book: Book, entry: Entry) -> RunRecord:
    run, stage = _stage_in(book, entry, StageState.ARMED)
    digest = check_digest("output_digest", entry.payload["output_digest"])
    return _with_stage(run, replace(stage, state=StageState.COMMITTED, output_digest=digest))


def _lose(book: Book, entry: Entry) -> RunRecord:
    run, stage = _stage_in(book, entry, StageState.ARMED)
    return _with_stage(run, replace(stage, state=StageState.LOST))


def _conflict(book: Book, entry: Entry) -> RunRecord:
    run, stage = _stage_in(book, entry, StageState.COMMITTED)
    digest = check_digest("output_digest", entry.payload["output_digest"])
    if digest == stage.output_digest or digest in stage.conflicts:
        raise _conflict_at(stage, "the ledger has recorded this output before")
    charge = run.attempts[stage.attempt - 1].charge.to_payload()
    if charge != {name: entry.payload[name] for name in charge}:
        allowed = "the attempt's cost to be charged again"
        raise LedgerConflictError(field="conflict", allowed=allowed)
    return _with_stage(run, replace(stage, conflicts=(*stage.conflicts, digest)))


def _certify(book: Book, entry: Entry) -> RunRecord:
    run = _own_run(book, entry)
    if run.state is not RunState.COMMITTED:
        raise LedgerConflictError(
            f"this run is {run.state.value}. It can be certified only after every stage is"
            " committed, and before it is published",
            next=[_STATES],
        )
    check_digest("nonce", entry.payload["nonce"])
    return run


def _publish(book: Book, entry: Entry) -> RunRecord:
    run = _own_run(book, entry)
    if "rows_of" in entry.payload:
        return _publish_rows(book, run, entry)
    if run.state is not RunState.COMMITTED:
        raise LedgerConflictError(
            f"this run is {run.state.value}. It can be published only after every stage is"
            " committed, and once",
            next=[_STATES],
        )
    digest = check_digest("manifest_digest", entry.payload["manifest_digest"])
    book.check_not_withdrawn(digest)
    return replace(run, manifest_digest=digest, published=entry.head)


def _publish_rows(book: Book, run: RunRecord, entry: Entry) -> RunRecord:
    book.check_not_withdrawn(run.manifest_digest)
    digest = check_digest("manifest_digest", entry.payload["manifest_digest"])
    if run.manifest_digest is None or entry.payload["rows_of"] != run.manifest_digest:
        raise LedgerConflictError(
            field="rows_of", allowed="the SHA-256 of the manifest that this run published"
        )
    if digest in (run.manifest_digest, *run.further):
        raise LedgerConflictError("this run has published it before", field="manifest_digest")
    return replace(run, further=(*run.further, digest))


def _withdraw(book: Book, entry: Entry) -> Withdrawal:
    """The withdrawal of a manifest that its population published, or more rows of a recovered one.

    A withdrawal is of a manifest and of no run, because a recovery forgets runs.
    """
    stated = Withdrawal(**entry.payload)
    ours = (r for r in book.recoveries if r.population == entry.population)
    lost = {release.manifest_digest for release in recovered(ours)}
    published = {
        run.manifest_digest: run.further
        for run in book.runs_of(entry.population or "")
        if run.manifest_digest is not None
    }
    releases = lost | published.keys()
    first_of = {rows: first for first, further in published.items() for rows in further}
    known: dict[str, str | None] = dict.fromkeys(releases) | first_of
    if stated.manifest in known:
        is_ours = stated.rows_of == known[stated.manifest]
    else:  # a recovery lists no further rows
        is_ours = stated.rows_of in lost
    if entry.run_key is not None or not is_ours or stated.manifest in book.withdrawals:
        found = "this population has not published it, or it was withdrawn before"
        raise LedgerConflictError(found, field="manifest")
    other = stated.replaced_by
    if other is not None and other.manifest not in releases - {stated.manifest}:
        allowed = "another release that this ledger has published"
        raise LedgerConflictError(field="replaced_by", allowed=allowed)
    return stated


def known_run(book: Book, run_key: str | None) -> RunRecord:
    """Return the run, or raise LedgerConflictError."""
    run = book.runs.get(run_key or "")
    if run is None:
        raise LedgerConflictError("this ledger holds no run of this key", next=[_STATES])
    return run


def _own_run(book: Book, entry: Entry) -> RunRecord:
    run = known_run(book, entry.run_key)
    if entry.population != run.population:
        allowed = f"{run.population}, for which this run was reserved"
        raise LedgerConflictError(f"found {entry.population}", field="population", allowed=allowed)
    return run


def known_attempt(run: RunRecord, attempt: int | None) -> AttemptRecord:
    """Return the attempt, or raise LedgerConflictError."""
    if attempt is None or not 1 <= attempt <= len(run.attempts):
        allowed = f"one of this run's attempts, 1 to {len(run.attempts)}"
        raise LedgerConflictError(field=f"attempt {attempt}", allowed=allowed, next=[_STATES])
    return run.attempts[attempt - 1]


def known_stage(run: RunRecord, attempt: int | None, stage: str | None) -> StageRecord:
    """Return the stage, or raise LedgerConflictError."""
    record = known_attempt(run, attempt).stages.get(stage or "")
    if record is None:
        allowed = f"one of {', '.join(known_attempt(run, attempt).stages)}"
        raise LedgerConflictError(
            f"not a stage of attempt {attempt}", field=f"stage {stage}", allowed=allowed,
            next=[_STATES],
        )  # fmt: skip
    return record


def _stage_in(book: Book, entry: Entry, needed: StageState) -> tuple[RunRecord, StageRecord]:
    run = _own_run(book, entry)
    stage = known_stage(run, entry.attempt, entry.stage)
    if stage.state is not needed:
        raise GrantSpentError(
            f"stage {stage.stage} of attempt {stage.attempt} is {stage.state.value}; "
            f"the ledger records `{entry.kind.value}` only for a stage that is {needed.value}",
            next=[_STATES, Next("to continue the run", Command.RELEASE)],
        )
    return run, stage


def _with_stage(run: RunRecord, stage: StageRecord) -> RunRecord:
    attempt = run.attempts[stage.attempt - 1]
    return _with_attempt(run, replace(attempt, stages={**attempt.stages, stage.stage: stage}))


def _with_attempt(run: RunRecord, attempt: AttemptRecord) -> RunRecord:
    attempts = list(run.attempts)
    attempts[attempt.attempt - 1] = attempt
    return replace(run, attempts=tuple(attempts))


_RULES: dict[EntryKind, Callable[[Book, Entry], _Stated]] = {
    EntryKind.RESERVE: _reserve,
    EntryKind.READ: _read,
    EntryKind.VOID: _void,
    EntryKind.ARM: _arm,
    EntryKind.CHECKPOINT: _checkpoint,
    EntryKind.RESUME: _resume,
    EntryKind.COMMIT: _commit,
    EntryKind.CONFLICT: _conflict,
    EntryKind.LOSE: _lose,
    EntryKind.CERTIFY: _certify,
    EntryKind.PUBLISH: _publish,
    EntryKind.WITHDRAW: _withdraw,
    EntryKind.RECOVER: recovery_of,
}
"""For each kind of entry: raises unless it is legal now; returns what it states, or its run."""
