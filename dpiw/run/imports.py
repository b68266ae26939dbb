"""Imports of large libraries, quicker by a quarter: nothing is collected while they come.

Modules stay. Looking through those that are there already, again and again, while the next ones
come, is a quarter of what importing them takes (benchmarks/results/startup.md).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


def begin_imports() -> None:
    """Collect nothing, until `end_imports`."""
    gc.disable()


def end_imports() -> None:
    """Collect as usual, but for what is there by now: that is never looked at again."""
    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Between `begin_imports` and `end_imports`."""
    begin_imports()
    try:
        yield
    finally:
        end_imports()


__all__ = ["begin_imports", "end_imports", "importing"]
