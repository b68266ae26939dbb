"""Confidence intervals for population parameters, from weighted synthetic rows (docs/analysts.md).

An error has parts `rows`, `means`, and `prior`, a guess at what the features do not see
(`dpiw.methods.weights.measured.law`). If a person may have k rows, `people` adds k - 1 times the
sampling variance, a worst-case bound; verdicts about the guess leave it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.errors.verdicts import size_objections, widened
from dpiw.analysis.sample import Array, Values, WeightedSample, check_estimate
from dpiw.errors import ReleaseError, one_of
from dpiw.methods.weights.diagnostics import Stability, worst

NOISE_AWARE, SANDWICH = "noise_aware", "sandwich"
METHODS = (NOISE_AWARE, SANDWICH)

_SHORT = "{:.6g}".format
_SHOWN = 40
"""Most values that are printed."""

_NOT_ASSESSED = "not assessed"
_ROWS_ALONE = "it leaves out the privacy noise and the sampling of the people"
_NO_LAW = "only weights of weights.method: measured have a noise-aware interval"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Interval:
    """Intervals of an estimate's p values; arrays have shape (p,). Prints as a table.

    Attributes:
        level: nominal coverage of each interval.
        method: as in `confidence_interval`.
        parts: variance by source, shape (p,) each.
        support: share of each estimate that the weights can correct; NaN if unknown.
        verdicts: noise-aware: `use`, `use with care` or `do not use`; others: `not assessed`.
        reasons: why a verdict is not `use`, for each value; `frame()["why"]` joins them.
        cut: whether an end was moved into the possible range, such as a share below zero.
        max_rows: most rows of one person; above one, the caption says so.
    """

    names: tuple[str, ...]
    values: Array
    lower: Array
    upper: Array
    level: float
    method: str
    parts: Mapping[str, Array] = field(default_factory=dict)
    support: Array
    verdicts: tuple[str, ...]
    reasons: tuple[tuple[str, ...], ...] = ()
    cut: bool = False
    max_rows: int = 1

    def __repr__(self) -> str:
        caption = f"{self.level:.0%} intervals, {self.method.replace('_', '-')}"
        caption += ", cut to what is possible" if self.cut else ""
        caption += f", of rows, up to {self.max_rows} a person" if self.max_rows > 1 else ""
        table = self._table()
        left = len(table) - _SHOWN
        more = [f"and {left} more: interval().frame() holds all"] if left > 0 else []
        lines = [table[:_SHOWN].to_string(float_format=_SHORT), *more, caption, *self.told()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        html = str(self._table().to_html(float_format=_SHORT))
        if not (why := self.told()):
            return html
        with pd.option_context("display.max_colwidth", None):
            return html + str(pd.DataFrame({"why not `use`": why}).to_html(index=False))

    def told(self) -> list[str]:
        """Reasons for verdicts other than `use`: each set once, after the names of its values."""
        if self.reasons and set(self.verdicts) == {_NOT_ASSESSED}:
            return [f"{_NOT_ASSESSED}: {_why(self.reasons[0])}"]
        names_by_reasons: dict[tuple[str, ...], list[str]] = {}
        for name, reasons in zip(_levels(self.names), self.reasons, strict=False):
            if reasons:
                names_by_reasons.setdefault(reasons, []).append(name)
        return [f"{', '.join(names)}: {_why(why)}" for why, names in names_by_reasons.items()]

    def _table(self) -> pd.DataFrame:
        """The printed table: no reasons, and as many digits as distinguish the ends."""
        table = self.frame().drop(columns="why")
        widths = self.upper - self.lower
        for name in ("estimate", "lower", "upper"):
            pairs = zip(table[name], widths, strict=True)
            table[name] = [shown(value, width) for value, width in pairs]
        return table

    def frame(self) -> pd.DataFrame:
        """Return one row per value; `why` is empty where the verdict is `use`."""
        return pd.DataFrame(
            {
                "estimate": self.values,
                "lower": self.lower,
                "upper": self.upper,
                "support": self.support,
                "verdict": self.verdicts,
                "why": [_why(reasons) for reasons in self.reasons or ((),) * len(self.names)],
            },
            index=list(self.names),
        )


def shown(value: float, width: float) -> str:
    """A number to six digits, or to three digits of its interval's width if that needs more."""
    digits = 6
    if 0 < width < abs(value) < np.inf:
        digits = max(digits, math.ceil(math.log10(abs(value) / width)) + 3)
    return f"{value:.{min(digits, 17)}g}"


def _why(reasons: tuple[str, ...]) -> str:
    return "; ".join(reasons)


def _levels(names: tuple[str, ...]) -> list[str]:
    stem, bar, _ = names[0].partition(" | ")
    common_stem = bool(bar) and all(name.startswith(stem + bar) for name in names)
    return [name.removeprefix(stem + bar) if common_stem else name for name in names]


def variance_parts(estimate: Values) -> dict[str, Array]:
    """Return each value's variance by source, shape (p,) each; ReleaseError without a law."""
    return estimate.sample.known_law.parts(estimate)


def noise_aware_covariance(estimate: Values) -> Array:
    """Covariance of the values with every part of `variance_parts`, shape (p, p).

    Every part is a quadratic form of the influence, so cov(a, b) = (var(a + b) - var(a - b)) / 4,
    and laws of weights need variances only. The position of quantiles in their bins is independent.
    """
    variances = np.asarray(sum(variance_parts(estimate).values()))
    scale = np.where(
        variances > 0, np.sqrt(variances), 1.0
    )  # else one value's unit hides the others
    covariance, influence = np.diag(variances / scale**2), estimate.influence / scale
    for i in range(len(covariance) - 1):
        column, others = influence[:, i, None], influence[:, i + 1 :]
        facts = _of_pairs(estimate.facts, i)
        apart, less = (
            sum(variance_parts(replace(estimate, influence=pair, facts=facts)).values())
            for pair in (column + others, column - others)
        )
        covariance[i, i + 1 :] = (apart - less) / 4
        covariance[i + 1 :, i] = covariance[i, i + 1 :]
    return np.asarray(covariance * np.outer(scale, scale))


def _of_pairs(facts: Mapping[str, Any], i: int) -> Mapping[str, Any]:
    """Facts of value `i` with each later one; a bin unknown to one of them counts as known."""
    inside = facts.get("inside")
    if inside is None:
        return facts
    unknown = np.isnan(inside[i]) & np.isnan(inside[i + 1 :])
    return {**facts, "inside": np.where(unknown, np.nan, 0.0)}


def _verdicts(
    estimate: Values, parts: dict[str, Array]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    if not parts:
        values = estimate.values.size
        return (_NOT_ASSESSED,) * values, (_left_out(estimate.sample),) * values
    sample = estimate.sample
    # Only stability: the interval already includes noise, shrinkage and signal.
    logs = np.log(np.maximum(sample.weights, 1e-300))
    stable = Stability.of(logs)
    pairs = zip(
        sample.known_law.objections(estimate, parts), size_objections(estimate), strict=True
    )
    per_value = [[*law, *size, *stable.findings] for law, size in pairs]
    verdicts = tuple(worst(objections).value for objections in per_value)
    return verdicts, tuple(
        tuple(objection.reason for objection in objections) for objections in per_value
    )


def _left_out(sample: WeightedSample) -> tuple[str, ...]:
    if sample.law is not None or sample.release is None:
        return (_ROWS_ALONE,)
    is_weighted = sample.release.certificate.weights.get("published", False)
    return (_ROWS_ALONE, _NO_LAW) if is_weighted else (_ROWS_ALONE,)


def _check_level(level: Any) -> None:
    advice = ""
    if isinstance(level, str):
        is_number = level.replace(".", "", 1).isdigit()
        advice = "; write it without quotes" if is_number else f"; write method={level!r}"
    elif isinstance(level, int | float | np.floating):
        if 0 < level < 1:
            return
        advice = f"; write level={float(level) / 100:g}" if 1 < level < 100 else ""
    raise ReleaseError(field="level", allowed=f"a number between 0 and 1, found {level!r}{advice}")


def confidence_interval(
    estimate: Values,
    *,
    level: float = 0.95,
    method: str | None = None,
) -> Interval:
    """Return an interval for each of an estimate's values, within its possible range.

    If the synthetic rows show no spread, such as a share of no row, it reaches as far as rows,
    people and privacy noise allow (`dpiw.analysis.errors.verdicts.left_open`); with a handful of
    rows, or none, it is the whole possible range (`Estimate.limits`).

    Args:
        estimate: of this package.
        level: nominal coverage, in (0, 1).
        method: `noise_aware` (the default if the weights' law is known): all parts, by
            linearisation. `sandwich` (the default for a pair): the synthetic rows alone; it ignores
            the privacy noise and is too narrow.
    """
    check_estimate(estimate, "confidence_interval")
    _check_level(level)
    chosen = method or (SANDWICH if estimate.sample.law is None else NOISE_AWARE)
    if chosen not in METHODS:
        raise ReleaseError(field="method", allowed=one_of(chosen, METHODS))
    law_parts = {} if estimate.sample.law is None else variance_parts(estimate)
    is_noisy = chosen == NOISE_AWARE
    parts = law_parts if is_noisy else {"rows": np.diag(estimate.covariance())}
    parts = parts or variance_parts(estimate)  # raises where no law is known
    reach = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(sum(parts.values()))
    low, high = estimate.reached(reach)
    least, most = estimate.least_and_most
    cut = bool(np.any((low < least) | (high > most)))
    low, high = np.clip([low, high], least, most)
    miss = (1 - float(level)) / 2
    low, high = widened(estimate, low, high, miss=miss, noisy=is_noisy)
    verdicts, reasons = _verdicts(estimate, law_parts if is_noisy else {})
    law = estimate.sample.law
    support = np.full(estimate.values.size, np.nan) if law is None else law.support(estimate)
    return Interval(
        names=estimate.names, values=estimate.values, lower=low, upper=high, level=level,
        method=chosen, parts=parts, support=support,
        verdicts=verdicts, reasons=reasons, cut=cut, max_rows=estimate.sample.max_rows,
    )  # fmt: skip
