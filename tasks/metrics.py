"""OpenTelemetry metrics of public facts: releases, missing periods, budgets, kinds of findings.

They are sent to `OTEL_EXPORTER_OTLP_ENDPOINT` if that is set and the extra `metrics` is installed;
else nothing happens. The provider is dpiw's own, so nothing that another library measures (times,
sizes, row counts) leaves through it. A collector that fails, or is slow, fails no step.
"""

import functools
import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dpiw.audit import AuditReport, Severity
from dpiw.ledger import Ledger

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's variable with the collector's address, such as http://127.0.0.1:4318."""

METRICS = {
    "dpiw.releases.published": "releases that a population's ledger has as published",
    "dpiw.epsilon.spent": "epsilon that draws have spent of a population's budget",
    "dpiw.epsilon.left": "epsilon of a population's budget that no draw has spent",
    "dpiw.periods.missing": "periods of a series that are over and not published",
    "dpiw.audit.findings": "findings of the last audit, by severity",
}
"""Every metric, all gauges, and what it counts."""

_MILLISECONDS = 5000


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


def _set(name: str, value: float, **attributes: str) -> None:
    found = installed()
    if found is not None:
        gauge = found.get_meter("dpiw").create_gauge(name, description=METRICS[name])
        gauge.set(value, attributes)


def _send() -> None:
    found = installed()
    if found is not None:
        found.force_flush(_MILLISECONDS)


def count_population(ledger: Ledger, population: str) -> None:
    """Measure a population's published releases and what its draws have spent.

    Reservations do not count: one may be given back because of what is in the table.
    """
    account = ledger.account(population)
    account = replace(account, held=account.drawn)
    published = sum(run.published is not None for run in ledger.runs(population))
    _set("dpiw.releases.published", published, population=population)
    _set("dpiw.epsilon.spent", float(account.spent.epsilon), population=population)
    _set("dpiw.epsilon.left", float(account.remaining.epsilon), population=population)
    _send()


def count_missing(release: str, population: str, periods: int) -> None:
    """Measure how many periods of a series are missing."""
    _set("dpiw.periods.missing", periods, release=release, population=population)
    _send()


def count_findings(report: AuditReport) -> None:
    """Measure how many findings of each severity an audit has."""
    counts = Counter(finding.severity for finding in report.findings)
    for severity in Severity:
        _set("dpiw.audit.findings", counts[severity], severity=severity.value)
    _send()
