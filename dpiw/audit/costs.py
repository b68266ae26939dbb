"""Each reservation's cost, recomputed from its stored events by three accounts.

A charge is the smaller result of the two accountants of `dpiw.privacy.accounting`, so a fault in
either makes it too small and neither shows it alone. Both must agree with the audit's own account
(`dpiw.audit.accountant`).
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from dpiw.audit.accountant import (
    AuditedEpsilon,
    audited_epsilon,
    audited_rdp,
    audited_renyi,
    audited_sum,
    rest_of_delta,
)
from dpiw.audit.findings import Finding
from dpiw.audit.inversion import Range
from dpiw.audit.records import AttemptTally, RunTally, Tally, Units
from dpiw.errors import PrivacyError
from dpiw.privacy import accounting
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.renyi import ORDERS
from dpiw.privacy.units import DELTA_UNIT, EPSILON_UNIT, decimal_text, float_below

_ROUNDING = Decimal("1e-9")
"""Relative difference between machines' floats, 1e-5 of the accountants' margin for lattices."""

_SLACK = 1e-6
"""The same for numbers from an inversion."""

AGREEMENT = 0.01
"""Relative difference of two accounts of the same events that counts as agreement."""

_GRIDS = 2e-4
"""Absolute difference that the accountants' grid of losses may make: two of its steps."""


@dataclass(frozen=True, kw_only=True)
class OwnAccount:
    """The audit's own account; `epsilon` and `rdp` at the charged delta, None at delta = 0."""

    sum: float
    epsilon: AuditedEpsilon | None
    rdp: Range | None
    renyi: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """One reservation at its charged delta: `bounds` by each accountant, `renyi` in 1e-12."""

    bounds: accounting.EpsilonBounds
    renyi: tuple[int, ...]
    own: OwnAccount | None

    @property
    def epsilon(self) -> float:
        """What a charge must cover: the smallest valid bound; infinite if there is none."""
        return float(getattr(self.bounds, self.bounds.used))


Key = tuple[str, int]
"""A run's key and an attempt's number."""


def recompute(counted: Tally) -> tuple[dict[Key, Recomputed], list[Finding]]:
    """Account every reservation again: its events, at its delta, cost at most its epsilon."""
    costs: dict[Key, Recomputed] = {}
    findings: list[Finding] = []
    cache: dict[str, Recomputed] = {}
    for run in counted.runs.values():
        for attempt in run.attempts:
            try:
                cost = _account(attempt, cache)
            except (PrivacyError, TypeError, ValueError, KeyError) as error:
                text = f"this version of dpiw cannot read its events ({type(error).__name__})"
                findings.append(Finding("events_unreadable", _subject(run, attempt), text))
                continue
            costs[run.key, attempt.number] = cost
            findings += _compare(_subject(run, attempt), attempt, cost)
    return costs, findings


def _subject(run: RunTally, attempt: AttemptTally) -> str:
    return f"run {run.key[:12]} attempt {attempt.number}"


def epsilon_of(units: Units) -> Decimal:
    """The exact epsilon."""
    return units.epsilon * EPSILON_UNIT


def delta_of(units: Units) -> Decimal:
    """The exact delta."""
    return units.delta * DELTA_UNIT


def _account(attempt: AttemptTally, cache: dict[str, Recomputed]) -> Recomputed:
    stored = [event for name in sorted(attempt.stages) for event in attempt.stages[name].events]
    name = json.dumps([attempt.cost.delta, stored], sort_keys=True)
    if name not in cache:
        events = [accounting.stored_event(event) for event in stored]
        delta = float_below(delta_of(attempt.cost))
        cache[name] = Recomputed(
            bounds=accounting.epsilon_bounds(events, delta=delta),
            renyi=accounting.renyi_vector(events),
            own=_own_account(events, delta),
        )
    return cache[name]


def _own_account(events: Sequence[PrivacyEvent], delta: float) -> OwnAccount | None:
    try:
        rest = rest_of_delta(events, delta)
        return OwnAccount(
            sum=audited_sum(events),
            epsilon=audited_epsilon(events, rest) if rest > 0 else None,
            rdp=audited_rdp(events, rest) if rest > 0 else None,
            renyi=tuple(audited_renyi(events, order) for order in ORDERS),
        )
    except (PrivacyError, ArithmeticError, ValueError):
        return None


def _compare(subject: str, attempt: AttemptTally, cost: Recomputed) -> list[Finding]:
    findings = [Finding("cost_above_charge", subject, t) for t in _above_charge(attempt, cost)]
    if cost.own is None:
        text = "the audit's own method cannot compute the cost of its events; dpiw's accounting can"
        findings.append(Finding("cost_not_recounted", subject, text))
    differences = (*_contradictions(cost), *_disagreements(cost), *_other_vector(cost))
    return findings + [Finding("accountants_disagree", subject, text) for text in differences]


def _above_charge(attempt: AttemptTally, cost: Recomputed) -> Iterator[str]:
    charged = epsilon_of(attempt.cost)
    least, name = max((cost.epsilon, cost.bounds.used), *_floors(cost))
    if Decimal(least) > charged * (1 + _ROUNDING):
        delta = decimal_text(attempt.cost.delta, DELTA_UNIT)
        yield (
            f"its events cost epsilon={least:.9g} at delta={delta} ({_NAMES[name]}), and only"
            f" {decimal_text(attempt.cost.epsilon, EPSILON_UNIT)} was charged"
        )
    vector = attempt.cost.renyi
    if vector and any(c < r for c, r in zip(vector, cost.renyi, strict=False)):
        yield "at one Renyi order at least, its events cost more than was charged"


_NAMES = {
    "sum": "the sum of pure epsilons",
    "gaussian": "the Gaussian closed form",
    "pld": "privacy loss distributions",
    "pld_below": "privacy loss distributions, rounded down",
    "rdp": "Renyi accounting",
    "own": "the audit's own account",
}


def _floors(cost: Recomputed) -> list[tuple[float, str]]:
    floors = [(cost.bounds.pld_below, "pld_below")]
    if cost.own is not None and cost.own.epsilon is not None:
        floors.append((cost.own.epsilon.floor * (1 - _SLACK), "own"))
    return floors


def _contradictions(cost: Recomputed) -> Iterator[str]:
    floor, below = max(_floors(cost))
    for name in ("sum", "gaussian", "pld", "rdp"):
        value = float(getattr(cost.bounds, name))
        if value < floor * (1 - _SLACK):
            least = f"{floor:.9g}, by {_NAMES[below]}"
            yield f"{_NAMES[name]}: epsilon={value:.9g}; it cannot be less than {least}"


def _disagreements(cost: Recomputed) -> Iterator[str]:
    if cost.own is None:
        return
    bounds, account = cost.bounds, cost.own
    exact = Range(low=account.sum, high=account.sum)
    expected = [("sum", bounds.sum, exact, float(_ROUNDING), 0.0)]
    if account.epsilon is not None and account.rdp is not None:
        bound = account.epsilon.bound
        expected += [
            ("gaussian", bounds.gaussian, bound, AGREEMENT, 0.0),
            ("pld", bounds.pld, bound, AGREEMENT, _GRIDS),
            ("pld_below", bounds.pld_below, Range(low=0.0, high=bound.high), AGREEMENT, _GRIDS),
            ("rdp", bounds.rdp, account.rdp, AGREEMENT, 0.0),
        ]
    for name, value, where, share, step in expected:
        absent = math.isinf(value) and (name != "sum" or math.isinf(account.sum))
        low, high = where.low * (1 - share) - step, where.high * (1 + share) + step
        if not absent and not low <= value <= high:
            ends = f"{where.low:.9g} to {where.high:.9g}, by the audit's own account"
            yield f"{_NAMES[name]}: epsilon={value:.9g}; expected {ends}"


def _other_vector(cost: Recomputed) -> Iterator[str]:
    if cost.own is None:
        return
    for order, units, expected in zip(ORDERS, cost.renyi, cost.own.renyi, strict=True):
        value = float(units * EPSILON_UNIT)
        if not expected * (1 - AGREEMENT) - _SLACK <= value <= expected * (1 + AGREEMENT) + _SLACK:
            figures = f"{value:.9g}; expected {expected:.9g}, by the audit's own account"
            yield f"Renyi vector at order {order}: {figures}"
            return
