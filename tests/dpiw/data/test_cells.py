"""Every dtype that a released or stored cell can come in reads as what it says.

For every kind and option: scaling what was unscaled is the identity, whatever pandas or Arrow made
of the cells between; and no typed moment, however far, raises or moves another row.
"""

import datetime as dt
import io
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpiw import analysis
from dpiw.analysis.release import load_release
from dpiw.data.cells import plain_cells
from dpiw.data.columns import Column, ColumnKind
from dpiw.data.encoding import project_cells, scale_cells, unscale_cells
from dpiw.data.sources import IngestLimits, read_csv
from dpiw.release.parquet import arrow_type
from dpiw.release.verification import verify
from tests.hostile.fuzz.cells import SCHEMA, UNITS, ZONES
from tests.support.read import read_parquet
from tests.support.whole_runs import publish_run

INT64 = np.iinfo(np.int64)

LISTED = tuple(column for column in SCHEMA.released if not column.unseen)
"""Cells of an unseen column are read, and never released."""


def grid(column: Column) -> np.ndarray:
    """Admissible scaled values: ends, inside, and missing if there is such a value."""
    if column.is_discrete:
        codes = [*range(column.cardinality), *([-1] if column.nullable else []), 0]
        return project_cells(column, np.array(codes, dtype=np.int32))
    units = [0.0, 1.0, 0.5, 0.123, 0.9, *([np.nan] if column.nullable else [])]
    return project_cells(column, np.array(units))


# What libraries make of a released column


def arrow(column: Column, cells: pd.Series) -> pa.Array:
    """The released column, as `synthetic.parquet` stores it."""
    moments = column.kind in (ColumnKind.DATE, ColumnKind.DATETIME)
    array = pa.array(cells.astype("object") if moments else cells, from_pandas=True)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.cast(arrow_type(column))


def others(column: Column, array: pa.Array) -> dict[str, pa.Array]:
    """Arrow types that hold the same values."""
    kind = column.kind
    if kind is ColumnKind.BOOLEAN:
        types = [pa.int8(), pa.uint64(), pa.float64(), pa.bool_()]
        words = np.array([column.false_values[0], column.true_values[0]], dtype=object)
        texts = [None if cell is None else words[int(cell)] for cell in array.to_pylist()]
        if any(word.strip() in {"1", "2"} for word in words):  # then numbers are words
            types = [pa.bool_()]
        return {str(t): array.cast(pa.uint8()).cast(t) for t in types} | {
            "words": pa.array(texts), "shouted": pa.array([t and f" {t.upper()}\t" for t in texts])
        }  # fmt: skip
    if kind in (ColumnKind.CATEGORICAL, ColumnKind.ORDINAL):
        types = [pa.string(), pa.large_string(), pa.string_view()]
    elif kind is ColumnKind.INTEGER:
        types = [pa.int64(), pa.decimal128(38, 0), pa.string()]
        small = abs(int(column.lower)) < 100 and abs(int(column.upper)) < 128
        types += [pa.int8(), pa.uint16(), pa.float64(), pa.float16()] if small else []
    elif kind is ColumnKind.CONTINUOUS:
        types = [pa.float64(), pa.string()]
    elif kind is ColumnKind.DATE:
        types = [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us"), pa.string()]
    else:
        types = [pa.timestamp(u, tz=z) for u in ("s", "ms", "us") for z in ("UTC", "+05:30")]
    return {str(t): array.cast(t) for t in types}


WRAPPINGS = {
    "pandas": lambda a: a.to_pandas(),
    "typed dates": lambda a: a.to_pandas(date_as_object=False),
    "nullable": lambda a: a.to_pandas(date_as_object=False).convert_dtypes(),
    "arrow": lambda a: pd.Series(pd.arrays.ArrowExtensionArray(a)),
    "dictionary": lambda a: pd.Series(pd.arrays.ArrowExtensionArray(a.dictionary_encode())),
    "category": lambda a: a.to_pandas(date_as_object=False).astype("category"),
    "arrow category": lambda a: pd.Series(pd.arrays.ArrowExtensionArray(a)).astype("category"),
    "objects": lambda a: pd.Series(a.to_pylist(), dtype=object),
    "timestamps": lambda a: a.to_pandas(date_as_object=False).astype(object),
}


def wrapped(array: pa.Array):
    for name, wrap in WRAPPINGS.items():
        if pa.types.is_float16(array.type) and "category" in name:
            continue  # pandas has no such categories
        if pa.types.is_string_view(array.type) and name == "arrow category":
            continue  # nor these
        yield name, wrap(array)


@pytest.mark.parametrize("column", LISTED, ids=lambda column: column.name)
def test_scaling_what_was_unscaled_is_the_identity_in_every_dtype(column):
    values = grid(column)
    cells = unscale_cells(column, values)
    np.testing.assert_array_equal(scale_cells(column, cells), values)
    seen = 0
    for stored, array in others(column, arrow(column, cells)).items():
        for name, series in wrapped(array):
            found = scale_cells(column, series)
            np.testing.assert_array_equal(found, values, err_msg=f"{stored} as {name}")
            seen += 1
    assert seen >= 8


@pytest.mark.parametrize("column", LISTED, ids=lambda column: column.name)
def test_files_of_released_cells_read_back(column, tmp_path):
    """Parquet in every way pandas reads it, a CSV as pandas and as we read it."""
    values = grid(column)
    cells = unscale_cells(column, values)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": arrow(column, cells)}), path)
    raw = read_parquet(path, ["x"], limits=IngestLimits()).frame
    frames = [raw] + [
        pd.read_parquet(path, **way)
        for way in ({}, {"dtype_backend": "numpy_nullable"}, {"dtype_backend": "pyarrow"})
    ]
    texts = cells
    if column.kind is ColumnKind.BOOLEAN:  # in a text, truth is spoken in the declared words
        words = {True: column.true_values[0], False: column.false_values[0]}
        texts = cells.astype(object).map(lambda cell: words.get(cell))
    table = io.StringIO()
    texts.to_frame("x").to_csv(table, index=False, float_format="%.17g")
    (tmp_path / "x.csv").write_text(table.getvalue().replace("\n\n", '\n""\n'))
    raw = read_csv(
        tmp_path / "x.csv", ["x"], limits=IngestLimits(), encoding="utf-8", delimiter=","
    )
    frames += [raw.frame, pd.read_csv(tmp_path / "x.csv", dtype=str, keep_default_na=False)]
    for number, frame in enumerate(frames):
        found = scale_cells(column, frame["x"])
        np.testing.assert_array_equal(found, values, err_msg=str(number))


@pytest.mark.parametrize("column", LISTED, ids=lambda column: column.name)
def test_reading_is_a_fixed_point(column):
    """Whatever cells say, what they are read as says the same again."""
    texts = ["", "1", "2", "0", "-5", "7.5", "1e400", "oui", "TRUE", "north", "su\u0308d", "high",
             "1900-03-01", "2024-03-31T02:30:00", "9999-12-31", "x" * 300, None]  # fmt: skip
    for cells in (
        pd.Series(texts, dtype="str"), pd.Series(texts, dtype=object),
        pd.Series([0, 1, 2, -(2**63), 2**63 - 1]), pd.Series([0.0, -0.0, np.nan, np.inf, 5e-324]),
        pd.Series([True, False]), pd.Series([True, pd.NA], dtype="boolean"),
        pd.Series([True, 1, "1", None, dt.date(2000, 1, 1), b"1", Decimal("2.5"), [1]], dtype="O"),
    ):  # fmt: skip
        once = scale_cells(column, cells)
        again = scale_cells(column, unscale_cells(column, once))
        np.testing.assert_array_equal(again, once)
        for row in range(len(cells)):  # by itself alone
            alone = scale_cells(column, cells.iloc[[row]])
            np.testing.assert_array_equal(alone, once[[row]])


# Truth


def truth(cells, **words):
    column = Column(name="b", kind=ColumnKind.BOOLEAN, nullable=True, **words)
    return scale_cells(column, cells).tolist()


OWN = {"true_values": ("oui",), "false_values": ("non",)}


def test_typed_truth_means_itself_beside_words():
    assert truth(pd.Series(["oui", False, "true", None], dtype=object), **OWN) == [1, 0, -1, -1]


def test_numbers_are_words_where_a_word_is_a_number():
    words = {"true_values": ("1",), "false_values": ("2",)}
    assert truth(pd.Series([1, 2, 0, None], dtype="Int64"), **words) == [1, 0, -1, -1]
    assert truth(pd.Series([1.0, 2.0, 0.0]), **words) == [1, 0, -1]
    assert truth(pd.Series([True, False]), **words) == [1, 0]
    assert truth(pd.Series([0, 1, 2]), **OWN) == [0, 1, -1]
    assert truth(pd.Series([0, 1, 2])) == [0, 1, -1]


def test_a_release_with_own_words_can_be_analysed(make_workplace):
    """It verified, and then every estimator refused it: the released truth was read as missing."""
    place = make_workplace(epsilon="100")
    schema = place.root / "schema.yaml"
    words = "kind: boolean, true_values: [oui], false_values: [non], nullable: true"
    schema.write_text(schema.read_text().replace("kind: boolean", words))
    lines = place.source.read_text().replace("true", "oui").replace("false", "non")
    place.source.write_text(lines)
    _, folder = publish_run(place.spec)
    verify(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict of a small release
        release = load_release(folder)
        sample = analysis.weighted_sample(release)
        assert sample.table["ill"].notna().mean() > 0.5
        for estimate in (
            analysis.mean(release, "age", where="ill"), analysis.correlation(release, "age", "ill"),
            analysis.logistic_regression(release, "ill", ["age"]),
        ):  # fmt: skip
            interval = analysis.confidence_interval(estimate)
            assert np.isfinite(interval.lower).all()
        assert analysis.crosstab(release, "ill", "region").to_numpy().sum() == pytest.approx(1)


# Moments


def column_of(kind, low, high, **settings):
    return Column(name="t", kind=kind, lower=low, upper=high, nullable=True, **settings)


EVER = column_of(ColumnKind.DATE, "0001-01-01", "9999-12-31")
ALWAYS = column_of(ColumnKind.DATETIME, "0001-01-01T00:00:00", "9999-12-31T23:59:59",
                   time_zone="Europe/Berlin")  # fmt: skip
EDGES = [INT64.min + 1, INT64.min + 2, -1, 0, 1, INT64.max - 1, INT64.max]


def moments(seconds, unit, zone):
    counts = [None if s is None else s * UNITS[unit] for s in seconds]
    return pa.array(counts, pa.timestamp(unit, tz=zone)).to_pandas()


@pytest.mark.parametrize("zone", ZONES, ids=str)
@pytest.mark.parametrize("unit", list(UNITS))
def test_every_count_of_every_unit_is_a_moment(unit, zone):
    """Clamped, in the order of the counts; missing stays missing."""
    cells = pa.array([*EDGES, None], pa.timestamp(unit, tz=zone)).to_pandas()
    for column in (EVER, ALWAYS, column_of(ColumnKind.DATE, "1900-01-01", "2020-12-31"),
                   column_of(ColumnKind.DATETIME, "1900-01-01", "2020-12-31")):  # fmt: skip
        found = scale_cells(column, cells)
        assert np.isnan(found[-1])
        assert (np.diff(found[:-1]) >= 0).all()
        if unit == "s":
            assert (found[0], found[-2]) == (0, 1)
        for row in range(len(cells)):
            alone = scale_cells(column, cells.iloc[[row]])
            np.testing.assert_array_equal(alone, found[[row]])


def day(text):
    return scale_cells(EVER, pd.Series([text], dtype="str"))[0]


LAST = 253_402_300_799  # 9999-12-31T23:59:59Z


@pytest.mark.parametrize(
    ("seconds", "zone", "expected"),
    [
        (LAST, "Europe/Berlin", "9999-12-31"),  # there it is 10000-01-01: clamped
        (LAST, "America/New_York", "9999-12-31"), (LAST, "+05:30", "9999-12-31"),
        (LAST - 86_400, "Europe/Berlin", "9999-12-31"), (LAST - 90_000, "-23:59", "9999-12-29"),
        (LAST - 86_400, "America/New_York", "9999-12-30"), (LAST + 1, None, "9999-12-31"),
        (-62_135_596_800, "America/New_York", "0001-01-01"),
        (-62_135_596_800, "+05:30", "0001-01-01"), (-62_135_596_800, None, "0001-01-01"),
        (-62_135_596_800 + 20 * 3600, "+05:30", "0001-01-02"),
        (0, "America/New_York", "1969-12-31"), (0, "+05:30", "1970-01-01"),
        (-1, None, "1969-12-31"), (1_711_846_800 - 3601, "Europe/Berlin", "2024-03-31"),
    ],
)  # fmt: skip
def test_a_day_is_the_day_on_the_cells_own_clock(seconds, zone, expected):
    for unit in ("s", "ms", "us"):
        assert scale_cells(EVER, moments([seconds], unit, zone))[0] == day(expected)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (LAST, "9999-12-31T22:59:59Z"), (LAST + 10**9, "9999-12-31T23:59:59"),
        (LAST - 86_400, "9999-12-30T22:59:59Z"),
        (-62_135_596_800, "0001-01-01T00:00:00"), (0, "1969-12-31T23:00:00Z"),
        (1_711_852_200, "2024-03-31T01:30:00Z"),  # 02:30 that night did not exist
        (1_729_996_200, "2024-10-27T00:30:00Z"),  # 02:30 that night came twice: the first
    ],
)  # fmt: skip
def test_a_naive_moment_is_read_in_the_columns_zone(seconds, expected):
    (wanted,) = scale_cells(ALWAYS, pd.Series([expected], dtype="str"))
    for unit in ("s", "ms", "us"):
        assert scale_cells(ALWAYS, moments([seconds], unit, None))[0] == wanted
        utc = moments([seconds], unit, "UTC")
        text = pd.Series([str(np.datetime64(min(seconds, LAST), "s")) + "Z"], dtype="str")
        assert scale_cells(ALWAYS, utc)[0] == scale_cells(ALWAYS, text)[0]


# Cells


def test_a_category_of_long_integers_stays_exact():
    cells = pd.Series([2**53 + 1, 2**62 + 1, None], dtype="Int64").astype("category")
    assert plain_cells(cells).tolist() == [2**53 + 1, 2**62 + 1, pd.NA]
    numbers = pd.Series(pd.Categorical.from_codes([0, -1], categories=[2**53 + 1]))
    assert plain_cells(numbers).tolist() == [2**53 + 1, pd.NA]


@pytest.mark.parametrize(
    "cell",
    ["1" * 9_989 + "x", "." * 9_990, "1." * 4_995, "\u0301\u0323" * 2_497, "9" * 9_990, " " * 999],
    ids=["digits", "dots", "mixed", "marks", "whole", "blank"],
)  # fmt: skip
def test_a_long_cell_takes_no_time(cell):
    """The pattern of numbers took seconds for one such cell: time by its length squared."""
    import time

    cells = pd.Series([cell], dtype="str")
    started = time.process_time()
    for column in SCHEMA.released:
        scale_cells(column, cells)
    assert time.process_time() - started < 1
