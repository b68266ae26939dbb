"""Texts that look alike are one before anything is counted or compared; so are minus signs."""

import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.cells.counts import count_cells
from dpiw.data.cells.formats import CANONICAL, CellFormat
from dpiw.data.cells.plain import MINUS_SIGNS, one_form
from dpiw.data.cells.reading import canonical_cells
from dpiw.data.schema.columns import Column
from dpiw.data.schema.encoding import scale_cells
from dpiw.data.source.ingest import rows_within_unit
from dpiw.errors import SchemaError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=40)
SPACES = " \u00a0\u2002\u2003\u2007\u2009\u202f\u205f\u3000"
LETTERS = "aZ\u00e9\u00fc\u00f1\u0130\u0141\u1e69\uac00\u3042\u304c\u212b\u03ce\u00df"
WORDS = st.text(LETTERS + " ", min_size=1, max_size=6).map(lambda text: f"{text}\u00e9".strip())


@st.composite
def spellings(draw, words=WORDS):
    """A word in form NFC with plain spaces, and another text that looks like it."""
    word = unicodedata.normalize("NFC", draw(words))
    other = unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD"])), word)
    other = "".join(draw(st.sampled_from(SPACES)) if sign == " " else sign for sign in other)
    return word, draw(st.sampled_from(["", *SPACES])) + other + draw(st.sampled_from(["", *SPACES]))


def scaled(column, *cells, written=CANONICAL):
    texts = canonical_cells(column, pd.Series(cells, dtype="str"), written)
    counts = count_cells(column, texts)
    return scale_cells(column, texts).tolist(), counts


@PROPERTY
@given(spellings(), st.sampled_from(["exact", "casefold"]), st.booleans())
@pytest.mark.slow
def test_a_level_is_met_in_every_form(pair, normaliser, swapped):
    """Whichever of the two the dictionary has; members and buckets too."""
    word, other = pair
    declared = unicodedata.normalize("NFD", word) if swapped else word
    for column in (
        Column(name="x", levels=("-", declared), normaliser=normaliser, nullable=True),
        Column(name="x", levels=("-", "+"), members=((), (declared,)), normaliser=normaliser,
               nullable=True),
    ):  # fmt: skip
        codes, counts = scaled(column, word, other)
        assert codes == [1, 1]
        assert counts.unknown == 0
    for column in (
        Column(name="x", hash_buckets=4096, normaliser=normaliser),
        Column(name="x", unseen=True, normaliser=normaliser, nullable=True),
    ):
        codes, _ = scaled(column, word, other)
        assert codes[0] == codes[1]
    with pytest.raises(SchemaError, match="two levels are equal"):
        Column(name="x", levels=(word, unicodedata.normalize("NFD", word)), normaliser=normaliser)


@PROPERTY
@given(spellings())
def test_a_word_of_truth_and_a_token_are_met_in_every_form(pair):
    word, other = pair
    column = Column.from_mapping(
        {"name": "x", "kind": "boolean", "true_values": [word], "false_values": ["-"],
         "nullable": True}
    )  # fmt: skip
    codes, counts = scaled(column, word, other)
    assert codes == [1, 1]
    assert counts.unreadable == 0
    column = Column(name="x", levels=("-",), nullable=True)
    written = CellFormat(**(vars(CANONICAL) | {"missing": (word,)}))
    codes, counts = scaled(column, word, other, "-", written=written)
    assert codes == [-1, -1, 0]
    assert counts.missing == 2


@PROPERTY
@given(st.lists(spellings(), min_size=1, max_size=4))
def test_a_person_is_one_in_every_form(tmp_path_factory, pairs):
    """Else the bound on rows per person counts one person twice."""
    unit = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=1, id_column="x")
    ids = pd.Series([text for pair in pairs for text in pair], dtype="str")
    column = Column.from_mapping({"name": "x", "role": "identifier"})
    kept = rows_within_unit([ids], column, unit, directory=tmp_path_factory.mktemp("ids"))
    assert kept.sum() == len({word for word, _ in pairs})


@PROPERTY
@given(st.text(max_size=40))
def test_one_form_is_total_and_reached_at_once(text):
    assert one_form(one_form(text)) == one_form(text)
    assert one_form(text) == one_form(unicodedata.normalize("NFD", text))


@pytest.mark.parametrize("sign", MINUS_SIGNS)
@pytest.mark.parametrize(
    "written",
    [CANONICAL, CellFormat(**(vars(CANONICAL) | {"decimal": ",", "thousands": "."})),
     CellFormat(**(vars(CANONICAL) | {"decimal": ",", "thousands": "space"}))],
)  # fmt: skip
def test_every_minus_sign_is_a_minus(sign, written):
    """Of numbers of every size and form; what is no number stays none."""
    numbers = ["-12", "-0.5", "-.5", "-1e-3", "2E-1", "-inf", " -7 ", "-9999", "-1234567.25"]
    others = ["5-", "1-2", "--5", "-", "-x", "(-5)"]
    mark = written.decimal
    texts = [text.replace(".", mark) for text in (*numbers, *others)]
    for kind in ("continuous", "integer"):
        column = Column.from_mapping(
            {"name": "x", "kind": kind, "lower": -2000, "upper": 2000, "nullable": True}
        )
        plain, counts = scaled(column, *texts, written=written)
        signed, same = scaled(column, *(t.replace("-", sign) for t in texts), written=written)
        assert np.array_equal(plain, signed, equal_nan=True)
        assert counts == same
        assert counts.unreadable == len(others)


@pytest.mark.parametrize("sign", MINUS_SIGNS)
def test_a_token_for_missing_wins_over_the_number_that_another_minus_spells(sign):
    column = Column.from_mapping(
        {"name": "x", "kind": "integer", "lower": -10, "upper": 10, "nullable": True}
    )
    for token in ("-9", f"{sign}9"):
        written = CellFormat(**(vars(CANONICAL) | {"missing": (token,)}))
        values, counts = scaled(column, "-9", f"{sign}9", "-8", written=written)
        assert np.isnan(values[:2]).all()
        assert values[2] == 0.1
        assert counts.missing == 2
        typed = canonical_cells(column, pd.Series([-9, -8]), written)
        assert typed.isna().tolist() == [True, False]
