"""What is held of a budget with no release folder, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpiw.audit.auditing import AuditReport
from dpiw.audit.folders import FolderFacts, stated_attempts
from dpiw.audit.records import AttemptTally, PopulationTally, RunTally, Snapshot, Units, total


@dataclass(frozen=True, kw_only=True)
class Unreleased:
    """One charge with no folder: its entry, run, amount, and its outcome in words."""

    run: RunTally
    entry: int
    amount: Units
    why: str


def unreleased(report: AuditReport, population: str) -> list[Unreleased]:
    """Every charge of a population's runs that is in no total of the given folders."""
    return [
        Unreleased(run=run, entry=attempt.seq, amount=amount.amount, why=why)
        for run, attempt, inside in _charges(report, population)
        for amount, why in _parts(run, attempt, inside)
    ]


def in_folders(report: AuditReport, population: str) -> Units:
    """Charges that the totals of the given folders contain, each with every attempt of its run."""
    charges = _charges(report, population)
    return total(attempt.cost.times(inside) for _, attempt, inside in charges)


def _charges(report: AuditReport, population: str) -> Iterator[tuple[RunTally, AttemptTally, int]]:
    for run in report.counted.runs_of(population) if report.counted else ():
        certified = _certified_attempts(run, report.folders)
        held = [attempt for attempt in run.attempts if not attempt.voided]
        for place, attempt in enumerate(held):
            amount = certified[place][0] if place < len(certified) else Units()
            times = range(1, _conflicts(attempt) + 2)
            inside = sum(amount.covers(attempt.cost.amount.times(count)) for count in times)
            yield run, attempt, inside


def _certified_attempts(run: RunTally, folders: tuple[FolderFacts, ...]) -> Snapshot:
    """Attempts that a run's release states; an unsound folder: what the ledger held by then."""
    digests = () if run.manifest_digest is None else (run.manifest_digest, *run.further)
    own_folders = [folder for folder in folders if folder.manifest_digest in digests]
    certified = [
        stated_attempts(folder.release.certificate)
        for folder in own_folders
        if folder.release is not None
    ]
    if not own_folders or any(certified):
        return next((attempts for attempts in certified if attempts), ())
    return [attempts for seq, attempts in run.history if seq <= (run.published or 0)][-1]


def _parts(run: RunTally, attempt: AttemptTally, inside: int) -> list[tuple[Units, str]]:
    extra = _conflicts(attempt) + 1 - max(1, inside)
    parts = [(attempt.cost.times(extra), "further output, charged again")] * bool(extra)
    if inside:
        return parts
    states = {stage.state for stage in attempt.stages.values()}
    if "lost" in states:
        return [*parts, (attempt.cost, "lost: armed, and left no output")]
    if run.manifest_digest is not None:
        return [*parts, (attempt.cost, "published, no such folder")]
    if not attempt.armed:
        return [*parts, (attempt.cost, "reserved, nothing drawn")]
    why = "drawn, not published" if states == {"committed"} else "armed, not all drawn"
    return [*parts, (attempt.cost, why)]


def _conflicts(attempt: AttemptTally) -> int:
    return sum(stage.conflicts for stage in attempt.stages.values())


def spent_lines(report: AuditReport) -> list[str]:
    """For each population, one line on what is spent with no folder; none if all is shown."""
    if report.counted is None:
        return []
    lines = []
    for name, population in sorted(report.counted.populations.items()):
        rows = unreleased(report, name)
        if rows:
            reasons = ", ".join(dict.fromkeys(row.why for row in rows))
            amount = total_text(rows) + alone(population)
            lines.append(f"spent with no folder: population {name}, {amount} ({reasons})")
    return lines


def alone(population: PopulationTally) -> str:
    """A note on what such a sum leaves out, if anything."""
    renyi = population.composition == "renyi"
    return ", each charge alone: together they count for less" * renyi


def total_text(rows: list[Unreleased]) -> str:
    """The sum of the charged amounts."""
    return f"{total(row.amount for row in rows)}"
