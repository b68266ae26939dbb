"""The public schema: columns with public bounds and levels, and every view of a row they define.

A row is raw cells, *scaled* values, the *encoded* matrix in [0, 1] (generators), or the *centred*
features (weights; docs/method.md section 3), whose norm the schema alone bounds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.cells.formats import CellFormat
from dpiw.data.scaled import ScaledTable
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.confidential import Confidential
from dpiw.data.schema.constraints import Constraint, in_order, read_constraint
from dpiw.data.schema.declarations import NAME, folded_name, name_fault
from dpiw.data.schema.encoding import project_cells, scale_cells, unscale_cells
from dpiw.data.schema.rules import Rules
from dpiw.errors import SchemaError, SourceError, each, nearest

__all__ = ["Block", "Column", "ColumnKind", "ColumnRole", "PublicSchema", "ScaledTable"]

_Order = Literal["C", "F"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Place of a released column in the encoded and centred matrices.

    Attributes:
        column: the column's name.
        start, stop: half-open range of matrix columns.
        indicator: False: one value in [0, 1]; True: an indicator block (one-hot).
        labels: for each matrix column: the level, `missing`, `present`, or empty for a value.
    """

    column: str
    start: int
    stop: int
    indicator: bool
    labels: tuple[str, ...]

    @property
    def width(self) -> int:
        """Number of matrix columns."""
        return self.stop - self.start


# `dpiw.plan.json_schema` shows the docstring of this class to users, field by field.
@dataclass(frozen=True, kw_only=True)
class PublicSchema:
    """The public data dictionary of one table.

    Attributes:
        name: of the table: 1 to 63 lower-case letters, digits, `-` and `_`, the first no sign.
        columns: every column of the file in its order, identifiers included.
        constraints: what no row can be; synthetic rows are made to satisfy them.
    """

    name: str
    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        """Raises SchemaError if names, targets or constraints do not fit together (`Rules.of`)."""
        object.__setattr__(self, "columns", tuple(self.columns))
        field = f"schema {self.name}"
        if not isinstance(self.name, str) or not re.fullmatch(NAME, self.name):
            allowed = "1 to 63 lower-case letters, digits, `-` and `_`, the first no sign"
            raise SchemaError(field="schema name", allowed=allowed)
        if not all(isinstance(column, Column) for column in self.columns):
            raise SchemaError("columns: expected Column values", field=field)
        folded: dict[str, str] = {}
        for name in (column.name for column in self.columns):
            if first := folded.get(folded_name(name)):
                why = "equal up to case, width or white space; rename one, in the file too"
                raise SchemaError(why, field=f"columns {first} and {name}")
            folded[folded_name(name)] = name
        if not self.released:
            raise SchemaError(
                "no column is released; declare one that is no identifier", field=field
            )
        if sum(column.role is ColumnRole.TARGET for column in self.columns) > 1:
            raise SchemaError("more than one target; expected one at most", field=field)
        if len(set(self.encoded_names)) < self.width:
            message = "a column has the name of another's indicator, such as sex=male; rename it"
            raise SchemaError(message, field=field)
        object.__setattr__(self, "constraints", in_order(self.constraints, self.released))
        _ = self.rules

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read `to_mapping`'s form; raise SchemaError for an unknown key."""
        if not isinstance(mapping, Mapping) or {*mapping} - {"constraints"} != {"name", "columns"}:
            allowed = "exactly the keys `name` and `columns`, and perhaps `constraints`"
            raise SchemaError(field="a data dictionary", allowed=allowed)
        columns, constraints = mapping["columns"], mapping.get("constraints", ())
        for key, items in (("columns", columns), ("constraints", constraints)):
            if not isinstance(items, (list, tuple)):
                raise SchemaError(field=key, allowed="a list")
        for place, column in enumerate(columns, start=1):
            if isinstance(column, Mapping) and (fault := name_fault(column.get("name"))):
                raise SchemaError(fault, field=f"column {place} of {len(columns)}: name")
        return cls(
            name=mapping["name"],
            columns=each(Column.from_mapping, columns, SchemaError),
            constraints=tuple(map(read_constraint, constraints, range(1, len(constraints) + 1))),
        )

    @classmethod
    def from_yaml(cls, path: Path | str, *, confidential: Confidential | None = None) -> Self:
        """Read a YAML data dictionary; see `dpiw.data.schema.dictionary` for what is refused."""
        # Imported here, because analysts load schemas without the YAML library.
        from dpiw.data.schema.dictionary import read_dictionary
        from dpiw.data.yaml import marked

        with marked(Path(path), SchemaError):
            return cls.from_mapping(read_dictionary(Path(path), confidential=confidential))

    def to_mapping(self) -> dict[str, Any]:
        """Return JSON values; `from_mapping(to_mapping())` equals self."""
        columns = [column.to_mapping() for column in self.columns]
        mapping: dict[str, Any] = {"name": self.name, "columns": columns}
        if self.constraints:
            mapping["constraints"] = [constraint.to_mapping() for constraint in self.constraints]
        return mapping

    def published_mapping(self) -> dict[str, Any]:
        """Return `to_mapping` without cell formats and expectations, which no release shows."""
        columns = [replace(c, written=CellFormat(), expectations=()) for c in self.columns]
        return replace(self, columns=tuple(columns)).to_mapping()

    @cached_property
    def rules(self) -> Rules | None:
        """The constraints, ready to decide synthetic rows; None without any."""
        return Rules.of(self.constraints, self.released) if self.constraints else None

    @cached_property
    def released(self) -> tuple[Column, ...]:
        """The columns without identifiers, in order."""
        return tuple(c for c in self.columns if c.role is not ColumnRole.IDENTIFIER)

    @property
    def identifier(self) -> Column | None:
        """The first identifier column, or None."""
        return next((c for c in self.columns if c.role is ColumnRole.IDENTIFIER), None)

    @property
    def target(self) -> Column | None:
        """The target column, or None."""
        return next((c for c in self.columns if c.role is ColumnRole.TARGET), None)

    def column(self, name: str) -> Column:
        """Return the column of that exact name, or raise SchemaError."""
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            near = nearest(name, (column.name for column in self.columns))
            raise SchemaError(f"no column named {name}{near}", field=f"schema {self.name}")
        return found

    # Raw cells and scaled values

    def scale(self, frame: pd.DataFrame) -> ScaledTable:
        """Map cells to their declared range, row by row; raises SourceError for columns only."""
        columns = {}
        for column in self.released:
            name, field = column.name, f"column {column.name}"
            if name not in frame.columns:
                raise SourceError("declared, but missing in the table", field=field)
            cells = frame[name]
            if not isinstance(cells, pd.Series):
                raise SourceError("occurs more than once in the table", field=field)
            columns[name] = scale_cells(column, cells)
        return ScaledTable(columns, len(frame))

    def project(self, scaled: ScaledTable) -> ScaledTable:
        """Return the nearest admissible table; equals `scale(unscale(scaled))`."""
        return ScaledTable(
            {c.name: project_cells(c, self._values(scaled, c)) for c in self.released}, scaled.rows
        )

    def unscale(self, scaled: ScaledTable) -> pd.DataFrame:
        """Return raw cells of declared types and ranges from any scaled table, projected first."""
        return pd.DataFrame(
            {c.name: unscale_cells(c, self._values(scaled, c)) for c in self.released}
        )

    def _values(self, scaled: ScaledTable, column: Column) -> NDArray[Any]:
        values = scaled.columns.get(column.name)
        if values is None:
            raise SchemaError("missing in the scaled table", field=f"column {column.name}")
        return values

    # Scaled values and matrices

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Layout of the encoded and centred matrices, in released order.

        Numeric: one value, then {present, missing} if nullable. Discrete: one indicator block over
        the levels, with `missing` last if nullable.
        """
        blocks: list[Block] = []

        def add(column: Column, indicator: bool, labels: tuple[str, ...]) -> None:
            start = blocks[-1].stop if blocks else 0
            place = {"start": start, "stop": start + len(labels)}
            blocks.append(Block(column=column.name, **place, indicator=indicator, labels=labels))

        for column in self.released:
            missing = ("missing",) if column.nullable else ()
            if column.is_discrete:
                add(column, True, column.level_names + missing)
                continue
            add(column, False, ("",))
            if column.nullable:
                add(column, True, ("present", *missing))
        return tuple(blocks)

    @property
    def width(self) -> int:
        """Columns of the encoded and centred matrices."""
        return self.blocks[-1].stop

    @cached_property
    def encoded_names(self) -> tuple[str, ...]:
        """One unique name per matrix column: `age`, `sex=male`, `age:present`, `age:missing`."""
        names: list[str] = []
        for block in self.blocks:
            levels = self.column(block.column).level_names
            for place, label in enumerate(block.labels):
                sign = "=" if place < len(levels) else ":"  # a level may be called `missing`
                names.append(f"{block.column}{sign}{label}" if block.indicator else block.column)
        return tuple(names)

    def encode(self, scaled: ScaledTable, *, order: _Order = "C") -> NDArray[np.float64]:
        """Matrix in [0, 1], shape (rows, width): values (missing: 1/2) and one-hot blocks."""
        matrix, rows = np.zeros((scaled.rows, self.width), order=order), np.arange(scaled.rows)
        for block in self.blocks:
            column = self.column(block.column)
            values = self._values(scaled, column)
            if not block.indicator:
                matrix[:, block.start] = np.where(np.isnan(values), 0.5, values)
                continue
            if column.is_numeric:
                codes = np.isnan(values).astype(np.int64)
            else:
                codes = np.where(values < 0, column.cardinality, values).astype(np.int64)
            # As in `Bins.codes`, the last place stands in: a cell never leaves its column.
            matrix[rows, block.start + np.minimum(codes, block.width - 1)] = 1.0
        return matrix

    def centred(self, scaled: ScaledTable, *, order: _Order = "C") -> NDArray[np.float64]:
        """Centred features without the constant, shape (rows, width) (docs/method.md section 3).

        Value: v - 1/2, 0 if missing. Block of L labels: (onehot - 1/L)/sqrt(2).
        """
        matrix = self.encode(scaled, order=order)
        for block in self.blocks:
            part = matrix[:, block.start : block.stop]
            part -= 1.0 / block.width if block.indicator else 0.5
            if block.indicator:
                part /= np.sqrt(2.0)
        return matrix
