"""What a release of a plan would meet, told before anything is read, held or started."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dpiw.data.files import check_is_file
from dpiw.errors import SourceError, SpecError, nearest
from dpiw.ledger import Ledger, RunState
from dpiw.methods.neural.backend import check_device
from dpiw.plan.plan import Plan
from dpiw.plan.spec import ReleaseSpec
from dpiw.release.signing import lost_half
from dpiw.run.commands import given_back, key_filled_in, new_key_command
from dpiw.run.periods import current_period, nearest_period

_STANDS = {
    RunState.RESERVED: "is reserved",
    RunState.ARMED: "was begun and is charged",
    RunState.LOST: "was begun and is charged",
    RunState.COMMITTED: "is drawn and charged, not published",
    RunState.PUBLISHED: "is published already",
}
"""What another run of the same release and period has cost; a voided one nothing."""

_SHOWN = 3
"""Reservations of the same period that are offered to be given back, the newest."""


def missing_files(spec: ReleaseSpec) -> Iterator[str]:
    """Files that a release will need; they are looked for, and not opened."""
    source = Path(spec.source.path)
    if fault := source_fault(spec, names_others=False):
        yield fault
    suffix_format = {".parquet": "parquet", ".csv": "csv"}.get(
        source.suffix.lower(), spec.source.format
    )
    if suffix_format != spec.source.format:
        yield f"source.path: {source.name}, and source.format is {spec.source.format}"
    key = Path(spec.signing_key)
    private, makes = key.with_suffix(".key"), new_key_command(spec)
    if key.suffix == ".pub":
        both = "" if os.path.isfile(private) else f" ({makes} makes both)"
        yield (
            f"signing_key: {key.name} is named like the public half of a pair, which signs nothing;"
            f" name the private one: {private.name}{both}"
        )
    elif not os.path.isfile(key):  # as False where its folder is closed
        told = key_filled_in(lost_half(key), spec) or f"{makes} makes one"
        yield f"signing_key: no such file; {told}"


def missing_gpus(plan: Plan) -> Iterator[str]:
    """Stages that need a GPU, where this machine has none: a worker elsewhere may have one."""
    for stage in plan.stages:
        try:
            check_device(plan.device(stage.name), stage=stage.name, computes=False)
        except SpecError as error:
            yield str(error)


def source_fault(spec: ReleaseSpec, *, names_others: bool) -> str:
    """Why a release would not open its source, by its name alone; empty where it would.

    With the path from here: for who wrote the spec, and a source's path is no secret of its rows.

    Args:
        spec: of the release.
        names_others: whether a file beside it whose name is near is named: to its custodian, on a
            terminal, and not where the text may be kept, as of a plan in the log of a CI.
    """
    try:
        check_is_file(Path(spec.source.path))
    except SourceError as error:
        path = Path(spec.source.path)
        names = _tables_beside(path) if names_others and not os.path.lexists(path) else []
        near = nearest(path.name, names)
        return f"{error} (looked for: {os.path.relpath(path)}{near})"
    return ""


def _tables_beside(path: Path) -> list[str]:
    """Names of files of the same kind, in the folder of one that is not there; none is opened."""
    with suppress(OSError):
        return [file.name for file in path.parent.iterdir() if file.suffix == path.suffix]
    return []


def check_label(spec: ReleaseSpec, period: str | None) -> None:
    """Refuse a label that is none of the spec's cadence: it would be a release that pays anew.

    A run that began under such a label, before this was refused, may go on: ask for new runs alone.

    Raises:
        SpecError: the label has another form, or there is no such day, week, month or quarter.
    """
    near = None if period is None else nearest_period(spec.cadence, period)
    if period == near:
        return
    if spec.cadence == "once":
        raise SpecError(
            f"period {period}: expected none (or once), for cadence is once; a further release of"
            " the same people, which pays anew, has a new source.snapshot, or another cadence, such"
            " as quarterly, in its spec"
        )
    meant = f"; did you mean {near!r}?" if near else ""
    raise SpecError(
        f"period {period}: cadence {spec.cadence} has labels such as {current_label(spec)}{meant}"
        "\n(releases that follow no calendar: cadence: once, and a source.snapshot for each)"
    )


def period_line(spec: ReleaseSpec, label: str, *, asked: bool) -> list[str]:
    """Which period a release is labelled with; nothing where a spec has but one.

    Args:
        spec: of the release.
        label: of its run, which does not change any more when midnight passes.
        asked: whether somebody asked for that label; else it is today's.
    """
    if spec.cadence == "once":
        return []
    todays = "" if asked else " (today's: --period names another, before anything is paid)"
    return [f"period {label}{todays}"]


def current_label(spec: ReleaseSpec) -> str:
    """The label of the current period, at the spec's cadence."""
    return current_period(spec.cadence, datetime.datetime.now(datetime.UTC).date())


def paid_anew(plan: Plan, ledger: Ledger, period: str | None) -> Iterator[str]:
    """Where another setting or version makes a run of its own of what looks like a rerun.

    Args:
        plan: of the spec as it is now.
        ledger: of its population.
        period: a label that was asked for; None: the current one.
    """
    spec = plan.spec
    label = period or current_label(spec)
    key = plan.run_key(label)
    same = [
        run
        for run in ledger.runs(spec.population)
        if run.release == spec.name and run.period == label and run.state in _STANDS
    ]
    others = [run for run in same if run.run_key != key]
    run = ledger.find_run(key)
    if others and (run is None or not run.drawn):
        last = others[-1]
        held = [run for run in others if run.state is RunState.RESERVED]
        offers = "".join(f"; {given_back(spec, run)}" for run in held[-_SHOWN:])
        yield (
            f"{spec.name} {label} {_STANDS[last.state]}, with other settings or another version of"
            f" dpiw (run {last.run_key[:8]}): this pays anew{offers}"
        )


__all__ = [
    "check_label",
    "current_label",
    "missing_files",
    "paid_anew",
    "period_line",
    "source_fault",
]
