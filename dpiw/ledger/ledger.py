"""The ledger's operations. Each is one transaction, checked first and then written."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from dpiw.data.documents import plain
from dpiw.errors import AlreadyPaidError, Command, LedgerConflictError, Next
from dpiw.ledger.accounts import Population, check_kind
from dpiw.ledger.book import Book, known_attempt, known_run, known_stage
from dpiw.ledger.entries import (
    FORMAT,
    Actor,
    Entry,
    EntryKind,
    LedgerHead,
    authored,
    check_count,
    check_digest,
    check_name,
    operator,
)
from dpiw.ledger.keyring import RingKey, Role
from dpiw.ledger.reading import Clock, LedgerReader, granted, label, utc_now
from dpiw.ledger.recovery import (
    RecoveredRelease,
    Recovery,
    asked_for,
    check_charges,
    check_releases,
    payload_of,
    stated_loss,
)
from dpiw.ledger.reservations import check_same_reservation, reservation_payload
from dpiw.ledger.stores import open_store
from dpiw.ledger.values import Charge, Grant, RunRecord, StageState
from dpiw.privacy.renyi import RenyiVector
from dpiw.privacy.resumption import Resumption
from dpiw.privacy.units import PrivacyCost
from dpiw.release.signing import PrivateKey, PublicKey
from dpiw.release.withdrawal import Withdrawal


class Ledger(LedgerReader):
    """What every population has spent, for ever; refuses to overspend.

    Safe for many processes and threads. Every method raises `LedgerError` if the ledger is missing,
    locked too long or unusable, `LedgerTamperedError` if its chain or guards do not hold, and
    `LedgerConflictError` for an unknown run, attempt or stage. A ledger object replays the chain
    once, then only new entries; `verify` always replays all.
    """

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        clock: Clock = utc_now,
        actor: Actor = operator,
        key: PrivateKey | None = None,
    ) -> Ledger:
        """Open an existing ledger; never makes one.

        `url`: a path, `sqlite:///PATH`, or `postgresql+psycopg://USER@HOST/DATABASE`; libpq reads
        the password from the file that PGPASSFILE names. `clock` and `actor` give labels that no
        rule reads. Entries are unsigned without a `key`.
        """
        store = open_store(url)
        store.check_structure()
        return cls(store, clock=clock, actor=actor, key=key)

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        *,
        clock: Clock = utc_now,
        actor: Actor = operator,
        key: PrivateKey | None = None,
    ) -> Ledger:
        """Make a ledger and its missing folder (mode 0700), or open the valid one that is there."""
        # The random nonce makes every ledger's chain its own, so heads tell ledgers apart.
        first = authored(
            None,
            actor=actor,
            key=key,
            kind=EntryKind.GENESIS,
            payload={"format": FORMAT, "nonce": secrets.token_hex(32)},
            at=label(clock),
        )
        is_new = open_store(url).create(first)
        ledger = cls.open(url, clock=clock, actor=actor, key=key)
        if not is_new:
            ledger.check()
        return ledger

    def register(self, population: Population) -> Population:
        """Register terms for ever; no change for the same, LedgerConflictError for other terms."""
        with self._page(write=True) as page:
            registered = page.book.populations.get(population.name)
            if registered is None:
                name, payload = population.name, population.to_payload()
                self._append(page, kind=EntryKind.REGISTER, population=name, payload=payload)
                return population
            if registered.to_payload() != population.to_payload():
                raise LedgerConflictError(
                    f"registered with other terms ({registered.differing(population)}); terms are"
                    " set once, for life, and a budget does not grow. Only if nothing was ever"
                    " reserved from it, register these people under another name, and never use"
                    " this one (docs/sharp-edges.md: a wrong registration)",
                    field=f"population {population.name}",
                    next=[Next("what is left of it", Command.SHOW)],
                )
            return registered

    def add_key(self, population: str, key: PublicKey, role: Role) -> RingKey:
        """Add a key to a population, valid from now on; `dpiw.ledger.keyring` says who must sign.

        Raises NotApprovedError if nobody did, LedgerConflictError for a key that was added before.
        """
        payload = {"public_key": key.raw.hex(), "role": role.value}
        with self._page(write=True) as page:
            self._append(page, kind=EntryKind.KEY, population=population, payload=payload)
        return self.keyring(population).keys[key.raw.hex()]

    def revoke_key(self, population: str, key: PublicKey, *, ends: str | None = None) -> RingKey:
        """Revoke a key from a moment on (such as `2027-01-31T06:00:00Z`; None: now).

        What it signed since a moment in the past is suspect, and its approvals are void. Raises
        NotApprovedError unless a valid key of the population signs, LedgerConflictError for the
        last key of a role, or one that was revoked from this moment or an earlier one.
        """
        with self._page(write=True) as page:
            ends = ends or page.book.keyring(population).at(label(self._clock)).moment
            payload = {"public_key": key.raw.hex(), "ends": ends}
            self._append(page, kind=EntryKind.REVOKE, population=population, payload=payload)
        return self.keyring(population).keys[key.raw.hex()]

    def approve(self, population: str, run_key: str, terms: Mapping[str, Any]) -> Entry:
        """Approve a run on these terms, whose costs are limits; return the approval's entry.

        `terms`: as its reservation will state them. Again: no change. Raises NotApprovedError
        unless this ledger's `key` is a valid approver's of the population.
        """
        with self._page(write=True) as page:
            return page.book.keyring(population).approval(run_key, terms) or self._append(
                page, kind=EntryKind.APPROVE, population=population, run_key=run_key, payload=terms
            )

    def reserve(
        self,
        *,
        population: str,
        run_key: str,
        attempt: int,
        cost: PrivacyCost,
        stages: Mapping[str, Sequence[Mapping[str, Any]]],
        plan_digest: str,
        period: str,
        max_attempts: int,
        renyi: RenyiVector | None = None,
        resumptions: Mapping[str, Resumption] | None = None,
        release: str | None = None,
    ) -> LedgerHead:
        """Hold `cost` for one attempt of a run, durably, before any private byte is read.

        The same (run_key, attempt) with the same content charges nothing again and returns the same
        place in the chain. `dpiw.ledger.book` has the rules for further attempts.

        Args:
            population: a registered name.
            run_key: the caller's idempotency key, 64 hexadecimal digits.
            attempt: 1, 2, ... without gaps.
            cost: of all `stages` together, under the population's relation.
            stages: stage name -> its privacy events as JSON objects.
            plan_digest: SHA-256 of the plan.
            period: a label such as `2027-q1`.
            max_attempts: attempts this run may hold, voided ones not counted.
            renyi: the attempt's Renyi vector, exactly if the population has composition `renyi`.
            resumptions: stage name -> terms; the stage's events count what a resume may repeat.
            release: the release's name, by which `arm` finds runs of the same; None: of any.

        Raises:
            BudgetExceededError: it does not fit; nothing was written.
            GrantSpentError: `max_attempts` is used up, or a stage is not lost or voided.
            NotApprovedError: the population has keys, and they do not allow it.
            LedgerConflictError: the key was used with other content, or voided.
            UnsupportedRelationError: `cost` is under another relation than the population.
            SpecError: an argument is malformed.
        """
        charge = Charge(cost=cost, renyi=renyi)
        payload = reservation_payload(
            charge, stages, plan_digest, period, max_attempts, resumptions or {}, release
        )
        check_name("population", population)
        check_digest("run_key", run_key)
        check_count("attempt", attempt)
        with self._page(write=True) as page:
            run = page.book.runs.get(run_key)
            if run is not None and attempt <= len(run.attempts):
                check_same_reservation(run, population, attempt, payload)
                return run.attempts[attempt - 1].head
            return self._append(
                page,
                kind=EntryKind.RESERVE,
                population=population,
                run_key=run_key,
                attempt=attempt,
                payload=payload,
            ).head

    def void(self, run_key: str, attempt: int) -> None:
        """Give back an attempt; GrantSpentError if a stage was armed. Repeating it is no error."""
        with self._page(write=True) as page:
            record = known_attempt(known_run(page.book, run_key), attempt)
            if not record.voided:
                charge = record.charge.to_payload()
                self._append_for_run(page, EntryKind.VOID, run_key, attempt, **charge)

    def read(self, run_key: str, attempt: int) -> None:
        """Record one read of the confidential table, before its first byte is read.

        It stays unpaid until a draw of the attempt is committed. Raises BudgetExceededError if the
        unpaid reads are used up, GrantSpentError if no stage waits for a draw.
        """
        with self._page(write=True) as page:
            self._append_for_run(page, EntryKind.READ, run_key, attempt)

    def arm(
        self, run_key: str, attempt: int, stage: str, *, beside: frozenset[str] | None = None
    ) -> Grant:
        """Take the right to draw this stage's noise; exactly one caller ever gets it.

        `beside` has the keys of the other runs of its release and period that may have drawn, so
        that only one of two concurrent runs draws (else AlreadyPaidError); None: any may have.
        Raises BudgetExceededError if the account is overdrawn; GrantSpentError if it was taken
        before, the attempt was voided, or the run was recovered.
        """
        return self._take(EntryKind.ARM, run_key, attempt, stage, beside)

    def _take(
        self,
        kind: EntryKind,
        run_key: str,
        attempt: int,
        stage: str,
        beside: frozenset[str] | None = None,
        **facts: int,
    ) -> Grant:
        with self._page(write=True) as page:
            run = known_run(page.book, run_key)
            if beside is not None:
                _check_alone(page.book, run, beside)
            grant = Grant(
                population=run.population, run_key=run_key, attempt=attempt, stage=stage,
                token=secrets.token_hex(32),
            )  # fmt: skip
            digest = grant.digest
            self._append_for_run(page, kind, run_key, attempt, stage, token_digest=digest, **facts)
        return grant

    def checkpoint(self, grant: Grant, *, step: int, digest: str) -> None:
        """Record a durable checkpoint; only then may the step after it be drawn.

        `step` counts noised steps taken; `digest` is SHA-256 of its bytes. Raises GrantSpentError
        if the grant is not the armed stage's, LedgerConflictError if the terms allow no such step.
        """
        with self._page(write=True) as page:
            granted(page.book, grant)
            place = (EntryKind.CHECKPOINT, grant.run_key, grant.attempt, grant.stage)
            self._append_for_run(page, *place, step=step, digest=digest)

    def resume(self, run_key: str, attempt: int, stage: str, *, step: int) -> Grant:
        """Take the right to continue an armed stage from its last checkpoint, at `step`.

        Exactly one caller gets it; the earlier grant becomes void. The caller must make sure that
        the earlier holder is gone: two concurrent draws are not paid for. GrantSpentError if no
        resume is left, BudgetExceededError if the account is overdrawn.
        """
        return self._take(EntryKind.RESUME, run_key, attempt, stage, step=step)

    def commit(self, grant: Grant, output_digest: str) -> None:
        """Record the durable output of a grant; the same digest again changes nothing.

        Raises LedgerConflictError for another output than committed, and charges the attempt's cost
        again, because two outputs are two draws; GrantSpentError if the grant was declared lost.
        """
        self._commit(grant.run_key, grant.attempt, grant.stage, output_digest, grant)

    def commit_found(self, run_key: str, attempt: int, stage: str, output_digest: str) -> None:
        """After a restart, commit an armed stage's durable output (see `commit`); no redraw."""
        self._commit(run_key, attempt, stage, output_digest, None)

    def lose(self, run_key: str, attempt: int, stage: str) -> None:
        """Declare an armed stage without durable output lost; its charge stays for ever."""
        with self._page(write=True) as page:
            record = known_stage(known_run(page.book, run_key), attempt, stage)
            if record.state is not StageState.LOST:
                self._append_for_run(page, EntryKind.LOSE, run_key, attempt, stage)

    def _commit(
        self, run_key: str, attempt: int, stage: str, output_digest: str, grant: Grant | None
    ) -> None:
        check_digest("output_digest", output_digest)
        with self._page(write=True) as page:
            run = known_run(page.book, run_key)
            record = granted(page.book, grant) if grant else known_stage(run, attempt, stage)
            if record.output_digest == output_digest:
                return
            conflict = record.state is StageState.COMMITTED
            if output_digest not in record.conflicts:
                kind = EntryKind.CONFLICT if conflict else EntryKind.COMMIT
                again = run.attempts[attempt - 1].charge.to_payload() if conflict else {}
                self._append_for_run(
                    page, kind, run_key, attempt, stage, output_digest=output_digest, **again
                )
        if conflict:  # raised only once the entry is durable
            raise LedgerConflictError(
                "another output of this stage was committed before. The ledger recorded this output"
                " and charged its cost again; never release it",
                field=f"stage {stage}",
            )

    def recover(
        self,
        population: str,
        releases: Sequence[RecoveredRelease],
        *,
        loss: PrivacyCost,
        reads: int = 0,
    ) -> Recovery:
        """Record and charge published releases and losses that this ledger does not know.

        `releases` of this population are verified, each after its predecessor, if given; `loss` is
        what the custodian states was drawn beyond them, and `reads` were without a draw: each may
        stand alone. Raises LedgerConflictError if all are missing, or a release is not; else as
        `reserve`.
        """
        with self._page(write=True) as page:
            account = page.book.account(population)
            alone = stated_loss(account, loss)
            check_charges(account.population, releases)
            check_kind(account.population, alone)
            check_releases(page.book, releases, alone, reads=reads)
            charge = asked_for(page.book, account, releases)
            stated = stated_loss(account.plus(charge), loss)
            payload = payload_of(releases, loss=stated, reads=reads, charged=charge.plus(stated))
            self._append(page, kind=EntryKind.RECOVER, population=population, payload=payload)
        return self.recoveries(population)[-1]

    def certify(self, run_key: str) -> str:
        """Record that a certificate of this run is written now; returns the hash it carries.

        Each entry holds an unpublished random number: hashes of certificates differ, and nobody can
        guess the ledger's content from one. LedgerConflictError if a stage is not committed.
        """
        with self._page(write=True) as page:
            nonce = secrets.token_hex(32)
            return self._append_for_run(page, EntryKind.CERTIFY, run_key, nonce=nonce).hash

    def publish(self, run_key: str, manifest_digest: str) -> LedgerHead:
        """Record the one release of a run; return the entry's place, the same for the same digest.

        Raises LedgerConflictError if a stage is not committed, or another manifest was published;
        WithdrawnError if it was withdrawn.
        """
        check_digest("manifest_digest", manifest_digest)
        with self._page(write=True) as page:
            run = known_run(page.book, run_key)
            page.book.check_not_withdrawn(manifest_digest)
            if run.published is None:
                return self._append_for_run(
                    page, EntryKind.PUBLISH, run_key, manifest_digest=manifest_digest
                ).head
            if run.manifest_digest != manifest_digest:
                raise LedgerConflictError(
                    f"published before as a folder whose manifest.json has the SHA-256"
                    f" {str(run.manifest_digest)[:12]}..., now as {manifest_digest[:12]}...;"
                    " nothing was recorded. The release is the first folder: put it back where it"
                    " was published, from a backup or from who received it, and check it with"
                    " `dpiw verify`",
                    field=f"run {run_key[:8]}",
                )
            return run.published

    def publish_rows(self, run_key: str, manifest_digest: str) -> None:
        """Record more rows of a published run's draws; the same digest again changes nothing.

        Raises WithdrawnError if these rows, or the release, were withdrawn.

        Privacy: costs nothing; the rows are computed from draws that the run has paid for.
        """
        with self._page(write=True) as page:
            run = known_run(page.book, run_key)
            page.book.check_not_withdrawn(manifest_digest)
            page.book.check_not_withdrawn(run.manifest_digest)
            if manifest_digest not in run.further:
                paid = run.manifest_digest
                self._append_for_run(
                    page, EntryKind.PUBLISH, run_key, manifest_digest=manifest_digest, rows_of=paid
                )

    def withdraw(self, population: str, stated: Withdrawal) -> Withdrawal:
        """Record that a release was withdrawn; return what is on record, now or from before.

        Charges and gives back nothing. Raises LedgerConflictError if this population has not
        published the release, or its replacement.
        """
        with self._page(write=True) as page:
            if stated.manifest not in page.book.withdrawals:
                fields = {"population": population, "payload": plain(stated)}
                self._append(page, kind=EntryKind.WITHDRAW, **fields)
        return self.withdrawals()[stated.manifest]


def _check_alone(book: Book, own: RunRecord, beside: frozenset[str]) -> None:
    for run in book.runs.values():
        if run.drawn and run.is_rival_of(own) and run.run_key not in beside:
            raise AlreadyPaidError(
                f"run {run.run_key[:8]} draws it, or has drawn it. This run would pay a second"
                " time, so it draws nothing; give its reservation back with `dpiw ledger void`",
                field=f"release {own.release}, period {own.period}",
                run=run.run_key,
                period=own.period,
            )
