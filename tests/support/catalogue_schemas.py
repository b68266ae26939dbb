"""What catalogues demand of a record, restated for tests from the formats' own documents.

No text of theirs is copied: names, types, counts and orders are facts. Each constant names where
it is from.
"""

from typing import Any

TEXT = {"type": "string"}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    closed = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**closed, "required": [*required]}


def _one_of(*values: Any) -> dict[str, Any]:
    return {"enum": [*values]}


_BIBTEX = _object(**dict.fromkeys(("author", "note", "title", "url"), TEXT))
_KINDS = _one_of(
    "Peer-reviewed publication", "Formal publication by the deploying organization",
    "Authorized organizational attestation", "Other public source",
)  # fmt: skip

DEPLOYMENT = _object(
    ("url_slug", "deployment"),
    url_slug=TEXT,
    deployment=_object(
        ("basic", "administrative"),
        basic=_object(
            ("name", "data_curators", "description", "intended_use", "data_product_type",
             "data_product_region", "publication_date"),
            name=TEXT,
            data_curators={
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["data_curator_name", "data_curator_type"],
                    "properties": {
                        "data_curator_name": TEXT,
                        "data_curator_type": _one_of("Government", "Industry", "Nonprofit"),
                    },
                },
            },
            description=TEXT,
            intended_use=TEXT,
            data_product_type=_one_of(
                "Summary statistics", "Machine learning model", "Dataset", "Synthetic data",
                "Interactive API", "SQL queries",
            ),
            data_product_region=TEXT,
            data_product_sector=_one_of(
                "Technology", "Healthcare", "Education", "Government", "Energy", "Finance"
            ),
            publication_date={**TEXT, "format": "date"},
        ),
        dp_variant=_object(
            variant_name=_one_of(
                "Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"
            ),
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=_object(
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            number_of_privacy_units={"type": "integer"},
            privacy_parameters=_object(
                epsilon={"type": "number"}, delta={"type": ["number", "string"]},
                rho={"type": "number"},
            ),
            privacy_parameters_details={},
        ),
        deployment_model=_object(
            model_name=_one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
            model_name_details=TEXT,
            trust_assumptions=TEXT,
            actors={},
            release_type=_one_of("One release", "Many releases"),
            release_type_details=TEXT,
            data_source_type=_one_of("Static", "Dynamic"),
            data_source_type_details=TEXT,
            access_type=_one_of("Interactive", "Non-interactive"),
            access_type_details=TEXT,
        ),
        implementation=_object(
            preprocessing_and_hyperparameter_tuning=TEXT, mechanisms=TEXT, composition=TEXT,
            post_processing=TEXT, justification=TEXT, utility={}, additional_information={},
        ),
        administrative=_object(
            ("status", "registry_authors", "tier"),
            evidence_sources={
                "type": "object",
                "patternProperties": {
                    r"^\w+$": _object(evidence_source_type=_KINDS, misc=_BIBTEX)
                },
            },
            status=_one_of(
                "Converted", "Draft", "Pending", "Changes Required", "Approved",
                "Approved (Update Requested)", "Approved (Pending)",
            ),
            registry_authors={"type": "array", "items": TEXT, "minItems": 1},
            tier=_one_of(1, 2, 3),
        ),
    ),
)  # fmt: skip
"""A record of the Privacy Deployments Registry, less its other kinds of BibTeX entries.

Source: github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml at commit
057e5d81cf60150dd3307e0cf4504b957802fb3b, which states no licence; so only names and types are here.
"""

SHAPES = """
@prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix prov: <http://www.w3.org/ns/prov#> .
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix spdx: <http://spdx.org/rdf/terms#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix t: <urn:test:> .

t:Dataset a sh:NodeShape ; sh:targetClass dcat:Dataset ;
  sh:property [ sh:path dct:title ; sh:minCount 1 ; sh:nodeKind sh:Literal ],
    [ sh:path dct:description ; sh:minCount 1 ; sh:nodeKind sh:Literal ],
    [ sh:path dct:identifier ; sh:nodeKind sh:Literal ],
    [ sh:path dcat:keyword ; sh:nodeKind sh:Literal ],
    [ sh:path dct:issued ; sh:maxCount 1 ; sh:datatype xsd:dateTime ],
    [ sh:path dct:publisher ; sh:maxCount 1 ; sh:class foaf:Agent ],
    [ sh:path dcat:distribution ; sh:class dcat:Distribution ],
    [ sh:path dct:temporal ; sh:class dct:PeriodOfTime ],
    [ sh:path dct:provenance ; sh:class dct:ProvenanceStatement ],
    [ sh:path dct:type ; sh:class skos:Concept ],
    [ sh:path dcat:landingPage ; sh:class foaf:Document ],
    [ sh:path prov:wasGeneratedBy ; sh:class prov:Activity ] .
t:Distribution a sh:NodeShape ; sh:targetClass dcat:Distribution ;
  sh:property [ sh:path dcat:accessURL ; sh:minCount 1 ; sh:nodeKind sh:IRI ],
    [ sh:path dcat:downloadURL ; sh:nodeKind sh:IRI ],
    [ sh:path dct:title ; sh:nodeKind sh:Literal ],
    [ sh:path dcat:byteSize ; sh:maxCount 1 ; sh:datatype xsd:nonNegativeInteger ],
    [ sh:path dcat:mediaType ; sh:maxCount 1 ; sh:class dct:MediaType ],
    [ sh:path spdx:checksum ; sh:maxCount 1 ; sh:class spdx:Checksum ],
    [ sh:path dct:license ; sh:maxCount 1 ; sh:class dct:LicenseDocument ] .
t:Checksum a sh:NodeShape ; sh:targetClass spdx:Checksum ;
  sh:property [ sh:path spdx:algorithm ; sh:minCount 1 ; sh:maxCount 1 ;
      sh:class spdx:ChecksumAlgorithm ],
    [ sh:path spdx:checksumValue ; sh:minCount 1 ; sh:maxCount 1 ; sh:datatype xsd:hexBinary ] .
t:Agent a sh:NodeShape ; sh:targetClass foaf:Agent ;
  sh:property [ sh:path foaf:name ; sh:minCount 1 ; sh:nodeKind sh:Literal ] .
t:Concept a sh:NodeShape ; sh:targetClass skos:Concept ;
  sh:property [ sh:path skos:prefLabel ; sh:minCount 1 ; sh:nodeKind sh:Literal ] .
t:PeriodOfTime a sh:NodeShape ; sh:targetClass dct:PeriodOfTime ;
  sh:property [ sh:path dcat:startDate ; sh:maxCount 1 ; sh:datatype xsd:date ],
    [ sh:path dcat:endDate ; sh:maxCount 1 ; sh:datatype xsd:date ] .
"""
"""DCAT-AP's demands on the classes that a release has.

Source: DCAT-AP 3.0.0 (SEMIC, CC BY 4.0), github.com/SEMICeu/DCAT-AP, releases/3.0.0: minimum and
maximum counts, node kinds and ranges of its SHACL shapes.
"""

PROV_SHAPES = """
@prefix prov: <http://www.w3.org/ns/prov#> .
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix t: <urn:test:> .

t:Used a sh:NodeShape ; sh:targetSubjectsOf prov:used ; sh:class prov:Activity ;
  sh:property [ sh:path prov:used ; sh:class prov:Entity ] .
t:Associated a sh:NodeShape ; sh:targetSubjectsOf prov:wasAssociatedWith ; sh:class prov:Activity .
t:Generated a sh:NodeShape ; sh:targetSubjectsOf prov:wasGeneratedBy ; sh:class prov:Entity ;
  sh:property [ sh:path prov:wasGeneratedBy ; sh:class prov:Activity ] .
t:Derived a sh:NodeShape ; sh:targetSubjectsOf prov:wasDerivedFrom ; sh:class prov:Entity .
t:Time a sh:NodeShape ; sh:targetSubjectsOf prov:generatedAtTime ; sh:class prov:Entity ;
  sh:property [ sh:path prov:generatedAtTime ; sh:datatype xsd:dateTime ] .
"""
"""Domains and ranges of PROV-O's terms. Source: W3C Recommendation PROV-O, 30 April 2013."""

DDI_ORDER = {
    "codeBook": "docDscr stdyDscr fileDscr dataDscr otherMat",
    "stdyDscr": "citation studyAuthorization stdyInfo studyDevelopment method dataAccs"
    " othrStdyMat notes",
    "citation": "titlStmt rspStmt prodStmt distStmt serStmt verStmt biblCit holdings notes",
    "titlStmt": "titl subTitl altTitl parTitl IDNo",
    "stdyInfo": "studyBudget subject abstract sumDscr qualityStatement notes",
    "sumDscr": "timePrd collDate nation geogCover geogUnit geoBndBox boundPoly anlyUnit universe"
    " dataKind",
    "method": "dataColl notes anlyInfo stdyClas dataProcessing codingInstructions",
    "dataAccs": "setAvail useStmt notes",
    "useStmt": "confDec specPerm restrctn contact citReq deposReq conditions disclaimer",
    "fileDscr": "fileTxt locMap notes",
    "fileTxt": "fileName fileCitation fileCont fileStrc dimensns fileType format filePlac",
    "dimensns": "caseQnty varQnty logRecL recPrCas recNumTot",
    "var": "location labl imputation security embargo respUnit anlysUnit qstn valrng invalrng"
    " undocCod universe TotlResp sumStat txt stdCatgry catgryGrp catgry codInstr verStmt concept"
    " derivation varFormat geoMap catLevel notes",
    "catgry": "catValu labl txt catStat mrow",
}
"""Children in their order. Source: DDI-Codebook 2.5 (DDI Alliance), codebook.xsd of 2012-01-17."""
