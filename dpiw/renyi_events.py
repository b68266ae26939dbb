"""Upper bounds of the Renyi divergence of privacy events, in exact and directed decimals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from dpiw.privacy import (
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PrivacyEvent,
    SelectedGaussianEvent,
    SelectedPureEvent,
)
from dpiw.renyi import exactly, units_up
from dpiw.repeat_and_select import mean_runs, pure_total, rank_loss


def total_units(events: Sequence[PrivacyEvent], order: Decimal) -> int:
    """The sum over `events` at one order > 1, in units of 1e-12, rounded up.

    Noise multipliers are taken as they are: the caller has applied its margin.
    """
    with exactly():
        total = sum((event.count * single(event, order) for event in events), Decimal(0))
        return units_up(total)


def single(event: PrivacyEvent, order: Decimal) -> Decimal:
    """Renyi epsilon of one of the event's mechanisms at `order`, exact to 50 digits."""
    if isinstance(event, GaussianEvent):
        return order / (2 * Decimal(event.noise_multiplier) ** 2)
    if isinstance(event, LaplaceEvent):
        return _laplace(1 / Decimal(event.noise_multiplier), order)
    if isinstance(event, ExponentialMechanismEvent):
        # Of privacy-loss range epsilon: epsilon^2/8-zCDP (Cesar & Rogers 2021, lemma 3.2).
        epsilon = Decimal(event.epsilon)
        return min(epsilon, order * epsilon**2 / 8)
    if isinstance(event, SelectedPureEvent):
        return _pure(pure_total(event), order)
    if isinstance(event, SelectedGaussianEvent):
        return _selected_gaussian(event, order)
    return _sampled_gaussian(
        Decimal(event.sampling_probability),
        Decimal(event.noise_multiplier),
        math.ceil(order),  # divergences grow with the order; the sum below needs a whole one
    )


def _pure(epsilon: Decimal, order: Decimal) -> Decimal:
    """Two-point randomised response, which is the worst epsilon-DP pair at every order.

    The likelihood ratio may be moved to its ends exp(+-epsilon), as its power is convex.
    """
    a = order
    return (((a * epsilon).exp() + ((1 - a) * epsilon).exp()) / (1 + epsilon.exp())).ln() / (a - 1)


def _selected_gaussian(event: SelectedGaussianEvent, order: Decimal) -> Decimal:
    """One run's divergence, the rank loss, and log(E K)/(a-1) (`dpiw.repeat_and_select`).

    At a low order the bound of the best higher one: divergences grow with the order.
    """
    multiplier, shape = Decimal(event.noise_multiplier), Decimal(event.shape)
    runs = mean_runs(event.shape, Decimal(event.stopping)).ln()
    a = max(order, 1 + multiplier * (2 * runs).sqrt())
    return a / (2 * multiplier**2) + (1 + shape) * rank_loss(event) + runs / (a - 1)


def _laplace(shift: Decimal, order: Decimal) -> Decimal:
    """Mironov (2017), proposition 6; vectors of the same L1 shift have less, as it is convex."""
    a = order
    near = a / (2 * a - 1) * ((a - 1) * shift).exp()
    far = (a - 1) / (2 * a - 1) * (-a * shift).exp()
    return (near + far).ln() / (a - 1)


def _sampled_gaussian(probability: Decimal, multiplier: Decimal, order: int) -> Decimal:
    """Mironov, Talwar & Zhang (2019), section 3.3, for a whole order >= 2; both directions."""
    total = Decimal(0)
    for k in range(order + 1):
        weight = math.comb(order, k) * (1 - probability) ** (order - k) * probability**k
        total += weight * (Decimal(k * k - k) / (2 * multiplier**2)).exp()
    return total.ln() / (order - 1)
