"""What each declared question will get: widths of its intervals, before data is read. Free.

The law of the noise is public. What the people are like is not: the forecast is for public
reference rows with independent columns, levels of equal shares, and numbers spread evenly over
their bounds or as the question's `spread` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.errors.intervals import confidence_interval
from dpiw.analysis.questions import answer
from dpiw.analysis.sample import WeightedSample
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.methods.weights.base import WeightEstimator
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.measured.constants import MOST_CREDIT
from dpiw.methods.weights.questions import MOST_VALUES, Question, possible_values

RARE = 0.05
"""Share of the first level in the second forecast of a question about levels."""

WIDE = 2.0
"""Half-widths over those without privacy from which a plan warns: our choice."""

_ROWS = 10_000
"""Reference rows: half-widths have simulation errors of about 1%."""

_NORMAL = 1.959964
"""97.5% quantile of the standard normal law."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A question's widest answer.

    Attributes:
        half_width: of the 95% interval, in the answer's unit.
        without: the same without privacy, for `nominal_rows` people.
        rare: half-width for a level of share `RARE`; None without levels.
        verdict: which the interval is likely to get.
    """

    question: Question
    half_width: float
    without: float
    rare: float | None
    verdict: str

    @property
    def is_wide(self) -> bool:
        """Whether the interval is more than `WIDE` times as wide as without privacy."""
        return self.half_width > WIDE * self.without

    def enough(self, epsilon: float) -> float:
        """About the epsilon at which it is no longer wide: noise falls as epsilon grows."""
        noise = max(self.half_width**2 - self.without**2, 0.0)
        return epsilon * math.sqrt(noise / (WIDE**2 - 1)) / self.without

    def __str__(self) -> str:
        rare = "" if self.rare is None else f"; a level of {RARE:.0%}: ±{self.rare:.3g}"
        return (
            f"{self.question}: ±{self.half_width:.3g} (without privacy ±{self.without:.3g}{rare}),"
            f" likely `{self.verdict}`"
        )


def forecasts(
    weights: WeightEstimator, schema: PublicSchema, *, nominal_rows: int, published: int
) -> Iterator[Forecast]:
    """Forecast every declared question of calibrated weights, in order."""
    for question in weights.questions:
        uneven = _levelled(question, schema)
        usual, *others = (
            _widest(weights, question, _reference(schema, question, rare), published)
            for rare in ((frozenset(), uneven) if uneven else (frozenset(),))
        )
        if usual is not None:
            half_width, people, verdict = usual
            yield Forecast(
                question=question,
                half_width=half_width,
                without=people / math.sqrt(nominal_rows),
                rare=others[0][0] if others and others[0] else None,
                verdict=verdict,
            )


def _levelled(question: Question, schema: PublicSchema) -> frozenset[str]:
    levelled = {column.name for column in schema.released if not column.is_numeric}
    return frozenset(levelled & {question.target, *question.others})


def _reference(schema: PublicSchema, question: Question, rare: frozenset[str]) -> SyntheticTable:
    """Public rows, the same every time; the first level of the columns in `rare` is rare."""
    rng = np.random.default_rng(_ROWS)
    cells: dict[str, NDArray[Any]] = {}
    for column in schema.released:
        if not column.is_numeric:
            shares = np.ones(column.cardinality)
            if column.name in rare and column.cardinality > 1:
                shares[0] = RARE / (1 - RARE) * (column.cardinality - 1)
            codes = rng.choice(column.cardinality, size=_ROWS, p=shares / shares.sum())
            cells[column.name] = codes.astype(np.int32)
        elif column.name == question.target and question.spread is not None:
            deviation = question.spread / (column.upper_number - column.lower_number)
            cells[column.name] = np.clip(0.5 + deviation * rng.standard_normal(_ROWS), 0.0, 1.0)
        elif 2 <= (count := possible_values(column)) <= MOST_VALUES:
            cells[column.name] = rng.integers(0, count, _ROWS) / (count - 1)
        else:
            cells[column.name] = rng.random(_ROWS)
    return SyntheticTable(schema=schema, scaled=ScaledTable(cells, _ROWS))


def _widest(
    weights: WeightEstimator, question: Question, rows: SyntheticTable, published: int
) -> tuple[float, float, str] | None:
    """Of the widest answer: half-width, the same for one person without privacy, and verdict."""
    law = weights.expected_law(rows)
    if law is None:
        return None
    even = np.ones(rows.rows)
    sample = WeightedSample(frame=rows.frame(), weights=even, law=law, schema=rows.schema)
    estimate = answer(sample, question)
    parts = law.parts(estimate)
    parts["rows"] = parts["rows"] * rows.rows / published
    deviations = np.sqrt(np.sum([*parts.values()], axis=0))
    place = int(np.nanargmax(deviations))
    people = float(estimate.influence[:, place].std())
    verdict = confidence_interval(estimate).verdicts[place]
    noise = float(parts["means"][place]) - people**2 / law.rows
    if verdict == Verdict.USE.value and noise > people**2 / (MOST_CREDIT * law.rows):
        verdict = Verdict.CARE.value  # louder than a prior: weights do not keep to it
    return _NORMAL * float(deviations[place]), _NORMAL * people, verdict
