"""Cells as text, numbers and moments. Total, by each cell alone."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import unicodedata
import zoneinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NOT_A_TIME = np.iinfo(np.int64).min
_MARGIN = 2 * 86400
_FIRST = (dt.date(1, 1, 3).toordinal() - _EPOCH_DAY) * 86400
_LAST = (dt.date(9999, 12, 29).toordinal() - _EPOCH_DAY) * 86400
"""Seconds between which every zone's clock shows a year from 1 to 9999."""


def is_zone(name: object) -> bool:
    """Whether every machine knows that zone; `localtime` is the machine's own."""
    machine_names = ("localtime", "posixrules", "Factory", "posix/", "right/")
    if isinstance(name, str) and not name.startswith(machine_names):
        with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            return bool(zoneinfo.ZoneInfo(name))
    return False


def day_number(text: str) -> int | None:
    """Return days since 1970-01-01 of an ISO date (or of an ISO datetime as written), else None."""
    try:
        return dt.datetime.fromisoformat(text.strip()).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def second_number(text: str, zone: dt.tzinfo) -> int | None:
    """Return whole seconds since the epoch, UTC, of an ISO datetime; naive text is in `zone`."""
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment_seconds(moment, zone)


def moment_seconds(moment: dt.datetime, zone: dt.tzinfo) -> int:
    """Return seconds since the epoch, UTC, rounded down. Total; fold=0 in gaps and overlaps."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        offset = moment.utcoffset() or dt.timedelta(0)
    except OverflowError:  # zone arithmetic past year 1 or 9999: outside any sensible bound
        offset = dt.timedelta(0)
    days = moment.toordinal() - _EPOCH_DAY
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    return days * 86400 + seconds - math.ceil(offset.total_seconds())


# Columns of typed moments


def clock_seconds(
    cells: pd.Series[Any], low: int, high: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return seconds since the epoch, rounded down, and which cells are missing; shape (rows,).

    UTC for zoned `datetime64` cells, else the local clock. Clipped to two days beyond the bounds
    `low` and `high`, in seconds since the epoch, so that no calendar or unit overflows.
    """
    unit = cells.dt.unit
    counts = cells.to_numpy(dtype=f"datetime64[{unit}]").view(np.int64)
    seconds = counts // _PER_SECOND[unit]
    return np.clip(seconds, low - _MARGIN, high + _MARGIN), counts == _NOT_A_TIME


def in_calendar(cells: pd.Series[Any]) -> NDArray[np.bool_]:
    """Which moments have a date from year 1 to 9999 in every zone, or are missing."""
    seconds, missing = clock_seconds(cells, _FIRST, _LAST)
    return missing | ((seconds >= _FIRST) & (seconds <= _LAST))


def zone_offsets(seconds: NDArray[np.int64], zone: Any) -> NDArray[np.int64]:
    """Return a zone's offset from UTC at each moment; at the calendar's ends as just inside."""
    distinct, inverse = np.unique(np.clip(seconds, _FIRST, _LAST), return_inverse=True)
    moments = pd.DatetimeIndex(distinct.astype("datetime64[s]")).tz_localize("UTC")
    local = moments.tz_convert(zone).tz_localize(None).to_numpy().astype("datetime64[s]")
    return np.asarray((local.astype(np.int64) - distinct)[inverse], dtype=np.int64)


def seconds_from_local(seconds: NDArray[np.int64], zone: dt.tzinfo) -> NDArray[np.int64]:
    """Return UTC from a zone's local clock; at the calendar's ends with the offset just inside."""
    distinct, inverse = np.unique(np.clip(seconds, _FIRST, _LAST), return_inverse=True)
    clocks = distinct.astype("datetime64[s]").tolist()
    utc = np.array([moment_seconds(clock, zone) for clock in clocks], dtype=np.int64)
    return np.asarray(seconds + (utc - distinct)[inverse], dtype=np.int64)


NULLABLE = {
    pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(), pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(), pa.uint64(): pd.UInt64Dtype(), pa.bool_(): pd.BooleanDtype(),
}  # fmt: skip
"""Integers with gaps stay integers: a detour through floats would depend on other rows."""

MINUS_SIGNS = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"
"""Hyphens, dashes and minus signs of other locales, read as `-` in a number."""

_TO_HYPHEN = dict.fromkeys(map(ord, MINUS_SIGNS), "-")
_SPACES = dict.fromkeys((*range(0x2000, 0x200B), 0xA0, 0x1680, 0x202F, 0x205F, 0x3000), " ")
LONGEST = 1000
"""Characters; longer texts keep their form, because normalising their marks takes long."""


def plain_signs(text: str) -> str:
    """Replace every other minus sign in a number's text by `-`."""
    return text if text.isascii() else text.translate(_TO_HYPHEN)


def one_form(text: str) -> str:
    """Return a text in Unicode form NFC with plain spaces; idempotent."""
    if text.isascii() or len(text) > LONGEST:
        return text
    return unicodedata.normalize("NFC", text).translate(_SPACES)


def word_form(text: str) -> str:
    """Return the form in which a boolean column's words are compared."""
    return one_form(text).strip().casefold()


def in_one_form(texts: pa.Array) -> pa.Array:
    """Apply `one_form` to large strings; nulls stay."""
    if text_bytes(texts).isascii():
        return texts
    return pa.array(
        [None if text is None else one_form(text) for text in texts.to_pylist()], type=texts.type
    )


def valid_text(texts: Any) -> Any:
    """Replace bytes that are no UTF-8 by U+FFFD in an Arrow array, chunked or not."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        cells = texts.cast(pa.large_binary()).to_pylist()
        clean = [None if cell is None else cell.decode("utf-8", "replace") for cell in cells]
        return pa.array(clean, type=pa.large_string())
    return texts


def text_bytes(texts: pa.Array) -> bytes:
    """Return the concatenated bytes of all large strings that are not null."""
    _, ends, data = texts.buffers()
    places = np.frombuffer(ends, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(data or b"")[places[0] : places[-1]])


def cell_texts(cells: pd.Series[Any]) -> pa.Array:
    """Return each cell as text (null = missing), by its own value alone, whatever the dtype."""
    if isinstance(cells.dtype, pd.StringDtype):
        try:
            array = pa.array(cells, type=pa.large_string(), from_pandas=True)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            return valid_text(array)
        except (pa.ArrowException, UnicodeError, TypeError):
            pass  # lone surrogates: cell by cell below
    if isinstance(cells.dtype, (np.dtype, pd.DatetimeTZDtype)) and cells.dtype.kind == "M":
        inside = in_calendar(cells)
        cells = cells.where(inside).dt.as_unit("us").astype(object).where(inside, "")
    texts = [cell_text(value) for value in cells.astype(object).tolist()]
    try:
        return pa.array(texts, type=pa.large_string())
    except UnicodeError:
        clean = [None if t is None else t.encode("utf-8", "replace").decode() for t in texts]
        return pa.array(clean, type=pa.large_string())


def cell_text(value: Any) -> str | None:
    """Return one cell as text; None if missing, empty if it is not a declared type of cell."""
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        number = int(value)
        # Outside 64 bits every bound is passed; str() of very long integers would raise.
        return str(number) if abs(number) < 2**64 else ("inf" if number > 0 else "-inf")
    if isinstance(value, (float, np.floating)):
        real = float(value)
        if real != real:
            return None
        # 1.0 reads as level "1": an integer column with a gap arrives as floats.
        return str(int(real)) if real.is_integer() and abs(real) < 2**63 else repr(real)
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        # 1.00 reads as level "1", as the float does.
        whole = value.is_finite() and value.adjusted() < 100 and value == value.to_integral_value()
        return str(int(value)) if whole else str(value)
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    return ""  # bytes, containers and other objects are no declared cell
