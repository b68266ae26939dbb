"""Signals of public facts alone: alarms as Prefect events, and OpenTelemetry gauges.

An alarm holds names of releases and populations, labels of periods and stages, and kinds of audit
findings; `deployments/automations.yaml` reacts to it. Gauges go to `OTEL_EXPORTER_OTLP_ENDPOINT`
if that is set and the extra `metrics` is installed. Their provider is dpiw's own, so nothing that
another library measures (times, sizes, row counts) leaves through it. Neither counts reads without
a draw. A server or collector that fails, or is slow, fails no step.
"""

import contextlib
import enum
import functools
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dpiw.audit import AuditReport, Severity
from dpiw.ledger import StageState
from dpiw.ledger.entries import check_label
from dpiw.run.run import ReleaseRun
from dpiw.series.completeness import Series
from tasks.window import send_event

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

RELEASES_LEFT = 3
"""The budget is low once fewer releases such as the last one still fit."""

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's variable with the collector's address, such as http://127.0.0.1:4318."""

_MILLISECONDS = 5000


class Alarm(enum.Enum):
    """What a person must know; the value names the event."""

    PERIOD_MISSING = "dpiw.period.missing"
    STAGE_LOST = "dpiw.stage.lost"
    BUDGET_LOW = "dpiw.budget.low"
    AUDIT_FINDING = "dpiw.audit.finding"


METRICS = {
    "dpiw.releases.published": "releases that a population's ledger has as published",
    "dpiw.epsilon.spent": "epsilon that draws have spent of a population's budget",
    "dpiw.epsilon.left": "epsilon of a population's budget that no draw has spent",
    "dpiw.periods.missing": "periods of a series that are over and not published",
    "dpiw.audit.findings": "findings of the last audit, by severity",
}
"""Every metric, all gauges, and what it counts."""


def raise_alarm(alarm: Alarm, **facts: str) -> None:
    """Send the event of an alarm from a flow or task; `facts` are short labels.

    Raises SpecError for any other text, which could hold more than a public fact.
    """
    send_event(alarm.value, {name: check_label(name, fact) for name, fact in facts.items()})


def measure(*gauges: tuple[str, float, dict[str, str]]) -> None:
    """Set gauges, each a name in `METRICS`, a value and its attributes, and send them."""
    if (found := installed()) is not None:
        for name, value, attributes in gauges:
            gauge = found.get_meter("dpiw").create_gauge(name, description=METRICS[name])
            gauge.set(value, attributes)
        found.force_flush(_MILLISECONDS)


def provider(reader: "MetricReader") -> "MeterProvider":
    """Return a provider of dpiw's own for a reader; its resource names neither host nor process."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    resource = Resource({"service.name": "dpiw"})
    return MeterProvider([reader], resource=resource, shutdown_on_exit=False)


@functools.cache
def installed() -> "MeterProvider | None":
    """Return the provider for the collector; None without an address or the extra."""
    if not os.environ.get(ENDPOINT):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError:
        return None
    exporter = OTLPMetricExporter(timeout=_MILLISECONDS / 1000)
    return provider(PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf")))


@contextlib.contextmanager
def lost_stages(run: ReleaseRun) -> Iterator[None]:
    """Say which draws of a run the block declares lost, even if it then fails."""
    before = _lost(run)
    try:
        yield
    finally:
        for _, stage in sorted(_lost(run) - before):
            place = {"release": run.spec.name, "period": run.period, "stage": stage}
            with contextlib.suppress(Exception):  # never hide why the block failed
                raise_alarm(Alarm.STAGE_LOST, population=run.spec.population, **place)


def _lost(run: ReleaseRun) -> set[tuple[int, str]]:
    """Attempt and name of every draw ever lost; none if the ledger cannot say."""
    with contextlib.suppress(Exception):
        attempts = run.open_ledger().run(run.key).attempts
        stages = [stage for attempt in attempts for stage in attempt.stages.values()]
        return {(s.attempt, s.stage) for s in stages if s.state is StageState.LOST}
    return set()


def low_budget(run: ReleaseRun) -> None:
    """Say that few more releases such as this one fit."""
    ledger = run.open_ledger()
    charge = ledger.run(run.key).attempts[0].charge
    account = replace(ledger.account(run.spec.population), unpaid_reads=0)
    if (left := account.admits(charge)) < RELEASES_LEFT:
        facts = {"population": run.spec.population, "release": run.spec.name, "left": str(left)}
        raise_alarm(Alarm.BUDGET_LOW, **facts)


def count_population(run: ReleaseRun) -> None:
    """Measure a population's published releases and what its draws have spent.

    Reservations do not count: one may be given back because of what is in the table.
    """
    ledger, name = run.open_ledger(), {"population": run.spec.population}
    account = ledger.account(run.spec.population)
    account = replace(account, held=account.drawn)
    released = sum(other.published is not None for other in ledger.runs(run.spec.population))
    measure(
        ("dpiw.releases.published", released, name),
        ("dpiw.epsilon.spent", float(account.spent.epsilon), name),
        ("dpiw.epsilon.left", float(account.remaining.epsilon), name),
    )


def missing_periods(series: Series) -> None:
    """Say which periods are over and not published, and measure how many."""
    place = {"release": series.name, "population": series.population}
    for state in series.missing:
        raise_alarm(Alarm.PERIOD_MISSING, **place, period=state.label)
    measure(("dpiw.periods.missing", len(series.missing), place))


def audit_findings(report: AuditReport) -> None:
    """Say each kind of error and warning found, and measure how many are of each severity."""
    found = {(finding.code, finding.severity) for finding in report.findings}
    for kind, severity in sorted(found, key=lambda pair: pair[0]):
        if severity is not Severity.NOTE:
            raise_alarm(Alarm.AUDIT_FINDING, kind=kind, severity=severity.value)
    named = [(severity, {"severity": severity.value}) for severity in Severity]
    measure(*(("dpiw.audit.findings", report.number(kind), name) for kind, name in named))
