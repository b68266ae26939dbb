"""The steps of a run, which publish often: without the figures of their reports."""

import pytest

from tests.support.undrawn import draw_no_figures


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_no_figures(monkeypatch.setattr)
