"""Whether an interval of `measured` weights is to be used, and why not.

Most of an interval must be of a known law (privacy noise, samples); the rest is a guess at what
shrinkage withheld and what no feature reaches, right for some questions and far too small for
others. Thresholds: our choice, made after looking at simulations (docs/method.md section 14).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import Objection, Verdict, tail_findings, unsupported

Array = NDArray[np.float64]

SUPPORT_USE, SUPPORT_CARE = 0.5, 0.3
"""Least support for `use` and `use with care`: below, the interval is most of what is told."""

QUANTILE_USE = 0.85
"""The same of a quantile where nobody knows how a generator's bins lie, in which it is decided."""

GUESSED = 0.6
"""Most that the part `prior` may be of the variance for `use`. It was varied on 240 releases of two
simulated populations with heavy tails and gaps, on which nothing else was chosen: with 0.6 means
and linear coefficients with `use` held the truth 95.5% of the time, `use with care` 88%. Not asked
of quantiles: their guess depends on where they fall, and it is small where they fell wrong."""

MANY = 10**6
"""Rows of a base, of which at least 10,000 are drawn: k-hat's bound is 0.7 from 2,155 on."""

ROWS_USE, ROWS_CARE = 500.0, 50.0
"""Least effective base rows for `use` and `use with care`: below, linearisation fails."""


class Linearised(Protocol):
    """Values of a sample as the law of its weights sees them (`dpiw.analysis.sample.Values`)."""

    @property
    def values(self) -> Array:
        """Shape (p,)."""
        ...

    @property
    def influence(self) -> Array:
        """By what each row moves them, shape (n, p)."""
        ...

    @property
    def refit(self) -> Callable[[Array], Array]:
        """The values at other weights, shape (n,) to shape (p,)."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What else the estimator has to say, by name."""
        ...


def least_support(estimate: Linearised) -> Array:
    """For the verdict `use`, of each value, shape (p,)."""
    inside = estimate.facts.get("inside", np.zeros(estimate.values.size))
    return np.where(np.isfinite(inside), SUPPORT_USE, QUANTILE_USE)


def guessed(parts: dict[str, Array]) -> Array:
    """Share of each value's variance that is a guess, in [0, 1], shape (p,).

    Without `people`, a bound, which may be far too large: it makes no guess better.
    """
    known = [part for name, part in parts.items() if name != "people"]
    total = np.asarray(sum(known), dtype=np.float64)
    return np.divide(parts["prior"], total, out=np.zeros_like(total), where=total > 0)


def objections(
    estimate: Linearised, support: Array, parts: dict[str, Array], *, base: list[Objection]
) -> list[list[Objection]]:
    """Of each value, all that keeps it from `use`.

    Args:
        estimate: of p values.
        support: of each, shape (p,).
        parts: of each value's variance, shape (p,) each.
        base: what the base leaves of every value (`base_objections`).
    """
    least = least_support(estimate)
    shares = guessed(parts) if estimate.facts.get("smooth", True) else np.zeros(support.size)
    return [
        unsupported(seen, use=enough, care=SUPPORT_CARE) + guess(share) + base
        for seen, enough, share in zip(
            support.tolist(), least.tolist(), shares.tolist(), strict=True
        )
    ]


def guess(share: float) -> list[Objection]:
    """What so large a part of a guess leaves."""
    if share <= GUESSED:
        return []
    text = f"{math.ceil(100 * share)}% of its variance is a guess (expected at most {GUESSED:.0%})"
    return [Objection(Verdict.CARE, text)]


def base_objections(published: float, base_rows: float, k_hat: float | None) -> list[Objection]:
    """What keeps the base from `use`: the one rule of a release and of its intervals.

    Args:
        published: effective rows of the published ones. Too few for `use with care`, they count as
            a base of so few.
        base_rows: effective rows of the base.
        k_hat: of the base's weights; None: they have no tail.
    """
    behind = min(published, base_rows) if published < ROWS_CARE else base_rows
    tail = tail_findings(k_hat, MANY, whose=" of the base weights")
    return few_rows(behind) + [Objection(*finding) for finding in tail]


def few_rows(base_rows: float) -> list[Objection]:
    """What so few effective base rows leave."""
    if base_rows >= ROWS_USE:
        return []
    leaves = Verdict.CARE if base_rows >= ROWS_CARE else Verdict.DO_NOT_USE
    text = f"{math.floor(base_rows * (1 + 1e-9))} effective rows are behind the weights"
    text += f" (expected >= {ROWS_USE:.0f})"
    return [Objection(leaves, text)]
