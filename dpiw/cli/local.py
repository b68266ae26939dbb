"""`dpiw local plan | report | collect`: releases without a trusted curator."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dpiw.cli.pipeline import run_module
from dpiw.cli.text import write_lines
from dpiw.errors import SourceError


def add_local_commands(subparsers: Any) -> None:
    """Add `local` to what `ArgumentParser.add_subparsers` returned."""
    local = subparsers.add_parser(
        "local", help="reports that are private before they are collected"
    ).add_subparsers(dest="local_command", required=True, metavar="COMMAND")
    plan = local.add_parser("plan", help="calibrate a collection; write its public parameters")
    plan.add_argument("spec", type=Path, help="a local spec (YAML)")
    plan.set_defaults(handler=_plan)
    report = local.add_parser("report", help="a client: one private report, drawn once and kept")
    report.add_argument("parameters", type=Path, help="the collection's public parameters")
    report.add_argument("record", type=Path, help="a person's values by name (JSON); not sent")
    report.add_argument("--out", type=Path, required=True, help="the report: what is sent")
    report.set_defaults(handler=_report)
    collect = local.add_parser("collect", help="check the reports, and publish them signed")
    collect.add_argument("spec", type=Path, help="a local spec (YAML)")
    collect.set_defaults(handler=_collect)


def _plan(arguments: argparse.Namespace) -> int:
    from dpiw.data.yaml import told_in
    from dpiw.errors import SpecError
    from dpiw.plan.local import load_local_spec, told_plan, write_parameters

    spec = load_local_spec(arguments.spec)
    with told_in(arguments.spec, SpecError):
        parameters = write_parameters(spec)
    write_lines(arguments, [*told_plan(parameters), f"for clients: {spec.parameters}"])
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from dpiw.methods.local import LocalParameters, report_once

    parameters = LocalParameters.read(arguments.parameters)
    report_once(arguments.out, _record(arguments.record), parameters=parameters)
    bare = [feature.name for feature in parameters.features if not feature.private]
    promise = f"epsilon={parameters.epsilon}, delta={parameters.delta}"
    unprotected = f"; told as it is, not protected: {', '.join(bare)}" if bare else ""
    write_lines(arguments, [f"report {arguments.out}: drawn once, {promise}{unprotected}"])
    return 0


def _record(path: Path) -> dict[str, Any]:
    """A person's values; what a parser says of them is not repeated."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise SourceError("record: expected a readable JSON object, a value for each name")
    return record


def _collect(arguments: argparse.Namespace) -> int:
    return run_module("flows.local", [str(arguments.spec)])
