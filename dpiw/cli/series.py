"""`dpiw series SPEC`: which periods of a calendar are published, what is missing, what it costs.

`--fill` runs a flow, as `dpiw release` does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import aligned, write_lines
from dpiw.cli.pipeline import run_module
from dpiw.errors import SpecError

if TYPE_CHECKING:
    from dpiw.plan.spec import ReleaseSpec
    from dpiw.series.completeness import Series


def add_series_command(subparsers: Any) -> None:
    """Add `series` to what `ArgumentParser.add_subparsers` returned."""
    parser = subparsers.add_parser("series", help="show and complete the calendar of a spec")
    add_series_arguments(parser)
    parser.set_defaults(handler=_series)


def add_series_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `dpiw series`, which its flow's module reads once more."""
    parser.add_argument("spec", type=Path, help="a release spec (YAML) with a `series`")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON, for programs")
    how.add_argument(
        "--fill", action="store_true", help="publish what is due and missing, oldest first; pays"
    )


def _series(arguments: argparse.Namespace) -> int:
    from dpiw.run.commands import typed_commands
    from dpiw.series.completeness import check_carried, check_complete

    if arguments.fill:
        return run_module("flows.series", arguments.words)
    spec, series = read_series(arguments.spec)
    arguments.commands = typed_commands(spec, arguments.spec)
    if arguments.json:
        write_lines(arguments, [json.dumps(series.to_json(), indent=2, sort_keys=True)])
    else:
        write_lines(arguments, series_lines(series))
        if series.due:
            write_lines(arguments, [f"next      dpiw series {arguments.spec} --fill"])
    check_carried(series, spec)
    check_complete(series)
    return 0


def read_series(path: Path) -> tuple[ReleaseSpec, Series]:
    """Read a spec; return it and its series now. Raises as `dpiw.series.completeness`."""
    from dpiw.data.yaml import marked
    from dpiw.plan.spec import load_schema, load_spec
    from dpiw.series.completeness import calendar_of, current_series

    with marked(path, SpecError):
        spec = load_spec(path)
        calendar_of(spec)
        schema = load_schema(spec)
    return spec, current_series(spec, schema)


def series_lines(series: Series) -> list[str]:
    """Return the periods as a table, and the forecast; public facts only."""
    rows = [("period", "status", "release, or why there is none")]
    for state in series.periods:
        changed = "; another data dictionary than before" if state.schema_changed else ""
        rows.append((state.label, state.status.value, f"{state.why or state.release}{changed}"))
    return [
        *aligned(rows),
        f"forecast  {series.forecast}",
        *["schema    the next release has another data dictionary"] * series.schema_changes,
    ]
