"""Plain values of differential privacy: relation, unit, noise law, budgets and costs.

Budgets and costs are whole numbers of small units, rounded against ourselves: no sum rounds.
"""

from __future__ import annotations

import enum
import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import ClassVar, Self

from dpiw.errors import SpecError, UnsupportedRelationError, setting_error

EPSILON_UNIT = Decimal("1e-12")
"""One unit of `PrivacyCost.epsilon_units`."""

DELTA_UNIT = Decimal("1e-18")
"""One unit of `PrivacyCost.delta_units`."""


class NeighbouringRelation(enum.Enum):
    """Which two tables a guarantee cannot tell apart.

    Under `ADD_OR_REMOVE_ONE` the number of rows is private and every formula uses a public nominal
    size. Under `REPLACE_ONE` the number of rows is public by definition.
    """

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"


@dataclass(frozen=True, kw_only=True)
class PrivacyUnit:
    """Contribution of one person: at most `max_rows` rows, grouped by `id_column`.

    Attributes:
        relation: the neighbouring relation of every cost stated for this unit.
        max_rows: rows one unit may hold; it multiplies every sensitivity.
        id_column: the identifier column by which rows are bounded; None: each row is a unit.
    """

    relation: NeighbouringRelation
    max_rows: int = 1
    id_column: str | None = None

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise setting_error(self, "unit.max_rows", "a whole number >= 1")
        if self.max_rows > 1 and self.id_column is None:
            found = f"needed for unit.max_rows={self.max_rows}: the column that identifies a person"
            raise SpecError(found, field="unit.id_column")


def rows_caveat(max_rows: int) -> str:
    """Return the caveat that counts are of rows; empty where a row is a person."""
    if max_rows == 1:
        return ""
    return (
        "Every number is of rows, not of people: a person has up to"
        f" {max_rows} rows and counts once for each."
    )


class NoiseKind(enum.Enum):
    """The noise laws of docs/method.md section 4."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    SPHERICAL = "spherical"


@dataclass(frozen=True, kw_only=True)
class NoiseLaw:
    """The public law of the noise in a released vector; scale in the vector's units, 0: no noise.

    `gaussian`: N(0, scale^2 I). `laplace`: independent Laplace(scale). `spherical`: density
    proportional to exp(-norm(z)/scale).
    """

    kind: NoiseKind
    scale: float
    dimension: int


def _units(value: Decimal, unit: Decimal, rounding: str) -> int:
    with localcontext() as context:
        # The quotient of more than 60 digits is rounded, too, and in the same direction.
        context.prec, context.rounding = 60, rounding
        return int((value / unit).to_integral_value(rounding=rounding))


def decimal_text(units: int, unit: Decimal) -> str:
    """Return the exact decimal of `units * unit`, without trailing zeros: `1.2`, `1E-6`, `0`."""
    with localcontext() as context:
        context.prec = 60
        value = (units * unit).normalize()
    return f"{value:f}" if value == 0 or abs(value) >= Decimal("1e-4") else f"{value:E}"


@dataclass(frozen=True, kw_only=True)
class _Amount:
    epsilon_units: int
    delta_units: int
    relation: NeighbouringRelation

    rounding: ClassVar[str]
    """Against ourselves: costs up, budgets down."""

    @classmethod
    def of(
        cls, epsilon: Decimal | float, delta: Decimal | float, relation: NeighbouringRelation
    ) -> Self:
        """Return the amount in units, rounded as `rounding` says."""
        return cls(
            epsilon_units=_units(Decimal(epsilon), EPSILON_UNIT, cls.rounding),
            delta_units=_units(Decimal(delta), DELTA_UNIT, cls.rounding),
            relation=relation,
        )

    def __post_init__(self) -> None:
        if self.epsilon_units < 0 or self.delta_units < 0:
            raise SpecError(field="privacy cost or budget", allowed="epsilon >= 0 and delta >= 0")

    @property
    def epsilon(self) -> float:
        """Epsilon as the nearest float; sums and comparisons use the units."""
        return float(self.epsilon_units * EPSILON_UNIT)

    @property
    def delta(self) -> float:
        """Delta as the nearest float; sums and comparisons use the units."""
        return float(self.delta_units * DELTA_UNIT)

    def combined(self, other: _Amount, how: Callable[[int, int], int]) -> Self:
        """Return the amount whose parts are `how(ours, theirs)`, under this relation."""
        return replace(
            self,
            epsilon_units=how(self.epsilon_units, other.epsilon_units),
            delta_units=how(self.delta_units, other.delta_units),
        )

    def __str__(self) -> str:
        epsilon = decimal_text(self.epsilon_units, EPSILON_UNIT)
        return f"epsilon={epsilon}, delta={decimal_text(self.delta_units, DELTA_UNIT)}"


@dataclass(frozen=True, kw_only=True)
class PrivacyCost(_Amount):
    """An amount spent or to be spent; never stated below what it is."""

    rounding: ClassVar[str] = ROUND_CEILING

    def __add__(self, other: PrivacyCost) -> PrivacyCost:
        if self.relation is not other.relation:
            raise UnsupportedRelationError(
                f"costs under {self.relation.value} and {other.relation.value} cannot be added"
            )
        return self.combined(other, operator.add)


@dataclass(frozen=True, kw_only=True)
class PrivacyBudget(_Amount):
    """An amount that may be spent; never read as more than was written."""

    rounding: ClassVar[str] = ROUND_FLOOR

    def covers(self, cost: PrivacyCost) -> bool:
        """Whether `cost` fits; costs under another relation are refused."""
        if self.relation is not cost.relation:
            raise UnsupportedRelationError(
                f"a budget under {self.relation.value} cannot pay a cost under"
                f" {cost.relation.value}"
            )
        return cost.epsilon_units <= self.epsilon_units and cost.delta_units <= self.delta_units

    def minus(self, cost: PrivacyCost) -> PrivacyBudget:
        """Return what is left after `cost`; never below zero in either part."""
        self.covers(cost)
        return self.combined(cost, lambda ours, theirs: max(0, ours - theirs))


# Floats with a stated direction

Exact = Decimal | Fraction | int


def float_below(value: Exact) -> float:
    """Return the largest float not above `value`: for a target, or a delta to account at.

    The nearest float may be above (1e-5); then the float before it is the largest one not above.
    Raises ValueError if `value` is not finite, or below every finite float.
    """
    exact = _fraction(value)
    if exact > Fraction(sys.float_info.max):
        return sys.float_info.max
    if exact < Fraction(-sys.float_info.max):
        raise ValueError("expected a number that is not below every float")
    nearest = float(exact)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > exact else nearest


def float_above(value: Exact) -> float:
    """Return the smallest float not below `value`; see `float_below`."""
    return -float_below(-_fraction(value))


def _fraction(value: Exact) -> Fraction:
    try:
        return Fraction(value)
    except OverflowError:  # an infinity
        raise ValueError("expected a finite number") from None
