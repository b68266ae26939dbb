"""Withdrawals on record: which published manifests nobody may use or publish any more.

A withdrawal changes no charge: withdrawn is not unspent. Its entry names what its run published
(the release or more rows of its draws), or, without a run, what a recovery listed, or more rows of
that (`rows_of`). Each manifest is withdrawn once, and is never published after that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dpiw.errors import REASONS, LedgerConflictError, SpecError, WithdrawnError, one_of
from dpiw.ledger.entries import Entry, LedgerHead, check_digest, check_label
from dpiw.ledger.recovery import Recovery, recovered
from dpiw.ledger.values import RunRecord
from dpiw.release.manifest import MOMENT
from dpiw.release.withdrawal import ReleaseName, Withdrawal, withdrawn_error


@dataclass(frozen=True, kw_only=True)
class RecordedWithdrawal:
    """One withdrawal; `head` is its entry.

    Attributes:
        manifest_digest: SHA-256 of the withdrawn manifest.
        statement: SHA-256 of what the tombstone states (`Withdrawal.digest`), without signer.
        reason, replaced_by, withdrawn_at: as stated.
    """

    population: str
    manifest_digest: str
    statement: str
    reason: str
    replaced_by: ReleaseName | None
    withdrawn_at: str
    head: LedgerHead

    def refusal(self, release: str) -> WithdrawnError:
        """Return the error for a run that would publish the release or add rows to it."""
        return withdrawn_error(
            release, self.reason, at=self.withdrawn_at, replaced_by=self.replaced_by
        )


class _Book(Protocol):
    runs: dict[str, RunRecord]
    recoveries: list[Recovery]
    withdrawals: dict[str, RecordedWithdrawal]


def payload_of(stated: Withdrawal, *, rows_of: str | None) -> dict[str, Any]:
    """What a `withdraw` entry states."""
    return {
        "manifest_digest": stated.manifest,
        "statement": stated.digest,
        "reason": stated.reason,
        "replaced_by": None if stated.replaced_by is None else dict(vars(stated.replaced_by)),
        "withdrawn_at": stated.withdrawn_at,
    } | ({} if rows_of is None else {"rows_of": rows_of})


def withdrawal_of(book: _Book, entry: Entry) -> RecordedWithdrawal:
    """The withdrawal that an entry states; LedgerConflictError unless it is of a publication."""
    payload = entry.payload
    digest = check_digest("manifest_digest", payload["manifest_digest"])
    if digest in book.withdrawals:
        raise _conflict("withdrawn before")
    if digest not in _withdrawable(book, entry):
        raise _conflict("this ledger has not published it under this run and population")
    if payload["reason"] not in REASONS:
        raise SpecError(field="withdraw.reason", allowed=one_of("", REASONS))
    if not MOMENT.fullmatch(payload["withdrawn_at"]):
        raise SpecError(field="withdraw.withdrawn_at", allowed="a moment in UTC")
    return RecordedWithdrawal(
        population=entry.population or "",
        manifest_digest=digest,
        statement=check_digest("withdraw.statement", payload["statement"]),
        reason=payload["reason"],
        replaced_by=_replacement(book, digest, payload["replaced_by"]),
        withdrawn_at=payload["withdrawn_at"],
        head=entry.head,
    )


def _conflict(found: str) -> LedgerConflictError:
    return LedgerConflictError(found, field="manifest_digest")


def _withdrawable(book: _Book, entry: Entry) -> set[str]:
    run = book.runs.get(entry.run_key or "")
    if run is not None:
        own = {run.manifest_digest or "", *run.further}
        return own if entry.population == run.population else set()
    lost = _recovered(r for r in book.recoveries if r.population == entry.population)
    if entry.payload.get("rows_of") in lost:
        lost.add(entry.payload["manifest_digest"])
    published = {d for other in book.runs.values() for d in (other.manifest_digest, *other.further)}
    return set() if entry.run_key else lost - published


def _recovered(recoveries: Iterable[Recovery]) -> set[str]:
    return {release.manifest_digest for release in recovered(recoveries)}


def _replacement(
    book: _Book, withdrawn: str, stated: Mapping[str, str] | None
) -> ReleaseName | None:
    if stated is None:
        return None
    name = ReleaseName(release_id=stated["release_id"], manifest=stated["manifest"])
    check_label("withdraw.replaced_by", name.release_id)
    check_digest("withdraw.replaced_by", name.manifest)
    known = _recovered(book.recoveries) | {run.manifest_digest for run in book.runs.values()}
    if name.manifest == withdrawn or name.manifest not in known:
        raise LedgerConflictError(
            field="replaced_by", allowed="another release that this ledger has published"
        )
    return name
