"""Scaled rows in a Parquet file, written and read batch by batch.

No column statistics or metadata, and row groups of one public size: their ends reveal nothing.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpiw.data.files import durable_file
from dpiw.data.schema.schema import ScaledTable
from dpiw.data.threads import prefetched
from dpiw.errors import SchemaError, SourceError

BATCH_ROWS = 1 << 16
"""Rows of every batch and of every row group but the last."""

DAMAGED = (
    "the run's scaled copy of the table is missing, damaged or of another data dictionary; restore"
    " it from a backup, or start a new run with another period or source.snapshot"
)


@contextlib.contextmanager
def snapshot_writer(path: Path) -> Iterator[Callable[[ScaledTable], None]]:
    """Yield a function that appends rows, durable at block end. Privacy: exact, confidential."""
    with durable_file(path) as file, contextlib.ExitStack() as stack:
        writers: list[pq.ParquetWriter] = []
        waiting: list[ScaledTable] = []

        def write(rows: ScaledTable) -> None:
            table = rows.to_arrow()
            if not writers:
                writer = pq.ParquetWriter(
                    file, table.schema, write_statistics=False, store_schema=False,
                    compression="snappy", write_page_checksum=True,
                )  # fmt: skip
                writers.append(stack.enter_context(writer))
            writers[0].write_table(table)

        def append(rows: ScaledTable) -> None:
            waiting.append(rows)
            if sum(part.rows for part in waiting) > BATCH_ROWS:
                *full, rest = ScaledTable.concatenate(waiting).batches(BATCH_ROWS)
                for batch in full:
                    write(batch)
                waiting[:] = [rest]

        yield append
        write(ScaledTable.concatenate(waiting))


def write_snapshot(scaled: ScaledTable, path: Path) -> None:
    """Write rows that are in memory, as `snapshot_writer` does."""
    with snapshot_writer(path) as append:
        append(scaled)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An existing file of scaled rows, confidential."""

    path: Path
    columns: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Snapshot({', '.join(self.columns)})"

    def batches(self) -> Iterator[ScaledTable]:
        """Yield the exact rows in order, at most `BATCH_ROWS` at a time; at least one batch.

        Raises SourceError without the reason, which may quote values.

        Privacy: exact rows: read by `PrivateTable` and the ingest stage only.
        """
        return prefetched(self._read_in_order())

    def _read_in_order(self) -> Iterator[ScaledTable]:
        with contextlib.suppress(OSError, pa.ArrowException, SchemaError):
            yield from _tables(self.path)
            return
        raise SourceError(DAMAGED)

    @cached_property
    def rows(self) -> int:
        """Number of rows. Privacy: exact: of private rows it is confidential."""
        with self.path.open("rb") as stream:
            return int(pq.ParquetFile(stream).metadata.num_rows)

    def read(self) -> ScaledTable:
        """Return all rows at once."""
        return ScaledTable.concatenate([*self.batches()])


def open_snapshot(path: Path) -> Snapshot:
    """Open a snapshot and read its columns, no row; SourceError if it is missing or damaged."""
    with contextlib.suppress(OSError, pa.ArrowException), path.open("rb") as stream:
        return Snapshot(path=path, columns=tuple(pq.ParquetFile(stream).schema_arrow.names))
    raise SourceError(DAMAGED)


def is_whole(path: Path) -> bool:
    """Whether a snapshot can be read to its end. Privacy: reveals the state of the disk alone."""
    with contextlib.suppress(SourceError):
        deque(open_snapshot(path).batches(), maxlen=0)
        return True
    return False


def _tables(path: Path) -> Generator[ScaledTable]:
    with path.open("rb") as stream:
        # No threads: one still reading a Python file at exit aborts the process (measured).
        file = pq.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            yield ScaledTable.from_arrow(pa.Table.from_batches([batch]))
        if file.metadata.num_rows == 0:
            yield ScaledTable.from_arrow(file.schema_arrow.empty_table())
