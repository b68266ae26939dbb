"""A ledger's head for a witness outside: a timestamp of it (RFC 3161), and its check.

Only a digest of an entry's hash leaves. It reveals nothing, because the first entry of the chain
holds a random number. It shows later that the chain has not lost that entry.
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dpiw.errors import SignatureError, optional
from dpiw.ledger.entries import Entry
from dpiw.ledger.location import tampered

_CONTEXT = b"dpiw-ledger-head-v1\n"


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
) -> tuple[Entry, datetime]:
    """Check a timestamp (DER) offline; return the entry that it shows, and its moment (UTC).

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
            return entry, moment
    raise tampered(
        location,
        f"lacks the head that was witnessed at {moment:%Y-%m-%dT%H:%M:%SZ}: it lost entries, or it"
        " is another ledger",
    )
