"""The report's figures of costs, weights and columns, from released rows and public bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema
from dpiw.release.certificate import Certificate
from dpiw.release.report import plots
from dpiw.release.report.marginals import Axis, RowsShown, axis
from dpiw.release.report.pages import number, short_decimal
from dpiw.release.report.plots import Budget, Drawing, Shares

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
class ColumnCard:
    """One column: name, description, and shares before and after weighting."""

    name: str
    note: str
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


def spread_of(weights: Array, noise: Array | None, tau: object) -> WeightSpread:
    """Draw the weights, shape (rows,), mean one, and the noise in them.

    `noise`: standard deviation of the privacy noise in each log weight, or of evenly spaced rows.
    """
    heavy = np.sort(weights)[::-1][: max(1, math.ceil(weights.size / 100))]
    noisy = noise is not None and float(np.max(noise)) > 0
    return WeightSpread(
        drawing=_weight_histogram(weights),
        noise=_noise(np.asarray(noise, dtype=np.float64), tau, weights.size) if noisy else None,
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
        axis="weight of a row (mean 1; logarithmic)", title="Weights of the rows", mark=(0.0, ""),
    )  # fmt: skip


def _noise(noise: Array, tau: object, rows: int) -> NoiseSpread:
    forecast = float(tau) if isinstance(tau, int | float) and math.isfinite(tau) else None
    top = 1.05 * max(float(noise.max()), forecast or 0.0)
    counts, edges = np.histogram(noise, bins=30, range=(0.0, top))
    middle = float(np.median(noise))
    factor = float(f"{math.exp(min(middle, 700.0)):.3g}")
    drawing = plots.histogram(
        Shares(before=counts / noise.size), edges=list(edges), ticks={0.0: "0", top: f"{top:.2g}"},
        axis="standard deviation in a log weight", title="Privacy noise in the log weights",
        mark=None if forecast is None else (forecast, f"forecast {forecast:.2g}"),
    )  # fmt: skip
    among = "" if noise.size == rows else f"{noise.size:,}"
    return NoiseSpread(drawing=drawing, rows=among, middle=f"{middle:.2g}", factor=number(factor))


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
        cards.append(ColumnCard(name=name, note=note, drawing=_column(cells, shares, name)))
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
