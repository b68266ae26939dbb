"""The file `replicate_weights.parquet`: its footer, writing and reading."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpiw.data.row_weights import ReplicateWeights
from dpiw.errors import ReleaseError
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import REPLICATES, FileBytes
from dpiw.release.parquet import ROW_GROUP_ROWS, stored_footer, table_writer, unfit

KIND = "bootstrap"
"""Survey packages' name for weights whose squared differences are added up with one scale."""

_FREE = 2**24
"""Weights read from a file of any size; each further weight needs at least a byte."""

_TINY = np.finfo(np.float32).tiny


def replicates_promised(certificate: Certificate) -> int:
    """Number of replicates that the certificate promises."""
    counts = [
        stage.parameters.get("replicates", 0)
        for stage in certificate.stages
        if stage.stage == certificate.weights.get("stage")
    ]
    return int(counts[0]) if counts and isinstance(counts[0], int) else 0


def replicate_facts(certificate: Certificate, *, count: int, scale: float) -> dict[str, str]:
    """Facts in the file's footer."""
    return {
        "dpiw.certificate_sha256": certificate.digest,
        "dpiw.count": str(count),
        "dpiw.release_id": certificate.release_id,
        "dpiw.scale": repr(scale),
        "dpiw.type": KIND,
    }


def _schema(count: int) -> Any:
    return pa.schema([pa.field(f"r{r}", pa.float32(), nullable=False) for r in range(1, count + 1)])


def write_replicates(
    path: Path, replicates: ReplicateWeights, *, order: NDArray[np.int64], facts: Mapping[str, str]
) -> None:
    """Write columns r1 to rR; row i is row order[i] of `replicates`, as by `write_synthetic`.

    Raises ReleaseError for numbers that are no weights, or a failed write.
    """
    weights = replicates.weights
    if len(weights) != len(order) or not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ReleaseError(field=path.name, allowed="one finite weight >= 0 a row and replicate")
    schema = _schema(replicates.count)
    with table_writer(path, schema, facts=facts, dictionary=False) as writer:
        for start in range(0, len(order), ROW_GROUP_ROWS):
            block = weights[order[start : start + ROW_GROUP_ROWS]].astype(np.float32)
            block = np.maximum(block, _TINY)  # as a survey package may refuse a zero
            columns = [pa.array(np.ascontiguousarray(column)) for column in block.T]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=ROW_GROUP_ROWS)


def check_replicates(footer: Any, certificate: Certificate, *, rows: int) -> float:
    """Return the scale in a footer (`stored_footer`).

    Raises ManifestError for other rows, replicates or facts than promised.
    """
    stored_rows, schema, facts = footer
    try:
        scale = float(facts.get("dpiw.scale", "nan"))
    except ValueError:
        scale = math.nan
    count = replicates_promised(certificate)
    good = 0 < scale < math.inf and stored_rows == rows and schema.equals(_schema(count))
    if not good or facts != replicate_facts(certificate, count=count, scale=scale):
        raise unfit(REPLICATES, "not the replicate weights that the certificate promises")
    return scale


def read_replicates(file: FileBytes, certificate: Certificate, *, rows: int) -> ReplicateWeights:
    """Read a file of replicate weights; ManifestError if invalid, or far more cells than bytes."""
    scale = check_replicates(stored_footer(file, REPLICATES), certificate, rows=rows)
    if rows * replicates_promised(certificate) > _FREE + len(file.data):
        raise unfit(file.name, "states more weights than a file of its size can hold")
    try:
        table = pq.read_table(pa.BufferReader(file.data), use_threads=False, pre_buffer=False)
    except (pa.ArrowException, OSError) as reason:
        raise unfit(file.name, "not readable as replicate weights") from reason
    weights = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
    for r, column in enumerate(table.columns):
        weights[:, r] = column.to_numpy()
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise unfit(file.name, "expected finite replicate weights > 0")
    return ReplicateWeights(weights=weights, scale=scale)
