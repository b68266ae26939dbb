"""Catalogue metadata in the Croissant 1.0 vocabulary (http://mlcommons.org/croissant/1.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpiw.data.columns import ColumnKind
from dpiw.data.documents import document_json
from dpiw.data.schema import PublicSchema
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import REPLICATES, SYNTHETIC, FileEntry
from dpiw.release.parquet import LOG_WEIGHT, WEIGHT

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
    licence: str,
    url: str,
    creator: str,
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
        "description": _description(certificate),
        "license": licence,
        "url": url,
        "creator": {"@type": "sc:Organization", "name": creator},
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


def _description(certificate: Certificate) -> str:
    return (
        f"Synthetic rows with differentially private importance weights for population "
        f"{certificate.population}, period {certificate.period}. No row describes a person. "
        f"Guarantee: epsilon={certificate.epsilon}, delta={certificate.delta} under "
        f"{certificate.relation.value.replace('_', ' ')}; see certificate.json. "
        f"Weights: {certificate.verdict}."
    )


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
