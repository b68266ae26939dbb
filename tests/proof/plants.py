"""What the controls of the sensitivity searches share: ways to plant a bound that is too small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpiw.methods.weights.paper import regression as penalty

Plant = Callable[[pytest.MonkeyPatch], None]


def silent(*_: Any, **__: Any) -> None:
    """In place of `prove`."""


def scaled(module: Any, name: str, factor: Callable[..., float]) -> Plant:
    """The function's result times a factor of its arguments."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = getattr(module, name)
        patch.setattr(module, name, lambda *a, **k: factor(*a) * real(*a, **k))

    return plant


def _both_reaches(patch: pytest.MonkeyPatch) -> None:
    for name in ("l2_reach", "l1_reach"):
        scaled(penalty, name, lambda *_: 0.9)(patch)


REACHES: dict[str, Plant] = {
    "reach 10% too small": _both_reaches,
    "max_rows forgotten": scaled(penalty, "l2_reach", lambda bounds, unit: 1 / unit.max_rows),
}
"""Bounds of a regression that are too small, for the searches that solve one."""
