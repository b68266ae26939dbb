"""The audit's own accountant: shares only the events' definitions with `dpiw.privacy.accounting`.

Epsilon comes from inverted transforms (`dpiw.audit.inversion`), Renyi divergences from transforms
on the real axis or a theorem's formula, so a fault in either accountant shows as a disagreement.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from dpiw.audit import inversion as of
from dpiw.audit.inversion import Loss, Range, chernoff_bound, epsilon_range, log_transform
from dpiw.errors import PrivacyError
from dpiw.privacy.events import (
    DeclaredEvent,
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    ThresholdEvent,
)
from dpiw.privacy.units import DELTA_UNIT

_MARGIN = 1 + 1e-4
"""Noise is counted as smaller by this factor, for lattices: the audit's own copy of the number."""

_SHARES = (0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 0.97, 0.995)
"""Offsets of a selection's loss, over its epsilon, tried for the floor."""

_ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), 128, 256, 512, 1024)
"""Orders that a Renyi accountant may be expected to try; whole ones from 2 for sampled noise."""


_BEYOND = 1e4
"""A vector's entry at an order that nothing can pay."""


@dataclass(frozen=True, kw_only=True)
class AuditedEpsilon:
    """Epsilon at one delta, by the audit's own account.

    Attributes:
        floor: no sound bound is below it, whatever theorem it uses.
        bound: range of the exact epsilon of the theorems in use; with selections its low end is the
            floor, because those may be accounted in blocks (`dpiw.privacy.gaussian`).
    """

    floor: float
    bound: Range


def _lossy(events: Sequence[PrivacyEvent]) -> list[PrivacyEvent]:
    return [event for event in events if not isinstance(event, ThresholdEvent)]


@np.errstate(all="ignore")  # what is not finite is caught where it is used
def audited_epsilon(events: Sequence[PrivacyEvent], delta: float) -> AuditedEpsilon:
    """Account events together at a delta in (0, 1); PrivacyError for none, or an unknown type."""
    events = _lossy(events)
    worst = epsilon_range([_worst(event) for event in events], delta)
    high = max(worst.high, _turned(events, delta, worst.high))
    if any(isinstance(event, ExponentialMechanismEvent) for event in events):
        floor = max(_floor(events, share, delta) for share in _SHARES)
        return AuditedEpsilon(floor=floor, bound=Range(low=floor, high=high))
    floor = _floor(events, _SHARES[0], delta)
    return AuditedEpsilon(floor=floor, bound=Range(low=worst.low, high=high))


def _turned(events: Sequence[PrivacyEvent], delta: float, known: float) -> float:
    """Epsilon with every sampled pair reversed; only if it could exceed `known`."""
    if not any(isinstance(event, PoissonSampledGaussianEvent) for event in events):
        return 0.0
    losses = [_worst(event, removed=False) for event in events]
    if chernoff_bound(losses, delta)[1] <= known:
        return 0.0
    return epsilon_range(losses, delta).high


def _floor(events: Sequence[PrivacyEvent], share: float, delta: float) -> float:
    return epsilon_range([_admitted(event, share) for event in events], delta).low


def _worst(event: PrivacyEvent, *, removed: bool = True, margin: float = _MARGIN) -> Loss:
    """The ceiling of `dpiw.audit.inversion`, with noise counted as smaller by `margin`."""
    if isinstance(event, GaussianEvent):
        return of.gaussian(event.noise_multiplier / margin, event.count)
    if isinstance(event, LaplaceEvent):
        return of.laplace(event.noise_multiplier / margin, event.count)
    if isinstance(event, ExponentialMechanismEvent):
        return of.worst_selection(event.epsilon, event.count)
    if isinstance(event, DeclaredEvent):  # randomised response: the loss is epsilon or -epsilon
        return of.two_point(2 * event.epsilon, 0.5, event.count)
    if isinstance(event, PoissonSampledGaussianEvent):
        probability, noise_multiplier = event.sampling_probability, event.noise_multiplier / margin
        if probability == 1:
            return of.gaussian(noise_multiplier, event.count)
        return of.sampled_gaussian(probability, noise_multiplier, event.count, removed=removed)
    raise PrivacyError("the audit has no account of its own for it", field=type(event).__name__)


def _admitted(event: PrivacyEvent, share: float) -> Loss:
    if isinstance(event, ExponentialMechanismEvent):
        return of.two_point(event.epsilon, share, event.count)
    return _worst(event, margin=1.0)


def rest_of_delta(events: Sequence[PrivacyEvent], delta: float) -> float:
    """What remains of delta, as (1 - delta) is a product; PrivacyError if events exceed it."""
    no_failure = Fraction(1)
    for event in events:
        if isinstance(event, DeclaredEvent | ThresholdEvent):
            no_failure *= (1 - Fraction(event.delta)) ** event.count
    rest = 1 - (1 - Fraction(delta)) / no_failure
    rest = Fraction(0) if abs(rest) < Fraction(DELTA_UNIT) / 2 else rest
    if rest < 0:
        raise PrivacyError("less than the events' own", field="delta")
    return float(rest) if no_failure != 1 else delta


def audited_sum(events: Sequence[PrivacyEvent]) -> float:
    """Sum of the epsilons of pure events, declared ones without delta; infinite if not pure."""
    total = Fraction(0)
    for event in events:
        if isinstance(event, LaplaceEvent):
            total += event.count / Fraction(event.noise_multiplier)
        elif isinstance(event, ExponentialMechanismEvent | DeclaredEvent):
            total += event.count * Fraction(event.epsilon)
        else:
            return math.inf
    return float(total)


def audited_rdp(events: Sequence[PrivacyEvent], delta: float) -> Range:
    """Range of a Renyi accountant's epsilon at a delta in (0, 1); `_ORDERS` give its high end."""
    events = _lossy(events)
    sampled = any(isinstance(event, PoissonSampledGaussianEvent) for event in events)
    orders = [order for order in _ORDERS if order >= 2 or not sampled]

    def converted(order: float) -> float:
        divergence = sum(event.count * _accounted(event, order) for event in events)
        return _converted(divergence, order, delta)

    candidates = [(converted(order), order) for order in orders]
    high, best = min(candidates)
    between = [best * (1 + step / 200) for step in range(-20, 21) if best * (1 + step / 200) > 1.01]
    return Range(low=min([high, *map(converted, between)]), high=high)


def _converted(divergence: float, order: float, delta: float) -> float:
    """Canonne, Kamath & Steinke (2020), proposition 12; 0 where the KL divergence is enough."""
    if delta**2 + math.expm1(-divergence) > 0:
        return 0.0
    shift = math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    return max(0.0, divergence + shift)


def audited_renyi(events: Sequence[PrivacyEvent], order: Decimal) -> float:
    """Renyi epsilon of all events at one order, as the filter's vector states it."""
    total = math.fsum(event.count * _filtered(event, float(order)) for event in events)
    return min(total, _BEYOND)


def _accounted(event: PrivacyEvent, order: float) -> float:
    """One mechanism's divergence, or the bound that a Renyi accountant is given for it."""
    if isinstance(event, ExponentialMechanismEvent):
        return order * event.epsilon**2 / 8  # Cesar & Rogers (2021)
    if isinstance(event, DeclaredEvent):
        return order * event.epsilon**2 / 2  # Bun & Steinke (2016)
    return _divergence(_worst(event), order)


def _filtered(event: PrivacyEvent, order: float) -> float:
    if isinstance(event, ExponentialMechanismEvent):
        return min(event.epsilon, order * event.epsilon**2 / 8)
    if isinstance(event, ThresholdEvent):
        return math.inf
    if isinstance(event, DeclaredEvent):
        return math.inf if event.delta else min(event.epsilon, order * event.epsilon**2 / 2)
    if isinstance(event, PoissonSampledGaussianEvent) and event.sampling_probability < 1:
        order = math.ceil(order)
    return _divergence(_worst(event), order)


def _divergence(loss: Loss, order: float) -> float:
    single = Loss(log_transform=loss.log_transform)
    return log_transform([single], order - 1) / (order - 1)
