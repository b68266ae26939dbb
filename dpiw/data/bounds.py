"""Public bounds of a numeric column, its decimals and its cuts: whether they can be meant."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpiw.data.columns import Column

MAX_INTEGER_RANGE = 2**53
"""Widest integer range whose every value survives [0, 1] doubles exactly."""

MOST_DIGITS = 14
"""Of a continuous column's values that doubles keep."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

Fault = tuple[str, str]
"""A field, and what is wrong with it."""


def digits(magnitude: float) -> int:
    """Digits before the decimal mark of a number > 0."""
    return math.ceil(math.log10(magnitude))


def bounds_fault(column: Column) -> Fault | None:
    """What is wrong with a numeric column's bounds, decimals, cuts or bins, or None.

    Raises:
        SchemaError: a bound or a cut is no value of the column's kind.
    """
    if column.lower is None or column.upper is None:
        return "lower/upper", "public bounds are required and never inferred"
    low, high = column.number(column.lower), column.number(column.upper)
    if not (abs(low) < math.inf and abs(high) < math.inf):  # NaN compares false
        return "lower/upper", "bounds must be finite"
    if low >= high:
        return "lower/upper", "expected lower < upper"
    fault = None
    if column.kind.value == "integer":
        fault = _integer_fault(low, high)
    elif column.kind.value == "continuous":
        fault = _resolution_fault(low, high, column.decimals)
    return fault or _cuts_fault(column)


def _integer_fault(low: float | int, high: float | int) -> Fault | None:
    if not (isinstance(low, int) and isinstance(high, int)):
        return "lower/upper", "expected whole numbers"
    if low < _INT64_MIN or high > _INT64_MAX or high - low > MAX_INTEGER_RANGE:
        return "lower/upper", "expected 64-bit bounds at most 2^53 apart"
    return None


def _resolution_fault(low: float, high: float, decimals: object) -> Fault | None:
    largest = max(abs(low), abs(high))
    if largest > 1e200 or high - low < max(1e-200, largest * 2.0**-32):
        return "lower/upper", "bounds too far apart, or too close, for doubles"
    if decimals is None:
        return None
    most = min(12, MOST_DIGITS - digits(largest))
    if not isinstance(decimals, int) or isinstance(decimals, bool) or not 0 <= decimals <= most:
        return "decimals", f"expected a whole number from 0 to {most}"
    if round(low, decimals) != low or round(high, decimals) != high:
        return "decimals", "the bounds have more decimals than that"
    return None


def _cuts_fault(column: Column) -> Fault | None:
    edges = [column.number(edge) for edge in (column.lower, *column.cuts, column.upper)]
    if not all(before < after for before, after in itertools.pairwise(edges)):
        return "cuts", "expected increasing values strictly between the bounds"
    if column.bins is None:
        return None
    if isinstance(column.bins, bool) or not isinstance(column.bins, int) or column.bins < 1:
        return "bins", "expected a whole number >= 1"
    if column.cuts:
        return "bins", "give cuts or bins, not both"
    return None
