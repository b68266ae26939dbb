"""`dpiw withdraw`: a curator's command that takes a published release back."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpiw.cli.parser import (
    Parser,
    add_signing,
    ledger_hint,
    named_ledger,
    names_a_spec,
    signing_key,
    write_lines,
)
from dpiw.errors import REASONS, SpecError

if TYPE_CHECKING:
    from dpiw.release.signing import PrivateKey


def add_withdraw_command(subparsers: Any) -> None:
    """Add `withdraw` to what `ArgumentParser.add_subparsers` returned."""
    parser: Parser = subparsers.add_parser("withdraw", help="withdraw a published release")
    parser.hint = ledger_hint
    parser.add_argument("folder", type=Path, help="the folder of one release, or of more rows")
    parser.add_argument(
        "--ledger", required=True, metavar="PATH",
        help="path, URL, or the release spec (.yaml) whose ledger paid for it",
    )  # fmt: skip
    words = "; ".join(f"{name}: {meaning}" for name, meaning in REASONS.items())
    parser.add_argument("--reason", required=True, choices=REASONS, help=words)
    parser.add_argument(
        "--replaced-by", metavar="NAME",
        help="the published release to use instead; needed with --reason superseded",
    )  # fmt: skip
    add_signing(parser)
    parser.set_defaults(handler=_withdraw)


def _withdraw(arguments: argparse.Namespace) -> int:
    """Withdraw a folder, and print what is left to do."""
    from dpiw.ledger import Ledger
    from dpiw.run.withdrawal import withdraw

    key = _key(arguments)
    ledger = Ledger.open(named_ledger(arguments.ledger), key=key)
    done = withdraw(
        arguments.folder, ledger, key, reason=arguments.reason, replaced_by=arguments.replaced_by
    )
    lines = [*done.tombstone.statement.described(), f"recorded by entry {done.record.head.seq}"]
    for folder in done.further:
        words = ["dpiw", "withdraw", os.path.relpath(folder), "--ledger", arguments.ledger]
        typed = shlex.join([*words, "--reason", arguments.reason])
        lines.append(f"of the same draws, and still published: {typed}")
    write_lines(arguments, lines)
    return 0


def _key(arguments: argparse.Namespace) -> PrivateKey:
    """The key that signs tombstone and entry: the typed one, or the spec's `signing_key`."""
    key = signing_key(arguments)
    if key is not None:
        return key
    if not names_a_spec(arguments.ledger):
        allowed = "the curator's private key; a release spec as --ledger names it by itself"
        raise SpecError(field="--sign-with", allowed=allowed)
    from dpiw.plan.spec import load_spec
    from dpiw.release.signing import load_private_key

    return load_private_key(Path(load_spec(Path(arguments.ledger)).signing_key))
