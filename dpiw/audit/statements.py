"""Statements of an audit: what was checked, what was not, and the next steps."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dpiw.audit.auditing import AuditReport
from dpiw.audit.costs import AGREEMENT
from dpiw.audit.entry_signatures import given_keys
from dpiw.audit.findings import Severity
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
            times = range(1, attempt.conflicts + 2)
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
    extra = attempt.conflicts + 1 - max(1, inside)
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


def spent_lines(report: AuditReport) -> list[str]:
    """For each population, one line on what is spent with no folder; none if all is shown."""
    if report.counted is None:
        return []
    lines = []
    for name, population in sorted(report.counted.populations.items()):
        rows = unreleased(report, name)
        if rows:
            reasons = ", ".join(dict.fromkeys(row.why for row in rows))
            amount = total_text(rows, population)
            lines.append(f"spent with no folder: population {name}, {amount} ({reasons})")
    return lines


def total_text(rows: list[Unreleased], population: PopulationTally) -> str:
    """The sum of the charged amounts, with a note on what it leaves out, if anything."""
    note = ", each charge alone: together they count for less"
    return f"{total(row.amount for row in rows)}" + note * (population.composition == "renyi")


UNPINNED = "signature not checked against a key"
"""For folders that were checked only against the key inside them."""

_DOUBTED = frozenset(
    {"ledger_unreadable", "chain_broken", "recount_differs", "illegal_step", "overspent",
     "too_many_attempts", "too_many_reads", "head_missing", "folder_unknown",
     "entry_forged", "entries_not_signed"}
)  # fmt: skip
"""Findings against a ledger itself, and so against its head."""


_MOST_TOLD = 8
"""Findings that a terminal shows."""


def found(report: AuditReport) -> tuple[str, ...]:
    """Lines for a terminal: what was examined, errors and warnings, spending with no folder."""
    grave = [f for f in report.findings if f.severity is not Severity.NOTE]
    lines = [f"{f.severity.value}: {f.subject}: {f.text} ({f.code})" for f in grave[:_MOST_TOLD]]
    rest = [f"and {len(grave) - _MOST_TOLD} more errors and warnings"]
    signed = "" if report.signers is None else f" ({report.signers.statement})"
    folders = "no release folder: the one that was named holds none"
    if report.folders:
        folders = f"{len(report.folders)} release folder{'s' * (len(report.folders) > 1)}"
    return (
        f"{report.entries} ledger entries{signed}, {folders}",
        *lines,
        *rest * (len(grave) > _MOST_TOLD),
        *spent_lines(report),
    )


def checked(report: AuditReport) -> tuple[str, ...]:
    """Sentences about what was checked."""
    ledger: tuple[str, ...] = ()
    if report.counted is not None:
        ledger = (
            f"All {report.entries} entries of the ledger: the hash chain, and whether the rules "
            "allow every step. The ledger's own replay and a second implementation both checked "
            "this.",
            "Every population's sum of epsilon and delta, in whole units of 1e-12 and 1e-18, "
            "against its lifetime budget after every reservation. Both implementations computed "
            "the sum. All entries are of one moment, even if runs write during the audit.",
            f"The epsilon of {len(report.costs)} reservations at their charged delta, recomputed "
            "from the stored events in three ways: by privacy loss distributions, by Renyi "
            "accounting, and by the audit's own method, which inverts Laplace transforms and "
            "shares no code with the other two. The charge is at least the smallest valid figure, "
            "and at least every proven lower bound. The first two agree with the audit's method "
            f"within {AGREEMENT:.0%}. Selections by the exponential mechanism agree within the "
            "known bounds of their composition. Renyi vectors agree order by order.",
        )
    if report.signers is not None:
        ledger = (*ledger, f"Signatures of its entries: {report.signers.statement}.")
    return (*ledger, *_folders_checked(report))


def _folders_checked(report: AuditReport) -> tuple[str, ...]:
    key = "the key inside the folder, as none was given: that shows wholeness, not who signed"
    if report.pinned:
        counts = Counter(folder.release.key_id for folder in report.folders if folder.release)
        key = given_keys({given: counts[given] for given in report.given}, "public key")
    done = []
    if report.folders:
        done.append(
            f"{_folders(len(report.folders), 'published')}: signature under {key}, every file's "
            "size and SHA-256, and that manifest, certificate and Parquet footer agree."
        )
    count = sum(folder.release is not None for folder in report.folders)
    if count and report.counted is not None:
        done.append(
            f"{_folders(count, 'whole')} against the ledger: the publishing entry, the head it was "
            "built on, costs, attempts, sums, budget and events at that head, and the release "
            "before it."
        )
    return tuple(done)


def _folders(number: int, kind: str) -> str:
    return f"{number} {kind} folder{'s' * (number != 1)}"


def next_steps(report: AuditReport) -> tuple[str, ...]:
    """Sentences about what an auditor does next."""
    steps = []
    if not report.ok:
        steps.append("Stop: publish no release until every error above is explained.")
    if not report.pinned:
        steps.append(
            "Get each curator's public key from another place than the folders, and audit again"
            " with one --key for each curator."
        )
    if not report.folders:
        steps.append("Get the published folders, and audit again with --releases.")
    if any(f.severity is Severity.WARNING for f in report.findings):
        steps.append(
            "Ask the curator about each warning. The text beside a warning says what to do."
        )
    codes = {finding.code for finding in report.findings}
    if codes & _DOUBTED and report.head is not None:
        steps.append(
            "Do not keep the ledger head below, because the ledger is damaged, old or another one."
            " Compare the head with the one you noted before. Note a new head when an audit finds"
            " no error."
        )
    elif report.head is not None:
        steps.append(
            "Keep the ledger head below where the curator cannot change it. At the next audit, "
            f"type: dpiw ledger verify --ledger URL --head {report.head.hash}"
        )
    steps.append(
        "Ask the curator which public source each bound and level came from (schema.json of each "
        "release says what was stated), and whether one identifier is one person."
    )
    return tuple(steps)


def not_checked(report: AuditReport) -> tuple[str, ...]:
    """Sentences about what was not or cannot be checked."""
    missing = []
    if report.counted is None:
        missing.append("The ledger: it could not be read. No folder was compared with it.")
    if not report.folders:
        missing.append("Releases: no folder was given, or the place you named holds none.")
    elif not report.pinned:
        missing.append("Who signed the folders: no public key was given.")
    return (
        *missing,
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
