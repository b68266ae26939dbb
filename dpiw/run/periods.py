"""Labels of periods: the one that a day falls in, and whether a label has its cadence's form."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

_YEAR = r"([12]\d{3})"
_LOOSE: dict[str, tuple[str, Callable[..., datetime.date]]] = {
    "daily": (_YEAR + r"[-_](\d\d?)[-_](\d\d?)", datetime.date),
    "weekly": (
        _YEAR + r"[-_]?w?[-_]?(\d\d?)",
        lambda year, week: datetime.date.fromisocalendar(year, week, 4),
    ),
    "monthly": (_YEAR + r"[-_]?m?(\d\d?)", lambda year, month: datetime.date(year, month, 1)),
    "quarterly": (
        _YEAR + r"[-_]?q?[-_]?0?(\d)",
        lambda year, quarter: datetime.date(year, 3 * quarter, 1),
    ),
    "yearly": (_YEAR, lambda year: datetime.date(year, 1, 1)),
}
"""By cadence: what somebody may have typed for one of its labels, and a day of that period."""


def current_period(cadence: str, today: datetime.date) -> str:
    """The label of the period `today` falls in: `once`, `2027-03-31`, `2027-w13`, `2027-q1`, ..."""
    week = today.isocalendar()
    return {
        "once": "once",
        "daily": today.isoformat(),
        "weekly": f"{week.year}-w{week.week:02d}",
        "monthly": f"{today.year}-{today.month:02d}",
        "quarterly": f"{today.year}-q{(today.month + 2) // 3}",
        "yearly": f"{today.year}",
    }[cadence]


def nearest_period(cadence: str, label: str) -> str | None:
    """The label of a cadence that `label` is, or was obviously meant for; None where none is.

    >>> nearest_period("monthly", "2026-01"), nearest_period("monthly", "2026-1")
    ('2026-01', '2026-01')
    >>> nearest_period("monthly", "2026-13") is None
    True
    """
    if cadence == "once":
        return "once" if label == "once" else None
    form, day = _LOOSE[cadence]
    match = re.fullmatch(form, label)
    if match is None:
        return None
    try:
        return current_period(cadence, day(*map(int, match.groups())))
    except ValueError:  # no such day, week, month or quarter
        return None


__all__ = ["current_period", "nearest_period"]
