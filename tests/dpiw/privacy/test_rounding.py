"""Decimals as floats that are never on the wrong side."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpiw.privacy.units import float_above, float_below

EXACT = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False),
    st.fractions(),
    st.integers(),
    st.builds(lambda digits, places: Decimal(digits).scaleb(-places), st.integers(1, 10**20),
              st.integers(0, 400)),
)  # fmt: skip


@example(Decimal("1e-5"))  # its nearest float is above it
@example(Decimal("1e-6"))  # below it
@example(Decimal("1e-400"))
@example(Decimal("1e400"))
@example(Decimal(0))
@given(EXACT)
def test_the_float_below_is_the_largest_one_not_above(value):
    if Fraction(value) < -Fraction(math.nextafter(math.inf, 0)):
        with pytest.raises(ValueError, match="below every float"):
            float_below(value)
        return
    found = float_below(value)
    assert Fraction(found) <= Fraction(value)
    after = math.nextafter(found, math.inf)
    assert math.isinf(after) or Fraction(after) > Fraction(value)
    if Fraction(value) >= 0:
        assert found >= 0
        assert math.isfinite(found)


@example(Decimal("1e-6"))
@given(EXACT)
def test_the_float_above_mirrors_it(value):
    if Fraction(value) > Fraction(math.nextafter(math.inf, 0)):
        return
    found = float_above(value)
    assert found == -float_below(-Fraction(value))
    assert Fraction(found) >= Fraction(value)


def test_the_nearest_float_would_not_do():
    """The control: every second decimal's nearest float is above it."""
    for text in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(ValueError, match=r"NaN|finite"):
            float_below(Decimal(text))
    decimals = [Decimal(n) / 1000 for n in range(1, 1000)]
    above = sum(Fraction(float(value)) > Fraction(value) for value in decimals)
    assert above > 300
    assert all(Fraction(float_below(value)) <= Fraction(value) for value in decimals)
