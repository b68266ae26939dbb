"""Published rows, read back: as pandas columns, and what a file's footer says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpiw.errors import ManifestError
from dpiw.release.manifest import ArrowField
from dpiw.release.parquet import FACTS, LOG_WEIGHT, WEIGHT, arrow_fields

_ARROW_SCHEMA = "ARROW:schema"

_FIELD_KEYS = {b"description", b"role", b"PARQUET:field_id"}
"""What a column's metadata may hold: ours, and a number of the format."""


@dataclass(frozen=True, kw_only=True)
class Footer:
    """What a Parquet file says about itself: rows, columns and the DP facts."""

    rows: int
    columns: tuple[ArrowField, ...]
    facts: Mapping[str, str]


def read_footer(path: Path) -> Footer:
    """Read rows, columns and facts of a file that `write_synthetic` wrote.

    Raises:
        ManifestError: not a Parquet file, or a footer or a column with a key beside the allow-list.
    """
    try:
        with pq.ParquetFile(path) as file:
            rows, schema = file.metadata.num_rows, file.schema_arrow
            metadata = dict(file.metadata.metadata or {})
        facts = {key.decode(): value.decode() for key, value in metadata.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as reason:
        raise ManifestError(f"{path.name}: not readable as Parquet") from reason
    facts.pop(_ARROW_SCHEMA, None)
    for name in sorted(set(facts) - set(FACTS)):
        raise ManifestError(f"{path.name}: unknown footer key {name!r}")
    for field in schema:
        if not set(field.metadata or {}) <= _FIELD_KEYS:
            raise ManifestError(f"{path.name}: column {field.name}: unknown key in its metadata")
    return Footer(rows=rows, columns=arrow_fields(schema), facts=facts)


def read_synthetic(
    folder: Path, names: Iterable[str]
) -> tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64]]:
    """Read rows, weights and log weights of the files that `write_synthetic` wrote.

    Args:
        folder: of the release.
        names: of its files of rows, in order (`listed_row_files`).

    Returns:
        The rows in pandas types (text as `str`; whole numbers `int64`, truth values `bool`, or
        `Int64` and `boolean` where nullable; dates `datetime64[s]`; moments `datetime64[s, ZONE]`),
        the weights as published and the log weights, both of shape (rows,).
    """
    table = pa.concat_tables(
        pq.read_table(folder / name, use_threads=False, pre_buffer=False) for name in names
    )
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
