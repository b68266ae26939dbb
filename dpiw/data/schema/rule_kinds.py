"""Each kind of constraint: which rows break it, and the nearest row that satisfies it.

Nearest for a `Never`: one changed cell, if possible not fixed by a `Lookup`. For a `Lookup`: the
cell that follows. For a `Total`: least sum of squares in own units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.constraints import Condition, Constraint, Derived, Lookup, Never, Total
from dpiw.data.schema.encoding import from_unit, to_unit
from dpiw.errors import SchemaError, nearest

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

_LARGEST_BOUND = 2**60


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """The whole numbers of one released column; a continuous column must declare `decimals`."""

    column: Column

    def __post_init__(self) -> None:
        """Raises SchemaError: no decimals on a continuous column, or bounds too large."""
        field = f"column {self.column.name}"
        if self.column.values:
            allowed = "no column with listed `values` in a constraint; declare it ordinal for that"
            raise SchemaError(field=field, allowed=allowed)
        if self.column.kind is ColumnKind.CONTINUOUS and self.column.decimals is None:
            why = "because a constraint on this continuous column is checked exactly"
            raise SchemaError(field=f"{field}: decimals", allowed=f"a number such as 2, {why}")
        if max(abs(self.low), abs(self.high)) > _LARGEST_BOUND:
            allowed = "smaller bounds or fewer decimals, because a constraint names the column"
            message = "bounds beyond 2^60 steps of the last decimal"
            raise SchemaError(message, field=field, allowed=allowed)

    @property
    def decimals(self) -> int:
        """A value is its whole number over 10^decimals."""
        return self.column.decimals or 0

    @cached_property
    def low(self) -> int:
        """Smallest value."""
        return 0 if self.column.is_discrete else self.whole(self.column.lower)

    @cached_property
    def high(self) -> int:
        """Largest value."""
        column = self.column
        return column.cardinality - 1 if column.is_discrete else self.whole(column.upper)

    def whole(self, value: Any) -> int:
        """Return a declared value's whole number, even out of bounds; SchemaError for none."""
        column, field = self.column, f"column {self.column.name}"
        if column.kind is ColumnKind.BOOLEAN:
            if not isinstance(value, bool):
                raise SchemaError(field=field, allowed="true or false")
            return int(value)
        if column.is_discrete:
            if value not in column.levels:
                near = nearest(value, column.levels) if isinstance(value, str) else ""
                raise SchemaError(field=field, allowed=f"a level of the column, as text{near}")
            return column.levels.index(value)
        steps = Decimal(str(column.number(value))).scaleb(self.decimals)
        if not steps.is_finite() or steps != steps.to_integral_value():
            raise SchemaError(field=field, allowed=f"a value of {self.decimals} decimals at most")
        return int(steps)

    def read(self, values: NDArray[Any]) -> tuple[Whole, Mask]:
        """Return whole numbers of admissible scaled values and a mask of missing ones."""
        column = self.column
        if column.is_discrete:
            return np.asarray(values, dtype=np.int64), np.asarray(values < 0)
        missing = np.isnan(values)
        numbers = from_unit(column, np.where(missing, 0.0, values))
        if not column.is_whole:
            numbers = np.rint(numbers * 10.0**self.decimals)
        return np.asarray(numbers, dtype=np.int64), missing

    def write(self, whole: Whole, missing: Mask) -> NDArray[Any]:
        """Inverse of `read`."""
        column = self.column
        if column.is_discrete:
            return np.where(missing, np.int32(-1), whole.astype(np.int32))
        scaled = to_unit(column, whole if column.is_whole else whole / 10.0**self.decimals)
        return np.where(missing, np.nan, scaled)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Rows of some columns in whole numbers; arrays by column name, each of shape (rows,)."""

    whole: Mapping[str, Whole]
    missing: Mapping[str, Mask]

    def take(self, rows: Mask | Whole) -> Cells:
        """Return rows by mask or by index."""
        return Cells(
            whole={name: values[rows] for name, values in self.whole.items()},
            missing={name: mask[rows] for name, mask in self.missing.items()},
        )

    def put(self, rows: Mask, others: Cells) -> Cells:
        """Replace the masked rows by `others`."""
        whole = {name: values.copy() for name, values in self.whole.items()}
        missing = {name: mask.copy() for name, mask in self.missing.items()}
        for name in whole:
            whole[name][rows], missing[name][rows] = others.whole[name], others.missing[name]
        return Cells(whole=whole, missing=missing)

    def changed(self, name: str, whole: Whole, missing: Mask) -> Cells:
        """Replace one column."""
        return Cells(whole={**self.whole, name: whole}, missing={**self.missing, name: missing})


_LARGEST = 2**61
"""Largest magnitude of a sum, so that none overflows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Values of a column: disjoint, not adjacent intervals [lows, highs], increasing."""

    lattice: Lattice
    lows: Whole
    highs: Whole
    missing: bool

    @classmethod
    def of(cls, condition: Condition, lattice: Lattice) -> Region:
        """Return the values of a column that meet a condition, or raise SchemaError."""
        column = lattice.column
        if None in condition.values and not column.nullable:
            why = "its cells are never missing; remove null, or declare nullable: true"
            raise SchemaError(why, field=f"column {column.name}: null")
        if condition.values:
            wholes = {lattice.whole(value) for value in condition.values if value is not None}
            pairs = [(whole, whole) for whole in sorted(wholes)]
        else:
            if column.is_discrete and column.kind is not ColumnKind.ORDINAL:
                why = "has no order, so lower and upper mean nothing"
                raise SchemaError(why, field=f"column {column.name}", allowed="a list of levels")
            low, high = lattice.low, lattice.high
            if condition.lower is not None:
                low = max(low, lattice.whole(condition.lower))
            if condition.upper is not None:
                high = min(high, lattice.whole(condition.upper))
            pairs = [(low, high)]
        if any(not lattice.low <= low <= high <= lattice.high for low, high in pairs):
            raise SchemaError("no such value is within its bounds", field=f"column {column.name}")
        merged: list[tuple[int, int]] = []
        for low, high in pairs:
            if merged and low == merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], high)
            else:
                merged.append((low, high))
        lows, highs = np.array(merged, dtype=np.int64).reshape(-1, 2).T
        return cls(lattice=lattice, lows=lows, highs=highs, missing=None in condition.values)

    def holds(self, whole: Whole, missing: Mask) -> Mask:
        """Return which cells belong to it."""
        if not self.lows.size:
            return missing & self.missing
        place = np.maximum(np.searchsorted(self.lows, whole, side="right") - 1, 0)
        inside = (whole >= self.lows[place]) & (whole <= self.highs[place])
        return np.where(missing, self.missing, inside)

    def ways_out(
        self, whole: Whole, missing: Mask
    ) -> list[tuple[Whole, Mask, NDArray[np.float64]]]:
        """Return the nearest cells outside, each as (whole, missing, distance), for cells inside.

        The next lower and higher values, and missing; from missing, the least value. Distance: a
        number's share of the range, else 1; infinite where there is no such cell.
        """
        low, high = self.lattice.low, self.lattice.high
        if self.lows.size:
            place = np.maximum(np.searchsorted(self.lows, whole, side="right") - 1, 0)
            below, above = self.lows[place] - 1, self.highs[place] + 1
        else:  # missing cells alone
            below, above = (np.full(whole.shape, edge, dtype=np.int64) for edge in (low, high + 1))
        if missing.any():  # any value that is let through will do; the least one
            ends = np.concatenate([[low], self.highs + 1])
            free = int(ends[~self.holds(ends, np.zeros(ends.shape, dtype=np.bool_))][0])
            below, above = np.where(missing, free, below), np.where(missing, high + 1, above)
        there = np.zeros(whole.shape, dtype=np.bool_)
        gone = np.full(whole.shape, low, dtype=np.int64)
        can_go = self.lattice.column.nullable and not self.missing
        far = np.full(whole.shape, 1.0 if can_go else np.inf)
        numbers = [(value, there, self._far(whole, missing, value)) for value in (below, above)]
        return [*numbers, (gone, ~there, far)]

    def _far(self, whole: Whole, missing: Mask, value: Whole) -> NDArray[np.float64]:
        low, high = self.lattice.low, self.lattice.high
        share = np.abs(value - whole) / max(high - low, 1)
        far = np.where(missing | self.lattice.column.is_discrete, 1.0, share)
        return np.where((value >= low) & (value <= high), far, np.inf)


@dataclass(frozen=True, kw_only=True)
class NeverRule:
    """A `Never`: regions by column. Repairs move `derived` columns last."""

    regions: Mapping[str, Region]
    derived: frozenset[str]

    @classmethod
    def of(cls, constraint: Never, lattices: Mapping[str, Lattice], derived: Derived) -> Self:
        """Raises SchemaError: a condition cannot be met, or no row is left."""
        regions = {n: _region(constraint, "never", c, lattices[n]) for n, c in constraint.never}
        if all(_is_everything(region) for region in regions.values()):
            raise _fault(constraint, "never", "forbids every row; narrow one of its conditions")
        return cls(regions=regions, derived=derived.fixed)

    def broken(self, cells: Cells) -> Mask:
        """Return rows that meet every condition."""
        met = [r.holds(cells.whole[n], cells.missing[n]) for n, r in self.regions.items()]
        return np.asarray(np.logical_and.reduce(met))

    def projected(self, cells: Cells, *, turn: int | None) -> Cells:
        """Change the nearest cell; later turns the next nearest, so that rules do not cycle."""
        moves = [
            (name, *way)
            for name, region in self.regions.items()
            for way in region.ways_out(cells.whole[name], cells.missing[name])
        ]
        far = np.array([m[3] + 2.0 * (m[0] in self.derived) for m in moves])  # 2: after all others
        order, ways = np.argsort(far, axis=0, kind="stable"), np.isfinite(far).sum(axis=0)
        choice = order[(turn or 0) % ways, np.arange(ways.size)]
        for place, (name, whole, missing, _) in enumerate(moves):
            mine = choice == place
            moved = np.where(mine, whole, cells.whole[name])
            cells = cells.changed(name, moved, np.where(mine, missing, cells.missing[name]))
        return cells


@dataclass(frozen=True, kw_only=True, eq=False)
class LookupRule:
    """A `Lookup`: on each interval of `of`, the value `then`, or missing where `gone`."""

    column: str
    of_column: str
    starts: Whole
    ends: Whole
    then: Whole
    gone: Mask
    if_missing: tuple[int, bool]

    @classmethod
    def of(cls, constraint: Lookup, lattices: Mapping[str, Lattice], derived: Derived) -> Self:
        """Raises SchemaError: a case that cannot occur, or cells in no case or in several."""
        if constraint.of == constraint.column:
            raise _fault(constraint, "of", allowed="another column than `column`")
        given, follows = lattices[constraint.of], lattices[constraint.column]
        cases, of_missing = [], []
        for when, then in constraint.cases:
            region = _region(constraint, "cases", when, given)
            value = _following(constraint, then, follows)
            of_missing += [value] if region.missing else []
            cases += [(*ends, *value) for ends in zip(region.lows, region.highs, strict=True)]
        cases.sort()
        begins, ends = [given.low, *(c[1] + 1 for c in cases)], [*(c[0] for c in cases)]
        if begins != [*ends, given.high + 1] or len(of_missing) != int(given.column.nullable):
            also = ", and null," if given.column.nullable else ""
            message = f"expected every value{also} of column {constraint.of} in exactly one `when`"
            raise _fault(constraint, "cases", message)
        starts, stops, then, gone = (np.array(part) for part in zip(*cases, strict=True))
        return cls(
            column=constraint.column, of_column=constraint.of, starts=starts, ends=stops,
            then=then, gone=gone.astype(np.bool_), if_missing=[*of_missing, (0, False)][0],
        )  # fmt: skip

    def _follows(self, cells: Cells) -> tuple[Whole, Mask]:
        whole, missing = cells.whole[self.of_column], cells.missing[self.of_column]
        place = np.maximum(np.searchsorted(self.starts, whole, side="right") - 1, 0)
        then, gone = self.if_missing
        return np.where(missing, then, self.then[place]), np.where(missing, gone, self.gone[place])

    def broken(self, cells: Cells) -> Mask:
        """Return rows whose cell is not the one that follows."""
        whole, gone = self._follows(cells)
        same = (whole == cells.whole[self.column]) & ~gone
        return np.where(cells.missing[self.column], ~gone, ~same)

    def projected(self, cells: Cells, *, turn: int | None) -> Cells:
        """Set the cell that follows; in odd turns change `of` instead, where possible."""
        projection = cells.changed(self.column, *self._follows(cells))
        return self._preceded(cells, projection) if turn is not None and turn % 2 else projection

    def _preceded(self, cells: Cells, projection: Cells) -> Cells:
        """Move `of` to the nearest value from which the row's cell follows, if there is one."""
        whole, missing = cells.whole[self.of_column], cells.missing[self.of_column]
        then, gone = cells.whole[self.column], cells.missing[self.column]
        best, far = whole, np.full(whole.shape, np.inf)
        cases = zip(self.starts, self.ends, self.then, self.gone, strict=True)
        for low, high, value, is_gone in cases:
            fits = np.where(gone, is_gone, (value == then) & ~is_gone)
            near = np.where(missing, low, np.clip(whole, low, high))
            step = np.where(fits, np.abs(near - whole), np.inf)
            best, far = np.where(step < far, near, best), np.minimum(step, far)
        repaired = cells.changed(self.of_column, best, np.zeros_like(missing))
        return projection.put(np.isfinite(far), repaired.take(np.isfinite(far)))


@dataclass(frozen=True, kw_only=True)
class TotalRule:
    """A `Total`: the sum of sign times value is at most the constant (in steps), or equals it."""

    signs: Mapping[str, int]
    lattices: Mapping[str, Lattice]
    constant: int
    exact: bool
    holds: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, constraint: Total, lattices: Mapping[str, Lattice], derived: Derived) -> Self:
        """Raises SchemaError: columns that cannot be added, or a total out of reach."""
        names = constraint.columns
        if len(set(names)) < len(names):
            raise _fault(constraint, "sum", "a column is named twice; name each column once")
        mine = {name: lattices[name] for name in names}
        signs = {name: 1 if name in constraint.parts else -1 for name in names}
        _check_units(constraint, mine, signs)
        constant = 0
        if not isinstance(constraint.total, str):
            first = mine[names[0]]
            try:
                constant = first.whole(constraint.total)
            except SchemaError:
                allowed = f"a total of at most {first.decimals} decimals, as its columns have"
                raise _fault(constraint, "sum", allowed=allowed) from None
        least = sum(_ends(mine[name], sign)[0] for name, sign in signs.items())
        most = sum(_ends(mine[name], sign)[1] for name, sign in signs.items())
        if max(abs(least), abs(most), abs(constant)) > _LARGEST:
            raise _fault(constraint, "sum", "bounds too large to be added exactly; narrow them")
        if least > constant or (constraint.exact and most < constant):
            raise _fault(constraint, "sum", "cannot hold within the bounds of its columns")
        return cls(
            signs=signs, lattices=mine, constant=constant, exact=constraint.exact,
            holds=derived.holds(constraint),
        )  # fmt: skip

    def broken(self, cells: Cells) -> Mask:
        """Return rows whose sum is not as stated; none where a cell is missing."""
        total = np.sum([sign * cells.whole[name] for name, sign in self.signs.items()], axis=0)
        off = total != self.constant if self.exact else total > self.constant
        gaps = np.logical_or.reduce([cells.missing[name] for name in self.signs])
        return np.asarray(off & ~gaps)

    def projected(self, cells: Cells, *, turn: int | None) -> Cells:
        """Return the nearest whole numbers within the bounds; first columns move least."""
        pending, projection = np.ones(next(iter(cells.whole.values())).shape, dtype=np.bool_), cells
        names = [*self.signs]
        alone = [frozenset(names) - {names[turn % len(names)]}] if turn else []  # but one column
        for held in (frozenset[str](),) if turn is None else (*alone, *self.holds):
            whole, within_reach = self._nearest(cells, held)
            now = pending & within_reach
            for name, values in whole.items():
                values = np.where(now, values, projection.whole[name])
                projection = projection.changed(name, values, cells.missing[name])
            pending &= ~now
        return projection

    def _nearest(self, cells: Cells, held: frozenset[str]) -> tuple[dict[str, Whole], Mask]:
        """Return the nearest whole numbers with some columns held, and whether there are any.

        All others move by one amount towards the total, as far as their bounds allow: no other
        choice is nearer, as each further step costs the same in every column that still moves.
        """
        signs = np.array([*self.signs.values()], dtype=np.int64)[:, None]
        numbers = np.array([cells.whole[name] for name in self.signs]) * signs
        ends = [_ends(self.lattices[name], sign) for name, sign in self.signs.items()]
        stays = np.array([name in held for name in self.signs])[:, None]
        low, high = np.where(stays, numbers, np.array(ends, dtype=np.int64).T[:, :, None])
        rows = numbers.sum(axis=0) < self.constant  # mirrored, so that every sum comes down
        numbers = np.where(rows, -numbers, numbers)
        low, high = np.where(rows, -high, low), np.where(rows, -low, high)
        goal = np.where(rows, -self.constant, self.constant)

        def moved(step: Whole) -> Whole:
            return np.asarray(np.clip(numbers - step, low, high))

        short, enough = np.zeros(rows.shape, dtype=np.int64), (numbers - low).max(axis=0)
        while np.any(enough - short > 1):
            middle = short + (enough - short) // 2
            reached = moved(middle).sum(axis=0) <= goal
            short, enough = np.where(reached, short, middle), np.where(reached, middle, enough)
        nearest, before = moved(enough), moved(short)
        spare = goal - nearest.sum(axis=0)
        free = before > nearest  # one step of each column that moved last may be given back
        nearest = nearest + (free & (np.cumsum(free, axis=0) <= spare))
        whole = np.where(rows, -nearest, nearest) * signs
        return dict(zip(self.signs, whole, strict=True)), spare >= 0


def _fault(
    constraint: Constraint, field: str, found: str = "", *, allowed: str = ""
) -> SchemaError:
    return SchemaError(found, field=f"constraint {constraint.name}: {field}", allowed=allowed)


def _region(constraint: Constraint, field: str, condition: Condition, lattice: Lattice) -> Region:
    try:
        return Region.of(condition, lattice)
    except SchemaError as reason:
        raise _fault(constraint, field, str(reason)) from None


def _is_everything(region: Region) -> bool:
    lattice = region.lattice
    ends = [*zip(region.lows, region.highs, strict=True)]
    is_full = ends == [(lattice.low, lattice.high)]
    return is_full and (region.missing or not lattice.column.nullable)


def _following(constraint: Lookup, then: Any, lattice: Lattice) -> tuple[int, bool]:
    region = _region(constraint, "cases", Condition(values=(then,)), lattice)
    return (lattice.low, True) if region.missing else (int(region.lows[0]), False)


def _ends(lattice: Lattice, sign: int) -> tuple[int, int]:
    ends = (sign * lattice.low, sign * lattice.high)
    return min(ends), max(ends)


def _check_units(
    constraint: Total, lattices: Mapping[str, Lattice], signs: Mapping[str, int]
) -> None:
    """Raise SchemaError unless the columns can be added: numbers of one step, or times."""
    kinds = {name: lattice.column.kind for name, lattice in lattices.items()}
    if any(lattice.column.is_discrete for lattice in lattices.values()):
        raise _fault(constraint, "sum", allowed="columns of numbers or dates (levels: `never`)")
    timed = {kind for kind in kinds.values() if kind in (ColumnKind.DATE, ColumnKind.DATETIME)}
    if len({lattice.decimals for lattice in lattices.values()}) > 1:
        raise _fault(constraint, "sum", allowed="columns of the same `decimals` (integers have 0)")
    if not timed:
        return
    clocks = [sign for name, sign in signs.items() if kinds[name] in timed]
    if len(timed) > 1 or sorted(clocks) != [-1, 1]:
        allowed = "one date in sum, one of the same kind as its bound, and else numbers"
        raise _fault(constraint, "sum", allowed=allowed)
