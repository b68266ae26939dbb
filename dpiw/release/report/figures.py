"""The report's figures of costs, weights and columns, from released rows and public bounds."""

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.row_weights import mean_one_weights
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.levels import marker
from dpiw.data.schema.schema import PublicSchema
from dpiw.release.certificate import Certificate
from dpiw.release.report import plots
from dpiw.release.report.pages import number, short_decimal
from dpiw.release.report.plots import Budget, Drawing, Shares

BINS = 20
MISSING = "missing"

_SECONDS = {ColumnKind.DATE: 86400, ColumnKind.DATETIME: 1}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The public bins of a numeric column or the levels of a discrete one.

    Attributes:
        labels: levels (`missing` last, if nullable), or the texts of a numeric column's bounds.
        edges: increasing bin edges of a numeric column in own units; empty for discrete ones.
        cells: number of shares, missing included.
    """

    labels: tuple[str, ...]
    edges: tuple[float, ...]
    cells: int


def axis(column: Column) -> Axis:
    """Return the public axis of a column."""
    missing = (marker(MISSING, column.level_names),) if column.nullable else ()
    if column.is_discrete:
        labels = (*column.level_names, *missing)
        return Axis(labels=labels, edges=(), cells=len(labels))
    edges = _edges(column)
    return Axis(
        labels=(_bound(column, column.lower_number), _bound(column, column.upper_number)),
        edges=edges,
        cells=len(edges) - 1 + len(missing),
    )


def _edges(column: Column) -> tuple[float, ...]:
    low, high = column.lower_number, column.upper_number
    if column.kind is ColumnKind.CONTINUOUS or column.kind is ColumnKind.DATETIME:
        return tuple(float(edge) for edge in np.linspace(low, high, BINS + 1))
    # Equal whole widths: bins that hold one and two values in turn would look like a comb.
    width = math.ceil((high - low + 1) / BINS)
    count = math.ceil((high - low + 1) / width)
    return tuple(low - 0.5 + width * index for index in range(count + 1))


def _codes(series: pd.Series, column: Column, cells: Axis) -> NDArray[np.intp]:
    missing = series.isna().to_numpy(dtype=bool)
    if column.is_discrete:
        places, distinct = pd.factorize(series)  # texts are made once a level, not once a row
        texts = pd.Index([_level(value) for value in distinct], dtype=object)
        codes = np.append(pd.Index(column.level_names).get_indexer(texts), -1)[places]
    else:
        numbers, codes = _numbers(series, column), np.zeros(len(series), dtype=np.uint8)
        for edge in cells.edges[1:-1]:  # so few that a search would take longer
            codes += numbers >= edge
    codes = np.where(missing, cells.cells - 1, codes)
    return np.asarray(codes, dtype=np.intp)


def _level(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def _numbers(series: pd.Series, column: Column) -> NDArray[np.float64]:
    if column.kind not in _SECONDS:
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    moments = pd.to_datetime(series, utc=True).astype("datetime64[s, UTC]")
    seconds = moments.astype("int64").to_numpy(dtype=np.float64)
    return np.asarray(seconds / _SECONDS[column.kind], dtype=np.float64)


def _bound(column: Column, value: float) -> str:
    if column.kind in _SECONDS:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=value * _SECONDS[column.kind])
        return moment.isoformat(sep=" ", timespec="minutes").removesuffix(" 00:00")
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e19 else f"{value:g}"


class RowsShown:
    """Every column's shares, gathered in one pass.

    `log_weights`: shape (rows,), natural log.
    """

    def __init__(self, schema: PublicSchema, log_weights: NDArray[np.float64]) -> None:
        self.weights = mean_one_weights(log_weights)
        self._columns, self._seen = schema.released, 0
        self._sums = {column.name: np.zeros((3, axis(column).cells)) for column in self._columns}

    def passing(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield the frames; each is counted when the next is requested, after it was checked."""
        for frame in frames:
            yield frame
            self._count(frame)

    def _count(self, frame: pd.DataFrame) -> None:
        weights = self.weights[self._seen : self._seen + len(frame)]
        for column in self._columns:
            cells, sums = axis(column), self._sums[column.name]
            codes = _codes(frame[column.name], column, cells)
            for total, mass in zip(sums, (None, weights, weights**2), strict=True):
                total += np.bincount(codes, weights=mass, minlength=cells.cells)
        self._seen += len(frame)

    def shares(self, *, weighted: bool) -> dict[str, NDArray[np.float64]]:
        """Every released column's shares, shape (cells,), of the rows that have passed."""
        mass = self.weights.sum() if weighted else self._seen
        return {name: sums[int(weighted)] / mass for name, sums in self._sums.items()}

    def worth(self, name: str) -> str:
        """Effective rows of weighted shares p, as in `analysis`; empty if one share is all."""
        _, mass, squares = self._sums[name]
        p = mass / mass.sum()
        pushed = squares * (1 - p) ** 2 + (squares.sum() - squares) * p**2
        rows = mass.sum() ** 2 * p * (1 - p) / np.maximum(pushed, 1e-300)
        ends = (rows[rows > 0].min(), rows.max()) if rows.any() else ()
        return " to ".join(dict.fromkeys(f"{end:,.0f}" for end in ends))


Array = NDArray[np.float64]

_BARS = 12

_SLACK = 1.001
"""Tolerance for a stated total against computed costs that were rounded up."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a release cost.

    Attributes:
        joint: whether its stages cost at most their sum: nothing was paid twice.
        attempts: the state of each paid attempt, in words; empty if there was one.
        alone: cost of each stage as the only one.
        accountants: epsilon of one complete attempt by accountant.
    """

    drawing: Drawing
    joint: bool
    attempts: tuple[str, ...]
    alone: tuple[str, ...]
    budgets: Mapping[str, Budget | None]
    accountants: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NoiseSpread:
    """Noise in the middle log weight of `rows` (empty: all), and its factor on the weight."""

    drawing: Drawing
    rows: str
    middle: str
    factor: str


@dataclass(frozen=True, kw_only=True)
class WeightSpread:
    """The weights (None: all one), their noise, and the share of the heaviest 1% of rows."""

    drawing: Drawing | None
    noise: NoiseSpread | None
    heaviest: str


@dataclass(frozen=True, kw_only=True)
class AnswerCard:
    """One declared question: its words, its intervals (None: none are finite), and its verdicts."""

    question: str
    drawing: Drawing | None
    told: str
    why: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a release answers: its declared questions, and the support of pairs of columns.

    `counts`: how many values of all pairs have each verdict.
    """

    cards: tuple[AnswerCard, ...]
    support: Drawing | None
    counts: str


@dataclass(frozen=True, kw_only=True)
class ColumnCard:
    """One column: name, description, `RowsShown.worth`, shares before and after weighting."""

    name: str
    note: str
    worth: str
    drawing: Drawing


def cost_of(certificate: Certificate) -> Cost:
    """Draw the costs in a certificate."""
    total = float(certificate.epsilon)
    stages, attempts = _stages(certificate), _attempts(certificate)
    parts = attempts or stages
    return Cost(
        drawing=plots.cost_bars(
            [*parts, ("all together", total, short_decimal(certificate.epsilon))],
            axis="privacy loss ε" if attempts else "privacy loss ε, a stage as if alone",
            title=f"Privacy loss by {'attempt' if attempts else 'stage'}",
        ),
        joint=len(stages) > 1 and total <= _SLACK * sum(epsilon for _, epsilon, _ in stages),
        attempts=tuple(
            f"{name}: {', '.join(f'{stage} {state}' for stage, state in attempt['stages'].items())}"
            for (name, _, _), attempt in zip(attempts, certificate.attempts, strict=False)
        ),
        alone=tuple(f"{name}: ε = {text}" for name, _, text in stages),
        budgets={
            letter: _budget(certificate, letter, name)
            for letter, name in (("ε", "epsilon"), ("δ", "delta"))
        },
        accountants=tuple(f"{k}: ε = {number(v)}" for k, v in certificate.accountants.items()),
    )


def _stages(certificate: Certificate) -> list[tuple[str, float, str]]:
    return [
        (f"{record.stage}: {record.method}", record.standalone_epsilon,
         f"{record.standalone_epsilon:.3g}")
        for record in certificate.stages
        if record.standalone_epsilon is not None and math.isfinite(record.standalone_epsilon)
    ]  # fmt: skip


def _attempts(certificate: Certificate) -> list[tuple[str, float, str]]:
    if len(certificate.attempts) < 2:
        return []
    return [
        (f"attempt {place}", float(attempt["epsilon"]), short_decimal(attempt["epsilon"]))
        for place, attempt in enumerate(certificate.attempts, start=1)
    ]


def _budget(certificate: Certificate, letter: str, name: str) -> Budget | None:
    current, spent, budget = (
        Decimal(getattr(certificate, prefix + name)) for prefix in ("", "spent_", "budget_")
    )
    earlier = max(spent - current, Decimal(0))
    return plots.budget_bar(
        letter, budget, spent, {"earlier releases": earlier, "this release": current},
        title=f"Lifetime {name} of population {certificate.population}",
    )  # fmt: skip


def spread_of(weights: Array, noise: Array | None) -> WeightSpread:
    """Draw the weights, shape (rows,), mean one, and the noise in them.

    `noise`: standard deviation of the privacy noise in each log weight, or of evenly spaced rows.
    """
    heavy = np.sort(weights)[::-1][: max(1, math.ceil(weights.size / 100))]
    noisy = noise is not None and float(np.max(noise)) > 0
    return WeightSpread(
        drawing=_weight_histogram(weights),
        noise=_noise(np.asarray(noise, dtype=np.float64), weights.size) if noisy else None,
        heaviest=f"{float(heavy.sum() / weights.sum()):.1%}",
    )


def _weight_histogram(weights: Array) -> Drawing | None:
    logs = np.log10(np.maximum(weights, 1e-300))
    low, high = float(logs.min()), float(logs.max())
    if high - low < 1e-9:
        return None
    low, high = min(low, 0.0), max(high, 0.0)
    counts, edges = np.histogram(logs, bins=30, range=(low, high))
    near = 0.12 * (high - low)  # an end so near to one that their texts would touch
    ends = {at: number(float(f"{10**at:.2g}")) for at in (low, high) if abs(at) > near}
    return plots.histogram(
        Shares(before=counts / weights.size), edges=list(edges), ticks=ends | {0.0: "1"},
        axis="weight of a row (mean 1; logarithmic)", title="Weights of the rows", mark=0.0,
    )  # fmt: skip


def _noise(noise: Array, rows: int) -> NoiseSpread:
    top = 1.05 * float(noise.max())
    counts, edges = np.histogram(noise, bins=30, range=(0.0, top))
    middle = float(np.median(noise))
    factor = float(f"{math.exp(min(middle, 700.0)):.3g}")
    drawing = plots.histogram(
        Shares(before=counts / noise.size), edges=list(edges), ticks={0.0: "0", top: f"{top:.2g}"},
        axis="standard deviation in a log weight", title="Privacy noise in the log weights",
    )  # fmt: skip
    among = "" if noise.size == rows else f"{noise.size:,}"
    return NoiseSpread(drawing=drawing, rows=among, middle=f"{middle:.2g}", factor=number(factor))


def answers_of(declared: pd.DataFrame, pairs: pd.DataFrame) -> Answers:
    """Draw the tables of `dpiw.analysis.questions`: `answers` and `pair_support`."""
    groups = declared.groupby("question", sort=False) if len(declared) else ()
    return Answers(
        cards=tuple(_answer(str(question), lines) for question, lines in groups),
        support=_support(pairs) if len(pairs) else None,
        counts=counted(pairs.iloc[:, 3:].sum()),
    )


def _answer(question: str, lines: pd.DataFrame) -> AnswerCard:
    numbers = ["estimate", "lower", "upper"]
    labelled = lines.assign(label=_labels([*lines["value"]]))
    finite = labelled[np.isfinite(lines[numbers]).all(axis=1)].head(_BARS)
    first = labelled.head(_BARS)
    rows = [*zip(*(finite[name] for name in ("label", *numbers, "verdict")), strict=True)]
    return AnswerCard(
        question=question,
        drawing=plots.intervals(rows, title=f"Answer to {question}") if rows else None,
        told=counted(lines["verdict"].value_counts())
        + (f"; the first {_BARS} are drawn" if len(lines) > len(finite) == _BARS else ""),
        why=_reasons([*first["label"]], [*first["why"]]),
    )


def _reasons(labels: Sequence[str], reasons: Sequence[str]) -> tuple[str, ...]:
    """Each reason once, with the values that it is about, unless it is about all."""
    about: dict[str, list[str]] = {}
    for label, reason in zip(labels, reasons, strict=True):
        about.setdefault(reason, []).append(label)
    return tuple(
        reason if len(whose) == len(labels) else f"{', '.join(whose)}: {reason}"
        for reason, whose in about.items()
        if reason
    )


def _labels(names: Sequence[str]) -> list[str]:
    """Names of values for a figure, which has room for two short lines.

    Without what all begin with; of two columns, the levels alone: `share(ill=no) | site=north`
    becomes `no | north`.
    """
    stems = {name.partition(" | ")[0] for name in names}
    stem = f"{stems.pop()} | " if len(stems) == 1 else ""
    names = [name.removeprefix(stem) for name in names]
    for mark in (") | ", ", "):
        parts = [[part.partition("=") for part in name.split(mark)] for name in names]
        columns = {tuple(column for column, equals, _ in each if equals) for each in parts}
        if len(columns) == 1 and all(len(each) == len(*columns) == 2 for each in parts):
            return [mark.removeprefix(")").join(level for *_, level in each) for each in parts]
    return names


def _support(pairs: pd.DataFrame) -> Drawing:
    cells, names = {}, [*dict.fromkeys(pairs[["first", "second"]].to_numpy().ravel())]
    for line in pairs.to_dict("records"):
        first, second, support, *_ = line.values()
        told = second if first == second else f"{first} and {second}"
        hint = f"{told}: support {support:.2f}; {counted(pd.Series(line).iloc[3:])}"
        cells[names.index(second), names.index(first)] = support, hint
    return plots.heat_map(names, cells, title="Support of columns and pairs of columns")


def counted(counts: pd.Series) -> str:
    """Numbers of values by verdict, such as `use: 5, do not use: 1`; empty for none."""
    return ", ".join(f"{verdict}: {number}" for verdict, number in counts.items() if number)


def column_cards(
    shown: RowsShown, schema: PublicSchema, *, weighted: bool
) -> tuple[ColumnCard, ...]:
    """Draw every released column of synthetic rows, before and after weighting."""
    before, after = shown.shares(weighted=False), shown.shares(weighted=True) if weighted else {}
    cards = []
    for column in schema.released:
        name, cells = column.name, axis(column)
        shares = Shares(before=before[name], after=after.get(name))
        note = column.description or column.kind.value
        drawing, worth = _column(cells, shares, name), shown.worth(name) if weighted else ""
        cards.append(ColumnCard(name=name, note=note, worth=worth, drawing=drawing))
    return tuple(cards)


def _column(cells: Axis, shares: Shares, name: str) -> Drawing:
    weighting = "" if shares.after is None else ", before and after weighting"
    title = f"Shares of column {name}{weighting}"
    if not cells.edges:
        labels, shares = _fold(cells.labels, shares)
        return plots.bars(labels, shares, title=title)
    ticks = dict(zip((cells.edges[0], cells.edges[-1]), cells.labels, strict=True))
    return plots.histogram(shares, edges=cells.edges, ticks=ticks, axis=name, title=title)


def _fold(labels: tuple[str, ...], shares: Shares) -> tuple[tuple[str, ...], Shares]:
    if len(labels) <= _BARS:
        return labels, shares
    largest = shares.before if shares.after is None else np.maximum(shares.before, shares.after)
    bars = np.sort(np.argsort(-largest, kind="stable")[: _BARS - 1])
    rest = np.setdiff1d(np.arange(len(labels)), bars)
    names = (*(labels[index] for index in bars), f"{len(rest)} others")
    return names, shares.map(lambda values: np.append(values[bars], values[rest].sum()))
