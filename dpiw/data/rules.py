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
from dpiw.data.constraints import Constraint, Lookup, Never, Repair, Total
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

    def projected(self, cells: Cells) -> Cells:
        """The nearest rows that do not, of rows that do."""
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
                    told = f"no released column is called {name}{nearest(name, columns)}"
                    raise SchemaError(f"constraint {constraint.name}: {told}")
                lattices[name] = _lattice(constraint, columns[name])
        derived = frozenset(one.column for one in constraints if isinstance(one, Lookup))
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
        cells, names = self._read(scaled), set[str]()
        chosen = [
            (constraint, rule)
            for constraint, rule in zip(self.constraints, self.rules, strict=True)
            if only in (None, constraint.repair)
        ]
        for _ in range(ROUNDS):
            moved = False
            for constraint, rule in chosen:
                rows = rule.broken(cells)
                if rows.any():
                    cells = cells.put(rows, rule.projected(cells.take(rows)))
                    names.update(constraint.columns)
                    moved = True
            if not moved:
                break
        written = {n: self.lattices[n].write(cells.whole[n], cells.missing[n]) for n in names}
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
