"""What stands in a condition: numbers, truth values, text or dates; and words for messages."""

from __future__ import annotations

import ast
import copy
import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dpiw.analysis.names import as_typed
from dpiw.analysis.spelling import nearest_first
from dpiw.errors import ReleaseError

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
class Columns:
    """The columns of a condition: what they are, and how messages name them.

    Attributes:
        text: the condition, for messages.
        table: the columns that it names, by their private names.
        names: the columns' own names, by their private ones.
        declared: levels of columns of text.
        ordered: those of them whose levels have an order.
    """

    text: str
    table: pd.DataFrame
    names: Mapping[str, str]
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
