"""Exports of a release: CSV, Stata and SPSS.

Each file is read back and compared with the rows before it takes its place, because each format
silently drops something: time zones, digits of large whole numbers, the ends of long labels.
"""

from __future__ import annotations

import io
import itertools
import re
import tempfile
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.read_back import (
    CHUNK,
    LARGEST_WHOLE,
    different,
    formulas,
    plain_readings,
    value_labels,
)
from dpiw.analysis.sample import Published
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.declarations import RESERVED_NAMES, folded_name
from dpiw.data.schema.levels import is_formula
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ReleaseError, SchemaError, nearest, optional, shown
from dpiw.release.parquet import WEIGHT, WEIGHT_ROLES


@dataclass(frozen=True, kw_only=True)
class _Format:
    """A file format.

    Attributes:
        names: which names it holds, in words; `holds` says so of a name.
        write: writes a file, reads it back, and returns the columns that differ.
        values: which values it holds, in words, by kind.
    """

    names: str
    holds: Callable[[str], bool]
    write: Callable[[Path, pd.DataFrame, Sequence[Column], _Weights], list[str]]
    values: Mapping[ColumnKind, str]


def _renamed(
    columns: Sequence[Column], names: Mapping[str, str], *, weights: Iterable[str], form: _Format
) -> list[Column]:
    """Rename columns for a file; a renamed column without description gets its old name as label.

    Raises ReleaseError, which suggests names, if the format cannot hold one or two are alike.
    """
    old_names = [column.name for column in columns]
    if unknown := [name for name in names if name not in old_names]:
        raise ReleaseError(
            f"names: no column {unknown[0]!r}{nearest(unknown[0], old_names)}", field="export"
        )
    try:
        new = [
            replace(column, name=names[column.name], description=column.description or column.name)
            if column.name in names
            else column
            for column in columns
        ]
        PublicSchema(name="export", columns=tuple(new))
    except SchemaError as reason:
        raise ReleaseError(f"names: {reason}", field="export") from None
    needed = set(map(folded_name, weights))
    bad = {
        old: column.name
        for old, column in zip(old_names, new, strict=True)
        if folded_name(column.name) in needed or not form.holds(column.name)
    }
    if not bad:
        return new
    taken = needed | RESERVED_NAMES | {folded_name(column.name) for column in new}
    suggested = dict(names)
    for old in bad:
        suggested[old] = next(
            n for n in _likes(old) if folded_name(n) not in taken and form.holds(n)
        )
        taken.add(folded_name(suggested[old]))
    raise ReleaseError(
        f"column {next(iter(bad.values()))!r}: the file cannot hold this name; expected"
        f" {form.names}, no reserved word, and no weight's name. Pass names={suggested!r}",
        field="export",
    )


def _likes(name: str) -> Iterator[str]:
    ascii_letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    stem = re.sub(r"\W+", "_", ascii_letters).strip("_")[:24]
    yield from (re.sub(r"\W+", "_", name).strip("_")[:30], stem, f"v_{stem}")
    yield from (f"v_{stem}_{number}" for number in itertools.count(2))


# --- the formats --------------------------------------------------------------------------------

_STATA_NAME, _SPSS_NAME = 32, 64
"""Longest name: in Stata in letters, in SPSS in bytes."""

_SPSS_WORDS = frozenset(
    {"ALL", "AND", "BY", "EQ", "GE", "GT", "LE", "LT", "NE", "NOT", "OR", "TO", "WITH"}
)


def _stata_holds(name: str) -> bool:
    """Whether pandas writes this name, which it would silently replace."""
    if re.fullmatch(r"str\d+", name) or not name.isidentifier():
        return False
    with warnings.catch_warnings(action="error", category=pd.errors.InvalidColumnName):
        try:
            pd.DataFrame({name: [0.0]}).to_stata(io.BytesIO(), write_index=False, version=118)
        except pd.errors.InvalidColumnName:
            return False
    return True


def _spss_holds(name: str) -> bool:
    is_word = name.isidentifier() and name[0].isalpha() and len(name.encode()) <= _SPSS_NAME
    return is_word and name.upper() not in _SPSS_WORDS


_STATA_LABEL, _SPSS_LABEL = 80, 256
"""Longest label of a column: in Stata in letters, in SPSS in bytes."""

_STATA_WEIGHT = "Synthetic rows. Declare the weights: svyset [pweight = weight]"
_SPSS_WEIGHT = "Synthetic rows. Declare the weights: WEIGHT BY weight."


@dataclass(frozen=True, kw_only=True, eq=False)
class _Weights:
    """The columns of weights, what each is, and what to type in Stata and SPSS."""

    columns: pd.DataFrame
    texts: dict[str, str]
    stata: str = _STATA_WEIGHT
    spss: tuple[str, ...] = (_SPSS_WEIGHT,)


def export(
    release: Published,
    path: str | Path,
    *,
    replicates: bool = False,
    names: Mapping[str, str] | None = None,
) -> Path:
    """Write rows and weights to a file for another package; return its path.

    `.csv`: plain values, `TRUE` and `FALSE`, empty where missing, moments with their UTC offset.
    `.dta` (Stata 14 and later) and `.sav` (SPSS, needs pyreadstat): levels are numbers from 1 with
    labels; truth values are 0 and 1; moments show the clock of the column's time zone. The column
    `weight` follows the data; no format binds it, so the file's label says what to type.

    Args:
        release: a verified release.
        path: missing folders are created; only a complete new file replaces an existing one.
        replicates: whether replicate weights follow as `r1`, `r2`, ..., with the scale as label.
        names: from old to new, for columns whose names the format cannot hold.

    Raises:
        ReleaseError: the format cannot hold a column or a name, or the file cannot be written.

    Warns:
        UserWarning: CSV: readers change columns of text or digits by default.
    """
    if not isinstance(getattr(release, "schema", None), Mapping):
        raise ReleaseError(
            field="export",
            allowed=f"a release, whose schema goes into the file; found {type(release).__name__}",
        )
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise ReleaseError(
            f"{path}: expected a file name that ends with {' or '.join(_FORMATS)}", field="export"
        )
    form = _FORMATS[path.suffix]
    weights, names = _weights(release, replicates), dict(names or {})
    released = PublicSchema.from_mapping(release.schema).released
    columns = _renamed(released, names, weights=map(str, weights.columns), form=form)
    table = release.table.rename(columns=names)
    if path.suffix == ".csv" and (computed := formulas(table, columns)):
        raise ReleaseError(
            f"{_listed(computed)}: a level begins with one of = + - @, and spreadsheets"
            " compute such cells of CSV",
            field="export",
            allowed=".dta or .sav, where levels are labels",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as beside:
            draft = Path(beside) / path.name
            if changed := _changed(form, draft, table, columns, weights):
                raise ReleaseError(_not_held(changed, columns, form, path.suffix))
            draft.replace(path)
    except OSError as reason:
        raise ReleaseError(
            f"{path}: the file cannot be written: {reason.strerror or 'unknown reason'}",
            field="export",
        ) from reason
    if path.suffix == ".csv":
        _warn_of_readers(table, columns)
    return path


_REFUSALS = (ValueError, TypeError, OverflowError, KeyError, RuntimeError, pd.errors.DataError)
"""Errors of writers about values; OSError is about the path."""


def _changed(
    form: _Format, draft: Path, table: pd.DataFrame, columns: Sequence[Column], weights: _Weights
) -> list[str]:
    """Write a file; return the columns that it does not hold, or on which the writer failed."""
    names = [column.name for column in columns]
    try:
        return list(dict.fromkeys(form.write(draft, table, columns, weights)))
    except _REFUSALS:  # never show a library's text: it may hold cells
        if len(columns) == 1:
            return names
    bare = _Weights(columns=pd.DataFrame(index=table.index), texts={})
    alone = (_changed(form, draft, table[[c.name]], [c], bare) for c in columns)
    return list(itertools.chain(*alone)) or names  # no column fails alone: blame all


def _not_held(changed: Sequence[str], columns: Sequence[Column], form: _Format, ending: str) -> str:
    kinds = {column.name: column.kind for column in columns}
    reasons = [form.values[kinds[name]] for name in changed if kinds.get(name) in form.values]
    other = ".dta or .sav" if ending == ".csv" else ".csv, which holds every value"
    why = f" (it holds {'; '.join(dict.fromkeys(reasons))})" if reasons else ""
    return f"export: {_listed(changed)}: {ending} cannot hold all values{why}; export to {other}"


def _listed(names: Sequence[str]) -> str:
    return f"column{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"


def _warn_of_readers(table: pd.DataFrame, columns: Sequence[Column]) -> None:
    readings = {column.name: (column, why) for column, why in plain_readings(table, columns)}
    if not readings:
        return
    told = ", ".join(f"{name!r} ({shown(why)})" for name, (_, why) in readings.items())
    types = {name: "str" if c.is_discrete else "Int64" for name, (c, _) in readings.items()}
    texts = ", ".join(f"{name!r} = 'character'" for name in readings)
    warnings.warn(
        f"export: CSV cannot say that cells are text or exact, and readers change these columns: "
        f"{told}; pandas: read_csv(..., dtype={types!r}, keep_default_na=False, na_values=[''])"
        f"; R: read.csv(..., colClasses = c({texts}), na.strings = '')",
        stacklevel=3,
    )


def _weights(release: Published, replicates: bool) -> _Weights:
    full, texts = {WEIGHT: release.weights}, {WEIGHT: WEIGHT_ROLES[WEIGHT]}
    if not replicates:
        return _Weights(columns=pd.DataFrame(full), texts=texts)
    weights = release.replicate_weights
    if weights is None:
        fault = "this release has no replicate weights; leave `replicates` out"
        raise ReleaseError(fault, field="export")
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


_CELLS: Mapping[ColumnKind, Callable[[Any], Any]] = {
    ColumnKind.BOOLEAN: {True: "TRUE", False: "FALSE"}.__getitem__,
    ColumnKind.DATE: lambda moment: moment.date().isoformat(),
    ColumnKind.DATETIME: lambda moment: moment.isoformat(sep=" "),
}
"""Cells of CSV whose form is ours; R and pandas read `TRUE` and `FALSE`."""


def _csv(
    path: Path, table: pd.DataFrame, columns: Sequence[Column], weights: _Weights
) -> list[str]:
    frame = pd.concat([table, weights.columns], axis=1)
    for c in columns:
        if c.kind in _CELLS:
            cells = table[c.name].astype(object)
            frame[c.name] = cells.map(_CELLS[c.kind], na_action="ignore")
    frame.to_csv(path, index=False)
    with pd.read_csv(path, dtype=str, na_filter=False, encoding="utf-8", chunksize=CHUNK) as read:
        return different(read, frame)


def _stata(
    path: Path, table: pd.DataFrame, columns: Sequence[Column], weights: _Weights
) -> list[str]:
    frame = _doubles(table, columns, weights, first="0100-01-01")
    texts, labels = _texts(columns, weights, _STATA_LABEL, len), value_labels(columns)
    dates: dict[Any, Any] = {
        c.name: "td" if c.kind is ColumnKind.DATE else "tc" for c in _dated(columns)
    }
    frame.to_stata(
        path, write_index=False, version=118, data_label=weights.stata[:_STATA_LABEL],
        variable_labels=texts, value_labels=labels, convert_dates=dates,
    )  # fmt: skip
    with pd.io.stata.StataReader(path, chunksize=CHUNK, convert_categoricals=False) as reader:
        changed = different(reader, frame)
        return [
            *changed,
            *_unlike(reader.value_labels(), labels),
            *_unlike(reader.variable_labels(), texts),
        ]


def _spss(
    path: Path, table: pd.DataFrame, columns: Sequence[Column], weights: _Weights
) -> list[str]:
    library = optional("pyreadstat", extra="export")
    frame = _doubles(table, columns, weights, first="1582-10-15")
    texts = _texts(columns, weights, _SPSS_LABEL, lambda text: len(text.encode()))
    labels = value_labels(columns)
    empty = {c.name: "DATE11" for c in _dated(columns) if table[c.name].isna().all()}
    told = frame.copy()
    for c in _dated(columns):  # an empty one would become text
        told[c.name] = np.nan if c.name in empty else _python_dates(frame[c.name], c)
    measures = {c.name: "scale" if c.is_numeric else "nominal" for c in columns}
    measures |= {c.name: "ordinal" for c in columns if c.kind is ColumnKind.ORDINAL}
    measures |= dict.fromkeys(map(str, weights.columns), "scale")
    library.write_sav(
        told, str(path), file_label=_SPSS_WEIGHT[:64], note=list(weights.spss),
        column_labels=texts, variable_value_labels=labels, variable_measure=measures,
        variable_format=empty,
    )  # fmt: skip
    read, about = library.read_sav(str(path))
    return [
        *different([read], frame),
        *_unlike(about.variable_value_labels, labels),
        *_unlike(about.column_names_to_labels, texts),
    ]


def _unlike(found: Mapping[str, Any], meant: Mapping[str, Any]) -> list[str]:
    return [name for name, labels in meant.items() if found.get(name) != labels]


def _python_dates(values: pd.Series, column: Column) -> pd.Series:
    """Dates as Python objects: pyreadstat 1.3 takes pandas' seconds for nanoseconds."""
    days = column.kind is ColumnKind.DATE
    cells = [
        None if pd.isna(cell) else cell.date() if days else cell.to_pydatetime() for cell in values
    ]
    return pd.Series(cells, dtype=object)


def _dated(columns: Iterable[Column]) -> list[Column]:
    return [c for c in columns if c.kind in (ColumnKind.DATE, ColumnKind.DATETIME)]


def _texts(
    columns: Iterable[Column], weights: _Weights, room: int, size: Callable[[str], int]
) -> dict[str, str]:
    texts = {}
    for column in columns:
        moment = column.kind is ColumnKind.DATETIME
        clock = f" (clock of {column.time_zone})" if moment else ""
        text = shown(column.description or (column.name if moment else "")).strip()
        cut = text
        while size(cut + clock) > room:
            cut = cut.removesuffix("...")[:-1] + "..."
        if cut + clock:
            texts[column.name] = cut + clock
    return texts | {name: text[:room] for name, text in weights.texts.items()}


def _doubles(
    table: pd.DataFrame, columns: Sequence[Column], weights: _Weights, *, first: str
) -> pd.DataFrame:
    """Rows as a file of doubles and days holds them; ValueError if it cannot, as before `first`."""
    coded = {c.name: _coded(table[c.name], c) for c in columns}
    if any((coded[c.name] < np.datetime64(first)).any() for c in _dated(columns)):
        raise ValueError
    return pd.concat([pd.DataFrame(coded), weights.columns], axis=1)


def _coded(values: pd.Series, column: Column) -> Any:
    if column.kind is ColumnKind.DATETIME:
        return values.dt.tz_convert(column.time_zone).dt.tz_localize(None)
    if column.kind is ColumnKind.DATE:
        return values
    if column.kind is ColumnKind.INTEGER and any(int(float(n)) != n for n in values.dropna()):
        raise ValueError
    if column.kind in (ColumnKind.CATEGORICAL, ColumnKind.ORDINAL):
        missing = values.isna().sum()
        values = values.map({name: i for i, name in enumerate(column.level_names, start=1)})
        if values.isna().sum() > missing:  # no level of the schema
            raise ValueError
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _holds(numbers: str, first_day: str, label: str) -> dict[ColumnKind, str]:
    labels = f"the schema's levels, as labels of at most {label}"
    return {
        ColumnKind.INTEGER: f"whole numbers to {LARGEST_WHOLE} (2^53), as doubles",
        ColumnKind.CONTINUOUS: numbers,
        **dict.fromkeys((ColumnKind.DATE, ColumnKind.DATETIME), f"days from {first_day} on"),
        **dict.fromkeys((ColumnKind.CATEGORICAL, ColumnKind.ORDINAL), labels),
    }


_FORMATS = {
    ".csv": _Format(
        names="a name that no spreadsheet computes",
        holds=lambda name: not is_formula(name),
        write=_csv,
        values={},
    ),
    ".dta": _Format(
        names=f"letters, digits and `_`, at most {_STATA_NAME}",
        holds=_stata_holds,
        write=_stata,
        values=_holds("numbers within 8.98e307", "the year 100", "32,000 characters"),
    ),
    ".sav": _Format(
        names=f"letters, digits and `_`, a letter first, at most {_SPSS_NAME} bytes",
        holds=_spss_holds,
        write=_spss,
        values=_holds("finite doubles but the least, its missing value", "1582-10-15", "120 bytes"),
    ),
}
