"""The account of one population: what is held against its lifetime budget, and what still fits."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from dpiw.errors import (
    BudgetExceededError,
    Command,
    Next,
    SpecError,
    UnsupportedRelationError,
    setting_error,
)
from dpiw.ledger.entries import check_count, check_label, check_name
from dpiw.ledger.values import Charge, RunRecord
from dpiw.privacy.renyi import BEYOND, ORDERS, RULE, converted_units, order_budgets, within
from dpiw.privacy.units import (
    DELTA_UNIT,
    EPSILON_UNIT,
    NeighbouringRelation,
    PrivacyBudget,
    PrivacyCost,
    PrivacyUnit,
    decimal_text,
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
        allowed = f"an exact decimal (in Python Decimal('0.5'), no float) from 0 to below {below:f}"
        raise SpecError(f"found {value!s:.40}", field=f"population.{name}", allowed=allowed)


def column_label(name: str) -> str:
    """A column's name as an entry may hold it: a short label, else `sha256:` and its digest."""
    if not isinstance(name, str) or not name:
        raise SpecError(field="population.id_column", allowed="a column's name, not empty")
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
            raise setting_error(self, "population.relation", "a member of NeighbouringRelation")
        if self.id_column is not None:
            object.__setattr__(self, "id_column", column_label(self.id_column))
        elif self.max_rows > 1:
            allowed = "the column that identifies a person, because max_rows is above 1"
            raise SpecError(field="population.id_column", allowed=allowed)
        if not isinstance(self.composition, CompositionRule):
            raise setting_error(self, "population.composition", "a member of CompositionRule")
        _positive_decimal("epsilon", self.epsilon, LARGEST_EPSILON)
        _positive_decimal("delta", self.delta, Decimal(1))
        if self.budget.epsilon_units == 0:
            raise setting_error(self, "population.epsilon", f"at least {EPSILON_UNIT}")
        if self.renyi:
            _positive_decimal("epsilon", self.epsilon, BEYOND * EPSILON_UNIT)
            budgets(self)

    @property
    def budget(self) -> PrivacyBudget:
        """The lifetime budget in whole units, rounded down."""
        return PrivacyBudget.of(self.epsilon, self.delta, self.relation)

    def protects(self, unit: PrivacyUnit) -> bool:
        """Whether this is the registered privacy unit."""
        column = None if unit.id_column is None else column_label(unit.id_column)
        ours = (self.relation, self.max_rows, self.id_column)
        return (unit.relation, unit.max_rows, column) == ours

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
                "budget_units": list(budgets(self)),
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
            raise SpecError(
                f"its entry does not hold the terms that dpiw writes for this budget (rule {RULE}):"
                " somebody changed the entry, or another version of dpiw wrote it",
                field=f"population {name}",
            )
        return population


MOST_ADMITTED = 1_000_000
"""Largest number that `Account.admits` returns."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a population's runs and recoveries hold.

    Attributes:
        held: the sum of all charges; its cost is a plain sum under either rule.
        drawn: the irrevocable part: attempts with an armed stage, conflicts, recoveries.
        unpaid_reads: reads of its tables without a later committed draw. Their outcome can be seen
            and no epsilon pays for it, so they are limited for life.
    """

    population: Population
    held: Charge
    drawn: Charge
    unpaid_reads: int = 0

    @classmethod
    def opened(cls, population: Population) -> Account:
        """An account with nothing spent."""
        nothing = Charge.nothing(population.relation, renyi=population.renyi)
        return cls(population=population, held=nothing, drawn=nothing)

    def run_changed(self, before: RunRecord | None, after: RunRecord) -> Account:
        """The account with one run's charges replaced."""
        held, drawn = self.held.plus(after.held), self.drawn.plus(after.drawn_charge)
        unpaid = self.unpaid_reads + after.unpaid_reads
        if before is not None:
            unpaid -= before.unpaid_reads
            held = held.plus(before.held, times=-1)
            drawn = drawn.plus(before.drawn_charge, times=-1)
        return replace(self, held=held, drawn=drawn, unpaid_reads=unpaid)

    def plus(self, charge: Charge, *, reads: int = 0) -> Account:
        """The account with an irrevocable charge and unpaid reads added, such as a recovery's."""
        return replace(
            self,
            held=self.held.plus(charge),
            drawn=self.drawn.plus(charge),
            unpaid_reads=self.unpaid_reads + reads,
        )

    @property
    def spent(self) -> PrivacyCost:
        """The sum of charges; `renyi`: epsilon of the summed vectors at the lifetime delta."""
        return self._worth(self.held)

    @property
    def remaining(self) -> PrivacyBudget:
        """Lifetime budget less what is spent, never below zero.

        Under `renyi`, grants use no delta, and a release of more than this epsilon may still fit.
        """
        budget, spent = self.population.budget, self.spent
        remaining = budget.minus(spent)
        if self.population.renyi:
            return replace(remaining, delta_units=budget.delta_units)
        return remaining

    @property
    def overdrawn(self) -> bool:
        """Whether more than the lifetime budget is held, by a recovery or a conflict."""
        if self.held.renyi is None:
            return not self.population.budget.covers(self.held.cost)
        return not within(self.held.renyi, budgets(self.population))

    def check_readable(self, *, pending: int = 0) -> None:
        """Raise BudgetExceededError unless one more read (less `pending`) may stay unpaid."""
        name, limit = self.population.name, self.population.max_unpaid_reads
        if self.unpaid_reads - pending >= limit:
            raise BudgetExceededError(
                f"its tables were read {limit} times without a draw, and its registration allows"
                f" no more for life (max_unpaid_reads={limit}). Nothing was read, and no further"
                " run of this population can read; what was drawn can still be published",
                field=f"population {name}",
                requested="1 read",
                remaining="0 reads",
            )

    def check_drawable(self, charge: Charge) -> None:
        """Raise BudgetExceededError if overdrawn, also for earlier reservations.

        The guarantee needs the budget to cover all that is held whenever noise is drawn
        (`dpiw.privacy.renyi`).
        """
        if self.overdrawn:
            raise BudgetExceededError(
                f"its lifetime budget is {self.population.budget}, and {self.spent} is charged"
                " to it. Nothing more can be drawn, not even by a run that holds a reservation",
                field=f"population {self.population.name}",
                requested=str(charge.cost),
                remaining=str(self.remaining),
                next=[Next("who spent it", Command.SHOW)],
            )

    def admit(self, charge: Charge) -> None:
        """Raise BudgetExceededError unless `charge` may be added.

        Raises UnsupportedRelationError under another relation, SpecError if only one of charge and
        population has Renyi vectors, or if it is free.
        """
        population = self.population
        check_kind(population, charge)
        if charge.renyi is not None and charge.renyi.lost_delta:
            raise SpecError("found a lost delta, which only a recovery states", field="renyi")
        units = charge.renyi.units if charge.renyi is not None else (1,)
        if not all(0 < amount <= BEYOND for amount in units):
            raise SpecError(
                field="renyi", allowed=f"1 to {BEYOND} units at every order; no draw is free"
            )
        if charge.cost.epsilon_units == 0 and charge.cost.delta_units == 0:
            raise SpecError(field="cost", allowed="more than zero; no draw is free")
        if not self._fits(charge):
            raise BudgetExceededError(
                self._refusal(charge),
                requested=str(charge.cost),
                remaining=str(self.remaining),
                next=[Next("who spent it", Command.SHOW)],
            )

    def admits(self, charge: Charge) -> int:
        """How many such charges fit in turn, to `MOST_ADMITTED`; 0 if no unpaid read is left."""
        if self.overdrawn or self.unpaid_reads >= self.population.max_unpaid_reads:
            return 0
        numbers = range(1, MOST_ADMITTED + 1)
        return bisect_left(
            numbers, True, key=lambda n: not self._fits(charge.plus(charge, times=n - 1))
        )

    def what_fits(self, charge: Charge) -> str:
        """`; epsilon: 2 fits`: what a spec could ask; empty if the charge fits or under `renyi`."""
        cost, remaining = charge.cost, self.remaining
        if self.population.renyi or self.overdrawn or remaining.covers(cost):
            return ""
        if not remaining.epsilon_units or (cost.delta_units and not remaining.delta_units):
            return ""
        settings = []
        if cost.epsilon_units > remaining.epsilon_units:
            settings.append(f"epsilon: {decimal_text(remaining.epsilon_units, EPSILON_UNIT)}")
        if cost.delta_units > remaining.delta_units:
            settings.append(f"delta: {decimal_text(remaining.delta_units, DELTA_UNIT)}")
        return f"; {' and '.join(settings)} fit{'' if settings[1:] else 's'}"

    def _fits(self, charge: Charge) -> bool:
        if charge.renyi is None:
            return self.population.budget.minus(self.held.cost).covers(charge.cost)
        assert self.held.renyi is not None
        return within(self.held.renyi.plus(charge.renyi), budgets(self.population))

    def _refusal(self, charge: Charge) -> str:
        name, budget = self.population.name, self.population.budget
        if charge.renyi is None:
            return (
                f"population {name}: this run asks {charge.cost}; {self.remaining} is left "
                f"of {budget}{self.what_fits(charge)}"
            )
        after = self._worth(self.held.plus(charge))
        remaining = decimal_text(self.remaining.epsilon_units, EPSILON_UNIT)
        reached = decimal_text(after.epsilon_units, EPSILON_UNIT)
        return (
            f"population {name}: this run asks {charge.cost}. With it, the Renyi filter would stand"
            f" at epsilon={reached}, above the budget; epsilon={remaining} is left of {budget}"
        )

    def _worth(self, held: Charge) -> PrivacyCost:
        if held.renyi is None:
            return held.cost
        delta = self.population.budget.delta_units
        return PrivacyCost(
            epsilon_units=converted_units(held.renyi, delta),
            delta_units=delta if any(held.renyi.units) else 0,
            relation=held.cost.relation,
        )


def check_kind(population: Population, charge: Charge) -> None:
    """Raise unless the charge is of the population's relation and composition rule."""
    if charge.cost.relation is not population.relation:
        raise UnsupportedRelationError(
            f"population {population.name} is registered under {population.relation.value}; a cost"
            f" under {charge.cost.relation.value} cannot be charged to it. In the spec, set"
            f" relation: {population.relation.value}, or name another population"
        )
    if (charge.renyi is not None) != population.renyi:
        rule = population.composition.value
        raise SpecError(
            f"population {population.name} is registered with composition {rule}",
            field="renyi",
            allowed=f"a RenyiVector of {len(ORDERS)} orders" if population.renyi else "None",
        )


def budgets(population: Population) -> tuple[int, ...]:
    """The population's Renyi budget at each order."""
    return order_budgets(population.budget.epsilon_units, population.budget.delta_units)
