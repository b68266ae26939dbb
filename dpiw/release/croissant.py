"""`croissant.json`: the release in the form that MLCommons' loaders and catalogues read.

Source: the Croissant format, version 1.0 (http://mlcommons.org/croissant/1.0).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.data.documents import document_json, parse_canonical, typed
from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ManifestError
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import (
    CROISSANT,
    REPLICATES,
    SYNTHETIC,
    FileEntry,
    SignedManifest,
    listed_row_files,
)
from dpiw.release.parquet import LOG_WEIGHT, WEIGHT, WEIGHT_ROLES
from dpiw.release.verification import signed_bytes

_CROISSANT_TERMS = (
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileObject", "fileProperty",
    "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField",
    "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator",
    "source", "subField", "transform",
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

_SAFE = re.compile(r"[A-Za-z0-9._-]+")
"""Names that may end an `@id`; readers refuse white space there, even escaped."""

NOT_STATED = "not stated"
"""What a spec says of a catalogue's fact that nobody declared."""


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """Public facts that the curator declares for a data catalogue; `licence` is a URL or a name."""

    licence: str = NOT_STATED
    url: str = NOT_STATED
    creator: str = NOT_STATED

    @classmethod
    def of(cls, folder: Path, manifest: SignedManifest) -> "CatalogueEntry":
        """Return what a published folder's signed page states; ManifestError if malformed."""
        if CROISSANT not in manifest.files:
            return cls()
        page = parse_canonical(signed_bytes(folder, manifest, CROISSANT).data, what=CROISSANT)
        try:
            stated = page["license"], page["url"], page["creator"]["name"]
        except (KeyError, TypeError):
            raise ManifestError(field=CROISSANT, allowed="license, url and creator") from None
        licence, url, creator = (typed(value, str, what=CROISSANT) for value in stated)
        return cls(licence=licence, url=url, creator=creator)


def weight_description(certificate: Certificate) -> str:
    """Return what the column `weight` is, and whether estimates must use it."""
    if not certificate.is_weighted:
        return "One in every row: this release has no weights."
    scale = "mean one" if certificate.self_normalised else "for totals"
    return (
        f"{WEIGHT_ROLES[WEIGHT].capitalize()}; {scale}. Every estimate must use it: without it,"
        " estimates are those of the generator alone. Verdict on the weights:"
        f" {certificate.weights_are}."
    )


def croissant_json(
    certificate: Certificate,
    *,
    schema: PublicSchema,
    files: Mapping[str, FileEntry],
    published_at: str,
    catalogue: CatalogueEntry,
    base_url: str = "",
) -> bytes:
    """Write `croissant.json`; replicate weights have no record set: they do not describe rows.

    `files`: those that the manifest lists. `base_url` precedes their names; empty: they lie beside
    the page.
    """
    rows = listed_row_files(files)
    is_parted = len(rows) > 1
    source = {"fileSet": {"@id": _PARTS}} if is_parted else {"fileObject": {"@id": SYNTHETIC}}
    listed = [_file(base_url, name, files[name]) for name in rows] + [_FILE_SET] * is_parted
    if REPLICATES in files:
        listed.append(_file(base_url, REPLICATES, files[REPLICATES]))
    fields = [
        _field(source, place, column.name, _DATA_TYPES[column.kind], column.description)
        for place, column in enumerate(schema.released, start=1)
    ]
    weights = {
        WEIGHT: weight_description(certificate),
        LOG_WEIGHT: "Natural log of the weight, not normalised.",
    }
    fields += [_field(source, 0, name, "sc:Float", text) for name, text in weights.items()]
    by = "" if catalogue.creator == NOT_STATED else f"{catalogue.creator}, "
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
        "citeAs": f"{by}{certificate.release_id}, synthetic data, published {published_at}",
        "datePublished": published_at,
        "version": "1.0.0",
        "isLiveDataset": False,
        "keywords": ["synthetic data", "differential privacy", "importance weights"],
        "distribution": listed,
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


def _file(base_url: str, name: str, entry: FileEntry) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": f"{base_url}{name}",
        "contentSize": f"{entry.size} B",
        "encodingFormat": "application/x-parquet",
        "sha256": entry.sha256,
    }


def _field(
    source: Mapping[str, Any], place: int, name: str, data_type: str, description: str
) -> dict[str, Any]:
    """Describe a column; `place` in the table is the id of a name that cannot be one."""
    named = name if _SAFE.fullmatch(name) else f"column/{place}"
    return {
        "@type": "cr:Field",
        "@id": f"{_RECORDS}/{named}",
        "name": name,
        "description": description or name,
        "dataType": data_type,
        "source": {**source, "extract": {"column": name}},
    }
