"""What is counted: amounts, stages, attempts, runs and populations, by the audit's own count."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import reduce
from itertools import zip_longest
from typing import Any

from dpiw.audit.entry_signatures import Fields
from dpiw.audit.findings import Finding
from dpiw.audit.rings import Ring
from dpiw.privacy.renyi import ORDERS
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text


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
        return self._with(self, lambda part, _: part * count)

    def plus(self, other: Units) -> Units:
        """The sum; a missing vector counts as zero."""
        return self._with(other, operator.add)

    def beyond(self, other: Units) -> Units:
        """How much each part exceeds the other's; nowhere below zero."""
        return self._with(other, lambda ours, theirs: max(0, ours - theirs))

    def covers(self, other: Units) -> bool:
        """Whether no part is smaller than the other's."""
        left = other.beyond(self)
        return not any((left.epsilon, left.delta, left.lost_delta, *left.renyi))

    def _with(self, other: Units, combined: Callable[[int, int], int]) -> Units:
        pairs = zip_longest(self.renyi, other.renyi, fillvalue=0)
        return Units(
            epsilon=combined(self.epsilon, other.epsilon),
            delta=combined(self.delta, other.delta),
            renyi=tuple(combined(ours, theirs) for ours, theirs in pairs),
            lost_delta=combined(self.lost_delta, other.lost_delta),
        )

    @property
    def amount(self) -> Units:
        """Epsilon and delta alone."""
        return Units(epsilon=self.epsilon, delta=self.delta)

    def __str__(self) -> str:
        epsilon = decimal_text(self.epsilon, EPSILON_UNIT)
        return f"epsilon={epsilon}, delta={decimal_text(self.delta, DELTA_UNIT)}"


def total(amounts: Iterable[Units]) -> Units:
    """The sum of amounts."""
    return reduce(Units.plus, amounts, Units())


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
        raise IllegalError(f"its Renyi vector is missing, or not one of {composition} composition")
    return cost


_BEYOND = 10**16
"""An order's sum from which on it can pay for no order."""


@dataclass(kw_only=True)
class StageTally:
    """One stage of one attempt."""

    state: str
    events: list[Any]
    resumption: dict[str, int] | None = None
    checkpoint: int | None = None
    tokens: list[str] = field(default_factory=list)
    conflicts: int = 0

    @property
    def resumes(self) -> int:
        """How often it was resumed: every token after the first."""
        return max(0, len(self.tokens) - 1)


@dataclass(kw_only=True)
class AttemptTally:
    """One reservation: what it charged and `stated`, and the outcome of its stages."""

    number: int
    cost: Units
    stages: dict[str, StageTally]
    seq: int
    at: str
    stated: Fields
    voided: bool = False
    reads: int = 0

    @property
    def held(self) -> Units:
        """Nothing if voided; else its cost, and once more for every conflicting output."""
        return self.cost.times(0 if self.voided else 1 + self.conflicts)

    @property
    def conflicts(self) -> int:
        """Further outputs of its stages."""
        return sum(stage.conflicts for stage in self.stages.values())

    @property
    def armed(self) -> bool:
        """Whether a stage was ever armed, so that it cannot be given back."""
        return any(stage.state not in ("reserved", "voided") for stage in self.stages.values())

    @property
    def committed(self) -> bool:
        """Whether a draw of it was committed."""
        return any(stage.state == "committed" for stage in self.stages.values())

    @property
    def unpaid_reads(self) -> int:
        """Reads of the table beyond the one that a committed draw paid for, and fits that died."""
        died = sum((stage.state == "lost") + stage.resumes for stage in self.stages.values())
        return died + max(0, self.reads - (1 if self.committed else 0))


@dataclass(kw_only=True)
class RunTally:
    """One run; `history` holds (seq, what each attempt holds and its states)."""

    key: str
    population: str
    plan_digest: str
    period: str
    max_attempts: int
    attempts: list[AttemptTally] = field(default_factory=list)
    manifest_digest: str | None = None
    published: int | None = None
    further: list[str] = field(default_factory=list)
    withdrawn: str | None = None
    certified: list[int] = field(default_factory=list)
    last_at: str = ""
    history: list[tuple[int, Snapshot]] = field(default_factory=list)

    @property
    def held(self) -> Units:
        """The sum over its attempts."""
        return total(attempt.held for attempt in self.attempts)

    @property
    def drawn(self) -> Units:
        """The irrevocable part of it."""
        return total(attempt.held for attempt in self.attempts if attempt.armed)

    @property
    def latest(self) -> dict[str, StageTally]:
        """Every stage's state in its last attempt that was not voided, if there is one."""
        voided = {name: s for a in self.attempts if a.voided for name, s in a.stages.items()}
        return voided | {
            name: s for a in self.attempts if not a.voided for name, s in a.stages.items()
        }

    @property
    def state(self) -> str:
        """The run's state in one word, as `dpiw ledger show` prints it."""
        if self.withdrawn is not None:
            return "withdrawn"
        return "published" if self.manifest_digest is not None else _stands(self.latest)

    def attempt_state(self, attempt: AttemptTally) -> str:
        """The state of one attempt by itself; a voided one stays voided."""
        state = _stands(attempt.stages)
        return self.state if state == "committed" and self.manifest_digest else state

    @property
    def snapshot(self) -> Snapshot:
        """What a certificate written now would state of its attempts."""
        return tuple(
            (a.held.amount, tuple(sorted((name, s.state) for name, s in a.stages.items())))
            for a in self.attempts
            if not a.voided
        )


def _stands(stages: dict[str, StageTally]) -> str:
    states = {stage.state for stage in stages.values()}
    common = states.pop() if len(states) == 1 else "armed"
    return "lost" if "lost" in states else common


Snapshot = tuple[tuple[Units, tuple[tuple[str, str], ...]], ...]


@dataclass(kw_only=True)
class PopulationTally:
    """One population: its terms, and what was spent and drawn after each entry that changed it."""

    name: str
    relation: str
    max_rows: int
    id_column: str | None
    budget: Units
    composition: str
    max_unpaid_reads: int
    recovered_reads: int = 0
    at: str
    history: list[tuple[int, Units]] = field(default_factory=list)
    drawn: list[tuple[int, Units]] = field(default_factory=list)
    ring: Ring = field(default_factory=Ring)

    @property
    def spent(self) -> Units:
        """What all runs hold together."""
        return self.history[-1][1]

    def drawn_by(self, seq: int) -> Units:
        """What had been drawn by entry `seq`."""
        return next((units for at, units in reversed(self.drawn) if at <= seq), Units())


def fits(population: PopulationTally, held: Units) -> bool:
    """Whether a total is within the lifetime budget, under the population's rule."""
    return population.budget.covers(worth(population, held))


def worth(population: PopulationTally, held: Units) -> Units:
    """A total's value against the lifetime budget: what certificates state as spent.

    `basic`: the sum. `renyi`: the least epsilon to which the summed divergences convert at the
    lifetime delta, shared by the orders, rounded up; independent of `dpiw.privacy.renyi`. An order
    whose sum has reached `_BEYOND` is worth at least that, because a part of it may have been cut.

    Source: Canonne, Kamath & Steinke (2020), proposition 12.
    """
    if population.composition != "renyi":
        return held.amount
    if not any(held.renyi):
        return Units()
    delta = population.budget.delta
    with localcontext() as context:
        context.prec = 50
        share = (Decimal(delta) / 10**18 / len(held.renyi)).ln()
        best = min(
            max(
                spent + 10**12 * (((order - 1) / order).ln() - (share + order.ln()) / (order - 1)),
                Decimal(spent if spent >= _BEYOND else 0),
            )
            for order, spent in zip(ORDERS, held.renyi, strict=True)
        )
        epsilon = int(best.to_integral_value(rounding=ROUND_CEILING))
    return Units(epsilon=epsilon, delta=delta)


def least_loss(loss: Units, *, delta_left: int) -> Units:
    """The least that a loss stated as (epsilon, delta) must be charged under `renyi`.

    Per order a, min(epsilon, a epsilon^2 / 2) + log(D / (D - delta)) / (a - 1), where D is what
    earlier losses left of the lifetime delta; independent of `dpiw.privacy.renyi`.
    """
    remaining = delta_left - loss.delta
    if remaining <= 0:
        return Units(renyi=(_BEYOND,) * len(ORDERS), lost_delta=loss.delta)
    with localcontext() as context:
        context.prec = 50
        epsilon, fall = Decimal(loss.epsilon) / 10**12, (Decimal(delta_left) / remaining).ln()
        least = (min(epsilon, a * epsilon**2 / 2) + fall / (a - 1) for a in ORDERS)
        units = tuple(min(int(amount * 10**12), _BEYOND) for amount in least)
    return Units(renyi=units, lost_delta=loss.delta)


@dataclass(frozen=True, kw_only=True)
class RecoveredTally:
    """A published release that the ledger had lost and recovered, as its entry `seq` states it.

    Attributes:
        head: hash of the lost entry its certificate names.
        previous: digest of the manifest before it.
        after: hash of the entry that the release before it names, if it was not lost.
        cost, held, drawn: of its run; of the population's account; the irrevocable part of it.
    """

    seq: int
    head: str
    population: str
    previous: str | None
    after: str | None
    run: str
    plan_digest: str
    period: str
    cost: Units
    held: Units
    drawn: Units

    @classmethod
    def stated(cls, entry: Fields, item: Fields, *, composition: str) -> RecoveredTally:
        """One of the releases of a recovering entry, as it states it."""
        costs = {"cost": item, "held": item["held"], "drawn": item["drawn"]}
        return cls(
            seq=entry["seq"], head=item["hash"], population=entry["population"],
            previous=item["previous"], after=item["after"],
            run=item["run"], plan_digest=item["plan_digest"], period=item["period"],
            **{name: cost_of(cost, composition=composition) for name, cost in costs.items()},
        )  # fmt: skip

    def is_of(self, run: RunTally) -> bool:
        """Whether it is the release of this run."""
        same_plan = (self.plan_digest, self.period) == (run.plan_digest, run.period)
        return run.key.startswith(self.run) and same_plan


@dataclass(frozen=True, kw_only=True)
class WithdrawnTally:
    """A withdrawal, as its entry `seq` states it."""

    seq: int
    stated: Fields

    @property
    def reason(self) -> str:
        """Why the release was withdrawn."""
        return str(self.stated["reason"])


@dataclass(kw_only=True)
class Tally:
    """Everything counted; `recovered`, `withdrawn` by manifest digests, `places` by hashes."""

    populations: dict[str, PopulationTally] = field(default_factory=dict)
    runs: dict[str, RunTally] = field(default_factory=dict)
    recovered: dict[str, RecoveredTally] = field(default_factory=dict)
    withdrawn: dict[str, WithdrawnTally] = field(default_factory=dict)
    losses: list[tuple[int, str, Units]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    times: dict[int, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def runs_of(self, population: str) -> list[RunTally]:
        """A population's runs in the order of their first reservation."""
        return [run for run in self.runs.values() if run.population == population]

    def unpaid_reads(self, population: str) -> int:
        """Reads of a population's tables without a draw after them."""
        runs = self.runs_of(population)
        reads = sum(attempt.unpaid_reads for run in runs for attempt in run.attempts)
        return reads + self.populations[population].recovered_reads

    def tell(self, code: str, subject: str, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(code=code, subject=subject, text=text))
