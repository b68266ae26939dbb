"""`dpiw rehearse SPEC`: compare weights and generators on public stand-ins before any spending.

Privacy: reads the spec, the schema and given public rows; never the confidential source, the ledger
or the state folder.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import aligned, check_key, write_lines
from dpiw.errors import SpecError

if TYPE_CHECKING:
    from dpiw.data.schema.schema import PublicSchema
    from dpiw.plan.rehearsal.populations import WeightedRows
    from dpiw.plan.spec import ReleaseSpec

_ROWS_PER_PRIVATE, _ROWS = 4, (2000, 5000)
"""Default synthetic rows: choosing them adds little to the private rows' sampling error."""


def add_rehearse_command(subparsers: Any) -> None:
    """Add `rehearse` to what `ArgumentParser.add_subparsers` returned; sets `handler`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "rehearse", help="compare weights and generators on public stand-ins, at no cost"
    )
    parser.add_argument("spec", type=Path, help="a release spec (YAML)")
    parser.add_argument("--runs", type=int, default=20, help="stand-ins of each kind (20)")
    parser.add_argument("--seed", type=int, help="seed of the simulation (drawn, and printed)")
    parser.add_argument(
        "--rows", type=int, metavar="N",
        help=f"most synthetic rows played; default: {_ROWS_PER_PRIVATE} for each private one, at"
        f" least {_ROWS[0]} and at most {_ROWS[1]}",
    )  # fmt: skip
    parser.add_argument(
        "--populations", nargs="+", metavar="KIND", help="independent, weak, strong, clusters"
    )
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--like", type=Path, metavar="FOLDER", help="play a release's rows instead")
    rows.add_argument("--public-rows", type=Path, metavar="CSV", help="play public rows instead")
    parser.add_argument("--key", type=Path, help="with --like: the curator's public key")
    parser.add_argument(
        "--i-declare-these-rows-public",
        action="store_true",
        help="with --public-rows: your word that every row of the file is public",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1,
        help="processes, which change no figure; default: one for each processor",
    )  # fmt: skip
    parser.set_defaults(handler=run_rehearse)


def run_rehearse(arguments: argparse.Namespace) -> int:
    """Rehearse a spec; print a table and a recommendation."""
    from dpiw.data.yaml import marked
    from dpiw.plan.rehearsal.candidates import candidates, played_spec
    from dpiw.plan.rehearsal.populations import KINDS, labelled_rows
    from dpiw.plan.rehearsal.rehearsal import Rehearsal, rehearse
    from dpiw.plan.rehearsal.report import (
        ASKED,
        LEGEND,
        generator_lines,
        question_rows,
        recommendation_lines,
        summarise,
        table_rows,
    )
    from dpiw.plan.spec import load_schema, load_spec

    _check(arguments)
    spec = load_spec(arguments.spec)
    with marked(arguments.spec, SpecError):
        schema = load_schema(spec)
        least, most = _ROWS
        usual_rows = max(least, min(_ROWS_PER_PRIVATE * spec.nominal_rows, most))
        rehearsed_spec = played_spec(spec, schema, rows=arguments.rows or usual_rows)
        compared = candidates(rehearsed_spec, schema)
    stand_in, kinds = _stand_in(arguments, spec, schema)
    rehearsal = Rehearsal(
        schema=schema,
        candidates=compared,
        populations=kinds or tuple(arguments.populations or KINDS),
        stand_in=stand_in,
        runs=arguments.runs,
        seed=secrets.randbits(63) if arguments.seed is None else arguments.seed,
        labelled_rows=labelled_rows(spec, schema),
    )
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        scores = rehearse(rehearsal, jobs=arguments.jobs, progress=_progress())
    finally:
        signal.signal(signal.SIGTERM, before)
    lines, asked = summarise(rehearsal, scores), question_rows(rehearsal, scores)
    report = [
        f"rehearsal of {spec.name}: epsilon={spec.epsilon}, delta={spec.delta}, {spec.relation}",
        f"{rehearsal.runs} runs of {rehearsed_spec.nominal_rows} stand-in rows and"
        f" {rehearsed_spec.synthetic_rows} synthetic rows, seed {rehearsal.seed}",
        *aligned(table_rows(rehearsal, lines)),
        LEGEND,
        *generator_lines(rehearsal),
        *([ASKED, *aligned(asked)] if asked else []),
        *recommendation_lines(rehearsal, lines, spec=shlex.quote(str(arguments.spec))),
    ]
    write_lines(arguments, report)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    for name in ("rows", "jobs"):
        number = getattr(arguments, name)
        if number is not None and number < 1:
            raise SpecError(f"found {number}", field=f"--{name}", allowed="a whole number >= 1")
    has_public_source = arguments.like is not None or arguments.public_rows is not None
    if arguments.populations and has_public_source:
        raise SpecError("leave it out with --like or --public-rows", field="--populations")
    check_key(arguments)


def _stand_in(
    arguments: argparse.Namespace, spec: ReleaseSpec, schema: PublicSchema
) -> tuple[WeightedRows | None, tuple[str, ...]]:
    from dpiw.plan.rehearsal.populations import public_rows, released_rows

    if arguments.like is not None:
        spec.confidential.refuse(arguments.like, field="--like")
        return released_rows(arguments.like, schema, public_key=arguments.key), ("release",)
    if arguments.public_rows is not None:
        declared_public = arguments.i_declare_these_rows_public
        rows = public_rows(arguments.public_rows, spec, schema, declared_public=declared_public)
        return rows, ("public",)
    return None, ()


def _progress() -> Callable[[int, int], None]:
    started = time.monotonic()

    def tell(done: int, total: int) -> None:
        if done % max(1, total // 10) == 0 or done == total:
            seconds = time.monotonic() - started
            sys.stderr.write(f"{done} of {total} populations, {seconds:.0f} s\n")
            sys.stderr.flush()

    return tell
