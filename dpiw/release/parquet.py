"""Synthetic rows as Parquet: declared types, fixed layout, only DP facts in the footer.

Columns are converted one by one: pandas would write index values, unused categories and `attrs`
into the file. Rows are shuffled and row groups have a fixed size, so layout reveals nothing.
"""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpiw.data.row_weights import published_weights
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.threads import prefetched
from dpiw.errors import ManifestError, ReleaseError, shown
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import SYNTHETIC, ArrowField, Facts, FileBytes, row_files


def unfit(name: str, fault: str) -> ManifestError:
    """Return the error for a file whose bytes are as listed, and whose content no release has."""
    ask = "do not use it: ask the release's publisher for a correct file"
    return ManifestError(f"{fault}; {ask}", field=name)


ROW_GROUP_ROWS, _TIMES = 65536, 4
"""Rows of a group, and the repetitions of a value in it that make a dictionary worthwhile."""
PART_ROWS = 1 << 19
"""Most rows of one file; larger tables are published in parts."""

WEIGHT = "weight"
LOG_WEIGHT = "log_weight"

WEIGHT_ROLES = {
    WEIGHT: "importance weight: a sampling weight (pweight), not a count of rows",
    LOG_WEIGHT: "natural logarithm of the weight as estimated, not normalised",
}
"""Roles of the weights for readers of the file; part of every release."""

FACTS = (
    "dpiw.certificate_sha256", "dpiw.delta", "dpiw.epsilon", "dpiw.mechanisms", "dpiw.population",
    "dpiw.relation", "dpiw.release_id", "dpiw.unit", "dpiw.weights_verdict",
)  # fmt: skip
"""The footer's only keys besides Arrow's own copy of the schema."""

_ARROW_TYPES = {
    ColumnKind.CONTINUOUS: pa.float64(),
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.BOOLEAN: pa.bool_(),
    ColumnKind.CATEGORICAL: pa.string(),
    ColumnKind.ORDINAL: pa.string(),
    ColumnKind.DATE: pa.date32(),
}


def arrow_type(column: Column) -> Any:
    """Return the Arrow type of a released column."""
    if column.kind is ColumnKind.DATETIME:  # Parquet knows no seconds
        return pa.timestamp("ms", tz=column.time_zone)
    return _ARROW_TYPES[column.kind]


def arrow_schema(schema: PublicSchema) -> Any:
    """Return the declared Arrow schema: released columns, then `weight` and `log_weight`.

    A field's metadata are its public `description` and its `role`: feature, target or weight.
    """
    released = [
        pa.field(
            column.name,
            arrow_type(column),
            nullable=column.nullable,
            metadata=_about(column.description, column.role.value),
        )
        for column in schema.released
    ]
    numbers = [
        pa.field(name, pa.float64(), nullable=False, metadata=_about(text, name))
        for name, text in WEIGHT_ROLES.items()
    ]
    return pa.schema(released + numbers)


def _about(description: str, role: str) -> dict[str, str]:
    return {"description": description, "role": role} if description else {"role": role}


def arrow_fields(schema: Any) -> tuple[ArrowField, ...]:
    """Return an Arrow schema as plain values, for the manifest."""
    return tuple(
        ArrowField(name=field.name, type=str(field.type), nullable=bool(field.nullable))
        for field in schema
    )


def footer_facts(certificate: Certificate) -> dict[str, str]:
    """Return the facts in the footer, all from the certificate."""
    unit = certificate.unit
    return {
        "dpiw.certificate_sha256": certificate.digest,
        "dpiw.delta": certificate.delta,
        "dpiw.epsilon": certificate.epsilon,
        "dpiw.mechanisms": ",".join(certificate.mechanisms),
        "dpiw.population": certificate.population,
        "dpiw.relation": unit.relation.value,
        "dpiw.release_id": certificate.release_id,
        "dpiw.unit": f"max_rows={unit.max_rows}; id_column={unit.id_column or ''}",
        "dpiw.weights_verdict": certificate.verdict,
    }


def write_synthetic(
    folder: Path,
    *,
    frames: Iterable[pd.DataFrame],
    log_weights: NDArray[np.float64],
    schema: PublicSchema,
    facts: Mapping[str, str],
    rng: np.random.Generator,
    self_normalised: bool = True,
) -> NDArray[np.int64]:
    """Write the rows and return the index in `frames` of each written row, shape (rows,).

    `folder` has none of the files, which are `row_files` of the number of frames; `frames` have
    `PART_ROWS` rows in declared types, the last the rest; `log_weights`, shape (rows,), are natural
    logs as estimated; `facts` are from `footer_facts`; `rng` shuffles the rows of each file.
    Raises ReleaseError for undeclared columns, types, nulls or facts, or a failed write.
    """
    if set(facts) != set(FACTS):
        raise ReleaseError(field="footer facts", allowed=f"exactly {', '.join(FACTS)}")
    weights = published_weights(log_weights, self_normalised=self_normalised)
    order, start = np.empty(weights.size, dtype=np.int64), 0
    parts = _shuffled(frames, weights, log_weights, schema=schema, rng=rng)
    repeating = [column.name for column in schema.released if _repeats(column)]
    for name, table, permutation in prefetched(parts):
        write_table(folder / name, table, facts=facts, repeating=repeating)
        order[start : start + permutation.size] = start + permutation
        start += permutation.size
    return order


def _shuffled(
    frames: Iterable[pd.DataFrame],
    weights: NDArray[np.float64],
    log_weights: NDArray[np.float64],
    *,
    schema: PublicSchema,
    rng: np.random.Generator,
) -> Iterator[tuple[str, Any, NDArray[np.int64]]]:
    """Yield each file's name, its rows in random order, and their indices in the frame."""
    names, start = row_files(math.ceil(weights.size / PART_ROWS)), 0
    for name, frame in zip_longest(names, frames):
        part = slice(start, start + (PART_ROWS if name not in names[-1:] else weights.size))
        if name is None or frame is None or len(weights[part]) != len(frame):
            raise ReleaseError(
                field="log_weights",
                allowed="one number for each synthetic row; found fewer or more",
            )
        table = _table(frame, weights[part], log_weights[part], schema)
        permutation = np.asarray(rng.permutation(table.num_rows), dtype=np.int64)
        yield name, table.take(pa.array(permutation)), permutation
        start += table.num_rows


def _repeats(column: Column) -> bool:
    if column.is_discrete or column.values:
        return True
    decimals = 0 if column.is_whole else column.released_decimals
    values = (column.upper_number - column.lower_number) * 10.0**decimals + 1
    return bool(values * _TIMES <= ROW_GROUP_ROWS)


def write_table(
    path: Path, table: Any, *, facts: Mapping[str, str], repeating: Sequence[str] | None = None
) -> None:
    """Write a table with row groups of a fixed size, and `facts` in the footer.

    `repeating` columns (None: all) get a dictionary; columns of many values are smaller without.
    Raises ReleaseError for a failed write.
    """
    dictionary = True if repeating is None else [*repeating]
    kept = {name: facts[name] for name in FACTS if name in facts}
    with table_writer(path, table.schema, facts=kept, dictionary=dictionary) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


@contextmanager
def table_writer(
    path: Path, schema: Any, *, facts: Mapping[str, str], dictionary: bool | list[str]
) -> Iterator[pq.ParquetWriter]:
    """Yield the writer of a new file, with `facts` in its footer; ReleaseError if it fails."""
    try:
        with (
            path.open("xb") as stream,
            pq.ParquetWriter(
                stream, schema, compression="zstd", version="2.6", use_dictionary=dictionary
            ) as writer,
        ):
            yield writer
            writer.add_key_value_metadata(dict(facts))
    except OSError as reason:
        raise ReleaseError(
            f"the file cannot be written: {reason.strerror or 'unknown reason'}", field=path.name
        ) from reason


def _table(
    frame: pd.DataFrame,
    weights: NDArray[np.float64],
    log_weights: NDArray[np.float64],
    schema: PublicSchema,
) -> Any:
    names = [column.name for column in schema.released]
    if list(frame.columns) != names:
        raise ReleaseError(
            field="synthetic rows", allowed="the schema's released columns, in their order"
        )
    arrays = [_array(frame[column.name], column) for column in schema.released]
    logs = np.asarray(log_weights, dtype=np.float64)
    return pa.table([*arrays, pa.array(weights), pa.array(logs)], schema=arrow_schema(schema))


def _array(series: Any, column: Column) -> Any:
    target = arrow_type(column)
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(object)
    if column.kind in (ColumnKind.DATE, ColumnKind.DATETIME) and series.dtype != object:
        if column.kind is ColumnKind.DATETIME and series.dt.tz is None:
            series = series.dt.tz_localize("UTC")
        series = series.astype("datetime64[s]" if series.dt.tz is None else "datetime64[s, UTC]")
    try:
        array = pa.array(series, from_pandas=True)
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        array = array.cast(target, safe=True)
    except (pa.ArrowException, TypeError, ValueError) as reason:
        raise ReleaseError(
            f"its values are not of kind {column.kind.value}", field=f"column {column.name}"
        ) from reason
    if array.null_count and not column.nullable:
        what = "holds a missing value, but the dictionary says nullable: false"
        raise ReleaseError(what, field=f"column {column.name}")
    return array


_FIELD_KEYS = {b"description", b"role", b"PARQUET:field_id"}
"""What a column's metadata may hold: ours, and a number of the format."""


@dataclass(frozen=True, kw_only=True)
class Footer:
    """What a Parquet file says of itself: rows, columns and DP facts; and its table, if read."""

    rows: int
    columns: tuple[ArrowField, ...]
    facts: Mapping[str, str]
    table: Any = None


def stored_footer(file: FileBytes, what: str) -> tuple[int, Any, dict[str, str]]:
    """Return rows, Arrow schema and facts of a Parquet file or its end, else ManifestError."""
    try:
        with pq.ParquetFile(pa.BufferReader(file.data)) as parquet:
            rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
            metadata = dict(parquet.metadata.metadata or {})
        facts = {key.decode(): value.decode() for key, value in metadata.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as reason:
        raise unfit(file.name, f"not readable as {what}") from reason
    facts.pop("ARROW:schema", None)
    return rows, schema, facts


def read_footer(file: FileBytes) -> Footer:
    """Read the footer of a file that `write_synthetic` wrote; else raises ManifestError."""
    rows, schema, facts = stored_footer(file, "Parquet")
    for name in sorted(set(facts) - set(FACTS)):
        raise unfit(file.name, f"unknown key {name!r} in its footer")
    for field in schema:
        if not set(field.metadata or {}) <= _FIELD_KEYS:
            raise unfit(file.name, f"column {shown(field.name)}: unknown key in its metadata")
    return Footer(rows=rows, columns=arrow_fields(schema), facts=facts)


_SCALARS = {str(known) for known in _ARROW_TYPES.values()}
"""Types of released columns, besides moments: none holds several values in a cell."""

DISAGREE = (
    "manifest, certificate and Parquet file disagree: do not use this folder, and ask its curator"
    " for it again"
)
"""Fault of a signed folder whose files state different facts."""

_FREE_CELLS, _CELLS_A_BYTE, _CELL = 2**24, 128, 8
"""Cells of an unpinned file: so many, and more per byte (honest files need 50); bytes of a cell."""


class RowReader:
    """Reads files of rows, with at most the cells that the manifest states and a limit allows.

    The limit grows with `size`, the bytes of all files of rows; None: the signer is trusted, and
    only the manifest limits the cells.
    """

    def __init__(self, facts: Facts, *, size: int | None) -> None:
        self._lock = threading.Lock()
        self._columns = facts.columns
        self._cells = facts.rows * len(facts.columns)
        self._room = None if size is None else _FREE_CELLS + _CELLS_A_BYTE * size
        if self._room is not None and self._cells > self._room:
            raise ManifestError(_too_many(facts.rows, len(facts.columns)))

    def __call__(self, file: FileBytes) -> Footer:
        """Read a footer and rows; excess cells raise ManifestError with only text lists decoded."""
        footer = read_footer(file)
        for field in footer.columns:
            if field.type not in _SCALARS and not field.type.startswith("timestamp[ms"):
                raise unfit(file.name, f"column {shown(field.name)} has a type that no release has")
        if footer.columns != self._columns:
            raise ManifestError(DISAGREE, field="Arrow schema")
        self._take(footer.rows * len(footer.columns))
        texts = [field.name for field in footer.columns if field.type == "string"]
        try:
            with pq.ParquetFile(pa.BufferReader(file.data), read_dictionary=texts) as parquet:
                self._check_size(parquet.metadata)
                table = parquet.read(use_threads=False)
            if table.num_rows != footer.rows:
                raise unfit(file.name, "holds more or fewer rows than its footer states")
            for name in texts:
                self._take(0, more=_text_bytes(table.column(name)) // _CELL)
            for place, name in enumerate(table.column_names):
                if name in texts:
                    field = pa.field(name, pa.string(), nullable=table.schema.field(name).nullable)
                    table = table.set_column(place, field, table.column(name).cast(pa.string()))
        except (pa.ArrowException, OSError) as reason:
            raise unfit(file.name, "not readable as Parquet") from reason
        return Footer(rows=footer.rows, columns=footer.columns, facts=footer.facts, table=table)

    def _check_size(self, metadata: Any) -> None:
        """Refuse a file that states more bytes, unpacked, than its cells may have."""
        groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
        size = sum(
            group.column(place).total_uncompressed_size
            for group in groups
            for place in range(group.num_columns)
        )
        own = metadata.num_rows * metadata.num_columns * 2 * _CELL  # levels and lengths too
        if self._room is not None and size - own > self._room * _CELL:
            raise ManifestError(_too_many(None, len(self._columns)))

    def _take(self, cells: int, *, more: int = 0) -> None:
        """Count cells before they are decoded; `more`: cells for long texts."""
        with self._lock:
            self._cells -= cells
            if self._cells < 0:
                raise ManifestError(DISAGREE, field="row count")
            if self._room is not None:
                self._room -= cells + more
                if self._room < 0:
                    raise ManifestError(_too_many(None, len(self._columns)))


def _too_many(rows: int | None, columns: int) -> str:
    found = f"{rows:,} rows of {columns:,} columns are" if rows else "its texts take"
    return (
        f"{SYNTHETIC}: {found} more than dpiw reads from a file of this size without the curator's"
        " public key; pass public_key=, or do not read it"
    )


def _text_bytes(column: Any) -> int:
    """Bytes of a column's texts, counting repetitions."""
    total = 0
    for chunk in column.chunks:
        lengths = np.asarray(pc.binary_length(chunk.dictionary).fill_null(0), dtype=np.int64)
        codes = np.asarray(chunk.indices.fill_null(-1), dtype=np.int64)
        total += int(lengths[codes[codes >= 0]].sum())
    return total


def as_frame(
    tables: Sequence[Any],
) -> tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64]]:
    """Return rows, weights and log weights, both of shape (rows,), of a release's tables, in order.

    Types: text `str`; whole numbers `int64` and truth values `bool`, or `Int64` and `boolean` where
    nullable; dates `datetime64[s]`; moments `datetime64[s, ZONE]`.
    """
    table = pa.concat_tables(tables)
    weights, logs = (
        np.array(table.column(name).to_numpy(), dtype=np.float64) for name in (WEIGHT, LOG_WEIGHT)
    )
    frame = pd.DataFrame(
        {
            field.name: _series(table.column(field.name), field)
            for field in table.schema
            if field.name not in {WEIGHT, LOG_WEIGHT}
        }
    )
    return frame, weights, logs


def _series(values: Any, field: Any) -> Any:
    if pa.types.is_date32(field.type):
        return values.cast(pa.timestamp("s")).to_pandas()
    if pa.types.is_timestamp(field.type):
        return values.cast(pa.timestamp("s", tz=field.type.tz)).to_pandas()
    if field.nullable and pa.types.is_integer(field.type):
        return values.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    if field.nullable and pa.types.is_boolean(field.type):
        return values.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)
    return values.to_pandas()
