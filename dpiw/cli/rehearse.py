"""`dpiw rehearse SPEC`: what weights would bring, played on public stand-ins before any spending.

Reads the spec, the schema and what public rows it is given; never the confidential source, the
ledger or the state folder. Progress goes to standard error, the report to standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from dpiw.cli.heartbeat import PACE, Heartbeat
from dpiw.cli.text import write_lines
from dpiw.errors import SpecError

if TYPE_CHECKING:
    from dpiw.data.schema import PublicSchema
    from dpiw.plan.rehearsal.populations import ResampledRows
    from dpiw.plan.rehearsal.rehearsal import Rehearsal, Score
    from dpiw.plan.spec import ReleaseSpec

_DESCRIPTION = """Play the whole release of a spec on public stand-ins for the confidential table,
and compare its weights, no weights, and every feature map at the same total epsilon. Free: the
confidential source, the ledger and the state folder are not touched. Seeds here are simulation
seeds; no privacy noise depends on them."""

_SEED_BITS = 63

_ROWS_PER_PRIVATE, _ROWS = 4, (2000, 5000)
"""Synthetic rows played unless told otherwise: enough that choosing them adds little error to what
the private rows' own sampling brings, and no more, for measured weights take time in proportion."""


def add_rehearse_command(subparsers: Any) -> None:
    """Add `rehearse` to what `ArgumentParser.add_subparsers` returned; sets `handler`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "rehearse", help="what weights would bring, on public stand-ins", description=_DESCRIPTION
    )
    parser.add_argument("spec", type=Path)
    parser.add_argument("--runs", type=int, default=20, help="populations of each kind (20)")
    parser.add_argument("--seed", type=int, help="of the simulation; default: drawn and printed")
    parser.add_argument(
        "--rows", type=int, metavar="N",
        help=f"most synthetic rows played; default: {_ROWS_PER_PRIVATE} for each private one, at"
        f" least {_ROWS[0]} and at most {_ROWS[1]}",
    )  # fmt: skip
    parser.add_argument(
        "--populations", nargs="+", metavar="KIND", help="independent, weak, strong, clusters"
    )
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--like", type=Path, metavar="FOLDER", help="a former release's rows instead")
    rows.add_argument("--public-rows", type=Path, metavar="CSV", help="public rows instead")
    parser.add_argument("--key", type=Path, help="with --like: the curator's public key")
    parser.add_argument(
        "--i-declare-these-rows-public",
        action="store_true",
        help="with --public-rows: your word that every row of the file is public",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure, to a .json file")
    parser.add_argument(
        "--jobs", type=int, default=_processors(),
        help="processes; changes no figure; default: one for each processor",
    )  # fmt: skip
    parser.set_defaults(handler=run_rehearse)


def run_rehearse(arguments: argparse.Namespace) -> int:
    """Rehearse a spec and print what it found."""
    from dpiw.data.yaml import told_in
    from dpiw.plan.rehearsal.candidates import candidates, played_spec
    from dpiw.plan.rehearsal.inputs import labelled_rows
    from dpiw.plan.rehearsal.populations import KINDS
    from dpiw.plan.rehearsal.rehearsal import Rehearsal
    from dpiw.plan.rehearsal.report import candidate_lines, report_lines, to_json
    from dpiw.plan.rehearsal.summary import summarise
    from dpiw.plan.spec import load_schema, load_spec
    from dpiw.plan.spec_paths import confidential

    _check(arguments)
    spec = load_spec(arguments.spec)
    if arguments.json is not None:
        confidential(spec).refuse(arguments.json, field="--json")
        _make_folder(arguments.json)
    with told_in(arguments.spec, SpecError):
        schema = load_schema(spec)
        rehearsed_spec = played_spec(spec, rows=arguments.rows or _usual_rows(spec))
        compared = candidates(rehearsed_spec, schema)
    stand_in, origin, kinds = _stand_in(arguments, spec, schema)
    seed = secrets.randbits(_SEED_BITS) if arguments.seed is None else arguments.seed
    rehearsal = Rehearsal(
        schema=schema,
        candidates=compared,
        populations=kinds or tuple(arguments.populations or KINDS),
        stand_in=stand_in,
        runs=arguments.runs,
        seed=seed,
        labelled_rows=labelled_rows(spec, schema),
    )
    write_lines(arguments, [*_head(spec, rehearsed_spec, seed), *candidate_lines(rehearsal)])
    scores, code = _scores(rehearsal, jobs=arguments.jobs)
    if not scores:
        return code
    lines, finished = summarise(rehearsal, scores), code == 0
    write_lines(arguments, report_lines(rehearsal, lines, stand_in=origin, finished=finished))
    if arguments.json is not None:
        report = to_json(spec, rehearsal, scores, lines, finished=finished)
        arguments.json.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    return code


def _scores(rehearsal: Rehearsal, *, jobs: int) -> tuple[list[Score], int]:
    """Of the populations that were played, and the exit code: not 0 of one that was stopped."""
    from dpiw.plan.rehearsal.rehearsal import RehearsalStopped, rehearse

    total = len(rehearsal.places)
    try:
        with _sigterm_heard(), _progress(total, jobs) as tell:
            return rehearse(rehearsal, jobs=jobs, progress=tell), 0
    except RehearsalStopped as stop:
        by = signal.SIGTERM if isinstance(stop.__cause__, _Terminated) else signal.SIGINT
        done = len({(score.population, score.run) for score in stop.scores})
        sys.stderr.write(f"stopped after {done} of {total} populations; nothing was spent\n")
        return stop.scores, 128 + by


def _processors() -> int:
    """Those that this process may use, where the system tells, else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _usual_rows(spec: ReleaseSpec) -> int:
    least, most = _ROWS
    return max(least, min(_ROWS_PER_PRIVATE * spec.nominal_rows, most))


def _check(arguments: argparse.Namespace) -> None:
    for name in ("rows", "jobs"):
        number = getattr(arguments, name)
        if number is not None and number < 1:
            raise SpecError(f"--{name}: expected a whole number >= 1")
    if arguments.json is not None and arguments.json.suffix != ".json":
        raise SpecError("--json: expected a file name that ends in .json; it is written over")
    has_public_source = arguments.like is not None or arguments.public_rows is not None
    if arguments.populations and has_public_source:
        raise SpecError("--populations: has no meaning with --like or --public-rows")
    if arguments.key is not None and arguments.like is None:
        raise SpecError("--key: has a meaning with --like alone")


def _make_folder(file: Path) -> None:
    """That there can be none is told before the work, not after it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise SpecError(f"--json: folder {file.parent}: {reason.strerror}") from reason


def _stand_in(
    arguments: argparse.Namespace, spec: ReleaseSpec, schema: PublicSchema
) -> tuple[ResampledRows | None, str | None, tuple[str, ...]]:
    """Public rows to resample, what they are, and the name of their kind."""
    from dpiw.plan.rehearsal.inputs import public_rows, released_rows
    from dpiw.plan.spec_paths import confidential

    if arguments.like is not None:
        confidential(spec).refuse(arguments.like, field="--like")
        rows = released_rows(arguments.like, schema, public_key=arguments.key)
        origin = "rows of a former release, by their weights; dependence it lost is not in it"
        return rows, origin, ("release",)
    if arguments.public_rows is not None:
        rows = public_rows(
            arguments.public_rows,
            spec,
            schema,
            declared_public=arguments.i_declare_these_rows_public,
        )
        return rows, "rows that the curator declares public, drawn with replacement", ("public",)
    return None, None, ()


def _head(spec: ReleaseSpec, rehearsed_spec: ReleaseSpec, seed: int) -> list[str]:
    return [
        f"rehearsal of {spec.name}: epsilon={spec.epsilon}, delta={spec.delta}, {spec.relation}",
        f"  simulation seed  {seed}",
        f"  stand-in rows    {rehearsed_spec.nominal_rows}"
        + _instead("nominal_rows", spec.nominal_rows, rehearsed_spec.nominal_rows),
        f"  synthetic rows   {rehearsed_spec.synthetic_rows}"
        + _instead("synthetic_rows", spec.synthetic_rows, rehearsed_spec.synthetic_rows),
        "  no confidential row is read, nothing is charged, nothing can be published from this",
    ]


def _instead(name: str, spec_rows: int, played_rows: int) -> str:
    if spec_rows == played_rows:
        return f" (the spec's {name})"
    return f" (the spec's {name}={spec_rows}: smaller here, which makes every error larger)"


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends the work as Ctrl-C does."""


@contextlib.contextmanager
def _sigterm_heard() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _progress(total: int, jobs: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; else a line after the first populations and each tenth of the work.

    And at least about one a minute: a log is not to look dead.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("rehearsing", total=total)
            yield lambda done, _: bar.update(task, completed=done)
        return
    lines = _Lines(total, first=min(jobs, total))
    with Heartbeat(lines.goes_on):
        yield lines.at


class _Lines:
    """Progress as plain lines; the rest is taken to go as the populations so far."""

    def __init__(self, total: int, *, first: int) -> None:
        self._total, self._first, self._done = total, first, 0
        self._started = self._told = time.monotonic()

    def at(self, done: int, total: int) -> None:
        """After the first populations, and after each tenth of the work."""
        self._done = done
        if done in (self._first, total) or done % max(1, total // 10) == 0:
            spent = time.monotonic() - self._started
            rest = f", about {spent / done * (total - done):.0f} s left" * (done < total)
            self._write(f"{done} of {total} populations, {spent:.0f} s{rest}")

    def goes_on(self, seconds: int) -> None:
        """Between two such lines, where they are more than a minute apart."""
        if self._done == 0 or time.monotonic() - self._told >= PACE:
            self._write(f"{self._done} of {self._total} populations, {seconds} s so far")

    def _write(self, line: str) -> None:
        self._told = time.monotonic()
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
