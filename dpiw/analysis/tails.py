"""The chi-square law's tail, without SciPy."""

from __future__ import annotations

import math


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Probability that a chi-square variable is larger than `statistic`, in closed form.

    Q(k/2, x/2) from Q(1/2, y) = erfc(sqrt(y)) or Q(1, y) = exp(-y) by
    Q(a + 1, y) = Q(a, y) + y^a exp(-y) / Gamma(a + 1) (DLMF 8.8.6).

    Args:
        statistic: >= 0.
        degrees: >= 1.
    """
    y, a = statistic / 2, 1.0 if degrees % 2 == 0 else 0.5
    tail = math.exp(-y) if degrees % 2 == 0 else math.erfc(math.sqrt(y))
    while a < degrees / 2:
        tail += math.exp(a * math.log(y) - y - math.lgamma(a + 1)) if y > 0 else 0.0
        a += 1
    return min(tail, 1.0)
