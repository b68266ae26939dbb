"""Which rows an analyst means: a condition in pandas' notation, read strictly."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.columns import Column, checked_column, moment, numbers
from dpiw.analysis.sample import WeightedSample
from dpiw.analysis.spelling import nearest_first
from dpiw.errors import ReleaseError

_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Invert, ast.USub,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Compare, ast.Eq, ast.NotEq, ast.Lt,
    ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Name, ast.Load, ast.Constant, ast.List,
    ast.Tuple,
)  # fmt: skip

Levels = Mapping[str, Sequence[str]]
"""By column of text: the levels it is declared to have."""


def chosen(sample: WeightedSample, where: Column | None) -> NDArray[np.bool_]:
    """Which rows a condition chooses, shape (n,).

    Args:
        sample: the rows.
        where: None: all. A boolean column's name. A condition in pandas' notation (`condition`).
            A truth value per row, or a function from the table to them.

    Raises:
        ReleaseError: not a condition, or not one truth value per row.
    """
    if where is None:
        return np.ones(sample.rows, dtype=bool)
    if isinstance(where, str) and where not in sample.table.columns:
        declared = {
            name: column.level_names
            for name, column in sample.declared.items()
            if column.is_discrete
        }
        return condition(sample.table, where, declared=declared)
    values = numbers(sample, where)
    if not np.isin(values[~np.isnan(values)], (0, 1)).all():
        subject = f"column {where!r} holds" if isinstance(where, str) else "found"
        raise ReleaseError(
            f"where: expected one truth value per row; {subject} other numbers than 0 and 1:"
            " compare, as in 'age > 40'"
        )
    return np.asarray(values == 1)


def condition(
    table: pd.DataFrame, text: str, *, declared: Levels | None = None
) -> NDArray[np.bool_]:
    """Rows where a condition is true, shape (n,), by `pandas.DataFrame.eval`.

    Allowed are columns (names that are not plain words in backticks), numbers, text in quotes,
    `== != < <= > >=`, `in [...]`, `not in [...]`, `and or not`, `& | ~`, `+ - * /` and brackets.
    Dates and moments are ISO text (`dpiw.analysis.columns.moment`). A row with a missing value in
    a column that the condition names is left out.

    Args:
        table: the rows.
        text: the condition.
        declared: levels of columns of text; of others those in the rows count.

    Raises:
        ReleaseError: anything else stands in it, a column is not there, text that is no level of
            its column or no ISO date, or it is not one truth value per row.
    """
    quoted = dict.fromkeys(re.findall(r"`([^`]+)`", text))
    plain = {str(checked_column(table, name).name): f"quoted_{i}_" for i, name in enumerate(quoted)}
    code = re.sub(r"`([^`]+)`", lambda match: plain[match[1]], text.strip())
    try:
        tree = ast.parse(_in_words(code), mode="eval")
    except (SyntaxError, ValueError, tokenize.TokenError):
        raise ReleaseError(
            f"where={text!r}: expected a condition such as \"age > 40 and region == 'south'\";"
            " a column whose name is not one plain word stands in backticks"
        ) from None
    renamed = table.rename(columns=plain)
    is_present = np.ones(len(table), dtype=bool)
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise ReleaseError(
                f"where={text!r}: {type(node).__name__} is not allowed in it; columns, numbers,"
                " text, comparisons, in, and, or, not, + - * / are; or give a function of the table"
            )
        if isinstance(node, ast.Name):
            if node.id not in renamed.columns and _is_level(node.id, table, declared or {}):
                raise ReleaseError(f"where={text!r}: text stands in quotes: {node.id!r}")
            is_present &= checked_column(renamed, node.id).notna().to_numpy()
    literals = _Literals(text=text, table=renamed, names={new: old for old, new in plain.items()},
                         declared=declared or {})  # fmt: skip
    code = ast.unparse(literals.visit(tree))
    try:
        truth = renamed.eval(code, engine="python", resolvers=[literals.moments])
        truth = pd.Series(truth, index=table.index)
    except (TypeError, ValueError, KeyError, NotImplementedError) as reason:
        raise ReleaseError(
            f"where={text!r}: {type(reason).__name__}; numbers compare with numbers, text with text"
        ) from None
    if not pd.api.types.is_bool_dtype(truth.dtype):
        raise ReleaseError(
            f"where={text!r}: expected one truth value per row; found numbers or text: compare, as"
            " in 'age > 40'"
        )
    return np.asarray(is_present & truth.to_numpy(dtype=bool, na_value=False))


def _is_level(word: str, table: pd.DataFrame, declared: Levels) -> bool:
    texts = table.select_dtypes(["object", "string"])
    return any(word in levels for levels in declared.values()) or bool(
        (texts == word).any(axis=None)
    )


def _in_words(code: str) -> str:
    """`&` and `|` as `and` and `or`, whose precedence pandas gives them."""
    words = {"&": "and", "|": "or"}
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return tokenize.untokenize(
        (tokenize.NAME, words[token.string]) if token.string in words else token[:2]
        for token in tokens
    )


@dataclass(kw_only=True)
class _Literals(ast.NodeTransformer):
    """Checks what text is compared with, and makes moments of ISO text.

    Attributes:
        text: the condition, for messages.
        table: the rows, by the names that the condition has.
        names: the names that stood in backticks.
        declared: levels of columns of text.
        moments: the moments, by the names that stand for them.
    """

    text: str
    table: pd.DataFrame
    names: Mapping[str, str]
    declared: Levels
    moments: dict[str, pd.Timestamp] = field(default_factory=dict)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """One comparison, or a chain of them."""
        sides = [node.left, *node.comparators]
        compared = [side.id for side in sides if isinstance(side, ast.Name)]
        literals = [literal for side in sides for literal in _texts(side)]
        if not literals or not compared:
            return self.generic_visit(node)
        for name in compared:
            values = self.table[name]
            if pd.api.types.is_datetime64_any_dtype(values.dtype):
                return self._dated(node, values)
            if pd.api.types.is_numeric_dtype(values.dtype):
                kind, hint = "numbers", "numbers compare with numbers, text with text"
                if pd.api.types.is_bool_dtype(values.dtype):
                    typed = f"`{self.names[name]}`" if name in self.names else name
                    kind, hint = "truth values", f"write {typed}, or not {typed}"
                raise ReleaseError(
                    f"where={self.text!r}: column {self._name(name)!r} holds {kind}, not text;"
                    f" {hint}"
                )
            self._check_levels(name, literals)
        return node

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    def _check_levels(self, name: str, literals: Sequence[ast.Constant]) -> None:
        levels = self.declared.get(self._name(name)) or self.table[name].dropna().unique()
        level_names = [str(level) for level in levels]
        for text in (str(literal.value) for literal in literals):
            if text not in level_names:
                raise ReleaseError(
                    f"where={self.text!r}: column {self._name(name)!r} has no level {text!r}; its"
                    f" levels, {nearest_first(text, level_names)}"
                )

    def _dated(self, node: ast.Compare, values: pd.Series) -> ast.AST:
        """The same comparison with moments; `in` as one `==` for each."""
        for literal in [text for side in (node.left, *node.comparators) for text in _texts(side)]:
            try:
                series = values.rename(self._name(str(values.name)))
                self.moments[_stands_for(literal)] = moment(str(literal.value), series)
            except ReleaseError as reason:
                raise ReleaseError(f"where={self.text!r}: {reason}") from None
        node = _Named().visit(node)
        last = node.comparators[-1]
        if len(node.ops) > 1 or not isinstance(last, ast.List | ast.Tuple):
            return node
        equal: list[ast.expr] = [
            ast.Compare(left=node.left, ops=[ast.Eq()], comparators=[element])
            for element in last.elts
        ]
        either = ast.BoolOp(op=ast.Or(), values=[*equal, *equal[:1]])
        return either if isinstance(node.ops[0], ast.In) else ast.UnaryOp(ast.Not(), either)


class _Named(ast.NodeTransformer):
    """Names of moments instead of their text."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(id=_stands_for(node)) if isinstance(node.value, str) else node


def _stands_for(literal: ast.Constant) -> str:
    return f"moment_{literal.col_offset}_"


def _texts(side: ast.expr) -> list[ast.Constant]:
    """Text that stands on a side of a comparison, alone or in a list."""
    parts = side.elts if isinstance(side, ast.List | ast.Tuple) else [side]
    return [
        part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
