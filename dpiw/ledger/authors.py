"""Who wrote an entry: a user on a host (public facts), and a signature if there is a key.

    "by": {"actor": "alice@db1"}
    "by": {"actor": "alice@db1", "public_key": 64 digits, "signature": 128 digits}

No rule of spending reads it. The signature covers the entry as hashed, without the signature, so it
fits no other place of any ledger. Entries of earlier versions have no author.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpiw.errors import SignatureError, SpecError
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
            raise SpecError(f"{VARIABLE}: expected up to 128 letters, digits and `_.:+@-`")
        return actor
    return f"{_plain(_user())}@{_plain(socket.gethostname())}"


def _user() -> str:
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container's user may have no name
        return f"uid{number}"


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


def signature_of(message: bytes, key: PrivateKey) -> str:
    """The key's signature over an entry's message, as 128 hexadecimal digits."""
    return key.sign(message, context=CONTEXT).hex()
