"""Replicate weights of `measured` weights: draws from the law of their errors; free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpiw.data.row_weights import ReplicateWeights

if TYPE_CHECKING:
    from dpiw.methods.weights.means_law import MeansLaw

Array = NDArray[np.float64]

_DRAWN = 16
"""Replicates that are drawn at once."""

_LEAST = 0.01
"""Weights below it get the prior's jitter of this weight: a step for them alone would be tiny."""

_POSITIVE = 0.9
"""Most that a replicate's weight may differ from the full weight, as a share of it."""


def drawn_replicates(law: MeansLaw, count: int, rng: np.random.Generator) -> ReplicateWeights:
    """Replicate weights whose spread over any smooth estimate is its error.

    Each is w (1 + step e), e = jitter + theta.(phi - m) + chance: random signs times the prior's
    standard deviations; a tilt theta that takes back what was measured of them and adds noise and
    sampling error of the means; random signs for the rows' own sampling, and for the private rows'
    where a person may have several (`MeansLaw.parts`). `step` keeps every weight positive.

    Args:
        law: of the published weights.
        count: R.
        rng: an analyst's or the release's generator; no privacy noise.
    """
    n, w = len(law.weights), law.weights
    spread = np.sqrt(n * law.prior / np.maximum(w, _LEAST))
    root = np.linalg.cholesky(law.error)
    chance = np.sqrt(law.repeats)
    people = np.sqrt((law.max_rows - 1) / law.rows * n / np.maximum(w, _LEAST))[:, None]
    replicates = np.empty((n, count))
    for start in range(0, count, _DRAWN):
        size = min(_DRAWN, count - start)
        jitter = spread[:, None] * _signs(rng, n, size)
        shift = law.features.T @ (w[:, None] * jitter) / n - np.outer(law.means, w @ jitter / n)
        error = root @ rng.standard_normal((len(root), size)) - shift
        theta = law.fit.T @ (law.fit @ error)
        sampling = chance * law.calibrated(_signs(rng, n, size))
        theta += law.base_error @ rng.standard_normal(theta.shape)
        theta += np.outer(law.pull, rng.standard_normal(size))
        moved = jitter + law.features @ theta + sampling
        if law.max_rows > 1:
            moved += people * _signs(rng, n, size)
        replicates[:, start : start + size] = moved - w @ moved / n
    step = _POSITIVE / max(float(replicates.max()), -float(replicates.min()))
    replicates *= step
    replicates += 1
    replicates *= w[:, None]
    return ReplicateWeights(weights=replicates, scale=1 / (count * step**2))


def _signs(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Random signs, shape (rows, columns)."""
    return np.asarray(rng.integers(0, 2, (rows, columns)) * 2.0 - 1.0, dtype=np.float64)
