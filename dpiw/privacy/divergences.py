"""Upper bounds of the Renyi divergence of privacy events, in exact and directed decimals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent, LaplaceEvent, PrivacyEvent
from dpiw.privacy.renyi import exactly, units_up


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
    return _sampled_gaussian(
        Decimal(event.sampling_probability),
        Decimal(event.noise_multiplier),
        math.ceil(order),  # divergences grow with the order; the sum below needs a whole one
    )


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
