"""The custodian's statement gives no advice that carries a count into a published field.

Attack: a curator obeys every word of advice. Where advice about a field of the data dictionary
appears at a threshold, two neighbouring tables end in two published dictionaries at epsilon 0.
"""

import re

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.cells.formats import CANONICAL, FORMAT_FIELDS
from dpiw.data.cells.reading import canonical_frame, settled_formats
from dpiw.data.cells.statement import CellTally, statement
from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema

PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=15)

KINDS = {
    "continuous": ({"lower": 0, "upper": 9}, "5"),
    "integer": ({"lower": 0, "upper": 9}, "5"),
    "boolean": ({}, "true"),
    "categorical": ({"levels": ["a", "b"]}, "a"),
    "ordinal": ({"levels": ["a", "b"], "other": "b"}, "a"),
    "date": ({"lower": "2020-01-01", "upper": "2020-12-31"}, "2020-05-05"),
    "datetime": ({"lower": "2020-01-01", "upper": "2020-12-31"}, "2020-05-05T10:00"),
}
ODD = ["", "n/a", "A", "ja", "99", "5.5", "-9", "1999-01-01", "5,5", "31.12.2020", "5-", "45373"]
PUBLISHED = {*Column.__dataclass_fields__} - {"name", "kind", "role", "written"} | {"missing"}


def told(kind, cells, **change):
    """The statement of one column beside one that is always there."""
    public, _ = KINDS[kind]
    columns = [{"name": "x", "kind": kind, **public, **change},
               {"name": "kept", "kind": "integer", "lower": 0, "upper": 1}]  # fmt: skip
    schema = PublicSchema.from_mapping({"name": "s", "columns": columns})
    frame = pd.DataFrame({"x": cells, "kept": ["1"] * len(cells)}, dtype="str")
    formats = settled_formats(schema, CANONICAL, file_format="csv")
    tally = CellTally(schema)
    tally.add(frame, canonical_frame(frame, schema, formats))
    return statement(tally, formats=formats, kept=len(cells))


def words(text):
    """The statement without its figures, and without the width that they gave the table."""
    return re.sub(r"[ -]*\b\d[\d,]*\b", " #", re.sub(r" {2,}", " ", text))


def advice(text):
    """Fields in advice: behind `declare`, `see`, or in the back quotes that all fields stand in."""
    return {*re.findall(r"declare (\w+)", text), *re.findall(r"and (\w+):", text),
            *re.findall(r"`([\w.]+)(?::[^`]*)?`", text)}  # fmt: skip


@pytest.mark.nightly_cases("-every")
@pytest.mark.parametrize("which", ["a third", "every"])
@pytest.mark.parametrize("kind", KINDS)
def test_words_are_the_same_at_every_count(kind, which):
    """Also at former thresholds: a hundredth and half of the rows, and three cells.

    A third of the odd cells for each kind: each cell is met by two kinds or three.
    """
    good, start = KINDS[kind][1], [*KINDS].index(kind) % 3
    for odd in ODD if which == "every" else ODD[start::3]:
        shown = {
            words(told(kind, [good] * (rows - count) + [odd] * count))
            for rows, count in [(500, 5), (501, 6), (500, 1), (500, 4), (10, 6)]
        }
        assert len(shown) == 1, odd


@PROPERTY
@given(
    kind=st.sampled_from([*KINDS]),
    cells=st.lists(st.sampled_from([*ODD, "x", "y", "z", "w", "?"]), max_size=20),
    nullable=st.booleans(),
)
def test_no_advice_names_a_published_field(kind, cells, nullable):
    named = advice(told(kind, cells, nullable=nullable))
    assert named <= {"source.encoding", *FORMAT_FIELDS} - {"missing"}
    assert not named & PUBLISHED


@PROPERTY
@given(
    kind=st.sampled_from([*KINDS]),
    odd=st.sampled_from(ODD),
    counts=st.tuples(st.integers(0, 60), st.integers(1, 60)),
)
@pytest.mark.slow
def test_a_neighbour_is_told_the_same(kind, odd, counts):
    """One more row of a sort that is there: no line comes or goes, and no word changes."""
    good, (many, some) = KINDS[kind][1], counts
    cells = [good] * (many + 1) + [odd] * some
    assert words(told(kind, cells)) == words(told(kind, [*cells, odd]))
    assert words(told(kind, cells)) == words(told(kind, [*cells, good]))


def test_what_a_file_looks_like_is_no_part_of_a_published_dictionary():
    """Advice that may be obeyed: the release of who obeyed it has the same dictionary."""
    column = {"name": "x", "kind": "continuous", "lower": 0, "upper": 9}
    plain, abroad = (
        PublicSchema.from_mapping({"name": "s", "columns": [column | written]})
        for written in ({}, {"decimal": ",", "thousands": ".", "missing": ["-9"]})
    )
    assert plain.published_mapping() == abroad.published_mapping() == plain.to_mapping()
    assert PublicSchema.from_mapping(abroad.published_mapping()) == abroad
