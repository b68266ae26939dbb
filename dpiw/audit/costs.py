"""What every reservation costs, recomputed from its stored events by two accountants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from dpiw import accounting
from dpiw.audit.findings import Finding
from dpiw.audit.records import AttemptTally, RunTally, Tally, Units
from dpiw.errors import PrivacyError
from dpiw.privacy import DELTA_UNIT, EPSILON_UNIT, PrivacyEvent, decimal_text

_ROUNDING = Decimal("1e-9")
"""Relative difference that floats of another machine may make; the margin for lattices, which the
accountants add, is 100,000 times larger."""


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """One reservation's total at its charged delta.

    Attributes:
        pld: epsilon by privacy loss distributions, or exact sums; infinite if none exists.
        rdp: epsilon by Renyi accounting; None at delta = 0, where it says nothing.
        renyi: divergences at the orders of the Renyi filter, in units of 1e-12.
    """

    pld: float
    rdp: float | None
    renyi: tuple[int, ...]


Key = tuple[str, int]
"""A run's key and an attempt's number."""


def recompute(counted: Tally) -> tuple[dict[Key, Recomputed], list[Finding]]:
    """Account every reservation anew and compare it with what was charged.

    A whole run and a lost stage's repetition are judged alike: the events of the reservation's
    stages together, at its delta, cost at most its epsilon.
    """
    costs: dict[Key, Recomputed] = {}
    findings: list[Finding] = []
    known: dict[str, Recomputed] = {}
    for run in counted.runs.values():
        for attempt in run.attempts:
            try:
                cost = _account(attempt, known)
            except (PrivacyError, TypeError, ValueError, KeyError) as error:
                findings.append(_unreadable(run, attempt, error))
                continue
            costs[run.key, attempt.number] = cost
            findings += _compare(run, attempt, cost)
    return costs, findings


def epsilon_of(units: Units) -> Decimal:
    """The exact epsilon."""
    return units.epsilon * EPSILON_UNIT


def delta_of(units: Units) -> Decimal:
    """The exact delta."""
    return units.delta * DELTA_UNIT


def _account(attempt: AttemptTally, known: dict[str, Recomputed]) -> Recomputed:
    """Runs of one plan share their events, so each list is accounted once."""
    stored = [event for name in sorted(attempt.stages) for event in attempt.stages[name].events]
    name = json.dumps([attempt.cost.delta, stored], sort_keys=True)
    if name not in known:
        events = [accounting.stored_event(event) for event in stored]
        known[name] = _totals(events, float(delta_of(attempt.cost)))
    return known[name]


def _totals(events: Sequence[PrivacyEvent], delta: float) -> Recomputed:
    renyi = accounting.renyi_vector(events)
    if delta > 0:
        return Recomputed(
            pld=accounting.epsilon(events, delta=delta),
            rdp=accounting.epsilon_rdp(events, delta=delta),
            renyi=renyi,
        )
    try:
        return Recomputed(pld=accounting.epsilon(events, delta=0.0), rdp=None, renyi=renyi)
    except PrivacyError:  # Gaussian noise keeps no promise at delta = 0
        return Recomputed(pld=float("inf"), rdp=None, renyi=renyi)


def _compare(run: RunTally, attempt: AttemptTally, cost: Recomputed) -> list[Finding]:
    subject = f"run {run.key[:12]} attempt {attempt.number}"
    charged = epsilon_of(attempt.cost)
    found = []
    if Decimal(cost.pld) > charged * (1 + _ROUNDING):
        text = (
            f"its events cost epsilon={cost.pld:.9g} at "
            f"delta={decimal_text(attempt.cost.delta, DELTA_UNIT)}; charged was "
            f"{decimal_text(attempt.cost.epsilon, EPSILON_UNIT)}"
        )
        found.append(Finding(code="cost_above_charge", subject=subject, text=text))
    if cost.rdp is not None and Decimal(cost.rdp) < Decimal(cost.pld) * (1 - _ROUNDING):
        text = (
            f"the looser accountant says epsilon={cost.rdp:.9g}, less than the tighter one's "
            f"{cost.pld:.9g}"
        )
        found.append(Finding(code="accountants_disagree", subject=subject, text=text))
    vector = attempt.cost.renyi
    if vector and any(c < r for c, r in zip(vector, cost.renyi, strict=False)):
        text = "at some order its events diverge more than the vector that was charged"
        found.append(Finding(code="cost_above_charge", subject=subject, text=text))
    return found


def _unreadable(run: RunTally, attempt: AttemptTally, error: Exception) -> Finding:
    return Finding(
        code="events_unreadable",
        subject=f"run {run.key[:12]} attempt {attempt.number}",
        text=f"{type(error).__name__}: its events are not those of this version of dpiw",
    )
