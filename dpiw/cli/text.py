"""Shared by the command line's modules: reading decimals and keys, writing lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpiw.errors import LedgerError, SpecError, UnknownPopulationError, one_of, shown

if TYPE_CHECKING:
    from dpiw.ledger import Entry
    from dpiw.release.signing import PrivateKey

_SQLITE = b"SQLite format 3\0"
"""First bytes of a SQLite database, whatever its name."""


def add_signing(parser: argparse.ArgumentParser) -> None:
    """The option of a command that writes to a ledger: the signing key."""
    parser.add_argument(
        "--sign-with",
        type=Path,
        metavar="KEY",
        help="a private key: what is written to the ledger is signed, beside the name of who acts",
    )


def signing_key(arguments: argparse.Namespace) -> PrivateKey | None:
    """The key that `add_signing` asks for, or None."""
    from dpiw.release.signing import load_private_key

    return None if arguments.sign_with is None else load_private_key(arguments.sign_with)


def ledger_hint(words: Sequence[str]) -> str:
    """What to type if no ledger was named in these words; empty if one was."""
    if any(word.partition("=")[0] == "--ledger" for word in words):
        return ""
    return "--ledger takes its path, or the release spec that pays from it: --ledger release.yaml\n"


def names_a_spec(named: str) -> bool:
    """Whether a ledger's name is a spec's (`.yaml`, no database).

    Raises LedgerError, without the name, if it holds what looks like a password.
    """
    if not named.endswith((".yaml", ".yml")) or "://" in named:
        return False
    from dpiw.ledger.location import check_location

    check_location(named, error=LedgerError)
    with suppress(OSError):
        if Path(named).is_file():
            with Path(named).open("rb") as stream:
                return stream.read(len(_SQLITE)) != _SQLITE
    return True


def named_ledger(named: str) -> str:
    """The path or URL of a ledger named by itself or by a release spec (else SpecError).

    Raises:
        SpecError: the spec is not admissible.
        LedgerError: as `names_a_spec`.
    """
    if not names_a_spec(named):
        return named
    from dpiw.plan.spec import load_spec
    from dpiw.run.run import ledger_url

    return ledger_url(load_spec(Path(named)))


def exact_decimal(field: str, text: str) -> Decimal:
    """Return `text` as the exact decimal, or raise SpecError."""
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise SpecError(
            f"{field}={text[:40]}: expected an exact decimal such as 0.5 or 1e-6"
        ) from error


def check_population(entries: Iterable[Entry], name: str | None) -> None:
    """Raise UnknownPopulationError unless an entry names it; reading a ledger registers nobody."""
    names = sorted({entry.population for entry in entries if entry.population is not None})
    if name is not None and name not in names:
        raise UnknownPopulationError(
            f"population: no {name!r} in this ledger; {one_of(name, names) if names else 'none is'}"
        )


def write_lines(arguments: argparse.Namespace, lines: Iterable[str]) -> None:
    """Write to the arguments' `stream`, if set; values with line ends must be `shown` before."""
    stream: TextIO = getattr(arguments, "stream", None) or sys.stdout
    for line in lines:
        stream.write(shown(line, most=None, lines=True) + "\n")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table, with its heading, as lines of equally wide columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
