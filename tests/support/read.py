"""Whole files, read as the product reads them in parts."""

import contextlib
from pathlib import Path

import pandas as pd

from dpiw.data.scaled import ScaledTable
from dpiw.data.snapshots import open_snapshot
from dpiw.data.source.batches import open_parquet
from dpiw.data.source.copy import IngestLimits
from dpiw.errors import SourceError
from dpiw.release.manifest import FileBytes


def read_snapshot(path: Path) -> ScaledTable | None:
    """All rows of a snapshot; None if it cannot be read."""
    with contextlib.suppress(SourceError):
        return open_snapshot(path).read()
    return None


def read_parquet(path: Path, names: list[str], *, limits: IngestLimits) -> pd.DataFrame:
    with open_parquet(path, names, limits=limits) as raw:
        return raw.whole(most_bytes=limits.max_memory_bytes)


def file_bytes(path: Path) -> FileBytes:
    return FileBytes(name=path.name, data=path.read_bytes())
