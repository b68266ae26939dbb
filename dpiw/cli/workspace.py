"""`dpiw workspace show | cells | purge`: inspect and clear the confidential workspace.

Output is for the custodian only: sizes reveal the number of rows, statements of cells are exact.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import aligned, write_lines
from dpiw.errors import LedgerError, SpecError

if TYPE_CHECKING:
    from dpiw.run.workspace import WorkspaceRun


def add_workspace_commands(subparsers: Any) -> None:
    """Add `workspace` and its commands; handlers write to the arguments' `stream`, if set."""
    workspace = subparsers.add_parser("workspace", help="show and purge confidential files")
    commands = workspace.add_subparsers(dest="workspace_command", required=True)
    show = _add(commands, "show", "list every run with its state and size", run_show)
    show.add_argument("--json", action="store_true", help="print JSON, for programs")
    cells = _add(commands, "cells", "print how a run's cells were read", run_cells)
    cells.add_argument(
        "--run", required=True, metavar="KEY", help="the run: at least 8 digits of its key"
    )
    purge = _add(commands, "purge", "remove finished runs' confidential files", run_purge)
    purge.add_argument("--run", metavar="KEY", help="this run: at least 8 digits of its key")
    purge.add_argument("--all-published", action="store_true", help="all published and voided runs")
    purge.add_argument(
        "--older-than",
        type=float,
        metavar="DAYS",
        help="those of the chosen runs that had no ledger entry for so many days; alone: of all"
        " published and voided runs",
    )
    purge.add_argument(
        "--abandon",
        action="store_true",
        help="with --run: also if the run is not finished; the ledger does not change, and a draw"
        " that left no output is lost",
    )
    purge.add_argument("--yes", action="store_true", help="remove the files, not only list them")


def _add(commands: Any, name: str, help_text: str, handler: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text)
    parser.add_argument(
        "--state", required=True, type=Path, metavar="DIR", help="a spec's state folder"
    )
    parser.set_defaults(handler=handler)
    return parser


def run_show(arguments: argparse.Namespace) -> int:
    """List the runs of a workspace."""
    from dpiw.run.workspace import survey

    runs = survey(arguments.state)
    if arguments.json:
        facts = [_facts(run) for run in runs]
        write_lines(arguments, [json.dumps(facts, indent=2, sort_keys=True)])
        return 0
    rows = [("population", "period", "run", "state", "last entry", "confidential", "kept", "cells")]
    rows += [
        (
            run.population, run.period or "-", run.key[:12] or run.directory.name, run.state,
            run.last_at or "-", _bytes(run.confidential_bytes), _bytes(run.kept_bytes),
            "stated" if run.cells else "-",
        )
        for run in runs
    ]  # fmt: skip
    write_lines(arguments, aligned(rows))
    return 0


def run_cells(arguments: argparse.Namespace) -> int:
    """Print the statement of one run's cells; SpecError if run or statement is missing."""
    from dpiw.run.workspace import named, survey

    run = named(survey(arguments.state), arguments.run)
    if run.cells is None:
        raise SpecError(
            "there is no statement of its cells: its source was not read yet, or it was purged",
            field=f"run {run.key[:12]}",
        )
    write_lines(arguments, run.cells.read_text().splitlines())
    return 0


def run_purge(arguments: argparse.Namespace) -> int:
    """Remove, or without `--yes` only list, the confidential files of the chosen runs.

    Runs that cannot be judged are listed, and the exit code is that of an unusable ledger.
    """
    from dpiw.run.workspace import purge, select, survey

    if arguments.abandon and arguments.run is None:
        raise SpecError(
            field="abandon", allowed="--run KEY too: unfinished runs are given up one by one"
        )
    runs = survey(arguments.state)
    chosen = select(
        runs,
        key=arguments.run,
        all_published=arguments.all_published,
        older_than=arguments.older_than,
        now=datetime.datetime.now(datetime.UTC),
    )
    for run in chosen:
        what = f"run {run.key[:12]} ({run.population}, {run.period}, {run.state})"
        if arguments.yes:
            removed = purge(run, abandon=arguments.abandon)
            write_lines(arguments, [f"removed {_bytes(removed)} of {what}"])
        else:
            write_lines(arguments, [f"would remove {_bytes(run.confidential_bytes)} of {what}"])
    if not chosen:
        write_lines(arguments, ["no run to purge"])
    elif not arguments.yes:
        write_lines(arguments, ["nothing was removed; add --yes"])
    passed_over = [run for run in runs if run.unjudged] if arguments.run is None else []
    for run in passed_over:
        name = run.key[:12] or run.directory.name
        write_lines(arguments, [f"passed over run {name} ({run.population}): {run.state}"])
    return LedgerError.exit_code if passed_over else 0


_TOLD = ("population", "period", "state", "last_at", "confidential_bytes", "kept_bytes")


def _facts(run: WorkspaceRun) -> dict[str, Any]:
    cells = None if run.cells is None else str(run.cells)
    told = {name: getattr(run, name) for name in _TOLD}
    return told | {"run_key": run.key, "folder": str(run.directory), "cells": cells}


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
