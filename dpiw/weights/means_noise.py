"""What is known of the noise of measured means; release and analyst build it alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from dpiw.one_way import OneWayLaw

Array = NDArray[np.float64]


def means_noise(
    *, scale: float, rows: float, constant: float, about: Array, known: OneWayLaw | None = None
) -> Array:
    """S, the covariance of the noise of means, shape (d, d).

    (s/N)^2 I for the measured features, s the noise of their sums over N rows; the marginals' own
    for those that are known; and, with a noisy count, (s/(N c))^2 m m', the error of N that all
    means share (METHOD section 15.1). For m the noisy means themselves would be the wrong choice:
    they hold the noise, whose length may be that of the means, and the direction in which it lies
    would pass for ill-known.

    Args:
        scale: s.
        rows: N.
        constant: c by which a row counts; 0 where N is public.
        about: m, public means near the true ones, shape (d,): of the measured features, and after
            them of the known marginals.
        known: which marginals are known, and how well.
    """
    levels = np.zeros(0) if known is None else known.levels
    measured = about.size - levels.size
    found = (scale / rows) ** 2 * np.eye(measured)
    if known is not None:
        found = np.asarray(block_diag(found, known.covariance(rows)))
    if constant:
        lever = about - np.concatenate([np.zeros(measured), levels])
        found += (scale / rows / constant) ** 2 * np.outer(lever, lever)
    return found
