"""What is known of the noise of measured means; release and analyst build it alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.one_way import OneWayLaw, block_diagonal

Array = NDArray[np.float64]


def means_noise(
    *, scale: float, rows: float, constant: float, about: Array, known: OneWayLaw | None = None
) -> Array:
    """S, the covariance of the noise of means, shape (d, d).

    (s/N)^2 (I + m m'/c^2) for the measured features, s the noise of their sums over N rows and the
    second part the error of a noisy N (docs/method.md section 14); beside it the noise of the
    marginals that are known. For m the noisy means themselves would be the wrong choice: they hold
    the noise, whose length may be that of the means, and the direction in which it lies would pass
    for ill-known.

    Args:
        scale: s.
        rows: N.
        constant: c by which a row counts; 0 where N is public.
        about: m, public means near the true ones, shape (d,): of the measured features, and after
            them of the known marginals.
        known: which marginals are known, and how well.
    """
    measured = about.size - (0 if known is None else known.dimension)
    means = about[:measured]
    covariance = (scale / rows) ** 2 * np.eye(measured)
    if constant:
        covariance += (scale / rows / constant) ** 2 * np.outer(means, means)
    if known is None:
        return covariance
    return block_diagonal(covariance, known.covariance(about[measured:], rows))
