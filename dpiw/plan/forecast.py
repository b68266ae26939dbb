"""What each declared question will get: widths of its intervals, before data is read. Free.

The law of the noise is public. What the people are like is not: the forecast is for public rows,
those of an earlier release, or reference rows with independent columns, no missing cells, levels of
equal shares, and numbers with a standard deviation of a sixth of their range or as `spread` says
(of two for one column, the last).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.errors.intervals import confidence_interval
from dpiw.analysis.questions import answer
from dpiw.analysis.sample import WeightedSample
from dpiw.data.schema.discretisation import value_points
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import DPIWError
from dpiw.methods.weights.base import WeightEstimator
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.methods.weights.questions import Question
from dpiw.plan.rehearsal.populations import WeightedRows

RARE = 0.05
"""Share of the first level or value in the second forecast of a question that tells them apart."""

USUAL = 1 / 6
"""Standard deviation of a number without a declared `spread`, over its range: of a bell whose six
deviations fill the bounds. Wide bounds make it smaller, and relations harder."""

WIDE = 2.0
"""Half-widths over those without privacy from which a plan warns: our choice."""

MOST_ROWS = 20_000
"""Most reference rows. If a release publishes fewer, the forecast takes as many, because intervals
widen where few rows are behind a value. Our choice, for the plan's time."""

NO_FORECAST = "unknown"
"""The verdict without a forecast."""

_NORMAL = 1.959964
"""97.5% quantile of the standard normal law."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A question's widest answer.

    Attributes:
        half_width: of the 95% interval, in the answer's unit; NaN if nothing can be forecast.
        without: the same without privacy, for `nominal_rows` people.
        rare: half-width for a level of share `RARE`; None without levels.
        verdict: which the interval is likely to get.
        uncut: half-width if weights kept to the means whatever their noise, and nothing were cut
            to what is possible; of a wide answer.
    """

    question: Question
    half_width: float
    without: float
    rare: float | None
    verdict: str
    uncut: float

    @property
    def is_wide(self) -> bool:
        """Whether the interval is more than `WIDE` times as wide as without privacy."""
        return self.half_width > WIDE * self.without

    def enough(self, epsilon: float) -> float:
        """About the epsilon at which it is no longer wide: noise falls as epsilon grows."""
        if self.without == 0:
            return math.inf
        noise = max(self.uncut**2 - self.without**2, 0.0)
        return epsilon * math.sqrt(noise / (WIDE**2 - 1)) / self.without

    def __str__(self) -> str:
        if math.isnan(self.half_width):
            return f"{self.question}: no forecast within these bounds"
        rare = "" if self.rare is None else f"; a level of {RARE:.0%}: ±{self.rare:.3g}"
        return (
            f"{self.question}: ±{self.half_width:.3g} (without privacy ±{self.without:.3g}{rare}),"
            f" likely `{self.verdict}`"
        )


def forecasts(
    weights: WeightEstimator,
    schema: PublicSchema,
    *,
    published: int,
    like: WeightedRows | None = None,
) -> Iterator[Forecast]:
    """Forecast every declared question of calibrated weights, in order, for people `like` these."""
    if not weights.questions:
        return
    size = min(published, MOST_ROWS)
    expected = partial(weights.expected_law, published=published)
    if like is not None:
        drawn = like.draw(size, rng=np.random.default_rng(MOST_ROWS))
        rows = SyntheticTable(schema=schema, scaled=drawn)
        made = SyntheticTable(schema=schema, scaled=like.scaled)
        expected = partial(expected, made=made, credit=like.credit)
    else:
        rows = _reference(weights, schema, size, rare=False)
        uneven = _reference(weights, schema, size, rare=True)
        uneven_frame = uneven.frame()
    frame = rows.frame()
    levelled = {column.name for column in schema.released if not column.is_numeric}
    for question in weights.questions:
        half_width, without, verdict, uncut = _widest(
            expected(rows, question), question, rows, frame
        )
        rare = None
        if like is not None and half_width > WIDE * without:
            bound = expected(rows, question, credit=None)
            uncut = max(uncut, _widest(bound, question, rows, frame)[-1])
        tells_apart = levelled & {question.target, *question.others} or question.levels
        if like is None and tells_apart:
            rare, *_ = _widest(expected(uneven, question), question, uneven, uneven_frame)
        yield Forecast(
            question=question,
            half_width=half_width,
            without=without,
            rare=rare,
            verdict=verdict,
            uncut=uncut,
        )


def _reference(
    weights: WeightEstimator, schema: PublicSchema, size: int, *, rare: bool
) -> SyntheticTable:
    """Public rows, the same every time; `rare`: first levels have share `RARE`."""
    rng = np.random.default_rng(MOST_ROWS)
    cells: dict[str, NDArray[Any]] = {}
    spreads = {q.target: q.spread for q in weights.questions if q.spread is not None}
    for column in schema.released:
        if not column.is_numeric:
            count = column.cardinality
            codes = rng.choice(count, size=size, p=_shares(count, rare=rare))
            cells[column.name] = codes.astype(np.int32)
        elif column.name not in spreads and (count := (points := value_points(column)).size):
            cells[column.name] = points[rng.choice(count, size=size, p=_shares(count, rare=rare))]
        else:
            span = column.upper_number - column.lower_number
            deviation = spreads.get(column.name, USUAL * span) / span
            drawn = 0.5 + deviation * rng.standard_normal(size)
            cells[column.name] = np.clip(drawn, 0.0, 1.0)
    return SyntheticTable(schema=schema, scaled=ScaledTable(cells, size))


def _shares(count: int, *, rare: bool) -> NDArray[np.float64]:
    """Of levels, or of few values: equal, or `RARE` for the first."""
    shares = np.ones(count)
    if rare and count > 1:
        shares[0] = RARE / (1 - RARE) * (count - 1)
    return np.asarray(shares / shares.sum())


def _widest(
    law: MeansLaw | None,
    question: Question,
    rows: SyntheticTable,
    frame: pd.DataFrame,
) -> tuple[float, float, str, float]:
    """Of the widest answer: half-width, that without privacy, verdict, and half-width if not cut.

    NaN where the reference rows have no answer, such as for bounds of 10^190.
    """
    if law is None:
        return math.nan, math.nan, NO_FORECAST, math.nan
    sample = WeightedSample(frame=frame, weights=np.ones(len(frame)), law=law, schema=rows.schema)
    try:
        with np.errstate(all="ignore"):
            estimate = answer(sample, question)
            interval = confidence_interval(estimate)
    except (DPIWError, ValueError):
        return math.nan, math.nan, NO_FORECAST, math.nan
    known = np.isfinite(interval.values + np.sum([*interval.parts.values()], axis=0))
    half_widths = np.where(known, (interval.upper - interval.lower) / 2, np.nan)
    if not np.isfinite(half_widths).any():
        return math.nan, math.nan, NO_FORECAST, math.nan
    place = int(np.nanargmax(half_widths))
    people = estimate.influence.std(axis=0)
    reach = _NORMAL * people / math.sqrt(law.rows)
    low, high = estimate.reached(reach)
    without = max(float(high[place] - low[place]) / 2, float(reach[place]))
    without = min(without, float(half_widths[place]))  # of one whole number, both are narrow
    uncut = _NORMAL * math.sqrt(sum(float(part[place]) for part in interval.parts.values()))
    return float(half_widths[place]), without, interval.verdicts[place], uncut
