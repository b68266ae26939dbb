"""Amounts in whole units, and how an entry's payload states them; by the audit's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from dpiw.privacy.renyi import ORDERS

Fields = Mapping[str, Any]


class IllegalError(Exception):
    """An entry that is not legal at its place."""


@dataclass(frozen=True, kw_only=True)
class Units:
    """An (epsilon, delta) in whole units of 1e-12 and 1e-18.

    `renyi`: units of 1e-12 per order. `lost_delta`: what stated losses took of the lifetime delta.
    """

    epsilon: int = 0
    delta: int = 0
    renyi: tuple[int, ...] = ()
    lost_delta: int = 0

    def times(self, count: int) -> Units:
        """This amount times `count`."""
        return Units(
            epsilon=self.epsilon * count,
            delta=self.delta * count,
            renyi=tuple(loss * count for loss in self.renyi),
            lost_delta=self.lost_delta * count,
        )

    def plus(self, other: Units) -> Units:
        """The sum; a missing vector counts as zero."""
        pairs = zip_longest(self.renyi, other.renyi, fillvalue=0)
        return Units(
            epsilon=self.epsilon + other.epsilon,
            delta=self.delta + other.delta,
            renyi=tuple(left + right for left, right in pairs),
            lost_delta=self.lost_delta + other.lost_delta,
        )

    def beyond(self, other: Units) -> Units:
        """How much each part exceeds the other's; nowhere below zero."""
        pairs = zip_longest(self.renyi, other.renyi, fillvalue=0)
        return Units(
            epsilon=max(0, self.epsilon - other.epsilon),
            delta=max(0, self.delta - other.delta),
            renyi=tuple(max(0, left - right) for left, right in pairs),
            lost_delta=max(0, self.lost_delta - other.lost_delta),
        )

    def covers(self, other: Units) -> bool:
        """Whether no part is smaller than the other's."""
        pairs = zip_longest(self.renyi, other.renyi, fillvalue=0)
        return (
            self.epsilon >= other.epsilon
            and self.delta >= other.delta
            and self.lost_delta >= other.lost_delta
            and all(left >= right for left, right in pairs)
        )

    @property
    def amount(self) -> Units:
        """Epsilon and delta alone."""
        return Units(epsilon=self.epsilon, delta=self.delta)


def units(payload: Fields) -> Units:
    """What a payload charges, as written."""
    epsilon, delta = payload["epsilon_units"], payload["delta_units"]
    renyi = tuple(payload.get("renyi", {}).get("units", ()))
    lost = payload.get("renyi", {}).get("lost_delta_units", 0)
    if any(type(amount) is not int or amount < 0 for amount in (epsilon, delta, lost, *renyi)):
        raise IllegalError("its cost is not in whole units >= 0")
    return Units(epsilon=epsilon, delta=delta, renyi=renyi, lost_delta=lost)


def cost_of(payload: Fields, *, composition: str) -> Units:
    """What an entry charges, in the form that a population's rule adds up."""
    cost = units(payload)
    if len(cost.renyi) != (len(ORDERS) if composition == "renyi" else 0):
        raise IllegalError(f"its cost is not one that {composition} composition adds")
    return cost
