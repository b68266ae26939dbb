"""Private tables (hot) and synthetic tables (cold).

Only `PrivateSource.open` makes a `PrivateTable`, inside a confidential stage, while the ledger
confirms that the stage's cost is reserved and armed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.snapshots import BATCH_ROWS, DAMAGED, Snapshot, open_snapshot
from dpiw.errors import PrivacyError, SchemaError, SourceError


class ConfirmsGrants(Protocol):
    """The ledger, as far as a table needs it."""

    def confirm(self, grant: Any) -> Any:
        """Raise unless the grant's reservation is live."""
        ...


@dataclass(frozen=True, kw_only=True)
class SyntheticTable:
    """Public synthetic rows, projected on construction: features equal the released file's."""

    schema: PublicSchema
    scaled: ScaledTable

    def __post_init__(self) -> None:
        object.__setattr__(self, "scaled", self.schema.project(self.scaled))

    @property
    def rows(self) -> int:
        """Number of synthetic rows; public."""
        return self.scaled.rows

    def frame(self) -> pd.DataFrame:
        """Rows in declared types; see `PublicSchema.unscale`."""
        return self.schema.unscale(self.scaled)

    def batches(self) -> Iterator[ScaledTable]:
        """Yield the rows in order, at most `BATCH_ROWS` at a time; at least one batch."""
        return self.scaled.batches(BATCH_ROWS)

    def first(self, rows: int) -> SyntheticTable:
        """Return the first rows, or all if there are no more; drawn rows are exchangeable."""
        return self if self.rows <= rows else self.chosen(np.arange(rows))

    def chosen(self, rows: NDArray[np.int64]) -> SyntheticTable:
        """Return the rows at ascending indices, which may repeat; read on demand."""
        read = partial(self.taken, rows)
        return StreamedTable(schema=self.schema, rows=rows.size, read=read)

    def taken(self, chosen: NDArray[np.int64]) -> Iterator[ScaledTable]:
        """Yield the rows at ascending indices, which may repeat; at least one batch."""
        start = 0
        for batch in self.batches():
            low, high = np.searchsorted(chosen, (start, start + batch.rows))
            if low < high or not start:
                yield batch.take(chosen[low:high] - start)
            start += batch.rows
            if not chosen.size or start > chosen[-1]:
                return


class StreamedTable(SyntheticTable):
    """Synthetic rows read from a disk; memory holds a few batches, until `scaled` reads all."""

    def __init__(
        self, *, schema: PublicSchema, rows: int, read: Callable[[], Iterator[ScaledTable]]
    ) -> None:
        """Take `rows` admissible rows; `read` yields them in batches, the same each time."""
        for name, value in (("schema", schema), ("_rows", rows), ("batches", read)):
            object.__setattr__(self, name, value)

    @cached_property
    def scaled(self) -> ScaledTable:
        """All rows at once."""
        return ScaledTable.concatenate([*self.batches()])

    @property
    def rows(self) -> int:
        """Number of synthetic rows; public."""
        return self._rows

    _rows: int


def _sealed(action: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        allowed = "batches() or confidential(), inside measure, and noise on all that it returns"
        raise PrivacyError(f"a private table cannot be {action}", allowed=allowed)

    return refuse


class PrivateTable:
    """Confidential rows inside a stage (hot). No length, no iteration, no truth, no pickling.

    Only generators and weight estimators call `batches` or `confidential`, and return only what
    `dpiw.privacy.mechanisms` drew. The seal prevents accidents, not a hostile programmer.
    """

    __slots__ = ("__scaled", "__schema")

    def __init__(self, *, schema: PublicSchema, scaled: ScaledTable | Snapshot) -> None:
        """Take rows in memory, or an unread file of them."""
        if list(scaled.columns) != [column.name for column in schema.released]:
            allowed = "exactly the released columns, in the order of schema.released"
            raise SchemaError(field="PrivateTable", allowed=allowed)
        self.__schema = schema
        self.__scaled = scaled

    @property
    def schema(self) -> PublicSchema:
        """The public schema."""
        return self.__schema

    def batches(self) -> Iterator[ScaledTable]:
        """Yield the exact rows in order, at most `BATCH_ROWS` at a time; at least one batch.

        Privacy: unprotected. Call only inside `measure`, and return nothing that was not drawn by
            `dpiw.privacy.mechanisms` (or DP-SGD) with the sensitivity of the schema and unit.
        """
        rows = self.__scaled
        return rows.batches() if isinstance(rows, Snapshot) else rows.batches(BATCH_ROWS)

    def confidential(self) -> ScaledTable:
        """Return all exact rows at once. Privacy: unprotected, as `batches`."""
        rows = self.__scaled
        return rows.read() if isinstance(rows, Snapshot) else rows

    def __repr__(self) -> str:
        return f"PrivateTable(schema={self.__schema.name})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    __len__ = _sealed("counted")
    __bool__ = _sealed("tested for truth")
    __iter__ = _sealed("iterated over")
    __contains__ = _sealed("searched")
    __getitem__ = _sealed("indexed")
    __array__ = _sealed("made an array")
    __eq__ = _sealed("compared")
    __hash__ = None  # type: ignore[assignment]
    __reduce_ex__ = __getstate__ = _sealed("pickled or copied")

    def __dir__(self) -> list[str]:
        return ["batches", "confidential", "schema"]


@dataclass(frozen=True, kw_only=True)
class PrivateSource:
    """A reference to a scaled snapshot, and its schema, in the confidential workspace (cold)."""

    snapshot: Path
    schema: PublicSchema

    def __repr__(self) -> str:
        return f"PrivateSource(schema={self.schema.name})"  # the path is confidential

    def open(self, grant: Any, ledger: ConfirmsGrants) -> PrivateTable:
        """Open the snapshot, after the ledger has confirmed that its cost is reserved.

        Privacy: returns a hot table. `ledger.confirm(grant)` comes first: without a live grant not
            one byte is read, and a PrivacyError or LedgerError is raised.

        Raises SourceError if the snapshot is missing, damaged or of another schema.
        """
        ledger.confirm(grant)
        snapshot = open_snapshot(self.snapshot)
        if snapshot.columns != tuple(column.name for column in self.schema.released):
            raise SourceError(DAMAGED)
        return PrivateTable(schema=self.schema, scaled=snapshot)
