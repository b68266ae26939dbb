"""Dates and times as whole numbers: days, and seconds in UTC, since 1970-01-01."""

from __future__ import annotations

import datetime as dt
import math

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()


def day_number(text: str) -> int | None:
    """Days since 1970-01-01 of an ISO date (or of an ISO datetime as written), else None."""
    try:
        return dt.datetime.fromisoformat(text.strip()).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def second_number(text: str, zone: dt.tzinfo) -> int | None:
    """Whole seconds since the epoch, UTC, of an ISO datetime; naive text is read in `zone`."""
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment_seconds(moment, zone)


def moment_seconds(moment: dt.datetime, zone: dt.tzinfo) -> int:
    """Whole seconds since the epoch, UTC, rounded down; total even at years 1 and 9999.

    A time in a daylight-saving gap or overlap is read with the offset before the change (fold=0).
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        offset = moment.utcoffset() or dt.timedelta(0)
    except OverflowError:  # zone arithmetic past year 1 or 9999: outside any sensible bound
        offset = dt.timedelta(0)
    days = moment.toordinal() - _EPOCH_DAY
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    return days * 86400 + seconds - math.ceil(offset.total_seconds())
