"""The tombstone: a signed statement, in a release's own folder, that the release was withdrawn.

The folder refuses every reader from the moment the statement is in it. Beside the statement it
keeps the release's signed manifest and its certificate, for `dpiw ledger recover`: a ledger that
lost entries charges the cost of a withdrawn release again, because withdrawn is not unspent.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dpiw.data.documents import DecimalText, Document, Label, Sha256, settle
from dpiw.errors import REASONS, ManifestError, SignatureError, WithdrawnError, one_of
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import (
    CERTIFICATE,
    MANIFEST,
    MANIFEST_LIMIT,
    MOMENT,
    SIGNATURE,
    Manifest,
    read_limited,
)
from dpiw.release.signing import PrivateKey, PublicKey, not_by

WITHDRAWN = "withdrawn.json"

KEPT = frozenset({WITHDRAWN, MANIFEST, SIGNATURE, CERTIFICATE})
"""Files of a withdrawn release."""

CONTEXT = b"dpiw-withdrawal-v1\n"
"""Prefix of the signed message: no signature of a manifest or a ledger entry passes for one."""

FORMAT = "dpiw-withdrawal"
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ReleaseName:
    """A published release: the name of its folder, and SHA-256 of its manifest."""

    release_id: Label
    manifest: Sha256


@dataclass(frozen=True, kw_only=True)
class Withdrawal(Document):
    """What a tombstone states. All public.

    Attributes:
        release_id, population, period, manifest: the withdrawn release.
        epsilon, delta: its cost, which stays charged.
        plan_digest, ledger_head: as its certificate states them.
        reason: a key of `dpiw.errors.REASONS`.
        replaced_by: the release to use instead, if there is one.
        withdrawn_at: UTC, whole seconds.
    """

    release_id: Label
    population: Label
    period: Label
    manifest: Sha256
    epsilon: DecimalText
    delta: DecimalText
    plan_digest: Sha256
    ledger_head: Sha256
    reason: str
    replaced_by: ReleaseName | None
    withdrawn_at: str

    name = WITHDRAWN

    def __post_init__(self) -> None:
        settle(self, what=WITHDRAWN)
        if self.reason not in REASONS:
            raise ManifestError(field=f"{WITHDRAWN} reason", allowed=one_of("", REASONS))
        if MOMENT.fullmatch(self.withdrawn_at) is None:
            allowed = "a UTC time such as 2027-01-31T06:00:00Z"
            raise ManifestError(field=f"{WITHDRAWN} withdrawn_at", allowed=allowed)

    @classmethod
    def of(
        cls, manifest: Manifest, certificate: Certificate, *, reason: str,
        replaced_by: ReleaseName | None, withdrawn_at: str,
    ) -> Self:  # fmt: skip
        """Return the statement that withdraws the release of this manifest and certificate."""
        same = ("release_id", "population", "period", "epsilon", "delta", "plan_digest",
                "ledger_head")  # fmt: skip
        return cls(
            **{name: getattr(certificate, name) for name in same}, manifest=manifest.digest,
            reason=reason, replaced_by=replaced_by, withdrawn_at=withdrawn_at,
        )  # fmt: skip

    def refusal(self, remark: str = "") -> WithdrawnError:
        """Return the error for a reader of the release."""
        return withdrawn_error(
            f"release {self.release_id}", self.reason, at=self.withdrawn_at,
            replaced_by=self.replaced_by, remark=remark,
        )  # fmt: skip

    def described(self) -> list[str]:
        """Return lines for people."""
        return [
            f"release {self.release_id}: WITHDRAWN on {self.withdrawn_at}",
            f"reason {self.reason}: {REASONS[self.reason]}",
            "replaced by: "
            + ("nothing" if self.replaced_by is None else self.replaced_by.release_id),
            f"population {self.population}, period {self.period}",
            f"spent, and still charged: epsilon={self.epsilon}, delta={self.delta}",
            f"manifest {self.manifest}, ledger head {self.ledger_head}",
        ]


def withdrawn_error(
    release: str, reason: str, *, at: str, replaced_by: ReleaseName | None, remark: str = ""
) -> WithdrawnError:
    """Return the error that refuses a withdrawn release, however its withdrawal is known."""
    name = None if replaced_by is None else replaced_by.release_id
    return WithdrawnError(
        f"withdrawn on {at}, reason {reason}: {REASONS[reason]}. Do not use it; its cost stays"
        f" charged{remark}",
        field=release,
        allowed=f"{name}, which replaces it" if name else "",
        reason=reason,
        replaced_by=name,
    )


@dataclass(frozen=True, kw_only=True)
class Tombstone(Document):
    """The file `withdrawn.json`: a statement, its signature, and the key inside it."""

    statement: Withdrawal
    public_key: str
    signature: str

    name = WITHDRAWN
    states = (("format", FORMAT), ("format_version", FORMAT_VERSION))

    def __post_init__(self) -> None:
        settle(self, what=WITHDRAWN)

    @classmethod
    def signed(cls, statement: Withdrawal, key: PrivateKey) -> Self:
        """Sign a statement."""
        signature = key.sign(statement.to_json(), context=CONTEXT).hex()
        return cls(statement=statement, public_key=key.public.raw.hex(), signature=signature)

    @property
    def signer(self) -> PublicKey:
        """The embedded public key."""
        return PublicKey.from_hex(self.public_key)

    def check(self, expected: Sequence[PublicKey] | None) -> None:
        """Raise SignatureError unless an expected key signed; None: the embedded key."""
        if expected is not None and self.signer not in expected:
            ids = list(dict.fromkeys(key.key_id for key in expected))
            raise SignatureError(
                f"says that the release was withdrawn, signed by key id {self.signer.key_id},"
                f" {not_by(ids)}, id {', '.join(ids)}: do not use the folder, and ask the curator",
                field=WITHDRAWN,
            )
        try:
            signature = bytes.fromhex(self.signature)
        except ValueError:
            signature = b""
        self.signer.check(self.statement.to_json(), signature, context=CONTEXT)


def read_tombstone(folder: Path, expected: Sequence[PublicKey] | None) -> Tombstone | None:
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
    tombstone = Tombstone.from_json(data)
    tombstone.check(expected)
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
