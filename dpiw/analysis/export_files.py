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
    LARGEST_WHOLE,
    changed_csv,
    changed_spss,
    changed_stata,
    formulas,
    plain_readings,
    value_labels,
)
from dpiw.analysis.sample import Published
from dpiw.data.columns import Column, ColumnKind
from dpiw.data.declarations import RESERVED_NAMES, folded_name, name_fault
from dpiw.data.levels import is_formula
from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError, nearest, optional, shown
from dpiw.release.parquet import WEIGHT, WEIGHT_ROLES


@dataclass(frozen=True, kw_only=True)
class NameRule:
    """Which names a format holds: `expected` in words, and those of some names it refuses."""

    expected: str
    refused: Callable[[Sequence[str]], list[str]]

    def holds(self, name: str) -> bool:
        """Whether the format holds this name."""
        return not self.refused([name])


def renamed(
    columns: Sequence[Column], names: Mapping[str, str], *, weights: Iterable[str], rule: NameRule
) -> list[Column]:
    """Rename columns for a file; a renamed column without description gets its old name as label.

    Raises ReleaseError, which suggests names, if the format cannot hold one or two are alike.
    """
    _check_new(columns, names)
    new = {column.name: names.get(column.name, column.name) for column in columns}
    _check_alike(new.values())
    needed = {folded_name(name) for name in weights}
    refused = set(rule.refused(list(new.values())))
    clashing = [old for old, name in new.items() if folded_name(name) in needed]
    bad = clashing + [old for old, name in new.items() if name in refused and old not in clashing]
    if bad:
        held = (folded_name(name) for old, name in new.items() if old not in bad)
        suggested = dict(names) | _suggested(bad, {*needed, *held, *RESERVED_NAMES}, rule)
        why = f"expected {rule.expected}, and no word that the format keeps for itself"
        why = "the weights need that name" if clashing else why
        raise ReleaseError(
            f"column {new[bad[0]]!r}: {why}; what would do: names={suggested!r}", field="export"
        )
    return [
        replace(column, name=new[column.name], description=column.description or column.name)
        if column.name in names
        else column
        for column in columns
    ]


def _check_new(columns: Sequence[Column], names: Mapping[str, str]) -> None:
    unknown = [name for name in names if name not in {column.name for column in columns}]
    if unknown:
        near = nearest(unknown[0], [column.name for column in columns])
        raise ReleaseError(f"names: no column {unknown[0]!r}{near}", field="export")
    for old, name in names.items():
        fault = str(name_fault(name) or "")
        if not fault and name in RESERVED_NAMES:
            fault = f"a release keeps {name!r} for itself"
        if fault:
            raise ReleaseError(f"names: column {old!r}: {fault}", field="export")


def _check_alike(names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        folded = folded_name(name)
        if folded in seen:
            raise ReleaseError(
                f"columns {seen[folded]!r} and {name!r} would be one name", field="export"
            )
        seen[folded] = name


def _suggested(bad: Sequence[str], taken: set[str], rule: NameRule) -> dict[str, str]:
    seen, suggested = set(taken), {}
    for name in bad:
        suggested[name] = next(
            candidate
            for candidate in _likes(name)
            if folded_name(candidate) not in seen and rule.holds(candidate)
        )
        seen.add(folded_name(suggested[name]))
    return suggested


def _likes(name: str) -> Iterator[str]:
    name = name.replace("\N{MICRO SIGN}", "u")
    latin = name.replace("\N{GREEK SMALL LETTER MU}", "u")
    ascii_letters = unicodedata.normalize("NFKD", latin).encode("ascii", "ignore").decode()
    stem = re.sub(r"\W+", "_", ascii_letters).strip("_")[:24]
    yield re.sub(r"\W+", "_", name).strip("_")[:30]
    yield stem
    yield f"v_{stem}"
    yield from (f"v_{stem}_{number}" for number in itertools.count(2))


# --- the formats --------------------------------------------------------------------------------

_STATA_NAME, _SPSS_NAME = 32, 64
"""Longest name: in Stata in letters, in SPSS in bytes."""

_SPSS_WORDS = frozenset(
    {"ALL", "AND", "BY", "EQ", "GE", "GT", "LE", "LT", "NE", "NOT", "OR", "TO", "WITH"}
)


def _stata_refuses(names: Sequence[str]) -> list[str]:
    """Names that pandas would silently replace: tried together first, then one by one."""
    types = [name for name in names if re.fullmatch(r"str\d+", name) or not name.isidentifier()]
    candidates = [name for name in names if name not in types]
    if candidates and not _pandas_writes(candidates):
        types += [name for name in candidates if not _pandas_writes([name])]
    return types


def _pandas_writes(names: Sequence[str]) -> bool:
    with warnings.catch_warnings(action="error", category=pd.errors.InvalidColumnName):
        try:
            frame = pd.DataFrame([[0.0] * len(names)], columns=list(names))
            frame.to_stata(io.BytesIO(), write_index=False, version=118)
        except pd.errors.InvalidColumnName:
            return False
    return True


def _spss_refuses(names: Sequence[str]) -> list[str]:
    return [
        name
        for name in names
        if not (name.isidentifier() and name[0].isalpha() and len(name.encode()) <= _SPSS_NAME)
        or name.upper() in _SPSS_WORDS
    ]


CSV = NameRule(
    expected="a name that no spreadsheet computes",
    refused=lambda names: list(filter(is_formula, names)),
)
STATA = NameRule(expected=f"letters, digits and `_`, at most {_STATA_NAME}", refused=_stata_refuses)
SPSS = NameRule(
    expected=f"letters, digits and `_`, a letter first, at most {_SPSS_NAME} bytes",
    refused=_spss_refuses,
)


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
            f"{path}: expected a name that ends with {', '.join(_FORMATS)}", field="export"
        )
    form = _FORMATS[path.suffix]
    weights, names = _weights(release, replicates), dict(names or {})
    released = PublicSchema.from_mapping(release.schema).released
    columns = renamed(released, names, weights=map(str, weights.columns), rule=form.names)
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
            changed = _written(form, draft, table, columns, weights)
            if changed:
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


@dataclass(frozen=True, kw_only=True)
class _Format:
    names: NameRule
    write: Callable[[Path, pd.DataFrame, Sequence[Column], _Weights], None]
    changed: Callable[[Path, pd.DataFrame, Sequence[Column], _Weights], list[str]]
    holds: Mapping[ColumnKind, str]


def _written(
    form: _Format,
    draft: Path,
    table: pd.DataFrame,
    columns: Sequence[Column],
    weights: _Weights,
) -> list[str]:
    """Write a file; return the columns that it does not hold, or on which the writer failed."""
    try:
        form.write(draft, table, columns, weights)
        return form.changed(draft, table, columns, weights)
    except _REFUSALS:  # never show a library's text: it may hold cells
        bare = _Weights(columns=pd.DataFrame(index=table.index), texts={})
        names = [c.name for c in columns]
        faulty = [c.name for c in columns if not _alone(form, draft, table, c, bare)]
        return faulty or names  # no column fails alone: blame all


_REFUSALS = (ValueError, TypeError, OverflowError, KeyError, RuntimeError, pd.errors.DataError)
"""Errors of writers about values; OSError is about the path."""


def _alone(
    form: _Format, draft: Path, table: pd.DataFrame, column: Column, weights: _Weights
) -> bool:
    try:
        form.write(draft, table[[column.name]], [column], weights)
        return not form.changed(draft, table[[column.name]], [column], weights)
    except _REFUSALS:
        return False


def _not_held(changed: Sequence[str], columns: Sequence[Column], form: _Format, ending: str) -> str:
    kinds = {column.name: column.kind for column in columns}
    reasons = [form.holds[kinds[name]] for name in changed if kinds.get(name) in form.holds]
    other = ".dta or .sav" if ending == ".csv" else ".csv, which holds every value"
    why = f" ({'; '.join(dict.fromkeys(reasons))})" if reasons else ""
    return f"export: {_listed(changed)}: {ending} does not hold its values{why}; export to {other}"


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
        raise ReleaseError("this release has no replicate weights", field="export")
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


def _csv(path: Path, table: pd.DataFrame, columns: Sequence[Column], weights: _Weights) -> None:
    """Write truth values as `TRUE` and `FALSE`, which both R and pandas read."""
    recoded = table.copy(deep=False)
    for name, values in table.items():
        if pd.api.types.is_bool_dtype(values.dtype):
            recoded[name] = values.astype(object).map({True: "TRUE", False: "FALSE"})
    pd.concat([recoded, weights.columns], axis=1).to_csv(path, index=False)


def _stata(path: Path, table: pd.DataFrame, columns: Sequence[Column], weights: _Weights) -> None:
    coded = {c.name: _coded(table[c.name], c) for c in columns}
    frame = pd.concat([pd.DataFrame(coded), weights.columns], axis=1)
    dates: dict[Any, Any] = {
        c.name: "td" if c.kind is ColumnKind.DATE else "tc" for c in _dated(columns)
    }
    frame.to_stata(
        path, write_index=False, version=118, data_label=weights.stata[:_STATA_LABEL],
        variable_labels=_stata_texts(columns, weights),
        value_labels=value_labels(columns), convert_dates=dates,
    )  # fmt: skip


def _spss(path: Path, table: pd.DataFrame, columns: Sequence[Column], weights: _Weights) -> None:
    library = optional("pyreadstat", extra="export")
    coded = {c.name: _coded(table[c.name], c) for c in columns}
    for column in _dated(columns):
        coded[column.name] = _python_dates(coded[column.name], column)
    empty = {c.name: "DATE11" for c in _dated(columns) if coded[c.name].isna().all()}
    coded |= {name: np.full(len(table), np.nan) for name in empty}  # else they become text
    measures = {c.name: "scale" if c.is_numeric else "nominal" for c in columns}
    measures |= {c.name: "ordinal" for c in columns if c.kind is ColumnKind.ORDINAL}
    measures |= dict.fromkeys(map(str, weights.columns), "scale")
    library.write_sav(
        pd.concat([pd.DataFrame(coded), weights.columns], axis=1), str(path),
        file_label=_SPSS_WEIGHT[:64], note=list(weights.spss),
        column_labels=_spss_texts(columns, weights),
        variable_value_labels=value_labels(columns), variable_measure=measures,
        variable_format=empty,
    )  # fmt: skip


def _python_dates(values: pd.Series, column: Column) -> pd.Series:
    """Dates as Python objects: pyreadstat 1.3 takes pandas' seconds for nanoseconds."""
    days = column.kind is ColumnKind.DATE
    cells = [
        None if pd.isna(cell) else cell.date() if days else cell.to_pydatetime() for cell in values
    ]
    return pd.Series(cells, dtype=object)


def _dated(columns: Iterable[Column]) -> list[Column]:
    return [c for c in columns if c.kind in (ColumnKind.DATE, ColumnKind.DATETIME)]


def _stata_texts(columns: Iterable[Column], weights: _Weights) -> dict[str, str]:
    return _texts(columns, weights, room=_STATA_LABEL, size=len)


def _spss_texts(columns: Iterable[Column], weights: _Weights) -> dict[str, str]:
    return _texts(columns, weights, room=_SPSS_LABEL, size=lambda text: len(text.encode()))


def _texts(
    columns: Iterable[Column], weights: _Weights, *, room: int, size: Callable[[str], int]
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


def _coded(values: pd.Series, column: Column) -> Any:
    if column.kind is ColumnKind.DATETIME:
        return values.dt.tz_convert(column.time_zone).dt.tz_localize(None)
    if column.kind is ColumnKind.DATE:
        return values
    if not column.is_discrete or column.kind is ColumnKind.BOOLEAN:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    codes: Mapping[str, float] = {name: i for i, name in enumerate(column.level_names, start=1)}
    return values.map(codes).to_numpy(dtype=np.float64, na_value=np.nan)


def _rows(table: pd.DataFrame, weights: _Weights) -> pd.DataFrame:
    return pd.concat([table, weights.columns], axis=1)


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
        names=CSV,
        write=_csv,
        changed=lambda path, table, columns, w: changed_csv(path, _rows(table, w), columns),
        holds={},
    ),
    ".dta": _Format(
        names=STATA,
        write=_stata,
        changed=lambda path, table, columns, w: changed_stata(
            path, _rows(table, w), columns, _stata_texts(columns, w)
        ),
        holds=_holds("numbers within 8.98e307", "the year 100", "32,000 characters"),
    ),
    ".sav": _Format(
        names=SPSS,
        write=_spss,
        changed=lambda path, table, columns, w: changed_spss(
            path, _rows(table, w), columns, _spss_texts(columns, w)
        ),
        holds=_holds("finite doubles but the least, its missing value", "1582-10-15", "120 bytes"),
    ),
}
