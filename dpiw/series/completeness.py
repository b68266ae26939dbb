"""Which periods of a spec's calendar are published, pending, missing or withdrawn, and why.

From the ledger and the published folders alone: no confidential file is opened, and what is stated
is public. Nothing here reads the number of rows, or that of reads without a draw.
"""

import datetime
import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpiw.data.documents import document_json, plain
from dpiw.data.schema.confidential import PERIOD
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import (
    MOST_TOLD,
    BudgetExceededError,
    Command,
    DPIWError,
    Next,
    ReleaseError,
    SpecError,
)
from dpiw.ledger import Ledger, RunRecord, RunState, StageState
from dpiw.ledger.values import Charge
from dpiw.plan.calendar import first_day, following, latest_periods, period_at, periods
from dpiw.plan.plan import compile_plan, settled
from dpiw.plan.sections import SeriesSpec
from dpiw.plan.spec import ReleaseSpec
from dpiw.release.manifest import SCHEMA, Manifest, release_folders
from dpiw.release.verification import read_signed_manifest
from dpiw.release.withdrawal import read_tombstone
from dpiw.run.reserve import charge_of
from dpiw.run.run import ledger_url

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
    """One period of a calendar; public facts only.

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


@dataclass(frozen=True, kw_only=True)
class Series:
    """The calendar of one spec.

    Attributes:
        periods: from the first to the last one, or to the current one if the calendar is open.
        carries: how many further periods the budget carries.
        ends: the first period that it cannot carry; None: it carries all of the calendar.
        due: labels of periods that are over, unpublished and within retention, oldest first.
        schema_changes: whether the next release has another data dictionary than the last one.
    """

    name: str
    population: str
    cadence: str
    periods: tuple[PeriodState, ...]
    carries: int
    ends: str | None
    due: tuple[str, ...] = ()
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
        states = [vars(state) | {"status": state.status.value} for state in self.periods]
        return vars(self) | {"periods": states, "due": [*self.due], "forecast": self.forecast}


def series_of(
    spec: ReleaseSpec,
    schema: PublicSchema,
    ledger: Ledger,
    releases: Path,
    *,
    now: datetime.datetime,
    drawn_only: bool = False,
) -> Series:
    """Return the series of a spec with a calendar at a moment (with a time zone).

    Opens the ledger and the signed manifests in `releases`, and spends nothing. `drawn_only`: as
    anyone may know it, without reservations that drew nothing: whether one is given back can depend
    on the table. Raises SpecError without a calendar, UnknownPopulationError, or LedgerError.
    """
    calendar = calendar_of(spec)
    current = period_at(spec.cadence, now, spec.time_zone)
    labels = periods(spec.cadence, calendar.first, calendar.last or current)
    recent = latest_periods(spec.cadence, now, spec.time_zone, spec.retention)[1:]
    found = _Found.of(spec, ledger, releases, now, drawn_only=drawn_only)
    states = []
    for label in labels:
        state = found.state(label)
        if first_day(spec.cadence, label) >= first_day(spec.cadence, current):
            state = _not_over(state)
        elif state.status is Status.MISSING and label not in recent:
            state = replace(state, why=f"{state.why}; before the retention of {spec.retention}")
        states.append(state)
    due = [s.label for s in states if s.label in recent and _is_open(s)]
    states, unpaid = _with_dictionaries(states, found.manifests), found.unpaid(states, due, current)
    account = replace(ledger.account(spec.population), unpaid_reads=0)  # not a public number
    if drawn_only:
        account = replace(account, held=account.drawn)
    carries = account.admits(_charge(spec, schema, ledger))
    digests = [state.schema_digest for state in states if state.schema_digest is not None]
    own = hashlib.sha256(document_json(plain(schema.published_mapping()))).hexdigest()
    beyond = {*unpaid[carries:]}
    states = [replace(s, why=f"{s.why}; {_BEYOND}") if s.label in beyond else s for s in states]
    return Series(
        name=spec.name, population=spec.population, cadence=spec.cadence, periods=tuple(states),
        carries=carries, due=tuple(due), schema_changes=digests[-1:] not in ([], [own]),
        ends=unpaid[carries] if beyond else _end(spec, labels, carries - len(unpaid)),
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
        found = f"missing: {', '.join(told[:MOST_TOLD])}{rest}"
        raise IncompleteSeriesError(found, field=f"series {series.name}")


def current_series(spec: ReleaseSpec, schema: PublicSchema) -> Series:
    """Return a spec's series now, from its own ledger and folder of releases."""
    now = datetime.datetime.now(datetime.UTC)
    ledger = Ledger.open(ledger_url(spec))
    return series_of(spec, schema, ledger, Path(spec.publish_to), now=now)


_NEVER, _NOT_OVER = "never started", "not over"
_BEYOND, _DRAWING = "the budget does not carry it", "a draw is under way"
_WHY = {
    RunState.RESERVED: "reserved, and not drawn",
    RunState.ARMED: "a draw began, and has no outcome",
    RunState.LOST: "a draw was lost; its charge stays",
    RunState.COMMITTED: "drawn, and not published",
    RunState.PUBLISHED: "published in the ledger, and its folder is not among the releases",
    RunState.VOIDED: "given back before a draw",
}


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What ledger and folders say of one release.

    `manifests` by the name of their folder; `withdrawn`: why, by SHA-256 of the manifest. Entry and
    tombstone count alike: a ledger that lost entries lacks the one, a reader's copy the other.
    """

    spec: ReleaseSpec
    runs: Sequence[RunRecord]
    manifests: Mapping[str, Manifest]
    recovered: Mapping[str, str]
    withdrawn: Mapping[str, str]
    drawing: frozenset[str]

    @classmethod
    def of(
        cls, spec: ReleaseSpec, ledger: Ledger, releases: Path, now: datetime.datetime, *,
        drawn_only: bool,
    ) -> "_Found":  # fmt: skip
        found = [*_manifests(spec, releases)]
        manifests = {name: manifest for name, manifest, _ in found}
        withdrawn = {manifest.digest: reason for _, manifest, reason in found if reason}
        withdrawn |= {digest: one.reason for digest, one in ledger.withdrawals().items()}
        every = [run for run in ledger.runs(spec.population) if run.drawn or not drawn_only]
        names = {run.run_key: f"{spec.name}-{run.period}-{run.run_key[:8]}" for run in every}
        # A run of an earlier version has no name: it is this release's if its folder says so.
        runs = [
            run
            for run in every
            if run.release == spec.name or (run.release is None and names[run.run_key] in manifests)
        ]
        armed = {run.run_key for run in runs if run.state is RunState.ARMED}
        last = {entry.run_key: entry.at for entry in ledger.entries() if entry.run_key in armed}
        recovered = {
            f"{spec.name}-{release.period}-{release.run}": release.manifest_digest
            for recovery in ledger.recoveries(spec.population)
            for release in recovery.releases
        }
        return cls(
            spec=spec, runs=runs, manifests=manifests, recovered=recovered, withdrawn=withdrawn,
            drawing=frozenset(
                key for key, at in last.items() if key and now - _moment(at) < UNDER_WAY
            ),
        )  # fmt: skip

    def state(self, label: str) -> PeriodState:
        """The state of a period, as if it were over: the best of its runs."""
        states = [self._of_run(run) for run in self.runs if run.period == label]
        states += [
            self._of_release(label, name, digest)
            for name, digest in self.recovered.items()
            if self._is_named(name, label)
            if digest in self.withdrawn or self._is_there(name, digest)
        ]
        unknown = any(self._is_named(name, label) for name in self.manifests)
        nothing = "its folder is not in the ledger; recover it" if unknown else _NEVER
        states.insert(0, PeriodState(label=label, status=Status.MISSING, why=nothing))
        return max(reversed(states), key=lambda state: _BEST[state.status])

    def _of_run(self, run: RunRecord) -> PeriodState:
        label, name = run.period, f"{self.spec.name}-{run.period}-{run.run_key[:8]}"
        digest = run.manifest_digest
        if digest is not None and (digest in self.withdrawn or self._is_there(name, digest)):
            return self._of_release(label, name, digest)
        why, stages = _WHY[run.state], {stage.state for stage in run.stages.values()}
        if run.state is RunState.ARMED and StageState.ARMED not in stages:
            why = "drawn in part, and not published"
        elif run.run_key in self.drawing:
            return PeriodState(label=label, status=Status.PENDING, why=_DRAWING)
        return PeriodState(label=label, status=Status.MISSING, why=why)

    def _of_release(self, label: str, name: str, digest: str) -> PeriodState:
        reason = self.withdrawn.get(digest)
        if reason is None:
            return PeriodState(label=label, status=Status.PUBLISHED, release=name)
        why = f"withdrawn: {reason}"
        return PeriodState(label=label, status=Status.WITHDRAWN, why=why, release=name)

    def _is_named(self, name: str, label: str) -> bool:
        begin = f"{self.spec.name}-{label}-"
        return name.startswith(begin) and len(name) == len(begin) + 8

    def _is_there(self, name: str, digest: str | None) -> bool:
        manifest = self.manifests.get(name)
        return manifest is not None and manifest.digest == digest

    def unpaid(self, states: Iterable[PeriodState], due: Sequence[str], current: str) -> list[str]:
        """Labels that a payment is needed for: open, due or not over, with nothing held."""
        paid = {
            run.period
            for run in self.runs
            if run.state in (RunState.RESERVED, RunState.ARMED, RunState.COMMITTED)
        }
        cadence = self.spec.cadence
        return [
            state.label
            for state in states
            if _is_open(state) and state.label not in paid
            if state.label in due or first_day(cadence, state.label) >= first_day(cadence, current)
        ]


_BEST = {Status.MISSING: 0, Status.WITHDRAWN: 1, Status.PENDING: 2, Status.PUBLISHED: 3}


def _is_open(state: PeriodState) -> bool:
    return state.status in (Status.MISSING, Status.PENDING)


def _not_over(state: PeriodState) -> PeriodState:
    if state.status is not Status.MISSING:
        return state
    why = _NOT_OVER if state.why == _NEVER else f"{_NOT_OVER}; {state.why}"
    return replace(state, status=Status.PENDING, why=why)


def _manifests(spec: ReleaseSpec, releases: Path) -> Iterable[tuple[str, Manifest, str | None]]:
    """Name of each folder, its manifest, and the reason of its tombstone, if there is one."""
    for folder in release_folders(releases) if releases.is_dir() else []:
        if folder.name.startswith(f"{spec.name}-"):
            try:
                manifest, tombstone = read_signed_manifest(folder), read_tombstone(folder, None)
            except ReleaseError:  # damaged, or no release
                continue
            if (manifest.facts.population, folder.name) == (
                spec.population,
                manifest.facts.release_id,
            ):
                reason = None if tombstone is None else tombstone.statement.reason
                yield folder.name, manifest, reason


def _with_dictionaries(
    states: Iterable[PeriodState], manifests: Mapping[str, Manifest]
) -> list[PeriodState]:
    before, known = None, []
    for state in states:
        manifest = manifests.get(state.release or "")
        if state.status is Status.PUBLISHED and manifest is not None:
            digest = manifest.files[SCHEMA].sha256
            changed = before not in (None, digest)
            state, before = replace(state, schema_digest=digest, schema_changed=changed), digest
        known.append(state)
    return known


def _moment(at: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(at).astimezone(datetime.UTC)


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
