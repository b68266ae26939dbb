"""Entries of the ledger: plain values, canonical JSON, and the hash chain that binds them.

An entry never holds a float or free text, so no confidential value can enter by accident.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import numbers
import os
import pwd
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from dpiw.errors import LedgerConflictError, SignatureError, SpecError, setting_error
from dpiw.release.signing import PrivateKey, PublicKey

VARIABLE = "DPIW_ACTOR"
"""Environment variable that replaces the names of user and host."""

CONTEXT = b"dpiw-ledger-entry-v1\n"
"""Prefix of the message that an entry's author signs."""

_ACTOR = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+@-]{0,127}")
_STRANGE = re.compile(r"[^A-Za-z0-9_.+-]+")
_SIGNED = ("actor", "public_key", "signature")

Actor = Callable[[], str]
"""Returns who acts now."""


def operator() -> str:
    """Return `DPIW_ACTOR` (SpecError if it is no short name), or else the system's `USER@HOST`."""
    actor = os.environ.get(VARIABLE)
    if actor:
        if not _ACTOR.fullmatch(actor):
            allowed = "up to 128 letters, digits and `_.:+@-`, such as ci@host, or no such variable"
            raise SpecError(field=VARIABLE, allowed=allowed)
        return actor
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no name
        user = f"uid{os.getuid()}"
    return f"{_plain(user)}@{_plain(socket.gethostname())}"


def _plain(name: str) -> str:
    return _STRANGE.sub("_", name)[:60].strip(".+-") or "unnamed"


@dataclass(frozen=True, kw_only=True)
class Author:
    """Who wrote an entry; ValueError if the actor is no short name, and could not be read again.

    Attributes:
        public_key: 64 hexadecimal digits of the signer's Ed25519 key; None: unsigned.
        signature: 128 hexadecimal digits; None until it is signed.
    """

    actor: str
    public_key: str | None = None
    signature: str | None = None

    def __post_init__(self) -> None:
        if not _ACTOR.fullmatch(self.actor):
            raise ValueError("by: the actor is no short name")

    @property
    def key_id(self) -> str | None:
        """The id of the key that signed, as certificates state it."""
        return None if self.public_key is None else PublicKey.from_hex(self.public_key).key_id

    def __str__(self) -> str:
        return self.actor if self.public_key is None else f"{self.actor} (key {self.key_id})"

    def to_json(self) -> dict[str, str]:
        """Return the author as an entry states it."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, stated: Any) -> Author:
        """The inverse of `to_json`. Raises ValueError if malformed."""
        if not isinstance(stated, Mapping) or set(stated) not in ({"actor"}, {*_SIGNED}):
            raise ValueError("by: expected an actor, or an actor, a public_key and a signature")
        if not all(isinstance(value, str) for value in stated.values()):
            raise ValueError("by: expected texts")
        for name, digits in (("public_key", 64), ("signature", 128)):
            if not re.fullmatch(f"[0-9a-f]{{{digits}}}", stated.get(name, "0" * digits)):
                raise ValueError(f"by: {name}: expected {digits} hexadecimal digits")
        return cls(**stated)

    def holds_for(self, message: bytes) -> bool:
        """Whether it is unsigned, or its signature is valid for `message`."""
        if self.public_key is None or self.signature is None:
            return self.public_key == self.signature
        try:
            key = PublicKey.from_hex(self.public_key)
            key.check(message, bytes.fromhex(self.signature), context=CONTEXT)
        except SignatureError:
            return False
        return True


NO_ENTRY = "0" * 64
"""The `previous` of the first entry."""

FORMAT = 4
"""Version of the entries' payloads, stated by the first entry; the prefix of hashes stays."""

READABLE = (2, 3, FORMAT)
"""Formats that are read and continued. 2: entries without an author; 3: without keys."""

# A hash of an entry must never equal a hash of something else we sign or digest.
_DOMAIN = b"dpiw.ledger.entry.v1\x00"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,127}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9:]{4,8})"
)


class EntryKind(enum.Enum):
    """What an entry records."""

    GENESIS = "genesis"
    REGISTER = "register"
    RESERVE = "reserve"
    READ = "read"
    VOID = "void"
    ARM = "arm"
    CHECKPOINT = "checkpoint"
    RESUME = "resume"
    COMMIT = "commit"
    CONFLICT = "conflict"
    LOSE = "lose"
    CERTIFY = "certify"
    PUBLISH = "publish"
    WITHDRAW = "withdraw"
    RECOVER = "recover"
    KEY = "key"
    REVOKE = "revoke"
    APPROVE = "approve"


@dataclass(frozen=True, kw_only=True)
class LedgerHead:
    """One point of the chain: an entry's number and its hash (64 hexadecimal digits)."""

    seq: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class PublishedHead:
    """A head as a release states it: the hash behind which its certificate was written.

    A number would reveal how much else a ledger holds. The hash reveals nothing, because its entry
    holds a random number. `manifest_digest` None: unknown, so no recovery can name it.
    """

    hash: str
    manifest_digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger.

    Attributes:
        seq: 1, 2, 3, ... without gaps; it alone decides order.
        previous: hash of entry `seq - 1`; `NO_ENTRY` for the first.
        hash: SHA-256, hexadecimal, over every other field (see `entry_hash`).
        at: wall time, UTC, ISO 8601; a label that decides nothing.
        by: who wrote it, stored in the payload; None in entries of earlier versions.
    """

    seq: int
    previous: str
    hash: str
    kind: EntryKind
    population: str | None = None
    run_key: str | None = None
    attempt: int | None = None
    stage: str | None = None
    payload: Mapping[str, Any]
    at: str
    by: Author | None = None

    @property
    def head(self) -> LedgerHead:
        """This entry as a point of the chain."""
        return LedgerHead(seq=self.seq, hash=self.hash)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values, hash included, as exported."""
        return {**self._hashed(), "hash": self.hash}

    def _hashed(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name not in ("hash", "by")}
        return {**fields, "kind": self.kind.value, "payload": self.stored_payload}

    @property
    def stored_payload(self) -> dict[str, Any]:
        """The payload as it is stored and hashed: with its author."""
        return {**self.payload, **({} if self.by is None else {"by": self.by.to_json()})}

    def authored(self) -> bool:
        """Whether its author signed nothing, or exactly this entry."""
        if self.by is None:
            return True
        unsigned = replace(self, by=replace(self.by, signature=None))
        return self.by.holds_for(entry_json(unsigned._hashed()).encode("ascii"))

    def signed(self, key: PrivateKey) -> Entry:
        """This entry with its author's signature, and the hash that covers it."""
        if self.by is None:
            raise setting_error(self, "by", "an author to sign for")
        author = replace(self.by, public_key=key.public.raw.hex(), signature=None)
        message = entry_json(replace(self, by=author)._hashed()).encode("ascii")
        signature = key.sign(message, context=CONTEXT).hex()
        entry = replace(self, by=replace(author, signature=signature))
        return replace(entry, hash=entry.expected_hash())

    def expected_hash(self) -> str:
        """The hash that these fields must have."""
        return entry_hash(self._hashed())


def entry_hash(fields: Mapping[str, Any]) -> str:
    """SHA-256, hexadecimal, of the domain prefix and the canonical JSON of `fields`."""
    return hashlib.sha256(_DOMAIN + entry_json(fields).encode("ascii")).hexdigest()


def after(head: LedgerHead | None) -> tuple[int, str]:
    """`seq` and `previous` of the entry that follows `head` (None: the first entry)."""
    return (1, NO_ENTRY) if head is None else (head.seq + 1, head.hash)


def chained(head: LedgerHead | None, **fields: Any) -> Entry:
    """The entry of these fields that follows `head`, with its hash."""
    seq, previous = after(head)
    entry = Entry(seq=seq, previous=previous, hash=NO_ENTRY, **fields)
    return replace(entry, hash=entry.expected_hash())


def authored(
    head: LedgerHead | None, *, actor: Actor, key: PrivateKey | None, **fields: Any
) -> Entry:
    """As `chained`, with the current author, and signed if there is a key."""
    entry = chained(head, by=Author(actor=actor()), **fields)
    return entry if key is None else entry.signed(key)


def from_stored(row: Mapping[str, Any]) -> Entry:
    """An entry from its stored columns; ValueError if they cannot be one."""
    payload = json.loads(row["payload"])
    if not isinstance(payload, dict) or entry_json(payload) != row["payload"]:
        raise ValueError("payload is not a canonical JSON object")
    by = Author.from_json(payload.pop("by")) if "by" in payload else None
    return Entry(**{**row, "kind": EntryKind(row["kind"]), "payload": payload, "by": by})


def entry_json(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, ASCII. Stored values hold no floats."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def canonical(value: Any, *, field: str) -> Any:
    """`value` as stored, numbers as shortest exact text; SpecError for free text or non-finite."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not (_LABEL.fullmatch(value) or _NUMBER.fullmatch(value)):
            allowed = "a decimal, or up to 128 letters, digits and `_.:+-` (no free text)"
            raise SpecError(field=field, allowed=allowed)
        return value
    if isinstance(value, Mapping):
        return {
            _key(key, field=field): canonical(item, field=f"{field}.{key}")
            for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [canonical(item, field=field) for item in value]
    return _canonical_number(value, field=field)


def _key(key: Any, *, field: str) -> str:
    if not isinstance(key, str) or not _LABEL.fullmatch(key):
        raise SpecError(field=field, allowed="keys of up to 128 letters, digits and `_.:+-`")
    return key


def _canonical_number(value: Any, *, field: str) -> int | str:
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite():
        return str(value.normalize())
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))  # shortest text that reads back as the same float
    raise SpecError(field=field, allowed="a finite number, a short name, a list or an object")


def check_fields(entry: Entry) -> None:
    """Raise SpecError if a field other than the kind holds free text, in reading as in writing.

    The number of an attempt is never above that of its entry; True equals 1, and is no number.
    """
    numbers_of = (entry.seq, 1 if entry.attempt is None else entry.attempt)
    if any(type(number) is not int or abs(number) > entry.seq for number in numbers_of):
        raise SpecError(field="seq, attempt", allowed="whole numbers")
    if not isinstance(entry.at, str) or not _MOMENT.fullmatch(entry.at):
        raise SpecError(field="at", allowed="a moment in UTC, such as 2027-01-31T06:00:00Z")
    for field in ("population", "run_key", "stage"):
        if getattr(entry, field) is not None:
            check_label(field, getattr(entry, field))
    if canonical(entry.payload, field="payload") != entry.payload:
        raise SpecError(field="payload", allowed="whole numbers, short names, digests and decimals")


def check_genesis(entry: Entry) -> None:
    """Raise LedgerConflictError unless this may be a ledger's first entry, in a readable format."""
    if entry.seq != 1:
        raise LedgerConflictError("only entry 1 may be of kind genesis, which begins a ledger")
    format_number = entry.payload["format"]
    if format_number not in READABLE:
        formats = " and ".join(map(str, READABLE))
        raise LedgerConflictError(
            f"written in format {format_number}; this version of dpiw reads formats {formats}: use"
            " the version that wrote the ledger"
        )


def check_digest(field: str, value: str) -> str:
    """Return `value` if it is 64 lower-case hexadecimal digits; else raise SpecError."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise SpecError(field=field, allowed="64 lower-case hexadecimal digits")
    return value


def check_name(field: str, value: str) -> str:
    """Return `value` if it is a safe name (`^[a-z0-9][a-z0-9_-]{0,62}$`); else raise SpecError."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        allowed = "1 to 63 lower-case letters, digits, - and _; the first a letter or digit"
        raise SpecError(field=field, allowed=allowed)
    return value


def check_label(field: str, value: str) -> str:
    """Return `value` if it is a short label (`2027-Q1`, an ISO time); else raise SpecError."""
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise SpecError(field=field, allowed="up to 128 letters, digits and `_.:+-`")
    return value


def check_count(field: str, value: int) -> int:
    """Return `value` if it is a whole number >= 1; else raise SpecError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(field=field, allowed="a whole number >= 1")
    return value
