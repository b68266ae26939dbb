"""Small plots as SVG shapes, which `parts.html.j2` writes; the same bytes on every machine.

Colours are classes of `report.css`, so one plot serves light and dark pages; nothing is rasterised
and no plotting library is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dpiw.release.report.formats import number

_ROW = 26.0
_LABEL = 96.0
_NARROW, _WIDE = 264.0, 640.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One SVG element: its name, attributes and text, and a hint shown when pointed at."""

    name: str
    attributes: Mapping[str, str]
    text: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot: what a screen reader says, its size in user units, and shapes, the lowest first."""

    title: str
    width: float
    height: float
    shapes: tuple[Shape, ...]


def histogram(
    before: NDArray[np.float64],
    *,
    after: NDArray[np.float64] | None = None,
    truth: NDArray[np.float64] | None = None,
    labels: Sequence[str],
    marks: Sequence[tuple[float, str]] = (),
    title: str,
    height: float = 120.0,
    width: float = 380.0,
) -> Drawing:
    """Draw shares per bin: `before` as bars, `after` as a step line, `truth` as a dashed one.

    Args:
        before: shape (bins,), shares.
        after: shape (bins,), likewise.
        truth: shape (bins,), likewise.
        labels: two to four texts, spread evenly under the axis.
        marks: positions in [0, 1] along the axis with a text each, drawn as dotted lines.
        title: what a screen reader says.
        height: of the drawing area, in user units.
        width: likewise.
    """
    series = [values for values in (before, after, truth) if values is not None]
    top = max(float(max(values.max() for values in series)), 1e-12)
    base, step = height + 16, width / len(before)
    shapes = []
    for index, share in enumerate(before):
        tall = height * float(share) / top
        gap = min(1.0, step / 8)
        shapes.append(
            _rect("before", index * step + gap, base - tall, step - 2 * gap, tall,
                  _percent(float(share)))
        )  # fmt: skip
    if truth is not None:
        shapes.append(_steps("truth dashed", truth / top * height, step, base))
    if after is not None:
        shapes.append(_steps("line", after / top * height, step, base))
    shapes.append(_path("axis", f"M0 {_n(base)}H{_n(width)}"))
    for place, text in marks:
        shapes += _mark(place * width, text, base, width)
    for index, text in enumerate(labels):
        place = width * index / max(len(labels) - 1, 1)
        anchor = "start" if index == 0 else "end" if index == len(labels) - 1 else "middle"
        shapes.append(_text(place, base + 15, text, anchor=anchor, dim=True))
    return Drawing(title=title, width=width, height=base + 20, shapes=tuple(shapes))


def bars(
    labels: Sequence[str],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    *,
    truth: NDArray[np.float64] | None = None,
    title: str,
) -> Drawing:
    """Draw one row per label: two bars, and a tick where the truth is.

    Args:
        labels: one per row.
        before: shape (rows,), shares, drawn above.
        after: shape (rows,), shares, drawn below with its value.
        truth: shape (rows,), shares.
        title: what a screen reader says.
    """
    series = [values for values in (before, after, truth) if values is not None]
    top = max(float(max(values.max() for values in series)), 1e-12)
    room = _NARROW - _LABEL - 44
    shapes = []
    for index, label in enumerate(labels):
        y = index * _ROW + 3
        first, second = float(before[index]) / top * room, float(after[index]) / top * room
        shapes.append(_text(_LABEL - 8, y + 14, _short(label), anchor="end", full=label))
        shapes.append(_rect("before", _LABEL, y, first, 8, _percent(float(before[index]))))
        shapes.append(_rect("after", _LABEL, y + 9, second, 9, _percent(float(after[index]))))
        ends = [first, second]
        if truth is not None:
            place = _LABEL + float(truth[index]) / top * room
            shapes.append(_path("truth", f"M{_n(place)} {_n(y - 2)}V{_n(y + 20)}"))
            ends.append(place - _LABEL)
        shapes.append(
            _text(_LABEL + max(ends) + 6, y + 15, _percent(float(after[index])), dim=True)
        )
    return Drawing(title=title, width=_NARROW, height=len(labels) * _ROW + 4, shapes=tuple(shapes))


def cost_bars(rows: Sequence[tuple[str, float, str]], *, title: str) -> Drawing:
    """Draw one bar per (label, value, text); the last row is the total and drawn in full colour."""
    top = max(max(value for _, value, _ in rows), 1e-12)
    room, label = _WIDE - 280.0, 180.0
    shapes = []
    for index, (name, value, text) in enumerate(rows):
        y, long = index * 30.0 + 4, value / top * room
        style = "after" if index == len(rows) - 1 else "before"
        shapes.append(_text(label - 10, y + 15, _short(name, 30), anchor="end", full=name))
        shapes.append(_rect(style, label, y, long, 20, text))
        shapes.append(_text(label + long + 8, y + 15, text))
    return Drawing(title=title, width=_WIDE, height=len(rows) * 30.0 + 6, shapes=tuple(shapes))


def budget_bar(
    budget: Decimal, spent: Decimal, parts: Mapping[str, Decimal], *, title: str
) -> Drawing | None:
    """Draw a lifetime budget: what was spent, in two parts, and what is left.

    Args:
        budget: in all; nothing is drawn of none.
        spent: of it.
        parts: two amounts by their names, in the order in which they are drawn.
        title: what a screen reader says.
    """
    if budget == 0:
        return None
    first, second = (max(float(part / budget), 0.0) * _WIDE for part in parts.values())
    first = min(first, _WIDE)
    left = max(budget - spent, Decimal(0))
    texts = [f"{name}: {number(float(part))}" for name, part in parts.items()]
    texts.append(f"left: {number(float(left))} of {number(float(budget))}")
    track = {"class": "track", "x": "0", "y": "2", "width": _n(_WIDE), "height": "24", "rx": "4"}
    shapes = [
        Shape(name="rect", attributes=track),
        _rect("before", 0, 2, first, 24, texts[0]),
        _rect("after", first, 2, min(second, _WIDE - first), 24, texts[1]),
    ]
    for index, anchor in enumerate(("start", "middle", "end")):
        shapes.append(_text(index * _WIDE / 2, 44, texts[index], anchor=anchor, dim=True))
    return Drawing(title=title, width=_WIDE, height=50, shapes=tuple(shapes))


def _rect(style: str, x: float, y: float, width: float, height: float, hint: str) -> Shape:
    places = {"x": x, "y": y, "width": max(width, 0.0), "height": max(height, 0.0)}
    attributes = {"class": style} | {name: _n(value) for name, value in places.items()}
    return Shape(name="rect", attributes=attributes, hint=hint)


def _path(style: str, steps: str) -> Shape:
    return Shape(name="path", attributes={"class": style, "d": steps})


def _steps(style: str, heights: NDArray[np.float64], step: float, base: float) -> Shape:
    points = [f"M0 {_n(base - float(heights[0]))}"]
    for index, height in enumerate(heights):
        points.append(f"V{_n(base - float(height))}H{_n((index + 1) * step)}")
    return _path(style, "".join(points))


def _mark(x: float, text: str, base: float, width: float) -> tuple[Shape, Shape]:
    anchor, shift = ("start", 4) if x < width / 2 else ("end", -4)
    return _path("mark", f"M{_n(x)} 2V{_n(base)}"), _text(x + shift, 11, text, anchor=anchor)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", dim: bool = False, full: str = ""
) -> Shape:
    attributes = {"x": _n(x), "y": _n(y), "text-anchor": anchor} | ({"class": "dim"} if dim else {})
    hint = full if full != text else ""
    return Shape(name="text", attributes=attributes, text=text, hint=hint)


def _short(text: str, length: int = 15) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
