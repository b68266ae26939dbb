"""The report's plots of costs, weights and columns: released rows over public bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from html import escape

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError
from dpiw.release.certificate import Certificate
from dpiw.release.report import plots
from dpiw.release.report.marginals import MISSING, Axis, axis, margins
from dpiw.release.report.markup import figure, number, paragraph, section, short_decimal, table
from dpiw.release.report.truth import PublicTruth

Array = NDArray[np.float64]

_BARS = 12


def cost_section(certificate: Certificate) -> str:
    """What each stage cost, and what is left of the population's lifetime budget."""
    rows = [
        (f"{record.stage}: {record.method}", record.standalone_epsilon,
         f"ε = {record.standalone_epsilon:.3g} if alone")
        for record in certificate.stages
        if record.standalone_epsilon is not None and math.isfinite(record.standalone_epsilon)
    ]  # fmt: skip
    rows.append(
        ("together", float(certificate.epsilon), f"ε = {short_decimal(certificate.epsilon)}")
    )
    stages = (
        plots.cost_bars(rows, title="Privacy loss by stage"),
        "Privacy loss of each stage that read the confidential table, as if it were the only one, "
        "and of all together. Stages are accounted jointly, which costs less than their sum.",
    )
    return section(
        "What it cost",
        figure(*stages),
        *(_budget(certificate, name) for name in ("epsilon", "delta")),
        paragraph(_accountants(certificate), soft=True),
    )


def _budget(certificate: Certificate, name: str) -> str:
    letter = {"epsilon": "ε", "delta": "δ"}[name]
    current = Decimal(getattr(certificate, name))
    spent = Decimal(getattr(certificate, f"spent_{name}"))
    budget = Decimal(getattr(certificate, f"budget_{name}"))
    if budget == 0:
        return ""
    earlier = max(spent - current, Decimal(0))
    left = max(budget - spent, Decimal(0))
    texts = (
        f"earlier: {number(float(earlier))}",
        f"this release: {number(float(current))}",
        f"left: {number(float(left))} of {number(float(budget))}",
    )
    bar = plots.budget_bar(
        float(earlier / budget), float(current / budget), texts=texts,
        title=f"Lifetime {name} of population {certificate.population}",
    )  # fmt: skip
    return figure(
        bar,
        f"Lifetime {letter} of population {certificate.population}. What is spent never comes "
        "back; when nothing is left, nothing more is published.",
    )


def _accountants(certificate: Certificate) -> str:
    found = [f"{name}: ε = {number(value)}" for name, value in certificate.accountants.items()]
    if len(found) < 2:
        return f"Computed by one accountant: {', '.join(found) or 'not stated'}."
    return (
        f"Computed as {', '.join(found)}. The first is the least that any of our accountants "
        "allows, and the promise rests on it; the second is Renyi accounting alone. The audit "
        "counts again with code of its own."
    )


def weights_section(certificate: Certificate, weights: Array, noise: Array | None) -> str:
    """How the weights are spread and how noisy they are.

    Args:
        certificate: of the release.
        weights: shape (rows,), mean one.
        noise: shape (rows,), standard deviation of each log weight's privacy noise; None: unknown.
    """
    figures = [_weight_figure(weights)]
    if noise is not None and float(np.max(noise)) > 0:
        figures.append(_noise_figure(np.asarray(noise, dtype=np.float64), certificate))
    else:
        figures.append(paragraph("These weights carry no privacy noise, or none was stated."))
    heavy = np.sort(weights)[::-1][: max(1, math.ceil(weights.size / 100))]
    share = float(heavy.sum() / weights.sum())
    return section(
        "The weights",
        f'<div class="pair">{"".join(figures)}</div>',
        paragraph(f"The heaviest 1% of the rows carry {share:.1%} of all weight."),
    )


def _weight_figure(weights: Array) -> str:
    logs = np.log10(np.maximum(weights, 1e-300))
    low, high = float(logs.min()), float(logs.max())
    if high - low < 1e-9:
        return paragraph("All weights are one: weighted and unweighted results agree.")
    low, high = min(low, 0.0), max(high, 0.0)
    shares = np.histogram(logs, bins=30, range=(low, high))[0] / weights.size
    svg = plots.histogram(
        shares, labels=(f"{10**low:.3g}", f"{10**high:.3g}"),
        marks=(((0.0 - low) / (high - low), "1"),), title="Weights of the rows",
    )  # fmt: skip
    return figure(
        svg,
        "Weights of the rows, of mean one, on a logarithmic axis. Rows right of the dotted line "
        "count for more than one row, left of it for less.",
    )


def _noise_figure(noise: Array, certificate: Certificate) -> str:
    tau = certificate.diagnostics.get("tau")
    marked = isinstance(tau, int | float) and math.isfinite(tau)
    top = 1.05 * max(float(noise.max()), float(tau or 0.0) if marked else 0.0)
    shares = np.histogram(noise, bins=30, range=(0.0, top))[0] / noise.size
    marks = ((float(tau or 0.0) / top, f"tau = {tau:.3g}"),) if marked else ()
    middle = float(np.median(noise))
    svg = plots.histogram(
        shares, labels=("0", f"{top:.3g}"), marks=marks, title="Privacy noise in the log weights"
    )
    return figure(
        svg,
        "Standard deviation of the privacy noise in each row's log weight. For the middle row it "
        f"is {middle:.2g}: the noise typically multiplies or divides that weight by "
        f"{math.exp(min(middle, 700.0)):.3g}.",
    )


def columns_section(
    frame: pd.DataFrame,
    weights: Array,
    schema: PublicSchema,
    truth: Mapping[str, ArrayLike] | None,
) -> str:
    """Every released column's margin, unweighted and weighted, and the truth where it is public.

    Args:
        frame: the synthetic rows.
        weights: shape (rows,), mean one.
        schema: the public schema.
        truth: shares per column of a simulated example; None for a real release.

    Raises:
        ReleaseError: a column's truth does not have one share per bin or level.
    """
    before = margins(frame, schema=schema)
    after = margins(frame, schema=schema, weights=weights)
    known = {} if truth is None else truth
    figures = []
    for column in schema.released:
        name = column.name
        cells = axis(column)
        plot = _column_plot(cells, before[name], after[name], _shares(known, name, cells), name)
        note = escape(column.description or column.kind.value)
        figures.append(
            f'<figure class="card"><h3>{escape(name)}</h3><figcaption>{note}</figcaption>'
            f"{plot}</figure>"
        )
    legend = '<li><span class="swatch before"></span>synthetic rows as they are</li>'
    legend += '<li><span class="swatch after"></span>synthetic rows, weighted</li>'
    if known:
        legend += '<li><span class="swatch truth"></span>known truth (simulated example)</li>'
    return section(
        "Every column, before and after weighting",
        paragraph(
            "Shares of rows per bin or level. Axes are the public bounds of the data dictionary. "
            "Where both agree, weighting changes nothing in that column."
        ),
        f'<ul class="legend">{legend}</ul><div class="grid">{"".join(figures)}</div>',
    )


def _shares(truth: Mapping[str, ArrayLike], name: str, cells: Axis) -> Array | None:
    if name not in truth:
        return None
    shares = np.asarray(truth[name], dtype=np.float64)
    if shares.shape != (cells.cells,) or not np.isfinite(shares).all():
        raise ReleaseError(
            f"public_truth margins: column {name}: expected {cells.cells} finite shares"
        )
    return shares


def _column_plot(cells: Axis, before: Array, after: Array, truth: Array | None, name: str) -> str:
    title = f"Shares of column {name}, before and after weighting"
    if not cells.edges:
        labels, before, after, truth = _fold(cells.labels, before, after, truth)
        return plots.bars(labels, before, after, truth=truth, title=title)
    stop = len(cells.edges) - 1
    plot = plots.histogram(
        before[:stop], after=after[:stop], truth=None if truth is None else truth[:stop],
        labels=cells.labels, title=title, height=80.0, width=264.0,
    )  # fmt: skip
    if cells.nullable:
        known = None if truth is None else truth[stop:]
        plot += plots.bars((MISSING,), before[stop:], after[stop:], truth=known, title=title)
    return plot


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


def truth_section(frame: pd.DataFrame, weights: Array, truth: PublicTruth | None) -> str:
    """Statistics whose truth is public (simulated examples): before and after weighting."""
    if truth is None or not truth.statistics:
        return ""
    repairs = truth.repairs(frame, weights)
    rows = [
        (item.name, number(item.truth), number(item.unweighted), number(item.weighted),
         _change(item.change))
        for item in repairs
    ]  # fmt: skip
    better = sum(item.change < 1 for item in repairs)
    middle = float(np.median([item.change for item in repairs]))
    return section(
        "What the weights repaired",
        paragraph(
            "This population is simulated, so its truth is known and public. With weights"
            f" {better} of {len(repairs)} statistics come closer to it; the median error is"
            f" {middle:.0%} of what it is without weights."
        ),
        table(
            ("Statistic", "Truth", "Unweighted", "Weighted", "Error, weighted / unweighted"),
            rows,
            numbers=(1, 2, 3, 4),
        ),
    )


def _change(change: float) -> str:
    return "–" if math.isinf(change) else f"{change:.0%}"
