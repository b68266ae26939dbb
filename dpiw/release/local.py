"""The signed folder of a local collection: reports that were private before anybody had them.

Same manifest, signature and checks as every release; another certificate, since nobody was trusted
with a table and no ledger paid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dpiw.data.documents import document_json, parse_canonical, plain, record
from dpiw.data.records import Count, DecimalText, Sha256, settle
from dpiw.errors import ManifestError
from dpiw.privacy.units import PrivacyUnit
from dpiw.release.manifest import CERTIFICATE, LOCAL_FORMAT, ArrowField, Facts, SignedManifest
from dpiw.release.verification import signed_statement, verified_manifest

REPORTS = "reports.parquet"
PARAMETERS = "parameters.json"
MODEL = "local"

_FILES = {REPORTS, PARAMETERS, CERTIFICATE}


@dataclass(frozen=True, kw_only=True)
class LocalFacts(Facts):
    """What the manifest of reports says.

    Attributes:
        parameters_digest: SHA-256 of the public parameters (`parameters.json`).
    """

    parameters_digest: Sha256


@dataclass(frozen=True, kw_only=True)
class LocalManifest(SignedManifest):
    """The manifest of reports."""

    format = LOCAL_FORMAT
    facts: LocalFacts


@dataclass(frozen=True, kw_only=True)
class LocalCertificate:
    """The public record of one local collection.

    Attributes:
        model: `local`: each report was noised before it left its person.
        release_id: name of the collection.
        unit: one record, replaced by any other.
        epsilon: of one person's whole report, decimal text; nobody else's matters to it.
        delta: likewise.
        rows: number of reports; public, as under every replace-one promise.
        mechanisms: what each client ran, as `client:mechanism`.
        noise: the laws of the noise, JSON values: all that an estimator must undo.
        unprotected: features that are told as they are; the promise is for the rest.
        parameters_digest: SHA-256 of `parameters.json`, which every report named.
        trust: sentences: who was trusted with what.
        assumptions: sentences; the promise holds under these.
        caveats: sentences: what an analyst may and may not assume.
        versions: of the software that collected.
    """

    model: str
    release_id: str
    unit: PrivacyUnit
    epsilon: DecimalText
    delta: DecimalText
    rows: Count
    mechanisms: tuple[str, ...]
    noise: Mapping[str, Any]
    unprotected: tuple[str, ...]
    parameters_digest: Sha256
    trust: tuple[str, ...]
    assumptions: tuple[str, ...]
    caveats: tuple[str, ...]
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        settle(self, what=CERTIFICATE, error=ManifestError)
        if self.model != MODEL:
            raise ManifestError(f"{CERTIFICATE} model: expected {MODEL}")

    def to_json(self) -> bytes:
        """Write canonical JSON; the same certificate always gives the same bytes."""
        return document_json(plain(self))

    @classmethod
    def from_json(cls, data: bytes) -> LocalCertificate:
        """Read what `to_json` wrote.

        Raises:
            ManifestError: not canonical JSON, a key that is unknown or missing, or a value of the
                wrong kind.
        """
        value = parse_canonical(data, what=CERTIFICATE, error=ManifestError)
        names = [field.name for field in fields(cls)]
        return cls(**record(value, names, what=CERTIFICATE, error=ManifestError))

    @property
    def digest(self) -> str:
        """SHA-256 of `to_json()`, hexadecimal."""
        return hashlib.sha256(self.to_json()).hexdigest()

    def footer_facts(self) -> dict[str, str]:
        """What the footer of `reports.parquet` says, all of it from the certificate."""
        return {
            "dpiw.certificate_sha256": self.digest,
            "dpiw.delta": self.delta,
            "dpiw.epsilon": self.epsilon,
            "dpiw.mechanisms": ",".join(self.mechanisms),
            "dpiw.relation": self.unit.relation.value,
            "dpiw.release_id": self.release_id,
        }

    def manifest_facts(self, *, columns: tuple[ArrowField, ...], published_at: str) -> LocalFacts:
        """Everything the manifest says of a collection, from its certificate."""
        return LocalFacts(
            release_id=self.release_id, unit=self.unit, epsilon=self.epsilon, delta=self.delta,
            mechanisms=self.mechanisms, rows=self.rows, columns=columns, versions=self.versions,
            published_at=published_at, parameters_digest=self.parameters_digest,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class VerifiedLocal:
    """A folder of reports that passed every check.

    Attributes:
        folder: where it lies.
        manifest: what it lists.
        certificate: what it promises.
        pinned: whether the signing key was given by the caller.
    """

    folder: Path
    manifest: LocalManifest
    certificate: LocalCertificate
    pinned: bool

    @property
    def statement(self) -> str:
        """One line for people."""
        return signed_statement("local release", self.manifest, pinned=self.pinned)

    def described(self) -> list[str]:
        """Lines for people."""
        stated = self.certificate
        return [
            self.statement,
            f"{stated.rows} reports, each epsilon={stated.epsilon}, delta={stated.delta}"
            f" under {stated.unit.relation.value}",
            *stated.trust,
        ]


def is_local(folder: Path) -> bool:
    """Whether a folder says of itself that it holds reports; nothing is checked."""
    from dpiw.release.manifest import MANIFEST

    try:
        return f'"format": "{LOCAL_FORMAT}"' in (folder / MANIFEST).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def verify_local(folder: Path, *, public_key: Path | None = None) -> VerifiedLocal:
    """Check signature, manifest, files and facts of a folder of reports, in this order.

    Args:
        folder: the release.
        public_key: the collector's public key file, known from elsewhere.

    Raises:
        ReleaseError: as `dpiw.release.verification.verify`.
    """
    from dpiw.release.parquet import read_footer

    folder = Path(folder)
    manifest = verified_manifest(folder, kind=LocalManifest, public_key=public_key)
    if set(manifest.files) != _FILES:
        raise ManifestError(f"a local release holds {', '.join(sorted(_FILES))}, nothing else")
    certificate = LocalCertificate.from_json((folder / CERTIFICATE).read_bytes())
    footer, facts = read_footer(folder / REPORTS), manifest.facts
    pairs = {
        "certificate": (
            certificate.manifest_facts(columns=facts.columns, published_at=facts.published_at),
            facts,
        ),
        "row count": (footer.rows, facts.rows),
        "Arrow schema": (footer.columns, facts.columns),
        "facts in the Parquet footer": (footer.facts, certificate.footer_facts()),
        "parameters": (manifest.files[PARAMETERS].sha256, facts.parameters_digest),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise ManifestError(f"{name}: manifest, certificate and files disagree")
    return VerifiedLocal(
        folder=folder, manifest=manifest, certificate=certificate, pinned=public_key is not None
    )
