"""The tombstone: a signed statement, in a release's own folder, that the release was withdrawn.

The folder refuses every reader from the moment the statement is in it. Beside the statement it
keeps the release's signed manifest and its certificate, for `dpiw ledger recover`: a ledger that
lost entries charges the cost of a withdrawn release again, because withdrawn is not unspent.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpiw.data.documents import Label, Sha256, settle
from dpiw.errors import REASONS, ManifestError, WithdrawnError, one_of
from dpiw.release.manifest import (
    CERTIFICATE,
    MANIFEST,
    MANIFEST_LIMIT,
    MOMENT,
    SIGNATURE,
    read_limited,
)
from dpiw.release.signing import PublicKey
from dpiw.release.statements import Signed, Statement, read_signed_statement

WITHDRAWN = "withdrawn.json"

KEPT = frozenset({WITHDRAWN, MANIFEST, SIGNATURE, CERTIFICATE})
"""Files of a withdrawn release."""


@dataclass(frozen=True, kw_only=True)
class ReleaseName:
    """A published release: the name of its folder, and SHA-256 of its manifest."""

    release_id: Label
    manifest: Sha256


@dataclass(frozen=True, kw_only=True)
class Withdrawal(Statement):
    """What a tombstone states, and the ledger's entry of the withdrawal. All public.

    Attributes:
        release_id, manifest, rows_of: the withdrawn release, as its manifest states it.
        reason: a key of `dpiw.errors.REASONS`.
        replaced_by: the release to use instead, if there is one.
        withdrawn_at: UTC, whole seconds.
    """

    release_id: Label
    manifest: Sha256
    rows_of: Sha256 | None
    reason: str
    replaced_by: ReleaseName | None
    withdrawn_at: str

    name = WITHDRAWN
    states = (("format", "dpiw-withdrawal 1"),)

    def __post_init__(self) -> None:
        settle(self, what=WITHDRAWN)
        if self.reason not in REASONS:
            raise ManifestError(field=f"{WITHDRAWN} reason", allowed=one_of("", REASONS))
        if MOMENT.fullmatch(self.withdrawn_at) is None:
            allowed = "a UTC time such as 2027-01-31T06:00:00Z"
            raise ManifestError(field=f"{WITHDRAWN} withdrawn_at", allowed=allowed)

    @property
    def replacement(self) -> str | None:
        """The name of the release to use instead, if there is one."""
        return None if self.replaced_by is None else self.replaced_by.release_id

    def refusal(self, remark: str = "") -> WithdrawnError:
        """Return the error for a reader of the release, or a run that would publish it again."""
        return WithdrawnError(
            f"withdrawn on {self.withdrawn_at}, reason {self.reason}: {REASONS[self.reason]}. Do"
            f" not use it; its cost stays charged{remark}",
            field=f"release {self.release_id}",
            allowed=f"{self.replacement}, which replaces it" if self.replacement else "",
            reason=self.reason,
            replaced_by=self.replacement,
        )


def read_tombstone(folder: Path, expected: Sequence[PublicKey] | None) -> Signed[Withdrawal] | None:
    """Return a folder's tombstone, signed by one of the expected keys; None: there is none.

    Raises ManifestError for a file that is no tombstone of this folder's release, SignatureError
    for one that no expected key signed (None: that its embedded key did not sign).
    """
    try:
        (folder / WITHDRAWN).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as reason:
        raise ManifestError(f"{reason.strerror}", field=WITHDRAWN) from reason
    data = read_limited(folder / WITHDRAWN, limit=MANIFEST_LIMIT, error=ManifestError)
    tombstone = read_signed_statement(data, Withdrawal, what=WITHDRAWN, expected=expected)
    manifest = read_limited(folder / MANIFEST, limit=MANIFEST_LIMIT, error=ManifestError)
    if hashlib.sha256(manifest).hexdigest() != tombstone.statement.manifest:
        raise ManifestError(
            "withdraws another release than the one of this folder; do not use the folder, and ask"
            " its curator",
            field=WITHDRAWN,
        )
    return tombstone


def refuse_withdrawn(folder: Path, expected: Sequence[PublicKey] | None) -> None:
    """Raise WithdrawnError for a folder with a tombstone; else as `read_tombstone`."""
    tombstone = read_tombstone(folder, expected)
    if tombstone is not None:
        unpinned = "; signature not checked against a key: name the key with --key"
        raise tombstone.statement.refusal(unpinned * (expected is None))
