"""`dpiw completion bash | zsh`: a script that completes commands, options and files."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

from dpiw.cli.parser import Parser

SHELLS = ("bash", "zsh")


def add_completion_command(subparsers: Any, whole: Parser) -> None:
    """Add `completion` to what `ArgumentParser.add_subparsers` returned.

    Args:
        subparsers: of `whole`.
        whole: the parser whose commands are completed.
    """
    parser = subparsers.add_parser("completion", help="a script for your shell's completion")
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(handler=functools.partial(_completion, whole))


def _completion(parser: Parser, arguments: argparse.Namespace) -> int:
    import shtab

    for action in parser.every_action():
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
    script = shtab.complete(parser, shell=arguments.shell).rstrip()
    (getattr(arguments, "stream", None) or sys.stdout).write(f"{script}\n")
    return 0
