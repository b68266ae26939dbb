"""Read the constraints of a data dictionary: public rules that no row may break."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dpiw.data.schema.columns import Column
from dpiw.data.schema.declarations import NAME
from dpiw.errors import SchemaError, one_of

_BOUNDS = ("at_most", "equals")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One of some values, or a range of values, of a column.

    Attributes:
        values: levels, numbers, dates, true or false; None: a missing cell.
        lower, upper: inclusive bounds instead, in own units; one may be left out.
    """

    values: tuple[Any, ...] = ()
    lower: Any = None
    upper: Any = None

    @classmethod
    def of(cls, declared: Any) -> Condition:
        """Read a value, a list of values, or `{lower: ..., upper: ...}`; else SchemaError."""
        if isinstance(declared, Mapping):
            if not declared or not set(declared) <= {"lower", "upper"}:
                raise SchemaError(allowed="the keys lower, upper, or both, such as {upper: 17}")
            if any(bound is None for bound in declared.values()):
                raise SchemaError("null", field="lower/upper", allowed="a value, or no such key")
            return cls(**declared)
        values = declared if isinstance(declared, list | tuple) else (declared,)
        if not values or any(isinstance(value, list | tuple | Mapping) for value in values):
            raise SchemaError(allowed="a value, a list of values, or {lower: ..., upper: ...}")
        return cls(values=tuple(values))

    def to_json(self) -> Any:
        """Return what `of` reads as this condition."""
        if not self.values:
            bounds = {"lower": self.lower, "upper": self.upper}
            return {name: bound for name, bound in bounds.items() if bound is not None}
        return self.values[0] if len(self.values) == 1 else list(self.values)


class Repair(enum.Enum):
    """What becomes of a synthetic row that breaks a constraint.

    `REJECT`: it is left out, and another one is drawn. `PROJECT`: it becomes the nearest row that
    does not break it.
    """

    REJECT = "reject"
    PROJECT = "project"


# `dpiw.plan.json_schema` shows the docstring of this class to users, field by field.
@dataclass(frozen=True, kw_only=True)
class Never:
    """A structural zero: a combination of cells that cannot occur.

    Attributes:
        name: of the constraint.
        never: conditions by column; a row that meets all of them breaks it.
        repair: of rows that break it.
    """

    name: str
    never: tuple[tuple[str, Condition], ...]
    repair: Repair = Repair.REJECT

    usual: ClassVar[Repair] = Repair.REJECT

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it names."""
        return tuple(column for column, _ in self.never)

    def to_mapping(self) -> dict[str, Any]:
        """Return JSON values that `read_constraint` reads as this."""
        never = {column: condition.to_json() for column, condition in self.never}
        return _mapping(self, never=never)


# `dpiw.plan.json_schema` shows the docstring of this class to users, field by field.
@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A functional dependency: a column is a public function of another.

    Attributes:
        name: of the constraint.
        column: whose cell follows.
        of: from which it follows.
        cases: a condition on `of`, and the cell that follows; None: a missing one. Every cell that
            `of` can have meets exactly one.
        repair: of rows that break it.
    """

    name: str
    column: str
    of: str
    cases: tuple[tuple[Condition, Any], ...]
    repair: Repair = Repair.PROJECT

    usual: ClassVar[Repair] = Repair.PROJECT

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it names."""
        return (self.of, self.column)

    def to_mapping(self) -> dict[str, Any]:
        """Return JSON values that `read_constraint` reads as this."""
        cases = [{"when": when.to_json(), "is": then} for when, then in self.cases]
        return _mapping(self, column=self.column, of=self.of, cases=cases)


# `dpiw.plan.json_schema` shows the docstring of this class to users, field by field.
@dataclass(frozen=True, kw_only=True)
class Total:
    """An inequality between columns, or a fixed total: a sum of columns has a bound or a value.

    Attributes:
        name: of the constraint.
        parts: the columns that are added up; one is enough.
        total: a column, or a number.
        exact: whether the sum equals the total; if not, it is at most that.
        repair: of rows that break it.
    """

    name: str
    parts: tuple[str, ...]
    total: str | int | float
    exact: bool
    repair: Repair = Repair.REJECT

    @property
    def usual(self) -> Repair:
        """The default repair: exact sums hardly ever hold by chance, so rejection would not end."""
        return Repair.PROJECT if self.exact else Repair.REJECT

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it names."""
        return (*self.parts, *([self.total] if isinstance(self.total, str) else []))

    def to_mapping(self) -> dict[str, Any]:
        """Return JSON values that `read_constraint` reads as this."""
        bound = {_BOUNDS[self.exact]: self.total}
        return _mapping(self, sum=list(self.parts), **bound)


Constraint = Never | Lookup | Total


def in_order(
    constraints: Sequence[Constraint], released: Sequence[Column]
) -> tuple[Constraint, ...]:
    """Sort each `Never`'s columns as released: the order decides between equally near cells."""
    places = {column.name: place for place, column in enumerate(released)}

    def ordered(constraint: Constraint) -> Constraint:
        if not isinstance(constraint, Never):
            return constraint
        never = sorted(constraint.never, key=lambda pair: places.get(pair[0], len(places)))
        return replace(constraint, never=tuple(never))

    return tuple(map(ordered, constraints))


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Columns that follow from others: a repair that moves them is undone.

    Attributes:
        follows: by constraint, a lookup's column, or a total that no earlier constraint sets.
    """

    follows: Mapping[str, str]
    fixed: frozenset[str]

    @classmethod
    def of(cls, constraints: Sequence[Constraint]) -> Self:
        """Collect derived columns in the order of statement, lookups first."""
        follows = {
            lookup.name: lookup.column for lookup in constraints if isinstance(lookup, Lookup)
        }
        fixed = set(follows.values())
        for constraint in constraints:
            total = constraint.total if isinstance(constraint, Total) else None
            if isinstance(total, str) and total not in follows.values():
                follows[constraint.name] = total
                fixed |= {total} if constraint.usual is Repair.PROJECT else set()
        return cls(follows=follows, fixed=frozenset(fixed))

    def holds(self, constraint: Total) -> tuple[frozenset[str], ...]:
        """Sets of a sum's columns to hold fixed, each tried after the one before failed."""
        derived = self.follows.get(constraint.name)
        others = frozenset(self.follows.values()) - {derived}
        first = [] if derived is None else [frozenset(constraint.columns) - {derived}]
        return (*first, others, frozenset())


def _mapping(constraint: Constraint, **fields: Any) -> dict[str, Any]:
    unusual = constraint.repair is not constraint.usual
    repair = {"repair": constraint.repair.value} if unusual else {}
    return {"name": constraint.name, **fields, **repair}


def read_constraint(declared: Any, place: int = 1) -> Constraint:
    """Read item `place` (from 1) of `constraints`; SchemaError begins `constraint NAME: FIELD:`."""
    name = declared.get("name") if isinstance(declared, Mapping) else None
    if not isinstance(name, str) or re.fullmatch(NAME, name) is None:
        expected = "expected a mapping with a `name` of lower-case letters, digits, - and _"
        raise SchemaError(f"item {place}: {expected}", field="constraints")
    kind = next((key for key in _KINDS if key in declared), None)
    if kind is None:
        meanings = "cells that exclude each other; a column that follows from one; a sum of columns"
        allowed = f"one of the keys {', '.join(_KINDS)} ({meanings})"
        raise SchemaError(field=f"constraint {name}", allowed=allowed)
    needed, made, fields = _KINDS[kind]
    known = sorted({"name", "repair", *needed, *(_BOUNDS if kind == "sum" else ())})
    for key in declared:
        if key not in known:
            raise _fault(declared, str(key)[:40], "unknown key", allowed=one_of(key, known))
    for key in needed:
        if key not in declared:
            raise _fault(declared, key, f"missing; a constraint with `{kind}` needs this key")
    constraint: Constraint = made(name=name, **fields(declared))
    repairs = [repair.value for repair in Repair]
    repair = declared.get("repair", constraint.usual.value)
    if repair not in repairs:
        raise _fault(declared, "repair", allowed=one_of(repair, repairs))
    return replace(constraint, repair=Repair(repair))


def _fault(
    declared: Mapping[str, Any], field: str, found: str = "", *, allowed: str = ""
) -> SchemaError:
    return SchemaError(found, field=f"constraint {declared['name']}: {field}", allowed=allowed)


def _condition(declared: Mapping[str, Any], field: str, value: Any) -> Condition:
    try:
        return Condition.of(value)
    except SchemaError as reason:
        raise _fault(declared, field, str(reason)) from None


def _column(declared: Mapping[str, Any], field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _fault(declared, field, allowed="the name of a column, as text")
    return value


def _never_fields(declared: Mapping[str, Any]) -> dict[str, Any]:
    never = declared["never"]
    if not isinstance(never, Mapping) or not never:
        raise _fault(
            declared, "never", allowed="a mapping such as {married: true, age: {upper: 9}}"
        )
    conditions = (
        (str(n), _condition(declared, f"never: column {n!s:.64}", never[n])) for n in never
    )
    return {"never": tuple(conditions)}


def _lookup_fields(declared: Mapping[str, Any]) -> dict[str, Any]:
    cases = declared["cases"]
    if not isinstance(cases, list | tuple) or not cases:
        raise _fault(declared, "cases", allowed="a list of {when: ..., is: ...}")
    for case in cases:
        if not isinstance(case, Mapping) or set(case) != {"when", "is"}:
            raise _fault(declared, "cases", allowed="mappings of the keys `when` and `is` alone")
        if isinstance(case["is"], Mapping | list | tuple):
            raise _fault(declared, "cases", "`is`: expected one value, or null for a missing cell")
    columns = {field: _column(declared, field, declared[field]) for field in ("column", "of")}
    read = ((_condition(declared, "cases", case["when"]), case["is"]) for case in cases)
    return {**columns, "cases": tuple(read)}


def _total_fields(declared: Mapping[str, Any]) -> dict[str, Any]:
    parts, bounds = declared["sum"], [bound for bound in _BOUNDS if bound in declared]
    if not isinstance(parts, list | tuple) or not parts:
        raise _fault(declared, "sum", allowed="a list of columns; one is enough")
    if len(bounds) != 1:
        raise _fault(declared, "sum", allowed="either at_most or equals beside it")
    total = declared[bounds[0]]
    if isinstance(total, bool) or not isinstance(total, str | int | float):
        raise _fault(declared, bounds[0], allowed="the name of a column, or a number")
    columns = tuple(_column(declared, "sum", part) for part in parts)
    return {"parts": columns, "total": total, "exact": bounds[0] == "equals"}


_KINDS: Mapping[str, tuple[tuple[str, ...], Any, Callable[[Mapping[str, Any]], Any]]] = {
    "never": (("never",), Never, _never_fields),
    "of": (("column", "of", "cases"), Lookup, _lookup_fields),
    "sum": (("sum",), Total, _total_fields),
}
"""By the key that names the kind: its required keys, its class, and the reader of its fields."""
