"""What a release answers: its declared questions, and how well pairs of columns are known."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.columns import levels
from dpiw.analysis.estimators.estimates import Estimate, joint
from dpiw.analysis.estimators.means import correlation, mean
from dpiw.analysis.estimators.models import linear_regression
from dpiw.analysis.estimators.quantiles import quantile
from dpiw.analysis.estimators.tables import shares
from dpiw.analysis.sample import Published, Source, weighted_sample
from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import DPIWError, ReleaseError, SpecError
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.questions import (
    CORRELATION,
    MEAN,
    QUANTILES,
    REGRESSION,
    SHARE,
    TABLE,
    Question,
    parse_questions,
)

PROBABILITIES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Of the quantiles that `quantiles` asks for."""

MOST_COLUMNS = 24
"""Most columns whose pairs are judged: the first ones of the data dictionary."""

_MOST_VALUES = 25
"""Most values of a pair's question."""

_MOST_WORK, _BATCH = 1e7, 200
"""Values times rows that `pair_support` judges, which bounds its time; and values at once."""


def answer(source: Source, question: Question) -> Estimate:
    """Estimate what a question asks; its values have names as the functions give them."""
    target, others = question.target, question.others
    if question.kind == MEAN:
        return mean(source, target, by=others[0] if others else None)
    if question.kind == CORRELATION:
        return correlation(source, target, others[0])
    if question.kind == REGRESSION:
        return linear_regression(source, target, [*others])
    if question.kind == QUANTILES:
        return joint(*(quantile(source, target, p) for p in PROBABILITIES))
    if question.kind == SHARE and others:
        return _shares_by(source, target, others[0])
    return shares(source, [target, *others])


def _shares_by(source: Source, target: str, group: str) -> Estimate:
    """Shares of a column's levels within each level of another."""
    sample = weighted_sample(source)
    parts = levels(sample, target)

    def is_level(code: int, _: pd.DataFrame) -> NDArray[np.float64]:
        return np.equal(parts.codes, code).astype(np.float64)

    return joint(
        *(
            mean(sample, partial(is_level, code), by=group, name=f"share({target}={label})")
            for code, label in enumerate(parts.labels)
        )
    )


def asked_of(release: Published) -> tuple[Question, ...]:
    """The questions that a release's certificate declares, in order; ReleaseError for others."""
    stated = [stage.parameters.get("questions", []) for stage in release.certificate.stages]
    schema = PublicSchema.from_mapping(release.schema)
    try:
        return parse_questions([entry for each in stated for entry in each], schema)
    except (SpecError, TypeError):
        allowed = "questions about the release's columns"
        raise ReleaseError(
            "states no such questions", field="certificate", allowed=allowed
        ) from None


def answers(source: Source, questions: Sequence[Question]) -> pd.DataFrame:
    """All answers as one table: a line for each value, with its interval and verdict.

    Columns: `question`, `value`, `estimate`, `lower`, `upper`, `support`, `verdict`, `why`. A
    question that these rows cannot answer has one line without numbers, with the reason.
    """
    frames = []
    for question in questions:
        try:
            frame = answer(source, question).interval().frame()
        except DPIWError as error:
            unknown = {name: [np.nan] for name in ("estimate", "lower", "upper", "support")}
            told = {"verdict": [Verdict.DO_NOT_USE.value], "why": [str(error)]}
            frame = pd.DataFrame(unknown | told, index=["no answer"])
        frame.insert(0, "value", frame.index)
        frame.insert(0, "question", str(question))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def pair_support(source: Source) -> pd.DataFrame:
    """How well each column, and each pair of columns, is known: one line each.

    A column is asked for its mean or shares; a pair for its correlation, its means by level or its
    table. Columns: `first`, `second` (the same for a column alone), `support` (the median of the
    answer's values), and how many values have each verdict. Left out: columns after the first
    `MOST_COLUMNS`, what has more than 25 values or no finite answer, and what comes after the work
    of `_MOST_WORK`.
    """
    sample = weighted_sample(source)
    columns = [*sample.declared.values()][:MOST_COLUMNS]
    lines: list[dict[str, Any]] = []
    values, batch, full = 0, dict[tuple[str, str], Estimate](), _BATCH
    for place, second in enumerate(columns):
        for first in columns[: place + 1]:
            question = _natural(first, second)
            if question is None or values * sample.rows > _MOST_WORK:
                continue
            with contextlib.suppress(DPIWError):
                found = answer(sample, question)
                batch[first.name, second.name] = found
                values += found.values.size
            if values >= full:
                lines += _judged(batch)
                batch.clear()
                full = values + _BATCH
    return pd.DataFrame(lines + _judged(batch))


def _judged(batch: Mapping[tuple[str, str], Estimate]) -> list[dict[str, Any]]:
    """A line for each pair with a finite support: its median, and the number of each verdict."""
    if not batch:
        return []
    frame = joint(*batch.values()).interval().frame()
    lines, start = [], 0
    for (first, second), estimate in batch.items():
        values = frame.iloc[start : start + estimate.values.size]
        start += estimate.values.size
        support = float(values["support"].median())
        if np.isfinite(support):
            counts = {v.value: int((values["verdict"] == v.value).sum()) for v in Verdict}
            lines.append({"first": first, "second": second, "support": support, **counts})
    return lines


def _natural(first: Column, second: Column) -> Question | None:
    """The question of two columns, or of one with itself; None if it has too many values."""
    both = sorted({first.name: first, second.name: second}.values(), key=lambda c: c.is_discrete)
    if math.prod(max(column.cardinality, 1) for column in both) > _MOST_VALUES:
        return None
    numbers, (target, *others) = sum(c.is_numeric for c in both), [c.name for c in both]
    kinds = (TABLE, MEAN, CORRELATION) if others else (SHARE, MEAN)
    return Question(kind=kinds[numbers], target=target, others=tuple(others))
