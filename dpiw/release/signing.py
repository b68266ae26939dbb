r"""Ed25519 keys in files, and signatures over a context and a message.

The context stops a signature over a manifest from passing for one over something else. To check one
without dpiw:

    (printf 'dpiw-manifest-v1\n'; cat manifest.json) > message
    openssl pkeyutl -verify -pubin -inkey curator.pub -rawin -in message -sigfile manifest.sig
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from dpiw.data.documents import hexadecimal
from dpiw.data.files import names_in
from dpiw.errors import Command, Next, ReleaseError, SignatureError, nearest

MANIFEST_CONTEXT = b"dpiw-manifest-v1\n"
"""Precedes the manifest's bytes in the signed message."""

SIGNATURE_BYTES = 64

_MADE = "; expected a file that dpiw key new made"


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """A public key that checks signatures; `raw`: the 32 bytes of Ed25519."""

    raw: bytes

    @property
    def key_id(self) -> str:
        """The first 16 hexadecimal digits of the raw key's SHA-256."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    def check(self, message: bytes, signature: bytes, *, context: bytes = MANIFEST_CONTEXT) -> None:
        """Raise `SignatureError` unless `signature` is this key's over `context + message`."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, context + message)
        except (InvalidSignature, ValueError) as reason:
            raise SignatureError(
                f"the signature does not verify under key id {self.key_id}"
            ) from reason

    @classmethod
    def from_hex(cls, text: str) -> PublicKey:
        """Read 64 hexadecimal digits."""
        return cls(raw=bytes.fromhex(hexadecimal(text, digits=64, what="public_key")))


class PrivateKey:
    """A private key that signs. It shows its key id and never its content."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = PublicKey(raw=raw)

    def sign(self, message: bytes, *, context: bytes = MANIFEST_CONTEXT) -> bytes:
        """Return the 64 bytes of the signature over `context + message`; deterministic."""
        return self._key.sign(context + message)

    def __repr__(self) -> str:
        return f"PrivateKey(key_id={self.public.key_id!r})"

    def __reduce__(self) -> str:
        raise ReleaseError("a private key cannot be pickled; pass the path of its file instead")


def not_by(keys: Sized) -> str:
    """Who did not sign, for refusals: the given key, or any of several."""
    return "not by the given key" if len(keys) == 1 else "by none of the given keys"


def create_key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Create `<name>.key` (PKCS8 PEM, mode 0600) and `<name>.pub` (PEM); return both paths.

    Raises ReleaseError if one exists (nothing is overwritten) or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private_path, public_path = folder / f"{name}.key", folder / f"{name}.pub"
    if public_path.exists():
        raise ReleaseError(_there(public_path))
    _create(private_path, private, mode=0o600)
    _create(public_path, public, mode=0o644)
    return private_path, public_path


def load_private_key(path: Path) -> PrivateKey:
    """Read a private key file: an unencrypted Ed25519 key that others cannot read.

    Raises ReleaseError otherwise.
    """
    try:
        # The mode is that of the opened file, so it cannot be exchanged in between.
        with path.open("rb") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            data = stream.read()
    except OSError as reason:
        raise unreadable_key(path, reason) from reason
    public = "; it is the public key: name the .key file" if b"PUBLIC KEY" in data else ""
    if mode & 0o077 and not public:
        raise ReleaseError(
            f"key file {path.name} has mode {mode:04o}; expected 0600 (chmod 600), because everyone"
            " who reads the file can sign releases"
        )
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as reason:
        raise ReleaseError(
            f"not a private key without password{public or _MADE}", field=f"key file {path.name}"
        ) from reason
    if not isinstance(key, Ed25519PrivateKey):
        raise ReleaseError(f"not an Ed25519 key{_MADE}", field=f"key file {path.name}")
    return PrivateKey(key)


def load_public_key(path: Path) -> PublicKey:
    """Read a public key file (PEM); raises ReleaseError if missing or no Ed25519 key."""
    try:
        data = path.read_bytes()
        key = load_pem_public_key(data)
    except OSError as reason:
        names = names_in(path.parent, ".pub") if isinstance(reason, FileNotFoundError) else ()
        near = nearest(path.name, names)
        raise ReleaseError(f"{reason.strerror}{near}", field=f"key file {path.name}") from reason
    except (ValueError, UnsupportedAlgorithm) as reason:
        private = "; it is the private key, which stays secret: name the .pub file"
        hint = private if b"PRIVATE KEY" in data else _MADE
        raise ReleaseError(f"not a public key{hint}", field=f"key file {path.name}") from reason
    if not isinstance(key, Ed25519PublicKey):
        raise ReleaseError(f"not an Ed25519 key{_MADE}", field=f"key file {path.name}")
    return PublicKey(raw=key.public_bytes(Encoding.Raw, PublicFormat.Raw))


Keys = Path | Sequence[Path | PublicKey] | None
"""Given keys, or the files of keys; None: none was given."""


def load_public_keys(given: Keys) -> list[PublicKey] | None:
    """Return given keys, read from their files; raises as `load_public_key`."""
    paths = [given] if isinstance(given, (str, Path)) else given
    if paths is None:
        return None
    return [key if isinstance(key, PublicKey) else load_public_key(Path(key)) for key in paths]


def _there(path: Path) -> str:
    other = shlex.quote(str(path.with_name(f"{path.stem}-2")))
    return (
        f"key file {path.name} exists already; dpiw never overwrites a key. Use it, or make another"
        f" pair (dpiw key new {other}) and name that as the spec's signing_key. Keep the old .pub"
        " file, which checks older releases"
    )


def unreadable_key(path: Path, reason: OSError) -> ReleaseError:
    """The error for a private key that cannot be read.

    Prefect stores its text, so it names files and no folder.
    """
    text = f"key file {path.name}: {reason.strerror}"
    if not isinstance(reason, FileNotFoundError):
        return ReleaseError(text)
    if path.suffix != ".key" or not os.path.isfile(path.with_suffix(".pub")):
        return ReleaseError(
            text,
            allowed="the private key that the spec's signing_key names",
            next=[Next("to make a pair of keys", Command.NEW_KEY)],
        )
    return ReleaseError(
        f"{text}; {path.stem}.pub is there, so the pair was made: put {path.name} back. Keep"
        f" {path.stem}.pub in any case: audits and recoveries check older releases with it",
        next=[Next("if the key is lost, make another as signing_key", Command.NEW_KEY, "-2")],
    )


def _create(path: Path, data: bytes, *, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
    except FileExistsError as reason:
        raise ReleaseError(_there(path)) from reason
    except OSError as reason:
        raise ReleaseError(reason.strerror, field=f"key file {path.name}") from reason
