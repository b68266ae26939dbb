"""`dpiw completion bash | zsh`: a script that completes commands, options and files."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHELLS = ("bash", "zsh")


def add_completion_command(subparsers: Any, whole: argparse.ArgumentParser) -> None:
    """Add `completion` to what `ArgumentParser.add_subparsers` returned.

    Args:
        subparsers: of `whole`.
        whole: the parser whose commands are completed.
    """
    parser = subparsers.add_parser("completion", help="a script for your shell's completion")
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(handler=functools.partial(_completion, whole))


def _completion(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    import shtab

    for action in _actions(parser):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
    script = shtab.complete(parser, shell=arguments.shell).rstrip()
    (getattr(arguments, "stream", None) or sys.stdout).write(f"{script}\n")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Of a parser and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
