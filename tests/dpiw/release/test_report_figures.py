"""Figures of the report: their scales, and that they look the same on every machine."""

import re
from decimal import Decimal

import numpy as np
import pytest

from dpiw.release.report import plots


def _shapes(shapes):
    for shape in shapes:
        yield shape
        yield from _shapes(shape.children)


def _extent(shape):
    """Least and greatest x of a path of straight lines."""
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", shape.attributes["d"])]
    return min(numbers[::2]), max(numbers[::2])


def test_a_budget_bar_never_leaves_its_track():
    parts = {"a": Decimal(9), "b": Decimal(5)}
    budget = plots.budget_bar("ε", Decimal(10), Decimal(14), parts, title="t")
    assert budget is not None
    texts = ("a: 9", "b: 5", "left: 0 of 10")
    assert budget.legend == tuple(zip(("before", "after", "code"), texts, strict=True))
    bars = [shape for shape in budget.drawing.shapes if shape.hint]
    assert [bar.hint for bar in bars] == list(texts)
    (start, border), (same, end) = (_extent(bar.children[0]) for bar in bars[:2])
    assert same == border
    assert (border - start) / (end - start) == pytest.approx(0.9, abs=1e-3)
    assert end <= budget.drawing.width - 12
    assert plots.budget_bar("ε", Decimal(0), Decimal(0), parts, title="t") is None


def test_a_column_s_bins_and_its_missing_values_have_one_scale():
    shares = plots.Shares(before=np.array([0.1, 0.4, 0.2]))
    drawing = plots.histogram(shares, edges=[0, 1, 2], ticks={0: "0", 2: "2"}, axis="x", title="t")
    heights = []
    filled = [n for n in drawing.shapes if "var(--before)" in n.attributes.get("style", "")]
    for bar in filled:
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", bar.attributes["d"])]
        heights += sorted({max(numbers[1::2]) - y for y in numbers[1::2]} - {0.0})
    assert [n / heights[1] for n in heights] == pytest.approx([1 / 4, 1, 1 / 2], abs=1e-3)


def test_a_figure_does_not_ask_the_machine_how_to_look():
    """Not its fonts, nor what its users set for matplotlib; and nothing is changed for others."""
    import matplotlib as mpl

    def draw():
        return plots.bars(["a$x$", "日本"], plots.Shares(before=np.array([0.5, 0.5])), title="t")

    usual = draw()
    with mpl.rc_context({"font.size": 30, "font.family": "cursive", "svg.fonttype": "path"}):
        before = dict(mpl.rcParams)
        assert draw() == usual
        assert dict(mpl.rcParams) == before
    texts = [shape for shape in _shapes(usual.shapes) if shape.name == "text"]
    assert {"a$x$", "日本", "share of rows", "50%"} <= {shape.text for shape in texts}
    assert not any("font-family" in shape.attributes["style"] for shape in texts)
