"""A report whose figures are not drawn: they are half of a release's work in a test's process.

What they show is the matter of `tests/dpiw/release`; flows, documents, leaks and pairings draw them
for whole releases.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dpiw.release.report import plots
from dpiw.release.report.plots import WIDTH, Drawing


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a room whose `conftest.py` imports it."""
    draw_no_figures(monkeypatch.setattr)


def draw_no_figures(replace: Callable[[object, str, object], None]) -> None:
    """Replace what draws, by `setattr` or a patch that is undone."""

    def blank(*_: Any, title: str, **__: Any) -> Drawing:
        return Drawing(title=title, width=WIDTH, height=1.0, shapes=())

    for name in ("histogram", "bars", "cost_bars", "intervals", "heat_map"):
        replace(plots, name, blank)
    replace(plots, "budget_bar", lambda *_, **__: None)
