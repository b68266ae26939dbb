"""Statements that a key signs, each a JSON file with the statement, the key and the signature.

A tombstone is one (`dpiw.release.withdrawal`), and the curators' statement of their keys another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from dpiw.data.documents import (
    Document,
    Sha256,
    document_json,
    hexadecimal,
    parse_canonical,
    plain,
    record,
    settle,
)
from dpiw.errors import ReleaseError, SignatureError
from dpiw.release.manifest import Manifest
from dpiw.release.signing import PrivateKey, PublicKey, not_by

_CONTEXT = b"dpiw-statement-v1\n"
"""Precedes the signed bytes. The statement's own format tells one kind from another."""


class Statement(Document):
    """What such a file states; `states` holds its format."""

    def signed(self, key: PrivateKey) -> "Signed[Self]":
        """Return the statement with this key's signature."""
        signature = key.sign(self.to_json(), context=_CONTEXT)
        return Signed(statement=self, signer=key.public, signature=signature)


_Stated = TypeVar("_Stated", bound=Statement)


@dataclass(frozen=True, kw_only=True)
class Signed(Generic[_Stated]):
    """A statement, and who signed it."""

    statement: _Stated
    signer: PublicKey
    signature: bytes

    def to_json(self) -> bytes:
        """Return the file's bytes, which `read_signed_statement` reads."""
        parts = {"public_key": self.signer.raw.hex(), "signature": self.signature.hex()}
        statement = plain(self.statement) | dict(self.statement.states)
        return document_json({"statement": statement, **parts})


def read_signed_statement(
    data: bytes, kind: type[_Stated], *, what: str, expected: Sequence[PublicKey] | None
) -> Signed[_Stated]:
    """Read a statement that one of the expected keys signed; None: the key in it.

    Raises SignatureError if none did, ManifestError for bytes that dpiw does not write.
    """
    names = ("statement", "public_key", "signature")
    whole = record(parse_canonical(data, what=what), names, what=what)
    signer = PublicKey.from_hex(whole["public_key"])
    if expected is not None and signer not in expected:
        raise SignatureError(
            f"signed by key id {signer.key_id}, {not_by(expected)}; use nothing of it, and ask the"
            " curator",
            field=what,
        )
    signature = bytes.fromhex(hexadecimal(whole["signature"], digits=128, what=what))
    stated = document_json(whole["statement"])
    signer.check(stated, signature, context=_CONTEXT)
    return Signed(statement=kind.from_json(stated), signer=signer, signature=signature)


@dataclass(frozen=True, kw_only=True)
class StatedKey:
    """A curator's key, when it ended (None: it has not), and the manifests signed before."""

    public_key: Sha256
    ended: str | None
    signed: tuple[Sha256, ...]


@dataclass(frozen=True, kw_only=True)
class KeyStatement(Statement):
    """What a population's ledger states at a moment (UTC) of the keys that sign its releases.

    Nothing in a release proves when it was signed, so a key that has ended vouches only for the
    releases that the ledger records as published with it before.
    """

    population: str
    at: str
    keys: tuple[StatedKey, ...]

    name = "statement of keys"
    states = (("format", "dpiw-keys 1"),)

    def __post_init__(self) -> None:
        settle(self, what=self.name)

    @property
    def public_keys(self) -> list[PublicKey]:
        """All keys, also those that ended."""
        return [PublicKey.from_hex(key.public_key) for key in self.keys]

    def key(self, signer: PublicKey) -> StatedKey | None:
        """What it states of a key, or None."""
        return next((key for key in self.keys if key.public_key == signer.raw.hex()), None)

    def check(self, manifest: Manifest) -> None:
        """Raise SignatureError unless the key that signed this manifest vouches for its release."""
        population, signer = manifest.facts.population, manifest.signer
        if population != self.population:
            raise SignatureError(
                f"of population {population}", field="--keys", allowed=f"one of {self.population}"
            )
        key = self.key(signer)
        if key is None or (key.ended is not None and manifest.digest not in key.signed):
            ended = "is not stated" if key is None else f"ended at {key.ended}"
            raise SignatureError(
                f"signed by key id {signer.key_id}, which {ended}; the curator's ledger does not"
                " record it among the releases before. Do not use this folder: ask the curator for"
                " it again"
            )


def read_keys(path: Path, *, expected: Sequence[PublicKey] | None) -> KeyStatement:
    """Read a statement of keys, signed by one of the expected keys that it states as valid.

    Raises ReleaseError if it cannot be read, SignatureError if no such key signed it.
    """
    try:
        data = path.read_bytes()
    except OSError as reason:
        raise ReleaseError(reason.strerror, field=f"file {path.name}") from reason
    read = read_signed_statement(data, KeyStatement, what=path.name, expected=expected)
    key = read.statement.key(read.signer)
    if key is None or key.ended is not None:
        raise SignatureError(
            f"signed by key id {read.signer.key_id}, which it states as no valid key",
            field=path.name,
        )
    return read.statement
