"""What other libraries call an argument of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from dpiw.errors import ReleaseError

B = TypeVar("B")
P = ParamSpec("P")


def spelt(**ours: str) -> Callable[[Callable[P, B]], Callable[P, B]]:
    """Refuse what other libraries call an argument, and say what it is called here."""

    def decorate(function: Callable[P, B]) -> Callable[P, B]:
        @wraps(function)
        def checked(*arguments: P.args, **named: P.kwargs) -> B:
            for theirs in ours.keys() & named.keys():
                told = f"{function.__name__}: {theirs}: it is called {ours[theirs]} here"
                raise ReleaseError(told)
            return function(*arguments, **named)

        return checked

    return decorate
