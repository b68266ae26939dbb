"""Charges: what a draw costs, as (epsilon, delta) and, under the Renyi filter, as a vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpiw.errors import SpecError
from dpiw.privacy.renyi import RenyiVector
from dpiw.privacy.units import NeighbouringRelation, PrivacyCost


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A cost, and its Renyi vector in a population registered with `renyi` (else None)."""

    cost: PrivacyCost
    renyi: RenyiVector | None = None

    @classmethod
    def nothing(cls, relation: NeighbouringRelation, *, renyi: bool) -> Charge:
        """Zero, with or without a vector."""
        return cls(
            cost=PrivacyCost(epsilon_units=0, delta_units=0, relation=relation),
            renyi=RenyiVector.nothing() if renyi else None,
        )

    def plus(self, other: Charge, *, times: int = 1) -> Charge:
        """This plus `times` the other (-1: less the other, which must be part of it)."""
        if (self.renyi is None) != (other.renyi is None):
            raise SpecError("renyi: vectors are summed with vectors only")
        return Charge(
            cost=PrivacyCost(
                epsilon_units=self.cost.epsilon_units + times * other.cost.epsilon_units,
                delta_units=self.cost.delta_units + times * other.cost.delta_units,
                relation=self.cost.relation,
            ),
            renyi=self.renyi.plus(other.renyi, times=times)
            if self.renyi is not None and other.renyi is not None
            else None,
        )

    def beyond(self, other: Charge) -> Charge:
        """How much this exceeds the other, part by part; nowhere below zero."""
        return Charge(
            cost=PrivacyCost(
                epsilon_units=max(0, self.cost.epsilon_units - other.cost.epsilon_units),
                delta_units=max(0, self.cost.delta_units - other.cost.delta_units),
                relation=self.cost.relation,
            ),
            renyi=self.renyi.beyond(other.renyi)
            if self.renyi is not None and other.renyi is not None
            else None,
        )

    @property
    def free(self) -> bool:
        """Whether it charges nothing."""
        vector = self.renyi.units if self.renyi is not None else ()
        return not any((self.cost.epsilon_units, self.cost.delta_units, *vector))

    def to_payload(self) -> dict[str, Any]:
        """Return the charge as an entry states it; a basic charge has no `renyi` field."""
        payload: dict[str, Any] = {
            "epsilon_units": self.cost.epsilon_units,
            "delta_units": self.cost.delta_units,
        }
        if self.renyi is not None:
            payload["renyi"] = self.renyi.to_payload()
        return payload

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], relation: NeighbouringRelation) -> Charge:
        """The inverse of `to_payload`. Raises SpecError if not in whole units."""
        epsilon, delta = payload["epsilon_units"], payload["delta_units"]
        if type(epsilon) is not int or type(delta) is not int:
            raise SpecError("cost: expected whole units")
        vector = payload.get("renyi")
        return cls(
            cost=PrivacyCost(epsilon_units=epsilon, delta_units=delta, relation=relation),
            renyi=None if vector is None else RenyiVector.from_payload(vector),
        )
