"""Populations: the people a lifetime budget protects, and the terms that are fixed for ever."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpiw.errors import SpecError
from dpiw.ledger.entries import check_count, check_label, check_name
from dpiw.privacy.renyi import BEYOND, ORDERS, RULE, order_budgets
from dpiw.privacy.units import (
    DELTA_UNIT,
    EPSILON_UNIT,
    NeighbouringRelation,
    PrivacyBudget,
    PrivacyUnit,
)

# Sums must stay inside SQL's 64-bit integers; epsilon 1,000,000 is far beyond any sane budget.
LARGEST_EPSILON = Decimal("1e6")


MAX_UNPAID_READS = 20
"""Default lifetime limit on reads of a population's tables without a draw."""


class CompositionRule(enum.Enum):
    """How the costs of a population's runs add up; both rules are privacy filters.

    `BASIC`: sums of epsilons and deltas (Rogers et al. 2016, section 3). `RENYI`: sums of Renyi
    divergences at fixed orders (`dpiw.privacy.renyi`); admits many more small releases.
    """

    BASIC = "basic"
    RENYI = "renyi"


def _positive_decimal(name: str, value: Decimal, below: Decimal) -> None:
    # Floats are refused: 0.1 is not the decimal the custodian signed.
    if not isinstance(value, Decimal) or not value.is_finite() or not 0 <= value < below:
        raise SpecError(f"population.{name}: expected a decimal >= 0 and below {below}")


def column_label(name: str) -> str:
    """A column's name as an entry may hold it: a short label, else `sha256:` and its digest."""
    if not isinstance(name, str) or not name:
        raise SpecError("population.id_column: expected a column's name")
    with contextlib.suppress(SpecError):
        return check_label("population.id_column", name)
    return f"sha256:{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"


def told_column(label: str) -> str:
    """A `column_label` with an explanation of digests, for people."""
    if not re.fullmatch("sha256:[0-9a-f]{64}", label):
        return label
    return f"{label} (SHA-256 of the column's name: a ledger holds short labels, and no free text)"


@dataclass(frozen=True, kw_only=True)
class Population:
    """The people a lifetime budget protects, and the terms fixed when they were registered.

    The budget belongs to the population: no new file name or spec resets it. Raises SpecError for a
    field outside these limits.

    Attributes:
        name: matches `^[a-z0-9][a-z0-9_-]{0,62}$`.
        relation: the only neighbouring relation its costs may be stated under.
        max_rows: rows one privacy unit may hold, >= 1.
        epsilon, delta: lifetime budget, exact decimals; kept in whole units, rounded down.
        id_column: the column whose value names one unit, as `column_label`; None: each row is a
            unit. Costs of different units are never summed.
        max_unpaid_reads: reads of its tables that may end without a draw, for life
            (docs/privacy.md, section 6).
    """

    name: str
    relation: NeighbouringRelation
    max_rows: int
    epsilon: Decimal
    delta: Decimal
    composition: CompositionRule = CompositionRule.BASIC
    id_column: str | None = None
    max_unpaid_reads: int = MAX_UNPAID_READS

    def __post_init__(self) -> None:
        check_name("population.name", self.name)
        check_count("population.max_rows", self.max_rows)
        check_count("population.max_unpaid_reads", self.max_unpaid_reads)
        if not isinstance(self.relation, NeighbouringRelation):
            raise SpecError("population.relation: expected a NeighbouringRelation")
        if self.id_column is not None:
            object.__setattr__(self, "id_column", column_label(self.id_column))
        elif self.max_rows > 1:
            raise SpecError("population.id_column: needed when max_rows > 1")
        if not isinstance(self.composition, CompositionRule):
            raise SpecError("population.composition: expected basic or renyi")
        _positive_decimal("epsilon", self.epsilon, LARGEST_EPSILON)
        _positive_decimal("delta", self.delta, Decimal(1))
        if self.budget.epsilon_units == 0:
            raise SpecError(f"population.epsilon: expected at least {EPSILON_UNIT}")
        if self.renyi:
            _positive_decimal("epsilon", self.epsilon, BEYOND * EPSILON_UNIT)
            order_budgets(self.budget.epsilon_units, self.budget.delta_units)

    @property
    def budget(self) -> PrivacyBudget:
        """The lifetime budget in whole units, rounded down."""
        return PrivacyBudget.of(self.epsilon, self.delta, self.relation)

    def protects(self, unit: PrivacyUnit) -> bool:
        """Whether this is the registered privacy unit."""
        column = None if unit.id_column is None else column_label(unit.id_column)
        return (unit.relation, unit.max_rows, column) == (
            self.relation,
            self.max_rows,
            self.id_column,
        )

    def differing(self, other: Population) -> str:
        """Names of the terms that differ."""
        ours, theirs = self.to_payload(), other.to_payload()
        names = sorted(n for n in ours | theirs if ours.get(n) != theirs.get(n))
        return ", ".join(name.removesuffix("_units") for name in names)

    @property
    def renyi(self) -> bool:
        """Whether its costs add up as Renyi vectors."""
        return self.composition is CompositionRule.RENYI

    def to_payload(self) -> dict[str, Any]:
        """The terms as a registering entry holds them; under `renyi` with rule and orders."""
        terms: dict[str, Any] = {
            "relation": self.relation.value,
            "max_rows": self.max_rows,
            "id_column": self.id_column,
            "epsilon_units": self.budget.epsilon_units,
            "delta_units": self.budget.delta_units,
            "composition": self.composition.value,
            "max_unpaid_reads": self.max_unpaid_reads,
        }
        if self.renyi:
            terms["renyi"] = {
                "rule": RULE,
                "orders": [str(order) for order in ORDERS],
                "budget_units": list(
                    order_budgets(self.budget.epsilon_units, self.budget.delta_units)
                ),
            }
        return terms

    @classmethod
    def from_payload(cls, name: str, payload: Mapping[str, Any]) -> Population:
        """The inverse of `to_payload`; SpecError if orders or their budgets are not the rule's."""
        population = cls(
            name=name,
            relation=NeighbouringRelation(payload["relation"]),
            max_rows=payload["max_rows"],
            epsilon=payload["epsilon_units"] * EPSILON_UNIT,
            delta=payload["delta_units"] * DELTA_UNIT,
            composition=CompositionRule(payload["composition"]),
            id_column=payload["id_column"],
            max_unpaid_reads=payload["max_unpaid_reads"],
        )
        if dict(payload) != population.to_payload():
            raise SpecError(f"population: not the terms of its registration, or not of rule {RULE}")
        return population
