"""The files of a release folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.documents import document_json, plain
from dpiw.data.files import link_file
from dpiw.data.row_weights import ReplicateWeights
from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import (
    CERTIFICATE,
    CROISSANT,
    REPLICATES,
    REPORT,
    SCHEMA,
    SYNTHETIC,
    FileEntry,
    ManifestFacts,
    listed_row_files,
)
from dpiw.release.parquet import (
    LOG_WEIGHT,
    WEIGHT,
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

_CROISSANT_TERMS = (
    "citeAs", "column", "extract", "field", "fileObject", "fileProperty", "fileSet", "format",
    "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet",
    "references", "regex", "repeated", "replace", "separator", "source", "subField", "transform",
)  # fmt: skip

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{term: f"cr:{term}" for term in _CROISSANT_TERMS},
}

_DATA_TYPES = {
    ColumnKind.CONTINUOUS: "sc:Float",
    ColumnKind.INTEGER: "sc:Integer",
    ColumnKind.BOOLEAN: "sc:Boolean",
    ColumnKind.CATEGORICAL: "sc:Text",
    ColumnKind.ORDINAL: "sc:Text",
    ColumnKind.DATE: "sc:Date",
    ColumnKind.DATETIME: "sc:DateTime",
}

_RECORDS, _PARTS = "rows", "parts"

_FILE_SET: dict[str, Any] = {
    "@type": "cr:FileSet",
    "@id": _PARTS,
    "name": _PARTS,
    "description": "The rows, in parts.",
    "encodingFormat": "application/x-parquet",
    "includes": "synthetic-*.parquet",
}


def croissant_json(
    certificate: Certificate,
    *,
    schema: PublicSchema,
    rows: Mapping[str, FileEntry],
    replicates: FileEntry | None = None,
    published_at: str,
    catalogue: CatalogueEntry,
) -> bytes:
    """Write `croissant.json`; replicate weights have no record set: they do not describe rows."""
    source: dict[str, Any] = {"fileObject": {"@id": SYNTHETIC}}
    if len(rows) > 1:
        source = {"fileSet": {"@id": _PARTS}}
    fields = [
        _field(source, column.name, _DATA_TYPES[column.kind], column.description)
        for column in schema.released
    ]
    fields.append(_field(source, WEIGHT, "sc:Float", "Importance weight of the row, mean one."))
    fields.append(
        _field(source, LOG_WEIGHT, "sc:Float", "Natural log of the weight, not normalised.")
    )
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": certificate.release_id,
        "description": "Synthetic rows with differentially private importance weights for"
        f" population {certificate.population}, period {certificate.period}. No row describes a"
        f" person. Guarantee: epsilon={certificate.epsilon}, delta={certificate.delta} under"
        f" {certificate.relation.value.replace('_', ' ')}; see certificate.json. Weights:"
        f" {certificate.weights_are}.",
        "license": catalogue.licence,
        "url": catalogue.url,
        "creator": {"@type": "sc:Organization", "name": catalogue.creator},
        "datePublished": published_at,
        "version": "1.0.0",
        "isLiveDataset": False,
        "keywords": ["synthetic data", "differential privacy", "importance weights"],
        "distribution": [_file(name, entry) for name, entry in rows.items()]
        + ([] if len(rows) == 1 else [_FILE_SET])
        + ([] if replicates is None else [_file(REPLICATES, replicates)]),
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": _RECORDS,
                "name": _RECORDS,
                "description": "One synthetic row each, with its importance weight.",
                "field": fields,
            }
        ],
    }
    return document_json(document)


def _file(name: str, entry: FileEntry) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{entry.size} B",
        "encodingFormat": "application/x-parquet",
        "sha256": entry.sha256,
    }


def _field(
    source: Mapping[str, Any], name: str, data_type: str, description: str
) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{_RECORDS}/{name}",
        "name": name,
        "description": description or name,
        "dataType": data_type,
        "source": {**source, "extract": {"column": name}},
    }


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """Public facts that the curator declares for a data catalogue; `licence` is a URL or a name."""

    licence: str
    url: str
    creator: str


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
        rows={name: entries[name] for name in listed_row_files(entries)},
        replicates=entries.get(REPLICATES),
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
