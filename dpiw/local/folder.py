"""The signed folder of a local collection: reports that were private before anybody had them.

Same manifest, signature and checks as every release; another certificate, since nobody was trusted
with a table and no ledger paid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.errors import ManifestError
from dpiw.local.certificate import LocalCertificate, LocalManifest
from dpiw.local.parameters import NAME as PARAMETERS
from dpiw.local.parameters import LocalParameters
from dpiw.release.manifest import CERTIFICATE, LOCAL_FORMAT, ArrowField
from dpiw.release.verification import (
    FOOTER,
    Reader,
    Readers,
    signed_statement,
    verified_contents,
)

REPORTS = "reports.parquet"

_FILES = {REPORTS, PARAMETERS, CERTIFICATE}


@dataclass(frozen=True, kw_only=True)
class VerifiedLocal:
    """A folder of reports that passed every check.

    Attributes:
        folder: where it lies.
        manifest: what it lists.
        certificate: what it promises.
        parameters: whose noise keeps that promise, computed anew.
        pinned: whether the signing key was given by the caller.
    """

    folder: Path
    manifest: LocalManifest
    certificate: LocalCertificate
    parameters: LocalParameters
    pinned: bool

    @property
    def statement(self) -> str:
        """One line for people."""
        return signed_statement("local release", self.manifest, pinned=self.pinned)

    def described(self) -> list[str]:
        """Lines for people."""
        certificate = self.certificate
        return [
            self.statement,
            f"{certificate.rows} reports, each epsilon={certificate.epsilon},"
            f" delta={certificate.delta} under {certificate.unit.relation.value}",
            *certificate.trust,
        ]


def is_local(folder: Path) -> bool:
    """Whether a folder says of itself that it holds reports; nothing is checked."""
    from dpiw.release.manifest import MANIFEST

    try:
        return f'"format": "{LOCAL_FORMAT}"' in (folder / MANIFEST).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def verify_local(folder: Path, *, public_key: Path | Sequence[Path] | None = None) -> VerifiedLocal:
    """Check signature, manifest, files and facts of a folder of reports, in this order.

    Args:
        folder: the release.
        public_key: the collector's public key file, known from elsewhere; or several, one of
            which must have signed.

    Raises:
        ReleaseError: as `dpiw.release.verification.verify`.
        PrivacyError: the noise of the parameters does not keep their promise.
    """
    return _verified(Path(folder), public_key=public_key, rows=False)[0]


def verify_local_and_read(folder: Path, *, public_key: Path | None) -> tuple[VerifiedLocal, Any]:
    """As `verify_local`, and the Arrow table of the reports, from the bytes that were compared."""
    return _verified(Path(folder), public_key=public_key, rows=True)


def _verified(
    folder: Path, *, public_key: Path | Sequence[Path] | None, rows: bool
) -> tuple[VerifiedLocal, Any]:
    from dpiw.release.parquet import RowReader, read_footer

    def readers(manifest: LocalManifest) -> Readers:
        if set(manifest.files) != _FILES:
            raise ManifestError(f"a local release holds {', '.join(sorted(_FILES))}, nothing else")
        size = manifest.files[REPORTS].size if public_key is None else None
        footer = Reader(parse=read_footer, last=FOOTER)
        return {
            CERTIFICATE: Reader(parse=lambda file: LocalCertificate.from_json(file.data)),
            PARAMETERS: Reader(parse=lambda file: LocalParameters.from_json(file.data)),
            REPORTS: Reader(parse=RowReader(manifest.facts, size=size)) if rows else footer,
        }

    manifest, contents = verified_contents(
        folder, kind=LocalManifest, public_key=public_key, readers=readers
    )
    certificate, parameters = contents[CERTIFICATE], contents[PARAMETERS]
    footer, facts = contents[REPORTS], manifest.facts
    pairs = {
        "certificate": (
            certificate.manifest_facts(columns=facts.columns, published_at=facts.published_at),
            facts,
        ),
        "row count": (footer.rows, facts.rows),
        "Arrow schema": (footer.columns, facts.columns),
        "columns": (facts.columns, _columns(parameters)),
        "facts in the Parquet footer": (footer.facts, certificate.footer_facts()),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise ManifestError(f"{name}: manifest, certificate and files disagree")
    _check_promise(certificate, parameters)
    verified = VerifiedLocal(
        folder=folder, manifest=manifest, certificate=certificate, parameters=parameters,
        pinned=public_key is not None,
    )  # fmt: skip
    return verified, footer.table


def _check_promise(certificate: LocalCertificate, parameters: LocalParameters) -> None:
    """Whether all that a certificate promises is what the parameters do; its sentences are free."""
    meant = LocalCertificate.of(parameters, rows=certificate.rows, versions=certificate.versions)
    for name in ("release_id", "unit", "epsilon", "delta", "mechanisms", "noise", "unprotected",
                 "parameters_digest"):  # fmt: skip
        if not _agree(getattr(certificate, name), getattr(meant, name)):
            raise ManifestError(f"{CERTIFICATE} {name}: not that of {PARAMETERS}")


def _agree(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of floats: another machine's logarithm."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_agree(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def _columns(parameters: LocalParameters) -> tuple[ArrowField, ...]:
    """Of `reports.parquet`: numbers, then the label's level."""
    kinds = dict.fromkeys(parameters.names, "double")
    if parameters.label is not None:
        kinds[parameters.label] = "string"
    return tuple(ArrowField(name=name, type=kinds[name], nullable=False) for name in kinds)
