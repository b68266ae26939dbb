"""Labels of periods: the label of a moment, and the label that a text means."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

CLOCKS_DIFFER = datetime.timedelta(minutes=5)
"""Tolerance for a scheduler's clock ahead of a worker's."""

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


def current_period(cadence: str, today: datetime.date) -> str:
    """Return the label of a day's period: `once`, `2027-03-31`, `2027-w13`, `2027-q1`, ..."""
    week = today.isocalendar()
    return {
        "once": "once",
        "daily": today.isoformat(),
        "weekly": f"{week.year}-w{week.week:02d}",
        "monthly": f"{today.year}-{today.month:02d}",
        "quarterly": f"{today.year}-q{(today.month + 2) // 3}",
        "yearly": f"{today.year}",
    }[cadence]


def period_at(cadence: str, moment: datetime.datetime, zone: str) -> str:
    """Return the label of a moment's period, by the calendar of a time zone.

    >>> midnight = datetime.datetime(2027, 1, 31, 23, tzinfo=datetime.UTC)
    >>> period_at("monthly", midnight, "UTC"), period_at("monthly", midnight, "Europe/Berlin")
    ('2027-01', '2027-02')
    """
    return current_period(cadence, moment.astimezone(zoneinfo.ZoneInfo(zone)).date())


def today_in(zone: str) -> datetime.date:
    """Return today's date in a time zone."""
    return datetime.datetime.now(zoneinfo.ZoneInfo(zone)).date()


def current_and_last(cadence: str, moment: datetime.datetime, zone: str) -> tuple[str, ...]:
    """Return the labels of a moment's period and, except for `once`, of the period before."""
    day = moment.astimezone(zoneinfo.ZoneInfo(zone)).date()
    current = current_period(cadence, day)
    if cadence == "once":
        return (current,)
    while current_period(cadence, day) == current:
        day -= datetime.timedelta(days=1)
    return current, current_period(cadence, day)


@dataclass(frozen=True, kw_only=True)
class Due:
    """When a scheduler's run was due; anybody who may create runs may state any `scheduled`."""

    scheduled: datetime.datetime
    created: datetime.datetime
    now: datetime.datetime

    @classmethod
    def now_alone(cls) -> Self:
        """Return the `Due` of a run without a schedule."""
        now = datetime.datetime.now(datetime.UTC)
        return cls(scheduled=now, created=now, now=now)

    @property
    def moment(self) -> datetime.datetime:
        """The time that decides the current period: not before creation, and not in the future."""
        return min(max(self.scheduled, self.created), self.now + CLOCKS_DIFFER)

    def label(self, cadence: str, zone: str) -> str:
        """Return the label of the period in which the run was scheduled."""
        return period_at(cadence, self.scheduled, zone)


def nearest_period(cadence: str, label: str) -> str | None:
    """Return the label of a cadence that `label` means; None if there is none.

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
