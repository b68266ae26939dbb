"""A dictionary's constraints together, decided and repaired: a pure function of synthetic rows.

Each rule's own projection is the nearest row (`dpiw.data.rule_kinds`). Of several rules together it
is an admissible row, not the nearest one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from dpiw.data.columns import Column
from dpiw.data.constraints import Constraint, Derived, Lookup, Never, Repair, Total
from dpiw.data.lattice import Cells, Lattice, Mask
from dpiw.data.rule_kinds import LookupRule, NeverRule, TotalRule
from dpiw.data.scaled import ScaledTable
from dpiw.errors import SchemaError, nearest

ROUNDS = 16
"""Most passes over all rules: what mends one may break another."""

PUBLIC_ROWS = 512
"""Made of the dictionary alone, to see whether constraints can hold together."""


class Rule(Protocol):
    """A constraint that knows its columns."""

    def broken(self, cells: Cells) -> Mask:
        """Which rows break it."""
        ...

    def projected(self, cells: Cells, *, in_turn: bool) -> Cells:
        """The nearest rows that do not, of rows that do.

        Args:
            cells: the rows.
            in_turn: whether to move what follows from other columns, and not these, if that can be:
                where the nearest rows of several rules do not come together.
        """
        ...


_KINDS: Mapping[type, Any] = {Never: NeverRule, Lookup: LookupRule, Total: TotalRule}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """All constraints of a dictionary.

    Attributes:
        constraints: as stated.
        rules: of each, in order.
        lattices: of the columns that they name.
    """

    constraints: tuple[Constraint, ...]
    rules: tuple[Rule, ...]
    lattices: Mapping[str, Lattice]

    @classmethod
    def of(cls, constraints: Sequence[Constraint], released: Sequence[Column]) -> Self:
        """Check constraints against the columns, and against each other.

        Raises:
            SchemaError: names the constraint: a name twice, a column that is not released, a value
                that cannot occur, or nothing that satisfies it, alone or with the others.
        """
        columns = {column.name: column for column in released}
        names: set[str] = set()
        lattices: dict[str, Lattice] = {}
        for constraint in constraints:
            if constraint.name in names:
                raise SchemaError(f"constraint {constraint.name}: name: stated twice")
            names.add(constraint.name)
            for name in constraint.columns:
                if name not in columns:
                    told = f"no released column is called {name[:64]}{nearest(name, columns)}"
                    raise SchemaError(f"constraint {constraint.name}: {told}")
                lattices[name] = _lattice(constraint, columns[name])
        derived = Derived.of(constraints)
        made = cls(
            constraints=tuple(constraints),
            rules=tuple(_KINDS[type(one)].of(one, lattices, derived) for one in constraints),
            lattices=lattices,
        )
        made.check_together()
        return made

    def broken(self, scaled: ScaledTable) -> Mapping[str, Mask]:
        """By constraint, which of the rows break it; each mask of shape (rows,)."""
        cells = self._read(scaled)
        return {
            constraint.name: rule.broken(cells)
            for constraint, rule in zip(self.constraints, self.rules, strict=True)
        }

    def projected(self, scaled: ScaledTable, *, only: Repair | None = None) -> ScaledTable:
        """Rows that break no constraint, or in rare cases of several still do; others unchanged.

        Args:
            scaled: admissible rows.
            only: by the constraints of this repair; None: by all.
        """
        cells = self._read(scaled)
        chosen = [
            rule
            for constraint, rule in zip(self.constraints, self.rules, strict=True)
            if only in (None, constraint.repair)
        ]
        for in_turn in (False, True):
            rows = _any_broken(chosen, cells)
            if not rows.any():
                break
            cells = cells.put(rows, _settled(chosen, cells.take(rows), in_turn=in_turn))
        written = {n: o.write(cells.whole[n], cells.missing[n]) for n, o in self.lattices.items()}
        return ScaledTable({**scaled.columns, **written}, scaled.rows)

    def check_together(self) -> None:
        """Raise SchemaError unless most rows of a public table can be mended.

        The rows are uniform on the dictionary's values, of a generator that the constraints fix:
        what was paid for is not lost afterwards because no row satisfies them.
        """
        text = json.dumps([one.to_mapping() for one in self.constraints], sort_keys=True)
        digest = hashlib.sha256(text.encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:16], "big"))
        columns = {}
        for name, lattice in self.lattices.items():
            whole = rng.integers(lattice.low, lattice.high, size=PUBLIC_ROWS, endpoint=True)
            gap = rng.random(PUBLIC_ROWS) < 0.1 * lattice.column.nullable
            columns[name] = lattice.write(whole, gap)
        mended = self.projected(ScaledTable(columns, PUBLIC_ROWS))
        broken = self.broken(mended)
        if np.logical_or.reduce([*broken.values()]).sum() > PUBLIC_ROWS // 2:
            name = max(broken, key=lambda one: int(broken[one].sum()))
            raise SchemaError(f"constraint {name}: cannot hold together with the others")

    def _read(self, scaled: ScaledTable) -> Cells:
        read = {n: lattice.read(scaled.columns[n]) for n, lattice in self.lattices.items()}
        return Cells(
            whole={n: whole for n, (whole, _) in read.items()},
            missing={n: missing for n, (_, missing) in read.items()},
        )


def _lattice(constraint: Constraint, column: Column) -> Lattice:
    try:
        return Lattice(column=column)
    except SchemaError as reason:
        raise SchemaError(f"constraint {constraint.name}: {reason}") from None


def _any_broken(rules: Sequence[Rule], cells: Cells) -> Mask:
    rows = np.zeros(next(iter(cells.missing.values())).shape, dtype=np.bool_)
    return np.asarray(np.logical_or.reduce([rows, *(rule.broken(cells) for rule in rules)]))


def _settled(rules: Sequence[Rule], cells: Cells, *, in_turn: bool) -> Cells:
    """Rows mended by each rule, again and again until none breaks one."""
    for _ in range(ROUNDS):
        if not _any_broken(rules, cells).any():
            break
        for rule in rules:
            rows = rule.broken(cells)
            if rows.any():
                cells = cells.put(rows, rule.projected(cells.take(rows), in_turn=in_turn))
    return cells
