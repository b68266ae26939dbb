"""The report's plots and figures of costs, weights and columns: released rows, public bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError
from dpiw.release.certificate import Certificate
from dpiw.release.report import plots
from dpiw.release.report.formats import number, short_decimal
from dpiw.release.report.marginals import MISSING, Axis, axis, marginals
from dpiw.release.report.plots import Drawing
from dpiw.release.report.truth import PublicTruth

Array = NDArray[np.float64]

_BARS = 12


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What stages cost, the lifetime budgets by letter, and what each accountant computed."""

    stages: Drawing
    budgets: Mapping[str, Drawing | None]
    accountants: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NoiseSpread:
    """Noise in the log weights: that of the middle row, and the factor on its weight."""

    drawing: Drawing
    middle: str
    factor: str


@dataclass(frozen=True, kw_only=True)
class WeightSpread:
    """The weights (None: all are one), noise in them, and what the heaviest 1% of rows carry."""

    drawing: Drawing | None
    noise: NoiseSpread | None
    heaviest: str


@dataclass(frozen=True, kw_only=True)
class ColumnCard:
    """One column: its name, what it is, and its shares before and after weighting."""

    name: str
    note: str
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True, kw_only=True)
class Repairs:
    """Statistics whose truth is public: their rows, and how many came closer to it."""

    rows: tuple[tuple[str, ...], ...]
    better: int
    middle: str


def cost_of(certificate: Certificate) -> Cost:
    """Draw a release's costs, as its certificate states them."""
    rows = [
        (f"{record.stage}: {record.method}", record.standalone_epsilon,
         f"ε = {record.standalone_epsilon:.3g} if alone")
        for record in certificate.stages
        if record.standalone_epsilon is not None and math.isfinite(record.standalone_epsilon)
    ]  # fmt: skip
    rows.append(
        ("together", float(certificate.epsilon), f"ε = {short_decimal(certificate.epsilon)}")
    )
    return Cost(
        stages=plots.cost_bars(rows, title="Privacy loss by stage"),
        budgets={"ε": _budget(certificate, "epsilon"), "δ": _budget(certificate, "delta")},
        accountants=tuple(f"{k}: ε = {number(v)}" for k, v in certificate.accountants.items()),
    )


def _budget(certificate: Certificate, name: str) -> Drawing | None:
    current, spent, budget = (
        Decimal(getattr(certificate, prefix + name)) for prefix in ("", "spent_", "budget_")
    )
    return plots.budget_bar(
        budget, spent, {"earlier": max(spent - current, Decimal(0)), "this release": current},
        title=f"Lifetime {name} of population {certificate.population}",
    )  # fmt: skip


def spread_of(weights: Array, noise: Array | None, tau: object) -> WeightSpread:
    """Draw the weights, and the noise in them.

    Args:
        weights: shape (rows,), mean one.
        noise: shape (rows,), standard deviation of each log weight's privacy noise; None: unknown.
        tau: what was forecast of it; anything but a finite number: nothing was.
    """
    heavy = np.sort(weights)[::-1][: max(1, math.ceil(weights.size / 100))]
    noisy = noise is not None and float(np.max(noise)) > 0
    return WeightSpread(
        drawing=_weight_histogram(weights),
        noise=_noise(np.asarray(noise, dtype=np.float64), tau) if noisy else None,
        heaviest=f"{float(heavy.sum() / weights.sum()):.1%}",
    )


def _weight_histogram(weights: Array) -> Drawing | None:
    logs = np.log10(np.maximum(weights, 1e-300))
    low, high = float(logs.min()), float(logs.max())
    if high - low < 1e-9:
        return None
    low, high = min(low, 0.0), max(high, 0.0)
    shares = np.histogram(logs, bins=30, range=(low, high))[0] / weights.size
    return plots.histogram(
        shares, labels=(f"{10**low:.3g}", f"{10**high:.3g}"),
        marks=(((0.0 - low) / (high - low), "1"),), title="Weights of the rows",
    )  # fmt: skip


def _noise(noise: Array, tau: object) -> NoiseSpread:
    known = float(tau) if isinstance(tau, int | float) and math.isfinite(tau) else None
    top = 1.05 * max(float(noise.max()), known or 0.0)
    shares = np.histogram(noise, bins=30, range=(0.0, top))[0] / noise.size
    middle = float(np.median(noise))
    drawing = plots.histogram(
        shares, labels=("0", f"{top:.3g}"), title="Privacy noise in the log weights",
        marks=() if known is None else ((known / top, f"tau = {known:.3g}"),),
    )  # fmt: skip
    return NoiseSpread(
        drawing=drawing, middle=f"{middle:.2g}", factor=f"{math.exp(min(middle, 700.0)):.3g}"
    )


def column_cards(
    frame: pd.DataFrame,
    weights: Array,
    schema: PublicSchema,
    truth: Mapping[str, ArrayLike],
) -> tuple[ColumnCard, ...]:
    """Draw every released column, unweighted and weighted, and the truth where it is public.

    Args:
        frame: the synthetic rows.
        weights: shape (rows,), mean one.
        schema: the public schema.
        truth: shares per column of a simulated example; empty for a real release.

    Raises:
        ReleaseError: a column's truth does not have one share per bin or level.
    """
    before = marginals(frame, schema=schema)
    after = marginals(frame, schema=schema, weights=weights)
    cards = []
    for column in schema.released:
        name, cells = column.name, axis(column)
        known = _shares(truth, name, cells)
        drawings = _column_drawings(cells, before[name], after[name], known, name)
        note = column.description or column.kind.value
        cards.append(ColumnCard(name=name, note=note, drawings=drawings))
    return tuple(cards)


def _shares(truth: Mapping[str, ArrayLike], name: str, cells: Axis) -> Array | None:
    if name not in truth:
        return None
    shares = np.asarray(truth[name], dtype=np.float64)
    if shares.shape != (cells.cells,) or not np.isfinite(shares).all():
        raise ReleaseError(
            f"public_truth margins: column {name}: expected {cells.cells} finite shares"
        )
    return shares


def _column_drawings(
    cells: Axis, before: Array, after: Array, truth: Array | None, name: str
) -> tuple[Drawing, ...]:
    title = f"Shares of column {name}, before and after weighting"
    if not cells.edges:
        labels, before, after, truth = _fold(cells.labels, before, after, truth)
        return (plots.bars(labels, before, after, truth=truth, title=title),)
    stop = len(cells.edges) - 1
    bins = plots.histogram(
        before[:stop], after=after[:stop], truth=None if truth is None else truth[:stop],
        labels=cells.labels, title=title, height=80.0, width=264.0,
    )  # fmt: skip
    if not cells.nullable:
        return (bins,)
    known = None if truth is None else truth[stop:]
    return bins, plots.bars((MISSING,), before[stop:], after[stop:], truth=known, title=title)


def _fold(
    labels: tuple[str, ...], before: Array, after: Array, truth: Array | None
) -> tuple[tuple[str, ...], Array, Array, Array | None]:
    """Keep the largest levels in their order and gather the rest in one row."""
    if len(labels) <= _BARS:
        return labels, before, after, truth
    kept = np.sort(np.argsort(-np.maximum(before, after), kind="stable")[: _BARS - 1])
    rest = np.setdiff1d(np.arange(len(labels)), kept)
    names = (*(labels[index] for index in kept), f"{len(rest)} others")

    def gather(values: Array) -> Array:
        return np.append(values[kept], values[rest].sum())

    return names, gather(before), gather(after), None if truth is None else gather(truth)


def repairs_of(frame: pd.DataFrame, weights: Array, truth: PublicTruth | None) -> Repairs | None:
    """Compare statistics whose truth is public, before and after weighting; None: there is none."""
    if truth is None or not truth.statistics:
        return None
    repairs = truth.repairs(frame, weights)
    return Repairs(
        rows=tuple(
            (item.name, number(item.truth), number(item.unweighted), number(item.weighted),
             "–" if math.isinf(item.change) else f"{item.change:.0%}")
            for item in repairs
        ),
        better=sum(item.change < 1 for item in repairs),
        middle=f"{float(np.median([item.change for item in repairs])):.0%}",
    )  # fmt: skip
