"""`audit.html`: the audit for people. One page without scripts or outside resources.

Its words are in `audit.html.j2`, which escapes every text; its numbers are made here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from dpiw import __version__
from dpiw.audit.amounts import Units
from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import AGREEMENT, Recomputed, delta_of, epsilon_of
from dpiw.audit.findings import Finding, Severity
from dpiw.audit.folders import FolderFacts
from dpiw.audit.records import (
    AttemptTally,
    PopulationTally,
    RunTally,
    StageTally,
    Tally,
    fits,
    worth,
)
from dpiw.ledger.accounts import MOST_ADMITTED
from dpiw.ledger.authors import Author
from dpiw.ledger.history import count_text
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text
from dpiw.release.report.formats import plain
from dpiw.release.report.plots import Budget, budget_bar
from dpiw.release.report.template import render


@dataclass(frozen=True, kw_only=True)
class PopulationView:
    """One population: its terms, its budgets by their letters.

    `charges` and `costs` have a row for each attempt of its runs.
    """

    terms: PopulationTally
    unpaid_reads: int
    budgets: Mapping[str, Budget | None]
    charges: tuple[tuple[str, ...], ...]
    costs: tuple[tuple[str, ...], ...]
    forecast: str


@dataclass(frozen=True, kw_only=True)
class AuditView:
    """What the audit's template may name.

    `grave` are errors and warnings, `notes` a row for each other finding; `runs`, `published` and
    `sound` (folders) are numbers; `folders` has a row for each.
    """

    report: AuditReport
    grave: tuple[Finding, ...]
    notes: tuple[tuple[str, ...], ...]
    errors: int
    warnings: int
    runs: int
    published: int
    sound: int
    populations: tuple[PopulationView, ...]
    folders: tuple[tuple[str, ...], ...]
    checked: tuple[str, ...]
    not_checked: tuple[str, ...]
    next_steps: tuple[str, ...]
    version: str = __version__


def build_page(report: AuditReport) -> str:
    """The report as one HTML document; the same report gives the same text."""
    counted = Tally() if report.counted is None else report.counted
    view = AuditView(
        report=report,
        grave=tuple(f for f in report.findings if f.severity is not Severity.NOTE),
        notes=tuple(
            (f.subject, f.text, f.action) for f in report.findings if f.severity is Severity.NOTE
        ),
        errors=report.number(Severity.ERROR),
        warnings=report.number(Severity.WARNING),
        runs=len(counted.runs),
        published=sum(run.manifest_digest is not None for run in counted.runs.values()),
        sound=sum(folder.release is not None for folder in report.folders),
        populations=tuple(
            _population(population, counted, report)
            for _, population in sorted(counted.populations.items())
        ),
        folders=tuple(
            _folder(folder, counted.runs.get(folder.run_key or "")) for folder in report.folders
        ),
        checked=checked(report),
        not_checked=not_checked(),
        next_steps=next_steps(report),
    )
    return render("audit/audit.html.j2", view)


def _population(population: PopulationTally, counted: Tally, report: AuditReport) -> PopulationView:
    runs = counted.runs_of(population.name)
    attempts = [(run, attempt) for run in runs for attempt in run.attempts]
    released = Units()
    for run in runs:
        if run.manifest_digest is not None:
            released = released.plus(run.held)
    return PopulationView(
        terms=population,
        unpaid_reads=counted.unpaid_reads(population.name),
        budgets={
            letter: _budget(population, released, letter, name)
            for letter, name in (("ε", "epsilon"), ("δ", "delta"))
        },
        charges=tuple(_charge(run, attempt) for run, attempt in attempts),
        costs=tuple(_cost(run, attempt, report) for run, attempt in attempts),
        forecast=_forecast(population, counted),
    )


def _forecast(population: PopulationTally, counted: Tally) -> str:
    """How many more releases such as the last one fit, by our own count."""
    name = population.name
    if not (runs := counted.runs_of(name)):
        return ""
    one = runs[-1].attempts[0].cost
    count = 0
    if counted.unpaid_reads(name) < population.max_unpaid_reads:
        count = bisect_left(
            range(1, MOST_ADMITTED + 1), True,
            key=lambda n: not fits(population, population.spent.plus(one.times(n))),
        )  # fmt: skip
    return f"{count_text(count)}, such as {_release(runs[-1], runs[-1].attempts[0])}"


def _budget(population: PopulationTally, released: Units, letter: str, name: str) -> Budget | None:
    if name == "delta" and population.composition == "renyi":
        return None
    exact = {"epsilon": epsilon_of, "delta": delta_of}[name]
    totals = (population.budget, *(worth(population, u) for u in (population.spent, released)))
    budget, spent, out = (exact(total) for total in totals)
    return budget_bar(
        letter, budget, spent, {"released": out, "lost, drawn, reserved or recovered": spent - out},
        title=f"Lifetime {name} of population {population.name}",
    )  # fmt: skip


def _charge(run: RunTally, attempt: AttemptTally) -> tuple[str, ...]:
    return (
        f"{attempt.seq} · {attempt.at[:16].replace('T', ' ')}",
        _release(run, attempt),
        author(attempt),
        run.state,
        f"{attempt.number} (at most {run.max_attempts} paid)",
        decimal_text(attempt.cost.epsilon, EPSILON_UNIT) + _times(attempt),
        plain(decimal_text(attempt.cost.delta, DELTA_UNIT)),
    )


def _cost(run: RunTally, attempt: AttemptTally, report: AuditReport) -> tuple[str, ...]:
    cost = report.costs.get((run.key, attempt.number))
    stages = "; ".join(
        f"{name} {stage.state}" + f" + {stage.conflicts} conflict" * bool(stage.conflicts)
        + f": {mechanisms(stage)}" * (cost is not None)
        for name, stage in attempt.stages.items()
    )  # fmt: skip
    return (
        str(attempt.seq),
        decimal_text(attempt.cost.epsilon, EPSILON_UNIT),
        "–" if cost is None or cost.pld is None else f"{cost.pld:.6g}",
        "–" if cost is None or cost.rdp is None else f"{cost.rdp:.6g}",
        "–" if cost is None else _own(cost),
        run.key[:12],
        run.plan_digest[:12],
        stages,
    )


def mechanisms(stage: StageTally) -> str:
    """By which mechanisms a stage draws, each once; its events must be readable."""
    return ", ".join(dict.fromkeys(str(event["type"]) for event in stage.events))


def _release(run: RunTally, attempt: AttemptTally) -> str:
    """The release's name, if the reservation states it, and its period."""
    return f"{attempt.stated.get('release', '')} {run.period}".strip()


def author(attempt: AttemptTally) -> str:
    """Who reserved it, by the entry's own word, and with which key they signed it."""
    try:
        return str(Author.from_json(attempt.stated.get("by")))
    except ValueError:  # of earlier versions, or forged: a finding of its own
        return "not stated"


def _own(cost: Recomputed) -> str:
    """The audit's own epsilon, as a range where its ends differ."""
    if cost.own is None or cost.own.epsilon is None:
        return "–" if cost.own is None else f"{cost.own.sum:.6g}"
    low, high = (f"{end:.4g}" for end in vars(cost.own.epsilon.bound).values())
    return low if low == high else f"{low} to {high}"


def _times(attempt: AttemptTally) -> str:
    """How often its cost is held, unless once."""
    conflicts = sum(stage.conflicts for stage in attempt.stages.values())
    return " (voided)" if attempt.voided else f" × {1 + conflicts}" * bool(conflicts)


def _folder(folder: FolderFacts, run: RunTally | None) -> tuple[str, ...]:
    release = folder.release
    return (
        folder.name,
        "whole, signed" if release is not None else "NOT SOUND",
        "–" if release is None else release.key_id,
        (folder.manifest_digest or "–")[:12],
        "–" if run is None else str(run.published),
        "–" if release is None else release.certificate.ledger_head[:12],
    )


def checked(report: AuditReport) -> tuple[str, ...]:
    """Sentences about what was checked."""
    if report.counted is None:
        ledger: tuple[str, ...] = ("The ledger could not be read; folders alone were checked.",)
    else:
        ledger = (
            f"All {report.entries} entries of the ledger: the hash chain, and the legality of "
            "every step, by the ledger's own replay and by a second implementation.",
            "Every population's sum in whole units of 1e-12 and 1e-18, by both, against its "
            "lifetime budget after every reservation; all of the entries of one moment, whoever "
            "wrote in the meantime.",
            f"The epsilon of {len(report.costs)} reservations at their charged delta, recomputed "
            "from the stored events: by privacy loss distributions alone, by Renyi accounting "
            "alone, and by the audit's own account, which inverts Laplace transforms and shares "
            "no code with the two. The charge covers the least sound one and all that none can be "
            f"below; each of the two agrees with the audit's within {AGREEMENT:.0%}. Selections by "
            "the exponential mechanism agree within what is known of their composition, and Renyi "
            "vectors order by order.",
        )
    key = (
        "the given public key"
        if report.pinned
        else "the key inside the folder, as none was given: that shows wholeness, not who signed"
    )
    return (
        *ledger,
        f"{len(report.folders)} published folders: signature under {key}, every file's size and "
        "SHA-256, and that manifest, certificate and Parquet footer agree.",
        "Each whole folder against the ledger: its publishing entry, the head it was built on, "
        "costs, attempts, sums, budget and events at that head, and the release before it.",
    )


def next_steps(report: AuditReport) -> tuple[str, ...]:
    """Sentences about what an auditor does now."""
    steps = []
    if not report.ok:
        steps.append("Stop: have nothing more released until every error above is explained.")
    if not report.pinned:
        steps.append("Get the curator's public key by another way, and audit again with --key.")
    if not report.folders:
        steps.append("Get the published folders, and audit again with --releases.")
    if any(f.severity is Severity.WARNING for f in report.findings):
        steps.append("Ask the curator about each warning; what to do stands beside it.")
    if report.head is not None:
        steps.append(
            "Keep the ledger head below where the curator cannot change it. At the next audit: "
            f"dpiw ledger verify --ledger URL --head {report.head.hash}"
        )
    steps.append(
        "Ask the curator which public source each bound and level came from (schema.json of each "
        "release says what was stated), and whether one identifier is one person."
    )
    return tuple(steps)


def not_checked() -> tuple[str, ...]:
    """Sentences about what was not, and cannot be from here."""
    return (
        "No confidential file was read. Whether bounds, identifiers, units and snapshot labels "
        "were declared truly cannot be seen from here.",
        "The theorems themselves: where the accountants and the audit's own account use the same "
        "one (which pair of tables is the worst, what a selection may lose), both would be wrong.",
        "That released rows and weights follow from the drawn measurements, which stay in the "
        "confidential workspace, and that their noise was what the events say.",
        "Releases and ledgers that were not named; the same people under another population.",
        "Entries cut off after the latest head that one of these folders carries. Compare the "
        "head below with one noted elsewhere.",
        "Who acted: an entry's author is what its writer said, proven only where it is signed. "
        "The order is by number; times are labels of the writing host's clock.",
    )
