"""What an analyst names: a column, a condition on rows, the levels of a column."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.errors import ReleaseError, nearest

if TYPE_CHECKING:
    from dpiw.analysis.sample import Array, WeightedSample

Column = str | Callable[[pd.DataFrame], Any]

MOST_LEVELS = 50
"""Different numbers of a column that are still levels: more ask for `bins`."""

MISSING = "missing"
"""The level of missing values."""

_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Invert, ast.USub,
    ast.BinOp, ast.BitAnd, ast.BitOr, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Compare, ast.Eq,
    ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Name, ast.Load,
    ast.Constant, ast.List, ast.Tuple,
)  # fmt: skip


def checked_column(table: pd.DataFrame, name: str) -> pd.Series:
    """The column of that name.

    Raises:
        ReleaseError: there is none; names the nearest.
    """
    if name in table.columns:
        return table[name]
    known = [str(column) for column in table.columns]
    told = nearest(name, known) or f"; its columns: {', '.join(known)}"
    raise ReleaseError(f"column {name!r}: not in this table{told}")


def numbers(sample: WeightedSample, column: Column) -> Array:
    """One number per row, shape (n,), NaN where missing.

    Args:
        sample: the rows.
        column: a numeric or boolean column's name, or a function from the table to one number or
            truth value per row.

    Raises:
        ReleaseError: no such column, or not numbers.
    """
    table = sample.table
    values = checked_column(table, column) if isinstance(column, str) else pd.Series(column(table))
    if not pd.api.types.is_numeric_dtype(values.dtype) or len(values) != sample.rows:
        dated = pd.api.types.is_datetime64_any_dtype(values.dtype)
        raise ReleaseError(
            "expected one number or truth value per row; for "
            + ("a date" if dated else "text")
            + " give a function such as lambda table: "
            + ("table['born'].dt.year" if dated else "table['sex'] == 'female'")
        )
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))


def chosen(sample: WeightedSample, where: Column | None) -> NDArray[np.bool_]:
    """Which rows a condition chooses, shape (n,).

    Args:
        sample: the rows.
        where: None: all. A boolean column's name. A condition in pandas' notation (`condition`).
            A function from the table to a truth value per row.

    Raises:
        ReleaseError: not a condition, or not one truth value per row.
    """
    if where is None:
        return np.ones(sample.rows, dtype=bool)
    if isinstance(where, str) and where not in sample.table.columns:
        return condition(sample.table, where)
    return np.asarray(numbers(sample, where) == 1)


def condition(table: pd.DataFrame, text: str) -> NDArray[np.bool_]:
    """Rows where a condition is true, shape (n,), by `pandas.DataFrame.eval`.

    Allowed are columns (names that are not plain words in backticks), numbers, text in quotes,
    `== != < <= > >=`, `in [...]`, `not in [...]`, `and or not`, `& | ~`, `+ - * /` and brackets.
    A row with a missing value in a column that the condition names is left out.

    Raises:
        ReleaseError: anything else stands in it, a column is not there, or it is not one truth
            value per row.
    """
    quoted = dict.fromkeys(re.findall(r"`([^`]+)`", text))
    plain = {checked_column(table, name).name: f"quoted_{i}_" for i, name in enumerate(quoted)}
    code = re.sub(r"`([^`]+)`", lambda match: plain[match[1]], text.strip())
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError):
        raise ReleaseError(
            f"where={text!r}: expected a condition such as \"age > 40 and region == 'south'\";"
            " a column whose name is not one plain word stands in backticks"
        ) from None
    renamed = table.rename(columns=plain)
    known = np.ones(len(table), dtype=bool)
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise ReleaseError(
                f"where={text!r}: {type(node).__name__} is not allowed in it; columns, numbers,"
                " text, comparisons, in, and, or, not, + - * / are; or give a function of the table"
            )
        if isinstance(node, ast.Name):
            known &= checked_column(renamed, node.id).notna().to_numpy()
    try:
        truth = pd.Series(renamed.eval(code, engine="python"), index=table.index)
    except (TypeError, ValueError, KeyError, NotImplementedError) as reason:
        raise ReleaseError(
            f"where={text!r}: {type(reason).__name__}; numbers compare with numbers, text with text"
        ) from None
    if not pd.api.types.is_bool_dtype(truth.dtype):
        raise ReleaseError(f"where={text!r}: expected one truth value per row")
    return np.asarray(known & truth.to_numpy(dtype=bool, na_value=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """The levels of a column.

    Attributes:
        labels: what they are, in order; `missing` last.
        codes: which of them each row has, shape (n,).
    """

    labels: tuple[Any, ...]
    codes: NDArray[np.int64]


Bins = int | Sequence[float | str] | None
"""Into how many equal parts of the range the rows show, or the edges."""


def levels(table: pd.DataFrame, name: str, bins: Bins = None) -> Levels:
    """Levels of a column; missing is one of its own.

    Args:
        table: the rows.
        name: the column.
        bins: of a column of numbers or dates. Values outside given edges count as missing. A bin
            of numbers holds its upper edge (the first one both), a bin of dates its lower one.

    Raises:
        ReleaseError: no such column, too many different values, bins of text, or edges of dates
            that are none.
    """
    values = checked_column(table, name)
    kind = pd.api.types
    counted = kind.is_numeric_dtype(values.dtype) and not kind.is_bool_dtype(values.dtype)
    dated = kind.is_datetime64_any_dtype(values.dtype)
    if bins is not None and dated:
        values = _spans(values, bins)
    elif bins is not None:
        if not counted:
            raise ReleaseError(f"column {name!r}: bins are for numbers and dates")
        raw = values.to_numpy(dtype=np.float64, na_value=np.nan)
        edges: Any = bins if isinstance(bins, int) else list(bins)
        values = pd.Series(pd.cut(raw, edges, include_lowest=True), index=values.index)
    elif (counted or dated) and values.nunique() > MOST_LEVELS:
        example = f"{name} > 40" if counted else f"{name} >= '2024-01-01'"
        raise ReleaseError(
            f"column {name!r}: {values.nunique()} different values are too many for levels (at most"
            f" {MOST_LEVELS}); a table takes bins=10; for one group give a condition, such as"
            f' where="{example}"'
        )
    codes, labels = pd.factorize(values, sort=True)
    named = tuple(labels.tolist())
    if np.any(codes < 0):
        codes, named = np.where(codes < 0, len(named), codes), (*named, MISSING)
    return Levels(labels=named, codes=np.asarray(codes, dtype=np.int64))


def _spans(moments: pd.Series, bins: int | Sequence[float | str]) -> pd.Series:
    """Each moment as the span it lies in; of whole days, or of seconds where there is a zone."""
    zone, known = moments.dt.tz, moments.dropna()
    if known.empty:
        return moments
    unit: Literal["D", "s"] = "D" if zone is None else "s"
    try:
        if isinstance(bins, int):
            after = known.max() + pd.Timedelta(1, unit)
            edges = pd.date_range(known.min(), after, periods=bins + 1, unit="s").floor(unit)
        else:
            edges = pd.DatetimeIndex(list(bins), tz=zone)
        if len(edges) < 2:
            raise ValueError
        return pd.Series(pd.cut(moments, edges.unique(), right=False), index=moments.index)
    except (TypeError, ValueError):
        raise ReleaseError(
            f"column {str(moments.name)!r}: bins: expected a whole number >= 1, or increasing dates"
            " such as ['2024-01-01', '2024-07-01', '2025-01-01']"
        ) from None
