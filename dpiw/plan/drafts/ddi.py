"""DDI-Codebook, the archives' XML (https://ddialliance.org/ddi-codebook).

Statistics in a codebook (`sumStat`, `catStat`) come from the table and are not taken. A valid range
that equals the table's minimum and maximum stays open: programs often copy it from there.
"""

import contextlib
from pathlib import Path
from xml.etree import ElementTree

from dpiw.data.schema.columns import ColumnKind
from dpiw.errors import SchemaError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft, bounds, number, texts
from dpiw.plan.drafts.reading import one_of, read_text

_WHAT = "DDI-Codebook"
_FROM_TABLE = "the codebook's range is the least and largest value of the table, so it is open"
_CODES = (
    "does the codebook list every code that may occur, or those that did? Only the first will do"
)


def read_ddi(path: Path, *, table: str | None = None) -> TableDraft:
    """Draft from a codebook (`table`: a `fileDscr` ID); SchemaError for others and entities."""
    root = _parsed(read_text(path, suffixes=(".xml",), what=_WHAT))
    files: dict[str, list[ElementTree.Element]] = {}
    for variable in root.iter("var"):
        files.setdefault(variable.get("files", ""), []).append(variable)
    _, chosen = one_of(files, table, what=_WHAT)
    return TableDraft(columns=tuple(map(_column, chosen)))


def _parsed(text: str) -> ElementTree.Element:
    """Parse the tree; refuse a DTD before its entities could be expanded or fetched."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise SchemaError("holds <!DOCTYPE or <!ENTITY, which is refused; delete it", field=_WHAT)
    with contextlib.suppress(ElementTree.ParseError, ValueError):
        root = ElementTree.fromstring(text)  # noqa: S314 - no entities, as refused above
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]  # without its namespace
        return root
    raise SchemaError("is not well-formed XML; export the codebook again", field=_WHAT)


def _text(element: ElementTree.Element | None) -> str:
    return "" if element is None else "".join(element.itertext()).strip()


def _column(variable: ElementTree.Element) -> ColumnDraft:
    codes = {
        _text(category.find("catValu")): _text(category.find("labl"))
        for category in variable.findall("catgry")
        if category.get("missing") != "Y"
    }
    kind = _kind(variable, has_codes=bool(codes))
    coded = kind is ColumnKind.CATEGORICAL and bool(codes)
    legend = ", ".join(f"{code}={label}" for code, label in codes.items()) if coded else ""
    low, high, notes = _range(variable)
    limits = bounds(kind, low, high)
    notes = (*notes, *limits.pop("notes"))
    return ColumnDraft(
        name=variable.get("name", ""),
        kind=kind,
        **limits,
        levels=texts(codes) if coded else (),
        decimals=_decimals(variable),
        written=_missing(variable),
        description=_text(variable.find("labl")) + (f" ({legend})" if legend else ""),
        notes=(*notes, _CODES) if coded else notes,
        provenance="codebook: DDI-Codebook",
    ).admissible()


def _missing(variable: ElementTree.Element) -> dict[str, list[str]]:
    categories = [
        category for category in variable.findall("catgry") if category.get("missing") == "Y"
    ]
    invalid = [item.get("VALUE", "") for item in variable.findall("invalrng/item")]
    tokens = texts([*(_text(category.find("catValu")) for category in categories), *invalid])
    return {"missing": [token for token in tokens if token]} if any(tokens) else {}


def _range(variable: ElementTree.Element) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return the valid range, open if it is the table's own, and notes."""
    ranges = variable.findall("valrng/range")
    if len(ranges) != 1:
        return None, None, ()
    valid_range = {end: ranges[0].get(end) for end in ("min", "max")}
    statistics = {
        statistic.get("type"): number(_text(statistic)) for statistic in variable.findall("sumStat")
    }
    limits = {
        end: value
        for end, value in valid_range.items()
        if statistics.get(end) is None or number(value) != statistics[end]
    }
    return limits.get("min"), limits.get("max"), () if limits == valid_range else (_FROM_TABLE,)


def _kind(variable: ElementTree.Element, *, has_codes: bool) -> ColumnKind | None:
    form = variable.find("varFormat")
    attributes = {} if form is None else form.attrib
    if (
        "date" in attributes.get("category", "")
        or "date" in attributes.get("formatname", "").casefold()
    ):
        return ColumnKind.DATE
    if has_codes and variable.get("intrvl") != "contin":
        return ColumnKind.CATEGORICAL
    if attributes.get("type") == "character":
        return ColumnKind.CATEGORICAL
    if attributes.get("type") == "numeric":
        return ColumnKind.CONTINUOUS if _decimals(variable) else ColumnKind.INTEGER
    return None


def _decimals(variable: ElementTree.Element) -> int | None:
    form = variable.find("varFormat")
    digits = variable.get("dcml", "") or ("" if form is None else form.get("dcml", ""))
    return int(digits) if digits.isdecimal() and len(digits) < 3 and int(digits) > 0 else None
