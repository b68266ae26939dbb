"""Check the reports, and publish them in a signed folder, once.

Reports are private already. A message names a refused report by its file or row, never its values.
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
from dpiw.errors import ReleaseError, SourceError
from dpiw.local.certificate import REPORTS, LocalCertificate, LocalManifest, verify_local
from dpiw.local.parameters import NAME as PARAMETERS
from dpiw.local.parameters import RESERVED, LocalParameters
from dpiw.local.spec import LocalSpec, read_parameters
from dpiw.privacy.mechanisms import lattice_step
from dpiw.release.manifest import CERTIFICATE, FileEntry
from dpiw.release.parquet import arrow_fields, write_table
from dpiw.release.publication import build_folder
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.release.verification import file_digest
from dpiw.run.publish import make_root, today

_FARTHEST = 40.0
"""Most standard deviations of noise beyond the ball (probability e^-800)."""

_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError, pa.ArrowException)
_REPORT_ID = re.compile(r"[0-9a-f]{32}")
_MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Reports:
    """Checked reports, one per person: features with noise, (n, p), and labels as indices, (n,)."""

    parameters: LocalParameters
    features: NDArray[np.float64]
    labels: NDArray[np.int64]


def read_reports(spec: LocalSpec) -> Reports:
    """Read all reports; refuse them if an honest client cannot have made one of them.

    A folder holds one JSON file a report; CSV and Parquet have one column a key. A report that
    arrived twice counts once. Raises SourceError, which names the refused reports by their files or
    rows; others: `read_parameters`.
    """
    parameters = read_parameters(spec)
    frame = _frame(Path(spec.reports), {*RESERVED, *parameters.names})
    _refuse(
        frame,
        frame["parameters"] != parameters.digest,
        f"expected `parameters` to be the SHA-256 of {Path(spec.parameters).name}, as in every"
        " report of this collection",
    )
    frame = frame.drop_duplicates()
    ids = frame["report_id"]
    is_valid = np.array(
        [_REPORT_ID.fullmatch(report_id) is not None for report_id in ids], dtype=bool
    )
    _refuse(
        frame,
        ~is_valid | ids.duplicated(keep=False),
        "expected 32 hexadecimal digits as report_id, one report each",
    )
    features = np.empty((len(frame), len(parameters.features)))
    for j, feature in enumerate(parameters.features):
        features[:, j] = _feature_values(frame, feature.name, parameters, j)
    return Reports(parameters=parameters, features=features, labels=_labels(frame, parameters))


def reports_so_far(spec: LocalSpec) -> int | None:
    """Return how many reports have arrived, unchecked; None if they cannot be counted."""
    path = Path(spec.reports)
    with contextlib.suppress(*_UNREADABLE):
        if path.is_dir():
            return len(list(path.glob("*.json")))
        if path.suffix in _TABLES:
            return len(_TABLES[path.suffix](path))
    return None


_TABLES: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""]),
    ".parquet": lambda path: pd.read_parquet(path),
}


def _frame(path: Path, keys: set[str]) -> pd.DataFrame:
    if not path.exists():
        raise SourceError("reports: no such file or folder; paths start at the collection's")
    frame = pd.DataFrame()
    if path.is_dir():
        names = sorted(path.glob("*.json"))
        rows = [_keys_of(file, keys) for file in names]
        frame = pd.DataFrame(rows, index=pd.Index([repr(file.name) for file in names]))
    with contextlib.suppress(*_UNREADABLE):
        if path.suffix in _TABLES and not path.is_dir():
            frame = _TABLES[path.suffix](path)
            frame.index = pd.Index([f"row {row + 1}" for row in range(len(frame))])
    if frame.empty:
        raise SourceError(
            "reports: expected reports in a folder of JSON files, a .csv or a .parquet file"
        )
    if set(frame.columns) != keys:
        raise SourceError(f"reports: expected rows of exactly {_listed(keys)}")
    return frame.map(str)  # of floats: exact


def _keys_of(path: Path, keys: set[str]) -> dict[str, Any]:
    report = None
    with contextlib.suppress(*_UNREADABLE):
        report = json.loads(path.read_bytes())
    if not isinstance(report, dict) or set(report) != keys:
        raise SourceError(
            f"reports: {path.name!r}: expected a JSON object of exactly {_listed(keys)}, as a"
            " client makes it"
        )
    return report


def _listed(keys: set[str]) -> str:
    return ", ".join(sorted(keys))


def _refuse(frame: pd.DataFrame, bad: Any, expected: str) -> None:
    bad = np.asarray(bad, dtype=bool)
    if bad.any():
        names, count = [str(name) for name in frame.index[bad][:_MOST_NAMED]], int(bad.sum())
        rest = f" and {count - len(names):,} more" if count > len(names) else ""
        raise SourceError(
            f"reports: {expected}; not so in {count:,} of {len(frame):,}: {', '.join(names)}{rest}"
        )


def _feature_values(
    frame: pd.DataFrame, name: str, parameters: LocalParameters, j: int
) -> NDArray[np.float64]:
    values = np.array([_number(value) for value in frame[name]], dtype=np.float64)
    private = parameters.features[j].private
    farthest = parameters.radius + _FARTHEST * parameters.stddev if private else 1.0
    within = np.abs(values) <= farthest  # false of NaN
    _refuse(frame, ~within, f"{name}: expected numbers within +-{farthest:.6g}")
    if private:
        off = values / lattice_step(parameters.stddev) % 1 != 0
        _refuse(frame, off, f"{name}: expected multiples of the lattice step; was it rounded?")
    return values


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return np.nan


def _labels(frame: pd.DataFrame, parameters: LocalParameters) -> NDArray[np.int64]:
    if parameters.label is None:
        return np.empty(0, dtype=np.int64)
    codes = {level: index for index, level in enumerate(parameters.levels)}
    indices = np.array([codes.get(level, -1) for level in frame[parameters.label]], dtype=np.int64)
    levels = ", ".join(parameters.levels)
    _refuse(frame, indices < 0, f"{parameters.label}: expected one of {levels}")
    return indices


_PACKAGES = ("dpiw", "numpy", "pandas", "pyarrow")


def publish_reports(spec: LocalSpec, reports: Reports) -> Path:
    """Publish reports in a signed folder, sorted by value; return it.

    Raises SourceError for fewer than `least_reports`, ReleaseError if the folder holds something
    else, or cannot be written.
    """
    if len(reports.features) < spec.least_reports:
        raise SourceError(
            f"reports: {len(reports.features):,} so far, and nothing is published of fewer than"
            f" {spec.least_reports:,}, for a release is never replaced: wait for more, or state"
            " `least_reports` in the spec"
        )
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
            " replaced; to publish more of this collection, change `publish_to` in the spec, and"
            " that alone: its name stays, for the reports are of it"
        )
    return folder


def _table(reports: Reports) -> Any:
    """Sort by value: neither the order of arrival nor a report_id is published."""
    parameters = reports.parameters
    keys = [*reports.features.T, *([] if parameters.label is None else [reports.labels])]
    order = np.lexsort(keys[::-1])
    arrays = [pa.array(column[order]) for column in reports.features.T]
    fields = [pa.field(f.name, pa.float64(), nullable=False) for f in parameters.features]
    if parameters.label is not None:
        arrays.append(pa.array([parameters.levels[index] for index in reports.labels[order]]))
        fields.append(pa.field(parameters.label, pa.string(), nullable=False))
    return pa.table(arrays, schema=pa.schema(fields))
