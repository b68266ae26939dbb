"""Conditions in pandas' notation, read strictly: which rows an analyst means."""

import ast
import re
from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.columns import Column, numbers
from dpiw.analysis.comparisons import Comparisons, Kind, Levels, kind_of
from dpiw.analysis.names import TOKENS, column_name, unquoted, unused_stem
from dpiw.analysis.sample import WeightedSample
from dpiw.data.schema.columns import Column as Declared
from dpiw.data.schema.columns import ColumnKind
from dpiw.errors import MOST_TOLD, ReleaseError

_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Invert, ast.USub,
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Name,
    ast.Load, ast.Constant, ast.List, ast.Tuple,
)  # fmt: skip

_WORDS: Mapping[type[ast.AST], str] = {
    ast.Call: "a function", ast.Attribute: "a name behind a dot", ast.Subscript: "`[...]`",
    ast.BinOp: "arithmetic", ast.IfExp: "`if ... else`",
    ast.Is: "`is`", ast.IsNot: "`is not`", ast.UAdd: "`+` before a number",
    ast.JoinedStr: "text with `f` before it", ast.NamedExpr: "`:=`", ast.Starred: "`*`",
    ast.Set: "`{...}`", ast.Dict: "`{...}`",
}  # fmt: skip

_INSTEAD = (
    (r"&&|\bAND\b", "write `and`"),
    (r"\|\||\bOR\b", "write `or`"),
    (r"!(?!=)|\bNOT\b", "write `not`"),
    (r"(?i)\bbetween\b", "write 18 <= age <= 40"),
    (r"(?i)%in%|\bIN\b\s*\(", "write in [...], with `in` in small letters"),
    (r"<>", "write !="),
    (r"(?i)\bis\s+(not\s+)?null\b", "rows with a missing value never meet a condition"),
    (r"(?<![=!<>])=(?!=)", "write == for a comparison"),
)


def chosen(sample: WeightedSample, where: Column | None) -> NDArray[np.bool_]:
    """Return which rows a condition chooses, shape (n,); ReleaseError if no row has weight.

    `where` is None (all rows), a boolean column's name, a condition in pandas' notation
    (`condition`), a truth value per row, or a function from the table to them.
    """
    if where is None:
        return np.ones(sample.rows, dtype=bool)
    if isinstance(where, str) and where not in sample.frame.columns:
        discrete = [column for column in sample.declared.values() if column.is_discrete]
        is_chosen = condition(
            sample.frame,
            where,
            declared={column.name: column.level_names for column in discrete},
            ordered=[column.name for column in discrete if column.kind is ColumnKind.ORDINAL],
        )
    else:
        values = numbers(sample, where)
        if not np.isin(values[~np.isnan(values)], (0, 1)).all():
            subject = f"column {where!r}" if isinstance(where, str) else "the condition"
            raise ReleaseError(
                f"{subject} holds numbers other than 0 and 1",
                field="where",
                allowed="one truth value per row; write a comparison, such as 'age > 40'",
            )
        is_chosen = np.asarray(values == 1)
    if not sample.weights[is_chosen].sum() > 0:
        condition_text = f"where={where!r}" if isinstance(where, str) else "`where`"
        raise ReleaseError(f"no row with weight meets {condition_text}{_what_holds(sample, where)}")
    return is_chosen


def _what_holds(sample: WeightedSample, where: Column) -> str:
    if not isinstance(where, str) or where in sample.frame.columns:
        return ""
    held = []
    for name in _columns(_parsed(sample.frame, where, {})):
        if told := _held(sample.declared.get(name), sample.frame[name]):
            held.append(f"column {name!r} {told}")
    return f"; {'; '.join(held)}" if held else ""


def _held(declared: Declared | None, values: pd.Series) -> str:
    kind = kind_of(values)
    if kind in (Kind.NUMBER, Kind.DATE) and values.notna().any():
        if declared is not None and declared.is_numeric:
            return f"goes from {declared.lower} to {declared.upper} by the schema"
        return f"goes from {values.min()} to {values.max()} in the rows"
    if kind is Kind.TEXT:
        levels = sorted(map(str, values.dropna().unique()))
        if declared is not None and declared.is_discrete:
            levels = list(declared.level_names)
        more = f" and {len(levels) - MOST_TOLD} more" if len(levels) > MOST_TOLD else ""
        return f"has the levels {', '.join(map(repr, levels[:MOST_TOLD]))}{more}"
    return ""


def condition(
    table: pd.DataFrame, text: str, *, declared: Levels | None = None, ordered: Collection[str] = ()
) -> NDArray[np.bool_]:
    """Return the rows where a condition is true, shape (n,); ReleaseError for what is not allowed.

    Allowed: columns (in backticks unless the name is one plain word), numbers, text in quotes,
    `== != < <= > >=`, `in [...]`, `not in [...]`, `and or not`, `& | ~` and brackets. A comparison
    has one column. Dates and moments are ISO text (`dpiw.analysis.columns.moment`). Rows with a
    missing value in a column of the condition are left out. Text is compared with `declared`
    levels, else those in the rows; `<` compares by the order of levels in columns `ordered` and in
    pandas' ordered types.
    """
    tree = _parsed(table, text, declared or {})
    comparisons = Comparisons(text=text, table=table, declared=declared or {}, ordered=ordered)
    try:
        truth = comparisons.truth(tree)
    except (TypeError, ValueError, ArithmeticError, NotImplementedError) as reason:
        raise ReleaseError(
            f"cannot be computed ({type(reason).__name__}); compare numbers only with numbers",
            field=f"where={text!r}",
        ) from None
    if not pd.api.types.is_bool_dtype(truth.dtype):
        raise ReleaseError(
            field=f"where={text!r}", allowed="one truth value per row, such as 'age > 40'"
        )
    is_present = table[_columns(tree)].notna().all(axis=1).to_numpy()
    return np.asarray(is_present & truth.to_numpy(dtype=bool, na_value=False))


def _columns(tree: ast.expr) -> list[str]:
    return list(dict.fromkeys(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)))


def _parsed(table: pd.DataFrame, text: str, declared: Levels) -> ast.expr:
    stem, quoted = unused_stem([text]), list[str]()

    def replaced(match: re.Match[str]) -> str:
        if match["name"] is None:  # pandas gives `&` and `|` the precedence of words
            return {"&": " and ", "|": " or "}.get(match[0], match[0])
        quoted.append(column_name(table, unquoted(match["name"])))
        return f" {stem}{len(quoted) - 1} "

    code = TOKENS.sub(replaced, text).strip()
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ReleaseError(
            field=f"where={text!r}",
            allowed="a condition such as \"age > 40 and region == 'south'\"; "
            f"{_instead(text) or 'write a name that is not one plain word in backticks'}",
        ) from None
    for node in ast.walk(tree):
        _check_allowed(text, node, table)
        if isinstance(node, ast.Name):
            if node.id.startswith(stem):
                node.id = quoted[int(node.id.removeprefix(stem))]
            else:
                node.id = _plain_name(text, node.id, table, declared)
    return tree.body


def _plain_name(text: str, word: str, table: pd.DataFrame, declared: Levels) -> str:
    """The column named by a word outside backticks, which Python has normalised."""
    try:
        return column_name(table, word, normalised=True)
    except ReleaseError:
        texts = table.select_dtypes(["object", "string"])
        is_declared = any(word in levels for levels in declared.values())
        if is_declared or (texts == word).any(axis=None):
            fault = f"a level is text, and text needs quotes; write {word!r}"
            raise ReleaseError(fault, field=f"where={text!r}") from None
        raise


def _check_allowed(text: str, node: ast.AST, table: pd.DataFrame) -> None:
    if not isinstance(node, _ALLOWED):
        word = _WORDS.get(type(node), f"`{type(node).__name__.lower()}`")
        allowed = (
            "use columns, numbers, text, comparisons, in, and, or, not, or give a function, such as"
            " lambda table: table['age'] % 2 == 0"
        )
        raise ReleaseError(
            f"{word} is not allowed in a condition; {_instead(text) or allowed}",
            field=f"where={text!r}",
        )
    if not isinstance(node, ast.Constant) or type(node.value) in (str, int, float):
        return
    if repr(node.value) in table.columns:
        raise ReleaseError(
            f"{node.value!r} is both a value and the name of a column; write the column in"
            f" backticks, `{node.value!r}`",
            field=f"where={text!r}",
        )
    if not isinstance(node.value, bool):
        raise ReleaseError(
            f"{node.value!r} is not allowed in a condition; rows with a missing value never meet"
            " one. To choose them give a function, such as lambda table: table['age'].isna()",
            field=f"where={text!r}",
        )


def _instead(text: str) -> str:
    bare = TOKENS.sub(lambda match: match[0] if match[0] in "&|" else " ", text)
    for pattern, advice in _INSTEAD:
        if re.search(pattern, bare):
            return advice
    return ""
