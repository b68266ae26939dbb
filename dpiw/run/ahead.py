"""Checks of a release before anything is read, held or started."""

import datetime
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpiw.data.files import check_is_file, names_in
from dpiw.errors import (
    AlreadyPaidError,
    Command,
    Next,
    NotApprovedError,
    SourceError,
    SpecError,
    nearest,
)
from dpiw.ledger import EntryKind, Ledger, RunRecord, RunState
from dpiw.ledger.reading import label, utc_now
from dpiw.methods.neural.backend import check_device
from dpiw.plan.calendar import Due, latest_periods, nearest_period
from dpiw.plan.plan import Plan
from dpiw.plan.spec import ReleaseSpec
from dpiw.release.signing import PublicKey, unreadable_key
from dpiw.run.commands import given_back, new_key_command
from dpiw.run.run import (
    ReleaseRun,
    RunRequest,
    current_label,
    ledger_url,
)

_STANDS = {
    RunState.RESERVED: "is reserved",
    RunState.ARMED: "was begun and is charged",
    RunState.LOST: "was begun and is charged",
    RunState.COMMITTED: "is drawn and charged, not published",
    RunState.PUBLISHED: "is published already",
    RunState.WITHDRAWN: "was published, and withdrawn",
}

_RECOVERED = "was published, and recovered"


def missing_files(spec: ReleaseSpec) -> Iterator[str]:
    """Return the files that a release will need and that are missing; opens none."""
    source = Path(spec.source.path)
    if fault := source_fault(spec, names_others=False):
        yield str(fault)
    suffix_format = {".parquet": "parquet", ".csv": "csv"}.get(
        source.suffix.lower(), spec.source.format
    )
    if suffix_format != spec.source.format:
        yield (
            f"source.path: {source.name} is named like a {suffix_format} file, and source.format is"
            f" {spec.source.format}; correct one of them"
        )
    key = Path(spec.signing_key)
    private, makes = key.with_suffix(".key"), new_key_command(spec)
    if key.suffix == ".pub":
        both = "" if os.path.isfile(private) else f" ({makes} makes both)"
        yield (
            f"signing_key: {key.name} is named like the public half of a pair, which signs nothing;"
            f" name the private one: {private.name}{both}"
        )
    elif not os.path.isfile(key):  # as False where its folder is closed
        missing = unreadable_key(key, FileNotFoundError(errno.ENOENT, "no such file"))
        yield f"signing_key: {missing.told({Command.NEW_KEY: makes})}"


def missing_gpus(plan: Plan) -> Iterator[str]:
    """Yield the stages that need a GPU if this machine has none; another worker may have one."""
    for stage in plan.stages:
        try:
            check_device(plan.device(stage.name), stage=stage.name, computes=False)
        except SpecError as error:
            yield str(error)


def source_fault(spec: ReleaseSpec, *, names_others: bool) -> SourceError | None:
    """Return why a release would not open its source, judged by its name alone; None: it would.

    `names_others`: also name a similar file. Only on the custodian's terminal, as texts may be
    kept.
    """
    try:
        check_is_file(Path(spec.source.path))
    except SourceError as error:
        path = Path(spec.source.path)
        # Never another month's table: it would be published under this one's label.
        is_told = names_others and spec.series is None and not os.path.lexists(path)
        near = nearest(path.name, names_in(path.parent, path.suffix)) if is_told else ""
        looked = f"{error.fault} (looked for: {os.path.relpath(path)}{near})"
        return SourceError(looked, field=error.field)
    return None


def check_label(spec: ReleaseSpec, period: str | None) -> None:
    """Raise SpecError for a label that does not fit the cadence: its release would pay again."""
    near = None if period is None else nearest_period(spec.cadence, period)
    if period == near:
        return
    if spec.cadence == "once":
        raise SpecError(
            "the spec's cadence is once. A further release of the same people pays again: it needs"
            " another `name` or source.snapshot in the spec, or a cadence such as quarterly",
            field=f"period {period}",
            allowed="no period, or `once`",
        )
    meant = f"; did you mean {near!r}?" if near else ""
    raise SpecError(
        f"the spec's cadence is {spec.cadence}",
        field=f"period {period}",
        allowed=f"a label such as {current_label(spec)}{meant}\nFor releases that follow"
        " no calendar, write cadence: once, and give each release its own name",
    )


def out_of_turn(spec: ReleaseSpec, label: str, moment: datetime.datetime) -> str:
    """Return why a label is neither the current period's nor one within retention; else empty.

    Without this, anybody who may choose a label could spend the lifetime budget.
    """
    labels = latest_periods(spec.cadence, moment, spec.time_zone, spec.retention)
    if label in labels:
        return ""
    last = f", nor the last one, {labels[1]}" if labels[1:] else ""
    if labels[2:]:
        last = f", nor one of the {len(labels) - 1} before it, back to {labels[-1]}"
    return f"period {label} is not the current one, {labels[0]}{last} (time_zone {spec.time_zone})"


def check_turn(spec: ReleaseSpec, *, key: str, label: str, due: Due) -> None:
    """Raise SpecError if a worker would begin a period out of turn; a run that began may go on."""
    if fault := _begins_out_of_turn(spec, key, label, due.moment):
        by_hand = "by hand, which asks before it pays"
        raise SpecError(
            f"{fault}; a worker publishes no other period than `series.retention` in the spec"
            " declares; nothing was reserved",
            next=[Next(by_hand, Command.RELEASE, f" --period {label}")],
        )


def question(spec: ReleaseSpec, *, key: str, label: str) -> str:
    """Return what to ask a person before a period out of turn is paid; empty: nothing."""
    fault = _begins_out_of_turn(spec, key, label, datetime.datetime.now(datetime.UTC))
    return fault and f"{fault}; a release of it pays {spec.cost}"


def _begins_out_of_turn(spec: ReleaseSpec, key: str, label: str, now: datetime.datetime) -> str:
    fault = out_of_turn(spec, label, now)
    return "" if fault and _began(spec, key) else fault


def _began(spec: ReleaseSpec, key: str) -> bool:
    run = Ledger.open(ledger_url(spec)).find_run(key)
    return run is not None and run.state is not RunState.VOIDED


def check_spends(spec: ReleaseSpec) -> None:
    """Raise SpecError for `mode: rehearse`, under which a spec never spends."""
    if spec.mode == "rehearse":
        raise SpecError(
            "a spec in mode rehearse reserves and draws nothing",
            field="mode",
            allowed="production, or no mode, for a release",
            next=[Next("to try it at no cost", Command.REHEARSE)],
        )


def check_mode(spec: ReleaseSpec, ledger: Ledger) -> None:
    """Raise as `check_spends`, and NotApprovedError for `production` without a second key."""
    check_spends(spec)
    if spec.mode == "production" and not ledger.keyring(spec.population).needs_approval:
        raise NotApprovedError(
            "mode is production, and no approver's key was added to this population; nothing was"
            " reserved",
            field=f"population {spec.population}",
            next=[Next("once, with the second person's public key", Command.ADD_KEY)],
        )


def terms_of(run: ReleaseRun | RunRequest) -> dict[str, Any]:
    """What a reservation of this run states, and its approval must."""
    spec, schema = run.spec, run.plan.schema if isinstance(run, ReleaseRun) else run.schema
    return {
        "plan_digest": spec.digest(schema),
        "period": run.period,
        "release": spec.name,
        "max_attempts": spec.max_attempts,
    }


def check_approved(run: ReleaseRun | RunRequest, ledger: Ledger, public_key: PublicKey) -> None:
    """Raise as `check_mode`, and NotApprovedError if the ledger would refuse a reservation now."""
    check_mode(run.spec, ledger)
    cost = {"epsilon_units": 0, "delta_units": 0}  # the ledger itself compares what it charges
    ring = ledger.keyring(run.spec.population).at(label(utc_now))
    ring.check_reservation(public_key.raw.hex(), run.key, terms_of(run) | cost)


def check_not_paid(run: RunRequest | ReleaseRun, ledger: Ledger) -> None:
    """Raise AlreadyPaidError if another run, of another spec or version, drew for this period.

    A run that its ledger does not name may be of any release, and counts.
    """
    spec, key, period = run.spec, run.key, run.period
    paid = [
        other
        for other in ledger.runs(spec.population)
        if other.drawn and other.state in _STANDS and other.run_key != key
        if other.period == period and other.release in (spec.name, None)
    ]
    is_published = any(other.state is RunState.PUBLISHED and other.release for other in paid)
    runs = [other.run_key for other in paid] + _recovered(spec, ledger, key, period)
    if not runs:
        return
    stands = _STANDS[paid[-1].state] if paid else _RECOVERED
    named = f"release {spec.name}, period {period}"
    if paid and paid[-1].release is None:
        named += ", or another name that this ledger does not state"
    option = f" --period {period}"
    rows = f"{option} --rows {spec.synthetic_rows}"
    more = [Next("more rows of its draws, at no cost", Command.RELEASE, rows)]
    pays = Next(
        "to pay again, by hand and never by a worker", Command.RELEASE, f"{option} --pay-again"
    )
    raise AlreadyPaidError(
        f"{stands} (run {runs[-1][:8]}), with other settings or another version of dpiw;"
        " this run would pay a second time, and reserved nothing\nat no cost: go back to the"
        " settings and the version of that run; another `name` in the spec is another release, and"
        " pays",
        field=named,
        run=runs[-1],
        period=period,
        next=[*(more if is_published else []), pays],
    )


def check_not_overtaken(spec: ReleaseSpec, ledger: Ledger, record: RunRecord) -> frozenset[str]:
    """Raise AlreadyPaidError if a run drew nothing, and another of its label drew meanwhile.

    A recovery counts as drawing. Returns the keys of runs that had drawn before it reserved, as
    `Ledger.arm` takes them: a person agreed to those payments.
    """
    if record.drawn:
        return frozenset()
    key, period, since = record.run_key, record.period, record.attempts[-1].head.seq
    others = [run for run in ledger.runs(spec.population) if run.drawn and run.is_rival_of(record)]
    for run in others:
        entries = ledger.entries(run_key=run.run_key)
        if any(entry.kind is EntryKind.ARM and entry.seq > since for entry in entries):
            raise _overtaken(spec, record, run.run_key, _STANDS[run.state])
    for run_digits in _recovered(spec, ledger, key, period, since=since):
        raise _overtaken(spec, record, run_digits, _RECOVERED)
    return frozenset(run.run_key for run in others)


def _overtaken(spec: ReleaseSpec, record: RunRecord, run: str, stands: str) -> AlreadyPaidError:
    return AlreadyPaidError(
        f"{stands} (run {run[:8]}) since this run was reserved; this run would pay a second"
        f" time, and draws nothing\n{given_back(spec, record)}",
        field=f"release {spec.name}, period {record.period}",
        run=run,
        period=record.period,
        next=[
            Next(
                "then, to pay again, by hand",
                Command.RELEASE,
                f" --period {record.period} --pay-again",
            )
        ],
    )


def _recovered(
    spec: ReleaseSpec, ledger: Ledger, key: str, period: str, *, since: int = 0
) -> list[str]:
    """First digits of the keys of other runs whose release was recovered after an entry.

    A recovery does not state the release's name; its folder does, or a folder of more rows. Where
    neither is among the releases, it may be any release, and counts.
    """
    folder = Path(spec.publish_to)
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def may_be_this(run: str) -> bool:
        own = re.compile(rf"(.+)-{re.escape(period)}-(rows\d+-)?{re.escape(run)}")
        found = {match[1] for name in names if (match := own.fullmatch(name))}
        return not found or spec.name in found

    return [
        release.run
        for recovery in ledger.recoveries(spec.population)
        if recovery.head.seq > since
        for release in recovery.releases
        if release.period == period and not key.startswith(release.run) and may_be_this(release.run)
    ]
