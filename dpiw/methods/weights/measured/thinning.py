"""From many weighted base rows to the rows that are published, with mild weights; free.

Probabilities are in proportion to w_j^tau, tau the smallest with an admissible design effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import WeightError
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.constants import MOST_FITTED
from dpiw.methods.weights.measured.credit import solvable
from dpiw.methods.weights.measured.many_rows import StreamedRows, corrected
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import Tilt
from dpiw.methods.weights.weigh import normalised, resample

Array = NDArray[np.float64]

_HALVINGS = 50

_TRIALS, _MARGIN = 4, 0.97
"""Most trials at a milder choice, until calibrated weights are admissible, and margin of each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Thinned:
    """Rows chosen from a base, ascending, with repeats, and their log weights, shape (n,).

    `exponent` is tau; `distinct` counts the rows that differ; `credit`, by which their weights were
    calibrated, is their effective number or a larger one, infinite without calibration.
    """

    chosen: NDArray[np.int64] = field(repr=False)
    log_weights: Array = field(repr=False)
    exponent: float
    distinct: int
    credit: float = math.inf


def thin(
    log_weights: Array, rows: int, *, design_effect: float, rng: np.random.Generator
) -> Thinned:
    """Choose `rows` rows of the base, evenly spaced by probability; may raise WeightError.

    `log_weights`: shape (M,), any scale; `design_effect` >= 1 bounds the kept weights' expected
    one. `rng` draws no privacy noise.
    """
    logs = normalised(log_weights)
    tau = _exponent(logs, design_effect)
    chosen = resample(tau * logs, rows, rng=rng)
    return Thinned(
        chosen=chosen,
        log_weights=normalised((1 - tau) * logs[chosen]),
        exponent=tau,
        distinct=1 + int(np.count_nonzero(np.diff(chosen))),  # they ascend
    )


def calibrated(
    log_weights: Array,
    rows: int,
    targets: Targets,
    *,
    taken: Callable[[NDArray[np.int64], Array], BaseRows],
    design_effect: float,
    law: Tilt,
    rng: np.random.Generator,
) -> Thinned:
    """Choose rows and tilt them back to the base's means (Deville & Sarndal 1992); free.

    `log_weights`: of the base, shape (M,); `targets`: its weighted means, with the noise S; `taken`
    gives features of rows by indices and log weights; `law`, a tilting of the base, starts the
    steps. `rng` draws no privacy noise.
    """
    aim = design_effect
    for _ in range(_TRIALS):
        choice = thin(log_weights, rows, design_effect=aim, rng=rng)
        credit = 1 / float((np.exp(choice.log_weights) ** 2).sum()) * rows**2
        if rows == choice.distinct == log_weights.size > MOST_FITTED:  # all rows, as they are
            return choice
        if design_effect == 1:
            break  # no weights at all
        chosen = taken(choice.chosen, choice.log_weights)
        try:
            if isinstance(chosen, StreamedRows) and chosen.rows > MOST_FITTED:
                start = replace(law, theta=np.zeros(targets.means.size), credit=credit)
                solved = corrected(start, chosen, targets)
            else:
                solved = solvable(chosen, targets, credit, covariance=law.covariance)
        except WeightError:  # the rows as they were chosen serve as well
            break
        logs = normalised(solved.log_weights)
        effect = float(np.mean(np.exp(logs) ** 2))
        if effect <= design_effect:
            return replace(choice, log_weights=logs, credit=solved.credit)
        aim = max(1.0, aim * design_effect / effect * _MARGIN)
    return thin(log_weights, rows, design_effect=design_effect, rng=rng)


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
