"""The file `replicate_weights.parquet`: its footer, writing and reading."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpiw.data.row_weights import ReplicateWeights
from dpiw.errors import ManifestError, ReleaseError
from dpiw.release.certificate import Certificate
from dpiw.release.manifest import FileBytes
from dpiw.release.parquet import ASK_PUBLISHER, ROW_GROUP_ROWS, stored_footer, table_writer

KIND = "bootstrap"
"""Survey packages' name for weights whose squared differences are added up with one scale."""

_FREE = 2**24
"""Weights read from a file of any size; each further weight needs at least a byte."""

_TINY = np.finfo(np.float32).tiny
_FACTS = ("certificate_sha256", "count", "release_id", "scale", "type")


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
        "certificate_sha256": certificate.digest,
        "count": str(count),
        "release_id": certificate.release_id,
        "scale": repr(scale),
        "type": KIND,
    }


def _schema(count: int) -> Any:
    return pa.schema([pa.field(f"r{r}", pa.float32(), nullable=False) for r in range(1, count + 1)])


def write_replicates(
    path: Path,
    replicates: ReplicateWeights,
    *,
    order: NDArray[np.int64],
    facts: Mapping[str, str],
) -> None:
    """Write columns r1 to rR; row i is row order[i] of `replicates`, as by `write_synthetic`.

    Raises ReleaseError for numbers that are no weights, or a failed write.
    """
    weights = replicates.weights
    if len(weights) != len(order) or not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ReleaseError(field=path.name, allowed="one finite weight >= 0 a row and replicate")
    schema = _schema(replicates.count)
    kept = {f"dpiw.{name}": facts[name] for name in _FACTS}
    with table_writer(path, schema, facts=kept, dictionary=False) as writer:
        for start in range(0, len(order), ROW_GROUP_ROWS):
            block = weights[order[start : start + ROW_GROUP_ROWS]].astype(np.float32)
            block = np.maximum(block, _TINY)  # as a survey package may refuse a zero
            columns = [pa.array(np.ascontiguousarray(column)) for column in block.T]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=ROW_GROUP_ROWS)


@dataclass(frozen=True, kw_only=True)
class ReplicateFooter:
    """What a file of replicate weights says of itself; `schema` is Arrow's."""

    name: str
    rows: int
    schema: Any
    facts: Mapping[str, str]
    scale: float


def read_replicate_footer(file: FileBytes) -> ReplicateFooter:
    """Read the footer of a file that `write_replicates` wrote; else raises ManifestError."""
    rows, schema, facts = stored_footer(file, "replicate weights")
    try:
        scale = float(facts["dpiw.scale"])
    except (KeyError, ValueError) as reason:
        raise ManifestError(
            f"not readable as replicate weights{ASK_PUBLISHER}", field=file.name
        ) from reason
    return ReplicateFooter(name=file.name, rows=rows, schema=schema, facts=facts, scale=scale)


def check_replicates(footer: ReplicateFooter, certificate: Certificate, *, rows: int) -> float:
    """Return the scale; raises ManifestError for other rows, replicates or facts than promised."""
    count, scale = replicates_promised(certificate), footer.scale
    certified_facts = replicate_facts(certificate, count=count, scale=scale)
    expected = {f"dpiw.{name}": value for name, value in certified_facts.items()}
    good = math.isfinite(scale) and scale > 0 and footer.rows == rows
    if not good or not footer.schema.equals(_schema(count)) or footer.facts != expected:
        raise ManifestError(
            f"not the replicate weights that the certificate promises{ASK_PUBLISHER}",
            field=footer.name,
        )
    return scale


def read_replicates(file: FileBytes, certificate: Certificate, *, rows: int) -> ReplicateWeights:
    """Read a file of replicate weights; ManifestError if invalid, or far more cells than bytes."""
    scale = check_replicates(read_replicate_footer(file), certificate, rows=rows)
    if rows * replicates_promised(certificate) > _FREE + len(file.data):
        raise ManifestError(f"holds more weights than bytes{ASK_PUBLISHER}", field=file.name)
    try:
        table = pq.read_table(pa.BufferReader(file.data), use_threads=False, pre_buffer=False)
    except (pa.ArrowException, OSError) as reason:
        raise ManifestError(
            f"not readable as replicate weights{ASK_PUBLISHER}", field=file.name
        ) from reason
    weights = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
    for r, column in enumerate(table.columns):
        weights[:, r] = column.to_numpy()
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ManifestError(field=file.name, allowed=f"finite replicate weights > 0{ASK_PUBLISHER}")
    return ReplicateWeights(weights=weights, scale=scale)
