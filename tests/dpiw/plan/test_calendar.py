"""Calendars: every day lies in one period, no period is left out, in any zone and any year."""

import datetime
import itertools
import zoneinfo
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw.errors import SpecError
from dpiw.plan import calendar
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import load_schema, load_spec, parse_spec
from dpiw.run.ahead import check_turn, out_of_turn
from dpiw.run.run import RunRequest
from tests.support.specs import changed

CADENCES = ("daily", "weekly", "monthly", "quarterly", "yearly")
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Africa/Cairo", "Pacific/Apia", "Etc/GMT+12")
DAYS = st.dates(datetime.date(1990, 1, 1), datetime.date(2060, 12, 31))
FEW: Any = settings(max_examples=80, derandomize=True, database=None, deadline=None)


@FEW
@given(cadence=st.sampled_from(CADENCES), first=DAYS, length=st.integers(0, 900))
@example("weekly", datetime.date(2026, 12, 20), 30)  # 2026 has week 53
@example("weekly", datetime.date(2024, 12, 23), 10)  # 2025-w01 begins in 2024
def test_a_calendar_is_what_its_days_say(cadence, first, length):
    days = [first + datetime.timedelta(days=n) for n in range(length + 1)]
    expected = [label for label, _ in itertools.groupby(
        calendar.current_period(cadence, day) for day in days
    )]  # fmt: skip
    labels = calendar.periods(cadence, expected[0], expected[-1])
    assert labels == expected
    assert [calendar.nearest_period(cadence, label) for label in labels] == labels
    starts = [calendar.first_day(cadence, label) for label in labels]
    assert starts == sorted(set(starts))
    assert starts[0] <= first
    assert all(calendar.current_period(cadence, day) == label
               for day, label in zip(starts, labels, strict=True))  # fmt: skip
    before = starts[0] - datetime.timedelta(days=1)
    assert calendar.following(cadence, calendar.current_period(cadence, before)) == labels[0]
    assert len(labels) == 1 or calendar.periods(cadence, labels[-1], labels[0]) == []


@FEW
@given(
    cadence=st.sampled_from(CADENCES),
    zone=st.sampled_from(ZONES),
    moment=st.datetimes(datetime.datetime(2015, 1, 2), datetime.datetime(2036, 1, 1)),
    back=st.integers(0, 20),
)
@example("daily", "Africa/Cairo", datetime.datetime(2024, 4, 25, 22, 30), 3)  # no midnight
def test_the_latest_periods_end_with_the_zone_s_own(cadence, zone, moment, back):
    now = moment.replace(tzinfo=datetime.UTC)
    labels = calendar.latest_periods(cadence, now, zone, back)
    today = now.astimezone(zoneinfo.ZoneInfo(zone)).date()
    assert labels[0] == calendar.current_period(cadence, today)
    assert len(labels) == back + 1
    assert labels[::-1] == calendar.periods(cadence, labels[-1], labels[0])


@pytest.mark.parametrize(("cadence", "label"), [
    ("monthly", "2026-13"), ("weekly", "2027-w53"), ("once", "once"), ("daily", "2026-02-29"),
    ("yearly", "3000"),
])  # fmt: skip
def test_what_is_no_label_has_no_day(cadence, label):
    with pytest.raises(ValueError, match=r"period|month|week|day"):
        calendar.first_day(cadence, label)


def monthly(**series: Any) -> dict[str, Any]:
    mapping = changed("cadence", "monthly") | {"series": {"first": "2026-01"} | series}
    mapping["source"] = mapping["source"] | {"path": "data/{period}.csv"}
    return mapping


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "another cadence's label": ("series.first", {"series": {"first": "2026-q1"}}),
    "a label of another form": ("series.first: .*'2026-01'", {"series": {"first": "2026-1"}}),
    "no first": ("series.first: missing", {"series": {"last": "2026-02"}}),
    "an end before the begin": ("series.last",
                                {"series": {"first": "2026-02", "last": "2026-01"}}),
    "an unknown key": ("series.lastt.*'last'", {"series": {"first": "2026-01", "lastt": "x"}}),
    "a text for a flag": ("series.beyond_budget",
                          {"series": {"first": "2026-01", "beyond_budget": "yes"}}),
    "a retention of nothing": ("series.retention", {"series": {"first": "2026-01",
                                                               "retention": 0}}),
    "a retired field": ("back_fill: .*series.retention", {"back_fill": False}),
    "one period": ("series.first: .*once", {"cadence": "once"}),
    **{
        f"a path {path}": ("source.path", {"source": {"path": path, "format": "csv"}})
        for path in ("{period}/{0}", "{period!r}.csv", "{period.x}", "{{period}}", "{Period}.csv")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_calendar_that_is_none_is_refused(name):
    field, changes = REFUSED[name]
    with pytest.raises(SpecError, match=f"^{field}"):
        parse_spec(monthly() | changes)


def test_a_year_is_read_as_a_label():
    spec = parse_spec(monthly(first=2026) | {"cadence": "yearly"})
    assert spec.series is not None
    assert spec.series.first == "2026"


def with_series(place: Any, series: str, path: str = '"{period}.csv"') -> None:
    place.rewrite("cadence: once", f"cadence: monthly\nseries: {series}")
    place.rewrite("path: data.csv", f"path: {path}")


def test_a_calendar_moves_no_key_and_no_digest(workplace):
    workplace.rewrite("cadence: once", "cadence: monthly")
    plain = load_spec(workplace.spec)
    workplace.rewrite("cadence: monthly", "cadence: once")
    with_series(workplace, "{first: 2026-01, last: 2027-12, retention: 9, beyond_budget: true}")
    spec, schema = load_spec(workplace.spec), load_schema(plain)
    assert spec.series is not None
    assert compile_plan(spec, schema).digest == compile_plan(plain, schema).digest
    assert spec.run_key(schema, "2026-03") == plain.run_key(schema, "2026-03")
    request = RunRequest.read(workplace.spec, period="2026-03")
    assert request.key == plain.run_key(schema, "2026-03")
    assert request.spec.source.path == str(workplace.root / "2026-03.csv")
    assert request.prepared().spec.source.path == request.spec.source.path


def test_one_file_serves_no_retention_of_several(workplace):
    with_series(workplace, "{first: 2026-01, retention: 2}", "data.csv")
    with pytest.raises(SpecError, match=r"series\.retention: .*\{period\} in source\.path"):
        load_spec(workplace.spec)
    workplace.rewrite("retention: 2", "retention: 1")
    load_spec(workplace.spec)


@pytest.mark.parametrize("label", ["2026-01", "2031-12"])
def test_no_period_s_table_is_a_public_file(workplace, label):
    """Named as another period's table, linked to it, or there already: never opened as public."""
    with_series(workplace, "{first: 2026-01, retention: 2}", '"{period}.yaml"')
    table = workplace.root / f"{label}.yaml"
    (workplace.root / "schema.yaml").rename(table)
    for name in (table.name, f"./x/../{table.name}"):
        workplace.rewrite("schema: schema.yaml", f"schema: {name}")
        with pytest.raises(SpecError, match="confidential table"):
            RunRequest.read(workplace.spec, period="2026-02")
        workplace.rewrite(f"schema: {name}", "schema: schema.yaml")
    for link in (Path.symlink_to, Path.hardlink_to):
        link(workplace.root / "schema.yaml", table)
        with pytest.raises(SpecError, match="confidential table"):
            RunRequest.read(workplace.spec, period="2026-02")
        (workplace.root / "schema.yaml").unlink()


def test_releases_may_not_lie_where_a_period_s_table_lies(workplace):
    with_series(workplace, "{first: 2026-01, retention: 2}", '"{period}/table.csv"')
    workplace.rewrite("publish_to: state/releases", "publish_to: 2026-03")
    with pytest.raises(SpecError, match="publish_to"):
        RunRequest.read(workplace.spec, period="2026-03")


@FEW
@given(retention=st.integers(1, 30), back=st.integers(-3, 40))
def test_a_worker_publishes_within_retention_and_nothing_else(retention, back):
    spec = parse_spec(monthly(retention=retention))
    now = datetime.datetime(2027, 6, 15, tzinfo=datetime.UTC)
    index = 2027 * 12 + 5 - back
    label = f"{index // 12}-{index % 12 + 1:02d}"
    assert bool(out_of_turn(spec, label, now)) == (not 0 <= back <= retention)
    if 0 <= back <= retention:  # or it would ask a ledger
        due = calendar.Due(scheduled=now, created=now, now=now)
        check_turn(spec, key="0" * 64, label=label, due=due)
