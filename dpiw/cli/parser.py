"""The parser of every command line of ours: what is misspelt is named, with the nearest word."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from dpiw.errors import nearest

_OPTION = re.compile(r"--?[A-Za-z][\w-]*")

_VALUES = (
    (re.compile(r"[A-Za-z][\w+.-]*://[^\s']*"), "(a URL)"),
    (re.compile(r"(--?[A-Za-z][\w-]*)=[^\s']*"), r"\1=..."),
    (re.compile(r"(explicit argument) .*", re.DOTALL), r"\1"),
)
"""What a refusal does not repeat, and what stands for it: a value may hold a password."""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that names unknown options before it tells which ones are missing.

    A misspelt option is mostly the one that is missing then. Parsers of commands are of the same
    class, so each tells of its own options.

    Attributes:
        hint: what follows a refusal, made from the words; not asked where an option is unknown.
    """

    hint: Callable[[Sequence[str]], str] | None = None
    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As `ArgumentParser` does, but what no option or argument takes is refused here."""
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
        self._refuse(message, hint)

    def _refuse(self, message: str, hint: str = "") -> NoReturn:
        self.print_usage(sys.stderr)
        refusal = f"{self.prog}: error: {message}\n{hint}"
        for value, instead in _VALUES:
            refusal = value.sub(instead, refusal)
        self.exit(2, refusal if refusal.endswith("\n") else f"{refusal}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as refusal:
            words = [str(choice) for choice in action.choices or ()]
            is_help = value == "help" and isinstance(action, argparse._SubParsersAction)
            hint = f"; did you mean `{self.prog} --help`?" if is_help else nearest(value, words)
            raise argparse.ArgumentError(action, f"{refusal.message}{hint}") from None

    def _unknown(self, words: Iterable[str]) -> list[str]:
        """Options among words that are none of ours, nor the beginning of one; never a value."""
        ours = tuple(self._option_string_actions)
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
        """That these words are not understood; of options, the nearest one."""
        options = self._option_string_actions
        hints = [nearest(word, options) if word.startswith("-") else "" for word in words]
        return "unrecognized arguments: " + " ".join(
            f"{word}{hint}" for word, hint in zip(words, hints, strict=True)
        )
