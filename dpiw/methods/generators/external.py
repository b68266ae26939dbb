"""Rows that another tool made, at a declared cost.

Reads no private row. The file's SHA-256 binds the rows; their cost is charged like other draws, and
reported separately (docs/external.md).
"""

import math
import re
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.source.public_rows import ROWS_FIELD, check_rows_file, read_rows_file
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import NotPublishableError, SpecError
from dpiw.methods.base import CriticKind, StatedNoise, check_effort, whole
from dpiw.methods.generators.base import CalibratedNoise, Synthesizer, ready_for
from dpiw.privacy.declaration import declared_event
from dpiw.privacy.events import DeclaredEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

UNKNOWN = "unknown"
"""An undeclared epsilon."""

_MOST_LETTERS = 500
_NUMBER = re.compile(r"\d{1,30}(\.\d{0,40})?([eE][-+]?\d{1,3})?")


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsModel:
    """The file's rows as a sampler without replacement: no row is published twice."""

    table: SyntheticTable

    one_way: ClassVar[None] = None
    judge: ClassVar[None] = None

    @property
    def at_hand(self) -> int:
        """How many rows there are; a plan checks that they are enough."""
        return self.table.rows

    def sample(self, rows: int, *, rng: np.random.Generator) -> SyntheticTable:
        """`rows` of the file in random order, each at most once; SpecError: more than it has."""
        if not 0 <= rows <= self.table.rows:
            raise SpecError(
                field=f"rows={rows}", allowed=f"a whole number from 0 to {self.table.rows}"
            )
        chosen = rng.permutation(self.table.rows)[:rows]
        return SyntheticTable(schema=self.table.schema, scaled=self.table.scaled.take(chosen))


@dataclass(frozen=True, kw_only=True)
class External(Synthesizer):
    """Public settings of rows made elsewhere: origin and declared cost.

    Attributes:
        rows: path of the Parquet file, of exactly the released columns.
        sha256: of its bytes, 64 lower-case hexadecimal digits.
        tool, version: that made the rows.
        epsilon: declared cost, an exact number > 0; `unknown`: no release accepts the rows.
        delta: in [0, 1).
        relation: of that cost.
        declared_by: the person or body that declares the cost.
        evidence: for the declaration.
        rows_per_unit: public bound on the rows of one protected unit, enforced before the tool read
            the table, if its guarantee is for single rows; 1 if it is for the unit. Required with
            an `id_column`.
        counted_by: key of the run of this ledger and state folder that paid for the rows; None:
            this run pays.
    """

    rows: str
    sha256: str
    tool: str
    version: str
    epsilon: str | float
    delta: str | float
    relation: str
    declared_by: str
    evidence: str
    rows_per_unit: int | None = None
    counted_by: str | None = None
    calibrated: CalibratedNoise | None = None

    method: ClassVar[str] = "external"
    critic: ClassVar[CriticKind] = CriticKind.NONE
    files: ClassVar[frozenset[str]] = frozenset({"rows"})

    def __post_init__(self) -> None:
        for name in ("rows", "tool", "version", "declared_by", "evidence"):
            most = 4096 if name == "rows" else _MOST_LETTERS
            text = getattr(self, name)
            printable = isinstance(text, str) and text.isprintable()
            if not (printable and 0 < len(text.strip()) <= most):
                raise _fault(name, f"1 to {most} printable characters (in quotes, if a number)")
        digests = {"sha256": self.sha256, "counted_by": self.counted_by}
        for name, value in digests.items():
            is_digest = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)
            if not (is_digest or (name == "counted_by" and value is None)):
                raise _fault(name, "64 lower-case hexadecimal digits")
        if self.relation not in [relation.value for relation in NeighbouringRelation]:
            raise _fault("relation", "add_or_remove_one or replace_one")
        if self.rows_per_unit is not None:
            whole("generator.settings.rows_per_unit", self.rows_per_unit, low=1, high=1000)
        if self.private and not _number("epsilon", self.epsilon) > 0:
            raise _fault("epsilon", "a number > 0")
        if not _number("delta", self.delta) < 1:
            raise _fault("delta", "a number in [0, 1)")

    @property
    def private(self) -> bool:
        """Whether an epsilon is declared."""
        return self.epsilon != UNKNOWN and self.epsilon != math.inf

    def at(self, path: Path) -> Self:
        """Return a copy with its rows at another path."""
        return replace(self, rows=str(path))

    def check_file(self, source: Path) -> None:
        """As `dpiw.data.source.public_rows.check_rows_file`."""
        check_rows_file(Path(self.rows), sha256=self.sha256, source=source)

    def rows_model(self, schema: PublicSchema) -> RowsModel:
        """The file's rows, read and checked again; SpecError if one is not as declared."""
        scaled = read_rows_file(Path(self.rows), sha256=self.sha256, schema=schema)
        return RowsModel(table=SyntheticTable(schema=schema, scaled=scaled))

    def kept(self, schema: PublicSchema) -> dict[str, int]:
        """As `MadeElsewhere.kept`."""
        scaled = self.rows_model(schema).table.scaled
        doubled = pd.DataFrame(dict(scaled.columns)).duplicated().sum()
        return {"rows": scaled.rows, "distinct_rows": scaled.rows - int(doubled)}

    def declared(self, unit: PrivacyUnit) -> DeclaredEvent:
        """Declared cost for a unit of the release, converted by `declared_event`."""
        if not self.private:
            raise NotPublishableError(
                f"nobody declares an epsilon for rows of {self.tool}, so no release may hold them;"
                " use rows that have one",
                field="generator.settings.epsilon",
            )
        if unit.id_column is not None and self.rows_per_unit is None:
            raise SpecError(
                "missing",
                field="generator.settings.rows_per_unit",
                allowed=f"a public bound on the rows of one value of {unit.id_column} that"
                f" was enforced before {self.tool} read the table (never a maximum"
                " seen in it), or 1 if its guarantee is for all of them together",
            )
        return declared_event(
            _number("epsilon", self.epsilon),
            _number("delta", self.delta),
            NeighbouringRelation(self.relation),
            rows_per_unit=self.rows_per_unit or 1,
            unit=unit,
        )

    def declaration(self) -> dict[str, Any]:
        """All settings except the place of the file; JSON values."""
        names = [setting.name for setting in fields(self)]
        return {k: getattr(self, k) for k in names if k not in ("calibrated", *self.files)}

    parameters = declaration

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Store schema and unit; nothing depends on the effort."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows)
        return replace(self, calibrated=CalibratedNoise(schema=schema, unit=unit))

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """What was declared; empty if another run has paid for it."""
        ready_for(self.calibrated, schema, unit, method=self.method)
        return (self.declared(unit),) if self.counted_by is None else ()

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Empty: these rows hold no noise of this package."""
        return ()

    def measure(self, table: PrivateTable, *, noise: NoiseSource) -> Measurement:
        """State which rows are meant; `table` is not read.

        Privacy:
            Reads no private row. Event: `events`, for what the tool read when it made the rows.
        """
        ready_for(self.calibrated, table.schema, method=self.method)
        return Measurement(
            kind=self.method,
            arrays={},
            facts={"sha256": self.sha256, "declaration": self.declaration()},
            publishable=noise.publishable,
        )

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> RowsModel:
        """Read and check the file's rows; SpecError for another measurement or a changed file."""
        if measurement.kind != self.method or measurement.facts.get("sha256") != self.sha256:
            raise SpecError(
                "the stored measurement is of another file or method; restore the file, or start"
                " a new run",
                field=ROWS_FIELD,
            )
        return self.rows_model(schema)


def _fault(name: str, expected: str) -> SpecError:
    return SpecError(field=f"generator.settings.{name}", allowed=expected)


def _number(name: str, value: object) -> Decimal:
    """The exact decimal of a spec: a float by its shortest text, as it was written."""
    text = repr(value) if isinstance(value, int | float) and value is not True else value
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        unknown = f", or {UNKNOWN}" if name == "epsilon" else ""
        raise _fault(name, f"a plain decimal such as 1, 0.5 or 1e-6{unknown}")
    return Decimal(text)
