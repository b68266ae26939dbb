"""Withdraw a published release, and name the release that another one revises.

The order of a withdrawal: the ledger's entry, the tombstone, the removal of the other files. A
crash between two of them leaves a folder that the same command finishes.
"""

from dataclasses import dataclass
from pathlib import Path

from dpiw.errors import (
    Command,
    LedgerConflictError,
    Next,
    SignatureError,
    SpecError,
    one_of,
)
from dpiw.ledger import Ledger, RunRecord, RunState
from dpiw.ledger.reading import label, utc_now
from dpiw.ledger.recovery import recovered
from dpiw.ledger.withdrawals import RecordedWithdrawal
from dpiw.plan.spec import ReleaseSpec
from dpiw.release.manifest import Manifest, release_folders
from dpiw.release.publication import clean_staging
from dpiw.release.signing import PrivateKey
from dpiw.release.verification import manifest_digest
from dpiw.release.withdrawal import WITHDRAWN, ReleaseName, Tombstone, Withdrawal, read_tombstone
from dpiw.release.withdrawn import bury, kept, verify_withdrawn


@dataclass(frozen=True, kw_only=True)
class Withdrawn:
    """A finished withdrawal.

    Attributes:
        further: folders beside it with more rows of the same draws, not withdrawn yet.
    """

    tombstone: Tombstone
    record: RecordedWithdrawal
    further: tuple[Path, ...]


def withdraw(
    folder: Path, ledger: Ledger, key: PrivateKey, *, reason: str, replaced_by: str | None = None
) -> Withdrawn:
    """Withdraw a release, or more rows of one; again: finish what was begun.

    The release need not be whole: only its manifest, which this ledger has published, and its
    certificate are read.

    Args:
        folder: the release's folder.
        ledger: that paid for it; `key` signs its entry.
        key: signs the tombstone; need not be the key that signed the release.
        reason: of `dpiw.errors.REASONS`.
        replaced_by: the name of the release to use instead, of the same population.

    Raises:
        SpecError: `superseded` without a replacement, or an unknown one.
        LedgerConflictError: the ledger has not published it, or withdrew it for another reason.
        SignatureError: an unrecorded tombstone that another key signed.
        ReleaseError: the folder cannot be read or written.

    Privacy: reads and removes published files alone; its cost stays charged.
    """
    manifest, certificate = kept(folder, then="")
    replacement = None
    if replaced_by is not None:
        names = (ledger, replaced_by, certificate.population)
        replacement = named_release(*names, field="--replaced-by")
    elif reason == "superseded":
        allowed = "the name of the release that replaces it"
        raise SpecError("missing for this reason", field="--replaced-by", allowed=allowed)
    record, tombstone = ledger.withdrawals().get(manifest.digest), read_tombstone(folder, None)
    if record is None and tombstone is not None and tombstone.signer != key.public:
        raise SignatureError(
            f"the ledger has no entry of it, and key id {tombstone.signer.key_id} signed it",
            field=WITHDRAWN,
            allowed=f"that key to record it, or no such file; yours is {key.public.key_id}",
        )
    begun = record or (tombstone and tombstone.statement)
    stated = Withdrawal.of(
        manifest, certificate, reason=reason, replaced_by=replacement,
        withdrawn_at=begun.withdrawn_at if begun else label(utc_now),
    )  # fmt: skip
    if tombstone is not None and tombstone.statement != stated:
        raise _other_words(stated, tombstone.statement)
    publisher = _publisher(ledger, manifest)
    rows_of = manifest.facts.rows_of if publisher is None else None
    record = ledger.withdraw(
        stated, run_key=publisher.run_key if publisher else None, rows_of=rows_of
    )
    if record.statement != stated.digest:
        raise _other_words(stated, record)
    clean_staging(folder.parent)
    tombstone = tombstone or Tombstone.signed(stated, key)
    bury(folder, tombstone)
    verify_withdrawn(folder, then="")
    return Withdrawn(
        tombstone=tombstone, record=record, further=_further(folder, ledger, publisher, manifest)
    )


def _other_words(
    stated: Withdrawal, before: Withdrawal | RecordedWithdrawal
) -> LedgerConflictError:
    name = "nothing" if before.replaced_by is None else before.replaced_by.release_id
    return LedgerConflictError(
        f"withdrawn before with reason {before.reason}, replaced by {name}; nothing was changed",
        field=f"release {stated.release_id}",
        allowed="the same words, which finish what was begun",
    )


def _publisher(ledger: Ledger, manifest: Manifest) -> RunRecord | None:
    """The run that published a manifest; None: only a recovery can know it."""
    for run in ledger.runs(manifest.facts.population):
        if manifest.digest in (run.manifest_digest, *run.further):
            return run
    return None


def _further(
    folder: Path, ledger: Ledger, publisher: RunRecord | None, manifest: Manifest
) -> tuple[Path, ...]:
    of_same_draws = set() if publisher is None else {publisher.manifest_digest, *publisher.further}
    open_ones = of_same_draws - {manifest.digest, None} - ledger.withdrawals().keys()
    return tuple(
        path for path in release_folders(folder.parent) if manifest_digest(path) in open_ones
    )


def named_release(ledger: Ledger, name: str, population: str, *, field: str) -> ReleaseName:
    """Return a release that this population has published, by its name; SpecError if it has not.

    A recovery keeps the period and the run of a release, and not the rest of its name.
    """
    known = {
        run.release_id or "": run.manifest_digest
        for run in ledger.runs(population)
        if run.manifest_digest is not None
    }
    for release in recovered(ledger.recoveries(population)):
        if name.endswith(f"-{release.period}-{release.run}"):
            known.setdefault(name, release.manifest_digest)
    if name not in known:
        raise SpecError(
            f"population {population} has published no such release",
            field=f"{field} {name}",
            allowed=one_of(name, filter(None, known)) if any(known) else "a published release",
            next=[Next("the runs and their states", Command.SHOW)],
        )
    return ReleaseName(release_id=name, manifest=known[name])


def revised(spec: ReleaseSpec, ledger: Ledger, *, own: str) -> ReleaseName | None:
    """Return what a spec's release revises, or None; `own`: the release's own name.

    Raises SpecError if its population has published no release of that name, or it is its own.
    """
    if spec.revises is None:
        return None
    if spec.revises == own:
        raise SpecError(
            "is the release of this very spec: a revision has another source.snapshot or setting",
            field="revises",
        )
    return named_release(ledger, spec.revises, spec.population, field="revises")


def check_not_withdrawn(record: RunRecord | None, ledger: Ledger) -> None:
    """Raise WithdrawnError if the run's release was withdrawn: it is never published again."""
    if record is not None and record.state is RunState.WITHDRAWN:
        withdrawal = ledger.withdrawals()[record.manifest_digest or ""]
        raise withdrawal.refusal(f"release {record.release_id or record.run_key[:8]}")
