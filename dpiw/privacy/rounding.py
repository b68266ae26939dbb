"""Exact numbers as floats, with a stated direction.

`float(x)` is the nearest float, so it exceeds every other decimal by up to one part in 10^16: the
float of 1e-5 is above 1e-5. A promise of delta = 1e-5 is met with the float below it.
"""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction

Exact = Decimal | Fraction | int


def float_below(value: Exact) -> float:
    """The largest float that is not above `value`: for a target, or a delta to account at.

    Proof: the nearest float is `value`'s neighbour on one side. The comparison is of two exact
    fractions. If it is above, then no float lies between it and `value`, so the float before it is
    the largest one not above.

    Raises:
        ValueError: `value` is not finite, or below every finite float.
    """
    exact = _fraction(value)
    if exact > Fraction(sys.float_info.max):
        return sys.float_info.max
    if exact < Fraction(-sys.float_info.max):
        raise ValueError("expected a number that is not below every float")
    nearest = float(exact)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > exact else nearest


def float_above(value: Exact) -> float:
    """The smallest float that is not below `value`; see `float_below`."""
    return -float_below(-_fraction(value))


def _fraction(value: Exact) -> Fraction:
    try:
        return Fraction(value)
    except OverflowError:  # an infinity
        raise ValueError("expected a finite number") from None
