"""Comparisons in a condition: a column beside numbers, dates or levels, for each row."""

import ast
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
from dpiw.analysis.names import as_typed, nearest_first
from dpiw.data.cells.plain import one_form
from dpiw.errors import ReleaseError

_COMPUTED: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.And: operator.and_, ast.Or: operator.or_,
}  # fmt: skip
_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}  # fmt: skip
_ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_LISTED = {ast.In: True, ast.NotIn: False, ast.Eq: True, ast.NotEq: False}
"""Signs before a list, as in pandas, and whether they choose its items."""

Levels = Mapping[str, Sequence[str]]


class Kind(enum.Enum):
    """Kind of a column's cells, in words for messages."""

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
    """Evaluates a condition for each row.

    Levels of columns in `ordered` compare by their places.
    """

    text: str
    table: pd.DataFrame
    declared: Levels
    ordered: Collection[str]

    def refusal(self, found: str = "", *, allowed: str = "") -> ReleaseError:
        """Return the error, which names the condition and its fault."""
        return ReleaseError(found, field=f"where={self.text!r}", allowed=allowed)

    def truth(self, node: ast.expr) -> pd.Series:
        """Return one truth value per row."""
        match node:
            case ast.BoolOp():
                return reduce(_COMPUTED[type(node.op)], map(self.truth, node.values))
            case ast.UnaryOp(op=ast.Not() | ast.Invert()):
                return ~self.truth(node.operand)
            case ast.Compare():
                return self._comparison(node)
            case ast.Constant(value=bool()):
                return pd.Series(node.value, index=self.table.index)
            case ast.Name():
                return self._flag(node.id)
        raise self.refusal(
            allowed="a truth value per row, such as 'age > 40' or \"region in ['south']\""
        )

    def _flag(self, name: str) -> pd.Series:
        """A column by itself: of truth values, or of numbers that are all 0 or 1."""
        values = self.table[name]
        kind = kind_of(values)
        if kind is Kind.NUMBER and values.dropna().isin((0, 1)).all():
            return values == 1
        if kind not in (Kind.TRUTH, Kind.OTHER):
            raise self.refusal(
                f"column {name!r} holds {kind.value}: compare it, as in {self._example(name)!r}"
            )
        return values

    def _example(self, name: str) -> str:
        """A comparison of that column."""
        kind = kind_of(self.table[name])
        if kind is Kind.TEXT:
            return f"{as_typed(name)} == {next(iter(self._levels(name)), '...')!r}"
        if kind is Kind.TRUTH:
            return as_typed(name)
        return f"{as_typed(name)} > {repr('2025-07-01') if kind is Kind.DATE else 40}"

    def _comparison(self, node: ast.Compare) -> pd.Series:
        sides, signs = [node.left, *node.comparators], [type(op) for op in node.ops]
        last = sides[-1]
        listed = last.elts if isinstance(last, ast.List | ast.Tuple) else None
        parts = sides if listed is None else [*sides[:-1], *listed]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        literals = [part for part in parts if not isinstance(part, ast.Name)]
        if listed == []:
            raise self.refusal("the list is empty; write one or more numbers, dates or levels")
        if len(names) != 1 or not literals or not all(map(_is_literal, literals)):
            raise self.refusal(
                allowed="one column beside numbers, dates or levels; or a function, such as"
                " lambda table: table['a'] > 2 * table['b']"
            )
        name, by_order = names[0], not {*_ORDERING}.isdisjoint(signs)
        if listed is not None or not {ast.In, ast.NotIn}.isdisjoint(signs):
            if listed is None or sides[0] in literals or signs[0] not in _LISTED or signs[1:]:
                raise self.refusal(
                    "a list must follow a column and `in`, `not in`, `==` or `!=`",
                    allowed=f"such as {as_typed(name)} in [...]",
                )
            found = self.table[name].isin([self._value(name, literal) for literal in literals])
            return found if _LISTED[signs[0]] else ~found
        values = self._places(name) if by_order else self.table[name]
        truths = []
        for sign, (left, right) in zip(signs, pairwise(sides), strict=True):
            if isinstance(right, ast.Name):
                left, right, sign = right, left, _MIRRORED.get(sign, sign)
            if not isinstance(left, ast.Name):
                raise self.refusal("it compares two constants; compare each with the column")
            truths.append(_COMPUTED[sign](values, self._value(name, right, by_order=by_order)))
        return reduce(operator.and_, truths)

    def _places(self, name: str) -> pd.Series:
        """The column's values; of levels with an order their places."""
        values = self.table[name]
        if kind_of(values) is not Kind.TEXT:
            return values
        levels = self._levels(name)
        if name not in self.ordered and not getattr(values.dtype, "ordered", False):
            raise self.refusal(
                f"column {name!r} holds text, which has no order; write"
                f' "{as_typed(name)} in [{", ".join(map(repr, levels[:2]))}]", with the levels that'
                " you mean"
            )
        places = {level: float(place) for place, level in enumerate(levels)}
        return values.astype(object).map(places).astype(np.float64)

    def _value(self, name: str, literal: ast.expr, *, by_order: bool = False) -> Any:
        """Convert a literal to the kind of the column's cells: a level, a moment or a number."""
        values, value = self.table[name], ast.literal_eval(literal)
        kind, is_text = kind_of(values), isinstance(value, str)
        if kind is Kind.OTHER:
            return self._level(name, value) if is_text and values.dtype == object else value
        if is_text is not (kind in (Kind.TEXT, Kind.DATE)):
            raise self.refusal(
                f"column {name!r} holds {kind.value}, not {value!r}: compare it, as in"
                f" {self._example(name)!r}"
            )
        if kind is Kind.TEXT:
            level = self._level(name, value)
            return float(self._levels(name).index(level)) if by_order else level
        if kind is not Kind.DATE:
            return value
        try:
            return moment(value, values)
        except ReleaseError as reason:
            raise ReleaseError(reason, field=f"where={self.text!r}") from None

    def _level(self, name: str, text: str) -> str:
        """Return the level that equals a text, in any Unicode form; refuse other texts."""
        levels = self._levels(name)
        alike = [level for level in levels if one_form(level) == one_form(text)]
        if text in levels:
            return text
        if len(alike) != 1:
            raise self.refusal(
                f"column {name!r} has no level {text!r}; its levels, {nearest_first(text, levels)}"
            )
        return alike[0]

    def _levels(self, name: str) -> list[str]:
        """The declared levels, else those in the rows."""
        values = self.table[name]
        if declared := self.declared.get(name):
            return [str(level) for level in declared]
        if isinstance(values.dtype, pd.CategoricalDtype):
            return [str(level) for level in values.cat.categories]
        return [str(level) for level in values.dropna().unique()]


def _is_literal(side: ast.expr) -> bool:
    if isinstance(side, ast.UnaryOp) and isinstance(side.op, ast.USub):
        value = getattr(side.operand, "value", None)
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(side, ast.Constant)
