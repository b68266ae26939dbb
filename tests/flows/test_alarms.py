"""Alarms and metrics: what is sent, when, and that it is nothing but public facts."""

import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prefect.events.schemas.automations import AutomationCore
from ruamel.yaml import YAML

from dpiw.audit import KINDS, Severity
from dpiw.audit import audit as run_audit
from dpiw.errors import DPIWError, GrantSpentError, SpecError
from dpiw.ledger import Ledger
from dpiw.run import steps
from dpiw.series.completeness import PeriodState, Series, Status
from tasks import signals, stages
from tasks.signals import Alarm
from tests.flows.conftest import ROOT
from tests.support.patience import until
from tests.support.whole_runs import fitted, ingested, prepared, publish_run


@pytest.fixture
def heard(monkeypatch):
    """Events in place of Prefect's: name and facts."""
    events: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(signals, "send_event", lambda name, facts: events.append((name, facts)))
    return events


def test_a_lost_draw_is_told_once_and_even_if_none_is_left(place, heard):
    run = ingested(place)
    run.open_ledger().arm(run.key, 1, "fit_generator")
    with pytest.raises(DPIWError) as refused:  # one attempt only
        stages.reserve.fn(run.directory)
    assert isinstance(refused.value, GrantSpentError)
    facts = {"release": "town", "period": run.period, "stage": "fit_generator"}
    lost = [event for event in heard if event[0] == Alarm.STAGE_LOST.value]
    assert lost == [("dpiw.stage.lost", facts | {"population": "town"})]
    with pytest.raises(GrantSpentError):
        stages.reserve.fn(run.directory)
    assert [event for event in heard if event[0] == Alarm.STAGE_LOST.value] == lost


def test_a_lost_draw_that_is_paid_again_is_told_too(make_workplace, heard):
    run = ingested(make_workplace(max_attempts=2, epsilon="40"))
    run.open_ledger().arm(run.key, 1, "fit_generator")
    stages.reserve.fn(run.directory)  # loses it, and reserves it once more
    assert len(run.open_ledger().run(run.key).attempts) == 2
    assert [name for name, _ in heard] == [Alarm.STAGE_LOST.value]


def test_a_budget_is_low_below_three_further_releases(make_workplace, heard):
    for epsilon, left in (("8", None), ("7.9", "2"), ("2", "0")):
        place = make_workplace(epsilon=epsilon, weights="none")
        heard.clear()
        stages.reserve.fn(prepared(place).directory)
        facts = {"population": "town", "release": "town", "left": left}
        assert heard == ([("dpiw.budget.low", facts)] if left else [])


def test_reads_without_a_draw_are_for_the_custodian_alone(make_workplace, heard):
    """The last read that may end so leaves the budget as it was."""
    place = make_workplace(epsilon="9", weights="none", reads=1)
    run = ingested(place)
    assert run.open_ledger().account("town").unpaid_reads == 1
    signals.low_budget(run)
    assert heard == []


@pytest.mark.slow
def test_an_audit_tells_kinds_and_severities_and_no_name(place, heard):
    publish_run(place.spec)
    report = run_audit(f"sqlite:///{place.ledger}", [], [])
    signals.audit_findings(report)
    grave = {f.code for f in report.findings if f.severity is not Severity.NOTE}
    assert {facts["kind"] for _, facts in heard} == grave
    for name, facts in heard:
        assert name == "dpiw.audit.finding"
        assert {*facts} == {"kind", "severity"}
        assert KINDS[facts["kind"]].severity.value == facts["severity"]


def test_free_text_is_no_fact():
    with pytest.raises(SpecError):
        signals.raise_alarm(Alarm.PERIOD_MISSING, release="town", why="row 17 is odd")


def test_no_alarm_fails_a_step(place, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no server")

    monkeypatch.setattr(signals, "send_event", broken)
    monkeypatch.setattr(signals, "low_budget", broken)
    monkeypatch.setattr(signals, "count_population", broken)
    run = prepared(place)
    assert stages.reserve.fn(run.directory) == run.directory
    assert Ledger.open(place.ledger).spent("town").epsilon == Decimal(2)


# Metrics


def lacking(release, periods):
    """A series that misses so many periods."""
    states = tuple(
        PeriodState(label=f"2026-{month:02d}", status=Status.MISSING)
        for month in range(1, periods + 1)
    )
    return Series(name=release, population="town", cadence="monthly", periods=states, carries=0,
                  ends=None)  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    """What a reader in memory holds: value by name and attributes."""
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    made = signals.provider(reader)
    monkeypatch.setattr(signals, "installed", lambda: made)

    def read():
        data = reader.get_metrics_data()
        assert len(data.resource_metrics) == 1
        (resource,) = data.resource_metrics
        assert dict(resource.resource.attributes) == {"service.name": "dpiw"}
        return {
            (metric.name, *point.attributes.values()): point.value
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }

    yield read
    made.shutdown()


@pytest.mark.slow
def test_the_metrics_are_public_facts_alone(place, measured):
    """A release with all its confidential stages leaves these numbers, and no other."""
    run = prepared(place)
    stages.reserve.fn(run.directory)
    before = {("dpiw.epsilon.spent", "town"): 0.0, ("dpiw.epsilon.left", "town"): 5.0}
    assert measured() == before | {("dpiw.releases.published", "town"): 0}  # reserved, not drawn
    steps.ingest(run)
    fitted(place)
    steps.draw_synthetic(run)
    steps.debias(run)
    steps.diagnose(run)
    stages.publish.fn(run.directory)
    drawn = {("dpiw.epsilon.spent", "town"): 2.0, ("dpiw.epsilon.left", "town"): 3.0}
    assert measured() == drawn | {("dpiw.releases.published", "town"): 1}
    signals.missing_periods(lacking("town", 4))
    assert measured()[("dpiw.periods.missing", "town", "town")] == 4
    report = run_audit(f"sqlite:///{place.ledger}", [], [])
    signals.audit_findings(report)
    counts = {severity.value: measured()["dpiw.audit.findings", severity.value]
              for severity in Severity}  # fmt: skip
    assert counts == {severity.value: report.number(severity) for severity in Severity}
    assert {name for name, *_ in measured()} == {*signals.METRICS}


def test_a_collector_gets_them_and_without_an_address_nobody(place, monkeypatch):
    got = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """A test's output is its own."""

    signals.installed.cache_clear()
    monkeypatch.delenv(signals.ENDPOINT, raising=False)
    assert signals.installed() is None
    signals.missing_periods(lacking("town", 1))
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        monkeypatch.setenv(signals.ENDPOINT, f"http://127.0.0.1:{server.server_port}")
        signals.installed.cache_clear()
        try:
            signals.missing_periods(lacking("harbour", 1))
        finally:
            signals.installed().shutdown()
            signals.installed.cache_clear()
            server.shutdown()
            thread.join()
    assert {path for path, _ in got} == {"/v1/metrics"}
    sent = b"".join(body for _, body in got)
    assert b"dpiw.periods.missing" in sent
    assert b"harbour" in sent


# On a real server

FLOW = """
from prefect import flow
from tasks.signals import Alarm, raise_alarm
@flow(name="dpiw-series")
def series():
    say("2026-03")
def say(period):
    raise_alarm(Alarm.PERIOD_MISSING, release="town", population="town", period=period)
series()
say("outside-of-a-flow")
"""


@pytest.mark.flow
@pytest.mark.crash
def test_an_event_arrives_and_the_automations_are_accepted(prefect_server, tmp_path):
    done = prefect_server.python("-c", FLOW, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    mine = {"filter": {"event": {"prefix": ["dpiw."]}}}

    def events():
        return prefect_server.api("events/filter", mine)["events"]

    (event,) = until(events, every=0.5, what="the event")
    assert event["event"] == "dpiw.period.missing"
    facts = {"release": "town", "population": "town", "period": "2026-03"}
    assert event["payload"] == facts
    assert event["resource"]["prefect.resource.id"] == "dpiw.period.missing.town.town.2026-03"
    assert any(r["prefect.resource.id"].startswith("prefect.flow-run.") for r in event["related"])

    text = (ROOT / "deployments" / "automations.yaml").read_text()
    file = tmp_path / "automations.yaml"
    file.write_text(text)
    made = prefect_server.python("-m", "prefect", "automation", "create", "--from-file", str(file))
    wanted = YAML(typ="safe").load(text)["automations"]
    stored = {found["name"]: found for found in prefect_server.api("automations/filter")}
    assert made.returncode == 0, made.stdout + made.stderr
    assert {*stored} == {automation["name"] for automation in wanted}
    for automation in wanted:
        core = AutomationCore.model_validate(automation)
        assert {*stored[automation["name"]]["trigger"]["expect"]} == {*core.trigger.expect}
