"""Periods: the current one by cadence, the label that was meant, what no label is."""

import datetime

import pytest

from dpiw.errors import SpecError
from dpiw.run.run import current_period, nearest_period
from tests.support.whole_runs import prepared


def test_periods():
    day = datetime.date(2027, 3, 31)
    cadences = ("once", "daily", "weekly", "monthly", "quarterly", "yearly")
    labels = [current_period(cadence, day) for cadence in cadences]
    assert list(map(nearest_period, cadences, labels)) == labels
    assert labels == ["once", "2027-03-31", "2027-w13", "2027-03", "2027-q1", "2027"]


@pytest.mark.parametrize(
    ("cadence", "typed", "meant"),
    [
        ("daily", "2026-1-3", "2026-01-03"),
        ("daily", "2026-02-29", None),
        ("daily", "2026-11", None),
        ("weekly", "2026-w3", "2026-w03"),
        ("weekly", "2026-48", "2026-w48"),
        ("weekly", "2026-w53", "2026-w53"),
        ("weekly", "2027-w53", None),
        ("monthly", "2026-1", "2026-01"),
        ("monthly", "2026-m11", "2026-11"),
        ("monthly", "2026-00", None),
        ("monthly", "2026-13", None),
        ("quarterly", "2026q4", "2026-q4"),
        ("quarterly", "2026-4", "2026-q4"),
        ("quarterly", "2026-q5", None),
        ("quarterly", "2026-november", None),
        ("yearly", "2026-11", None),
        ("yearly", "0026", None),
        ("once", "2026", None),
    ],
)
def test_the_label_that_was_meant(cadence, typed, meant):
    assert nearest_period(cadence, typed) == meant


@pytest.mark.parametrize("period", ["../x", "Q1", "a" * 64, "2027 q1"])
def test_a_period_is_a_plain_label(workplace, period):
    with pytest.raises(SpecError, match="period"):
        prepared(workplace, period=period)
