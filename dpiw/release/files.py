"""The files of a release folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.documents import document_json, plain
from dpiw.data.files import link_file
from dpiw.data.row_weights import ReplicateWeights
from dpiw.data.schema.schema import PublicSchema
from dpiw.release.certificate import Certificate
from dpiw.release.croissant import CatalogueEntry, croissant_json
from dpiw.release.manifest import (
    CERTIFICATE,
    CROISSANT,
    REPLICATES,
    REPORT,
    SCHEMA,
    FileEntry,
    ManifestFacts,
)
from dpiw.release.parquet import (
    arrow_fields,
    arrow_schema,
    footer_facts,
    write_synthetic,
)
from dpiw.release.publication import FileSource
from dpiw.release.replicate_weights import replicate_facts, write_replicates
from dpiw.release.report.figures import Answers, RowsShown
from dpiw.release.report.report import build_report
from dpiw.release.verification import file_digest


def release_contents(
    certificate: Certificate,
    *,
    frames: Iterable[pd.DataFrame],
    log_weights: NDArray[np.float64],
    log_weight_noise_sd: NDArray[np.float64] | None,
    schema: PublicSchema,
    catalogue: CatalogueEntry,
    published_at: str,
    previous: str | None,
    workspace: Path,
    rng: np.random.Generator,
    replicates: ReplicateWeights | None = None,
    lists: Mapping[str, bytes] | None = None,
    answers: Answers | None = None,
) -> tuple[dict[str, FileSource], ManifestFacts]:
    """Return every file of a release but manifest and signature, and its facts; all are public.

    `frames`, `log_weights` and `rng` are as for `write_synthetic`; `replicates` in the order of
    `frames`; `log_weight_noise_sd` has shape (rows,), or is of evenly spaced rows; `lists` has
    found levels. Other Parquet files in `workspace` are removed. Raises as `write_synthetic`.
    """
    for leftover in workspace.glob("*.parquet"):
        leftover.unlink()
    shown = RowsShown(schema, log_weights)
    order = write_synthetic(
        workspace, frames=shown.passing(frames), log_weights=log_weights, schema=schema,
        facts=footer_facts(certificate), rng=rng, self_normalised=certificate.self_normalised,
    )  # fmt: skip
    if replicates is not None:
        file_facts = replicate_facts(certificate, count=replicates.count, scale=replicates.scale)
        write_replicates(workspace / REPLICATES, replicates, order=order, facts=file_facts)
    entries = {
        path.name: FileEntry(size=path.stat().st_size, sha256=file_digest(path))
        for path in sorted(workspace.glob("*.parquet"))
    }
    dictionary = document_json(plain(schema.published_mapping()))
    catalogue_page = croissant_json(
        certificate,
        schema=schema,
        files=entries,
        published_at=published_at,
        catalogue=catalogue,
    )
    report = build_report(
        certificate, shown=shown, log_weight_noise_sd=log_weight_noise_sd, schema=schema,
        answers=answers,
    )  # fmt: skip
    files: dict[str, FileSource] = {
        CERTIFICATE: certificate.to_json(),
        SCHEMA: dictionary,
        REPORT: report.encode(),
        CROISSANT: catalogue_page,
        **(lists or {}),
        **{name: partial(link_file, workspace / name) for name in entries},
    }
    facts = ManifestFacts.of(
        certificate,
        cumulative_epsilon=certificate.spent_epsilon,
        cumulative_delta=certificate.spent_delta,
        rows=log_weights.size,
        columns=arrow_fields(arrow_schema(schema)),
        constraints_digest=hashlib.sha256(dictionary).hexdigest(),
        previous=previous,
        published_at=published_at,
    )
    return files, facts
