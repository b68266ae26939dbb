"""`dpiw series SPEC`: the periods of a calendar. `dpiw site OUT`: a public site of all releases.

Both read the ledger, published folders, specs and dictionaries; never a workspace or the table.
`series --fill` runs a flow, as `dpiw release` does.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import (
    Parser,
    aligned,
    counted,
    ledger_hint,
    named_ledger,
    names_a_spec,
    write_lines,
)
from dpiw.cli.pipeline import run_module
from dpiw.errors import SpecError, shown

if TYPE_CHECKING:
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
    from dpiw.series.completeness import check_carried, check_complete, read_series

    if arguments.fill:
        return run_module("flows.series", arguments.words)
    spec, series = read_series(arguments.spec)
    arguments.commands = typed_commands(spec, arguments.spec)
    lines = series_lines(series)
    lines += [f"next      dpiw series {arguments.spec} --fill"] * bool(series.due)
    if arguments.json:
        lines = [json.dumps(series.to_json(), indent=2, sort_keys=True)]
    write_lines(arguments, lines)
    check_carried(series, spec)
    check_complete(series)
    return 0


def series_lines(series: Series) -> list[str]:
    """Return the periods as a table, and the forecast, for operators: no count of reads."""
    rows = [("period", "status", "release, or why there is none")]
    for state in series.periods:
        changed = "; another data dictionary than before" if state.schema_changed else ""
        rows.append((state.label, state.status.value, f"{state.why or state.release}{changed}"))
    return [
        *aligned(rows),
        f"forecast  {series.forecast}",
        *["schema    the next release has another data dictionary"] * series.schema_changes,
    ]


def add_site_command(subparsers: Any) -> None:
    """Add `site` to what `ArgumentParser.add_subparsers` returned; sets `handler`."""
    parser: Parser = subparsers.add_parser("site", help="write a public site of all releases")
    parser.hint = ledger_hint
    parser.add_argument("out", type=Path, metavar="OUT", help="the site's folder")
    parser.add_argument("--ledger", required=True, help="path, URL, or a release spec (.yaml)")
    parser.add_argument(
        "--releases", action="append", default=[], type=Path, metavar="FOLDER",
        help="folder of published releases (those of the specs); may be repeated; its files are"
        " linked if it lies in OUT",
    )  # fmt: skip
    parser.add_argument(
        "--key", action="append", default=[], type=Path, metavar="PUB",
        help="public key of a curator; only releases that one of them signed are shown; may be"
        " repeated",
    )  # fmt: skip
    parser.add_argument(
        "--spec", dest="specs", action="append", default=[], type=Path, metavar="SPEC",
        help="a release spec, whose periods are listed; may be repeated",
    )  # fmt: skip
    parser.add_argument("--url", help="public address of OUT, such as https://data.example.org/")
    parser.add_argument(
        "--today", type=datetime.date.fromisoformat, metavar="DATE",
        help="the day, such as 2027-01-31, by which a period is missing (today, in UTC)",
    )  # fmt: skip
    parser.add_argument("--title", help="title of the site (Synthetic data releases)")
    parser.set_defaults(handler=_site)


def _site(arguments: argparse.Namespace) -> int:
    """Write the site, and print what it shows; calendars as anyone may know them."""
    from dpiw.audit import audit, release_folders
    from dpiw.ledger import Ledger
    from dpiw.plan.spec import load_schema, load_spec
    from dpiw.series.completeness import series_of
    from dpiw.series.site import TITLE, build_site, write_site

    url: str | None = arguments.url
    if url is not None and not url.startswith(("https://", "http://")):
        raise SpecError(field="url", allowed="an address such as https://data.example.org/")
    place, given = named_ledger(arguments.ledger), arguments.releases
    named = [Path(arguments.ledger)] if names_a_spec(arguments.ledger) else []
    specs = {path.resolve(): load_spec(path) for path in [*named, *arguments.specs]}
    if not (given or specs):
        raise SpecError(field="releases", allowed="--releases FOLDER, or --ledger SPEC.yaml")
    own = [Path(spec.publish_to) for spec in specs.values()]
    roots = given or [root for root in own if root.exists()]  # none before the first release
    folders = [folder for root in dict.fromkeys(roots) for folder in release_folders(root)]
    report = audit(place, folders, arguments.key)
    now = datetime.datetime.now(datetime.UTC)
    if arguments.today is not None:
        now = datetime.datetime.combine(arguments.today, datetime.time.max, datetime.UTC)
    series = [
        series_of(spec, load_schema(spec), Ledger.open(place),
                  given[0] if len(given) == 1 else Path(spec.publish_to), now=now, drawn_only=True)
        for spec in specs.values()
        if spec.series is not None
    ]  # fmt: skip
    title = shown(arguments.title or TITLE)
    files = build_site(report, series, out=arguments.out, title=title, url=url)
    write_site(files, arguments.out)
    write_lines(arguments, [f"wrote {counted(len(files), 'file')} into {arguments.out}"])
    return 0
