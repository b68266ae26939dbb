"""Public labelled rows that a spec names, for a beta calibration that costs nothing.

The curator declares that they are public; nothing can check it. The file's SHA-256 is one of the
plan's decisions and stands in the certificate, so that everybody sees which rows were meant.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpiw.data.private_copy import copy_source
from dpiw.data.raw_source import IngestLimits
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.sources import read_csv
from dpiw.errors import SourceError, SpecError

FIELD = "weights.post_processing: beta_calibrate.rows"


def named_file(step: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """A `beta_calibrate` step with its file's absolute path and SHA-256.

    A file whose digest is stated is not looked at, and one that is gone leaves it open: a run that
    keeps a copy of the rows goes on without them.

    Args:
        step: as the spec has it.
        path: the file, which is not confidential (`dpiw.data.confidential`).
    """
    digest = step.get("sha256")
    if digest is None:
        with contextlib.suppress(SpecError):
            digest = _digest(path, FIELD)
    return {**step, "rows": str(path), "sha256": digest}


def check_digest(path: Path, sha256: str, *, field: str) -> None:
    """Raise SpecError, which names `field`, unless this is a regular file of that SHA-256."""
    if _digest(path, field) != sha256:
        raise SpecError(f"{field}: the file's SHA-256 is not the one that `sha256` states")


def _digest(path: Path, field: str) -> str:
    with contextlib.suppress(OSError):
        if path.is_file():  # no pipe or device, which would not end
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
    raise SpecError(f"{field}: the file cannot be read")


def read_public_rows(
    path: Path, *, sha256: str, schema: PublicSchema, directory: Path, limits: IngestLimits
) -> ScaledTable:
    """Read a CSV file of public rows: UTF-8, commas, exactly the schema's released columns.

    Args:
        path: the file.
        sha256: of the bytes the plan was made for.
        schema: the release's.
        directory: where a copy may lie while it is read.
        limits: what the file may be at most.

    Raises:
        SpecError: the file has changed, is not such a CSV file, or holds no rows.
    """
    copy = directory / f".public-{secrets.token_hex(8)}"
    names = [column.name for column in schema.released]
    reason = ""
    try:
        copy_source(path, copy)
        if _digest(copy, FIELD) != sha256:
            raise SpecError(f"{FIELD}: the file has changed since the plan was made")
        raw = read_csv(copy, names, limits=limits, encoding="utf-8", delimiter=",")
    except SourceError as error:
        reason = str(error)
    finally:
        copy.unlink(missing_ok=True)
    if reason:
        raise SpecError(f"{FIELD}: expected a CSV file of the released columns: {reason}")
    if len(raw.frame) == 0:
        raise SpecError(f"{FIELD}: expected at least one row")
    return schema.scale(raw.frame)
