"""`dpiw release | audit`: run `flows`, which the wheel carries in `dpiw/_pipeline`.

That folder comes first on the path of this process and its children: the names `flows` and `tasks`
are too generic for site-packages.
"""

import argparse
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpiw.cli.parser import Parser, ledger_hint

_DPIW = Path(__file__).resolve().parents[1]
_HOMES = (_DPIW / "_pipeline", _DPIW.parent)
"""Folders of `flows` and `tasks`: in an installed wheel; in a checkout."""


def add_release_command(subparsers: Any) -> None:
    """Add `release` to what `ArgumentParser.add_subparsers` returned."""
    parser = subparsers.add_parser("release", help="publish what a spec promises, once per period")
    add_release_arguments(parser)
    parser.set_defaults(handler=_release)


def add_release_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `dpiw release`, which its flow's module reads once more."""
    parser.add_argument("spec", type=Path, help="a release spec (YAML)")
    parser.add_argument("--period", help="label (the current period's); another one pays again")
    parser.add_argument("--until", choices=["ingest"], help="stop after it, before any draw")
    parser.add_argument("--rows", type=int, help="publish N more rows of a published release, free")
    parser.add_argument("--pay-again", action="store_true", help="pay for a period a second time")


def add_audit_command(subparsers: Any) -> None:
    """Add `audit` to what `ArgumentParser.add_subparsers` returned."""
    parser: Parser = subparsers.add_parser("audit", help="replay a ledger and check its releases")
    parser.hint = ledger_hint
    add_audit_arguments(parser)
    parser.set_defaults(handler=lambda given: run_module("flows.audit", given.words))


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `dpiw audit`, which its flow's module reads once more."""
    parser.add_argument("--ledger", required=True, help="path, URL, or a release spec (.yaml)")
    parser.add_argument("--releases", help="folder of published releases; default: the spec's")
    parser.add_argument(
        "--key",
        action="append",
        help="public key of a curator, from the curator and not from the folder; may be repeated",
    )
    parser.add_argument("--out", default="audit", help="folder for the report (audit)")


def _release(arguments: argparse.Namespace) -> int:
    if not arguments.spec.exists():  # told before the flow makes Prefect's folder
        from dpiw.plan.spec import load_spec

        load_spec(arguments.spec)
    return run_module("flows", arguments.words)


def run_module(module: str, words: Sequence[str]) -> int:
    """Run a flow's module as `python -m` does; return its exit status."""
    home = next((folder for folder in _HOMES if (folder / "flows" / "release.py").exists()), None)
    if home is None:
        raise ModuleNotFoundError("no flows beside dpiw", name="flows")
    with _program(str(home), [module, *words]):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextmanager
def _program(home: str, words: list[str]) -> Iterator[None]:
    """Put `home` first for imports, also of processes started here; `words` are what was typed."""
    before, typed = os.environ.get("PYTHONPATH"), sys.argv
    sys.path.insert(0, home)
    os.environ["PYTHONPATH"] = home if before is None else f"{home}{os.pathsep}{before}"
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = typed
        sys.path.remove(home)
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
