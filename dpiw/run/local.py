"""The collector's side: reports are read, checked against the public parameters, and published.

Nothing here is confidential: what arrives is private already, whoever collects it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from dpiw.data.files import copy_file
from dpiw.data.local_parameters import NAME as PARAMETERS
from dpiw.data.local_parameters import RESERVED, LocalParameters
from dpiw.errors import ReleaseError, SourceError
from dpiw.plan.local import LocalSpec, read_parameters
from dpiw.privacy.mechanisms import lattice_step
from dpiw.release.local import REPORTS, verify_local
from dpiw.release.local_certificate import LocalCertificate, LocalManifest
from dpiw.release.manifest import CERTIFICATE, FileEntry
from dpiw.release.parquet import arrow_fields, write_table
from dpiw.release.publication import build_folder
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.release.verification import file_digest
from dpiw.run.publish import make_root, today

_FARTHEST = 40.0
"""Standard deviations of noise beyond the ball: no honest report lies there (e^-800)."""

_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError, pa.ArrowException)
_REPORT_ID = re.compile(r"[0-9a-f]{32}")
_PACKAGES = ("dpiw", "numpy", "pandas", "pyarrow")


@dataclass(frozen=True, kw_only=True, eq=False)
class Reports:
    """Reports that could be an honest client's, each person's once.

    Attributes:
        parameters: that every report names.
        features: shape (n, features), as told.
        labels: indices of levels, shape (n,); (0,) where there is no label.
    """

    parameters: LocalParameters
    features: NDArray[np.float64]
    labels: NDArray[np.int64]


def read_reports(spec: LocalSpec) -> Reports:
    """Read a file of reports, and refuse it if one of them cannot be an honest client's.

    A folder holds a JSON file for each report, as clients made them; CSV and Parquet have a column
    for each of its keys. A report that arrived twice counts once.

    Raises:
        SourceError: not such a file, another collection's report, or a value that no client tells.
        SpecError, ReleaseError, PrivacyError: as `read_parameters`.
    """
    parameters = read_parameters(spec)
    frame = _frame(Path(spec.reports))
    wanted = {*RESERVED, *parameters.names}
    if set(frame.columns) != wanted:
        raise SourceError(f"reports: expected rows of exactly {', '.join(sorted(wanted))}")
    if (frame["parameters"] != parameters.digest).any():
        raise SourceError("reports: one names other parameters than this collection's")
    frame = frame.drop_duplicates()
    ids = frame["report_id"]
    if ids.duplicated().any() or not all(map(_REPORT_ID.fullmatch, ids)):
        raise SourceError("reports: expected 32 hexadecimal digits as report_id, one report each")
    features = np.empty((len(frame), len(parameters.features)))
    for j, feature in enumerate(parameters.features):
        features[:, j] = _told(frame[feature.name], feature.name, parameters, j)
    return Reports(parameters=parameters, features=features, labels=_labels(frame, parameters))


def publish_reports(spec: LocalSpec, reports: Reports) -> Path:
    """Publish reports in a signed folder, in an order that tells nothing; returns the folder.

    Raises:
        ReleaseError: the folder is there with something else in it, or cannot be written.
    """
    key, folder = load_private_key(Path(spec.signing_key)), Path(spec.publish_to) / spec.name
    make_root(folder.parent)
    certificate = LocalCertificate.of(
        reports.parameters,
        rows=len(reports.features),
        versions={name: importlib.metadata.version(name) for name in _PACKAGES},
    )
    table = _table(reports)
    with tempfile.TemporaryDirectory() as workspace:
        path = Path(workspace) / REPORTS
        write_table(path, table, facts=certificate.footer_facts())
        if folder.exists():
            return _same(folder, path, key)
        build_folder(
            folder,
            files={
                REPORTS: partial(copy_file, path),
                CERTIFICATE: certificate.to_json(),
                PARAMETERS: reports.parameters.to_json(),
            },
            facts=certificate.manifest_facts(
                columns=arrow_fields(table.schema), published_at=today()
            ),
            key=key,
            kind=LocalManifest,
        )
    verify_local(folder)
    return folder


def _same(folder: Path, path: Path, key: PrivateKey) -> Path:
    manifest = verify_local(folder).manifest
    expected = FileEntry(size=path.stat().st_size, sha256=file_digest(path))
    if manifest.files[REPORTS] != expected or manifest.signer != key.public:
        raise ReleaseError(
            f"release folder {folder.name} exists and holds other reports: a release is never"
            " replaced; publish more of them under another name"
        )
    return folder


def _frame(path: Path) -> pd.DataFrame:
    readers: dict[str, Callable[[], pd.DataFrame]] = {
        "": lambda: pd.DataFrame([json.loads(one.read_bytes()) for one in path.glob("*.json")]),
        ".csv": lambda: pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""]),
        ".parquet": lambda: pd.read_parquet(path),
    }
    if not path.exists():
        raise SourceError("reports: no such file or folder; paths start at the collection's")
    kind = "" if path.is_dir() else path.suffix
    frame = pd.DataFrame()
    with contextlib.suppress(*_UNREADABLE):
        frame = readers[kind]().map(str) if kind in readers else frame  # of floats: exact
    if frame.empty:
        raise SourceError(
            "reports: expected reports in a folder of JSON files, a .csv or a .parquet file"
        )
    return frame


def _told(column: Any, name: str, parameters: LocalParameters, j: int) -> NDArray[np.float64]:
    try:
        told = np.array([float(value) for value in column], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        told = np.array([np.nan])
    private = parameters.features[j].private
    farthest = parameters.radius + _FARTHEST * parameters.stddev if private else 1.0
    if not (np.isfinite(told).all() and (np.abs(told) <= farthest).all()):
        raise SourceError(f"reports: {name}: expected numbers within +-{farthest:.6g}")
    if private and (told / lattice_step(parameters.stddev) % 1 != 0).any():
        raise SourceError(
            f"reports: {name}: expected multiples of the lattice step; was it rounded?"
        )
    return told


def _labels(frame: pd.DataFrame, parameters: LocalParameters) -> NDArray[np.int64]:
    if parameters.label is None:
        return np.empty(0, dtype=np.int64)
    known = {level: index for index, level in enumerate(parameters.levels)}
    indices = [known.get(str(level), -1) for level in frame[parameters.label]]
    if min(indices) < 0:
        levels = ", ".join(parameters.levels)
        raise SourceError(f"reports: {parameters.label}: expected one of {levels}")
    return np.array(indices, dtype=np.int64)


def _table(reports: Reports) -> Any:
    """Sorted by what is told: neither order of arrival nor report_id is published."""
    parameters = reports.parameters
    keys = [*reports.features.T, *([] if parameters.label is None else [reports.labels])]
    order = np.lexsort(keys[::-1])
    arrays = [pa.array(column[order]) for column in reports.features.T]
    fields = [pa.field(f.name, pa.float64(), nullable=False) for f in parameters.features]
    if parameters.label is not None:
        arrays.append(pa.array([parameters.levels[index] for index in reports.labels[order]]))
        fields.append(pa.field(parameters.label, pa.string(), nullable=False))
    return pa.table(arrays, schema=pa.schema(fields))
