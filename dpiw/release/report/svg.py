"""A figure of matplotlib's as a tree of SVG elements, which `parts.html.j2` writes.

No display and no font of the machine: texts stay texts, set by the page's own fonts, and their
places are measured with the font that matplotlib ships. Colours become variables of `report.css`,
so that one figure serves light and dark pages. The same figure gives the same tree. Matplotlib is
loaded when the first figure is drawn.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

WIDTH = 320.0
"""Of every figure, in user units: what a telephone shows at full size."""

INKS = {
    "ink": "#1d2430", "soft": "#5b6472", "line": "#e3e0d8", "code": "#f3f1ea",
    "before": "#b3bac5", "after": "#1f6f8b", "truth": "#c4631a",
}  # fmt: skip
"""The page's colour variables, and what stands for each while matplotlib draws."""

_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "dpiw", "text.parse_math": False,
    "font.family": "DejaVu Sans", "font.size": 11, "axes.labelsize": 11, "axes.unicode_minus": True,
    "text.color": INKS["ink"], "axes.labelcolor": INKS["soft"], "axes.edgecolor": INKS["soft"],
    "xtick.labelcolor": INKS["soft"], "ytick.labelcolor": INKS["soft"],
    "xtick.major.size": 0, "ytick.major.size": 0, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "grid.color": INKS["line"],
}  # fmt: skip
_KEPT = {"d", "x", "y", "transform", "style"}
"""Attributes that place and paint; no clipping, as nothing of ours leaves its axes."""
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
HINT = "hint:"
"""Before the hint in an artist's `gid`."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One SVG element: its name, attributes, text and elements, and a hint shown on pointing."""

    name: str
    attributes: Mapping[str, str]
    text: str = ""
    hint: str = ""
    children: tuple[Shape, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure: what a screen reader says, its size in user units, and its elements in order."""

    title: str
    width: float
    height: float
    shapes: tuple[Shape, ...]


@contextmanager
def axes_of(
    height: float, *, left: float, bottom: float, right: float = 8.0, top: float = 8.0
) -> Iterator[tuple[Any, Any]]:
    """An empty figure with its axes, in our style; height and margins in user units."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the page's fonts set it
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        across, up = (WIDTH - left - right) / WIDTH, (height - bottom - top) / height
        axes = figure.add_axes((left / WIDTH, bottom / height, across, up))
        for patch in (figure.patch, axes.patch):
            patch.set_visible(False)
        yield figure, axes


def drawing_of(figure: Any, title: str) -> Drawing:
    """The figure as a tree; to be called where `axes_of` made it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=_NO_METADATA)
    root = ElementTree.fromstring(text.getvalue())  # noqa: S314, as matplotlib wrote it just now
    _, _, width, height = (float(value) for value in root.attrib["viewBox"].split())
    return Drawing(title=title, width=width, height=height, shapes=tuple(_shapes(root)))


def _shapes(parent: ElementTree.Element) -> Iterator[Shape]:
    """The elements that draw; groups that only name what is in them fall away."""
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
    """On one line, to a hundredth of a unit, without fonts, in the page's colours."""
    value = re.sub(r"font-family: [^;]*;?", "", " ".join(value.split()))
    value = re.sub(r"(\.\d\d)\d+", r"\1", value)
    for ink, colour in INKS.items():
        value = value.replace(colour, f"var(--{ink})")
    return value
