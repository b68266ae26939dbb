"""The release's variables as a DDI codebook, for data archives.

Source: DDI-Codebook 2.5 (DDI Alliance), whose order of elements this file keeps. It writes no
`sumStat` and no `catStat`: statistics of a release are estimates, and belong with their intervals.
"""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.release.croissant import weight_description
from dpiw.release.parquet import LOG_WEIGHT, WEIGHT, WEIGHT_ROLES
from dpiw.series.catalogues.described import Described, text, url_of

_NATURE = {
    ColumnKind.CATEGORICAL: "nominal",
    ColumnKind.BOOLEAN: "nominal",
    ColumnKind.ORDINAL: "ordinal",
    ColumnKind.CONTINUOUS: "ratio",
    ColumnKind.INTEGER: "ratio",
    ColumnKind.DATE: "interval",
    ColumnKind.DATETIME: "interval",
}
_MOST_CATEGORIES = 4096


def ddi_xml(release: Described) -> bytes:
    """Write the codebook: study, files and variables, with categories, ranges and weights."""
    root = Element("codeBook", {"xmlns": "ddi:codebook:2_5", "version": "2.5", "xml:lang": "en"})
    _study(root, release)
    files = [f"F{place}" for place in range(1, len(release.row_files) + 1)]
    for file, name in zip(files, release.row_files, strict=True):
        _file(root, release, file, name)
    variables = SubElement(root, "dataDscr")
    for place, column in enumerate(release.schema.released, start=1):
        _variable(variables, column, place, files, is_weighted=release.certificate.is_weighted)
    for weight_name, described in (
        (WEIGHT, weight_description(release.certificate)),
        (LOG_WEIGHT, WEIGHT_ROLES[LOG_WEIGHT]),
    ):
        kind = {"ID": weight_name, "name": weight_name, "files": " ".join(files)}
        is_weight = {"wgt": "wgt"} if weight_name == WEIGHT else {}
        weight = SubElement(variables, "var", kind | is_weight | {"intrvl": "contin"})
        _add(weight, "labl", described, level="variable")
        _add(weight, "varFormat", type="numeric")
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _add(parent: Element, name: str, value: str | None = None, **attributes: str) -> Element:
    child = SubElement(parent, name, {key: text(each) for key, each in attributes.items()})
    child.text = None if value is None else text(value)
    return child


def _study(root: Element, release: Described) -> None:
    facts = release.certificate
    study = SubElement(root, "stdyDscr")
    citation = SubElement(study, "citation")
    title = SubElement(citation, "titlStmt")
    _add(title, "titl", release.title)
    _add(title, "IDNo", facts.release_id)
    if release.creator is not None:
        _add(SubElement(citation, "rspStmt"), "AuthEnty", release.creator)
    day = release.facts.published_at[:10]
    _add(SubElement(citation, "distStmt"), "distDate", day, date=day)
    if release.page is not None:
        _add(citation, "holdings", URI=release.page)
    info = SubElement(study, "stdyInfo")
    _add(info, "abstract", release.description)
    summary = SubElement(info, "sumDscr")
    for event, moment in zip(("start", "end"), release.days or (), strict=False):
        _add(summary, "timePrd", str(moment), date=str(moment), event=event)
    _add(summary, "universe", facts.population)
    _add(summary, "dataKind", "synthetic microdata")
    method = SubElement(study, "method")
    _add(SubElement(method, "dataColl"), "weight", weight_description(facts))
    for caveat in facts.caveats:
        _add(method, "notes", caveat)
    use = SubElement(SubElement(study, "dataAccs"), "useStmt")
    if release.licence is not None:
        uri = {"URI": release.licence} if url_of(release.licence) else {}
        _add(use, "conditions", release.licence, **uri)
    _add(use, "disclaimer", release.guarantee)


def _file(root: Element, release: Described, place: str, name: str) -> None:
    address = {"URI": release.file_name(name)} if release.base_url else {}
    file = SubElement(root, "fileDscr", {"ID": place, **address})
    content = SubElement(file, "fileTxt")
    _add(content, "fileName", name)
    size = SubElement(content, "dimensns")
    if len(release.row_files) == 1:  # the manifest counts the rows of all files together
        _add(size, "caseQnty", str(release.facts.rows))
    _add(size, "varQnty", str(len(release.facts.columns)))
    _add(content, "fileType", "Apache Parquet")
    checked = release.release.manifest.files[name].sha256
    _add(file, "notes", checked, type="checksum", subject="SHA-256")


def _variable(
    parent: Element, column: Column, place: int, files: list[str], *, is_weighted: bool
) -> None:
    kind = {"ID": f"V{place}", "name": text(column.name), "files": " ".join(files)}
    if is_weighted:
        kind["wgt-var"] = WEIGHT
    if column.kind is ColumnKind.CONTINUOUS:
        kind["dcml"] = str(max(column.released_decimals, 0))
    kind["intrvl"] = "contin" if column.is_numeric else "discrete"
    variable = SubElement(parent, "var", kind | {"nature": _NATURE[column.kind]})
    _add(variable, "labl", column.description or column.name, level="variable")
    if column.is_numeric:
        _range(variable, column)
    if column.provenance:
        _add(variable, "txt", f"Bounds or levels are from: {column.provenance}")
    for level in column.level_names[:_MOST_CATEGORIES]:
        category = SubElement(variable, "catgry")
        _add(category, "catValu", level)
        _add(category, "labl", level, level="category")
    is_time = column.kind in (ColumnKind.DATE, ColumnKind.DATETIME)
    _add(
        variable, "varFormat", type="numeric" if column.is_numeric and not is_time else "character",
        category="date" if is_time else "other",
    )  # fmt: skip
    if column.nullable:
        _add(variable, "notes", "A cell may be missing; that is a value of its own.")


def _range(variable: Element, column: Column) -> None:
    valid = SubElement(variable, "valrng")
    if column.values:
        for value in column.values:
            _add(valid, "item", VALUE=str(value))
        return
    whole = column.kind is not ColumnKind.CONTINUOUS
    _add(
        valid, "range", UNITS="INT" if whole else "REAL", min=str(column.lower),
        max=str(column.upper),
    )  # fmt: skip
