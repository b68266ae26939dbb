"""The release as linked data (JSON-LD): DCAT-AP for data portals, PROV for where it comes from.

Sources: DCAT-AP 3.0.0 (SEMIC), SPDX terms for checksums, W3C PROV-O. The context is inline, so no
reader has to fetch one.
"""

from typing import Any

from dpiw.data.documents import document_json
from dpiw.release.certificate import CertifiedStage
from dpiw.release.manifest import CERTIFICATE, REPLICATES, REPORT, SCHEMA
from dpiw.series.catalogues.described import Described, text, url_of

_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "prov": "http://www.w3.org/ns/prov#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "spdx": "http://spdx.org/rdf/terms#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_MEDIA_TYPES = "http://www.iana.org/assignments/media-types/"
_FORMATS = {
    ".parquet": "application/vnd.apache.parquet",
    ".json": "application/json",
    ".html": "text/html",
    ".csv": "text/csv",
}
_SHA256 = "http://spdx.org/rdf/terms#checksumAlgorithm_sha256"
_SYNTHETIC = "http://publications.europa.eu/resource/authority/dataset-type/SYNTHETIC_DATA"

_TITLES = {
    CERTIFICATE: "Certificate: the guarantee, its cost, and the quality of the weights",
    SCHEMA: "Data dictionary",
    REPORT: "Report for people who are not specialists",
    REPLICATES: "Replicate weights, row by row, for variances",
}

Node = dict[str, Any]


def _typed(value: object, kind: str) -> Node:
    return {"@type": f"xsd:{kind}", "@value": str(value)}


def _english(value: str) -> Node:
    return {"@language": "en", "@value": value}


def _document(graph: list[Node]) -> bytes:
    return document_json({"@context": _CONTEXT, "@graph": graph})


def dcat_jsonld(release: Described) -> bytes:
    """Write a `dcat:Dataset`: a distribution for each file that readers open, with its SHA-256."""
    files = [*release.row_files, CERTIFICATE, SCHEMA, REPORT, REPLICATES]
    dataset: Node = {
        "@id": release.name,
        "@type": "dcat:Dataset",
        "dct:title": _english(release.title),
        "dct:description": _english(release.description),
        "dct:identifier": release.facts.release_id,
        "dct:issued": _typed(release.facts.published_at, "dateTime"),
        "dcat:keyword": [
            _english(word)
            for word in ("synthetic data", "differential privacy", "importance weights")
        ],
        "dct:type": {
            "@id": _SYNTHETIC,
            "@type": "skos:Concept",
            "skos:prefLabel": _english("Synthetic data"),
        },
        "dct:provenance": {
            "@type": "dct:ProvenanceStatement",
            "rdfs:label": _english(f"Drawn from the {release.source}. {release.guarantee}"),
        },
        "prov:wasGeneratedBy": {
            "@id": f"{release.name}#publication",
            "@type": "prov:Activity",
            "rdfs:label": _english("Sampling, weighting and signing by dpiw"),
        },
        "dcat:distribution": [
            _distribution(release, name) for name in files if name in release.release.manifest.files
        ],
    }
    if release.creator is not None:
        dataset["dct:publisher"] = {"@type": "foaf:Agent", "foaf:name": release.creator}
    if release.page is not None:
        dataset["dcat:landingPage"] = {"@id": release.page, "@type": "foaf:Document"}
    if release.days is not None:
        first, last = release.days
        dataset["dct:temporal"] = {
            "@type": "dct:PeriodOfTime",
            "dcat:startDate": _typed(first, "date"),
            "dcat:endDate": _typed(last, "date"),
        }
    return _document([dataset])


def _distribution(release: Described, name: str) -> Node:
    entry = release.release.manifest.files[name]
    address = release.file_name(name)
    form = next(form for suffix, form in _FORMATS.items() if name.endswith(suffix))
    node: Node = {
        "@id": address if release.base_url else f"{release.name}#{name}",
        "@type": "dcat:Distribution",
        "dct:title": _english(_TITLES.get(name, "Synthetic rows with weights")),
        "dcat:accessURL": {"@id": address},
        "dcat:byteSize": _typed(entry.size, "nonNegativeInteger"),
        "dcat:mediaType": {"@id": f"{_MEDIA_TYPES}{form}", "@type": "dct:MediaType"},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": _SHA256, "@type": "spdx:ChecksumAlgorithm"},
            "spdx:checksumValue": _typed(entry.sha256, "hexBinary"),
        },
    }
    if release.base_url:
        node["@id"] = f"{address}#distribution"
        node["dcat:downloadURL"] = {"@id": address}
    if release.licence is not None:
        node["dct:license"] = _licence(release.licence)
    return node


def _licence(stated: str) -> Node:
    licence: Node = {"@type": "dct:LicenseDocument"}
    if url_of(stated):
        return licence | {"@id": stated}
    return licence | {"rdfs:label": stated}


def prov_jsonld(release: Described) -> bytes:
    """Write who made what from what: the draws with their events, and the key that signed.

    The confidential table has only the name that the certificate gives it.
    """
    facts, name = release.certificate, release.name
    key, software, table = f"{name}#key", f"{name}#dpiw", f"{name}#confidential-table"
    drawn = [f"{name}#measurement-{stage.stage}" for stage in facts.stages]
    first = facts.more_rows_of
    origin = [] if first is None else [{"@id": release.digest_name(str(first["manifest"]))}]
    entity: Node = {
        "@id": name,
        "@type": "prov:Entity",
        "rdfs:label": _english(release.title),
        "rdfs:comment": _english(release.guarantee),
        "dct:identifier": release.facts.release_id,
        "prov:generatedAtTime": _typed(release.facts.published_at, "dateTime"),
        "prov:wasGeneratedBy": {"@id": f"{name}#publication"},
        "prov:wasDerivedFrom": [*({"@id": each} for each in drawn), *origin],
        "prov:wasAttributedTo": [{"@id": key}],
    }
    publication: Node = {
        "@id": f"{name}#publication",
        "@type": "prov:Activity",
        "rdfs:label": _english("Sampling, weighting and signing; costs no privacy"),
        "rdfs:comment": [_english(text(step)) for step in facts.post_processing],
        "prov:used": [{"@id": each} for each in drawn],
        "prov:wasAssociatedWith": {"@id": software},
    }
    agents: list[Node] = [
        {
            "@id": key,
            "@type": "prov:Agent",
            "rdfs:label": _english(f"Holder of the signing key {release.release.key_id}"),
            "dct:identifier": release.release.key_id,
        },
        {
            "@id": software,
            "@type": "prov:SoftwareAgent",
            "rdfs:label": "dpiw",
            "rdfs:comment": [
                text(f"{library} {version}") for library, version in sorted(facts.versions.items())
            ],
        },
    ]
    if release.creator is not None:
        publisher = f"{name}#publisher"
        entity["prov:wasAttributedTo"].append({"@id": publisher})
        agents.append(
            {"@id": publisher, "@type": "prov:Organization", "rdfs:label": release.creator}
        )
    source: Node = {
        "@id": table,
        "@type": "prov:Entity",
        "rdfs:label": _english(f"{release.source}; confidential, not published"),
    }
    stages = [node for stage in facts.stages for node in _stage(release, stage, table, software)]
    return _document([entity, publication, source, *stages, *agents])


def _stage(release: Described, stage: CertifiedStage, table: str, software: str) -> list[Node]:
    """Return a stage's draw and its measurement; rows made elsewhere are the declarer's word."""
    place = f"{release.name}#{stage.stage}"
    cost = stage.standalone_epsilon
    notes = [
        f"Drawn in {release.drawn_in(stage)} paid attempt(s).",
        *([] if cost is None else [f"Alone, epsilon={cost:.6g} at the release's delta."]),
    ]
    activity: Node = {
        "@id": place,
        "@type": "prov:Activity",
        "rdfs:label": text(f"{stage.stage}: {stage.method}"),
        "rdfs:comment": [_english(f"Drew {release.mechanism(stage)}."), *map(_english, notes)],
        "prov:used": {"@id": table},
        "prov:wasAssociatedWith": {"@id": software},
    }
    measured: Node = {
        "@id": f"{release.name}#measurement-{stage.stage}",
        "@type": "prov:Entity",
        "rdfs:label": _english(text(f"Noisy measurement of {stage.stage}; not published as such")),
        "prov:wasGeneratedBy": {"@id": place},
        "prov:wasDerivedFrom": {"@id": table},
    }
    if release.is_declared(stage):
        settings = stage.parameters
        who = {"@id": f"{place}-declarer", "@type": "prov:Agent"}
        who["rdfs:label"] = text(settings.get("declared_by"))
        tool = text(f"{settings.get('tool')} {settings.get('version')}")
        measured["rdfs:label"] = _english(f"Rows made elsewhere by {tool}; their cost is declared")
        measured["dct:identifier"] = f"SHA-256 {text(settings.get('sha256'))}"
        measured["prov:wasAttributedTo"] = who
        del activity["prov:wasAssociatedWith"]
    return [activity, measured]
