"""Certificate, manifest and verification of a local collection's signed folder.

Unlike a curator's release, no one held the true table and no ledger paid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.data.documents import Count, DecimalText, Document, Label, Sha256, settle
from dpiw.errors import ManifestError
from dpiw.local.parameters import NAME as PARAMETERS
from dpiw.local.parameters import LocalParameters
from dpiw.privacy.mechanisms import lattice_step
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.manifest import CERTIFICATE, LOCAL_FORMAT, ArrowField, Facts, SignedManifest
from dpiw.release.verification import FOOTER, Reader, Readers, signed_statement, verified_contents

MODEL = "local"

_TRUST = (
    "Local: every report was made private by its own person's client before it was sent.",
    "The collector never had a record, holds no confidential zone, and spends nothing of a ledger;"
    " the promise does not depend on their honesty.",
)

_TRUST_BARE = (
    "Local: every report was made private by its own person's client before it was sent, but for"
    " {bare}: the collector has these as they are, of every person.",
    "Of the rest the collector never had a record; the promise, which is of the rest alone, does"
    " not depend on their honesty. It spends nothing of a ledger.",
)

_ASSUMPTIONS = (
    "Epsilon and delta are of one report. A person whose client draws a second one, or who reports"
    " to another collection too, spends that as well; clients keep their report.",
    "The client's software ran as published on the person's own device, with a secure random"
    " generator; run time is not protected.",
    "Bounds, levels, radius and noise were declared without looking at anybody's values.",
    "That a person reported, and the number of reports, are not protected.",
)

_LATTICE = (
    "Lattice noise is accounted as continuous noise of 1e-4 less scale; the lattice is finer than"
    " 2^-20 of the scale."
)

_BARE = (
    "Features listed as unprotected are told as they are; the promise compares two records that"
    " agree in them."
)

_CAVEATS = (
    "Values are of records clipped to their bounds and projected onto the ball; so are estimates.",
    "Only what is linear in a told value is unbiased as it stands; for all else the noise must be"
    " undone (dpiw.local.estimate). To clip, round or rescale told values makes that impossible.",
    "No estimator of a logistic loss is unbiased under Gaussian noise.",
    "The collector cannot tell a dishonest client: it may send any admissible report.",
)


@dataclass(frozen=True, kw_only=True)
class LocalFacts(Facts):
    """Facts of a local manifest; `parameters_digest` is the SHA-256 of `parameters.json`."""

    parameters_digest: Sha256


@dataclass(frozen=True, kw_only=True)
class LocalManifest(SignedManifest):
    """The manifest of a folder of reports."""

    format = LOCAL_FORMAT
    facts: LocalFacts


@dataclass(frozen=True, kw_only=True)
class LocalCertificate(Document):
    """The public record of one local collection.

    Attributes:
        model: `local`: each report was noised before it left its person.
        unit: one record, replaced by any other.
        epsilon: of one person's whole report, decimal text; so is `delta`.
        mechanisms: what each client ran, as `client:mechanism`.
        unprotected: features reported without noise; the promise excludes them.
        parameters_digest: SHA-256 of `parameters.json`, which every report named.
    """

    model: str
    release_id: Label
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

    name = CERTIFICATE

    def __post_init__(self) -> None:
        settle(self, what=CERTIFICATE)
        if self.model != MODEL:
            raise ManifestError(field=f"{CERTIFICATE} model", allowed=MODEL)

    @classmethod
    def of(
        cls, parameters: LocalParameters, *, rows: int, versions: Mapping[str, str]
    ) -> LocalCertificate:
        """Return the certificate of `rows` reports made under `parameters`."""
        mechanisms, noise = [], {}
        if parameters.dimension:
            mechanisms.append("client:gaussian")
            noise["features"] = {
                "law": "gaussian", "stddev": parameters.stddev, "radius": parameters.radius,
                "lattice_step": lattice_step(parameters.stddev),
            }  # fmt: skip
        if parameters.response is not None:
            mechanisms.append("client:randomised_response")
            noise["label"] = {
                "law": "randomised_response", "levels": len(parameters.levels),
                "kept": parameters.kept, "epsilon": parameters.response.epsilon,
            }  # fmt: skip
        bare = parameters.bare
        return cls(
            model=MODEL,
            release_id=parameters.collection,
            unit=PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE),
            epsilon=parameters.epsilon,
            delta=parameters.delta,
            rows=rows,
            mechanisms=tuple(mechanisms),
            noise=noise,
            unprotected=bare,
            parameters_digest=parameters.digest,
            trust=tuple(
                text.format(bare=", ".join(bare)) for text in (_TRUST_BARE if bare else _TRUST)
            ),
            assumptions=(
                *_ASSUMPTIONS,
                *([_LATTICE] if parameters.dimension else []),
                *([_BARE] if bare else []),
            ),
            caveats=_CAVEATS,
            versions=versions,
        )

    def footer_facts(self) -> dict[str, str]:
        """Return the metadata in the footer of `reports.parquet`."""
        return {
            "dpiw.certificate_sha256": self.digest,
            "dpiw.delta": self.delta,
            "dpiw.epsilon": self.epsilon,
            "dpiw.mechanisms": ",".join(self.mechanisms),
            "dpiw.relation": self.unit.relation.value,
            "dpiw.release_id": self.release_id,
        }


REPORTS = "reports.parquet"

_FILES = {REPORTS, PARAMETERS, CERTIFICATE}


@dataclass(frozen=True, kw_only=True)
class VerifiedLocal:
    """A folder of reports that passed every check.

    `pinned`: the caller gave the public key. `table`: the Arrow table, from the verified bytes.
    """

    manifest: LocalManifest
    certificate: LocalCertificate
    parameters: LocalParameters
    pinned: bool
    table: Any

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
    """Whether the manifest names the local format; checks nothing."""
    from dpiw.release.manifest import MANIFEST

    try:
        return f'"format": "{LOCAL_FORMAT}"' in (folder / MANIFEST).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def verify_local(
    folder: Path, *, public_key: Path | Sequence[Path] | None = None, rows: bool = False
) -> VerifiedLocal:
    """Check signature, manifest, files and facts of a folder of reports, in this order.

    `public_key`: the collector's key file, known from elsewhere; of several, one must have signed.
    `rows`: whether to read the table. Raises as `dpiw.release.verification.verify`; PrivacyError if
    the noise breaks the promise.
    """
    from dpiw.release.parquet import DISAGREE, RowReader, read_footer

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
        Path(folder), kind=LocalManifest, public_key=public_key, readers=readers
    )
    certificate, parameters = contents[CERTIFICATE], contents[PARAMETERS]
    footer, facts = contents[REPORTS], manifest.facts
    pairs = {
        "certificate": (
            LocalFacts.of(certificate, columns=facts.columns, published_at=facts.published_at),
            facts,
        ),
        "row count": (footer.rows, facts.rows),
        "Arrow schema": (footer.columns, facts.columns),
        "columns": (facts.columns, report_columns(parameters)),
        "facts in the Parquet footer": (footer.facts, certificate.footer_facts()),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise ManifestError(DISAGREE, field=name)
    _check_promise(certificate, parameters)
    return VerifiedLocal(
        manifest=manifest, certificate=certificate, parameters=parameters,
        pinned=public_key is not None, table=footer.table,
    )  # fmt: skip


def _check_promise(certificate: LocalCertificate, parameters: LocalParameters) -> None:
    """Compare the certificate's promise with the parameters; its sentences may differ."""
    meant = LocalCertificate.of(parameters, rows=certificate.rows, versions=certificate.versions)
    for name in ("release_id", "unit", "epsilon", "delta", "mechanisms", "noise", "unprotected",
                 "parameters_digest"):  # fmt: skip
        if not _agree(getattr(certificate, name), getattr(meant, name)):
            found = f"not that of {PARAMETERS}, so one of the two was changed: use neither"
            raise ManifestError(found, field=f"{CERTIFICATE} {name}")


def _agree(one: Any, other: Any) -> bool:
    """Whether values are equal; floats may differ in the last digits (another machine's log)."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_agree(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def report_columns(parameters: LocalParameters) -> tuple[ArrowField, ...]:
    """Return the Arrow schema of `reports.parquet`."""
    kinds = dict.fromkeys(parameters.names, "double")
    if parameters.label is not None:
        kinds[parameters.label] = "string"
    return tuple(ArrowField(name=name, type=kinds[name], nullable=False) for name in kinds)
