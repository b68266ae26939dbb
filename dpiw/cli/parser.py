"""The parser of every dpiw command line: misspelt words are named, with the nearest valid one."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from dpiw.cli.guide import GUIDE
from dpiw.errors import LedgerError, SpecError, UnknownPopulationError, nearest, one_of, shown

if TYPE_CHECKING:
    from dpiw.ledger import Entry
    from dpiw.release.signing import PrivateKey


def add_signing(parser: argparse.ArgumentParser) -> None:
    """The option of a command that writes to a ledger: the signing key."""
    parser.add_argument(
        "--sign-with",
        type=Path,
        metavar="KEY",
        help="a private key, which signs what this command writes to the ledger",
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
    """Whether a ledger's name is a spec's (`.yaml`, no URL).

    Raises LedgerError, without the name, if it holds what looks like a password.
    """
    if not named.endswith((".yaml", ".yml")) or "://" in named:
        return False
    from dpiw.ledger.location import check_location

    check_location(named, error=LedgerError)
    return True


def named_ledger(named: str) -> str:
    """The path or URL of a ledger named by itself or by a release spec (else SpecError)."""
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
            field=f"{field}={text[:40]}", allowed="an exact decimal such as 0.5 or 1e-6"
        ) from error


def check_population(entries: Iterable[Entry], name: str | None) -> None:
    """Raise UnknownPopulationError unless an entry names it; reading a ledger registers nobody."""
    names = sorted({entry.population for entry in entries if entry.population is not None})
    if name is not None and name not in names:
        raise UnknownPopulationError(
            f"no {name!r} in this ledger" + ("" if names else ", which has no population"),
            field="population",
            allowed=one_of(name, names) if names else "",
        )


def check_key(arguments: argparse.Namespace) -> None:
    """Raise SpecError for `--key` without the `--like` that it checks."""
    if arguments.key is not None and arguments.like is None:
        raise SpecError("leave it out without --like, which it checks", field="--key")


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


def counted(number: int, noun: str) -> str:
    """`1 column`, `2 columns`."""
    return f"{number} {noun}{'s' * (number != 1)}"


_OPTION = re.compile(r"--?[A-Za-z][\w-]*")

_VALUES = (
    (re.compile(r"[A-Za-z][\w+.-]*://[^\s']*"), "(a URL)"),
    (re.compile(r"(--?[A-Za-z][\w-]*)=[^\s']*"), r"\1=..."),
    (re.compile(r"(explicit argument) .*", re.DOTALL), r"\1"),
)
"""What a refusal does not repeat, and its replacement: a value may hold a password."""

_CHOICE = re.compile(r"invalid choice: (?P<quote>['\"])(?P<value>.*?)(?P=quote)")


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that names unknown options before missing ones (often one, misspelt).

    `hint` returns text after a refusal, from the words; not called if an option is unknown.
    """

    hint: Callable[[Sequence[str]], str] | None = None
    _words: Sequence[str] = ()
    _commands: Any = None

    def __init__(self, **named: Any) -> None:
        self._kept: list[argparse.Action] = []
        sentence, example = GUIDE[named["prog"]]
        super().__init__(description=sentence, epilog=f"example: {example}", **named)

    def add_argument(self, *names: Any, **named: Any) -> argparse.Action:
        """Add an argument as `ArgumentParser` does, and remember it."""
        return self.keep(super().add_argument(*names, **named))

    def add_mutually_exclusive_group(self, **named: Any) -> Any:
        """Add a group as `ArgumentParser` does, and remember its options."""
        group: Any = super().add_mutually_exclusive_group(**named)
        add_argument = group.add_argument
        group.add_argument = lambda *names, **options: self.keep(add_argument(*names, **options))
        return group

    def add_subparsers(self, **named: Any) -> Any:
        """Add commands as `ArgumentParser` does, and remember them."""
        self._commands = self.keep(super().add_subparsers(**named))
        return self._commands

    def keep(self, action: argparse.Action) -> argparse.Action:
        """Remember an argument, to know what may be typed."""
        self._kept.append(action)
        return action

    def every_action(self) -> Iterator[argparse.Action]:
        """Arguments of this parser and of all its commands."""
        yield from self._kept
        for below in {} if self._commands is None else self._commands.choices.values():
            yield from below.every_action()

    def _options(self) -> tuple[str, ...]:
        return tuple(option for action in self._kept for option in action.option_strings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As `ArgumentParser` does, but refuses leftover words here."""
        self._words = list(sys.argv[1:] if args is None else args)
        parsed, extras = super().parse_known_args(self._words, namespace)
        if extras:
            self._refuse(self._told(self._unknown(extras) or extras))
        return parsed, extras

    def error(self, message: str) -> NoReturn:
        """Exit with status 2, the usage and the message, or the unknown options that caused it."""
        unknown = self._unknown(self._words)
        if unknown and (" required" in message or "ignored explicit argument" in message):
            self._refuse(self._told(unknown))
        hint = "" if self.hint is None or unknown else self.hint(self._words)
        self._refuse(f"{message}{self._nearest_choice(message)}", hint)

    def _refuse(self, message: str, hint: str = "") -> NoReturn:
        self.print_usage(sys.stderr)
        refusal = f"{self.prog}: error: {message}\n{hint}"
        for value, instead in _VALUES:
            refusal = value.sub(instead, refusal)
        self.exit(2, refusal if refusal.endswith("\n") else f"{refusal}\n")

    def _nearest_choice(self, message: str) -> str:
        refused = _CHOICE.search(message)
        if refused is None:
            return ""
        if refused["value"] == "help" and self._commands is not None:
            return f"; did you mean `{self.prog} --help`?"
        choices = (action.choices or () for action in self._kept)
        return nearest(refused["value"], [str(word) for each in choices for word in each])

    def _unknown(self, words: Iterable[str]) -> list[str]:
        """Words that are neither our options nor the beginning of one; never a value."""
        ours = self._options()
        before_values = itertools.takewhile(lambda word: word != "--", words)
        names = [word.partition("=")[0] for word in before_values]
        return [
            name
            for name in names
            if _OPTION.fullmatch(name)
            and name not in ours
            and not (name.startswith("--") and any(option.startswith(name) for option in ours))
        ]

    def _told(self, words: Sequence[str]) -> str:
        options = self._options()
        hints = [nearest(word, options) if word.startswith("-") else "" for word in words]
        return "unrecognized arguments: " + " ".join(
            f"{word}{hint}" for word, hint in zip(words, hints, strict=True)
        )


def add_ledger_command(commands: Any, name: str, help_text: str, handler: Any) -> Parser:
    """Add a command with the option `--ledger`, and return its parser."""
    parser: Parser = commands.add_parser(name, help=help_text)
    parser.hint = ledger_hint
    parser.add_argument(
        "--ledger",
        required=True,
        metavar="PATH",
        help="path or sqlite:///PATH; or a release spec (.yaml), whose ledger is meant",
    )
    parser.set_defaults(handler=handler)
    return parser
