"""Dates and times as whole numbers: days, and seconds in UTC, since 1970-01-01."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
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
    with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        return (
            isinstance(name, str)
            and not name.startswith(machine_names)
            and bool(zoneinfo.ZoneInfo(name))
        )
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
