"""A draft as files: the data dictionary and a first release spec, with open fields as `TODO`.

`dpiw plan` refuses both files until the last `TODO` is gone.
"""

import json
import math
import re
import tempfile
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from dpiw.data.schema.columns import ColumnRole
from dpiw.data.schema.dictionary import OPEN, read_dictionary, refuse_open
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.yaml import MAX_BYTES, load_text
from dpiw.errors import SchemaError, SpecError
from dpiw.plan.drafts.draft import ColumnDraft, TableDraft
from dpiw.plan.plan import compile_plan
from dpiw.plan.sections import MOST_ROWS_EACH
from dpiw.plan.spec import check_fit, located_spec, parse_spec

DICTIONARY, SPEC = "schema.yaml", "release.yaml"
_PLAIN = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_WORDS = frozenset({"true", "false", "null"})
_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "æ": "ae", "œ": "oe", "ø": "oe", "ł": "l"}
)
"""Plain spelling of letters for which dropping the mark is wrong or impossible."""

_LINE = 120
"""Most characters of a column on one line."""

_HEAD = """\
# Draft of a public data dictionary, made by `dpiw init` {origin}.
#
# No row was read. Everything here is public: settle each {open} by a law, a form, a codebook or an
# earlier release, never by looking at the confidential table. Check the settled fields too: a
# codebook made from the table may state what the table holds, not what can occur.
#
# Instead of `kind: {open}` goes one of these, with bounds or levels of your own:
#   kind: integer, lower: 0, upper: 110, provenance: law
#   kind: continuous, lower: 0, upper: 500000, provenance: codebook
#   kind: date, lower: 2020-01-01, upper: 2029-12-31, provenance: "other: the form of 2020"
#   kind: categorical, levels: [north, south], provenance: earlier release
#   kind: ordinal, levels: [low, high], provenance: law
#   kind: boolean
# Nothing shows where people are within a bin: give wide bounds `cuts` where most are, such as
#   kind: continuous, lower: 0, upper: 500000, cuts: [10000, 20000, 40000, 80000, 160000]
# `nullable: true`: a missing cell is a value of its own. That costs accuracy, and some synthetic
# cells are missing even if none of the table is: delete it where the form lets no cell be empty.
# A column that is not to be released, such as free text: {{name: NAME, role: identifier}}.
# All fields: docs/spec.md, `dpiw schema dictionary`.
"""


def dictionary_text(draft: TableDraft, *, name: str, origin: str) -> str:
    """Return the data dictionary; SchemaError if it is too large.

    `origin`: source of the draft, in our words.
    """
    lines = [_HEAD.format(origin=origin, open=OPEN), f"name: {_value(name)}\ncolumns:"]
    for column in draft.columns:
        lines += _column_lines(column)
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > MAX_BYTES:
        raise SchemaError(f"the draft is larger than {MAX_BYTES} bytes; draft fewer columns")
    return text


def _column_lines(column: ColumnDraft) -> Iterator[str]:
    values = column.to_mapping()
    if column.role is not ColumnRole.IDENTIFIER:
        values |= dict.fromkeys(_open(column), OPEN)
        values.setdefault("nullable", True)
    order = ("name", "kind", "role", "nullable", "lower", "upper", "levels")
    names = dict.fromkeys((*(field for field in order if field in values), *values))
    fields = [f"{field}: {_value(values[field])}" for field in names]
    line = f"  - {{{', '.join(fields)}}}"
    yield line if len(line) <= _LINE else "  - " + "\n    ".join(fields)
    yield from (f"    # {note}" for note in column.notes)


def _open(column: ColumnDraft) -> Iterator[str]:
    if column.kind is None:
        yield "kind"
    if column.needs_bounds and column.lower is None:
        yield "lower"
    if column.needs_bounds and column.upper is None:
        yield "upper"
    if column.needs_levels and not column.levels:
        yield "levels"
    if (column.needs_bounds or column.needs_levels) and not column.provenance:
        yield "provenance"


def _value(value: Any) -> str:
    """Write a value in YAML as `dpiw.data.yaml` reads it, in JSON's quotes where needed."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


METHODS = ("measured", "none")
"""Weights of a draft; it uses the first that a plan accepts."""


def drafted_files(
    draft: TableDraft, *, name: str, origin: str, delimiter: str = ",", encoding: str = "utf-8"
) -> dict[str, str]:
    """Return a draft's files by name; `origin`: source of the draft, in our words.

    Raises SchemaError or SpecError if no plan accepts them with made-up values.
    """
    dictionary = dictionary_text(draft, name=name, origin=origin)
    faults: list[SpecError] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        stand_in = dictionary_text(draft.settled(), name=name, origin=origin)
        (folder / DICTIONARY).write_text(stand_in, encoding="utf-8")
        schema = PublicSchema.from_mapping(read_dictionary(folder / DICTIONARY))
        for weights in METHODS:
            text = spec_text(
                draft, name=name, delimiter=delimiter, encoding=encoding, weights=weights
            )
            spec = located_spec(parse_spec(_settled_spec(text)), folder)
            try:
                check_fit(spec, schema)
                compile_plan(spec, schema)
            except SpecError as fault:
                faults.append(fault)
            else:
                return {DICTIONARY: dictionary, SPEC: text}
    raise faults[-1]


def _settled_spec(text: str) -> dict[str, Any]:
    mapping: dict[str, Any] = load_text(text, what=SPEC, exact=True)
    mapping["source"]["path"] = "table.csv"
    mapping |= {"epsilon": Decimal(1), "delta": Decimal("1e-6"), "nominal_rows": 10_000}
    if "unit" in mapping and mapping["unit"]["max_rows"] == OPEN:
        mapping["unit"]["max_rows"] = 1
    refuse_open(mapping, what=SPEC, error=SpecError)
    return mapping


def spec_text(
    draft: TableDraft,
    *,
    name: str,
    delimiter: str = ",",
    encoding: str = "utf-8",
    weights: str = METHODS[0],
) -> str:
    """Return a first release spec for the dictionary, with decisions left open."""
    between = "" if delimiter == "," else f"\n  delimiter: {_value(delimiter)}"
    between += "" if encoding == "utf-8" else f"\n  encoding: {encoding}"
    person = next(
        (column.name for column in draft.columns if column.role is ColumnRole.IDENTIFIER), None
    )
    if person == OPEN:
        fault = f"{OPEN} marks an open field of a draft; rename the column, in the table too"
        raise SchemaError(fault, field=f"column {OPEN}: name")
    rows = OPEN if (draft.max_rows or math.inf) > MOST_ROWS_EACH else draft.max_rows
    unit = _UNIT.format(column=_value(person), rows=rows) if person else _ROW
    return _SPEC.format(
        name=_value(name),
        unit=unit,
        open=OPEN,
        dictionary=DICTIONARY,
        between=between,
        weights=weights,
    )


_UNIT = """\
unit:
  id_column: {column}          # the column that names the person; read, then dropped
  max_rows: {rows}              # rows one person may have, by how the table comes about"""
_ROW = "# unit: {id_column: ..., max_rows: ...}   # if one person may have several rows"
_SPEC = """\
# Draft of a release spec, made by `dpiw init`. Everything is decided before any data is read.
# All fields: docs/spec.md.
format: 1
name: {name}
population: {name}     # whose budget pays: one name, in one ledger, for all releases about the
                       # same people; if these have one already, name it here and at `state`
cadence: once

source:
  path: {open}         # the confidential table, from this file's folder; opened by a release alone
  format: csv{between}
schema: {dictionary}

{unit}
relation: add_or_remove_one   # the promise: nobody can tell whether one person was there
epsilon: {open}        # the total of this release, at most 10: the smaller, the more private
delta: {open}          # far below one in the number of people, such as 1e-6; 0 for pure epsilon
nominal_rows: {open}   # a public guess at the size, such as a census has; never the true number

generator: {{method: auto}}     # by public facts; `dpiw plan` says which one
weights: {{method: {weights}}}
synthetic_rows: 20000  # rows to publish: any number, such as the guess above
# questions:           # what people will ask; `measured` weights then measure it directly
#   - mean: COLUMN by COLUMN   # or share, correlation, regression, quantiles, table

state: state          # ledger and confidential workspace. A new ledger knows nothing of what was
                      # spent before: people who have one are charged there, such as
                      # `state: ../gardens/state`
signing_key: keys/curator.key
publish_to: releases
"""


def dictionary_name(*candidates: str) -> str:
    """Return the first candidate with a letter or digit, in plain letters; else SchemaError."""
    for text in candidates:
        folded = unicodedata.normalize("NFC", text).casefold().translate(_LETTERS)
        letters = unicodedata.normalize("NFKD", folded)
        bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
        plain = re.sub(r"[^a-z0-9_-]+", "-", bare).strip("-_")[:63]
        if plain:
            return plain
    raise SchemaError(field="--name", allowed="lower-case letters, digits, `-` and `_`")


def next_commands(folder: str) -> list[str]:
    """Return the next commands to type; capital letters mark a decision."""
    return [
        f'dpiw plan {folder}/{SPEC} --header "$(head -n 1 TABLE)"   # free: compares the names',
        f"dpiw rehearse {folder}/{SPEC}   # free; minutes for few columns, more for a dozen",
        f"dpiw key new {folder}/keys/curator",
        f"dpiw ledger register --spec {folder}/{SPEC} --create --epsilon E --delta D   # for life",
        f"dpiw release {folder}/{SPEC}",
    ]
