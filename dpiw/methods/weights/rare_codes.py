"""What in a row may be rare, of what features see: codes of known marginals, and levels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpiw.data.code_table import CodeTable
from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.methods.one_way import OneWayLaw


@dataclass(frozen=True, kw_only=True)
class RareCodes:
    """A function of a block of rows.

    Attributes:
        schema: the public schema.
        known: the marginals whose indicators are features, if any.
    """

    schema: PublicSchema
    known: OneWayLaw | None = None

    def __call__(self, rows: ScaledTable) -> NDArray[np.intp]:
        """Codes of such columns, shape (columns, rows); none is of two."""
        if self._table is None:
            return np.zeros((0, rows.rows), dtype=np.intp)
        return self._table.among_all(rows)

    @cached_property
    def _table(self) -> CodeTable | None:
        known = () if self.known is None else self.known.columns
        columns = [
            index for index, column in enumerate(self.schema.released)
            if index in known or not column.is_numeric
        ]  # fmt: skip
        if not columns:
            return None
        # The levels of the others are their codes, whatever the bins.
        domain = Domain.from_schema(self.schema, bins=1 if self.known is None else self.known.bins)
        return CodeTable(domain=domain, columns=tuple(columns))
