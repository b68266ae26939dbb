"""What leaves a ledger: a head for a witness (on paper, or RFC 3161), and its curators' keys.

Of a head only the hash of an entry leaves, or a digest of it. It reveals nothing, because the first
entry of the chain holds a random number. It shows later that the chain has not lost that entry.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dpiw.errors import NotApprovedError, SignatureError, optional
from dpiw.ledger.entries import Entry, EntryKind
from dpiw.ledger.keyring import DATED, Role
from dpiw.ledger.location import tampered
from dpiw.ledger.reading import LedgerReader, label, utc_now
from dpiw.release.keys import KeyStatement, StatedKey
from dpiw.release.signing import PrivateKey

_CONTEXT = b"dpiw-ledger-head-v1\n"


@dataclass(frozen=True, kw_only=True)
class Witnessed:
    """An entry that a timestamp shows, and when (UTC) the authority signed it."""

    entry: Entry
    moment: datetime


def timestamp_request(hash: str) -> bytes:
    """Return a request (DER) for a timestamp of a head; ReleaseError without `rfc3161-client`."""
    library: Any = optional("rfc3161_client", extra="witness")
    builder = library.TimestampRequestBuilder().data(_stamped(hash))
    request: bytes = (
        builder.hash_algorithm(library.HashAlgorithm.SHA256).cert_request(cert_request=True).build()
    ).as_bytes()
    return request


def _stamped(hash: str) -> bytes:
    return _CONTEXT + hash.encode("ascii")


def witnessed(
    response: bytes, certificates: bytes, entries: Iterable[Entry], *, location: str
) -> Witnessed:
    """Check a timestamp (DER) offline, and return the entry of this ledger that it shows.

    Args:
        response: the authority's answer to `timestamp_request`.
        certificates: PEM; one of them is the authority's, or issued it.
        entries: of the ledger.
        location: of the ledger, for messages.

    Raises SignatureError if no such authority signed it, LedgerTamperedError if the ledger lacks
    the entry, ReleaseError without `rfc3161-client`.
    """
    library: Any = optional("rfc3161_client", extra="witness")
    from cryptography.x509 import load_pem_x509_certificates

    try:
        stamp = library.decode_timestamp_response(response)
        imprint = stamp.tst_info.message_imprint.message
        builder = library.VerifierBuilder()
        for certificate in load_pem_x509_certificates(certificates):
            builder = builder.add_root_certificate(certificate)
        builder.build().verify(stamp, imprint)
    except (ValueError, TypeError, library.VerificationError) as error:
        raise SignatureError(
            f"the timestamp does not hold ({type(error).__name__})",
            field="--check",
            allowed="the answer of an authority that a given certificate vouches for",
        ) from None
    moment = stamp.tst_info.gen_time.astimezone(UTC)
    for entry in entries:
        if hashlib.sha256(_stamped(entry.hash)).digest() == imprint:
            return Witnessed(entry=entry, moment=moment)
    raise tampered(
        location,
        f"lacks the head that was witnessed at {moment:%Y-%m-%dT%H:%M:%SZ}: it lost entries, or it"
        " is another ledger",
    )


def statement_of(ledger: LedgerReader, population: str, key: PrivateKey) -> bytes:
    """Return the signed statement of a population's curators' keys, as a JSON file.

    Of each key: its validity, and which manifests were published with it while it was valid.
    Raises NotApprovedError unless `key` is a curator's, valid now.
    """
    ring = ledger.keyring(population)
    now = ring.now(label(utc_now))
    signer = ring.signer(key.public.raw.hex(), now)
    if signer is None or signer.role is not Role.CURATOR:
        raise NotApprovedError(
            f"key id {key.public.key_id}", field="--sign-with", allowed="a curator's, valid now"
        )
    signed: dict[str, list[str]] = {}
    latest = ""  # as the ring's `moment`: who has a stolen key may date an entry back
    for entry in ledger.entries(population=population):
        if entry.kind in DATED:
            latest = max(latest, entry.at)
        if entry.kind is EntryKind.PUBLISH and entry.by is not None:
            author = ring.key(entry.by.public_key)
            if author is not None and author.outlasts(max(latest, entry.at)):
                signed.setdefault(author.public_key, []).append(entry.payload["manifest_digest"])
    return KeyStatement(
        population=population,
        at=now,
        ledger_head=ledger.head().hash,
        keys=tuple(
            StatedKey(
                public_key=one.public_key,
                since=one.since,
                ends=one.ends,
                signed=tuple(signed.get(one.public_key, ())),
            )
            for one in ring.keys
            if one.role is Role.CURATOR
        ),
    ).signed(key)
