"""From many weighted base rows to the rows that are published, with mild weights; free.

Rows are drawn with probabilities q_j in proportion to w_j^tau and keep the weights w_j/q_j: the
weighted table means the same for every tau. tau = 0 leaves all to the weights, tau = 1 all to the
choice of rows. The smallest tau is taken at which the weights' design effect is admissible.
Imports nothing but NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError
from dpiw.weights.debiasing import normalised
from dpiw.weights.resampling import Scheme, resample_rows

Array = NDArray[np.float64]

_HALVINGS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Thinned:
    """Rows chosen from a base, and what is left of their weights.

    Attributes:
        chosen: indices in the base, ascending, shape (n,); rows may repeat.
        log_weights: of the chosen rows, of mean one, shape (n,).
        exponent: tau.
        distinct: how many of the chosen rows differ.
    """

    chosen: NDArray[np.int64] = field(repr=False)
    log_weights: Array = field(repr=False)
    exponent: float
    distinct: int


def thin(
    log_weights: Array, rows: int, *, design_effect: float, rng: np.random.Generator
) -> Thinned:
    """Choose `rows` rows of the base, spread evenly.

    Args:
        log_weights: of the base rows, shape (M,), natural log, any scale.
        rows: how many to choose, >= 1.
        design_effect: most that rows sum(v^2)/sum(v)^2 of the kept weights v may be expected to
            be, >= 1.
        rng: no privacy noise; may be seeded from public values.

    Raises:
        WeightError: no rows, a log weight that is not finite, or a design effect below one.
    """
    if not design_effect >= 1:
        raise WeightError(f"design effect {design_effect:g}: expected at least 1")
    logs = normalised(log_weights)
    tau = _exponent(logs, design_effect)
    chosen = resample_rows(tau * logs, rows, scheme=Scheme.SYSTEMATIC, rng=rng)
    return Thinned(
        chosen=chosen,
        log_weights=normalised((1 - tau) * logs[chosen]),
        exponent=tau,
        distinct=int(np.unique(chosen).size),
    )


def _exponent(logs: Array, design_effect: float) -> float:
    """Smallest tau whose expected design effect, sum(q) sum(w^2/q) / sum(w)^2, is admissible."""

    def expected(tau: float) -> float:
        return float(np.mean(np.exp(tau * logs)) * np.mean(np.exp((2 - tau) * logs)))

    if expected(0.0) <= design_effect:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if expected(middle) <= design_effect else (middle, high)
    return high
