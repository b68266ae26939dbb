"""A table's columns as far as a metadata file describes them; None: open, for a person to settle.

Counts, statistics, examples and default values in a metadata file come from rows and are not taken.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpiw.data.cells.formats import CANONICAL
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.declarations import folded_name, name_fault
from dpiw.errors import SchemaError, nearest

Bound = int | float | str
"""A number in the column's own units; ISO text of a date or date-time."""

_STAND_INS: Mapping[ColumnKind, tuple[Bound, Bound]] = {
    ColumnKind.CONTINUOUS: (0, 1),
    ColumnKind.INTEGER: (0, 1),
    ColumnKind.DATE: ("2000-01-01", "2000-01-02"),
    ColumnKind.DATETIME: ("2000-01-01", "2000-01-02"),
}
_MAX_DESCRIPTION = 300
_KEY = "the primary key: it names a row, and a person only where each person has one row"

_SECOND = (
    "it may name rows, and another column names the person: settle its kind, or take it out of the"
    " table"
)


@dataclass(frozen=True, kw_only=True)
class ColumnDraft:
    """One column as far as metadata settles it; None or empty: open.

    Attributes:
        other: the level that unknown cells become.
        words: `true_values` and `false_values` of a boolean.
        written: fields of `dpiw.data.cells.formats` that the metadata states.
        provenance: of bounds or levels; empty if there are none.
        notes: for the reader of the draft; our own words only.
    """

    name: str
    kind: ColumnKind | None = None
    role: ColumnRole = ColumnRole.FEATURE
    nullable: bool | None = None
    lower: Bound | None = None
    upper: Bound | None = None
    levels: tuple[str, ...] = ()
    other: str | None = None
    decimals: int | None = None
    words: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    written: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    provenance: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        plain = "".join(letter if letter.isprintable() else " " for letter in self.description)
        object.__setattr__(self, "description", " ".join(plain.split())[:_MAX_DESCRIPTION].strip())
        if self.lower is None and self.upper is None and not self.levels:
            object.__setattr__(self, "provenance", "")

    @property
    def needs_bounds(self) -> bool:
        """Whether it is a released column of a numeric kind."""
        released = self.role is not ColumnRole.IDENTIFIER
        return released and self.kind in _STAND_INS

    @property
    def needs_levels(self) -> bool:
        """Whether it is a released categorical or ordinal column."""
        released = self.role is not ColumnRole.IDENTIFIER
        return released and self.kind in (ColumnKind.CATEGORICAL, ColumnKind.ORDINAL)

    def settled(self) -> ColumnDraft:
        """Return the draft with made-up values for all that is open."""
        if self.role is ColumnRole.IDENTIFIER:
            return self
        values: dict[str, Any] = {}
        if self.kind is None:
            values = {"kind": ColumnKind.BOOLEAN, "words": None}
        if self.needs_bounds and self.kind is not None:
            low, high = self.lower, self.upper
            if low is None and high is None:
                low, high = _STAND_INS[self.kind]
            elif low is None or high is None:
                low, high = _beside(low, high, self.kind)
            values = {"lower": low, "upper": high}
        if self.needs_levels and not self.levels:
            values = {"levels": ("a",), "other": None}
        if self.needs_bounds or self.needs_levels:
            values["provenance"] = self.provenance or "other: a stand-in"
        return dataclasses.replace(self, **values)

    def to_mapping(self) -> dict[str, Any]:
        """Return the settled fields, as a data dictionary has them."""
        if self.role is ColumnRole.IDENTIFIER:
            description = {"description": self.description} if self.description else {}
            return {"name": self.name, "role": self.role.value} | description
        words = self.words if self.kind is ColumnKind.BOOLEAN else None
        values: dict[str, Any] = {
            "name": self.name,
            "kind": None if self.kind is None else self.kind.value,
            "role": None if self.role is ColumnRole.FEATURE else self.role.value,
            "nullable": self.nullable,
            "lower": self.lower if self.needs_bounds else None,
            "upper": self.upper if self.needs_bounds else None,
            "levels": list(self.levels) if self.needs_levels and self.levels else None,
            "other": self.other if self.needs_levels else None,
            "decimals": self.decimals if self.kind is ColumnKind.CONTINUOUS else None,
            "true_values": None if words is None else list(words[0]),
            "false_values": None if words is None else list(words[1]),
            **self.written,
            "description": self.description or None,
            "provenance": self.provenance or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def released(self) -> ColumnDraft:
        """Return an identifier as a feature, with a note; every other column unchanged."""
        if self.role is not ColumnRole.IDENTIFIER:
            return self
        return dataclasses.replace(self, role=ColumnRole.FEATURE, notes=(_SECOND,)).admissible()

    def admissible(self) -> ColumnDraft:
        """Return the draft without what a data dictionary would refuse, and with a note on it."""
        draft = self
        for opened in _LESS:
            draft = dataclasses.replace(draft, **opened)
            if _loads(draft):
                break
        if draft == self:
            return self
        note = "dpiw does not admit the metadata's bounds, levels or formats, and left them out"
        return dataclasses.replace(draft, notes=(*draft.notes, note))


_LESS: tuple[dict[str, Any], ...] = (
    {},
    {"written": {}, "words": None},
    {"decimals": None},
    {"lower": None, "upper": None, "levels": (), "other": None, "provenance": ""},
)
"""Fields to open, step by step, until the rest is admissible."""


def _loads(draft: ColumnDraft) -> bool:
    try:
        column = Column.from_mapping(draft.settled().to_mapping())
    except (SchemaError, TypeError, OverflowError):
        return False
    if column.format_fault(column.written.over(CANONICAL)) is not None:
        return False
    return all(word.isprintable() for words in draft.words or () for word in words)


def _beside(low: Bound | None, high: Bound | None, kind: ColumnKind) -> tuple[Bound, Bound]:
    if isinstance(low, str) or isinstance(high, str):
        return "1700-01-01" if low is None else low, "2200-01-01" if high is None else high
    if high is None and low is not None:
        return low, low + max(1, abs(low) if kind is ColumnKind.CONTINUOUS else 1)
    assert high is not None
    return high - max(1, abs(high) if kind is ColumnKind.CONTINUOUS else 1), high


@dataclass(frozen=True, kw_only=True)
class TableDraft:
    """A table as far as metadata describes it; `max_rows`: rows that one person may have."""

    columns: tuple[ColumnDraft, ...]
    name: str = ""
    max_rows: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError("the metadata names no columns; try --header NAMES")
        for place, column in enumerate(self.columns, start=1):
            if fault := name_fault(column.name):
                raise SchemaError(fault, field=f"the metadata: name {place} of {len(self.columns)}")
        folded = [folded_name(column.name) for column in self.columns]
        if len({*folded}) < len(folded):
            second = next(n for n, name in enumerate(folded) if name in folded[:n])
            raise SchemaError(
                f"columns {folded.index(folded[second]) + 1} and {second + 1} of the metadata have"
                " names that are equal up to case; rename one, in the table too"
            )

    def settled(self) -> TableDraft:
        """Return the draft with made-up values for all that is open."""
        return dataclasses.replace(self, columns=tuple(c.settled() for c in self.columns))

    def with_key(self, names: Sequence[str]) -> TableDraft:
        """Make a primary key of one column the identifier; other keys change nothing."""
        if len(names) != 1 or names[0] not in {column.name for column in self.columns}:
            return self
        return self.with_role(names[0], ColumnRole.IDENTIFIER, note=_KEY)

    def with_role(self, name: str, role: ColumnRole, *, note: str | None = None) -> TableDraft:
        """Return the draft with another role for one column; SchemaError if it is missing."""
        names = [column.name for column in self.columns]
        if name not in names:
            fault = f"the metadata has no column {name!r:.80}{nearest(name, names)}"
            raise SchemaError(fault, field=f"--{role.value}")
        place, columns = names.index(name), list(self.columns)
        if role is ColumnRole.IDENTIFIER:  # the first one names the person
            columns[:place] = [column.released() for column in columns[:place]]
        notes = (note,) if note else columns[place].notes
        columns[place] = dataclasses.replace(columns[place], role=role, notes=notes)
        return dataclasses.replace(self, columns=tuple(columns))


def number(value: object) -> int | float | None:
    """Return a finite number, also from decimal text; else None."""
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d{1,30}(\.\d{0,30})?\s*", value):
        return float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def bounds(kind: ColumnKind | None, lower: object, upper: object) -> dict[str, Any]:
    """Return `lower` and `upper` of a draft (None where inadmissible for the kind), and `notes`."""
    low, high = _bound(kind, lower, math.ceil), _bound(kind, upper, math.floor)
    notes = tuple(
        f"the metadata's {side} bound is no {kind.value} value: left out"
        for side, stated, bound in (("lower", lower, low), ("upper", upper, high))
        if kind is not None and kind in _STAND_INS and stated is not None and bound is None
    )
    return {"lower": low, "upper": high, "notes": notes}


def _bound(
    kind: ColumnKind | None, stated: object, inwards: Callable[[float], int]
) -> Bound | None:
    if kind in (ColumnKind.DATE, ColumnKind.DATETIME):
        return stated if isinstance(stated, str) else None
    if kind not in (ColumnKind.INTEGER, ColumnKind.CONTINUOUS):
        return None
    bound = number(stated)
    return bound if bound is None or kind is ColumnKind.CONTINUOUS else inwards(bound)


def texts(values: Iterable[object]) -> tuple[str, ...]:
    """Return levels as text: whole numbers without a point, each once, in order."""
    levels = (
        str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        for value in values
        if not isinstance(value, bool) and value is not None
    )
    return tuple(dict.fromkeys(text.strip() for text in levels))
