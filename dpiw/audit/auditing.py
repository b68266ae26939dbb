"""The audit: replay the ledger, recompute every total, check every published folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.audit.costs import Key, Recomputed, recompute
from dpiw.audit.entry_signatures import EntrySigners, entry_signers
from dpiw.audit.findings import Finding, Severity, in_order
from dpiw.audit.folders import FolderFacts, check_folders
from dpiw.audit.records import AttemptTally, RunTally, Tally, Units, worth
from dpiw.audit.stated_noise import check_stated_noise, check_thresholds
from dpiw.audit.tally import tally
from dpiw.errors import LedgerTamperedError, SpecError
from dpiw.ledger import Ledger, LedgerHead
from dpiw.ledger.book import Book
from dpiw.ledger.location import check_location
from dpiw.ledger.reading import Clock, label, utc_now
from dpiw.release.certificate import Certificate
from dpiw.release.signing import load_public_key


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Everything an audit found. Holds nothing confidential.

    `head`, `counted`, `signers` None: the ledger could not be read. `findings`: most severe first.
    """

    ledger: str
    made_at: str
    head: LedgerHead | None
    entries: int
    counted: Tally | None
    costs: Mapping[Key, Recomputed]
    folders: tuple[FolderFacts, ...]
    signers: EntrySigners | None
    given: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def pinned(self) -> bool:
        """Whether a public key was given."""
        return bool(self.given)

    def number(self, severity: Severity) -> int:
        """Number of findings of this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether no error was found."""
        return self.number(Severity.ERROR) == 0


def audit(
    ledger_url: str,
    releases: Sequence[Path],
    public_keys: Sequence[Path],
    *,
    clock: Clock = utc_now,
) -> AuditReport:
    """Audit a ledger and the release folders it paid for.

    Privacy: reads the ledger and the folders, never a workspace or anything confidential.

    Each folder must verify under one of `public_keys`, the curators', from elsewhere. Without them
    signatures are checked against the keys inside the folders, which shows nothing of who signed.
    Raises SpecError for a URL that holds a password or names no ledger, LedgerError if there is
    none, ReleaseError for a key file; tampering is a finding, not an exception.
    """
    check_location(ledger_url, error=SpecError)
    keys = {path: load_public_key(path) for path in public_keys}
    paths = {key.key_id: path for path, key in keys.items()}
    exported, counted, findings = _read(ledger_url)
    signed = None if exported is None else entry_signers(exported, tuple(keys.values()))
    findings += [] if signed is None else signed.findings()
    costs: dict[Key, Recomputed] = {}
    if counted is not None:
        costs, wrong = recompute(counted)
        findings += [*counted.findings, *wrong, *findings_of_runs(counted)]
    folders, wrong = check_folders(releases, public_keys=paths, counted=counted)
    wrong += [finding for folder in folders for finding in _rows_paid_before(folder, counted)]
    for check in (check_thresholds, check_stated_noise):
        wrong += [finding for folder in folders for finding in check(folder)]
    last = exported[-1] if exported else None
    return AuditReport(
        ledger=ledger_url,
        made_at=label(clock),
        head=None if last is None else LedgerHead(seq=last["seq"], hash=last["hash"]),
        entries=len(exported or ()),
        counted=counted,
        costs=costs,
        folders=folders,
        signers=signed,
        given=tuple(paths),
        findings=in_order([*findings, *wrong]),
    )


def _read(url: str) -> tuple[list[dict[str, Any]] | None, Tally | None, list[Finding]]:
    try:
        ledger = Ledger.open(url)
    except LedgerTamperedError as error:
        return None, None, [Finding("ledger_unreadable", "ledger", error.message)]
    snapshot = ledger.snapshot()
    try:
        exported = snapshot.export()
    except LedgerTamperedError:
        exported = None
    counted = None if exported is None else tally(exported)
    fault = snapshot.report.fault
    if fault is not None:
        text = f"{fault.kind.value}: {fault.reason}"
        return exported, counted, [Finding("chain_broken", f"entry {fault.seq}", text)]
    return exported, counted, _compare(snapshot.book, counted or Tally())


def _compare(book: Book, counted: Tally) -> list[Finding]:
    text = "the ledger's budget, sum, reads or state of a run is not what this audit counts"
    return [
        Finding("recount_differs", f"population {name}", text)
        for name in sorted({*book.populations, *counted.populations})
        if _theirs(book, name) != _ours(counted, name)
    ]


def _theirs(book: Book, name: str) -> object:
    population = book.populations.get(name)
    if population is None:
        return None
    spent = book.account(name).spent
    return (
        Units(epsilon=population.budget.epsilon_units, delta=population.budget.delta_units),
        Units(epsilon=spent.epsilon_units, delta=spent.delta_units),
        {run.run_key: run.state.value for run in book.runs_of(name)},
        book.account(name).unpaid_reads,
    )


def _ours(counted: Tally, name: str) -> object:
    population = counted.populations.get(name)
    if population is None:
        return None
    return (
        population.budget,
        worth(population, population.spent),
        {run.key: run.state for run in counted.runs_of(name)},
        counted.unpaid_reads(name),
    )


def _rows_paid_before(folder: FolderFacts, counted: Tally | None) -> list[Finding]:
    certificate = None if folder.release is None else folder.release.certificate
    settings = None if certificate is None else certificate.generator.get("settings")
    payer = settings.get("counted_by") if isinstance(settings, Mapping) else None
    if certificate is None or payer is None:
        return []
    subject, name = f"release {folder.name}", str(payer)[:12]
    text = f"its total lacks the declared cost of its rows, which run {name} is said to have paid"
    findings = [Finding("rows_paid_before", subject, text)]
    if counted is not None and not _has_paid(counted.runs.get(str(payer)), certificate):
        text = f"the ledger has no draw of run {name} that paid the declared cost of these rows"
        findings.append(Finding("rows_not_paid", subject, text))
    return findings


def _has_paid(run: RunTally | None, certificate: Certificate) -> bool:
    rows = certificate.generator.get("made_elsewhere")
    if run is None or run.population != certificate.population or not isinstance(rows, Mapping):
        return False
    declared: dict[str, object] = {"type": "declared", "count": 1}
    for part in ("epsilon", "delta"):
        value = rows.get(part)  # a number is kept by the ledger as its shortest text
        declared[part] = repr(value) if isinstance(value, float) else None
    stages = run.latest.values()
    return any(stage.state == "committed" and declared in stage.events for stage in stages)


def findings_of_runs(counted: Tally) -> list[Finding]:
    """Findings on all runs, recoveries, losses and unpaid reads of a ledger."""
    findings = []
    for digest, release in counted.recovered.items():
        text = f"the ledger had lost release {digest[:12]} of run {release.run}; charged again"
        findings.append(Finding("recovered", f"entry {release.seq}", text))
    for seq, name, loss in counted.losses:
        findings.append(Finding("loss_stated", f"entry {seq}", f"population {name}: {loss}"))
    for name, population in counted.populations.items():
        if reads := counted.unpaid_reads(name):
            most = population.max_unpaid_reads
            text = f"its tables were read {reads} of at most {most} times without a draw"
            findings.append(Finding("unpaid_reads", f"population {name}", text))
    findings += _period_twice(counted)
    for run in counted.runs.values():
        for attempt in run.attempts:
            subject = f"run {run.key[:12]} attempt {attempt.number}"
            findings += [Finding("cost_declared", subject, claim) for claim in _declared(attempt)]
            if attempt.voided:
                text = f"population {run.population}, period {run.period}: given back"
                findings.append(Finding("attempt_voided", subject, text))
            for name, stage in attempt.stages.items():
                if stage.state == "lost":
                    text = f"stage {name} was armed (it may have drawn), and left no output"
                    if run.manifest_digest is not None:
                        text += f"; its attempt's charge, {attempt.cost}, is in its release's total"
                    findings.append(Finding("draw_lost", subject, text))
                if stage.state == "armed":
                    text = f"stage {name} is armed (it may draw), and neither committed nor lost"
                    findings.append(Finding("stage_armed", subject, text))
                if stage.conflicts:
                    outputs = f"{stage.conflicts} further output{'s' * (stage.conflicts > 1)}"
                    text = f"stage {name}: {outputs} beside the committed one"
                    findings.append(Finding("draw_conflict", subject, text))
        findings += _waiting(run)
    return findings


def _period_twice(counted: Tally) -> list[Finding]:
    """Runs that drew for a release and period of an earlier run; lost draws do not count."""
    findings, first = [], dict[tuple[str, str, str], RunTally]()
    for run in counted.runs.values():
        states = {stage.state for attempt in run.attempts for stage in attempt.stages.values()}
        names = (attempt.stated.get("release") for attempt in run.attempts)
        release = next((str(name) for name in names if name), None)
        if release is None or not states & {"armed", "committed"}:
            continue
        before = first.setdefault((run.population, release, str(run.period)), run)
        if before is not run:
            text = f"release {release}, period {run.period}: run {before.key[:12]} drew for it too"
            findings += [Finding("period_twice", f"run {run.key[:12]}", text)]
    return findings


def _declared(attempt: AttemptTally) -> list[str]:
    return [
        f"stage {name}: epsilon={event['epsilon']}, delta={event['delta']} of its charge was"
        " declared, not computed, for rows made elsewhere"
        for name, stage in attempt.stages.items()
        for event in stage.events
        if event.get("type") == "declared"
    ]


def _waiting(run: RunTally) -> list[Finding]:
    states = {stage.state for stage in run.latest.values()}
    if run.manifest_digest is not None or "committed" not in states or "armed" in states:
        return []
    drawn = "drawn" if states == {"committed"} else "drawn in part"
    text = f"population {run.population}, period {run.period}: paid and {drawn}, not published"
    return [Finding("not_published", f"run {run.key[:12]}", text)]
