"""`dpiw local plan | report | collect`: releases without a trusted curator."""

import argparse
import json
import os
import shlex
from pathlib import Path
from typing import Any

from dpiw.cli.parser import write_lines
from dpiw.cli.pipeline import run_module
from dpiw.errors import SourceError, SpecError


def add_local_commands(subparsers: Any) -> None:
    """Add `local` to what `ArgumentParser.add_subparsers` returned."""
    local = subparsers.add_parser(
        "local", help="collect reports that are private before they are sent"
    ).add_subparsers(dest="local_command", required=True, metavar="COMMAND")
    plan = local.add_parser("plan", help="calibrate a collection; write its public parameters")
    plan.add_argument("spec", type=Path, help="a local spec (YAML)")
    plan.set_defaults(handler=_plan)
    report = local.add_parser("report", help="draw a person's private report, once, and keep it")
    report.add_argument("parameters", type=Path, help="the collection's public parameters")
    report.add_argument("record", type=Path, help="a person's values by name (JSON); not sent")
    report.add_argument("--out", type=Path, required=True, help="the report: what is sent")
    report.add_argument(
        "--bare", action="append", default=[], metavar="NAME",
        help="a feature that is reported as it is, unprotected; may be repeated",
    )  # fmt: skip
    report.set_defaults(handler=_report)
    collect = local.add_parser("collect", help="check the reports, and publish them signed")
    collect.add_argument("spec", type=Path, help="a local spec (YAML)")
    collect.set_defaults(handler=lambda given: run_module("flows.local", given.words[1:]))


def _plan(arguments: argparse.Namespace) -> int:
    from dpiw.data.yaml import marked
    from dpiw.local.collector import load_local_spec, reports_so_far, told_plan, write_parameters

    spec = load_local_spec(arguments.spec)
    with marked(arguments.spec, SpecError):
        parameters = write_parameters(spec)
    so_far, quoted_path = reports_so_far(spec), shlex.quote(os.path.relpath(spec.parameters))
    lines = [
        f"reports    {so_far:,} so far in {os.path.relpath(spec.reports)}; published once, from"
        f" {spec.least_reports:,} on (least_reports)",
        f"for clients: {spec.parameters}",
        f"next, each client:    dpiw local report {quoted_path} RECORD.json --out REPORT.json",
        f"      with all reports: dpiw local collect {shlex.quote(str(arguments.spec))}",
    ]
    write_lines(arguments, [*told_plan(parameters), *lines])
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from dpiw.local import LocalParameters, refuse_unnamed, report_once

    parameters = LocalParameters.read(arguments.parameters)
    refuse_unnamed(parameters, arguments.bare)
    if parameters.bare:
        names = ", ".join(map(repr, parameters.bare))
        write_lines(arguments, [f"told as it is, not protected, as --bare says: {names}"])
    record = _record(arguments.record)
    report_once(arguments.out, record, parameters=parameters, bare=arguments.bare)
    lines = [
        f"report {arguments.out}: drawn once, epsilon={parameters.epsilon},"
        f" delta={parameters.delta}",
        f"next: send {arguments.out} to the collector, and keep it; the record stays here",
    ]
    write_lines(arguments, lines)
    return 0


def _record(path: Path) -> dict[str, Any]:
    """A person's values; what a parser says of them is not repeated."""
    try:
        record = json.loads(path.read_bytes())
    except OSError as reason:
        raise SourceError(reason.strerror, field=f"record {path}") from None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise SourceError(field=f"record {path}", allowed="a JSON object, a value for each name")
    return record
