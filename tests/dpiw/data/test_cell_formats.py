"""How a source writes its cells: which settings are admissible, where they stand, what they key."""

import dataclasses
import datetime as dt
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.cells.formats import (
    CANONICAL,
    FORMAT_FIELDS,
    THOUSANDS,
    CellFormat,
    without_defaults,
)
from dpiw.data.cells.reading import (
    UNREADABLE,
    WHITE_SPACE,
    canonical_cells,
    canonical_frame,
    settled_formats,
)
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.encoding import scale_cells
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SchemaError, SpecError
from dpiw.plan.spec import load_schema, load_spec
from tests.support.specs import spec
from tests.support.worlds import declared

NUMBER = {"name": "x", "kind": "continuous", "lower": 0, "upper": 9}
WHOLE = {"name": "x", "kind": "integer", "lower": 0, "upper": 9}
DATE = {"name": "x", "kind": "date", "lower": "2000-01-01", "upper": "2001-01-01"}
MOMENT = {**DATE, "kind": "datetime"}
WORD = {"name": "x", "kind": "categorical", "levels": ["a", "Other"], "normaliser": "casefold"}
TRUTH = {"name": "x", "kind": "boolean", "true_values": ["Ja"]}
PERSON = {"name": "x", "role": "identifier"}


def spec_of(**source):
    return spec(source={"path": "data.csv", "format": "csv"} | source)


def settled(column, *, file_format="csv", **source):
    columns = [column, {**DATE, "name": "spare"}]
    given = dataclasses.replace(CANONICAL, **source)
    return settled_formats(declared(*columns), given, file_format=file_format)["x"]


GOOD = [
    {"decimal": ","},
    {"decimal": ",", "thousands": "."},
    {"decimal": ",", "thousands": "space"},
    {"decimal": ".", "thousands": ","},
    {"thousands": "'"},
    {"decimal": ".", "thousands": "none"},
    *({"date_format": text} for text in (
        "iso", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d/%m/%Y", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M:%S",
    )),
    {"datetime_format": "%Y-%m-%dT%H:%M:%S"},
    {"missing": ["NA", "-9", ".", "k. A."]},
]  # fmt: skip
BAD = [
    ("decimal", ";"), ("decimal", ""), ("decimal", "comma"),
    ("thousands", ";"), ("thousands", " "), ("thousands", ""), ("thousands", "."),
    *(("date_format", text) for text in (
        "", "%d.%m.%y", "%d.%m", "%d.%m.%Y %d", "%d %b %Y", "%d.%m.%Y %H", "%Y-%m-%d %M:%H",
        "%Y-%m-%d%z", " %d.%m.%Y", "%d,%m,%Y", "%", "ISO", "%d.%m.%Y" + "-" * 64,
        "%d\n%m\n%Y", "%H:%M %d.%m.%Y",
    )),
    ("datetime_format", "%H:%M"),
    *(("missing", tokens) for tokens in (
        "NA", 5, [-9], [""], [" NA"], ["NA", "NA"], ["a\nb"], ["x" * 65], [None], [["NA"]],
        [str(number) for number in range(101)],
    )),
]  # fmt: skip


@pytest.mark.parametrize("source", GOOD)
def test_a_source_may_say_how_it_is_written(source):
    written = spec_of(**source).source.written
    assert written.fault() is None
    shown = written.to_mapping()
    assert {name: shown[name] for name in source} == source
    assert set(shown) == set(FORMAT_FIELDS)


@pytest.mark.parametrize(("field", "value"), BAD)
def test_what_is_no_format_is_refused_by_its_field(field, value):
    with pytest.raises(SpecError, match=rf"^source\.{field}: .*(expected|empty)"):
        spec_of(**{field: value})
    fitting = {"decimal": NUMBER, "thousands": NUMBER, "date_format": DATE}
    column = {**fitting.get(field, MOMENT), field: value}
    if (field, value) == ("thousands", "."):
        column["decimal"] = "."
    with pytest.raises(SchemaError, match=rf"column x: {field}: .*(expected|empty)"):
        declared(column)


@pytest.mark.parametrize("field", ["decimal", "thousands", "date_format", "datetime_format"])
def test_parquet_stores_values_and_only_knows_tokens(field):
    value = {"decimal": ",", "thousands": ","}.get(field, "%d.%m.%Y")
    with pytest.raises(SpecError, match=rf"source\.{field}: expected only for a CSV"):
        spec_of(format="parquet", **{field: value})
    assert spec_of(format="parquet", missing=["-9"]).source.written.missing == ("-9",)
    column = {"date_format": DATE, "datetime_format": MOMENT}.get(field, NUMBER)
    with pytest.raises(SchemaError, match=rf"column x: {field}: expected only for a CSV"):
        settled({**column, field: value}, file_format="parquet")
    assert settled({**column, "missing": ["-9"]}, file_format="parquet").missing == ("-9",)


@pytest.mark.parametrize(
    ("column", "fields"),
    [
        (NUMBER, {"decimal", "thousands"}), (WHOLE, {"decimal", "thousands"}),
        (DATE, {"date_format"}), (MOMENT, {"datetime_format"}), (WORD, set()), (TRUTH, set()),
        (PERSON, set()), ({**PERSON, "kind": "integer"}, set()),
    ],
)  # fmt: skip
def test_a_column_takes_what_means_something_for_its_kind(column, fields):
    own = {"decimal": ",", "thousands": "space", "date_format": "%d.%m.%Y",
           "datetime_format": "%d.%m.%Y", "missing": ["NA"]}  # fmt: skip
    fields = fields if column.get("role") == "identifier" else fields | {"missing"}
    for field, value in own.items():
        if field in fields:
            assert getattr(declared({**column, "name": "x", field: value}, WORD | {"name": "y"})
                           .columns[0].written, field) is not None  # fmt: skip
        else:
            with pytest.raises(SchemaError, match=f"column x: {field}: has no meaning"):
                declared({**column, field: value}, WORD | {"name": "y"})
    everything = {**own, "missing": ("NA",)}
    used = settled(column, **everything)
    for field, value in everything.items():
        expected = value if field in fields else getattr(CANONICAL, field)
        assert getattr(used, field) == expected


def test_a_column_wins_over_its_source_and_may_go_back_to_the_plain_form():
    source = {"decimal": ",", "thousands": ".", "missing": ("NA",)}
    plain = {**NUMBER, "decimal": ".", "thousands": "none", "missing": []}
    assert settled(plain, **source) == CANONICAL
    assert settled(NUMBER, **source).decimal == ","
    assert settled({**DATE, "date_format": "iso"}, date_format="%d.%m.%Y") == CANONICAL
    assert settled({**NUMBER, "missing": ["-9"]}, **source).missing == ("-9",)  # instead, not too


def test_column_and_source_must_fit_together():
    with pytest.raises(SchemaError, match="column x: thousands: expected another sign"):
        settled({**NUMBER, "decimal": ","}, thousands=",")
    with pytest.raises(SchemaError, match="column x: thousands: expected another sign"):
        settled({**NUMBER, "thousands": "."})


@pytest.mark.parametrize(
    ("column", "token"), [(WORD, "a"), (WORD, "OTHER"), (TRUTH, "ja"), (TRUTH, "0")]
)
def test_a_token_that_is_a_value_of_the_column_is_refused(column, token):
    match = "column x: missing: one of these texts is one of the column's own"
    with pytest.raises(SchemaError, match=match) as caught:
        settled(column, missing=(token,))
    assert token not in str(caught.value).replace("a token", "").replace("values", "").split()
    with pytest.raises(SchemaError, match=match):
        declared({**column, "missing": [token]})
    assert settled({**column, "missing": []}, missing=(token,)).missing == ()
    assert settled({**NUMBER, "missing": ["5"]}).missing == ("5",)  # a number may: it wins


def test_the_data_dictionary_keeps_what_it_says_and_it_is_no_part_of_what_a_column_is():
    """So that `rehearse --like` takes a former release whose source was written otherwise."""
    column = {**NUMBER, "decimal": ",", "thousands": ".", "missing": ["-9"]}
    schema = declared(column)
    assert schema.to_mapping()["columns"] == [column]
    again = PublicSchema.from_mapping(schema.to_mapping()).columns[0].written
    assert again == CellFormat(decimal=",", thousands=".", missing=("-9",))
    assert declared(NUMBER).to_mapping()["columns"] == [NUMBER]
    assert schema.released == declared(NUMBER).released


def test_a_released_table_is_canonical_whatever_its_source_was():
    """What analysts, public rows and stand-ins go through knows nothing of the format."""
    schema = declared({**NUMBER, "decimal": ",", "thousands": ".", "missing": ["5"]})
    text = pd.DataFrame({"x": pd.Series(["1.5", "5", "1,5"], dtype="str")})
    assert schema.unscale(schema.scale(text))["x"].tolist() == [1.5, 5.0, 0.0]


def test_the_format_is_part_of_the_run_and_its_absence_is_not():
    plain, schema = spec_of(), declared(NUMBER, {**DATE, "name": "d"})
    digest = plain.digest(schema)
    same = spec_of(decimal=".", thousands="none", date_format="iso", datetime_format="iso",
                   missing=[])  # fmt: skip
    assert same.digest(schema) == digest
    assert not set(FORMAT_FIELDS) & set(without_defaults(plain.source.model_dump(mode="json")))
    others = [
        spec_of(**change).digest(schema)
        for change in (
            {"decimal": ","}, {"thousands": ","}, {"date_format": "%d.%m.%Y"},
            {"datetime_format": "%d.%m.%Y"}, {"missing": ["NA"]}, {"missing": ["-9"]},
        )
    ]  # fmt: skip
    others += [
        plain.digest(declared({**NUMBER, **change}, {**DATE, "name": "d"}))
        for change in ({"decimal": ","}, {"missing": ["NA"]}, {"missing": []})
    ]
    assert len({digest, *others}) == 1 + len(others)


def test_a_spec_is_checked_against_its_dictionary_before_anything_is_read(workplace):
    text = workplace.spec.read_text()
    workplace.spec.write_text(text.replace("format: csv", "format: csv, missing: [north]"))
    with pytest.raises(SchemaError, match="column region: missing"):
        load_schema(load_spec(workplace.spec))


PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=40)

PAIRS = [(d, t) for d in (".", ",") for t in THOUSANDS if d != t]
DATES = ("%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d/%m/%Y", "%Y/%m/%d")
TIMES = ("%H:%M", "%H:%M:%S")
CENTS = Column(
    name="x", kind=ColumnKind.CONTINUOUS, lower=-1e9, upper=1e9, nullable=True, decimals=2
)
COUNT = Column(name="x", kind=ColumnKind.INTEGER, lower=-(10**9), upper=10**9, nullable=True)
DAY = Column(name="x", kind=ColumnKind.DATE, lower="1000-01-01", upper="9000-01-01", nullable=True)
INSTANT = Column(
    name="x", kind=ColumnKind.DATETIME, lower="1000-01-01", upper="9000-01-01", nullable=True,
    time_zone="Europe/Berlin",
)  # fmt: skip
LEVEL = Column(name="x", levels=("a", "b", "rest"), other="rest", nullable=True)
FLAG = Column(name="x", kind=ColumnKind.BOOLEAN, nullable=True)
ID = Column(name="x", role=ColumnRole.IDENTIFIER)
EVERY = (CENTS, COUNT, DAY, INSTANT, LEVEL, FLAG)


def texts(*cells):
    return pd.Series(cells, dtype="str")


def form(**fields):
    return CellFormat(**(vars(CANONICAL) | fields))


def scaled(column, cells, written=CANONICAL):
    return scale_cells(column, canonical_cells(column, cells, written))


def same(column, written_text, canonical_text, written):
    """Both read, and read alike."""
    values, wanted = (
        scaled(column, texts(written_text), written),
        scaled(column, texts(canonical_text)),
    )
    assert not np.isnan(wanted[0])
    np.testing.assert_array_equal(values, wanted)


def grouped(digits, sign):
    """`1234567` as `1.234.567`: a slow way."""
    groups = []
    while len(digits) > 3:
        digits, group = digits[:-3], digits[-3:]
        groups.insert(0, group)
    return sign.join([digits, *groups])


@PROPERTY
@given(
    pair=st.sampled_from(PAIRS), number=st.decimals(min_value=-(10**8), max_value=10**8, places=2),
    group=st.booleans(), pick=st.integers(0, 3), pad=st.sampled_from(["", " ", "\t", "\u00a0"]),
)  # fmt: skip
def test_a_number_written_as_declared_reads_as_its_canonical_text(pair, number, group, pick, pad):
    decimal, thousands = pair
    canonical = f"{number:.2f}"
    sign = "-" if canonical.startswith("-") else ""
    digits, fraction = canonical.lstrip("-").split(".")
    marks = THOUSANDS[thousands]
    if group and marks:
        digits = grouped(digits, marks[pick % len(marks)])
    for column, text, wanted in (
        (CENTS, sign + digits + decimal + fraction, canonical),
        (COUNT, sign + digits, canonical.split(".")[0]),
        (CENTS, sign + digits + "e2", str(Decimal(canonical.split(".")[0]).scaleb(2))),
    ):
        same(column, pad + text + pad, wanted, form(decimal=decimal, thousands=thousands))


@pytest.mark.parametrize(
    ("decimal", "thousands", "text"),
    [
        (",", "none", "1669.78"), (",", ".", "1669.78"), (",", ".", "16.69"), (",", ".", "1.6699"),
        (",", ".", ".123"), (",", ".", "1,669.780"), (",", ".", "1..669"), (",", ".", "1.669."),
        (",", "space", "1 66"), (".", ",", "1,669,78"), (".", "'", "1'66"), (",", "none", "1,2,3"),
        (",", "none", ","), (",", "none", "e5"), (",", "none", "12 EUR"), (",", "none", "\u0661"),
        (",", "space", "1 \u00a0234"), (",", ".", "0x10"), (",", "none", "--1"),
    ],
)  # fmt: skip
def test_a_number_written_otherwise_is_unreadable_and_never_guessed_at(decimal, thousands, text):
    """Above all: `16.69` is not 1669 where the point groups thousands."""
    for column in (CENTS, COUNT):
        assert np.isnan(scaled(column, texts(text), form(decimal=decimal, thousands=thousands)))


@PROPERTY
@given(
    moment=st.datetimes(min_value=dt.datetime(1000, 1, 2), max_value=dt.datetime(8999, 12, 30)),
    date_format=st.sampled_from(DATES),
    time_format=st.sampled_from(TIMES),
    between=st.sampled_from(" T"),
)
@pytest.mark.slow
def test_a_date_written_as_declared_reads_as_its_canonical_text(
    moment, date_format, time_format, between
):
    representable = moment.replace(
        microsecond=0, second=moment.second if "%S" in time_format else 0
    )
    whole = date_format + between + time_format
    written = representable.strftime(whole)
    same(INSTANT, written, representable.isoformat(), form(datetime_format=whole))
    same(DAY, written, representable.date().isoformat(), form(date_format=whole))
    day = representable.strftime(date_format)
    same(DAY, f" {day} ", representable.date().isoformat(), form(date_format=date_format))
    same(INSTANT, day, representable.date().isoformat(), form(datetime_format=date_format))


@pytest.mark.parametrize("text", ["31.02.2024", "2024-02-01", "1.13.2024", "01.01.24", "0.1.2024",
                                  "1.1.0000", "1.1.2024 12:00", "1 .1.2024", "001.2.2024",
                                  "1x2x2024"])  # fmt: skip
def test_a_date_written_otherwise_is_unreadable(text):
    written = form(date_format="%d.%m.%Y")
    assert canonical_cells(DAY, texts(text), written)[0] == UNREADABLE
    assert np.isnan(scaled(DAY, texts(text), written))


@pytest.mark.parametrize("column", EVERY)
def test_tokens_are_missing_in_every_kind(column):
    written = form(missing=("NA", "-9", "."), decimal=",")
    cells = canonical_cells(column, texts("NA", " -9\t", ".", "na", "-9,0", None, ""), written)
    assert cells.isna().tolist() == [True, True, True, False, False, True, False]


def test_a_token_is_missing_and_not_other_nor_an_admissible_number():
    assert scaled(LEVEL, texts("NA", "zz"), form(missing=("NA",))).tolist() == [-1, 2]
    assert scaled(LEVEL, texts("NA")).tolist() == [2]
    values = scaled(COUNT, texts("-9", "-8"), form(missing=("-9",)))
    assert np.isnan(values).tolist() == [True, False]


@pytest.mark.parametrize(
    ("cells", "missing"),
    [
        (pd.Series([-9, 1, None], dtype="Int64"), [True, False, True]),
        (pd.Series([-9, 1], dtype="int8"), [True, False]),
        (pd.Series([2**64 - 9, 1], dtype="uint64"), [False, False]),
        (pd.Series([2**64 - 9, None], dtype="UInt64"), [False, True]),
        (pd.Series([-9.0, -9.5, np.nan, 99.9]), [True, False, True, True]),
        (pd.Series([-9.0, 99.9], dtype="float32"), [True, True]),
        (pd.Series([99.9, np.inf], dtype="float16"), [True, False]),
        (pd.Series([Decimal("-9.00"), None, Decimal("99.90"), Decimal(1)]), [True] * 3 + [False]),
        (pd.Series([True, False]), [False, False]),
        (pd.Series([True, None], dtype="boolean"), [False, True]),
        (pd.Series([pd.Timestamp("1999-09-09")]), [False]),
    ],
)  # fmt: skip
def test_of_typed_numbers_those_equal_to_a_token_are_missing(cells, missing):
    tokens = ("NA", "-9", "99.9", "1e300", "1e999999", "nan", "inf", "sNaN", "true")
    canonical = canonical_cells(CENTS, cells, form(missing=tokens))
    assert canonical.isna().tolist() == missing
    assert str(canonical.dtype).casefold() == str(cells.dtype).casefold()  # whole ones stay whole
    assert canonical_cells(CENTS, cells, form(decimal=",")) is cells


def test_nothing_declared_changes_nothing():
    frame = pd.DataFrame({"x": texts("1,5", "NA", " ", None)})
    schema = PublicSchema(name="s", columns=(CENTS,))
    assert canonical_frame(frame, schema, {"x": CANONICAL}) is frame
    copy = frame.copy()
    canonical_frame(frame, schema, {"x": form(decimal=",", missing=("NA",))})
    pd.testing.assert_frame_equal(frame, copy)


formats = st.builds(
    lambda pair, date, time, missing: CellFormat(
        decimal=pair[0], thousands=pair[1], date_format=date,
        datetime_format=date if date == "iso" else f"{date} {time}", missing=tuple(missing),
    ),
    st.sampled_from(PAIRS), st.sampled_from(["iso", *DATES]), st.sampled_from(TIMES),
    st.lists(st.sampled_from(["NA", "-9", ".", "1"]), unique=True),
)  # fmt: skip
cells = st.one_of(
    st.none(), st.text(), st.text("0123456789.,' -+eE/:T\u202f\u00a0\x1c", max_size=20),
    st.sampled_from(["NA", "-9", "1.234,5", "31.12.2024 10:30", "\ud800", "\x00", "9" * 400]),
)  # fmt: skip


@PROPERTY
@given(column=st.sampled_from([*EVERY, ID]), written=formats, found=st.lists(cells, max_size=6))
def test_no_text_raises_and_no_cell_depends_on_another(column, written, found):
    clean = [None if c is None else c.encode("utf-8", "replace").decode() for c in found]
    whole = canonical_cells(column, texts(*clean), written)
    assert whole.index.equals(pd.RangeIndex(len(clean)))
    alone = [canonical_cells(column, texts(cell), written).tolist() for cell in clean]
    assert [one for (one,) in alone] == whole.tolist() or whole.isna().any()
    for one, kept in zip(alone, whole.tolist(), strict=True):
        assert one[0] == kept or (pd.isna(one[0]) and pd.isna(kept))
    if column is not ID:
        scale_cells(column, whole)


def test_a_lone_surrogate_is_a_cell_like_another():
    cells = pd.Series(["\ud800", "1,5"], dtype=pd.StringDtype("python", na_value=np.nan))
    assert canonical_cells(CENTS, cells, form(decimal=",")).tolist() == [UNREADABLE, "1.5"]


@pytest.mark.slow
def test_white_space_is_what_python_strips():
    every = {chr(code) for code in range(sys.maxunicode + 1)}
    assert {letter for letter in every if letter.isspace()} == set(WHITE_SPACE)
