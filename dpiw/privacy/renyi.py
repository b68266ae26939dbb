"""The Renyi privacy filter: its orders, their budgets, and what a sum of vectors is worth.

Reservations carry one upper bound of the Renyi divergence per order. A request is granted if after
it at least one order is within its budget B(order), the largest Renyi epsilon that converts to
(epsilon, delta / number of orders) of the population's lifetime budget.

Why this is (epsilon, delta)-DP although every request may depend on all earlier outputs:

1. *One order* a. Stop the interaction before the first draw that would take the sum beyond B(a).
   Its Renyi divergence is at most B(a) in both directions (Feldman & Zrnic 2021), so it is
   (epsilon, delta/K)-DP (Canonne, Kamath & Steinke 2020, proposition 12), K the number of orders.
2. *All orders.* A transcript determines all sums and ends with some order within its budget. Sums
   only grow, so that order's stopped interaction gives it with the same probability. Split the
   transcripts by their first such order, D_1, ..., D_K. For any event S and neighbours P, Q:
   P(S) = sum P_a(S and D_a) <= sum (e^epsilon Q_a(S and D_a) + delta/K) <= e^epsilon Q(S) + delta.

Step 2 needs some order within its budget at *every draw*, and a recovery or a conflicting output
may take the sums beyond all, so the filter is asked again at every arm. A reservation given back
before any draw may be left out of the sums; lost and conflicting draws stay in. Arithmetic is in
decimals of 60 digits, the same on every machine, rounded against ourselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache
from typing import Any

from dpiw.errors import SpecError
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT

RULE = "renyi-1"
"""Name of the frozen list of orders; another list is another rule."""

ORDERS: tuple[Decimal, ...] = (
    Decimal("1.5"),
    *map(Decimal, (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 128, 256, 512)),
)

BEYOND = 10**16
"""Entry at an order that nothing can pay (Renyi epsilon 10,000); every B(order) is below."""

_SLACK = Decimal("1e-20")
"""In units: far above the error of 60-digit arithmetic, far below a unit."""


@contextmanager
def exactly() -> Iterator[None]:
    """Decimal arithmetic of 60 digits and unbounded exponents."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, MAX_EMAX, MIN_EMIN
        yield


def units_up(epsilon: Decimal) -> int:
    """Return a Renyi epsilon in units of 1e-12, rounded up; at most `BEYOND`."""
    with exactly():
        if epsilon >= BEYOND * EPSILON_UNIT:
            return BEYOND
        units = (epsilon / EPSILON_UNIT + _SLACK).to_integral_value(rounding=ROUND_CEILING)
        return min(int(units), BEYOND)


@dataclass(frozen=True, kw_only=True)
class RenyiVector:
    """Renyi epsilons at the rule's orders, in units of 1e-12; SpecError for other numbers.

    Attributes:
        units: one whole number >= 0 per order of `ORDERS`; one draw adds at most `BEYOND`.
        lost_delta: lifetime delta taken by stated losses, in units of 1e-18; priced in `units`.
    """

    units: tuple[int, ...]
    lost_delta: int = 0

    def __post_init__(self) -> None:
        if len(self.units) != len(ORDERS):
            raise SpecError(field="renyi", allowed=f"{len(ORDERS)} whole numbers under rule {RULE}")
        if any(type(number) is not int or number < 0 for number in (*self.units, self.lost_delta)):
            raise SpecError(field="renyi", allowed="whole numbers >= 0")

    @classmethod
    def nothing(cls) -> RenyiVector:
        """No spending at any order."""
        return cls(units=(0,) * len(ORDERS))

    def plus(self, other: RenyiVector, *, times: int = 1) -> RenyiVector:
        """Add `times` the other, order by order."""
        return self.combined(other, lambda ours, theirs: ours + times * theirs)

    def combined(self, other: RenyiVector, how: Callable[[int, int], int]) -> RenyiVector:
        """Return the vector whose parts are `how(ours, theirs)`."""
        pairs = zip(self.units, other.units, strict=True)
        units = tuple(how(ours, theirs) for ours, theirs in pairs)
        return RenyiVector(units=units, lost_delta=how(self.lost_delta, other.lost_delta))

    def to_payload(self) -> dict[str, Any]:
        """Return the ledger's and certificate's form; `lost_delta_units` only if positive."""
        payload: dict[str, Any] = {"rule": RULE, "units": list(self.units)}
        return payload | ({"lost_delta_units": self.lost_delta} if self.lost_delta else {})

    @classmethod
    def from_payload(cls, stated: Mapping[str, Any]) -> RenyiVector:
        """Read `to_payload`'s form; raise SpecError otherwise."""
        try:
            units, lost = tuple(stated["units"]), stated.get("lost_delta_units", 0)
            vector = cls(units=units, lost_delta=lost)
        except (KeyError, TypeError, AttributeError):
            raise SpecError(field="renyi", allowed="a rule and a list of whole numbers") from None
        if vector.to_payload() != dict(stated):
            raise SpecError(field="renyi", allowed=f"rule {RULE}, its units and nothing else")
        return vector


def order_budgets(epsilon_units: int, delta_units: int) -> tuple[int, ...]:
    """Return B at each order, rounded down, < `BEYOND`; SpecError if all are 0."""
    with exactly():
        exact = (epsilon_units - shift - _SLACK for shift in _shifts(delta_units))
        whole = (int(value.to_integral_value(ROUND_FLOOR)) for value in exact)
        most = tuple(min(max(0, units), BEYOND - 1) for units in whole)
    if not any(most):
        found = "too small for its delta with composition renyi"
        allowed = "a larger epsilon or delta, or composition basic"
        raise SpecError(found, field="population.epsilon", allowed=allowed)
    return most


def within(spent: RenyiVector, budgets: Sequence[int]) -> bool:
    """The filter: whether at least one order is within its budget."""
    return any(cost <= budget for cost, budget in zip(spent.units, budgets, strict=True))


def converted_units(spent: RenyiVector, delta_units: int) -> int:
    """Return the epsilon of `spent` in units, rounded up; <= lifetime exactly if `within`."""
    if not any(spent.units):
        return 0
    with exactly():
        best = min(
            cost + (shift if cost < BEYOND else max(shift, Decimal(0)))
            for cost, shift in zip(spent.units, _shifts(delta_units), strict=True)
        )
        return max(0, int((best + _SLACK).to_integral_value(rounding=ROUND_CEILING)))


@lru_cache(maxsize=64)
def _shifts(delta_units: int) -> tuple[Decimal, ...]:
    """Per order, in units: epsilon = Renyi epsilon + shift, at delta / number of orders.

    Source: Canonne, Kamath & Steinke (2020), proposition 12.
    """
    if delta_units <= 0:
        allowed = "more than 0 with composition renyi, or composition basic"
        raise SpecError("found 0", field="population.delta", allowed=allowed)
    with exactly():
        share = delta_units * DELTA_UNIT / len(ORDERS)
        return tuple(
            (((a - 1) / a).ln() - (share.ln() + a.ln()) / (a - 1)) / EPSILON_UNIT for a in ORDERS
        )


def loss_vector(epsilon_units: int, delta_units: int, *, delta_left_units: int) -> RenyiVector:
    """Return what a stated (epsilon, delta) loss takes from a Renyi filter.

    The draw is epsilon-DP, divergence min(epsilon, a epsilon^2 / 2) (Bun & Steinke 2016, 3.3),
    except for an event of probability delta (Kairouz, Oh & Viswanath 2015), taken from the lifetime
    delta: leaving D' of D lowers every B(a) by log(D/D') / (a-1), which is added here. Units: 1e-12
    for epsilon, 1e-18 for the loss's delta and the delta that earlier losses left.
    """
    remaining = delta_left_units - delta_units
    if remaining <= 0:
        return RenyiVector(units=(BEYOND,) * len(ORDERS), lost_delta=delta_units)
    if not (epsilon_units or delta_units):
        return RenyiVector.nothing()
    with exactly():
        epsilon = epsilon_units * EPSILON_UNIT
        fall = (Decimal(delta_left_units) / remaining).ln()
        exact = (min(epsilon, a * epsilon**2 / 2) + fall / (a - 1) for a in ORDERS)
        units = tuple(map(units_up, exact))
    return RenyiVector(units=units, lost_delta=delta_units)
