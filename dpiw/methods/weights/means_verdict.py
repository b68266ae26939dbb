"""Whether an interval of `measured` weights is to be used, and why not.

Most of an interval must be of a known law (privacy noise, samples); the rest is a guess at what
shrinkage withheld and what no feature reaches, right for some questions and far too small for
others. Thresholds: our choice, made after looking at simulations (docs/method.md section 14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpiw.analysis.sample import Estimate

Array = NDArray[np.float64]

SUPPORT_USE, SUPPORT_CARE = 0.5, 0.3
"""Least support for `use` and `use with care`: below, the interval is most of what is told."""

QUANTILE_USE = 0.85
"""The same of a quantile, which rests on what is within a generator's bins."""

GUESSED = 0.6
"""Most that the part `prior` may be of the variance for `use`. Chosen on the held-out populations
of benchmarks/coverage_populations.py, where others held the truth 88% of the time."""

ROWS_USE, ROWS_CARE = 500.0, 50.0
"""Least effective base rows for `use` and `use with care`: below, linearisation fails."""


def least_support(estimate: Estimate) -> float:
    """For the verdict `use`."""
    return SUPPORT_USE if estimate.facts.get("smooth", True) else QUANTILE_USE


def guessed(parts: dict[str, Array]) -> Array:
    """Share of each value's variance that is a guess, in [0, 1], shape (p,)."""
    whole = np.asarray(sum(parts.values()), dtype=np.float64)
    return np.divide(parts["prior"], whole, out=np.zeros_like(whole), where=whole > 0)


def grades(
    estimate: Estimate, support: Array, parts: dict[str, Array], *, base_rows: float
) -> NDArray[np.int64]:
    """0 `use`, 1 `use with care`, 2 `do not use`, shape (p,).

    Args:
        estimate: of p values.
        support: of each, shape (p,).
        parts: of each value's variance, shape (p,) each.
        base_rows: effective ones behind the weights.
    """
    own = np.where(support >= least_support(estimate), 0, np.where(support >= SUPPORT_CARE, 1, 2))
    base = 0 if base_rows >= ROWS_USE else 1 if base_rows >= ROWS_CARE else 2
    return np.asarray(np.maximum(np.maximum(own, guessed(parts) > GUESSED), base))


def reason(support: float, share: float, least: float) -> str:
    """Why a value's grade is not `use`.

    Args:
        support: of it.
        share: `guessed` of it.
        least: support for `use`.
    """
    if support < least:
        return f"support {support:.2f} (expected >= {least:g})"
    if share > GUESSED:
        return f"{share:.0%} of its variance is a guess (expected at most {GUESSED:.0%})"
    return "few rows are behind the weights"
