"""Which periods of a spec's calendar are published, pending, missing or withdrawn, and why.

From the ledger and the published folders alone: no confidential file is opened. Nothing here reads
the number of rows, or how often a table was read without a draw.
"""

import datetime
import enum
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpiw.data.documents import document_json, plain
from dpiw.data.schema.confidential import PERIOD
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.yaml import marked
from dpiw.errors import (
    MOST_TOLD,
    BudgetExceededError,
    Command,
    DPIWError,
    Next,
    ReleaseError,
    SpecError,
)
from dpiw.ledger import Entry, EntryKind, Ledger, RunRecord, RunState, StageState
from dpiw.ledger.keyring import Role
from dpiw.ledger.values import Charge
from dpiw.plan.calendar import first_day, following, latest_periods, periods
from dpiw.plan.plan import compile_plan, settled
from dpiw.plan.sections import SeriesSpec
from dpiw.plan.spec import ReleaseSpec, load_schema, load_spec
from dpiw.release.manifest import SCHEMA, Manifest, release_folders
from dpiw.release.signing import PublicKey
from dpiw.release.verification import read_signed_manifest
from dpiw.release.withdrawal import read_tombstone
from dpiw.run.reserve import charge_of
from dpiw.run.run import begun, ledger_url, run_folder, snapshot_file

UNDER_WAY = datetime.timedelta(days=1)
"""A draw whose last entry is older has died, or its worker's clock is wrong."""

_FURTHEST = 10_000
"""How many periods ahead the end of the budget is looked for."""


class IncompleteSeriesError(DPIWError):
    """A period of the calendar is over and not published, or its draw is under way."""

    exit_code = 61
    advice = (
        "ask `dpiw series SPEC` which periods are missing and why; `--fill` publishes what is due"
    )


class Status(enum.Enum):
    """Status of one period.

    PENDING: not over yet, or a draw is under way. MISSING: over, and not published.
    """

    PUBLISHED = "published"
    PENDING = "pending"
    MISSING = "missing"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, kw_only=True)
class PeriodState:
    """One period of a calendar; public facts only if the series is `drawn_only`.

    Attributes:
        label: such as `2026-03`.
        why: a plain sentence, or empty.
        release: name of the published folder, or None.
        schema_digest: SHA-256 of a published period's data dictionary, 64 hexadecimal digits.
        schema_changed: whether it differs from that of the last published period before.
    """

    label: str
    status: Status
    why: str = ""
    release: str | None = None
    schema_digest: str | None = None
    schema_changed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a release of it may still come."""
        return self.status in (Status.MISSING, Status.PENDING)


@dataclass(frozen=True, kw_only=True)
class Series:
    """The calendar of one spec.

    Attributes:
        periods: from the first to the last one, or to the current one if the calendar is open.
        carries: how many further periods the budget carries.
        ends: the first period that it cannot carry; None: it carries all of the calendar.
        due: labels of periods that are over, unpublished and within retention, oldest first.
        by_hand: those of `due` whose table was last read without a draw, unless that run is still
            reserved and goes on from its copy. Each read counts for life, so a worker does not
            start them again; a person may. Empty where everybody may look.
        schema_changes: whether the next release has another data dictionary than the last one.
    """

    name: str
    population: str
    cadence: str
    periods: tuple[PeriodState, ...]
    carries: int
    ends: str | None
    due: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    schema_changes: bool = False

    @property
    def missing(self) -> tuple[PeriodState, ...]:
        """The missing periods."""
        return tuple(state for state in self.periods if state.status is Status.MISSING)

    @property
    def forecast(self) -> str:
        """A sentence: how far the budget carries."""
        count = f"{self.carries} further period{'s' * (self.carries != 1)}"
        if self.ends is not None:
            return f"the budget carries {count}; the first that it cannot pay is {self.ends}"
        return f"the budget carries {count}: all of the calendar"

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**plain(self), "forecast": self.forecast}


def series_of(
    spec: ReleaseSpec,
    schema: PublicSchema,
    ledger: Ledger,
    releases: Path,
    *,
    now: datetime.datetime,
    drawn_only: bool = False,
    is_copied: Callable[[str, str], bool] = lambda label, run_key: False,
) -> Series:
    """Return the series of a spec with a calendar at a moment (with a time zone).

    Opens the ledger and the signed manifests in `releases`, and spends nothing. `drawn_only`: as
    anyone may know it, without reads, and attempts that drew nothing: whether one is given back
    can depend on the table. `is_copied`: whether a period's release would continue the run of this
    key, and needs no read, as the run holds its copy of the table. Raises SpecError without a
    calendar, UnknownPopulationError, or LedgerError.
    """
    calendar, cadence = calendar_of(spec), spec.cadence
    current, *recent = latest_periods(cadence, now, spec.time_zone, spec.retention)
    labels = periods(cadence, calendar.first, calendar.last or current)
    over = {label for label in labels if first_day(cadence, label) < first_day(cadence, current)}
    manifests, withdrawn = _folders(spec, releases, ledger)
    runs = {
        run.run_key: _of_draws(run) if drawn_only else run
        for run in ledger.runs(spec.population)
        if run.release == spec.name or (run.release is None and _name(spec, run) in manifests)
        if run.drawn or not drawn_only
    }  # one of an earlier version has no name: its folder says whose it is
    entries = [entry for entry in ledger.entries() if entry.run_key in runs]
    states = {label: _missing(label, _NEVER) for label in labels}
    alive = {
        entry.run_key
        for entry in entries
        if entry.kind in _OF_A_DRAW and now - _moment(entry) < UNDER_WAY
    }
    for found in _outcomes(spec, ledger, manifests, withdrawn, runs, alive):
        if found.label in states and _BEST[found.status] >= _BEST[states[found.label].status]:
            states[found.label] = found
    due = [label for label in labels if label in recent and states[label].is_open]
    in_vain = {} if drawn_only else _read_in_vain(entries, runs)
    by_hand = [
        label
        for label in due
        if (key := in_vain.get(label)) is not None
        and not (runs[key].state is RunState.RESERVED and is_copied(label, key))
    ]
    account = replace(ledger.account(spec.population), unpaid_reads=0)  # not a public number
    if drawn_only:
        account = replace(account, held=account.drawn)
    carries = account.admits(_charge(spec, schema, ledger))
    paid = {run.period for run in runs.values() if run.state in _PAID}
    unpaid = [
        label
        for label, state in states.items()
        if state.is_open and label not in paid and (label in due or label not in over)
    ]
    dictionary = None
    for label, state in states.items():
        why, status = state.why, state.status
        if status is Status.MISSING and label not in over:
            why, status = _NOT_OVER if why == _NEVER else f"{_NOT_OVER}; {why}", Status.PENDING
        elif status is Status.MISSING and label not in recent:
            why = f"{why}; before the retention of {spec.retention}"
        elif status is Status.MISSING and label in by_hand:
            why = _READ
        if label in unpaid[carries:]:
            why = f"{why}; {_BEYOND}"
        own = state.schema_digest or dictionary
        changed = dictionary not in (None, own)
        states[label] = replace(state, status=status, why=why, schema_changed=changed)
        dictionary = own
    following_one = hashlib.sha256(document_json(plain(schema.published_mapping()))).hexdigest()
    return Series(
        name=spec.name, population=spec.population, cadence=cadence, carries=carries,
        periods=tuple(states.values()), due=tuple(due), by_hand=tuple(by_hand),
        schema_changes=dictionary not in (None, following_one),
        ends=unpaid[carries] if unpaid[carries:] else _end(spec, labels, carries - len(unpaid)),
    )  # fmt: skip


def calendar_of(spec: ReleaseSpec) -> SeriesSpec:
    """Return a spec's calendar; SpecError if it has none."""
    if spec.series is None:
        raise SpecError(
            "missing: this spec has no calendar",
            field="series",
            allowed="`series: {first: LABEL}`, and a cadence",
        )
    return spec.series


def check_carried(series: Series, spec: ReleaseSpec) -> None:
    """Raise BudgetExceededError for a calendar with an end that the budget does not carry."""
    calendar = calendar_of(spec)
    if calendar.last is None or series.ends is None or calendar.beyond_budget:
        return
    raise BudgetExceededError(
        f"{series.forecast}, and the calendar goes to {calendar.last}. Nothing was reserved\nto go"
        " on up to there, write `beyond_budget: true` in `series`",
        field="series.last",
        requested=f"all periods to {calendar.last}",
        remaining=f"{series.carries} periods",
    )


def due_of(series: Series, spec: ReleaseSpec) -> tuple[str, ...]:
    """Return the labels that a fill publishes, oldest first.

    Raises as `check_carried`; SpecError if one file would serve all periods: dpiw cannot know
    which period its table is of.
    """
    check_carried(series, spec)
    if series.due and PERIOD not in spec.source.path:
        raise SpecError(
            "names one file for all periods, and one table is of one period; nothing was reserved",
            field="source.path",
            allowed=f"{PERIOD} in it, such as data/{PERIOD}.csv, or a period named by hand",
            next=[Next("by hand", Command.RELEASE, f" --period {series.due[0]}")],
        )
    return series.due


def check_complete(series: Series, *, without: Sequence[str] = ()) -> None:
    """Raise IncompleteSeriesError, with labels, if a period is missing.

    `without`: labels of due periods that had no file at `source.path`.
    """
    reasons = {state.label: state.why for state in series.missing}
    reasons |= {label: "no file at source.path" for label in without if label in reasons}
    told = [f"{label} ({why})" for label, why in reasons.items()]
    if told:
        rest = f" and {len(told) - MOST_TOLD} more" * (len(told) > MOST_TOLD)
        again = [label for label in series.by_hand if label not in without][:MOST_TOLD]
        raise IncompleteSeriesError(
            f"missing: {', '.join(told[:MOST_TOLD])}{rest}",
            field=f"series {series.name}",
            next=[
                Next("to read its table again, by hand", Command.RELEASE, f" --period {label}")
                for label in again
            ],
        )


def read_series(path: Path) -> tuple[ReleaseSpec, Series]:
    """Read a spec; return it and its series now, from its own ledger and folder of releases.

    Raises as `series_of`, and SpecError or SchemaError for what cannot be read.
    """
    with marked(path, SpecError):
        spec = load_spec(path)
        calendar_of(spec)
        schema = load_schema(spec)
    ledger, releases = Ledger.open(ledger_url(spec)), Path(spec.publish_to)
    now = datetime.datetime.now(datetime.UTC)

    def is_copied(label: str, run_key: str) -> bool:
        copy = snapshot_file(run_folder(Path(spec.state), spec.population, run_key))
        # Of a changed spec the run is another one, which would read the table.
        return copy.exists() and begun(spec, schema, label).run_key(schema, label) == run_key

    return spec, series_of(spec, schema, ledger, releases, now=now, is_copied=is_copied)


_NEVER, _NOT_OVER = "never started", "not over"
_BEYOND, _DRAWING = "the budget does not carry it", "a draw is under way"
_READ, _IN_PART = "its table was read, and nothing was drawn", "drawn in part, and not published"
_WHY = {
    RunState.RESERVED: "reserved, and not drawn",
    RunState.ARMED: "a draw began, and has no outcome",
    RunState.LOST: "a draw was lost; its charge stays",
    RunState.COMMITTED: "drawn, and not published",
    RunState.PUBLISHED: "published in the ledger, and its folder is not among the releases",
    RunState.VOIDED: "given back before a draw",
}
_OF_A_DRAW = (EntryKind.ARM, EntryKind.CHECKPOINT, EntryKind.RESUME)
_PAID = (RunState.RESERVED, RunState.ARMED, RunState.COMMITTED)
_BEST = {Status.MISSING: 0, Status.WITHDRAWN: 1, Status.PENDING: 2, Status.PUBLISHED: 3}


def _folders(
    spec: ReleaseSpec, releases: Path, ledger: Ledger
) -> tuple[dict[str, Manifest], dict[str, str]]:
    """Manifests by the names of their folders, and reasons of tombstones by their digests.

    A tombstone is believed by its entry, or by the key of its release or of a curator: else anybody
    with access to a folder could withdraw it. The folder is then as good as damaged.
    """
    manifests, withdrawn = {}, {}
    entered, ring = ledger.withdrawals(), ledger.keyring(spec.population)
    curators = [
        PublicKey.from_hex(k.public_key) for k in ring.keys.values() if k.role is Role.CURATOR
    ]
    for folder in release_folders(releases) if releases.is_dir() else []:
        if not folder.name.startswith(f"{spec.name}-"):
            continue
        try:
            manifest = read_signed_manifest(folder)
            keys = None if manifest.digest in entered else [manifest.signer, *curators]
            tombstone = read_tombstone(folder, keys)
        except ReleaseError:  # damaged, or no release
            continue
        facts = manifest.facts
        if (facts.population, facts.release_id) == (spec.population, folder.name):
            manifests[folder.name] = manifest
            if tombstone is not None:
                withdrawn[manifest.digest] = tombstone.statement.reason
    return manifests, withdrawn


def _outcomes(
    spec: ReleaseSpec, ledger: Ledger, manifests: Mapping[str, Manifest],
    tombstones: Mapping[str, str], runs: Mapping[str, RunRecord], alive: Collection[str | None],
) -> Iterator[PeriodState]:  # fmt: skip
    """What became of each folder, run and recovery, as if its period were over.

    A withdrawal counts by its entry and by its tombstone alike: a ledger that lost entries lacks
    the one, a reader's copy the other.
    """
    entered = {digest: one.reason for digest, one in ledger.withdrawals().items()}
    withdrawn: Mapping[str, str] = {**tombstones, **entered}

    def published(label: str, name: str, digest: str | None) -> list[PeriodState]:
        manifest = manifests.get(name)
        if digest is not None and digest in withdrawn:
            why = f"withdrawn: {withdrawn[digest]}"
            return [PeriodState(label=label, status=Status.WITHDRAWN, why=why, release=name)]
        if manifest is None or manifest.digest != digest:
            return []
        return [
            PeriodState(label=label, status=Status.PUBLISHED, release=name,
                        schema_digest=manifest.files[SCHEMA].sha256)
        ]  # fmt: skip

    for name in manifests:  # what the ledger says of them comes later, and counts
        label = name.removeprefix(f"{spec.name}-")[: -len("-0123abcd")]
        yield _missing(label, "its folder is not in the ledger; recover it")
    for run in runs.values():
        armed = any(stage.state is StageState.ARMED for stage in run.stages.values())
        if found := published(run.period, _name(spec, run), run.manifest_digest):
            yield from found
        elif armed and run.run_key in alive:
            yield PeriodState(label=run.period, status=Status.PENDING, why=_DRAWING)
        else:
            in_part = run.state is RunState.ARMED and not armed
            yield _missing(run.period, _IN_PART if in_part else _WHY[run.state])
    for recovery in ledger.recoveries(spec.population):
        for one in recovery.releases:
            name = f"{spec.name}-{one.period}-{one.run}"
            yield from published(one.period, name, one.manifest_digest)


def _name(spec: ReleaseSpec, run: RunRecord) -> str:
    return f"{spec.name}-{run.period}-{run.run_key[:8]}"


def _of_draws(run: RunRecord) -> RunRecord:
    """A run without its attempts that drew nothing."""
    return replace(run, attempts=tuple(attempt for attempt in run.attempts if attempt.armed))


def _missing(label: str, why: str) -> PeriodState:
    return PeriodState(label=label, status=Status.MISSING, why=why)


def _moment(entry: Entry) -> datetime.datetime:
    return datetime.datetime.fromisoformat(entry.at).astimezone(datetime.UTC)


def _read_in_vain(entries: Iterable[Entry], runs: Mapping[str, RunRecord]) -> dict[str, str]:
    """Periods whose table was last read without a draw after it, with the keys of those runs."""
    steps = (EntryKind.READ, EntryKind.ARM, EntryKind.COMMIT)
    last = {runs[str(entry.run_key)].period: entry for entry in entries if entry.kind in steps}
    return {
        label: str(entry.run_key) for label, entry in last.items() if entry.kind is EntryKind.READ
    }


def _charge(spec: ReleaseSpec, schema: PublicSchema, ledger: Ledger) -> Charge:
    """What one period pays; under `renyi` the plan says."""
    population = ledger.population(spec.population)
    if not population.renyi:
        return Charge(cost=spec.cost)
    plan = compile_plan(settled(spec, schema), schema)
    return charge_of(plan, frozenset(stage.name for stage in plan.stages), population)


def _end(spec: ReleaseSpec, labels: Sequence[str], left: int) -> str | None:
    """The label after so many periods behind an open calendar; None: not in sight, or it ends."""
    if calendar_of(spec).last is not None or left > _FURTHEST:
        return None
    try:
        label = following(spec.cadence, labels[-1]) if labels else calendar_of(spec).first
        for _ in range(left):
            label = following(spec.cadence, label)
    except ValueError:
        return None
    return label
