"""Columns, their levels, and moments, as an analyst names them."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.names import as_typed, checked_column, known_name, no_column
from dpiw.analysis.sample import ONE_EACH, row_values
from dpiw.data.cells.plain import is_zone, second_number
from dpiw.data.schema.columns import Column as Declared
from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.levels import marker
from dpiw.errors import ReleaseError

if TYPE_CHECKING:
    from dpiw.analysis.sample import Array, WeightedSample

Column = str | Callable[[pd.DataFrame], Any] | pd.Series | NDArray[Any]
"""A name, one value per row, or a function from the table to them."""

MOST_LEVELS = 50
"""Most different numbers of a column that count as levels without `bins`."""

MISSING = "missing"
"""The level of missing values; in brackets if a level has that name (`levels.marker`)."""

OUTSIDE = "outside"

SHARE = np.array([[0.0], [1.0]])

ROUNDINGS = 4
"""A spread of so many rounding errors of a cell (`Shifted.grain`) counts as none."""

_EPS = float(np.finfo(np.float64).eps)

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?")
_OFFSET = re.compile(r":\d\d(Z|[+-]\d\d:\d\d)\s*$")


def _computed(table: pd.DataFrame, function: Callable[[pd.DataFrame], Any]) -> Any:
    try:
        return function(table)
    except (KeyError, AttributeError) as reason:
        name = reason.args[0] if isinstance(reason, KeyError) else reason.name
        if not isinstance(name, str) or name in table.columns:
            raise
        if isinstance(reason, AttributeError) and reason.obj is not table:
            raise
    raise no_column(table, name)


def cells(sample: WeightedSample, column: Column) -> pd.Series:
    """Return one number or truth value per row; ReleaseError for an unknown column or other values.

    `column`: a numeric or boolean column's name, one number or truth value per row (a Series by its
    index, anything else by position), or a function from the table to them.
    """
    if isinstance(column, str):
        values = checked_column(sample.frame, column)
    else:
        computed = _computed(sample.table, column) if callable(column) else column
        values = row_values(computed, sample.frame)
    subject = f"column {column!r} holds" if isinstance(column, str) else "the given values are"
    if not pd.api.types.is_numeric_dtype(values.dtype):
        if not pd.api.types.is_datetime64_any_dtype(values.dtype):
            example = f"table[{column if isinstance(column, str) else 'sex'!r}]"
            raise ReleaseError(
                f"{subject} text; {ONE_EACH}. Give a function that chooses a level, such as"
                f" lambda table: {example} == 'LEVEL'"
            )
        dates = f"table[{column if isinstance(column, str) else 'born'!r}]"
        zone = "" if values.dt.tz is None else f", tz='{values.dt.tz}'"
        raise ReleaseError(
            f"{subject} dates; {ONE_EACH}. Give a function of the years, such as lambda table:"
            f" {dates}.dt.year, or of the days, as for a quantile: lambda table: ({dates} -"
            f" pandas.Timestamp('2000-01-01'{zone})).dt.days"
        )
    return values


def numbers(sample: WeightedSample, column: Column) -> Array:
    """Return `cells` as floats, shape (n,), NaN where missing."""
    return np.asarray(cells(sample, column).to_numpy(dtype=np.float64, na_value=np.nan))


def is_share(values: pd.Series, declared: Declared | None) -> bool:
    """Whether a column's mean is a share: truth values, or 0 and 1 not declared as numbers."""
    if pd.api.types.is_bool_dtype(values.dtype):
        return True
    present = values.dropna()
    return declared is None and bool(len(present) and present.isin((0, 1)).all())


def declared_as(sample: WeightedSample, column: Column) -> Declared | None:
    """Return the public declaration of a named column, or None."""
    if not isinstance(column, str):
        return None
    return sample.declared.get(known_name(sample.frame, column))


@dataclass(frozen=True, kw_only=True, eq=False)
class Shifted:
    """Numbers less one of them, `origin`, so that a large common part costs no digits.

    `values` have shape (n,), NaN where missing; `grain` is a value's absolute rounding error.
    """

    values: Array
    origin: int | float
    grain: float

    @property
    def raw(self) -> Array:
        """The numbers themselves, as floats."""
        return self.values + float(self.origin)


def shifted(values: pd.Series) -> Shifted:
    """Subtract the number nearest to zero, before 64-bit integers become floats."""
    kind = pd.api.types
    if kind.is_integer_dtype(values.dtype):
        wide = np.uint64 if kind.is_unsigned_integer_dtype(values.dtype) else np.int64
        is_present = values.notna().to_numpy()
        whole = values[is_present].to_numpy(dtype=wide)
        start = _nearest_zero(whole)
        less = np.full(len(values), np.nan)
        less[is_present] = whole - start
        rounded = float(np.abs(less[is_present]).max(initial=0.0)) >= 2.0**53
        grain = _EPS * float(np.abs(less[is_present]).max()) if rounded else 0.0
        return Shifted(values=less, origin=int(start), grain=grain)
    raw = values.to_numpy(dtype=np.float64, na_value=np.nan)
    finite = raw[np.isfinite(raw)]
    origin = 0.0 if kind.is_bool_dtype(values.dtype) else float(_nearest_zero(finite))
    grain = _EPS * float(np.abs(finite).max(initial=0.0))
    return Shifted(values=raw - origin, origin=origin, grain=grain)


def product_grain(first: Shifted, second: Shifted) -> float:
    """Absolute rounding error of the product of two columns' values."""
    one, other = (float(np.abs(part.values).max(initial=0.0)) for part in (first, second))
    return first.grain * other + second.grain * one + _EPS * one * other


def _nearest_zero(values: NDArray[Any]) -> Any:
    """The value nearest to zero; zero if the values have both signs: no difference grows."""
    if not values.size:
        return values.dtype.type(0)
    low, high = values.min(), values.max()
    return low if low > 0 else high if high < 0 else values.dtype.type(0)


def bounds(values: pd.Series, declared: Declared | None) -> Array | None:
    """Limits of a column's values, shape (2, 1): of a share, or public bounds; None if unknown."""
    if is_share(values, declared):
        return SHARE
    if declared is None or not declared.is_numeric:
        return None
    low, high = declared.lower_number, declared.upper_number
    present = values.dropna()
    if present.empty or present.min() < low or present.max() > high:
        return None  # the table was changed since the release
    return np.array([[low], [high]])


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """The `labels` of a column in order, also without rows, missing last; `codes` of rows, (n,).

    `declared`: a schema, a type or edges define the levels, rather than the rows.
    """

    labels: tuple[Any, ...]
    codes: NDArray[np.int64]
    declared: bool


Bins = int | Sequence[Any] | None
"""Number of equal parts of the rows' range, or edges: numbers, or ISO dates."""


def levels(sample: WeightedSample, name: str, bins: Bins = None) -> Levels:
    """Return the levels of a column, also those without rows.

    With a schema: its levels, truth values, bins between `cuts`, or up to `MOST_LEVELS` whole
    numbers; then `missing` if nullable; then other values of the rows. Without: levels of the type,
    else the rows' values, sorted. A bin of numbers includes its upper edge (the first bin both
    edges); a bin of dates, or between declared cuts, its lower edge.
    """
    values = checked_column(sample.frame, name)
    is_dated, is_wide = _is_dated(values), values.dtype.kind in "fiuM"
    declared = declared_as(sample, name)
    nullable = declared is not None and declared.nullable
    if bins is not None and not is_wide:
        fault = "bins are for numbers and dates, and this column holds neither; leave `bins` out"
        raise ReleaseError(fault, field=f"column {name!r}")
    if bins is not None:
        return _levels_of(_binned(values, bins, dated=is_dated), None, nullable)
    if declared is not None and declared.is_numeric and declared.cuts and is_wide:
        return _levels_of(_between_cuts(values, declared), None, nullable)
    domain = _domain(values, declared)
    if domain is None and is_wide and values.nunique() > MOST_LEVELS:
        example = f"{as_typed(name)} >= '2024-01-01'" if is_dated else f"{as_typed(name)} > 40"
        raise ReleaseError(
            f"found {values.nunique()} different values",
            field=f"column {name!r}",
            allowed=f"at most {MOST_LEVELS} for groups. Pass bins=10 if the function takes `bins`,"
            f' or choose one group: where="{example}"',
        )
    return _levels_of(values, domain, nullable)


MOST_CELLS = 1000
"""Most combinations of levels: each has an influence of every row."""


def crossed(sample: WeightedSample, names: str | Sequence[str], bins: Bins = None) -> Levels:
    """Return the combinations of some columns' levels (`levels`); labels are `a=x, b=y`."""
    columns = [names] if isinstance(names, str) else []
    columns += names if isinstance(names, list | tuple) else ()
    named = all(isinstance(column, str) for column in columns)
    if not columns or not named or len(columns) != len({*columns}):
        allowed = "the name of a column, or a list of different ones"
        raise ReleaseError(field="by", allowed=allowed)
    parts = [levels(sample, column, bins) for column in columns]
    count = math.prod(len(part.labels) for part in parts)
    if len(parts) > 1 and count > MOST_CELLS:
        fault = f"{count:,} combinations of levels"
        raise ReleaseError(fault, field=", ".join(columns), allowed=f"at most {MOST_CELLS:,}")
    codes, labels = np.zeros(sample.rows, dtype=np.int64), [""]
    for column, part in zip(columns, parts, strict=True):
        codes = codes * len(part.labels) + part.codes
        own = [f"{column}={label}" for label in part.labels]
        labels = [", ".join(filter(None, pair)) for pair in itertools.product(labels, own)]
    declared = all(part.declared for part in parts)
    return Levels(labels=tuple(labels), codes=codes, declared=declared)


def _domain(values: pd.Series, declared: Declared | None) -> list[Any] | None:
    """Levels by schema or type; None if only the rows define them."""
    if declared is not None and declared.values:
        return [*map(int if declared.is_whole else float, declared.values)]
    if declared is None or not declared.level_names:
        if declared is not None and declared.kind is ColumnKind.INTEGER:
            whole = range(int(declared.lower_number), int(declared.upper_number) + 1)
            return list(whole) if len(whole) <= MOST_LEVELS else None
        return [False, True] if pd.api.types.is_bool_dtype(values.dtype) else None
    if declared.kind is ColumnKind.BOOLEAN:
        return [False, True]
    return list(declared.level_names)


def _levels_of(values: pd.Series, domain: list[Any] | None, nullable: bool) -> Levels:
    is_declared = domain is not None
    if domain is None and isinstance(values.dtype, pd.CategoricalDtype):
        domain, is_declared = values.cat.categories.tolist(), True
    found, distinct = pd.factorize(values, sort=True)
    labels: list[Any] = distinct.tolist()
    domain = list(dict.fromkeys([*(domain or ()), *labels]))
    place_of = {label: place for place, label in enumerate(domain)}
    places = np.array([*(place_of[label] for label in labels), len(domain)], dtype=np.int64)
    missing = [marker(MISSING, domain)] if nullable or np.any(found < 0) else []
    return Levels(labels=(*domain, *missing), codes=places[found], declared=is_declared)


def moment(text: str, values: pd.Series) -> pd.Timestamp:
    """Return ISO text, `2025-07-01` or `2025-07-01T14:30`, as a moment like those of a column.

    An offset needs a column with a time zone; text without one is read in the column's zone, as the
    data dictionary does (docs/spec.md). `01/07/2025` is ambiguous between countries: ReleaseError.
    """
    zone = values.dt.tz
    clock = zoneinfo.ZoneInfo(str(zone)) if is_zone(str(zone)) else zone or dt.UTC  # not pytz's own
    seconds = second_number(text, clock) if _ISO.fullmatch(text.strip()) else None
    if seconds is None or (zone is None and _OFFSET.search(text)):
        raise ReleaseError(
            f"column {str(values.name)!r}: expected an ISO date such as '2025-07-01' or"
            " '2025-07-01T14:30'" + ("" if zone is not None else ", without a zone")
            + f", not {text!r}"
        )  # fmt: skip
    return pd.Timestamp(np.datetime64(seconds, "s")).tz_localize("UTC").tz_convert(zone)


def is_count(bins: Any) -> bool:
    """Whether `bins` is a number of parts."""
    return isinstance(bins, int | np.integer) and not isinstance(bins, bool) and bool(bins >= 1)


def checked_bins(values: pd.Series, bins: Any, *, field: str, origin: int = 0) -> int | pd.Index:
    """Return a number of parts, or increasing edges less `origin`; ReleaseError for others."""
    if is_count(bins):
        return int(bins)
    dated = _is_dated(values)
    try:
        given = [moment(str(edge), values) if dated else float(edge - origin) for edge in bins]
        edges = pd.Index(given)
        if len(edges) > 1 and edges.is_monotonic_increasing and edges.is_unique:
            return edges
    except (OverflowError, TypeError, ValueError):
        pass
    example = "['2024-01-01', '2024-07-01', '2025-01-01']" if dated else "[18, 40, 65, 95]"
    kind = "dates" if dated else "numbers"
    raise ReleaseError(
        field=field,
        allowed=f"a whole number >= 1, or two or more increasing {kind} such as {example}",
    )


def check_told_apart(column: str, values: NDArray[Any], parts: int) -> None:
    """Refuse equal parts of numbers that are smaller than the distance between doubles."""
    if not np.isfinite(values).all():
        fault = "equal bins need finite values; give `bins` as a list of edges"
        raise ReleaseError(fault, field=f"column {column!r}")
    if values.size == 0:
        return
    width = float(np.ptp(values)) or 1.0  # of equal values NumPy makes a range of one
    if width <= max(parts * float(np.spacing(np.abs(values).max())), 1e-290):
        raise ReleaseError(
            f"the values are so far from zero, and so close together, that {parts} bins cannot be"
            " told apart; use fewer bins, or subtract a constant in a copy of the table and pass"
            " (table, weights)",
            field=f"column {column!r}",
        )


def _binned(values: pd.Series, bins: int | Sequence[Any], *, dated: bool) -> pd.Series:
    """Label each value with its bin, `outside` beyond the edges, NaN if missing."""
    present = values.dropna()
    if present.empty and is_count(bins):
        return values
    near, origin = (values, 0) if dated else _near_zero(values)
    name = str(values.name)
    edges = checked_bins(values, bins, origin=origin, field=f"column {name!r}: bins")
    if isinstance(edges, int) and dated:
        edges = _equal_moments(present, edges)
    elif isinstance(edges, int):
        check_told_apart(name, near.dropna().to_numpy(dtype=np.float64), edges)
        edges = _equal_parts(near.dropna(), edges)
    texts = _texts(edges, origin)
    names = [
        f"[{a}, {b})" if dated else f"{'(' if i else '['}{a}, {b}]"
        for i, (a, b) in enumerate(itertools.pairwise(texts))
    ]
    raw = values if dated else near.to_numpy(dtype=np.float64, na_value=np.nan)
    places = pd.Categorical(pd.cut(raw, edges, right=not dated, include_lowest=True, labels=names))
    return _marked(places, np.asarray(places.isna() & values.notna().to_numpy()), values.index)


def _marked(places: Any, beyond: NDArray[np.bool_], index: pd.Index) -> pd.Series:
    if beyond.any():
        places = places.add_categories([OUTSIDE])
        places[beyond] = OUTSIDE
    return pd.Series(places, index=index)


def _near_zero(values: pd.Series) -> tuple[pd.Series, int]:
    """Whole numbers that doubles do not hold, less one of them; other values less zero."""
    present = values.dropna()
    if not pd.api.types.is_integer_dtype(values.dtype) or present.empty:
        return values, 0
    if int(present.min()) >= -(2**53) and int(present.max()) <= 2**53:
        return values, 0
    less = shifted(values)
    return pd.Series(less.values, index=values.index), int(less.origin)


def declared_edges(column: Declared, zone: Any = None) -> pd.Index | None:
    """Edges of the bins between declared `cuts`, with both bounds; None without cuts."""
    if not column.cuts:
        return None
    inner = np.asarray(column.cut_numbers)
    if column.is_whole:  # a bin begins with the first whole number at or above its cut
        inner = np.ceil(inner - 1e-9)
    low, high = column.lower_number, column.upper_number
    edges = np.array([low, *np.unique(inner[(inner > low) & (inner <= high)]), high])
    if column.kind not in (ColumnKind.DATE, ColumnKind.DATETIME):
        plain: pd.Index = pd.Index(edges)
        return plain
    unit: Literal["D", "s"] = "D" if column.kind is ColumnKind.DATE else "s"
    moments = pd.DatetimeIndex(edges.astype(np.int64).astype(f"datetime64[{unit}]"))
    zoned: pd.Index = moments if zone is None else moments.tz_localize("UTC").tz_convert(zone)
    return zoned


def _between_cuts(values: pd.Series, column: Declared) -> pd.Series:
    """Label each value with its declared bin; the last bin includes its upper edge."""
    edges = declared_edges(column, getattr(values.dt, "tz", None) if _is_dated(values) else None)
    assert edges is not None
    texts = _texts(edges)
    names = [f"[{a}, {b})" for a, b in itertools.pairwise(texts)]
    names[-1] = f"{names[-1][:-1]}]"
    is_present = values.notna().to_numpy()
    present = values[is_present]
    if not _is_dated(values):
        present = present.astype(np.float64)
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[is_present] = edges[1:-1].searchsorted(present.to_numpy(), side="right")
    beyond = np.zeros(len(values), dtype=bool)
    beyond[is_present] = ((present < edges[0]) | (present > edges[-1])).to_numpy()
    places = pd.Categorical.from_codes(codes, categories=pd.Index(names), ordered=True)
    return _marked(places, beyond, values.index)


def _is_dated(values: pd.Series) -> bool:
    return bool(pd.api.types.is_datetime64_any_dtype(values.dtype))


def _equal_parts(values: pd.Series, bins: int) -> pd.Index:
    """Edges of equal parts of the range; inner edges rounded to a hundredth of a part."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    digits = 2 - math.floor(math.log10((high - low) / bins))
    edges = np.linspace(low, high, bins + 1)
    edges[1:-1] = np.round(edges[1:-1], digits)
    return pd.Index(edges)


def _equal_moments(values: pd.Series, bins: int) -> pd.Index:
    """Edges of equal parts in days, or in seconds with a time zone; the last moment is inside."""
    unit: Literal["D", "s"] = "D" if values.dt.tz is None else "s"
    after = values.max() + pd.Timedelta(1, unit)
    return pd.date_range(values.min(), after, periods=bins + 1, unit="s").floor(unit).unique()


def _texts(edges: pd.Index, origin: int = 0) -> list[str]:
    if isinstance(edges, pd.DatetimeIndex):
        days = edges.tz is None and bool((edges == edges.normalize()).all())
        return [f"{edge:%Y-%m-%d}" if days else edge.isoformat() for edge in edges]
    texts = [np.format_float_positional(edge, trim="-") for edge in edges]
    return [str(Decimal(text) + origin) for text in texts] if origin else texts
