"""Small plots as inline SVG: text in, text out, the same bytes on every machine.

Colours are classes of `report.css`, so one plot serves light and dark pages; nothing is rasterised
and no plotting library is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

_ROW = 26.0
_LABEL = 96.0


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
) -> str:
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
    parts = []
    for index, share in enumerate(before):
        tall = height * float(share) / top
        gap = min(1.0, step / 8)
        parts.append(
            _rect("before", index * step + gap, base - tall, step - 2 * gap, tall,
                  f"{_percent(float(share))}")
        )  # fmt: skip
    if truth is not None:
        parts.append(_steps("truth dashed", truth / top * height, step, base))
    if after is not None:
        parts.append(_steps("line", after / top * height, step, base))
    parts.append(_axis(width, base))
    for place, text in marks:
        parts.append(_mark(place * width, text, base, width))
    for index, text in enumerate(labels):
        place = width * index / max(len(labels) - 1, 1)
        anchor = "start" if index == 0 else "end" if index == len(labels) - 1 else "middle"
        parts.append(_text(place, base + 15, text, anchor=anchor, dim=True))
    return _svg(width, base + 20, title, parts)


def bars(
    labels: Sequence[str],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    *,
    truth: NDArray[np.float64] | None = None,
    title: str,
    width: float = 264.0,
) -> str:
    """Draw one row per label: two bars, and a tick where the truth is.

    Args:
        labels: one per row.
        before: shape (rows,), shares, drawn above.
        after: shape (rows,), shares, drawn below with its value.
        truth: shape (rows,), shares.
        title: what a screen reader says.
        width: in user units.
    """
    series = [values for values in (before, after, truth) if values is not None]
    top = max(float(max(values.max() for values in series)), 1e-12)
    room = width - _LABEL - 44
    parts = []
    for index, label in enumerate(labels):
        y = index * _ROW + 3
        first, second = float(before[index]) / top * room, float(after[index]) / top * room
        parts.append(_text(_LABEL - 8, y + 14, _short(label), anchor="end", full=label))
        parts.append(_rect("before", _LABEL, y, first, 8, _percent(float(before[index]))))
        parts.append(_rect("after", _LABEL, y + 9, second, 9, _percent(float(after[index]))))
        ends = [first, second]
        if truth is not None:
            place = _LABEL + float(truth[index]) / top * room
            parts.append(f'<path class="truth" d="M{_n(place)} {_n(y - 2)}V{_n(y + 20)}"/>')
            ends.append(place - _LABEL)
        parts.append(_text(_LABEL + max(ends) + 6, y + 15, _percent(float(after[index])), dim=True))
    return _svg(width, len(labels) * _ROW + 4, title, parts)


def cost_bars(rows: Sequence[tuple[str, float, str]], *, title: str, width: float = 640.0) -> str:
    """Draw one bar per (label, value, text); the last row is the total and drawn in full colour."""
    top = max(max(value for _, value, _ in rows), 1e-12)
    room, label = width - 280.0, 180.0
    parts = []
    for index, (name, value, text) in enumerate(rows):
        y, long = index * 30.0 + 4, value / top * room
        style = "after" if index == len(rows) - 1 else "before"
        parts.append(_text(label - 10, y + 15, _short(name, 30), anchor="end", full=name))
        parts.append(_rect(style, label, y, long, 20, text))
        parts.append(_text(label + long + 8, y + 15, text))
    return _svg(width, len(rows) * 30.0 + 6, title, parts)


def budget_bar(
    earlier: float, current: float, *, texts: tuple[str, str, str], title: str, width: float = 640.0
) -> str:
    """Draw a lifetime budget: what earlier releases spent, what this one spends, what is left.

    Args:
        earlier: share of the budget spent before, in [0, 1].
        current: share spent by this release, in [0, 1].
        texts: what stands under the three parts.
        title: what a screen reader says.
        width: in user units.
    """
    earlier, current = min(max(earlier, 0.0), 1.0), max(current, 0.0)
    current = min(current, 1.0 - earlier)
    parts = [
        f'<rect class="track" x="0" y="2" width="{_n(width)}" height="24" rx="4"/>',
        _rect("before", 0, 2, earlier * width, 24, texts[0]),
        _rect("after", earlier * width, 2, current * width, 24, texts[1]),
    ]
    for place, anchor, text in zip((0, width / 2, width), ("start", "middle", "end"), texts,
                                   strict=True):  # fmt: skip
        parts.append(_text(place, 44, text, anchor=anchor, dim=True))
    return _svg(width, 50, title, parts)


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    style = ' class="wide"' if width > 500 else ""
    return (
        f'<svg{style} viewBox="0 0 {_n(width)} {_n(height)}" role="img" '
        f'aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _rect(style: str, x: float, y: float, width: float, height: float, text: str) -> str:
    return (
        f'<rect class="{style}" x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0.0))}" '
        f'height="{_n(max(height, 0.0))}"><title>{escape(text)}</title></rect>'
    )


def _steps(style: str, heights: NDArray[np.float64], step: float, base: float) -> str:
    points = [f"M0 {_n(base - float(heights[0]))}"]
    for index, height in enumerate(heights):
        points.append(f"V{_n(base - float(height))}H{_n((index + 1) * step)}")
    return f'<path class="{style}" d="{"".join(points)}"/>'


def _axis(width: float, base: float) -> str:
    return f'<path class="axis" d="M0 {_n(base)}H{_n(width)}"/>'


def _mark(x: float, text: str, base: float, width: float) -> str:
    anchor = "start" if x < width / 2 else "end"
    shift = 4 if anchor == "start" else -4
    line = f'<path class="mark" d="M{_n(x)} 2V{_n(base)}"/>'
    return line + _text(x + shift, 11, text, anchor=anchor)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", dim: bool = False, full: str = ""
) -> str:
    style = ' class="dim"' if dim else ""
    hint = f"<title>{escape(full)}</title>" if full and full != text else ""
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{style}>{hint}{escape(text)}</text>'
    )


def _short(text: str, length: int = 15) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
