"""The operations on an attempt: read, take the right to draw, keep checkpoints, commit, lose."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from dpiw.errors import AlreadyPaidError, LedgerConflictError
from dpiw.ledger.book import Book
from dpiw.ledger.entries import EntryKind, check_digest
from dpiw.ledger.reading import LedgerReader, granted
from dpiw.ledger.transitions import known_attempt, known_run, known_stage
from dpiw.ledger.values import Grant, RunRecord, StageState, token_digest


class AttemptLedger(LedgerReader):
    """What becomes of a reservation; one transaction each."""

    def void(self, run_key: str, attempt: int) -> None:
        """Give back an attempt of which nothing was ever armed; again is no error.

        Raises:
            GrantSpentError: a stage was armed.
            LedgerConflictError: no such reservation.
        """
        with self._page(write=True) as page:
            record = known_attempt(known_run(page.book, run_key), attempt)
            if not record.voided:
                self._append_for_run(
                    page,
                    run_key,
                    kind=EntryKind.VOID,
                    attempt=attempt,
                    payload=record.charge.to_payload(),
                )

    def read(self, run_key: str, attempt: int) -> None:
        """Put a read of the confidential table on record, before its first byte is read.

        Each call is one read. It stays unpaid until a draw of the attempt is committed.

        Raises:
            BudgetExceededError: the population's unpaid reads are used up.
            GrantSpentError: no stage of the attempt waits for a draw, or the run was recovered.
            LedgerConflictError: no such reservation.
        """
        with self._page(write=True) as page:
            self._append_for_run(page, run_key, kind=EntryKind.READ, attempt=attempt, payload={})

    def arm(
        self, run_key: str, attempt: int, stage: str, *, beside: frozenset[str] | None = None
    ) -> Grant:
        """Take the right to draw this stage's noise; exactly one caller ever gets it.

        Args:
            run_key: of the run.
            attempt: of the run.
            stage: that is drawn.
            beside: keys of the other runs of its release and period that may have drawn, so that
                of two runs at once only one draws; None: any may have.

        Raises:
            AlreadyPaidError: a run of its release and period has drawn that is not in `beside`.
            BudgetExceededError: the account is overdrawn.
            GrantSpentError: it was taken before, the attempt was voided, or the run was recovered.
            LedgerConflictError: no such reservation.
        """
        return self._take(EntryKind.ARM, run_key, attempt, stage, {}, beside)

    def _take(
        self,
        kind: EntryKind,
        run_key: str,
        attempt: int,
        stage: str,
        facts: Mapping[str, Any],
        beside: frozenset[str] | None = None,
    ) -> Grant:
        token = secrets.token_hex(32)
        with self._page(write=True) as page:
            if beside is not None:
                _check_alone(page.book, known_run(page.book, run_key), beside)
            entry = self._append_for_run(
                page,
                run_key,
                kind=kind,
                attempt=attempt,
                stage=stage,
                payload={"token_digest": token_digest(token), **facts},
            )
            population = page.book.runs[run_key].population
        return Grant(
            population=population,
            run_key=run_key,
            attempt=attempt,
            stage=stage,
            token=token,
            seq=entry.seq,
        )

    def checkpoint(self, grant: Grant, *, step: int, digest: str) -> None:
        """Put a durable checkpoint on record; the step after it may be drawn only then.

        Args:
            grant: the stage's, as armed or resumed.
            step: noised steps taken.
            digest: SHA-256 of the checkpoint's bytes.

        Raises:
            GrantSpentError: the grant is not the stage's, or it is not armed any more.
            LedgerConflictError: it was reserved without terms of resumption, or not at such a step.
        """
        check_digest("digest", digest)
        with self._page(write=True) as page:
            granted(page.book, grant)
            self._append_for_run(
                page,
                grant.run_key,
                kind=EntryKind.CHECKPOINT,
                attempt=grant.attempt,
                stage=grant.stage,
                payload={"step": step, "digest": digest},
            )

    def resume(self, run_key: str, attempt: int, stage: str, *, step: int) -> Grant:
        """Take the right to go on with an armed stage from its last checkpoint, at `step`.

        Exactly one caller gets it, and who had it before has it no more. The caller has made sure
        that whoever had it is gone: what two draw at once is not paid for.

        Raises:
            BudgetExceededError: the account is overdrawn.
            GrantSpentError: it is not armed, has no checkpoint or no resume left.
            LedgerConflictError: no such reservation, or its last checkpoint is at another step.
        """
        return self._take(EntryKind.RESUME, run_key, attempt, stage, {"step": step})

    def commit(self, grant: Grant, output_digest: str) -> None:
        """Record the durable output of a grant; the same digest again changes nothing.

        Raises:
            LedgerConflictError: another output was committed; this one is put on record and the
                attempt's cost charged again, because two outputs are two draws.
            GrantSpentError: the grant was declared lost, or is not this stage's.
        """
        self._commit(grant.run_key, grant.attempt, grant.stage, output_digest, grant)

    def commit_found(self, run_key: str, attempt: int, stage: str, output_digest: str) -> None:
        """After a restart: commit the durable output found of an armed stage. Nothing is redrawn.

        Raises:
            LedgerConflictError: as `commit`; also when there is no such reservation.
            GrantSpentError: the stage was never armed, or was lost or voided.
        """
        self._commit(run_key, attempt, stage, output_digest, None)

    def lose(self, run_key: str, attempt: int, stage: str) -> None:
        """Declare an armed stage without durable output lost; its charge stands for ever.

        Raises:
            GrantSpentError: it is not armed (again LOST is no error).
            LedgerConflictError: no such reservation.
        """
        with self._page(write=True) as page:
            record = known_stage(known_run(page.book, run_key), attempt, stage)
            if record.state is not StageState.LOST:
                self._append_for_run(
                    page, run_key, kind=EntryKind.LOSE, attempt=attempt, stage=stage, payload={}
                )

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
                again = run.attempts[attempt - 1].charge.to_payload() if conflict else {}
                self._append_for_run(
                    page,
                    run_key,
                    kind=EntryKind.CONFLICT if conflict else EntryKind.COMMIT,
                    attempt=attempt,
                    stage=stage,
                    payload={"output_digest": output_digest, **again},
                )
        if conflict:  # raised only once the entry is durable
            raise LedgerConflictError(
                f"stage {stage}: another output was committed; this one is on record, its cost "
                "is charged again, and it must never be released"
            )


def _check_alone(book: Book, own: RunRecord, beside: frozenset[str]) -> None:
    for run in book.runs.values():
        if run.drawn and run.is_rival_of(own) and run.run_key not in beside:
            raise AlreadyPaidError(
                f"release {own.release}, period {own.period}: run {run.run_key[:8]} draws it, or"
                " has drawn it; this run would pay a second time, and draws nothing. Its"
                " reservation may be given back (`dpiw ledger void`)",
                run=run.run_key,
                period=own.period,
            )
