"""Alarms as Prefect events, of public facts only; `deployments/automations.yaml` reacts to them.

An event holds names of releases and populations, labels of periods and stages, and kinds of audit
findings. A failing server fails no step.
"""

import contextlib
import enum
from collections.abc import Iterator
from dataclasses import replace

from dpiw.audit import AuditReport, Severity
from dpiw.ledger import StageState
from dpiw.ledger.entries import check_label
from dpiw.run.run import ReleaseRun
from tasks.window import send_event

RELEASES_LEFT = 3
"""The budget is low once fewer releases such as the last one still fit."""


class Alarm(enum.Enum):
    """What a person must know; the value names the event."""

    PERIOD_MISSING = "dpiw.period.missing"
    STAGE_LOST = "dpiw.stage.lost"
    BUDGET_LOW = "dpiw.budget.low"
    AUDIT_FINDING = "dpiw.audit.finding"


def raise_alarm(alarm: Alarm, **facts: str) -> None:
    """Send the event of an alarm from a flow or task; `facts` are short labels.

    Raises SpecError for any other text, which could hold more than a public fact.
    """
    labels = {name: check_label(name, fact) for name, fact in facts.items()}
    send_event(alarm.value, labels)


def period_missing(release: str, population: str, period: str) -> None:
    """Say that a period of a series is over and not published."""
    raise_alarm(Alarm.PERIOD_MISSING, release=release, population=population, period=period)


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


def _lost(run: ReleaseRun) -> frozenset[tuple[int, str]]:
    """Attempt and stage of every lost draw; none if the ledger cannot say."""
    with contextlib.suppress(Exception):
        record = run.open_ledger().find_run(run.key)
        attempts = () if record is None else record.attempts
        stages = (stage for attempt in attempts for stage in attempt.stages.values())
        return frozenset((s.attempt, s.stage) for s in stages if s.state is StageState.LOST)
    return frozenset()


def low_budget(run: ReleaseRun) -> None:
    """Say that few more releases such as this one fit; reads without a draw do not count here."""
    ledger = run.open_ledger()
    charge = ledger.run(run.key).attempts[0].charge
    account = replace(ledger.account(run.spec.population), unpaid_reads=0)
    if (left := account.admits(charge)) < RELEASES_LEFT:
        facts = {"population": run.spec.population, "release": run.spec.name, "left": str(left)}
        raise_alarm(Alarm.BUDGET_LOW, **facts)


def audit_findings(report: AuditReport) -> None:
    """Say each kind of error and warning that an audit found; no names of files or folders."""
    found = {(finding.code, finding.severity) for finding in report.findings}
    for kind, severity in sorted(found, key=lambda pair: pair[0]):
        if severity is not Severity.NOTE:
            raise_alarm(Alarm.AUDIT_FINDING, kind=kind, severity=severity.value)
