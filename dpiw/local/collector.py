"""The collector: a spec and its public parameters; reports, checked and published once, signed.

Reports are private already. A message names a refused report by its file or row, never its values.
"""

import contextlib
import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from dpiw.data.files import copy_file, write_durably
from dpiw.data.yaml import load_file, marked
from dpiw.errors import DPIWError, ReleaseError, SourceError, SpecError
from dpiw.local.certificate import (
    REPORTS,
    LocalCertificate,
    LocalFacts,
    LocalManifest,
    report_columns,
    verify_local,
)
from dpiw.local.parameters import NAME as PARAMETERS
from dpiw.local.parameters import RESERVED, Feature, LocalParameters, calibrated
from dpiw.plan.json_schema import model_schema
from dpiw.plan.spec import located
from dpiw.plan.spec_types import Count, Exact, Name, Number, PlainText, Section, validated
from dpiw.privacy.mechanisms import lattice_step
from dpiw.release.manifest import CERTIFICATE, FileEntry
from dpiw.release.parquet import write_table
from dpiw.release.publication import build_folder
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.release.verification import file_digest
from dpiw.run.publish import make_root, today

LEAST_REPORTS = 1000
"""Default `least_reports`: their average still has a thirtieth of one report's noise."""

_FIELDS = {"collection": "name", "levels": "label"}
"""Fields of the parameters that have another name in the spec."""


class FeatureSpec(Section):
    """A number that people tell, with public bounds.

    Attributes:
        name: of the feature, a key of each report.
        low: told as -1; what lies below is clipped.
        high: told as +1; what lies above is clipped.
        private: whether it is noised; if not, nothing protects it.
    """

    name: PlainText
    low: Number
    high: Number
    private: bool = True


class LabelSpec(Section):
    """One of a few levels that people tell.

    Attributes:
        name: of the label, a key of each report.
        levels: what it may be, two or more different texts.
    """

    name: PlainText
    levels: Annotated[list[PlainText], Field(min_length=2, max_length=1000)]


class LocalSpec(Section):
    """What people are asked, what it costs each of them, and where the reports go.

    Attributes:
        format: of this file, 1.
        name: of the collection and of its folder; one person reports to it once.
        features: numbers with public bounds, told on a scale of -1 to 1.
        label: told by randomised response; left out: there is none.
        epsilon: of a person's whole report, in [0.001, 20], replace-one.
        delta: of a whole report, in [1e-30, 0.001]; 0 where no feature is private.
        radius: of the ball onto which private features are projected; left out: all records fit.
        parameter_norm: a public guess at the norm of a model's parameters.
        parameters: the file of public parameters that clients get.
        reports: a folder of reports, or a `.csv` or `.parquet` file.
        signing_key: the collector's private key file.
        publish_to: the folder in which the release's folder will lie.
        least_reports: with fewer of them nothing is published, as a release is never replaced.
    """

    format: Literal[1]
    name: Name
    features: tuple[FeatureSpec, ...] = ()
    label: LabelSpec | None = None
    epsilon: Exact
    delta: Exact
    radius: Number | None = None
    parameter_norm: Number = 0.0
    parameters: PlainText
    reports: PlainText
    signing_key: PlainText
    publish_to: PlainText
    least_reports: Annotated[Count, Field(ge=1, le=10**12)] = LEAST_REPORTS

    def calibrated(self) -> LocalParameters:
        """Return the parameters with the least noise that keeps the promise; SpecError if none."""
        try:
            return calibrated(
                collection=self.name,
                features=[Feature(**feature.model_dump()) for feature in self.features],
                label=None if self.label is None else self.label.name,
                levels=() if self.label is None else self.label.levels,
                epsilon=self.epsilon, delta=self.delta,
                radius=self.radius, parameter_norm=self.parameter_norm,
            )  # fmt: skip
        except DPIWError as error:
            refusal = SpecError(error.found, field=error.field, allowed=error.allowed)
        raise refusal


def local_schema() -> dict[str, Any]:
    """Return the JSON Schema of a local spec."""
    return model_schema(LocalSpec, sys.modules[__name__], "dpiw local collection")


def load_local_spec(path: Path) -> LocalSpec:
    """Read a spec file; its relative paths become absolute, from the file's folder.

    Raises SpecError, which names the field, what was expected, and the place in the file.
    """
    mapping = load_file(path, what=path.name, exact=True)
    if not isinstance(mapping, dict):
        raise SpecError(field=path.name, allowed="a mapping of settings, `key: value`")
    with marked(path, SpecError):
        spec, base = validated(LocalSpec, mapping), path.resolve().parent
        names = ("parameters", "reports", "signing_key", "publish_to")
        return spec.model_copy(
            update={name: str(located(base, name, getattr(spec, name)).resolve()) for name in names}
        )


def write_parameters(spec: LocalSpec) -> LocalParameters:
    """Write the public parameters for clients, unless the file exists.

    Raises SpecError if the existing file promises something else, or it cannot be written.
    """
    path = Path(spec.parameters)
    if path.exists():
        return read_parameters(spec)
    parameters = spec.calibrated()
    try:
        write_durably(path, parameters.to_json(), mode=0o644)
    except OSError as reason:
        raise SpecError(
            f"{path.name} cannot be written: {reason.strerror}", field="parameters"
        ) from reason
    return parameters


def read_parameters(spec: LocalSpec) -> LocalParameters:
    """Read the clients' parameters; SpecError if their promise is not the spec's.

    The noise may differ: another version of SciPy may solve for another value. Else raises as
    `LocalParameters.read`.
    """
    parameters, meant = LocalParameters.read(spec.parameters), spec.calibrated()
    adjusted = replace(parameters, stddev=meant.stddev, kept=meant.kept)
    names = [f.name for f in fields(meant) if getattr(adjusted, f.name) != getattr(meant, f.name)]
    if names:
        raise SpecError(
            f"{Path(spec.parameters).name}, which clients were given, is of another spec ("
            f"{', '.join(_FIELDS.get(name, name) for name in names)}). Put these fields back to"
            " publish the clients' reports; to publish more of them, change `publish_to` alone."
            " For a collection of new reports, change `name`, `parameters` and `reports`",
            field="parameters",
        )
    return parameters


def told_plan(parameters: LocalParameters) -> list[str]:
    """Return lines for people: what a collection costs and allows."""
    lines = [
        f"collection {parameters.collection}: epsilon={parameters.epsilon},"
        f" delta={parameters.delta} a person, replace-one",
    ]
    if parameters.dimension:
        lines += [
            f"features   noise of {parameters.stddev:.4g} in each, on a scale of -1 to 1;"
            f" ball of radius {parameters.radius:.4g}",
            f"           learns parameters of a norm of at most {parameters.largest_norm:.3g}",
        ]
    if parameters.response is not None:
        lines += [
            f"label      told as it is with probability {parameters.response.keep:.4f},"
            f" epsilon {parameters.response.epsilon:.4g} alone"
        ]
    bare = ", ".join(parameters.bare)
    return [*lines, *([f"not noised, not protected: {bare}"] if bare else [])]


_FARTHEST = 40.0
"""Most standard deviations of noise beyond the ball (probability e^-800)."""

_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError, pa.ArrowException)
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
    _refuse(
        frame,
        ~ids.str.fullmatch("[0-9a-f]{32}") | ids.duplicated(keep=False),
        "expected 32 hexadecimal digits as report_id, one report each",
    )
    features = np.empty((len(frame), len(parameters.features)))
    for j, feature in enumerate(parameters.features):
        features[:, j] = _feature_values(frame, feature.name, parameters, j)
    return Reports(parameters=parameters, features=features, labels=_labels(frame, parameters))


def reports_so_far(spec: LocalSpec) -> int:
    """Return how many reports have arrived, unchecked; 0 if they cannot be counted."""
    path = Path(spec.reports)
    with contextlib.suppress(*_UNREADABLE):
        if path.is_dir():
            return len(list(path.glob("*.json")))
        if path.suffix in _TABLES:
            return len(_TABLES[path.suffix](path))
    return 0


_TABLES: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""]),
    ".parquet": lambda path: pd.read_parquet(path),
}


def _frame(path: Path, keys: set[str]) -> pd.DataFrame:
    if not path.exists():
        raise SourceError(
            "no such file or folder; a relative path starts at the spec's folder", field="reports"
        )
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
            "no report can be read there",
            field="reports",
            allowed="a folder of .json files, a report in each, or a .csv or .parquet file",
        )
    if set(frame.columns) != keys:
        raise SourceError(field="reports", allowed=f"rows of exactly {_listed(keys)}")
    return frame.map(str)  # of floats: exact


def _keys_of(path: Path, keys: set[str]) -> dict[str, Any]:
    report = None
    with contextlib.suppress(*_UNREADABLE):
        report = json.loads(path.read_bytes())
    if not isinstance(report, dict) or set(report) != keys:
        raise SourceError(
            f"{path.name!r}: expected a JSON object of exactly {_listed(keys)}, as a"
            " client makes it",
            field="reports",
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
            f"{expected}; not so in {count:,} of {len(frame):,}: {', '.join(names)}{rest}",
            field="reports",
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
        _refuse(frame, off, f"{name}: expected every digit as the client wrote it")
    return values


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return np.nan


def _labels(frame: pd.DataFrame, parameters: LocalParameters) -> NDArray[np.int64]:
    if parameters.label is None:
        return np.empty(0, dtype=np.int64)
    told = pd.Index(frame[parameters.label])
    indices = np.asarray(pd.Index(parameters.levels).get_indexer(told), dtype=np.int64)
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
            f"{len(reports.features):,} so far; none are published before {spec.least_reports:,},"
            " because a release is never replaced. Wait for more, or set `least_reports` in the"
            " spec",
            field="reports",
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
            facts=LocalFacts.of(
                certificate, columns=report_columns(reports.parameters), published_at=today()
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
            f"release folder {folder.name} exists, with other reports or signed by another key, and"
            " a release is never replaced. To publish more reports of this collection, change"
            " `publish_to` alone in the spec; `name` stays"
        )
    return folder


def _table(reports: Reports) -> Any:
    """Sort by value: neither the order of arrival nor a report_id is published."""
    parameters = reports.parameters
    keys = [*reports.features.T, *([] if parameters.label is None else [reports.labels])]
    order = np.lexsort(keys[::-1])
    values = [column[order] for column in reports.features.T]
    if parameters.label is not None:
        values.append(np.array(parameters.levels)[reports.labels[order]])
    schema = pa.schema(
        [
            pa.field(column.name, pa.type_for_alias(column.type), nullable=False)
            for column in report_columns(parameters)
        ]
    )
    return pa.table(list(map(pa.array, values)), schema=schema)
