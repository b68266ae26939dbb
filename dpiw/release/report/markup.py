"""Pieces of an HTML page. Every text that comes in is escaped; only these functions write tags."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, parts: Sequence[str]) -> str:
    """One self-contained page without scripts or outside resources; `parts` are HTML."""
    style = files("dpiw.release.report").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def tiles(boxes: Iterable[tuple[str, str, str]]) -> str:
    """A row of boxes: name, value, remark."""
    shown = "".join(
        f'<div class="tile"><dt>{escape(name)}</dt><dd>{escape(value)}'
        f"<small>{escape(note)}</small></dd></div>"
        for name, value, note in boxes
    )
    return f'<dl class="tiles">{shown}</dl>'


def number(value: object) -> str:
    """Write a value for people: four significant digits, a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def short_decimal(decimal_text: str) -> str:
    """Shorten a cost written as decimal text; rounded up, never down."""
    if len(decimal_text) <= 8:
        return decimal_text
    return f"{math.ceil(float(decimal_text) * 1e4) / 1e4:.10g}"


def code_text(value: object) -> str:
    """Write a JSON value on one line; not escaped yet."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def section(title: str, *parts: str) -> str:
    """A titled section; `parts` are HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def paragraph(text: str, *, soft: bool = False) -> str:
    """A paragraph of text; `soft` for a remark."""
    return f'<p class="soft">{escape(text)}</p>' if soft else f"<p>{escape(text)}</p>"


def figure(svg: str, caption: str) -> str:
    """A card around an SVG with a caption."""
    return f'<figure class="card">{svg}<figcaption>{escape(caption)}</figcaption></figure>'


def details(title: str, content: str) -> str:
    """A closed fold with a title; `content` is HTML."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def bullets(items: Iterable[object]) -> str:
    """A bulleted list of texts."""
    return f"<ul>{''.join(f'<li>{escape(str(item))}</li>' for item in items)}</ul>"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    code: Sequence[int] = (),
) -> str:
    """A table of texts.

    Args:
        head: column titles.
        rows: one text per column.
        numbers: positions of columns set in tabular figures.
        code: positions of columns set as code.
    """
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = []
    for row in rows:
        cells = []
        for index, cell in enumerate(row):
            text = f"<code>{escape(cell)}</code>" if index in code and cell else escape(cell)
            style = ' class="number"' if index in numbers else ""
            cells.append(f"<td{style}>{text}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
