"""`dpiw schema spec | dictionary | local`: JSON Schema for editors."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dpiw.cli.text import write_lines


def add_schema_command(subparsers: Any) -> None:
    """Add `schema` to what `ArgumentParser.add_subparsers` returned."""
    parser = subparsers.add_parser("schema", help="JSON Schema of a spec or a data dictionary")
    parser.add_argument("document", choices=["spec", "dictionary", "local"])
    parser.set_defaults(handler=_schema)


def _schema(arguments: argparse.Namespace) -> int:
    from dpiw.plan.json_schema import SCHEMAS

    schema = SCHEMAS[arguments.document]()
    write_lines(arguments, [json.dumps(schema, indent=2, sort_keys=True)])
    return 0
