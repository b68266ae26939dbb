"""Decide constraints and repair synthetic rows: an admissible row, not always the nearest."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpiw.data.scaled import ScaledTable
from dpiw.data.schema.columns import Column
from dpiw.data.schema.constraints import Constraint, Derived, Lookup, Never, Repair, Total
from dpiw.data.schema.rule_kinds import (
    Cells,
    Lattice,
    LookupRule,
    Mask,
    NeverRule,
    TotalRule,
    Whole,
)
from dpiw.errors import SchemaError, nearest

ROUNDS = 16
"""Passes over all rules, in each of three phases: nearest rows, what follows, other ways."""

_DIGITS = 4
"""In the last phase rules change their way every 1, 2, 4 or 8 passes, by their place."""

_AT_ONCE = 1024
"""Rows compared with all public rows at once; bounds memory."""

PUBLIC_ROWS = 512
"""Rows made of the dictionary alone, to test whether constraints can hold together."""


Rule = NeverRule | LookupRule | TotalRule
"""`broken` rows, and the nearest rows that satisfy it, `projected`. For rules that do not come
together, `turn` 0 moves columns that follow; each other number tries another way.
"""

_KINDS: Mapping[type, Any] = {Never: NeverRule, Lookup: LookupRule, Total: TotalRule}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """All constraints, each with its rule, the lattices, and `public` rows that break none."""

    constraints: tuple[Constraint, ...]
    rules: tuple[Rule, ...]
    lattices: Mapping[str, Lattice]
    public: Cells

    @classmethod
    def of(cls, constraints: Sequence[Constraint], released: Sequence[Column]) -> Self:
        """Check constraints against columns and each other; SchemaError names the constraint."""
        columns = {column.name: column for column in released}
        names: set[str] = set()
        lattices: dict[str, Lattice] = {}
        for constraint in constraints:
            field = f"constraint {constraint.name}"
            if constraint.name in names:
                raise SchemaError(
                    "another constraint has this name; rename one", field=f"{field}: name"
                )
            names.add(constraint.name)
            for name in constraint.columns:
                if name not in columns:
                    message = f"no released column is called {name[:64]}{nearest(name, columns)}"
                    raise SchemaError(message, field=field)
                if columns[name].unseen:
                    message = f"column {name} has unseen: true; a constraint needs declared levels"
                    raise SchemaError(message, field=field)
                try:
                    lattices[name] = Lattice(column=columns[name])
                except SchemaError as reason:
                    raise SchemaError(reason, field=field) from None
        derived = Derived.of(constraints)
        rules = tuple(_KINDS[type(c)].of(c, lattices, derived) for c in constraints)
        public = _mended_together(constraints, rules, lattices)
        return cls(constraints=tuple(constraints), rules=rules, lattices=lattices, public=public)

    def broken(self, scaled: ScaledTable) -> Mapping[str, Mask]:
        """Return by constraint which rows break it; masks of shape (rows,)."""
        cells, pairs = self._read(scaled), zip(self.constraints, self.rules, strict=True)
        return {constraint.name: rule.broken(cells) for constraint, rule in pairs}

    def projected(self, scaled: ScaledTable, *, only: Repair | None = None) -> ScaledTable:
        """Repair rows by constraints of one repair, or all; some may still break one."""
        pairs = zip(self.constraints, self.rules, strict=True)
        chosen = [rule for constraint, rule in pairs if only in (None, constraint.repair)]
        return self._written(scaled, _repaired(chosen, self._read(scaled)))

    def replaced(self, scaled: ScaledTable) -> ScaledTable:
        """Replace rows by the nearest of `public`, keeping own cells that break nothing."""
        original = self._read(scaled)
        rows = np.arange(scaled.rows)
        parts = [rows[start : start + _AT_ONCE] for start in range(0, scaled.rows, _AT_ONCE)]
        places = [self._nearest_public(original.take(part)) for part in parts]
        cells = self.public.take(np.concatenate([np.arange(0), *places]))
        for name in self.lattices:
            candidate = cells.changed(name, original.whole[name], original.missing[name])
            whole = ~_any_broken(self.rules, candidate)
            cells = cells.put(whole, candidate.take(whole))
        return self._written(scaled, cells)

    def _nearest_public(self, cells: Cells) -> Whole:
        """Indices into `public`, shape (rows,); ties: the first."""
        far = np.zeros((next(iter(cells.whole.values())).size, PUBLIC_ROWS))
        for name, lattice in self.lattices.items():
            whole, missing = cells.whole[name][:, None], cells.missing[name][:, None]
            steps, span = np.abs(whole - self.public.whole[name]), lattice.high - lattice.low
            apart = steps > 0 if lattice.column.is_discrete else steps / max(span, 1)
            gone = self.public.missing[name]
            far += np.where(missing | gone, missing != gone, apart)
        return np.asarray(np.argmin(far, axis=1), dtype=np.int64)

    def _written(self, scaled: ScaledTable, cells: Cells) -> ScaledTable:
        written = {n: o.write(cells.whole[n], cells.missing[n]) for n, o in self.lattices.items()}
        return ScaledTable({**scaled.columns, **written}, scaled.rows)

    def _read(self, scaled: ScaledTable) -> Cells:
        read = {n: lattice.read(scaled.columns[n]) for n, lattice in self.lattices.items()}
        return Cells(
            whole={n: whole for n, (whole, _) in read.items()},
            missing={n: missing for n, (_, missing) in read.items()},
        )


def _any_broken(rules: Sequence[Rule], cells: Cells) -> Mask:
    rows = np.zeros(next(iter(cells.missing.values())).shape, dtype=np.bool_)
    return np.asarray(np.logical_or.reduce([rows, *(rule.broken(cells) for rule in rules)]))


def _repaired(rules: Sequence[Rule], cells: Cells) -> Cells:
    """Repair rows by each rule repeatedly; some may still break one."""
    for turns in _turns(len(rules)):
        rows = _any_broken(rules, cells)
        if not rows.any():
            break
        repaired = cells.take(rows)
        for rule, turn in zip(rules, turns, strict=True):
            broken = rule.broken(repaired)
            if broken.any():
                moved = rule.projected(repaired.take(broken), turn=turn)
                repaired = repaired.put(broken, moved)
        cells = cells.put(rows, repaired)
    return cells


def _turns(rules: int) -> Iterator[Sequence[int | None]]:
    for _ in range(ROUNDS):
        yield [None] * rules
    for _ in range(ROUNDS):
        yield [0] * rules
    for turn in range(ROUNDS):
        yield [turn >> place % _DIGITS for place in range(rules)]


def _mended_together(
    constraints: Sequence[Constraint], rules: Sequence[Rule], lattices: Mapping[str, Lattice]
) -> Cells:
    """Return the repaired public rows; raise SchemaError if a row still breaks a constraint."""
    text = json.dumps([constraint.to_mapping() for constraint in constraints], sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    whole, missing = {}, {}
    for name, lattice in lattices.items():
        whole[name] = rng.integers(lattice.low, lattice.high, size=PUBLIC_ROWS, endpoint=True)
        missing[name] = rng.random(PUBLIC_ROWS) < 0.1 * lattice.column.nullable
    repaired = _repaired(rules, Cells(whole=whole, missing=missing))
    broken = [int(rule.broken(repaired).sum()) for rule in rules]
    if any(broken):
        worst = constraints[int(np.argmax(broken))]
        others = [c.name for c in constraints if c is not worst and {*c.columns} & {*worst.columns}]
        beside = "within the bounds and levels of its columns"
        if others:
            beside = f"together with the others on its columns ({', '.join(others)})"
        why = ", as some rows have no repair" if sum(broken) < PUBLIC_ROWS else ""
        message = f"cannot hold {beside}{why}; loosen or remove one of them"
        raise SchemaError(message, field=f"constraint {worst.name}")
    return repaired
