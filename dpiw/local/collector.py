"""The collector's side: reports that were checked are published in a signed folder, once.

Nothing here is confidential: what arrives is private already, whoever collects it.
"""

from __future__ import annotations

import importlib.metadata
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpiw.data.files import copy_file
from dpiw.errors import ReleaseError, SourceError
from dpiw.local.arrived import Reports
from dpiw.local.certificate import LocalCertificate, LocalManifest
from dpiw.local.folder import REPORTS, verify_local
from dpiw.local.parameters import NAME as PARAMETERS
from dpiw.local.spec import LocalSpec
from dpiw.release.manifest import CERTIFICATE, FileEntry
from dpiw.release.parquet import arrow_fields, write_table
from dpiw.release.publication import build_folder
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.release.verification import file_digest
from dpiw.run.publish import make_root, today

_PACKAGES = ("dpiw", "numpy", "pandas", "pyarrow")


def publish_reports(spec: LocalSpec, reports: Reports) -> Path:
    """Publish reports in a signed folder, in an order that tells nothing; returns the folder.

    Raises:
        SourceError: they are fewer than the spec waits for.
        ReleaseError: the folder is there with something else in it, or cannot be written.
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
