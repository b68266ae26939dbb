"""Public rows as a stand-in population; the curator declares them public, code cannot check it."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np

from dpiw.analysis.release import UnreliableWeightsWarning, load_release
from dpiw.data.raw_source import IngestLimits, copy_source
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.sources import read_csv
from dpiw.errors import ReleaseError, SourceError, SpecError
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.plan.rehearsal.populations import ResampledRows, WeightedRows
from dpiw.plan.spec import ReleaseSpec

LEAST_ROWS = 50
"""Fewest rows that serve as a population."""


def public_rows(
    path: Path, spec: ReleaseSpec, schema: PublicSchema, *, declared_public: bool
) -> ResampledRows:
    """Read a public CSV file, UTF-8 with commas, of exactly the schema's released columns.

    `declared_public` is the curator's word. Without it, or for a confidential path, raises
    SpecError before anything is opened; SourceError for another structure or too few rows.
    """
    if not declared_public:
        raise SpecError(
            "--public-rows: expected --i-declare-these-rows-public as well: only you can know"
        )
    spec.confidential.refuse(path, field="--public-rows")
    scaled = _read(path, spec, schema)
    if scaled.rows < LEAST_ROWS:
        raise SourceError(f"--public-rows: expected at least {LEAST_ROWS} rows")
    return ResampledRows(
        rows=WeightedRows(scaled=scaled, weights=np.full(scaled.rows, 1 / scaled.rows))
    )


def labelled_rows(spec: ReleaseSpec, schema: PublicSchema) -> int:
    """Count public rows for the spec's calibration (0: none); SourceError if not as declared."""
    step = parse_post_processing(spec.weights.post_processing).calibrate
    if step is None or step.rows is None:
        return 0
    return _read(Path(step.rows), spec, schema).rows


def _read(path: Path, spec: ReleaseSpec, schema: PublicSchema) -> ScaledTable:
    limits = IngestLimits(
        max_columns=spec.source.max_columns,
        max_cell_bytes=spec.source.max_cell_bytes,
        max_memory_bytes=spec.source.max_memory_bytes,
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "rows"
        copy_source(path, copy)
        raw = read_csv(
            copy,
            [column.name for column in schema.released],
            limits=limits,
            encoding="utf-8",
            delimiter=",",
        )
    return schema.scale(raw.frame)


def released_rows(folder: Path, schema: PublicSchema, *, public_key: Path | None) -> ResampledRows:
    """Read a verified release of the same schema (else ReleaseError), weighted if usable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        release = load_release(folder, public_key)
    if PublicSchema.from_mapping(release.schema).released != schema.released:
        raise ReleaseError("--like: the release's columns are not those of the spec's schema")
    weights = release.weights if release.certificate.usable else np.ones(len(release.table))
    return ResampledRows(
        rows=WeightedRows(scaled=schema.scale(release.table), weights=weights / weights.sum())
    )
