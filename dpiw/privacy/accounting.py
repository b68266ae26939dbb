"""What a whole run costs: events to (epsilon, delta), and the noise that meets a total.

Totals come from privacy loss distributions (PLDs), composed as objects of `dp_accounting`, always
in the add/remove form: a mechanism normalises its noise by the sensitivity under the unit's
relation (docs/method.md section 10). Every approximation rounds against ourselves.

The exponential mechanism is accounted by the curves of `dpiw.privacy.bounded_range`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from dpiw.errors import PrivacyError
from dpiw.privacy.divergences import total_units
from dpiw.privacy.events import (
    ExponentialMechanismEvent,
    GaussianEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    event_from_json,
    event_to_json,
    merge_events,
    pure_epsilon,
    stored_event,
    to_dp_event,
)
from dpiw.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_noise_multiplier
from dpiw.privacy.pld import compose_privacy_losses, optimistic_privacy_losses
from dpiw.privacy.renyi import ORDERS

__all__ = [
    "LATTICE_MARGIN",
    "EpsilonBounds",
    "calibrate",
    "delta",
    "epsilon",
    "epsilon_bounds",
    "epsilon_rdp",
    "event_from_json",
    "event_to_json",
    "gaussian_noise_multiplier",
    "renyi_vector",
    "stored_event",
    "to_dp_event",
]

LATTICE_MARGIN = 1e-4
"""Noise multipliers are accounted as if smaller by this share: `m / (1 + LATTICE_MARGIN)`.

It covers, in this one place, that discrete laws on a lattice of at most 2^-20 scales are accounted
as continuous ones (relative error in delta near 1e-10), float rounding in the PLD convolutions,
and, for DP-SGD, noise drawn in floats. Pure sums (`delta = 0`) need and take no margin.
"""

_GRID = 1e-4
_SMALLEST_PLD_DELTA = 1e-12
"""Below it the convolutions' rounding counts; the RDP bound is used instead."""

_LARGEST_PLD_EPSILON = 50.0
"""Above it, by RDP, no grid is built: the RDP bound is returned. No release lives there."""

_SMALLEST_PLD_MULTIPLIER = 0.05
"""Below it one event alone would need a grid of millions of points; likewise."""


def epsilon(events: Sequence[PrivacyEvent], *, delta: float, grid: float = _GRID) -> float:
    """Total epsilon of all events together at `delta`, an upper bound.

    Args:
        events: what the mechanisms do, in any order; adaptivity is allowed.
        delta: in [0, 1). At 0 the total is the exact sum of the pure events.
        grid: step of the privacy loss, natural log units; a coarser one is faster and larger.

    Raises:
        PrivacyError: delta = 0 with Gaussian noise in the events, or delta outside [0, 1).
        UncalibratedError: an event holds no positive finite noise.

    Source: Koskela et al. (2020); Doroshenko et al. (2022) for the pessimistic discretisation.
    """
    merged = merge_events(events)
    pure = pure_epsilon(merged)
    if not 0 <= delta < 1:
        raise PrivacyError("delta: expected a number in [0, 1)")
    if delta == 0:
        if math.isinf(pure):
            raise PrivacyError(
                "delta = 0 cannot be met with Gaussian noise: use laplace or spherical noise, "
                "or a delta > 0"
            )
        return pure
    return min(pure, _approximate_epsilon(_with_margin(merged), delta, grid))


def delta(events: Sequence[PrivacyEvent], *, epsilon: float, grid: float = _GRID) -> float:
    """Total delta of all events together at `epsilon` >= 0, an upper bound.

    Raises:
        PrivacyError: epsilon is negative or not a number.
        UncalibratedError: an event holds no positive finite noise.
    """
    if not epsilon >= 0:
        raise PrivacyError("epsilon: expected a number >= 0")
    exact = merge_events(events)
    if epsilon >= pure_epsilon(exact):
        return 0.0
    merged = _with_margin(exact)
    if _only_gaussian(merged):
        return gaussian_delta(merged[0].noise_multiplier, epsilon)
    bound = float(_rdp_accountant(merged).get_delta(epsilon))
    if not _grid_pays(merged, _rdp_epsilon(merged, _SMALLEST_PLD_DELTA)):
        return bound
    # A PLD's rounding is never read as a smaller delta than it can resolve.
    value = float(compose_privacy_losses(merged, grid).get_delta_for_epsilon(epsilon))
    return min(bound, max(value, _SMALLEST_PLD_DELTA))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonBounds:
    """What each accountant says alone; infinite where it says nothing.

    Attributes:
        sum: of the epsilons of pure events.
        gaussian: the closed form, where all noise is Gaussian.
        rdp: Renyi accounting.
        pld: privacy loss distributions, losses rounded up.
        pld_below: the same, rounded down and without `LATTICE_MARGIN`: no sound bound is below it.
            0 where it says nothing.
    """

    sum: float
    gaussian: float = math.inf
    rdp: float = math.inf
    pld: float = math.inf
    pld_below: float = 0.0

    @property
    def used(self) -> str:
        """Name of the one that `epsilon` returns."""
        names = ("sum", "gaussian") if math.isfinite(self.gaussian) else ("sum", "pld", "rdp")
        return min(names, key=lambda name: float(getattr(self, name)))


def epsilon_bounds(events: Sequence[PrivacyEvent], *, delta: float) -> EpsilonBounds:
    """Every accountant's own epsilon at `delta`, for an audit that compares them.

    Raises:
        PrivacyError: delta is outside [0, 1).
        UncalibratedError: an event holds no positive finite noise.
    """
    exact = merge_events(events)
    if not 0 <= delta < 1:
        raise PrivacyError("delta: expected a number in [0, 1)")
    if delta == 0 or not exact:
        return EpsilonBounds(sum=pure_epsilon(exact))
    merged = _with_margin(exact)
    bounds = EpsilonBounds(sum=pure_epsilon(exact), rdp=_rdp_epsilon(merged, delta))
    if _only_gaussian(merged):
        closed = gaussian_epsilon(merged[0].noise_multiplier, delta)
        bounds = dataclasses.replace(bounds, gaussian=closed)
    if delta < _SMALLEST_PLD_DELTA or not _grid_pays(merged, bounds.rdp):
        return bounds
    above = compose_privacy_losses(merged, _GRID)
    below = optimistic_privacy_losses(exact, _GRID)
    return dataclasses.replace(
        bounds,
        pld=float(above.get_epsilon_for_delta(delta)),
        pld_below=0.0 if below is None else float(below.get_epsilon_for_delta(delta)),
    )


def epsilon_rdp(events: Sequence[PrivacyEvent], *, delta: float) -> float:
    """Total epsilon by Renyi accounting: an independent, looser road to the same number.

    Raises:
        PrivacyError: delta is not inside (0, 1).
        UncalibratedError: an event holds no positive finite noise.
    """
    if not 0 < delta < 1:
        raise PrivacyError("delta: Renyi accounting needs a number inside (0, 1)")
    return _rdp_epsilon(_with_margin(merge_events(events)), delta)


def renyi_vector(
    events: Sequence[PrivacyEvent], orders: Sequence[Decimal] = ORDERS
) -> tuple[int, ...]:
    """Total Renyi epsilon of all events at each order, in units of 1e-12, rounded up.

    Upper bounds at every order > 1, under `LATTICE_MARGIN`, in decimals that are the same on every
    machine: Gaussian a/(2m^2), Laplace exact, exponential mechanism min(epsilon, a epsilon^2/8),
    Poisson-sampled Gaussian exact at the next whole order.

    Raises:
        PrivacyError: no events: no draw is free.
        UncalibratedError: an event holds no positive finite noise.
    """
    merged = _with_margin(merge_events(events))
    if not merged:
        raise PrivacyError("renyi_vector: expected at least one event")
    return tuple(total_units(merged, order) for order in orders)


def calibrate(
    make_events: Callable[[float], Sequence[PrivacyEvent]], *, epsilon: float, delta: float
) -> float:
    """The effort rho whose events cost `epsilon` at `delta`: never more, within 1e-4 less.

    Where the cost jumps past the target, the effort just below the jump.

    Args:
        make_events: the run's events for rho > 0; every cost continuous and increasing in rho.
        epsilon: the total to meet, > 0.
        delta: in [0, 1).

    Raises:
        PrivacyError: the target is not admissible; or no rho in [1e-16, 1e16] times the first guess
            brackets it, as when fixed events alone cost more or nothing depends on rho.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyError("epsilon: expected a finite number > 0 to calibrate to")
    if not 0 <= delta < 1:
        raise PrivacyError("delta: expected a number in [0, 1)")
    start = math.log(_first_guess(epsilon, delta))
    coarse = _Search(make_events, epsilon=epsilon, delta=delta, grid=10 * _GRID).solve(start)
    return math.exp(_Search(make_events, epsilon=epsilon, delta=delta, grid=_GRID).solve(coarse))


class _Search:
    """Root search for log epsilon(rho) = log target in log rho, where the curve is near a line."""

    _AIM = math.log1p(-3e-5)
    _WIDTH = 1e-4
    _STEPS = 60

    def __init__(
        self,
        make_events: Callable[[float], Sequence[PrivacyEvent]],
        *,
        epsilon: float,
        delta: float,
        grid: float,
    ) -> None:
        self._make_events = make_events
        self._target, self._delta, self._grid = epsilon, delta, grid

    def _excess(self, log_rho: float) -> float:
        total = epsilon(self._make_events(math.exp(log_rho)), delta=self._delta, grid=self._grid)
        # Compared before the logarithm, so that "not above" is exact.
        if total > self._target:
            return max(math.log(total / self._target), 1e-16)
        return math.log(max(total, 1e-300) / self._target)

    def solve(self, log_rho: float) -> float:
        """Largest log rho found whose cost is at most the target, within 1e-4 of it."""
        first = log_rho
        low: tuple[float, float] | None = None
        high: tuple[float, float] | None = None
        for attempt in range(1, self._STEPS + 1):
            excess = self._excess(log_rho)
            if excess <= 0:
                low = (log_rho, excess)
                if excess >= -self._WIDTH:
                    return log_rho
            else:
                high = (log_rho, excess)
            if low and high and high[0] - low[0] < 1e-9:
                break
            log_rho = self._next(low, high, halve=attempt % 4 == 0)
            if abs(log_rho - first) > math.log(1e16):
                break
        if low and high:
            return low[0]  # a jump in the cost: its lower side
        raise PrivacyError(
            "calibration: no noise level meets the target epsilon; "
            "the events that do not depend on it may already cost more"
        )

    def _next(
        self, low: tuple[float, float] | None, high: tuple[float, float] | None, *, halve: bool
    ) -> float:
        known = low or high
        assert known is not None
        if low is None or high is None:
            # epsilon grows about as the square root of rho; step a little past the root.
            step = 2 * (self._AIM - known[1])
            return known[0] + (max(step, 0.01) if high is None else min(step, -0.01))
        slope = (high[1] - low[1]) / (high[0] - low[0])
        guess = low[0] + (self._AIM - low[1]) / slope
        width = high[0] - low[0]
        if halve or not low[0] + 1e-3 * width < guess < high[0] - 1e-3 * width:
            return (low[0] + high[0]) / 2
        return guess


def _first_guess(target: float, delta: float) -> float:
    if delta == 0:
        return target**2 / 2
    log_term = -math.log(delta)
    return (math.sqrt(log_term + target) - math.sqrt(log_term)) ** 2


def _with_margin(merged: Sequence[PrivacyEvent]) -> tuple[Any, ...]:
    """The events as accounted; see `LATTICE_MARGIN`. Events of a pure epsilon are exact."""
    return tuple(
        event
        if isinstance(event, ExponentialMechanismEvent)
        else dataclasses.replace(
            event, noise_multiplier=event.noise_multiplier / (1 + LATTICE_MARGIN)
        )
        for event in merged
    )


def _only_gaussian(merged: Sequence[PrivacyEvent]) -> bool:
    return len(merged) == 1 and isinstance(merged[0], GaussianEvent)


def _approximate_epsilon(merged: Sequence[Any], delta: float, grid: float) -> float:
    if not merged:
        return 0.0
    if _only_gaussian(merged):
        return gaussian_epsilon(merged[0].noise_multiplier, delta)
    bound = _rdp_epsilon(merged, delta)
    if delta < _SMALLEST_PLD_DELTA or not _grid_pays(merged, bound):
        return bound
    return min(bound, float(compose_privacy_losses(merged, grid).get_epsilon_for_delta(delta)))


def _grid_pays(merged: Sequence[Any], bound: float) -> bool:
    return bound <= _LARGEST_PLD_EPSILON and all(
        getattr(event, "noise_multiplier", 1.0) >= _SMALLEST_PLD_MULTIPLIER for event in merged
    )


def _rdp_accountant(merged: Sequence[Any]) -> Any:
    from dp_accounting import rdp

    # Orders below 2 serve large totals only, and dp_accounting's series for sampled Gaussians often
    # fails to converge there, with a warning in the log for each.
    sampled = any(isinstance(event, PoissonSampledGaussianEvent) for event in merged)
    orders = [1 + tenth / 10 for tenth in range(10 if sampled else 1, 100)]
    accountant = rdp.RdpAccountant([*orders, *range(11, 64), 128, 256, 512, 1024])
    for event in merged:
        accountant.compose(to_dp_event(event))
    return accountant


def _rdp_epsilon(merged: Sequence[Any], delta: float) -> float:
    return float(_rdp_accountant(merged).get_epsilon(delta)) if merged else 0.0
