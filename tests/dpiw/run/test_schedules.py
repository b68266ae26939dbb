"""Every period once, none twice: schedules in every zone, clock changes, workers that are late."""

import datetime
import zoneinfo
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.errors import SpecError
from dpiw.ledger import Ledger
from dpiw.plan import calendar
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec, parse_spec
from dpiw.run import run, steps
from dpiw.run.ahead import check_turn, out_of_turn, question
from tests.support.specs import changed
from tests.support.whole_runs import asked

UTC = datetime.UTC
CADENCES = ("once", "daily", "weekly", "monthly", "quarterly", "yearly")
ZONES = (
    "UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin", "America/New_York",
    "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut",
    "America/Santiago", "Pacific/Chatham", "Pacific/Apia", "Pacific/Pago_Pago",
)  # fmt: skip
"""The earliest and the latest calendar, halves and quarters of an hour, clocks changed at midnight
and by half an hour, and one that left a day out."""

INSTANCE: Any = settings(max_examples=60, derandomize=True, database=None, deadline=None)


def days_of(cadence: str, first: datetime.date, number: int) -> Iterator[datetime.date]:
    """The first day of so many periods, one after the other."""
    day = first
    while number:
        if calendar.current_period(cadence, day) != calendar.current_period(
            cadence, day - datetime.timedelta(1)
        ):
            yield day
            number -= 1
        day += datetime.timedelta(days=1)


def fires(day: datetime.date, at: datetime.time, zone: str) -> datetime.datetime:
    """When a schedule of that zone fires: on its own clock, and an hour on where there is a gap."""
    local = datetime.datetime.combine(day, at, zoneinfo.ZoneInfo(zone))
    return local.astimezone(UTC)


@INSTANCE
@given(
    cadence=st.sampled_from(CADENCES[1:]),
    zone=st.sampled_from(ZONES),
    first=st.dates(datetime.date(2015, 1, 1), datetime.date(2035, 12, 31)),
    at=st.times(),
    late=st.lists(st.timedeltas(datetime.timedelta(0), datetime.timedelta(400)), min_size=4),
)
@example("daily", "Pacific/Kiritimati", datetime.date(2027, 3, 1), datetime.time(0), [])
@example("monthly", "Etc/GMT+12", datetime.date(2027, 3, 1), datetime.time(23, 59), [])
@example("weekly", "Africa/Cairo", datetime.date(2026, 4, 20), datetime.time(0, 30), [])
@example("yearly", "Pacific/Chatham", datetime.date(2026, 1, 1), datetime.time(0), [])
@pytest.mark.slow
def test_a_schedule_publishes_every_period_once(cadence, zone, first, at, late):
    """Once a period in the spec's zone, and worked however late: its own labels, in order."""
    number = {"daily": 40, "weekly": 30, "monthly": 14, "quarterly": 6, "yearly": 3}[cadence]
    planned = [*days_of(cadence, first, number)]
    labels = []
    for place, day in enumerate(planned):
        moment = fires(day, at, zone)
        delay = late[place % len(late)] if late else datetime.timedelta(0)
        made = moment - datetime.timedelta(days=90)
        due = calendar.Due(scheduled=moment, created=made, now=moment + delay)
        label = due.label(cadence, zone)
        spec = spec_of(cadence, zone)
        check_turn(spec, key="0" * 64, label=label, due=due)  # or it would ask a ledger
        labels.append(label)
    assert len(set(labels)) == len(labels)
    expected = [calendar.current_period(cadence, day) for day in planned]
    assert labels == expected
    assert all(calendar.nearest_period(cadence, label) == label for label in labels)


def spec_of(cadence: str, zone: str, **more: Any) -> Any:
    mapping = changed("cadence", cadence) | {"time_zone": zone} | more
    mapping["delta"], mapping["relation"] = "1e-6", "add_or_remove_one"
    return parse_spec(mapping)


@INSTANCE
@given(
    cadence=st.sampled_from(CADENCES),
    zone=st.sampled_from(ZONES),
    moment=st.datetimes(datetime.datetime(2015, 1, 2), datetime.datetime(2036, 1, 1)),
)
def test_the_last_period_is_the_one_before(cadence, zone, moment):
    now = moment.replace(tzinfo=UTC)
    current, *last = calendar.latest_periods(cadence, now, zone, 1)
    assert current == calendar.period_at(cadence, now, zone)
    assert len(last) == (cadence != "once")
    day = now.astimezone(zoneinfo.ZoneInfo(zone)).date()
    while last and calendar.current_period(cadence, day) == current:
        day -= datetime.timedelta(days=1)
    assert not last or calendar.current_period(cadence, day) == last[0]


ADMISSIBLE = {
    # how long before now it is scheduled and was made; whether its label is admitted
    "a run that starts now": (0, 0, True),
    "a run of a day ago": (1, 1, True),
    "scheduled ahead, worked a year late": (365, 400, True),
    "scheduled for the past by a caller of the API": (365_000, 0, False),
    "for two months ago": (70, 0, False),
    "for the last month": (31, 0, True),
    "scheduled ahead for next year and moved to now": (-365, 1, False),
    "far in the future": (-36_500, 0, False),
}


@pytest.mark.parametrize("name", ADMISSIBLE)
@pytest.mark.parametrize("zone", ZONES)
def test_who_may_schedule_runs_cannot_choose_any_period(monkeypatch, name, zone):
    before, made, admitted = ADMISSIBLE[name]
    now = datetime.datetime(2027, 6, 15, 12, tzinfo=UTC)
    due = calendar.Due(
        scheduled=now - datetime.timedelta(days=before),
        created=now - datetime.timedelta(days=made),
        now=now,
    )
    monkeypatch.setattr("dpiw.run.ahead._began", lambda *_: False)
    spec = spec_of("monthly", zone)
    label = due.label("monthly", zone)
    if admitted:
        check_turn(spec, key="0" * 64, label=label, due=due)
        return
    with pytest.raises(SpecError, match="nothing was reserved"):
        check_turn(spec, key="0" * 64, label=label, due=due)


@pytest.mark.parametrize("label", ["1000-01", "2026-12", "2027-04", "2027-07", "2999-12"])
def test_a_label_out_of_turn_is_refused_to_a_worker_and_asked_of_a_person(workplace, label):
    workplace.rewrite("cadence: once", "cadence: monthly")
    spec, now = load_spec(workplace.spec), datetime.datetime(2027, 6, 15, tzinfo=UTC)
    assert out_of_turn(spec, label, now)
    due = calendar.Due(scheduled=now, created=now, now=now)
    entries = len(Ledger.open(workplace.ledger).entries())
    key = asked(workplace.spec, label).key
    with pytest.raises(SpecError):
        check_turn(spec, key=key, label=label, due=due)
    assert question(spec, key=key, label="1000-01")
    assert len(Ledger.open(workplace.ledger).entries()) == entries
    if label != "1000-01":
        steps.reserve(run.ReleaseRun.prepare(workplace.spec, period=label))
        check_turn(spec, key=key, label=label, due=due)  # what a person agreed to goes on


def test_labels_in_turn_are_asked_by_nobody(workplace):
    workplace.rewrite("cadence: once", "cadence: weekly")
    spec = load_spec(workplace.spec)
    for label in calendar.latest_periods("weekly", datetime.datetime.now(UTC), "UTC", 1):
        assert not question(spec, key="0" * 64, label=label)


def test_a_zone_moves_no_run_key(workplace):
    spec, schema = load_spec(workplace.spec), load_schema(load_spec(workplace.spec))
    assert spec.time_zone == "UTC"
    plan = compile_plan(spec, schema)
    moved = spec.model_copy(update={"time_zone": "Asia/Tokyo"})
    assert compile_plan(moved, schema).run_key("once") == plan.run_key("once")


@pytest.mark.parametrize(
    "zone",
    ["", "Berlin", "CEST+", "+02:00", "localtime", "posixrules", "Factory", "../UTC",
     "/etc/passwd", "Europe/", "Europe", "UTC ", "utc", "a\0b", 2, None, True, ["UTC"]],
)  # fmt: skip
def test_zones_are_said_plainly(zone):
    with pytest.raises(SpecError, match="time_zone: "):
        parse_spec(changed("time_zone", zone))


def test_periods():
    day = datetime.date(2027, 3, 31)
    labels = [calendar.current_period(cadence, day) for cadence in CADENCES]
    assert list(map(calendar.nearest_period, CADENCES, labels)) == labels
    assert labels == ["once", "2027-03-31", "2027-w13", "2027-03", "2027-q1", "2027"]


MEANT = {
    "daily": {"2026-1-3": "2026-01-03", "2026-02-29": None, "2026-11": None},
    "weekly": {"2026-w3": "2026-w03", "2026-48": "2026-w48", "2026-w53": "2026-w53",
               "2027-w53": None},
    "monthly": {"2026-1": "2026-01", "2026-m11": "2026-11", "2026-00": None, "2026-13": None},
    "quarterly": {"2026q4": "2026-q4", "2026-4": "2026-q4", "2026-q5": None,
                  "2026-november": None},
    "yearly": {"2026-11": None, "0026": None},
    "once": {"2026": None},
}  # fmt: skip


@pytest.mark.parametrize("cadence", MEANT)
def test_the_label_that_was_meant(cadence):
    assert {typed: calendar.nearest_period(cadence, typed) for typed in MEANT[cadence]} == MEANT[
        cadence
    ]
