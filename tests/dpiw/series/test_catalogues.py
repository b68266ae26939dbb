"""Every form of a release's metadata passes the validators of the catalogues that take it."""

import json
import re
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import mlcroissant
import numpy as np
import pytest
import rdflib
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyshacl import validate

from dpiw.cli.main import main
from dpiw.data.documents import document_json
from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ChecksumError, ManifestError, SchemaError, SpecError, shown
from dpiw.plan.calendar import days_of
from dpiw.plan.drafts.ddi import read_ddi
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release import parquet
from dpiw.release.croissant import CatalogueEntry
from dpiw.release.verification import VerifiedRelease, verify
from dpiw.series.catalogues import CATALOGUES
from dpiw.series.catalogues.forms import catalogue, catalogues, filled
from tests.dpiw.release.release_example import (
    SCHEMA,
    example_certificate,
    example_frame,
    publish_example,
)
from tests.support.catalogue_schemas import DDI_ORDER, DEPLOYMENT, PROV_SHAPES, SHAPES
from tests.support.undrawn import draw_no_figures

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
"""rdflib warns its own parser of its own classes."""

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
BASE = "https://example.org/releases/r1/"
NAMES = ("external-measured", "levels-none", "privbayes-none", "mst-measured")
"""Rows made elsewhere; found levels and no weights; no weights; weights."""
KINDS = (*NAMES, "persons", "parts", "replaced")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, VerifiedRelease]:
    """A verified release of each of KINDS."""
    root = tmp_path_factory.mktemp("releases")
    with tarfile.open(GOLDEN / "releases.tar.xz") as packed:
        packed.extractall(root, filter="data")
    folders = {name: root / name for name in NAMES}
    replaced = PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE)
    with pytest.MonkeyPatch.context() as patch:
        draw_no_figures(patch.setattr)
        for name in ("persons", "replaced", "parts"):
            (root / name).mkdir()
        folders["persons"] = publish_example(root / "persons")
        certificate = example_certificate(
            unit=replaced, delta="0", spent_delta="0", period="2027-w05",
        )  # fmt: skip
        folders["replaced"] = publish_example(root / "replaced", certificate)
        patch.setattr(parquet, "PART_ROWS", 64)
        frames = (example_frame()[start : start + 64] for start in range(0, 200, 64))
        folders["parts"] = publish_example(root / "parts", frames=frames)
    return {name: verify(folder) for name, folder in folders.items()}


@pytest.fixture(params=[(kind, base) for kind in KINDS for base in (None, BASE)], ids=str)
def described(
    request: pytest.FixtureRequest, releases: dict[str, VerifiedRelease]
) -> tuple[VerifiedRelease, dict[str, bytes]]:
    kind, base = request.param
    return releases[kind], catalogues(releases[kind], base_url=base)


Written = tuple[VerifiedRelease, dict[str, bytes]]


def graph_of(data: bytes) -> rdflib.Graph:
    return rdflib.Graph().parse(data=data.decode(), format="json-ld")


def conforms(data: bytes, shapes: str) -> str:
    """Return why it does not; empty if it does."""
    graph = rdflib.Graph().parse(data=shapes, format="turtle")
    agrees, _, why = validate(graph_of(data), shacl_graph=graph, inference="none")
    return "" if agrees else why


@pytest.mark.slow
def test_the_same_release_gives_the_same_bytes(releases: dict[str, VerifiedRelease]) -> None:
    for release in releases.values():
        one, other = (catalogues(release, base_url=BASE) for _ in range(2))
        assert one == other
        assert list(one) == list(CATALOGUES.values())


def test_croissant_is_valid_without_a_warning(
    described: Written, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    release, written = described
    page = tmp_path / "croissant.json"
    page.write_bytes(written["croissant.json"])
    issues = mlcroissant.Dataset(page).metadata.ctx.issues
    assert not issues.errors | issues.warnings
    assert not caplog.records
    document = json.loads(written["croissant.json"])
    sums = {file["name"]: file["sha256"] for file in document["distribution"] if "sha256" in file}
    assert sums == {
        name: entry.sha256
        for name, entry in release.manifest.files.items()
        if name.endswith(".parquet")
    }
    fields = {field["name"]: field["description"] for field in document["recordSet"][0]["field"]}
    assert list(fields) == [column.name for column in release.manifest.facts.columns]
    weighted = release.certificate.weights["method"] != "none"
    assert ("must use it" in fields["weight"]) is weighted


@pytest.mark.parametrize("kind", ["persons", "parts"])
def test_a_release_s_own_page_loads_its_rows(
    kind: str, releases: dict[str, VerifiedRelease]
) -> None:
    """The folder's `croissant.json` is the one that catalogues get; a column has spaces."""
    folder = releases[kind].folder
    page = (folder / "croissant.json").read_bytes()
    assert page == catalogue(releases[kind], "croissant")
    records = list(mlcroissant.Dataset(folder / "croissant.json").records("rows"))
    weights = [record["rows/weight"] for record in records]
    assert len(weights) == releases[kind].manifest.facts.rows
    assert np.mean(weights) == pytest.approx(1)
    assert {record["rows/column/4"] for record in records} == {b"female", b"male", b"<i>x</i>"}


def test_dcat_conforms_and_lists_checksums(described: Written) -> None:
    release, written = described
    assert conforms(written["dcat.jsonld"], SHAPES) == ""
    graph = graph_of(written["dcat.jsonld"])
    spdx = rdflib.Namespace("http://spdx.org/rdf/terms#")
    sums = {str(value).lower() for value in graph.objects(None, spdx.checksumValue)}
    files = release.manifest.files
    listed = {
        *(n for n in files if n.endswith(".parquet")), "certificate.json", "schema.json",
        "report.html",
    }  # fmt: skip
    assert sums == {files[name].sha256 for name in listed}
    starts = {str(day) for day in graph.objects(None, rdflib.DCAT.startDate)}
    expected = {"2027-q1": {"2027-01-01"}, "2027-w05": {"2027-02-01"}, "once": set()}
    assert starts == expected[release.certificate.period]
    downloads = {str(url) for url in graph.objects(None, rdflib.DCAT.downloadURL)}
    assert downloads in ({f"{BASE}{name}" for name in listed}, set())


def test_the_shapes_refuse_what_dcat_ap_refuses(releases: dict[str, VerifiedRelease]) -> None:
    page = json.loads(catalogue(releases["persons"], "dcat"))
    for name in ("dct:title", "dct:description"):
        bad = {**page["@graph"][0]}
        del bad[name]
        assert conforms(document_json({**page, "@graph": [bad]}), SHAPES)
    page["@graph"][0]["dcat:distribution"][0].pop("dcat:accessURL")
    assert conforms(document_json(page), SHAPES)


def test_ddi_keeps_the_order_and_our_own_reader_reads_it(
    described: Written, tmp_path: Path
) -> None:
    release, written = described
    root = ElementTree.fromstring(written["ddi.xml"])
    seen = set()
    for element in root.iter():
        name = element.tag.removeprefix("{ddi:codebook:2_5}")
        children = [child.tag.removeprefix("{ddi:codebook:2_5}") for child in element]
        order = DDI_ORDER.get(name, " ".join(dict.fromkeys(children))).split()
        places = [order.index(child) for child in children]
        assert places == sorted(places), name
        seen.add(element.get("ID"))
    space = {"d": "ddi:codebook:2_5"}
    for variable in root.iterfind(".//d:var", space):
        assert {*variable.get("files", "").split()} <= seen
        assert variable.get("wgt-var", "weight") in seen
    (weight,) = root.iterfind(".//d:var[@wgt='wgt']", space)
    assert weight.get("name") == "weight"
    (tmp_path / "ddi.xml").write_bytes(written["ddi.xml"])
    drafts = {draft.name: draft for draft in read_ddi(tmp_path / "ddi.xml").columns}
    schema = PublicSchema.from_mapping(json.loads((release.folder / "schema.json").read_bytes()))
    assert list(drafts) == [*(c.name for c in schema.released), "weight", "log_weight"]
    for column in schema.released:
        draft = drafts[column.name]
        assert draft.levels == column.level_names
        if column.kind in (ColumnKind.INTEGER, ColumnKind.CONTINUOUS):
            assert (float(draft.lower), float(draft.upper)) == (column.lower, column.upper)


def test_prov_conforms_and_names_the_source_as_the_certificate_does(described: Written) -> None:
    release, written = described
    assert conforms(written["prov.jsonld"], PROV_SHAPES) == ""
    graph, certificate = graph_of(written["prov.jsonld"]), release.certificate
    used = {str(node).split("#")[-1] for node in graph.objects(None, rdflib.PROV.used)}
    stages = {stage.stage for stage in certificate.stages}
    assert used == {"confidential-table", *(f"measurement-{stage}" for stage in stages)}
    labels = {str(label) for label in graph.objects(None, rdflib.RDFS.label)}
    assert f"Holder of the signing key {release.key_id}" in labels
    declared = "Rows made elsewhere by sdg 1; their cost is declared"
    assert (declared in labels) is (certificate.declared is not None)
    notes = " ".join(map(str, graph.objects(None, rdflib.RDFS.comment)))
    assert all(stage.method in notes for stage in certificate.stages)


def test_the_registry_takes_the_record_once_its_curator_completed_it(described: Written) -> None:
    """Nothing but what dpiw cannot know is missing; nothing has to be corrected."""
    release, written = described
    record = yaml.safe_load(written["registry.yaml"])
    checker = jsonschema.Draft7Validator(
        DEPLOYMENT, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
    )
    missing = sorted(error.message for error in checker.iter_errors(record))
    wanted = ("data_curator_type", "data_product_region", "intended_use")
    assert missing == [f"{name!r} is a required property" for name in wanted]
    head = written["registry.yaml"].decode().split("url_slug")[0]
    assert all(name in head for name in wanted)
    basic = record["deployment"]["basic"]
    basic |= {"intended_use": "research", "data_product_region": "Utopia"}
    basic["data_curators"][0]["data_curator_type"] = "Government"
    assert not [*checker.iter_errors(record)]
    certificate, loss = release.certificate, record["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == float(certificate.epsilon)
    assert loss["privacy_parameters"].get("delta", 0) == float(certificate.delta)
    pure = record["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert pure is (float(certificate.delta) == 0)


def test_the_guidelines_page_answers_every_layer_and_says_what_is_not_covered(
    described: Written,
) -> None:
    release, written = described
    page = written["sp800-226.html"].decode()
    layers = ("guarantee", "Algorithms", "Utility", "Trust", "Security", "Data collection")
    assert all(layer in page for layer in layers)
    certificate = release.certificate
    assert f"epsilon={certificate.epsilon}, delta={certificate.delta}" in page
    assert page.count("Not covered by dpiw") >= 3
    assert ("its cost is declared" in page) is (certificate.declared is not None)
    assert "<script" not in page


@pytest.fixture
def release_of(releases: dict[str, VerifiedRelease]) -> Callable[[str], VerifiedRelease]:
    """A function, as Hypothesis prints what it is given."""
    return lambda kind: releases[kind]


TEXTS = st.text(min_size=1, max_size=40) | st.sampled_from(
    [
        "</script><b>",
        "]]>&x;",
        "\x00\x1b[2J\u202e",
        "a\r\nb: {c}",
        "'\"\\",
        "$x^2$ [l](u)",
        "\ufffe",
    ]
)


@settings(derandomize=True, database=None, deadline=None, max_examples=30,
          phases=[Phase.explicit, Phase.generate],
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(foreign=TEXTS, where=st.sampled_from(["", BASE]))
@pytest.mark.slow
def test_no_text_breaks_out_of_a_format(
    release_of: Callable[[str], VerifiedRelease], foreign: str, where: str
) -> None:
    """Control characters, tags, quotes and Markdown stay text in each form.

    Certificates and dictionaries refuse control characters; `croissant.json` may hold any.
    """
    release, plain = release_of("external-measured"), shown(foreign, most=None)
    certificate = replace(
        release.certificate, assumptions=(plain,), caveats=(plain,), verdict_rule=plain,
        post_processing=(plain,), versions={plain: plain}, accountants={plain: plain},
    )  # fmt: skip
    columns = [*SCHEMA.columns]
    changes = [(1, "description", foreign), (1, "name", foreign), (4, "levels", (foreign, "b"))]
    for place, name, value in changes:
        with suppress(SchemaError):
            columns[place] = replace(columns[place], **{name: value})
    told = (
        replace(release, certificate=certificate), replace(SCHEMA, columns=tuple(columns)),
        CatalogueEntry(licence=foreign, url=foreign, creator=foreign), where,
    )  # fmt: skip
    pages = [filled(form, *told) for form in CATALOGUES]
    assert json.loads(pages[0])["creator"]["name"] == foreign
    names = graph_of(pages[1]).objects(None, rdflib.FOAF.name)
    assert [str(name) for name in names] == [plain]
    assert plain in {str(label) for label in graph_of(pages[3]).objects(None, rdflib.RDFS.label)}
    root = ElementTree.fromstring(pages[2])
    assert root.findtext(".//{*}AuthEnty") == plain
    assert root.findtext(".//{*}conditions") == plain
    names = [variable.get("name") for variable in root.iterfind(".//{*}var")]
    assert names[:-2] == [column.name for column in told[1].released]
    levels = [level.text or "" for level in root.iterfind(".//{*}catValu")]
    assert {*columns[4].level_names} <= {*levels}
    curator = yaml.safe_load(pages[4])["deployment"]["basic"]["data_curators"][0]
    assert re.sub(r"\\(.)", r"\1", curator["data_curator_name"]) == plain
    assert pages[5].decode().count("<li>") == 2


def test_what_is_no_address_and_what_was_changed_is_refused(
    releases: dict[str, VerifiedRelease], tmp_path: Path
) -> None:
    release = releases["persons"]
    for address in (
        "",
        "example.org",
        "javascript:alert(1)",
        "https://e.org/a b",
        "https://e.org/<",
    ):
        with pytest.raises(SpecError, match="base_url"):
            catalogue(release, "dcat", base_url=address)
    assert catalogue(release, "dcat", base_url=BASE.rstrip("/")) == catalogue(
        release, "dcat", base_url=BASE
    )
    for name in ("schema.json", "croissant.json"):
        (tmp_path / name).write_bytes((release.folder / name).read_bytes())
    with (tmp_path / "schema.json").open("ab") as file:
        file.write(b" ")
    with pytest.raises(ChecksumError, match=r"schema\.json"):
        catalogue(replace(release, folder=tmp_path), "ddi")
    page = document_json({"license": 1, "url": "u", "creator": {"name": "n"}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpiw.release.croissant.parse_canonical", lambda data, what: json.loads(page))
        with pytest.raises(ManifestError, match=r"croissant\.json"):
            catalogue(release, "ddi")


@pytest.mark.parametrize(
    ("label", "first", "last"),
    [
        ("2027-03-31", "2027-03-31", "2027-03-31"), ("2026-w53", "2026-12-28", "2027-01-03"),
        ("2028-02", "2028-02-01", "2028-02-29"), ("2027-q4", "2027-10-01", "2027-12-31"),
        ("2027-12", "2027-12-01", "2027-12-31"), ("2027", "2027-01-01", "2027-12-31"),
    ],
)  # fmt: skip
def test_a_label_names_days(label: str, first: str, last: str) -> None:
    days = days_of(label)
    assert days is not None
    assert [str(day) for day in days] == [first, last]


@pytest.mark.parametrize("label", ["once", "2027-13", "2027-w54", "2027-02-30", "2027-q5", "0000"])
def test_other_labels_name_none(label: str) -> None:
    assert days_of(label) is None


def test_describe_prints_each_form(
    releases: dict[str, VerifiedRelease], capsys: pytest.CaptureFixture[str]
) -> None:
    release = releases["persons"]
    for form in CATALOGUES:
        assert main(["describe", str(release.folder), "--catalogue", form]) == 0
        assert capsys.readouterr().out == catalogue(release, form).decode()
