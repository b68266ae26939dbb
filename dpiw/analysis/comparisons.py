"""Comparisons in a condition: their kinds, and their truth for each row."""

from __future__ import annotations

import ast
import copy
import enum
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.columns import moment
from dpiw.analysis.names import as_typed
from dpiw.data.cells.plain import one_form
from dpiw.errors import ReleaseError, nearest_first

_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or", ast.Not: "not",
    ast.Invert: "~",
}  # fmt: skip
_ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COMPUTED: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.And: operator.and_, ast.Or: operator.or_,
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip

Levels = Mapping[str, Sequence[str]]


class Kind(enum.Enum):
    """Kind of a part of a condition, in words for messages."""

    NUMBER = "numbers"
    TRUTH = "truth values"
    TEXT = "text"
    DATE = "dates"
    OTHER = "other values"


def kind_of(values: pd.Series) -> Kind:
    """Kind of a column's cells; pandas compares `OTHER`."""
    types = pd.api.types
    if types.is_bool_dtype(values.dtype):
        return Kind.TRUTH
    if types.is_numeric_dtype(values.dtype):
        return Kind.NUMBER
    if types.is_datetime64_any_dtype(values.dtype):
        return Kind.DATE
    if isinstance(values.dtype, pd.StringDtype):
        return Kind.TEXT
    inferred = types.infer_dtype(values, skipna=True)
    if inferred == "categorical":
        inferred = types.infer_dtype(values.cat.categories, skipna=True)
    return Kind.TEXT if inferred in ("string", "empty") else Kind.OTHER


@dataclass(frozen=True, kw_only=True)
class Comparisons:
    """Checks what a condition compares, and evaluates it for each row.

    Levels of columns in `ordered` compare by their places.
    """

    text: str
    table: pd.DataFrame
    declared: Levels
    ordered: Collection[str]

    def kind(self, node: ast.expr) -> Kind:
        """What a part of the condition is."""
        match node:
            case ast.Name():
                return kind_of(self.table[node.id])
            case ast.Constant(value=str()):
                return Kind.TEXT
            case ast.Compare() | ast.BoolOp() | ast.Constant(value=bool()):
                return Kind.TRUTH
            case ast.UnaryOp(op=ast.Not() | ast.Invert()):
                return Kind.TRUTH
        return Kind.NUMBER

    def is_flag(self, column: ast.Name) -> bool:
        """Whether a column of numbers holds only 0 and 1."""
        return bool(self.table[column.id].dropna().isin((0, 1)).all())

    def is_ordered(self, column: ast.Name) -> bool:
        """Whether the levels of a column have an order."""
        is_ordered = getattr(self.table[column.id].dtype, "ordered", False)
        return column.id in self.ordered or bool(is_ordered)

    def levels(self, column: ast.Name) -> list[str]:
        """The declared levels, else those in the rows."""
        values = self.table[column.id]
        if declared := self.declared.get(column.id):
            return [str(level) for level in declared]
        if isinstance(values.dtype, pd.CategoricalDtype):
            return [str(level) for level in values.cat.categories]
        return [str(level) for level in values.dropna().unique()]

    def settle_levels(self, column: ast.Name, texts: Sequence[ast.expr]) -> None:
        """Put each text in its level's own Unicode form; refuse text that is no level."""
        level_names = self.levels(column)
        for part in (part for part in texts if isinstance(part, ast.Constant)):
            if part.value in level_names:
                continue
            form = one_form(str(part.value))
            alike = [level for level in level_names if one_form(level) == form]
            if len(alike) != 1:
                raise self.refusal(
                    f"{self.column(column)} has no level {part.value!r}; its levels,"
                    f" {nearest_first(str(part.value), level_names)}"
                )
            part.value = alike[0]

    def column(self, column: ast.Name) -> str:
        """The column as messages name it."""
        return f"column {column.id!r}"

    def typed(self, node: ast.expr) -> str:
        """A part of the condition as it is typed."""
        shown = copy.deepcopy(node)
        for part in ast.walk(shown):
            if isinstance(part, ast.Name):
                part.id = as_typed(part.id)
        return ast.unparse(shown)

    def compared(self, column: ast.Name) -> str:
        """A comparison of that column, as an example."""
        if self.kind(column) is Kind.TEXT:
            levels = self.levels(column) or ["..."]
            return f"{self.typed(column)} == {levels[0]!r}"
        is_dated = self.kind(column) is Kind.DATE
        return f"{self.typed(column)} > {repr('2025-07-01') if is_dated else 40}"

    def refusal(self, found: str = "", *, allowed: str = "") -> ReleaseError:
        """The error that tells the condition and its fault."""
        return ReleaseError(found, field=f"where={self.text!r}", allowed=allowed)

    def truth(self, node: ast.expr, word: str = "") -> pd.Series:
        """Return one truth value per row; `word` is the operator that joins `node` to others."""
        match node:
            case ast.BoolOp():
                joined = [self.truth(part, _SIGNS[type(node.op)]) for part in node.values]
                return reduce(_COMPUTED[type(node.op)], joined)
            case ast.UnaryOp(op=ast.Not() | ast.Invert()):
                return ~self.truth(node.operand, _SIGNS[type(node.op)])
            case ast.Compare():
                return self._comparison(node)
            case ast.Constant(value=bool()):
                return pd.Series(node.value, index=self.table.index)
            case ast.Name() if self.kind(node) in (Kind.TRUTH, Kind.OTHER):
                return self.table[node.id]
            case ast.Name() if self.kind(node) is Kind.NUMBER and self.is_flag(node):
                return self.table[node.id] == 1
        place = f" beside `{word}`" if word else ""
        if isinstance(node, ast.Name):
            raise self.refusal(
                allowed=f"one truth value per row{place}; {self.column(node)} holds "
                f"{self.kind(node).value}: compare it, as in {self.compared(node)!r}"
            )
        if isinstance(node, ast.List | ast.Tuple):
            raise self.refusal(
                "a list may only follow `in` or `not in`, as in \"region in ['south']\""
            )
        raise self.refusal(
            allowed=f"one truth value per row{place}; found {self.kind(node).value}:"
            " compare, as in 'age > 40'"
        )

    def _number(self, node: ast.expr) -> Any:
        match node:
            case ast.BinOp():
                if isinstance(node.op, ast.Div) and _is_zero(node.right):
                    raise self.refusal(f"`{self.typed(node)}` divides by zero")
                left, right = map(_wide, map(self._number, (node.left, node.right)))
                return _COMPUTED[type(node.op)](left, right)
            case ast.UnaryOp(op=ast.USub()):
                return -_wide(self._number(node.operand))
        kind = self.kind(node)
        if kind in (Kind.TEXT, Kind.DATE):
            subject = self.column(node) if isinstance(node, ast.Name) else self.typed(node)
            raise self.refusal(f"{subject} holds {kind.value}; + - * / need numbers")
        if kind is Kind.TRUTH and not isinstance(node, ast.Name):
            return self.truth(node)
        if isinstance(node, ast.List | ast.Tuple):
            raise self.refusal("a list may only follow `in` or `not in`, as in 'age in [18, 19]'")
        return self._value(node)

    def _value(self, node: ast.expr) -> Any:
        return self.table[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)

    def _related(self, node: ast.Compare, values: Sequence[Any]) -> pd.Series:
        """Evaluate a comparison's operators on its sides; the items of an `in` list are sides."""
        first, index = node.ops[0], self.table.index
        if isinstance(first, ast.In | ast.NotIn):
            left = values[0] if isinstance(values[0], pd.Series) else pd.Series(values[0], index)
            found = left.isin(values[1:])
            return found if isinstance(first, ast.In) else ~found
        signs = zip(node.ops, pairwise(values), strict=True)
        truth = reduce(operator.and_, [_COMPUTED[type(op)](a, b) for op, (a, b) in signs])
        return truth if isinstance(truth, pd.Series) else pd.Series(truth, index)

    def _comparison(self, node: ast.Compare) -> pd.Series:
        last = node.comparators[-1]
        if len(node.ops) == 1 and isinstance(last, ast.List | ast.Tuple):
            listed = {ast.Eq: ast.In, ast.NotEq: ast.NotIn}.get(type(node.ops[0]))  # as in pandas
            if listed is not None:
                node = ast.Compare(left=node.left, ops=[listed()], comparators=[last])
        listing = [op for op in node.ops if isinstance(op, ast.In | ast.NotIn)]
        if not listing:
            return self._compared_with_each(node, [node.left, *node.comparators])
        sign = _SIGNS[type(listing[0])]
        if len(node.ops) > 1:
            fault = f"`{sign}` cannot stand in a chain such as a < b {sign} [c]"
            raise self.refusal(f"{fault}; write a < b and b {sign} [c]")
        if not isinstance(last, ast.List | ast.Tuple):
            written = f"{self.typed(node.left)} {sign} [{self.typed(last)}]"
            advice = f": write {written!r}" if _is_literal(last) else ", such as ['north', 'south']"
            raise self.refusal(f"`{sign}` takes a list{advice}")
        if not last.elts or not all(map(_is_literal, last.elts)):
            raise self.refusal(f"`{sign}` takes a list of one or more numbers, dates or levels")
        return self._compared_with_each(node, [node.left, *last.elts])

    def _compared_with_each(self, node: ast.Compare, sides: Sequence[ast.expr]) -> pd.Series:
        kinds = [self.kind(side) for side in sides]
        columns = [side for side in sides if isinstance(side, ast.Name)]
        texts = [side for side in sides if _is_text(side)]
        by_kind = {self.kind(column): column for column in reversed(columns)}
        if Kind.OTHER in kinds:
            for column in columns:
                if self.table[column.id].dtype == object:
                    self.settle_levels(column, texts)
            others = [
                self._value(side) if _is_literal(side) or side in columns else self._number(side)
                for side in sides
            ]
            return self._related(node, others)
        if Kind.DATE in by_kind:
            first = by_kind[Kind.DATE]
            how = f"write a date as ISO text, as in {self.compared(first)!r}"
            self._check_beside(first, sides, how)
            return self._related(node, self._moments(first, sides))
        if Kind.TEXT in by_kind:
            first = by_kind[Kind.TEXT]
            how = f"write text in quotes, as in {self.compared(first)!r}"
            self._check_beside(first, sides, how)
            return self._textual(node, sides)
        if texts and columns:
            column, hint = columns[0], "write a number without quotes"
            if Kind.TRUTH in by_kind:
                column = by_kind[Kind.TRUTH]
                hint = f"write {self.typed(column)}, or not {self.typed(column)}"
            raise self.refusal(
                f"{self.column(column)} holds {self.kind(column).value}, not text; {hint}"
            )
        if texts:
            raise self.refusal(f"text compares only with a column, unlike {self.typed(sides[0])}")
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            return self._related(node, [self._number(node.left), *map(self._value, sides[1:])])
        return self._related(node, [self._number(side) for side in sides])

    def _check_beside(self, column: ast.Name, sides: Sequence[ast.expr], how: str) -> None:
        kind = self.kind(column)
        for side in sides:
            if _is_text(side) or (isinstance(side, ast.Name) and self.kind(side) is kind):
                continue
            what = "a truth value" if self.kind(side) is Kind.TRUTH else "a number"
            found = f"{self.typed(side)} is {what}"
            if isinstance(side, ast.Name):
                found = f"{self.column(side)} holds {self.kind(side).value}"
            raise self.refusal(f"{self.column(column)} holds {kind.value}; {found}: {how}")

    def _textual(self, node: ast.Compare, sides: Sequence[ast.expr]) -> pd.Series:
        """Compare text; for `<` and the like by the order of the levels."""
        columns = [side for side in sides if isinstance(side, ast.Name)]
        for column in columns:
            self.settle_levels(column, [side for side in sides if _is_text(side)])
        orders = [op for op in node.ops if isinstance(op, _ORDERING)]
        if not orders:
            return self._related(node, [self._value(side) for side in sides])
        sign, levels = _SIGNS[type(orders[0])], self.levels(columns[0])
        for column in columns:
            if not self.is_ordered(column):
                some = ", ".join(repr(level) for level in self.levels(column)[:2])
                raise self.refusal(
                    f"{self.column(column)} holds text, which has no order for `{sign}`; write"
                    f' "{self.typed(column)} in [{some}]", with the levels that you mean'
                )
            if self.levels(column) != levels:
                raise self.refusal(
                    f"{self.column(columns[0])} and {self.column(column)} have different"
                    f" levels, so that `{sign}` has no meaning; compare each with one of its levels"
                )
        places = {level: float(place) for place, level in enumerate(levels)}
        values = (self._value(side) for side in sides)
        return self._related(
            node,
            [
                value.astype(object).map(places).astype(np.float64)
                if isinstance(value, pd.Series)
                else places[value]
                for value in values
            ],
        )

    def _moments(self, column: ast.Name, sides: Sequence[ast.expr]) -> list[Any]:
        try:
            return [
                moment(str(self._value(side)), self.table[column.id])
                if _is_text(side)
                else self._value(side)
                for side in sides
            ]
        except ReleaseError as reason:
            raise ReleaseError(reason, field=f"where={self.text!r}") from None


def _wide(value: Any) -> Any:
    """Widen whole numbers and truth values to 64 bits, since sums of fewer would overflow."""
    kind = pd.api.types
    if not isinstance(value, pd.Series) or kind.is_float_dtype(value.dtype):
        return value
    if not kind.is_numeric_dtype(value.dtype) or str(value.dtype).lower() == "uint64":
        return value
    return value.astype("int64" if isinstance(value.dtype, np.dtype) else "Int64")


def _is_text(side: ast.expr) -> bool:
    return isinstance(side, ast.Constant) and isinstance(side.value, str)


def _is_literal(side: ast.expr) -> bool:
    if isinstance(side, ast.UnaryOp) and isinstance(side.op, ast.USub):
        return isinstance(side.operand, ast.Constant)
    return isinstance(side, ast.Constant)


def _is_zero(side: ast.expr) -> bool:
    if isinstance(side, ast.UnaryOp):
        return _is_zero(side.operand)
    return isinstance(side, ast.Constant) and side.value in (0, False)
