"""What was typed and is not ours: arguments of other libraries, and names that are nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from dpiw.errors import ReleaseError

B = TypeVar("B")
P = ParamSpec("P")

MOST_TOLD = 10
"""Names that a message lists."""


def nearest_first(word: str, known: Iterable[str]) -> str:
    """`its levels, nearest first: 'south', 'north' and 12 more`, without the first two words."""
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(word, names, n=len(names) or 1, cutoff=0)
    rest = f" and {len(near) - MOST_TOLD} more" if len(near) > MOST_TOLD else ""
    return f"nearest first: {', '.join(map(repr, near[:MOST_TOLD]))}{rest}"


def spelt(**ours: str) -> Callable[[Callable[P, B]], Callable[P, B]]:
    """Refuse what other libraries call an argument, and say what it is called here."""

    def decorate(function: Callable[P, B]) -> Callable[P, B]:
        @wraps(function)
        def checked(*arguments: P.args, **keywords: P.kwargs) -> B:
            for theirs in ours.keys() & keywords.keys():
                message = f"{function.__name__}: {theirs}: it is called {ours[theirs]} here"
                raise ReleaseError(message)
            return function(*arguments, **keywords)

        return checked

    return decorate
