"""A signed statement of a curator's keys: since when, until when, and what they signed.

Nothing in a release proves when it was signed, so a key that has ended vouches for the releases
alone that the ledger records as published with it before.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.data.documents import document_json, hexadecimal, parse_canonical, record, typed
from dpiw.errors import ReleaseError, SignatureError
from dpiw.release.signing import PrivateKey, PublicKey, not_by

_CONTEXT = b"dpiw-keys-v1\n"
_FORMAT = "dpiw-keys 1"
_FIELDS = ("format", "population", "at", "ledger_head", "keys")
_KEY_FIELDS = ("public_key", "since", "ends", "signed")
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class StatedKey:
    """A key, its validity (`ends` None: no end), and the manifests published with it by then."""

    public_key: str
    since: str
    ends: str | None
    signed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class KeyStatement:
    """What a population's ledger states at a moment (UTC) of the keys that sign its releases."""

    population: str
    at: str
    ledger_head: str
    keys: tuple[StatedKey, ...]

    def signed(self, key: PrivateKey) -> bytes:
        """Return the statement and its signature as a file's bytes."""
        stated = {"format": _FORMAT, **vars(self), "keys": [vars(one) for one in self.keys]}
        stated = json.loads(json.dumps(stated))
        signature = key.sign(document_json(stated), context=_CONTEXT).hex()
        return document_json(
            {"statement": stated, "public_key": key.public.raw.hex(), "signature": signature}
        )

    @property
    def public_keys(self) -> list[PublicKey]:
        """All keys, ended ones too."""
        return [PublicKey.from_hex(key.public_key) for key in self.keys]

    def check(self, signer: PublicKey, *, population: str, manifest: str) -> None:
        """Raise SignatureError unless this key vouches for the release of this manifest.

        `manifest`: SHA-256 of its manifest.
        """
        if population != self.population:
            raise SignatureError(
                f"of population {population}", field="--keys", allowed=f"one of {self.population}"
            )
        key = next(key for key in self.keys if key.public_key == signer.raw.hex())
        if key.ends is not None and key.ends <= self.at and manifest not in key.signed:
            raise SignatureError(
                f"signed by key id {signer.key_id}, which ended at {key.ends}; the curator's ledger"
                " does not record it among the releases before. Do not use this folder: ask the"
                " curator for it again"
            )

    @classmethod
    def read(cls, path: Path, *, expected: list[PublicKey] | None) -> "KeyStatement":
        """Read a statement, signed by one of the expected keys (None: by a key that it states).

        Raises ReleaseError if it cannot be read, SignatureError if no valid key of it signed it.
        """
        try:
            with path.open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
        except OSError as reason:
            raise ReleaseError(reason.strerror, field=f"file {path.name}") from reason
        what = path.name
        whole = record(
            parse_canonical(data[:_MOST_BYTES], what=what),
            ("statement", "public_key", "signature"),
            what=what,
        )
        signer = PublicKey.from_hex(whole["public_key"])
        signature = bytes.fromhex(hexadecimal(whole["signature"], digits=128, what=what))
        signer.check(document_json(whole["statement"]), signature, context=_CONTEXT)
        if expected is not None and signer not in expected:
            by = f"signed by key id {signer.key_id}, {not_by(expected)}"
            raise SignatureError(by, field=what)
        return cls._of(record(whole["statement"], _FIELDS, what=what), signer, what)

    @classmethod
    def _of(cls, stated: Mapping[str, Any], signer: PublicKey, what: str) -> "KeyStatement":
        keys = tuple(_key(one, what) for one in typed(stated["keys"], list, what=what))
        texts = {name: typed(stated[name], str, what=what) for name in _FIELDS[:-1]}
        if texts.pop("format") != _FORMAT:
            raise ReleaseError(field=what, allowed=f"format {_FORMAT}, of dpiw key list --json")
        statement = cls(keys=keys, **texts)
        own = [key for key in keys if key.public_key == signer.raw.hex()]
        if not own or not own[0].since <= statement.at or _ended(own[0], statement.at):
            raise SignatureError(
                f"signed by key id {signer.key_id}, which it states as no valid key", field=what
            )
        return statement


def _ended(key: StatedKey, moment: str) -> bool:
    return key.ends is not None and key.ends <= moment


def _key(stated: Any, what: str) -> StatedKey:
    fields = record(stated, _KEY_FIELDS, what=what)
    ends = fields["ends"]
    digests = typed(fields["signed"], list, what=what)
    return StatedKey(
        public_key=hexadecimal(fields["public_key"], digits=64, what=what),
        since=typed(fields["since"], str, what=what),
        ends=None if ends is None else typed(ends, str, what=what),
        signed=tuple(hexadecimal(digest, digits=64, what=what) for digest in digests),
    )
