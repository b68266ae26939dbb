"""Whether to use an interval of `measured` weights: most of its variance must be of known law."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import (
    K_HAT_USE,
    Objection,
    Verdict,
    objection,
    tail_findings,
    unsupported,
)
from dpiw.methods.weights.measured.constants import (
    GUESSED,
    ROWS_CARE,
    ROWS_USE,
    SUPPORT_CARE,
    SUPPORT_USE,
)

Array = NDArray[np.float64]

BIN = Objection(Verdict.CARE, "the generator has no bins, so nothing says how far it may be off")
"""To a quantile of a column without known bins."""


class Linearised(Protocol):
    """An estimate as the law of its weights reads it."""

    @property
    def influence(self) -> Array:
        """Derivative of the values by the weight of each row, shape (n, p)."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts of the estimator, by name."""


def guessed(parts: dict[str, Array]) -> Array:
    """Share of each value's variance that is a guess, in [0, 1], shape (p,).

    `people` is left out: an upper bound, it would make the guess look smaller.
    """
    known = [part for name, part in parts.items() if name != "people"]
    total = np.asarray(sum(known), dtype=np.float64)
    return np.divide(parts["prior"], total, out=np.zeros_like(total), where=total > 0)


def objections(
    estimate: Linearised, support: Array, parts: dict[str, Array], *, base: list[Objection]
) -> list[list[Objection]]:
    """Each value's objections to `use`, with those of the base; `support` has shape (p,)."""
    shares = guessed(parts) if estimate.facts.get("smooth", True) else np.zeros(support.size)
    in_no_bin = np.isnan(estimate.facts.get("inside", np.zeros(support.size)))
    return [
        unsupported(seen, use=SUPPORT_USE, care=SUPPORT_CARE)
        + _guess(share)
        + [BIN] * unbound
        + base
        for seen, share, unbound in zip(
            support.tolist(), shares.tolist(), in_no_bin.tolist(), strict=True
        )
    ]


def _guess(share: float) -> list[Objection]:
    text = f"{math.ceil(100 * share)}% of its variance is a guess (expected at most {GUESSED:.0%})"
    return objection(share > GUESSED, False, text)


def base_objections(published: float, base_rows: float, k_hat: float | None) -> list[Objection]:
    """Objections to the base, the same for a release and for its intervals.

    Too few effective published rows for `use with care` count as such a base.
    """
    behind = min(published, base_rows) if published < ROWS_CARE else base_rows
    count = math.floor(min(behind, ROWS_USE) * (1 + 1e-9))  # there may be infinitely many
    text = f"{count} effective rows are behind the weights (expected >= {ROWS_USE:.0f})"
    few = objection(behind < ROWS_USE, behind < ROWS_CARE, text)
    return few + tail_findings(k_hat, K_HAT_USE, whose=" of the base weights")
