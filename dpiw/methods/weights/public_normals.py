"""Normal numbers that follow from a public integer: of features, never of noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def public_normals(seed: int, size: int, *, stream: int = 0) -> NDArray[np.float64]:
    """Standard normals, shape (size,).

    By Box and Muller on raw words of Philox, whose stream NumPy never changes.

    Args:
        seed: public, in [0, 2^64).
        size: how many.
        stream: another one of the same seed, in [0, 2^64).
    """
    words = np.random.Philox(key=seed + (stream << 64)).random_raw(2 * size)
    uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:size]))
    return np.asarray(radius * np.cos(2 * np.pi * uniform[size:]))
