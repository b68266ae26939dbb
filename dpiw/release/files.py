"""The files of a release folder, from the values that make them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.documents import document_json, plain
from dpiw.data.files import copy_file
from dpiw.data.row_weights import ReplicateWeights
from dpiw.data.schema import PublicSchema
from dpiw.release.certificate import Certificate
from dpiw.release.croissant import croissant_json
from dpiw.release.manifest import (
    CERTIFICATE,
    CROISSANT,
    REPLICATES,
    REPORT,
    SCHEMA,
    SYNTHETIC,
    FileEntry,
    ManifestFacts,
)
from dpiw.release.parquet import arrow_fields, arrow_schema, footer_facts, write_synthetic
from dpiw.release.publication import FileSource
from dpiw.release.replicate_weights import replicate_facts, write_replicates
from dpiw.release.report.report import build_report
from dpiw.release.report.truth import PublicTruth
from dpiw.release.verification import file_digest


@dataclass(frozen=True, kw_only=True)
class ReleaseContents:
    """What `build_folder` takes: files by name, and the manifest's facts."""

    files: Mapping[str, FileSource]
    facts: ManifestFacts


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """What a data catalogue wants to know and dpiw cannot: all public, all declared.

    Attributes:
        licence: URL or name of the licence.
        url: page of the data set.
        creator: the organisation that publishes.
    """

    licence: str
    url: str
    creator: str


def release_contents(
    certificate: Certificate,
    *,
    frame: pd.DataFrame,
    log_weights: NDArray[np.float64],
    log_weight_noise_sd: NDArray[np.float64] | None,
    schema: PublicSchema,
    catalogue: CatalogueEntry,
    published_at: str,
    previous: str | None,
    workspace: Path,
    rng: np.random.Generator,
    truth: PublicTruth | None = None,
    replicates: ReplicateWeights | None = None,
    lists: Mapping[str, bytes] | None = None,
) -> ReleaseContents:
    """Make every file of a release but manifest and signature. Everything in it is public.

    Args:
        certificate: of this release.
        frame: synthetic rows in declared types.
        log_weights: shape (rows,), natural log.
        log_weight_noise_sd: shape (rows,), standard deviation of the privacy noise in each log
            weight; None: not known.
        schema: the public schema.
        catalogue: for `croissant.json`.
        published_at: the day of publication, `2027-01-31T00:00:00Z`.
        previous: SHA-256 of the manifest of the population's previous release.
        workspace: an existing folder where `synthetic.parquet` is written first; a leftover of
            an earlier attempt is replaced.
        rng: shuffles the rows.
        truth: of simulated examples whose truth is public.
        replicates: replicate weights of the rows, in the order of `frame`.
        lists: further files by name: levels that were found.

    Raises:
        ReleaseError: as `write_synthetic` and `write_replicates`.
    """
    rows_path, replicates_path = workspace / SYNTHETIC, workspace / REPLICATES
    for path in (rows_path, replicates_path):
        path.unlink(missing_ok=True)
    order = write_synthetic(
        rows_path, frame=frame, log_weights=log_weights, schema=schema,
        facts=footer_facts(certificate), rng=rng, self_normalised=certificate.self_normalised,
    )  # fmt: skip
    if replicates is not None:
        stated = replicate_facts(certificate, count=replicates.count, scale=replicates.scale)
        write_replicates(replicates_path, replicates, order=order, facts=stated)
    dictionary = document_json(plain(schema.to_mapping()))
    catalogue_page = croissant_json(
        certificate,
        schema=schema,
        synthetic=_entry(rows_path),
        replicates=None if replicates is None else _entry(replicates_path),
        published_at=published_at,
        licence=catalogue.licence,
        url=catalogue.url,
        creator=catalogue.creator,
    )
    report = build_report(
        certificate, frame=frame, log_weights=log_weights,
        log_weight_noise_sd=log_weight_noise_sd, schema=schema, truth=truth,
    )  # fmt: skip
    files: dict[str, FileSource] = {
        SYNTHETIC: partial(copy_file, rows_path),
        CERTIFICATE: certificate.to_json(),
        SCHEMA: dictionary,
        REPORT: report.encode(),
        CROISSANT: catalogue_page,
        **(lists or {}),
    }
    if replicates is not None:
        files[REPLICATES] = partial(copy_file, replicates_path)
    facts = ManifestFacts.of_certificate(
        certificate,
        rows=len(frame),
        columns=arrow_fields(arrow_schema(schema)),
        constraints_digest=hashlib.sha256(dictionary).hexdigest(),
        previous=previous,
        published_at=published_at,
    )
    return ReleaseContents(files=files, facts=facts)


def _entry(path: Path) -> FileEntry:
    return FileEntry(size=path.stat().st_size, sha256=file_digest(path))
