"""Checks of the numbers a curator writes in a spec; decimals and floats are both fine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

from dpiw.errors import SpecError


def real(name: str, value: object, *, above: float, at_most: float) -> float:
    """`value` as a float in (above, at_most], or SpecError."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise SpecError(f"weights.settings.{name}: expected a number")
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = math.inf if value > 0 else -math.inf
    if not above < number <= at_most:
        raise SpecError(
            f"weights.settings.{name}={number:g}: expected above {above:g}, at most {at_most:g}"
        )
    return number


def whole(name: str, value: object, *, low: int, high: int) -> int:
    """`value` as a whole number in [low, high], or SpecError."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpecError(f"weights.settings.{name}: expected a whole number from {low} to {high}")
    return value


def shares_of_parts(given: object) -> dict[str, float]:
    """Shares of a stack's norm by part, or SpecError."""
    if not isinstance(given, Mapping) or not given:
        raise SpecError("weights.settings.features: expected shares of the norm by part")
    return {
        str(part): real(f"features.{part}", share, above=1e-4, at_most=100)
        for part, share in given.items()
    }


def frequency_scales(given: object) -> tuple[float, ...]:
    """A few scales > 0, or SpecError."""
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= 8:
        raise SpecError("weights.settings.scales: expected a list of 1 to 8 numbers")
    return tuple(real("scales", scale, above=0, at_most=1e3) for scale in given)
