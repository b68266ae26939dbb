"""Which parts of a condition compare, and how pandas is to compute them as they read."""

from __future__ import annotations

import ast
import copy
import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dpiw.analysis.columns import moment
from dpiw.analysis.names import as_typed
from dpiw.errors import ReleaseError, nearest_first

_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or", ast.Not: "not",
    ast.Invert: "~",
}  # fmt: skip
_ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

Levels = Mapping[str, Sequence[str]]
"""By column of text: the levels it is declared to have."""


class Kind(enum.Enum):
    """What a part of a condition is, in words for messages."""

    NUMBER = "numbers"
    TRUTH = "truth values"
    TEXT = "text"
    DATE = "dates"
    OTHER = "other values"


def kind_of(values: pd.Series) -> Kind:
    """What the cells of a column are; `OTHER` is left to pandas."""
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
    """Checks what stands beside what, and makes of a condition what pandas computes as it reads.

    Text of a date becomes a moment; levels with an order become their places in it.

    Attributes:
        text: the condition, for messages.
        table: the columns that it names, by their private names.
        names: the columns' own names, by their private ones.
        declared: levels of columns of text.
        ordered: those of them whose levels have an order.
        stand_ins: moments, places and text, by the names that stand for them.
    """

    text: str
    table: pd.DataFrame
    names: Mapping[str, str]
    declared: Levels
    ordered: Collection[str]
    stand_ins: dict[str, object] = field(default_factory=dict)

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
        """Whether a column of numbers holds 0 and 1 alone."""
        return bool(self.table[column.id].dropna().isin((0, 1)).all())

    def is_ordered(self, column: ast.Name) -> bool:
        """Whether the levels of a column have an order."""
        is_ordered = getattr(self.table[column.id].dtype, "ordered", False)
        return self.plain(column) in self.ordered or bool(is_ordered)

    def levels(self, column: ast.Name) -> list[str]:
        """The levels that are declared, else those in the rows."""
        values = self.table[column.id]
        if declared := self.declared.get(self.plain(column)):
            return [str(level) for level in declared]
        if isinstance(values.dtype, pd.CategoricalDtype):
            return [str(level) for level in values.cat.categories]
        return [str(level) for level in values.dropna().unique()]

    def check_levels(self, column: ast.Name, texts: Sequence[ast.expr]) -> None:
        """Refuses text that is no level of the column."""
        level_names = self.levels(column)
        for text in (part.value for part in texts if isinstance(part, ast.Constant)):
            if text not in level_names:
                raise self.refusal(
                    f"{self.column(column)} has no level {text!r}; its levels,"
                    f" {nearest_first(str(text), level_names)}"
                )

    def plain(self, column: ast.Name) -> str:
        """The column's name."""
        return self.names[column.id]

    def column(self, column: ast.Name) -> str:
        """The column as messages name it."""
        return f"column {self.plain(column)!r}"

    def typed(self, node: ast.expr) -> str:
        """A part of the condition as it is typed."""
        shown = copy.deepcopy(node)
        for part in ast.walk(shown):
            if isinstance(part, ast.Name):
                part.id = as_typed(self.names[part.id])
        return ast.unparse(shown)

    def compared(self, column: ast.Name) -> str:
        """A comparison of that column, as an example."""
        if self.kind(column) is Kind.TEXT:
            levels = self.levels(column) or ["..."]
            return f"{self.typed(column)} == {levels[0]!r}"
        is_dated = self.kind(column) is Kind.DATE
        return f"{self.typed(column)} > {repr('2025-07-01') if is_dated else 40}"

    def how_dated(self, column: ast.Name) -> str:
        """How a date is written."""
        return f"write a date as ISO text, as in {self.compared(column)!r}"

    def refusal(self, fault: str) -> ReleaseError:
        """The error that tells the condition and its fault."""
        return ReleaseError(f"where={self.text!r}: {fault}")

    def truth(self, node: ast.expr, word: str = "") -> ast.expr:
        """The same as one truth value per row.

        Args:
            node: a condition, or a part of one.
            word: what joins it to others, such as `and`.

        Raises:
            ReleaseError: numbers, text or dates alone, or what does not compare.
        """
        match node:
            case ast.BoolOp():
                joined = [self.truth(part, _SIGNS[type(node.op)]) for part in node.values]
                return ast.BoolOp(op=node.op, values=joined)
            case ast.UnaryOp(op=ast.Not() | ast.Invert()):
                operand = self.truth(node.operand, _SIGNS[type(node.op)])
                return ast.UnaryOp(op=node.op, operand=operand)
            case ast.Compare():
                return self._comparison(node)
            case ast.Constant(value=bool()):
                return node
            case ast.Name() if self.kind(node) in (Kind.TRUTH, Kind.OTHER):
                return node
            case ast.Name() if self.kind(node) is Kind.NUMBER and self.is_flag(node):
                return ast.Compare(left=node, ops=[ast.Eq()], comparators=[ast.Constant(value=1)])
        place = f" beside `{word}`" if word else ""
        if isinstance(node, ast.Name):
            raise self.refusal(
                f"expected one truth value per row{place}; {self.column(node)} holds"
                f" {self.kind(node).value}: compare it, as in {self.compared(node)!r}"
            )
        if isinstance(node, ast.List | ast.Tuple):
            raise self.refusal(
                "a list stands behind `in` or `not in`, as in \"region in ['south']\""
            )
        raise self.refusal(
            f"expected one truth value per row{place}; found"
            f" {self.kind(node).value}: compare, as in 'age > 40'"
        )

    def _number(self, node: ast.expr) -> ast.expr:
        """The same, without text or dates in it."""
        match node:
            case ast.BinOp():
                if isinstance(node.op, ast.Div) and _is_zero(node.right):
                    raise self.refusal(f"`{self.typed(node)}` divides by zero")
                left, right = self._number(node.left), self._number(node.right)
                return ast.BinOp(left=left, op=node.op, right=right)
            case ast.UnaryOp(op=ast.USub()):
                return ast.UnaryOp(op=node.op, operand=self._number(node.operand))
        kind = self.kind(node)
        if kind in (Kind.TEXT, Kind.DATE):
            subject = self.column(node) if isinstance(node, ast.Name) else self.typed(node)
            raise self.refusal(f"{subject} holds {kind.value}; + - * / take numbers")
        if kind is Kind.TRUTH and not isinstance(node, ast.Name):
            return self.truth(node)
        if isinstance(node, ast.List | ast.Tuple):
            raise self.refusal("a list stands behind `in` or `not in`, as in 'age in [18, 19]'")
        return node

    def _comparison(self, node: ast.Compare) -> ast.expr:
        """One comparison, or a chain of them."""
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
            raise self.refusal(f"`{sign}` stands in no chain of comparisons: join them by `and`")
        if not isinstance(last, ast.List | ast.Tuple):
            written = f"{self.typed(node.left)} {sign} [{self.typed(last)}]"
            advice = f": write {written!r}" if _is_literal(last) else ", such as ['north', 'south']"
            raise self.refusal(f"`{sign}` takes a list{advice}")
        if not last.elts or not all(map(_is_literal, last.elts)):
            raise self.refusal(f"`{sign}` takes a list of one or more numbers, dates or levels")
        return self._compared_with_each(node, [node.left, *last.elts])

    def _compared_with_each(self, node: ast.Compare, sides: Sequence[ast.expr]) -> ast.expr:
        """The comparison by the kind of its columns; a list's parts are sides as others are."""
        kinds = [self.kind(side) for side in sides]
        columns = [side for side in sides if isinstance(side, ast.Name)]
        texts = [side for side in sides if _is_text(side)]
        by_kind = {self.kind(column): column for column in reversed(columns)}
        if Kind.OTHER in kinds:
            for column in columns:
                if self.table[column.id].dtype == object:
                    self.check_levels(column, texts)
            return node
        if Kind.DATE in by_kind:
            self._check_beside(by_kind[Kind.DATE], sides, self.how_dated(by_kind[Kind.DATE]))
            return self._dated(node, by_kind[Kind.DATE], texts)
        if Kind.TEXT in by_kind:
            first = by_kind[Kind.TEXT]
            how = f"text stands in quotes, as in {self.compared(first)!r}"
            self._check_beside(first, sides, how)
            return self._textual(node, [side for side in columns if side in sides], texts)
        if texts and columns:
            column, hint = columns[0], "numbers compare with numbers, text with text"
            if Kind.TRUTH in by_kind:
                column = by_kind[Kind.TRUTH]
                hint = f"write {self.typed(column)}, or not {self.typed(column)}"
            raise self.refusal(
                f"{self.column(column)} holds {self.kind(column).value}, not text; {hint}"
            )
        if texts:
            raise self.refusal(f"text compares with a column; {self.typed(sides[0])} is none")
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            left = self._number(node.left)
            return ast.Compare(left=left, ops=node.ops, comparators=node.comparators)
        left, *others = (self._number(side) for side in sides)
        return ast.Compare(left=left, ops=node.ops, comparators=others)

    def _check_beside(self, column: ast.Name, sides: Sequence[ast.expr], how: str) -> None:
        """Refuses what compares with neither text nor dates."""
        kind = self.kind(column)
        for side in sides:
            if _is_text(side) or (isinstance(side, ast.Name) and self.kind(side) is kind):
                continue
            what = "a truth value" if self.kind(side) is Kind.TRUTH else "a number"
            found = f"{self.typed(side)} is {what}"
            if isinstance(side, ast.Name):
                found = f"{self.column(side)} holds {self.kind(side).value}"
            raise self.refusal(f"{self.column(column)} holds {kind.value}; {found}: {how}")

    def _textual(
        self, node: ast.Compare, columns: Sequence[ast.Name], texts: Sequence[ast.expr]
    ) -> ast.expr:
        """The same; where an order is asked for, with places in it."""
        for column in columns:
            self.check_levels(column, texts)
        orders = [op for op in node.ops if isinstance(op, _ORDERING)]
        if not orders:
            return node
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
                    f"{self.column(columns[0])} and {self.column(column)} have other levels:"
                    f" they have no order together"
                )
        sides = [self._place(side, levels) for side in (node.left, *node.comparators)]
        return ast.Compare(left=sides[0], ops=node.ops, comparators=sides[1:])

    def _place(self, side: ast.expr, levels: Sequence[str]) -> ast.expr:
        if isinstance(side, ast.Constant):
            return ast.Constant(value=levels.index(side.value))
        places: Mapping[str, int] = {level: place for place, level in enumerate(levels)}
        column = self.table[ast.unparse(side)].astype(object)
        return self._stand_in(column.map(places).astype(np.float64))

    def _dated(self, node: ast.Compare, column: ast.Name, texts: Sequence[ast.expr]) -> ast.expr:
        """The same comparison with moments; `in` as one `==` for each."""
        values, moments = self.table[column.id].rename(self.plain(column)), {}
        for literal in texts:
            if isinstance(literal, ast.Constant):
                try:
                    moments[id(literal)] = self._stand_in(moment(str(literal.value), values))
                except ReleaseError as reason:
                    raise ReleaseError(f"where={self.text!r}: {reason}") from None

        def with_moment(side: ast.expr) -> ast.expr:
            return moments.get(id(side), side)

        left, last = with_moment(node.left), node.comparators[-1]
        if not isinstance(last, ast.List | ast.Tuple):
            others = [with_moment(side) for side in node.comparators]
            return ast.Compare(left=left, ops=node.ops, comparators=others)
        equal: list[ast.expr] = [
            ast.Compare(left=left, ops=[ast.Eq()], comparators=[with_moment(side)])
            for side in last.elts
        ]
        either = ast.BoolOp(op=ast.Or(), values=[*equal, *equal[:1]])
        return either if isinstance(node.ops[0], ast.In) else ast.UnaryOp(ast.Not(), either)

    def without_text(self, node: ast.expr) -> ast.expr:
        """The same with names for text and lists, which pandas would read once more."""
        stand_in = self._stand_in

        class Named(ast.NodeTransformer):
            def visit_List(self, node: ast.List) -> ast.AST:
                return stand_in(ast.literal_eval(node))

            def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
                return stand_in(list(ast.literal_eval(node)))

            def visit_Constant(self, node: ast.Constant) -> ast.AST:
                return stand_in(node.value) if isinstance(node.value, str) else node

        named: ast.expr = Named().visit(node)
        return named

    def _stand_in(self, value: object) -> ast.Name:
        name = f"v{len(self.stand_ins)}"
        self.stand_ins[name] = value
        return ast.Name(id=name)


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
