"""One table, as tools write it: CSV, and Parquet by pandas, R, polars, Snowflake and others.

Which physical type a writer chooses depends on cells (one gap makes floats of whole numbers), so a
cell means the same in every one of them, and no type that values may take ends a run.
"""

import datetime as dt
import io
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.data.source import ingest as ingestion
from dpiw.data.source.batches import parquet_types
from dpiw.data.source.ingest import IngestLimits, ingest
from dpiw.data.source.validation import types_fault
from dpiw.errors import SourceError
from dpiw.plan.sections import SourceSpec
from dpiw.plan.spec import check_header
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.support.read import read_parquet, read_snapshot
from tests.support.worlds import declared

ADD = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=9, id_column="id")
SCHEMA = declared(
    {"name": "id", "role": "identifier"},
    {"name": "sex", "kind": "categorical", "levels": ["f", "m"], "nullable": True},
    {"name": "grade", "kind": "ordinal", "levels": ["1", "2", "3"], "nullable": True},
    {"name": "kids", "kind": "integer", "lower": 0, "upper": 9, "nullable": True},
    {"name": "pay", "kind": "continuous", "lower": -50, "upper": 50, "decimals": 2},
    {"name": "ok", "kind": "boolean", "nullable": True},
    {"name": "day", "kind": "date", "lower": "2020-01-01", "upper": "2025-12-31"},
    {"name": "at", "kind": "datetime", "lower": "2020-01-01", "upper": "2025-12-31",
     "nullable": True},
    name="town",
)  # fmt: skip
MOMENTS = st.datetimes(dt.datetime(2019, 1, 1), dt.datetime(2026, 12, 31)).map(
    lambda moment: moment.replace(microsecond=0)
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(1, 10**6),
            "sex": st.sampled_from(["f", "m", "x", None]),
            "grade": st.sampled_from([1, 2, 3, 4, None]),
            "kids": st.one_of(st.none(), st.integers(-3, 12)),
            "pay": st.one_of(st.none(), st.integers(-6000, 6000).map(lambda cents: cents / 100)),
            "ok": st.sampled_from([True, False, None]),
            "day": st.one_of(st.none(), MOMENTS.map(lambda moment: moment.date())),
            "at": st.one_of(st.none(), MOMENTS),
        }
    ),
    min_size=1, max_size=16,
)  # fmt: skip


def text(cell):
    if isinstance(cell, bool):
        return str(cell).lower()
    return None if cell is None else str(cell)


def as_csv(rows):
    names = [column.name for column in SCHEMA.columns]
    lines = [",".join(text(row[name]) or "" for name in names) for row in rows]
    return "\n".join([",".join(names), *lines, ""]).encode()


def column(rows, name, kind=None, value=lambda cell: cell):
    cells = [None if row[name] is None else value(row[name]) for row in rows]
    return pa.array(cells, kind)


def of_pandas(rows):
    """Categories, floats where whole numbers have gaps, moments in nanoseconds."""
    frame = pd.DataFrame(rows)
    for name in ("sex", "grade"):
        frame[name] = frame[name].astype("category")
    frame["kids"] = frame["kids"].astype(float)
    frame["ok"] = frame["ok"].astype(float)
    frame["id"] = frame["id"].astype("category")
    return pa.Table.from_pandas(frame, preserve_index=False)


def of_text(kind):
    def write(rows):
        texts = {name: column(rows, name, pa.string(), text) for name in rows[0]}
        if pa.types.is_dictionary(kind):
            texts = {name: cells.dictionary_encode() for name, cells in texts.items()}
        return pa.table({name: cells.cast(kind) for name, cells in texts.items()})

    return write


def of_snowflake(rows):
    """Every number a decimal; moments in microseconds; truth as decimals too."""
    whole = {"id": int, "grade": int, "kids": int, "ok": int}
    columns = {name: column(rows, name, pa.decimal128(38, 0), lambda c: Decimal(int(c)))
               for name in whole}  # fmt: skip
    columns["pay"] = column(rows, "pay", pa.decimal128(12, 4), lambda c: Decimal(str(c)))
    columns["sex"] = column(rows, "sex", pa.string_view())
    columns["day"] = column(rows, "day", pa.date32())
    columns["at"] = column(rows, "at", pa.timestamp("us"))
    return pa.table(columns)


def of_small_types(integers, reals, moments, truth):
    def write(rows):
        return pa.table(
            {
                "id": column(rows, "id", pa.decimal256(50, 2), Decimal),
                "sex": column(rows, "sex", pa.large_string()),
                "grade": column(rows, "grade", reals),
                "kids": column(rows, "kids", integers),
                "pay": column(rows, "pay", pa.float64()),
                "ok": column(rows, "ok", truth, lambda c: truth.to_pandas_dtype()(c)),
                "day": column(rows, "day", pa.date64()),
                "at": column(rows, "at", moments),
            }
        )

    return write


DIALECTS = {
    "pandas": of_pandas,
    "snowflake": of_snowflake,
    "text": of_text(pa.string()),
    "large text": of_text(pa.large_string()),
    "views of text": of_text(pa.string_view()),
    "dictionaries": of_text(pa.dictionary(pa.int8(), pa.string())),
    "dictionaries of large text": of_text(pa.dictionary(pa.int32(), pa.large_string())),
    "small": of_small_types(pa.int8(), pa.float16(), pa.timestamp("s"), pa.bool_()),
    "wide": of_small_types(pa.int64(), pa.float64(), pa.timestamp("ns", tz="UTC"), pa.uint8()),
    "floats": of_small_types(pa.float32(), pa.float32(), pa.timestamp("ms", tz="Asia/Tokyo"),
                             pa.float32()),
}  # fmt: skip


def with_null_types(table):
    """As writers do it who infer types: a column without values has the type null."""
    for place, field in enumerate(table.schema):
        if table.column(place).null_count == len(table):
            table = table.set_column(place, field.name, pa.nulls(len(table)))
    return table


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The scaled snapshot and the custodian's counts of a file."""

    def checked(types, schema, *, file_format):
        assert types_fault(types, schema.columns, file_format=file_format) == ""
        return {}

    # Great Expectations takes long, and says of a type what `types_fault` does.
    monkeypatch.setattr(ingestion, "validate_structure", checked)
    for name in ("validate_values", "validate_scaled"):
        monkeypatch.setattr(ingestion, name, lambda *_, **__: {})
    private = tmp_path / "private"
    private.mkdir(mode=0o700)

    def go(content, file_format):
        (tmp_path / "source").write_bytes(content)
        path = ingest(tmp_path / "source", file_format=file_format, schema=SCHEMA, unit=ADD,
                      directory=private, limits=IngestLimits())  # fmt: skip
        statement = (private / "cells.txt").read_text().partition("How the file")[0]
        return read_snapshot(path), statement

    return go


def file_of(table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def fixed_rows():
    """Every value that a column has, missing ones too, in one small table."""
    days = [dt.datetime(2019, 3, 4, 5, 6, 7), dt.datetime(2024, 2, 29), None]
    cycle = [["f", "m", "x", None], [1, 4, None, 3], [-3, None, 12, 7], [None, -60.0, 0.07, 12.5],
             [True, False, None]]  # fmt: skip
    for n in range(8):
        sex, grade, kids, pay, ok = (cells[n % len(cells)] for cells in cycle)
        at = days[n % 3]
        yield {"id": n // 2 + 1, "sex": sex, "grade": grade, "kids": kids, "pay": pay, "ok": ok,
               "day": at and at.date(), "at": at}  # fmt: skip


@pytest.mark.nightly_cases("24")
@pytest.mark.parametrize("tables", [1, 24])
@pytest.mark.slow
def test_every_dialect_gives_the_snapshot_and_the_counts_of_the_csv_file(read, tables):
    @settings(derandomize=True, database=None, deadline=None, max_examples=tables)
    @given(ROWS)
    @example([*fixed_rows()])
    def same(rows):
        expected, stated = read(as_csv(rows), "csv")
        for name, write in DIALECTS.items():
            plain = write(rows)
            twin = with_null_types(plain)
            for table in (plain,) if twin.schema == plain.schema else (plain, twin):
                snapshot, told = read(file_of(table), "parquet")
                assert snapshot.equals(expected), name
                assert told == stated, name

    same()


def test_a_late_moment_of_96_bits_does_not_wrap_around(tmp_path):
    """Read in nanoseconds, the year 3111 became 1942."""
    late = pa.array([2**55, -(2**55), 1_500_000, -1_500_001], pa.timestamp("us"))
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"t": late}), path, use_deprecated_int96_timestamps=True)
    cells = read_parquet(path, ["t"], limits=IngestLimits())["t"]
    assert cells.dt.year.tolist() == [3111, 828, 1970, 1969]
    assert cells.iloc[2:].astype("int64").tolist() == [1500, -1501]  # rounded down


UNREADABLE = {
    "fixed bytes": pa.array([b"1", b"2"], pa.binary(1)),
    "a dictionary of bytes": pa.array([b"1", b"2"]).dictionary_encode(),
    "lists": pa.array([[1], [2]]),
    "structures": pa.array([{"a": 1}, {"a": 2}]),
    "maps": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    "an extension": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2"])),
    "a length of time": pa.array([1, 2], pa.duration("s")),
    "a time of day": pa.array([1, 2], pa.time32("s")),
    "an unknown zone": pa.array([1, 2], pa.timestamp("us", tz="Mars/Phobos")),
}


def source(file_format="parquet"):
    return SourceSpec(path="data.parquet", format=file_format)


@pytest.mark.parametrize("sort", UNREADABLE)
def test_every_column_that_is_not_read_is_named_at_once_and_for_free(tmp_path, read, sort):
    """Before a run, by the footer alone; and by the read that failed, which names that check."""
    cells, path = UNREADABLE[sort], tmp_path / "table.parquet"
    names = [column.name for column in SCHEMA.columns]
    good = pa.array(["1", "2"])
    bad = names[1::2]
    pq.write_table(pa.table({n: cells if n in bad else good for n in names}), path)
    with pytest.raises(SourceError) as refused:
        check_header(str(path), source(), SCHEMA)
    told = str(refused.value)
    assert [name for name in names if f"column {name}: not stored as" in told] == bad
    assert types_fault(dict(parquet_types(path)), SCHEMA.columns, file_format="parquet") in told
    assert "free" not in told


def test_the_free_check_is_of_names_and_types_and_of_nothing_else(tmp_path):
    """Whatever rows there are, and whatever statistics, what it says is the same."""
    row = dict.fromkeys(["id", "sex", "grade", "kids", "pay", "ok", "day", "at"], None) | {"id": 1}
    told = set()
    for rows in ([row], [row] * 900, [row | {"kids": 7, "sex": "m"}]):
        pq.write_table(of_pandas(rows), tmp_path / "table.parquet")
        told.add(check_header(str(tmp_path / "table.parquet"), source(), SCHEMA))
    assert len(told) == 1
    with pytest.raises(SourceError, match=r"expected source.format: parquet"):
        check_header(str(tmp_path / "table.parquet"), source("csv"), SCHEMA)
    pq.write_table(pa.table({"kids": [1]}), tmp_path / "table.parquet")
    with pytest.raises(SourceError, match="columns missing in the file: id, sex"):
        check_header(str(tmp_path / "table.parquet"), source(), SCHEMA)
    (tmp_path / "table.parquet").write_bytes(b"PAR1" + b"\0" * 50 + b"PAR1")
    with pytest.raises(SourceError, match="damaged or encrypted"):
        check_header(str(tmp_path / "table.parquet"), source(), SCHEMA)
