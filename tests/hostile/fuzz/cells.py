"""Tables as declared, with the worst values that their types can hold, and neighbours of them.

One schema has a column for each kind and each option that bears on reading. A case draws for every
column one of the types it may be stored in, and for every cell a value of that type: extreme,
missing, denormal, a sentinel, or random bits. Everything follows from (seed, index).
"""

import datetime as dt
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpiw.data.cells.formats import CANONICAL, CellFormat
from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.source.validation import admissible_types
from dpiw.data.yaml import load_text

SCHEMA_YAML = """
name: cells
columns:
  - {name: person, role: identifier}
  - {name: other_id, role: identifier, null_is_own_person: true}
  - {name: real, kind: continuous, lower: -10, upper: 10, nullable: true}
  - {name: real_grid, kind: continuous, lower: 0, upper: 1000, decimals: 2, fill: 12.5,
     missing: ["-9", "999", "12.34"]}
  - {name: real_huge, kind: continuous, lower: -1.0e+60, upper: 1.0e+60}
  - {name: real_tiny, kind: continuous, lower: 0, upper: 1.0e-60, nullable: true}
  - {name: whole, kind: integer, lower: 0, upper: 100, nullable: true}
  - {name: whole_low, kind: integer, lower: -9223372036854775808, upper: -9223372036854775000}
  - {name: whole_high, kind: integer, lower: 9214364837600034815, upper: 9223372036854775807,
     fill: 9223372036854775807}
  - {name: whole_listed, kind: integer,
     values: [9223372036854775000, 9223372036854775006, 9223372036854775807]}
  - {name: real_listed, kind: continuous, values: [-1.5, 0, 2, 100], fill: 2}
  - {name: truth, kind: boolean, nullable: true, role: target}
  - {name: truth_words, kind: boolean, true_values: [oui], false_values: [non], nullable: true}
  - {name: truth_numbers, kind: boolean, true_values: ["1"], false_values: ["2"], fill: true}
  - {name: group, kind: categorical, levels: [north, "1", "0", other], other: other}
  - {name: group_folded, kind: categorical, levels: [Süd, "2"], normaliser: casefold,
     nullable: true}
  - {name: group_filled, kind: categorical, levels: [a, b], fill: b}
  - {name: rank, kind: ordinal, levels: [low, "1", high], nullable: true}
  - {name: day, kind: date, lower: "1900-01-01", upper: "2020-12-31", nullable: true}
  - {name: day_ever, kind: date, lower: "0001-01-01", upper: "9999-12-31", fill: "1900-03-01"}
  - {name: moment, kind: datetime, lower: "1970-01-01", upper: "2030-12-31", nullable: true}
  - {name: moment_berlin, kind: datetime, lower: "1900-01-01", upper: "2030-12-31T23:59:59",
     time_zone: Europe/Berlin}
  - {name: moment_ever, kind: datetime, lower: "0001-01-02T00:00:00",
     upper: "9999-12-30T23:59:59", time_zone: America/New_York, nullable: true}
  - {name: region, kind: categorical, levels: [east, west], members: [["3", "3a"], [Süd]],
     nullable: true}
  - {name: place, kind: categorical, hash_buckets: 7, normaliser: casefold, nullable: true}
  - {name: unlisted, kind: categorical, unseen: true, nullable: true}
"""

MEANS_NOTHING_TO_CELLS = frozenset({
    "name", "kind", "role", "lower", "upper", "levels", "cuts", "bins", "description", "provenance",
    "expectations",
})  # fmt: skip
"""Fields of a column that change no option of reading, or that every column has."""

WRITTEN = (
    CANONICAL,
    CANONICAL,
    replace(CANONICAL, decimal=",", thousands=".", date_format="%d.%m.%Y", missing=("NA", "-9")),
    replace(CANONICAL, thousands="space", datetime_format="%m/%d/%Y %H:%M", missing=("none", "50")),
    replace(CANONICAL, thousands="'", date_format="%Y%m%d", datetime_format="%d-%m-%Y %H:%M:%S"),
)
"""How cells of a source may be declared to be written; of Parquet, tokens for missing alone."""

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONES = (None, "UTC", "Europe/Berlin", "+05:30", "-23:59", "America/New_York", "Pacific/Apia")
ARROW: dict[str, tuple[pa.DataType, ...]] = {
    "text": (
        pa.string(), pa.large_string(), pa.string_view(), pa.null(),
        pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
    ),
    **{f"{sign}int{bits}": (getattr(pa, f"{sign}int{bits}")(),)
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": (pa.float16(),),
    "float": (pa.float32(),),
    "double": (pa.float64(),),
    "decimal32": (pa.decimal32(9, 0), pa.decimal32(9, 9), pa.decimal32(1, 0)),
    "decimal64": (pa.decimal64(18, 0), pa.decimal64(18, 6)),
    "decimal128": (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(10, 2)),
    "decimal256": (pa.decimal256(76, 0), pa.decimal256(50, 2)),
    "bool": (pa.bool_(),),
    "date32": (pa.date32(),),
    "date64": (pa.date64(),),
    "timestamp": tuple(pa.timestamp(unit, tz=zone) for unit in UNITS for zone in ZONES),
}  # fmt: skip
"""Every Arrow type that ingestion admits for some column, by the name it has there."""

LONGEST = 9_990
"""Bytes of the longest text cells; `max_cell_bytes` is 10,000."""

_DATED = tuple(
    int((moment - dt.datetime(1970, 1, 1)).total_seconds())
    for moment in (
        dt.datetime(1, 1, 1), dt.datetime(1, 1, 2), dt.datetime(1899, 12, 31, 23, 59, 59),
        dt.datetime(1900, 2, 28, 23), dt.datetime(1900, 3, 1), dt.datetime(1970, 1, 1),
        dt.datetime(2000, 2, 29), dt.datetime(2016, 12, 31, 23, 59, 59),
        dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 10, 27, 2, 30),
        dt.datetime(2038, 1, 19, 3, 14, 8), dt.datetime(2262, 4, 11, 23, 47, 16),
        dt.datetime(9999, 12, 30, 22), dt.datetime(9999, 12, 31, 23, 59, 59),
    )
)  # fmt: skip
_MOMENTS = (*_DATED, 253_402_300_800, 10**12, -(10**12), -62_135_596_801)
_TEXTS: tuple[bytes, ...] = tuple(
    text if isinstance(text, bytes) else text.encode()
    for text in (
        "", " ", "\t", "\u00a0", "\x00", "\x1f", "\ufeff", "\ufffd", "a\nb", "a\r\nb", '"', '""',
        ",", ";", "=1+1", "NA", "N/A", "nan", "NaN", "null", "None", "<NA>", "NaT", "-", "+", ".",
        "0", "1", "2", "-0.0", "1.0", "1.", ".5", "1,5", "1_0", "0x10", "1e400", "-1e400", "1e-400",
        "5e-324", "1e308", "1e999999", "1e9999999", "-1e-9999999", "1e+5", "E5", "inf", "-Infinity",
        "9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 38,
        "-" + "9" * 76, "9" * LONGEST, "1" * (LONGEST - 1) + "x", "." * LONGEST,
        "0." + "0" * 5000 + "1", " " * LONGEST, '"' * LONGEST, "\u0301\u0323" * (LONGEST // 4),
        "\u1f82" * (LONGEST // 3), "x" * LONGEST, "true", "TRUE", "False", "yes", "oui", "Oui ",
        "non", "north", "Süd", "SU\u0308D", "su\u0308d", "mars", "low", "high", "b", "\u0130",
        "\u00df", "\U0001f600", "\u202e", "٣", "１", "0000-00-00", "0001-01-01", "9999-12-31",
        "10000-01-01", "1900-02-29", "2000-02-30", "1900-03-01", "2024-W53-7", "9999-W53-7",
        "0001-W01-1", "20240229", "2024-03-31T02:30:00", "2024-10-27T02:30",
        "9999-12-31T23:59:59.999999999-23:59", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z",
        "2016-12-31T23:59:60", "2024-01-01T24:00:00", "2024-01-01T00:00:00+24:00", "12:00",
        "1/2/2024", "31.12.2020", "1.1.1900", "29.02.1900", "00.00.0000", "31.12.9999",
        "12/31/2020 23:59", "13/1/2020 0:00", "01/01/0001 00:00", "31-12-9999 23:59:59", "20201231",
        "99999999", "1.669,78", "1.669", "16.69", "1 669,78", "1\u202f669.78", "1'669.78", "-9",
        "999", "9" * 3 + ".999" * 2_000, "1,1" * 3_000, "1'" * 4_000, "12.34", "none",
        "\u00a0NA\u3000", b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80",
        b"\xe2", b"\xe2\x82", b"north\xff", b"\xf0\x9f", b"\x80" * 3_000,
    )
)  # fmt: skip

SCHEMA = PublicSchema.from_mapping(load_text(SCHEMA_YAML, what="schema"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table as declared: for each column a type (None: CSV) and raw cells, equally many."""

    kinds: dict[str, pa.DataType | None]
    cells: dict[str, list[Any]]
    encoding: str
    quote_all: bool
    written: CellFormat

    @property
    def file_format(self) -> str:
        return "csv" if None in self.kinds.values() else "parquet"

    @property
    def rows(self) -> int:
        return len(self.cells["person"])

    def content(self) -> bytes:
        """The file."""
        if self.file_format == "csv":
            return self._csv()
        columns = {name: array(kind, self.cells[name]) for name, kind in self.kinds.items()}
        return parquet_bytes(pa.table(columns))

    def _csv(self) -> bytes:
        def cell(data: bytes) -> bytes:
            special = any(mark in data for mark in b',"\n\r')
            quoted = b'"' + data.replace(b'"', b'""') + b'"'
            return quoted if special or self.quote_all else data

        names = list(self.cells)
        lines = [",".join(names).encode()]
        for row in range(self.rows):
            lines.append(b",".join(cell(self.cells[name][row] or b"") for name in names))
        data = b"\n".join(lines) + b"\n"
        if self.encoding == "utf-8":
            return data
        text = data.decode("utf-8", "replace")
        if self.encoding == "utf-16":  # lone surrogates: no valid UTF-16 either
            return text.replace("\ufffd", "\ud800").encode("utf-16", "surrogatepass")
        return text.encode(self.encoding, "replace")


def array(kind: pa.DataType | None, cells: Sequence[Any]) -> pa.Array:
    """Raw cells as an Arrow array, without any check of what they mean."""
    if pa.types.is_null(kind):
        return pa.nulls(len(cells))
    if pa.types.is_string_view(kind):
        return array(pa.string(), cells).cast(kind)
    if pa.types.is_dictionary(kind):
        return array(kind.value_type, cells).dictionary_encode().cast(kind)
    if pa.types.is_string(kind):
        return pa.array(cells, pa.binary()).view(kind)
    if pa.types.is_large_string(kind):
        return pa.array(cells, pa.large_binary()).view(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        return pa.array(cells, pa.int64()).view(kind)
    if pa.types.is_date32(kind):
        return pa.array(cells, pa.int32()).view(kind)
    return pa.array(cells, kind)


def parquet_bytes(table: pa.Table) -> bytes:
    """A file of the table; what Parquet has no place for becomes what writers make of it.

    Seconds are stored in milliseconds, and days in 64 bits as days in 32: clipped to what fits.
    """
    for place, field in enumerate(table.schema):
        counts = None
        if pa.types.is_timestamp(field.type) and field.type.unit == "s":
            counts = 2**63 // 1000 - 1
        elif pa.types.is_date64(field.type):
            counts = (2**31 - 1) * 86_400_000
        if counts is not None:
            cells = table.column(place).combine_chunks().view(pa.int64()).to_pylist()
            clipped = [None if c is None else min(max(c, -counts), counts) for c in cells]
            table = table.set_column(place, field, array(field.type, clipped))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=max(1, table.num_rows // 2))
    return buffer.getvalue()


def make_kinds(seed: int, index: int) -> dict[str, pa.DataType | None]:
    """The types of case `index`; every third case is a CSV file."""
    rng = np.random.default_rng([seed, index, 2])
    if index % 3 == 2:
        return dict.fromkeys(column.name for column in SCHEMA.columns)
    kinds = {
        column.name: _pick(rng, ARROW[_pick(rng, admissible_types(column, file_format="parquet"))])
        for column in SCHEMA.columns
    }
    return kinds | {"person": pa.string()} if pa.types.is_null(kinds["person"]) else kinds


def make_case(seed: int, index: int) -> Case:
    """Case `index` of a seed."""
    rng = np.random.default_rng([seed, index])
    kinds = make_kinds(seed, index)
    rows = int(rng.integers(1, 60))
    written = _pick(rng, WRITTEN)
    encodings = ("utf-8", "utf-8", "utf-8", "utf-16", "latin-1", "cp1252")
    return Case(
        kinds=kinds,
        cells={name: draw_cells(rng, SCHEMA.column(name), kind, rows)
               for name, kind in kinds.items()},
        encoding=_pick(rng, encodings),
        quote_all=bool(rng.integers(2)),
        written=written if None in kinds.values() else replace(CANONICAL, missing=written.missing),
    )  # fmt: skip


def neighbour(case: Case, seed: int, index: int) -> tuple[Case, int]:
    """The case with all values of one row drawn anew, and that row."""
    rng = np.random.default_rng([seed, index, 1])
    row = int(rng.integers(case.rows))
    cells = {}
    for name, old in case.cells.items():
        (new,) = draw_cells(rng, SCHEMA.column(name), case.kinds[name], 1)
        cells[name] = [*old[:row], new, *old[row + 1 :]]
    return replace(case, cells=cells), row


def draw_cells(
    rng: np.random.Generator, column: Column, kind: pa.DataType | None, rows: int
) -> list[Any]:
    """Raw cells of one column; an identifier that must not be missing is not."""
    needed = column.name == "person"
    return [_draw(rng, kind, needed=needed) for _ in range(rows)]


def _draw(rng: np.random.Generator, kind: pa.DataType | None, *, needed: bool) -> Any:
    if not needed and rng.random() < 0.1:
        return None
    if kind is None or kind in ARROW["text"]:
        text = _text(rng)
        return b"p" + text[: LONGEST - 1] if needed else text
    if pa.types.is_boolean(kind):
        return bool(rng.integers(2))
    if pa.types.is_floating(kind):
        while (real := _real(rng, kind)) != real and needed:
            pass
        return real
    if pa.types.is_decimal(kind):
        top = 10**kind.precision - 1
        whole = _pick(rng, (0, 1, -1, top, -top, int(rng.integers(-9, 10))))
        return Decimal(whole).scaleb(-kind.scale, context=_WIDE)
    if pa.types.is_timestamp(kind):
        return _moment(rng, UNITS[kind.unit], 64)
    if pa.types.is_date32(kind):
        return _pick(rng, (_moment(rng, 1, 48) // 86400, _whole(rng, -(2**31), 2**31 - 1)))
    if pa.types.is_date64(kind):
        return _moment(rng, 1000, 64)
    signed = pa.types.is_signed_integer(kind)
    top = 2 ** (kind.bit_width - signed) - 1
    return _whole(rng, -top - 1 if signed else 0, top)


_WIDE = Context(prec=80)


def _pick(rng: np.random.Generator, among: Sequence[Any]) -> Any:
    return among[int(rng.integers(len(among)))]


def _whole(rng: np.random.Generator, low: int, high: int) -> int:
    special = (low, low + 1, high, high - 1, 0, 1, 2, -1, 2**53 + 1, -(2**53) - 1, 50)
    drawn = int.from_bytes(rng.bytes(8)) % (high - low + 1) + low
    return min(max(_pick(rng, (*special, drawn, drawn)), low), high)


def _moment(rng: np.random.Generator, per_second: int, bits: int) -> int:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    near = _pick(rng, _MOMENTS) * per_second + _pick(rng, (-1, 0, 1, int(rng.integers(per_second))))
    return min(max(_pick(rng, (near, near, _whole(rng, low, high))), low), high)


def _real(rng: np.random.Generator, kind: pa.DataType) -> Any:
    dtype = np.dtype(kind.to_pandas_dtype())
    info = np.finfo(dtype)
    special = (0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, info.max, info.min, info.tiny,
               info.smallest_subnormal, -info.smallest_subnormal, 0.5, 12.345)  # fmt: skip
    bits = np.frombuffer(rng.bytes(dtype.itemsize), dtype=dtype)[0]
    return dtype.type(_pick(rng, (*special, bits, bits, bits)))


def _text(rng: np.random.Generator) -> bytes:
    way = rng.random()
    if way < 0.7:
        return bytes(_pick(rng, _TEXTS))
    if way < 0.8:
        return rng.bytes(int(rng.integers(1, 40)))
    letters = rng.integers(1, 0x10FFFF, int(rng.integers(1, 12)))
    return "".join(map(chr, letters)).encode("utf-8", "replace")
