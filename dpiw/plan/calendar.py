"""The calendar of releases: labels of periods at a cadence, in a time zone."""

import datetime
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass

CLOCKS_DIFFER = datetime.timedelta(minutes=5)
"""Tolerance for a scheduler's clock ahead of a worker's."""

_YEAR = r"([12]\d{3})"
_LOOSE: dict[str, tuple[str, Callable[..., datetime.date]]] = {
    "daily": (_YEAR + r"[-_](\d\d?)[-_](\d\d?)", datetime.date),
    "weekly": (
        _YEAR + r"[-_]?w?[-_]?(\d\d?)",
        lambda year, week: datetime.date.fromisocalendar(year, week, 1),
    ),
    "monthly": (_YEAR + r"[-_]?m?(\d\d?)", lambda year, month: datetime.date(year, month, 1)),
    "quarterly": (
        _YEAR + r"[-_]?q?[-_]?0?(\d)",
        lambda year, quarter: datetime.date(year, 3 * quarter - 2, 1),
    ),
    "yearly": (_YEAR, lambda year: datetime.date(year, 1, 1)),
}

_LONGEST = {
    name: datetime.timedelta(days=days)
    for name, days in [("daily", 1), ("weekly", 7), ("monthly", 31), ("quarterly", 92),
                       ("yearly", 366)]
}  # fmt: skip
"""At least one period, and less than two."""


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


def latest_periods(cadence: str, moment: datetime.datetime, zone: str, back: int) -> list[str]:
    """Return the labels of a moment's period and of `back` before it, newest first; `once`: one."""
    labels = [period_at(cadence, moment, zone)]
    while cadence != "once" and len(labels) <= back:
        day = first_day(cadence, labels[-1])
        labels.append(current_period(cadence, day - datetime.timedelta(days=1)))
    return labels


def first_day(cadence: str, label: str) -> datetime.date:
    """Return the first day of a period; ValueError if no such label, or `once`."""
    form, day = _LOOSE.get(cadence, ("(?!)", datetime.date))
    match = re.fullmatch(form, label)
    if match is None:
        raise ValueError("no label of a period")
    return day(*map(int, match.groups()))


def following(cadence: str, label: str) -> str:
    """Return the label of the next period; ValueError as `first_day`.

    >>> following("weekly", "2026-w53"), following("quarterly", "2026-q4")
    ('2027-w01', '2027-q1')
    """
    return current_period(cadence, first_day(cadence, label) + _LONGEST[cadence])


def periods(cadence: str, first: str, last: str) -> list[str]:
    """Return the labels of a calendar, in order and without gaps; none if `last` is earlier.

    >>> periods("monthly", "2026-11", "2027-02")
    ['2026-11', '2026-12', '2027-01', '2027-02']
    """
    if first_day(cadence, first) > first_day(cadence, last):
        return []
    labels = [first]
    while labels[-1] != last:
        labels.append(following(cadence, labels[-1]))
    return labels


@dataclass(frozen=True, kw_only=True)
class Due:
    """When a scheduler's run was due; anybody who may create runs may state any `scheduled`."""

    scheduled: datetime.datetime
    created: datetime.datetime
    now: datetime.datetime

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
    try:
        return current_period(cadence, first_day(cadence, label))
    except ValueError:  # no such day, week, month or quarter
        return None


def days_of(label: str) -> tuple[datetime.date, datetime.date] | None:
    """Return the first and last day of a period of any cadence; None for `once` or no label.

    >>> [str(day) for day in days_of("2027-q1")]
    ['2027-01-01', '2027-03-31']
    """
    day = datetime.timedelta(days=1)
    for cadence, longest in _LONGEST.items():
        if nearest_period(cadence, label) == label:
            first = first_day(cadence, label)
            last = first + longest - day
            while current_period(cadence, last) != label:
                last -= day
            return first, last
    return None
