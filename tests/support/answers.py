"""What a small release answers: rows, weights, and estimates with their intervals, as JSON."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dpiw import analysis
from dpiw.analysis.release import Release
from dpiw.errors import DPIWError

ASKED: dict[str, Callable[[Any], Any]] = {
    "mean": lambda sample: analysis.mean(sample, "age"),
    "mean where": lambda sample: analysis.mean(sample, "income", where="ill"),
    "deviation": lambda sample: analysis.std(sample, "income"),
    "correlation": lambda sample: analysis.correlation(sample, "age", "income"),
    "total": lambda sample: analysis.total(sample, "age", population=2000),
    "median": lambda sample: analysis.median(sample, "age"),
    "line": lambda sample: analysis.linear_regression(sample, "income ~ age + region"),
    "logistic": lambda sample: analysis.logistic_regression(sample, "ill ~ age"),
}
"""By name, a question about the table of `tests.golden.make_releases`."""


def answers_of(release: Release) -> dict[str, Any]:
    """Digest of the rows, moments of the weights, and each interval; of a refusal its class."""
    sample = analysis.weighted_sample(release)
    table = release.table.to_csv(index=False, float_format="%.6g")
    weights = np.asarray(sample.weights, dtype=float)
    return {
        "rows": hashlib.sha256(table.encode()).hexdigest(),
        "weights": [float(weights.min()), float(weights.max()), float(weights.std())],
        "verdict": str(release.certificate.verdict),
        **{name: _answer(ask, sample) for name, ask in ASKED.items()},
    }


def _answer(ask: Callable[[Any], Any], sample: Any) -> dict[str, Any]:
    try:
        interval = analysis.confidence_interval(ask(sample))
    except DPIWError as refusal:
        return {"refused": type(refusal).__name__}
    parts = {"values": interval.values, "lower": interval.lower, "upper": interval.upper}
    numbers = {name: [float(number) for number in part] for name, part in parts.items()}
    return {**numbers, "verdicts": list(interval.verdicts)}
