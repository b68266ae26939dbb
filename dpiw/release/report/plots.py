"""The report's kinds of figures, drawn by matplotlib as trees of SVG for `parts.html.j2`.

Texts stay texts and colours become variables of `report.css`. No display or font of the machine is
needed, and the same figure gives the same tree.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from dpiw.release.report.pages import number

WIDTH = 320.0
"""Width of every figure, in user units: a telephone shows it at full size."""

INKS = {
    "ink": "#1d2430", "soft": "#5b6472", "line": "#e3e0d8", "code": "#f3f1ea",
    "before": "#b3bac5", "after": "#1f6f8b",
}  # fmt: skip
"""The page's colour variables, and their stand-ins while matplotlib draws."""

_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "dpiw", "text.parse_math": False,
    "font.family": "DejaVu Sans", "font.size": 11, "axes.labelsize": 11, "axes.unicode_minus": True,
    "text.color": INKS["ink"], "axes.labelcolor": INKS["soft"], "axes.edgecolor": INKS["soft"],
    "xtick.labelcolor": INKS["soft"], "ytick.labelcolor": INKS["soft"],
    "xtick.major.size": 0, "ytick.major.size": 0, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "grid.color": INKS["line"],
}  # fmt: skip
_KEPT = {"d", "x", "y", "transform", "style"}
"""Attributes that place and paint; no clipping, as nothing leaves its axes."""
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
HINT = "hint:"
"""Prefix of the hint in an artist's `gid`."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One SVG element: name, attributes, text, children, and a hint shown on pointing."""

    name: str
    attributes: Mapping[str, str]
    text: str = ""
    hint: str = ""
    children: tuple[Shape, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure: title for screen readers, size in user units, and elements in order."""

    title: str
    width: float
    height: float
    shapes: tuple[Shape, ...]


@contextmanager
def axes_of(
    height: float, *, left: float, bottom: float, right: float = 8.0
) -> Iterator[tuple[Any, Any]]:
    """Yield an empty figure with axes in our style; height and margins in user units."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the page's fonts set it
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        across, up = (WIDTH - left - right) / WIDTH, (height - bottom - 8.0) / height
        axes = figure.add_axes((left / WIDTH, bottom / height, across, up))
        for patch in (figure.patch, axes.patch):
            patch.set_visible(False)
        yield figure, axes


def drawing_of(figure: Any, title: str) -> Drawing:
    """Return the figure as a tree; to be called inside `axes_of`."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=_NO_METADATA)
    root = ElementTree.fromstring(text.getvalue())  # noqa: S314, as matplotlib wrote it just now
    _, _, width, height = (float(value) for value in root.attrib["viewBox"].split())
    return Drawing(title=title, width=width, height=height, shapes=tuple(_shapes(root)))


def _shapes(parent: ElementTree.Element) -> Iterator[Shape]:
    for element in parent:
        name = element.tag.rpartition("}")[2]
        if name == "g":
            children = tuple(_shapes(element))
            if element.get("id", "").startswith(HINT):
                hint = element.attrib["id"].removeprefix(HINT)
                yield Shape(name=name, attributes={}, hint=hint, children=children)
            else:
                yield from children
        elif name in ("path", "text"):
            attributes = {
                key: _attribute(value) for key, value in element.attrib.items() if key in _KEPT
            }
            if attributes.get("transform", "").startswith("rotate(-0"):
                del attributes["transform"]
            yield Shape(name=name, attributes=attributes, text=element.text or "")


def _attribute(value: str) -> str:
    """An attribute on one line, to a hundredth of a unit, without fonts, in the page's colours."""
    value = re.sub(r"font-family: [^;]*;?", "", " ".join(value.split()))
    value = re.sub(r"(\.\d\d)\d+", r"\1", value)
    for ink, colour in INKS.items():
        value = value.replace(colour, f"var(--{ink})")
    return value


Array = NDArray[np.float64]

_ROW, _LETTER = 28.0, 7.0
"""Height of a row and, at most, width of a letter."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A lifetime budget's bar, and its parts in words: (class of `report.css`, text)."""

    drawing: Drawing
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Shares of rows per bin or level, shape (cells,): unweighted and weighted."""

    before: Array
    after: Array | None = None

    @property
    def top(self) -> float:
        """Return the largest share."""
        series = [values for values in (self.before, self.after) if values is not None]
        return max(float(max(values.max() for values in series)), 1e-12)

    def map(self, change: Callable[[Array], Array]) -> Shares:
        """Apply a function to each series."""
        after = None if self.after is None else change(self.after)
        return Shares(before=change(self.before), after=after)


def histogram(
    shares: Shares,
    *,
    edges: Sequence[float],
    ticks: Mapping[float, str],
    axis: str,
    title: str,
    mark: float | None = None,
) -> Drawing:
    """Draw shares per bin: unweighted as bars, weighted as a step line.

    One share more than bins is that of missing values. `edges`: shape (bins + 1,), in the axis'
    unit. `mark`: a position, drawn as a dotted line.
    """
    bins, step = len(edges) - 1, float(edges[1] - edges[0])
    places = dict(ticks)
    parts = [(shares.map(lambda values: values[:bins]), np.asarray(edges))]
    if len(shares.before) > bins:
        apart = edges[-1] + np.array([2.0, 4.0]) * step * bins / 20
        parts.append((shares.map(lambda values: values[bins:]), apart))
        places[float(apart.mean())] = "missing"
    right = 8.0 if len(parts) == 1 else 26.0  # for a word below a narrow bar
    with axes_of(164.0, left=62.0, bottom=38.0, right=right) as (figure, axes):
        for part, borders in parts:
            _steps(axes, part, borders)
        axes.set_xlim(edges[0], parts[-1][1][-1])
        _share_axis(axes, shares.top)
        axes.set_xticks(list(places), [_elided(text, 20) for text in places.values()])
        axes.set_xlabel(_elided(axis, 40))
        for text, at in zip(axes.get_xticklabels(), places, strict=True):
            text.set_horizontalalignment(
                "left" if at == edges[0] else "right" if at == edges[-1] else "center"
            )
        if mark is not None:
            axes.axvline(mark, color=INKS["ink"], linestyle=":", linewidth=1.25)
        return drawing_of(figure, title)


def _steps(axes: Any, shares: Shares, edges: Array) -> None:
    axes.stairs(shares.before, edges, fill=True, color=INKS["before"], linewidth=0)
    if shares.after is not None:
        axes.stairs(shares.after, edges, color=INKS["after"], linewidth=2)


def _share_axis(axes: Any, top: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    axes.set_ylim(0, top * 1.05)
    axes.set_ylabel("share of rows", loc="top")
    axes.yaxis.set_label_coords(-48 / (WIDTH - 62.0 - 8.0), 1.0)
    axes.grid(axis="y")
    axes.spines.left.set_visible(False)


def bars(labels: Sequence[str], shares: Shares, *, title: str) -> Drawing:
    """Draw per label an unweighted and a weighted bar (if any); 0 to 100%."""
    with _rows(labels, "share of rows", right=80.0) as (figure, axes):
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
        ends = shares.before if shares.after is None else np.maximum(shares.before, shares.after)
        for values, ink, shift in ((shares.before, "before", -0.17), (shares.after, "after", 0.17)):
            for row, share in enumerate([] if values is None else values):
                (bar,) = axes.barh(row + shift, share, 0.32, color=INKS[ink])
                bar.set_gid(HINT + _percent(share))
        for row, share in enumerate(shares.before):
            weighted = "" if shares.after is None else f" → {_percent(shares.after[row])}"
            _beside(axes, float(ends[row]), row, _percent(share) + weighted)
        return drawing_of(figure, title)


def intervals(rows: Sequence[tuple[str, float, float, float, str]], *, title: str) -> Drawing:
    """Draw per (label, value, lower, upper, verdict) an interval; those of `use` in full colour."""
    with _rows([label for label, *_ in rows], "95% interval", right=14.0) as (figure, axes):
        lows, highs = [row[2] for row in rows], [row[3] for row in rows]
        thin = (max(highs) - min(lows) or abs(highs[0]) or 1.0) / 150
        told = []
        for place, (label, value, low, high, verdict) in enumerate(rows):
            ink = INKS["after" if verdict == "use" else "before"]
            (line,) = axes.barh(place, max(high - low, thin), 0.14, left=low, color=ink)
            axes.barh(place, thin, 0.5, left=value - thin / 2, color=ink)
            hint = f"{value:.8g}, from {low:.8g} to {high:.8g}: {verdict}"
            line.set_gid(HINT + hint)
            told.append(f"{label}: {hint}")
        _number_ticks(axes, right=14.0)
        return drawing_of(figure, f"{title}. {'; '.join(told)}")


def heat_map(
    labels: Sequence[str], cells: Mapping[tuple[int, int], tuple[float, str]], *, title: str
) -> Drawing:
    """Draw by row and column a value in [0, 1] as a shade, with its hint."""
    with _rows(labels, "columns in the order of the rows", right=8.0) as (figure, axes):
        for (row, column), (value, hint) in cells.items():
            (box,) = axes.barh(row, 0.94, 0.94, left=column, color=INKS["after"], alpha=value)
            box.set_gid(HINT + hint)
        axes.set(xlim=(0, len(labels)), xticks=[])
        return drawing_of(figure, title)


def cost_bars(rows: Sequence[tuple[str, float, str]], *, axis: str, title: str) -> Drawing:
    """Draw one bar per (label, value, text); the last is the total, in full colour."""
    with _rows([name for name, _, _ in rows], axis, right=52.0) as (figure, axes):
        values = [value for _, value, _ in rows]
        inks = [INKS["before"]] * (len(rows) - 1) + [INKS["after"]]
        axes.barh(np.arange(len(rows)), values, 0.64, color=inks)
        axes.set_xlim(0, max(*values, 1e-12))
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        for row, (_, value, text) in enumerate(rows):
            _beside(axes, value, row, text)
        return drawing_of(figure, title)


def budget_bar(
    letter: str, budget: Decimal, spent: Decimal, parts: Mapping[str, Decimal], *, title: str
) -> Budget | None:
    """Draw a lifetime budget: two spent parts by name, and the rest; None for a budget of zero."""
    if budget == 0:
        return None
    first, second = (max(float(part / budget), 0.0) for part in parts.values())
    first = min(first, 1.0)
    second = min(second, 1.0 - first)
    texts = [f"{name}: {number(float(part))}" for name, part in parts.items()]
    remaining = max(budget - spent, Decimal(0))
    texts.append(f"left: {number(float(remaining))} of {number(float(budget))}")
    inks = ("before", "after", "code")
    with axes_of(76.0, left=12.0, bottom=40.0, right=12.0) as (figure, axes):
        widths = (first, second, 1.0 - first - second)
        starts = (0.0, first, first + second)
        for start, width, ink, text in zip(starts, widths, inks, texts, strict=True):
            (bar,) = axes.barh(
                0, width, 1, left=start, color=INKS[ink], edgecolor=INKS["soft"], linewidth=0.5
            )
            bar.set_gid(HINT + text)
        axes.set(xlim=(0, 1), ylim=(-0.55, 0.55), yticks=[])
        ends = [number(float(budget * half) / 2) for half in range(3)]
        axes.set_xticks([0, 0.5, 1], ends)
        for text, side in zip(axes.get_xticklabels(), ("left", "center", "right"), strict=True):
            text.set_horizontalalignment(side)
        axes.set_xlabel(f"{letter}, spent for life")
        axes.spines.left.set_visible(False)
        drawing = drawing_of(figure, title)
    return Budget(drawing=drawing, legend=tuple(zip(inks, texts, strict=True)))


def spending(points: Sequence[tuple[str, Decimal]], budget: Decimal, *, title: str) -> Drawing:
    """Draw what was spent after each (label, total) as steps; a dotted line at the budget."""
    told = "; ".join(f"{label}: {number(float(total))}" for label, total in points)
    ticks = {float(budget) * half / 2: number(float(budget) * half / 2) for half in range(3)}
    left = 16.0 + _LETTER * max(map(len, ticks.values()))
    with axes_of(150.0, left=left, bottom=26.0) as (figure, axes):
        for place, (label, total) in enumerate(points):
            (bar,) = axes.bar(place, float(total), 1.0, align="edge", color=INKS["after"])
            bar.set_gid(f"{HINT}{label}: {number(float(total))}")
        axes.axhline(float(budget), color=INKS["ink"], linestyle=":", linewidth=1.25)
        highest = max(budget, *(total for _, total in points))
        axes.set(xlim=(0, len(points)), ylim=(0, float(highest) * 1.1))
        axes.set_yticks([*ticks], [*ticks.values()])
        ends = {0: points[0][0], len(points): points[-1][0] if len(points) > 1 else ""}
        axes.set_xticks([*ends], [_elided(label, 18) for label in ends.values()])
        for text, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
            text.set_horizontalalignment(side)
        axes.grid(axis="y")
        axes.spines.left.set_visible(False)
        return drawing_of(figure, f"{title}. {told}; of {number(float(budget))} for life")


@contextmanager
def _rows(labels: Sequence[str], axis: str, *, right: float) -> Iterator[tuple[Any, Any]]:
    wrapped = [_wrapped(label) for label in labels]
    left = 20.0 + max(_LETTER * _columns(line) for lines in wrapped for line in lines)
    with axes_of(len(labels) * _ROW + 46.0, left=left, bottom=38.0, right=right) as (figure, axes):
        axes.set(ylim=(len(labels) - 0.5, -0.5), yticks=[])
        axes.set_xlabel(axis)
        for row, (label, lines) in enumerate(zip(labels, wrapped, strict=True)):
            for index, line in enumerate(lines):
                place = row + (index - (len(lines) - 1) / 2) * 0.46
                text = axes.annotate(
                    line, (0, place), (-6, 0), xycoords=axes.get_yaxis_transform(),
                    textcoords="offset points", ha="right", va="center_baseline",
                )  # fmt: skip
                if lines[-1].endswith("…"):
                    text.set_gid(HINT + label)
        yield figure, axes


def _number_ticks(axes: Any, *, right: float) -> None:
    """Label round numbers across: as many as fit, five at most; none touches another."""
    from matplotlib.ticker import MaxNLocator

    low, high = axes.get_xlim()
    unit = WIDTH * axes.get_position().width / (high - low)
    for most in (4, 3, 2, 1):
        places = np.asarray(MaxNLocator(most).tick_values(low, high))
        end, left_out = -math.inf, 0
        shown: dict[float, str] = {}
        for place, text in zip(places, _round_numbers(places), strict=True):
            middle, half = unit * (place - low), _LETTER * (len(text) + 1) / 2
            if low <= place <= high:
                fits = end <= middle - half and middle + half <= unit * (high - low) + right
                shown |= {place: text} if fits else {}
                end, left_out = (middle + half, left_out) if fits else (end, left_out + 1)
        if not left_out:
            break
    axes.set_xticks([*shown], [*shown.values()])


def _round_numbers(places: Array) -> list[str]:
    """Texts of numbers, with as few digits as a small part of their step needs."""
    step = float(np.diff(places).min())
    places = np.where(np.abs(places) < step / 50, 0.0, places)
    largest = float(np.abs(places).max())
    for digits in range(17):
        texts = [np.format_float_scientific(x, precision=digits, exp_digits=1) for x in places]
        if max(abs(float(text) - x) for text, x in zip(texts, places, strict=True)) <= step / 50:
            break
    if 1e-4 <= largest < 1e9:
        texts = [f"{Decimal(text):,f}" for text in texts]
    texts = [text.replace(".e", "e").replace("e+", "e").replace("-", "−") for text in texts]
    return [text if x else "0" for text, x in zip(texts, places, strict=True)]


def _beside(axes: Any, value: float, row: int, text: str) -> None:
    axes.annotate(
        text, (value, row), (5, 0), textcoords="offset points", va="center_baseline",
        annotation_clip=False, color=INKS["soft"],
    )  # fmt: skip


def _wrapped(label: str) -> list[str]:
    room = 16 * len(label) // max(_columns(label), 1)
    lines = textwrap.wrap(label, room)
    return lines if len(lines) <= 2 else [lines[0], lines[1][: room - 1] + "…"]


def _columns(text: str) -> int:
    """Width in letters; one of East Asia counts as two."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def _elided(text: str, room: int) -> str:
    if _columns(text) <= room:
        return text
    return text[: (room - 1) * len(text) // _columns(text)] + "…"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"
