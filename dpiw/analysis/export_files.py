"""A release's rows in the files of other packages: CSV, Stata and SPSS."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpiw.analysis.export_names import CSV, SPSS, STATA, renamed
from dpiw.analysis.optional import optional
from dpiw.data.columns import Column, ColumnKind
from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError
from dpiw.release.parquet import WEIGHT, WEIGHT_ROLES

if TYPE_CHECKING:
    from dpiw.analysis.release import Release

_STATA_LABEL = 80
"""Longest label that Stata has, in letters."""

_STATA_WEIGHT = "Synthetic rows. Declare the weights: svyset [pweight = weight]"
_SPSS_WEIGHT = "Synthetic rows. Declare the weights: WEIGHT BY weight."


@dataclass(frozen=True, kw_only=True, eq=False)
class _Weights:
    """The columns of weights, and what a file says of them.

    Attributes:
        columns: `weight`, and the replicates.
        texts: what each is, by name.
        stata: what to type in Stata.
        spss: the same in SPSS, lines of at most 80 characters.
    """

    columns: pd.DataFrame
    texts: dict[str, str]
    stata: str = _STATA_WEIGHT
    spss: tuple[str, ...] = (_SPSS_WEIGHT,)


def export(
    release: Release,
    path: str | Path,
    *,
    replicates: bool = False,
    names: Mapping[str, str] | None = None,
) -> Path:
    """Write rows and weights to a file for another package.

    `.csv`: plain values, `TRUE` and `FALSE`, empty where missing. `.dta` (Stata 14 and later) and
    `.sav` (SPSS, by the library pyreadstat): levels are numbers from 1 with labels, in the schema's
    order; truth values 0 and 1; columns bear the schema's descriptions. None of the formats can
    bind weights to rows: the last column but the replicates is `weight`, its label says what it is,
    and the file's label says what to type.

    Args:
        release: a verified release.
        path: of the file; a folder that is not there is made. What stands there is replaced once
            the new file is whole: an export that is stopped leaves it as it was.
        replicates: whether replicate weights follow as `r1`, `r2`, ...; their labels say the scale.
        names: other names for columns, where the format cannot hold theirs: from old to new. A
            column without a description has its old name for a label.

    Returns:
        The path.

    Raises:
        ReleaseError: not a release, another ending, no replicate weights, names that the format
            cannot hold or that are alike but for their case, a path that cannot be written, or
            pyreadstat is not installed.
    """
    if not isinstance(getattr(release, "schema", None), Mapping):
        raise ReleaseError(
            "export: expected a release, whose schema goes into the file; found"
            f" {type(release).__name__}"
        )
    path = Path(path)
    writers = {".csv": (_csv, CSV), ".dta": (_stata, STATA), ".sav": (_spss, SPSS)}
    if path.suffix not in writers:
        raise ReleaseError(f"export: {path}: expected a name that ends with {', '.join(writers)}")
    weights, names = _weights(release, replicates), dict(names or {})
    write, rule = writers[path.suffix]
    released = PublicSchema.from_mapping(release.schema).released
    columns = renamed(released, names, weights=map(str, weights.columns), rule=rule)
    table = release.table.rename(columns=names)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as beside:
            draft = Path(beside) / path.name
            write(draft, table, columns, weights)
            draft.replace(path)
    except OSError as reason:
        raise ReleaseError(f"export: {path}: {reason.strerror or 'not writable'}") from reason
    return path


def _weights(release: Release, replicates: bool) -> _Weights:
    full, texts = {WEIGHT: release.weights}, {WEIGHT: WEIGHT_ROLES[WEIGHT]}
    if not replicates:
        return _Weights(columns=pd.DataFrame(full), texts=texts)
    weights = release.replicate_weights
    if weights is None:
        raise ReleaseError("export: this release has no replicate weights")
    count, facts = weights.count, f"scale {weights.scale:.10g}, rscales 1, combined, mse"
    full |= {f"r{i}": column for i, column in enumerate(weights.weights.T, start=1)}
    texts |= {f"r{i}": f"replicate weight {i} of {count}: {facts}" for i in range(1, count + 1)}
    fay = 1 - (weights.scale * count) ** -0.5  # balanced repeated replication's factor
    return _Weights(
        columns=pd.DataFrame(full),
        texts=texts,
        stata=f"svyset [pweight = weight], brrweight(r1-r{count}) fay({fay:.8f}) vce(brr) mse",
        spss=(_SPSS_WEIGHT, f"Replicate weights r1 to r{count}: {facts}"),
    )


def _csv(path: Path, table: pd.DataFrame, columns: list[Column], weights: _Weights) -> None:
    """Truth values in the words of R, which takes pandas' `True` for text; pandas reads both."""
    recoded = table.copy(deep=False)
    for name, values in table.items():
        if pd.api.types.is_bool_dtype(values.dtype):
            recoded[name] = values.astype(object).map({True: "TRUE", False: "FALSE"})
    pd.concat([recoded, weights.columns], axis=1).to_csv(path, index=False)


def _stata(path: Path, table: pd.DataFrame, columns: list[Column], weights: _Weights) -> None:
    coded = {c.name: _coded(table[c.name], c) for c in columns}
    frame = pd.concat([pd.DataFrame(coded), weights.columns], axis=1)
    texts = _texts(columns) | weights.texts
    dates: dict[Any, Any] = {
        c.name: "td" if c.kind is ColumnKind.DATE else "tc" for c in _dated(columns)
    }
    frame.to_stata(
        path, write_index=False, version=118, data_label=weights.stata[:_STATA_LABEL],
        variable_labels={n: text[:_STATA_LABEL] for n, text in texts.items()},
        value_labels=_value_labels(columns), convert_dates=dates,
    )  # fmt: skip


def _spss(path: Path, table: pd.DataFrame, columns: list[Column], weights: _Weights) -> None:
    library = optional("pyreadstat", extra="export")
    coded = {c.name: _coded(table[c.name], c) for c in columns}
    for column in _dated(columns):
        coded[column.name] = _python_dates(coded[column.name], column)
    measures = {c.name: "scale" if c.is_numeric else "nominal" for c in columns}
    measures |= {c.name: "ordinal" for c in columns if c.kind is ColumnKind.ORDINAL}
    measures |= dict.fromkeys(map(str, weights.columns), "scale")
    library.write_sav(
        pd.concat([pd.DataFrame(coded), weights.columns], axis=1), str(path),
        file_label=_SPSS_WEIGHT[:64], note=list(weights.spss),
        column_labels=_texts(columns) | weights.texts,
        variable_value_labels=_value_labels(columns), variable_measure=measures,
    )  # fmt: skip


def _python_dates(values: pd.Series, column: Column) -> pd.Series:
    """Objects of Python: pyreadstat 1.3 takes pandas' seconds for nanoseconds."""
    days = column.kind is ColumnKind.DATE
    cells = [
        None if pd.isna(cell) else cell.date() if days else cell.to_pydatetime() for cell in values
    ]
    return pd.Series(cells, dtype=object)


def _dated(columns: list[Column]) -> list[Column]:
    return [c for c in columns if c.kind in (ColumnKind.DATE, ColumnKind.DATETIME)]


def _texts(columns: list[Column]) -> dict[str, str]:
    return {column.name: column.description for column in columns if column.description}


def _value_labels(columns: list[Column]) -> dict[str, dict[float, str]]:
    """By column: from code to label."""
    return {
        column.name: {float(_first(column) + i): text for i, text in enumerate(column.level_names)}
        for column in columns
        if column.is_discrete
    }


def _first(column: Column) -> int:
    return 0 if column.kind is ColumnKind.BOOLEAN else 1


def _coded(values: pd.Series, column: Column) -> Any:
    """Levels as numbers, moments as naive UTC; NaN or NaT where missing."""
    if column.kind is ColumnKind.DATETIME:
        return values.dt.tz_convert("UTC").dt.tz_localize(None)
    if column.kind is ColumnKind.DATE:
        return values
    if not column.is_discrete or column.kind is ColumnKind.BOOLEAN:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    codes: Mapping[str, float] = {name: i for i, name in enumerate(column.level_names, start=1)}
    return values.map(codes).to_numpy(dtype=np.float64, na_value=np.nan)
