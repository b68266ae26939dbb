"""Why a regression has no finite fit: features that tell the target without a doubt.

Along a direction in which every row whose linear predictor moves becomes more likely, or stays as
it is, the likelihood has no maximum (Albert and Anderson 1984). Looked for are the directions that
are cheap to find: one column, one level, one number's threshold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.design import INTERCEPT, Design
from dpiw.analysis.sample import Array

_LEVEL = re.compile(r"(?:C\()?(?P<column>.+?)(?:[,)].*)?(?:\[(?:T\.)?.+\]|=.+)")
"""A level's column: of `region=south`, or of a formula's `C(region)[T.south]`."""

Rows = NDArray[np.bool_]


def separation(parts: Design, weights: Array, ends: Sequence[float], table: pd.DataFrame) -> str:
    """What separates the target, in words; nothing where no single column or level does.

    Args:
        parts: the rows that count.
        weights: shape (n,).
        ends: values of the target that the model's mean reaches nowhere, the least first.
        table: the rows, for the names of levels.
    """
    if not ends:
        return ""
    counted = parts.present & (weights > 0)
    target, x = parts.outcome[counted], parts.matrix[counted]
    levels = sorted(_levels(parts, x, target, ends), key=lambda level: level[0].count(":"))
    if levels:
        columns, rows, otherwise = levels[0]
        value = _value(target[rows][0], ends)
        others = f", and in {len(levels) - 1} more levels or combinations" * (len(levels) > 1)
        place = _named(columns, table[counted], rows) or otherwise
        return (
            f"the target is {value} in every row that counts of {place} ({int(rows.sum()):,}"
            f" synthetic rows){others}: no finite coefficient fits that (separation); merge levels,"
            " or use fewer terms"
        )
    return _threshold(parts, x, target) if len(ends) > 1 else ""


def _levels(
    parts: Design, x: Array, target: Array, ends: Sequence[float]
) -> Iterator[tuple[str, Rows, str]]:
    """Where the target has one value of `ends`: a column's name, rows, and other words for them.

    Rows beyond a column's least or largest value, and those of the level that a term's columns
    leave out.
    """
    shifts = bool(parts.constant.any())
    for name, column in zip(parts.names, x.T, strict=True):
        for end in () if name == INTERCEPT else _bare_ends(column, shifts=shifts):
            if _is_constant(target[column != end], ends):
                yield name, column != end, f"{name!r} other than {_text(end) if end else 'zero'}"
    if parts.names[0] != INTERCEPT:
        return
    terms = np.array(parts.terms)
    for term in dict.fromkeys(parts.terms[1:]):
        places = np.flatnonzero(terms == term)
        flags, name = x[:, places], parts.names[places[0]]
        rows = flags.sum(axis=1) == 0
        is_flag = np.all((flags == 0) | (flags == 1)) and np.all(flags.sum(axis=1) <= 1)
        if is_flag and ":" not in name and _is_constant(target[rows], ends):
            yield name, rows, f"the level that {name!r} and its like are compared with"


def _bare_ends(column: Array, *, shifts: bool) -> tuple[float, ...]:
    """Values at which a column ends: of levels zero; of others without a constant zero alone."""
    low, high = float(column.min()), float(column.max())
    if shifts and not np.isin(column, (0.0, 1.0)).all():
        return low, high
    return (0.0,) if low >= 0 or high <= 0 else ()


def _text(value: float) -> str:
    """Whole numbers whole, others to ten digits."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e18 else f"{value:.10g}"


def _is_constant(values: Array, ends: Sequence[float]) -> bool:
    return bool(values.size and values[0] in ends and np.all(values == values[0]))


def _value(value: float, ends: Sequence[float]) -> str:
    """Of a target of truth values, or of counts."""
    return str(bool(value)) if len(ends) > 1 else _text(float(value))


def _named(columns: str, table: pd.DataFrame, rows: Rows) -> str:
    """`region = 'south' and smoker = True` where the rows show it; else nothing."""
    levels = []
    for name in columns.split(":"):
        match = _LEVEL.fullmatch(name)
        column = name if match is None else match["column"]
        values = table[column][rows].unique().tolist() if column in table.columns else []
        if len(values) != 1:
            return ""
        levels.append(f"{column} = {values[0]!r}")
    return " and ".join(levels)


def _threshold(parts: Design, x: Array, target: Array) -> str:
    """The number below which the target has one value, and above which it has the other."""
    if parts.names[0] != INTERCEPT:
        return ""
    for name, column in zip(parts.names[1:], x.T[1:], strict=True):
        no, yes = column[target == 0], column[target == 1]
        for low, high, value in ((no, yes, True), (yes, no, False)):
            if low.max() <= high.min() and low.min() < high.max():
                last, first = _text(float(low.max())), _text(float(high.min()))
                return (
                    f"{name!r} alone tells the target: it is {not value} up to {last} and {value}"
                    f" from {first} on; no finite coefficient fits that (separation); leave it out"
                )
    return ""
