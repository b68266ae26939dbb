"""Cost of a whole run: events to (epsilon, delta), by PLDs in add/remove form (docs/method.md 10).

Every approximation rounds against ourselves. Source: Koskela et al. (2020); Doroshenko et al.
(2022) for the pessimistic discretisation.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpiw.errors import PrivacyError
from dpiw.privacy.event_records import event_from_json as event_from_json
from dpiw.privacy.event_records import event_to_json as event_to_json
from dpiw.privacy.event_records import stored_event as stored_event
from dpiw.privacy.events import (
    DeclaredEvent,
    ExponentialMechanismEvent,
    GaussianEvent,
    NoiseEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    ThresholdEvent,
    merge_events,
    pure_epsilon,
)
from dpiw.privacy.events import to_dp_event as to_dp_event
from dpiw.privacy.gaussian import block_is_cheap, gaussian_epsilon
from dpiw.privacy.gaussian import gaussian_noise_multiplier as gaussian_noise_multiplier
from dpiw.privacy.renyi import ORDERS, exactly, units_up
from dpiw.privacy.units import DELTA_UNIT, float_below


def calibrate(
    make_events: Callable[[float], Sequence[PrivacyEvent]], *, epsilon: float, delta: float
) -> float:
    """Return the effort rho whose events cost at most `epsilon` at `delta`, within 1e-4 of it.

    Where the cost jumps past the target, the effort just below the jump. The cost of
    `make_events` must be continuous and increasing in rho > 0. Raises PrivacyError for an
    inadmissible target, or if no rho in [1e-16, 1e16] times the first guess meets it.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyError(field="epsilon", allowed="a finite number > 0 to calibrate to")
    if not 0 <= delta < 1:
        raise PrivacyError(field="delta", allowed="a number in [0, 1)")
    log_rho = math.log(_first_guess(epsilon, delta))
    for grid in (10 * GRID, GRID):
        search = _Search(make_events=make_events, target=epsilon, delta=delta, grid=grid)
        log_rho = search.solve(log_rho)
    return math.exp(log_rho)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Search:
    """Root search for log epsilon(rho) = log target in log rho, where the curve is near a line."""

    make_events: Callable[[float], Sequence[PrivacyEvent]]
    target: float
    delta: float
    grid: float

    _AIM = math.log1p(-3e-5)
    _WIDTH = 1e-4
    _STEPS = 60

    def _excess(self, log_rho: float) -> float:
        events = self.make_events(math.exp(log_rho))
        total = epsilon(events, delta=self.delta, grid=self.grid)
        # Compared before the logarithm, so that "not above" is exact.
        if total > self.target:
            return max(math.log(total / self.target), 1e-16)
        return math.log(max(total, 1e-300) / self.target)

    def solve(self, log_rho: float) -> float:
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
            "no noise level meets the target epsilon: the other draws may already cost more."
            " Raise epsilon",
            field="calibration",
        )

    def _next(
        self, low: tuple[float, float] | None, high: tuple[float, float] | None, *, halve: bool
    ) -> float:
        point = low or high
        assert point is not None
        if low is None or high is None:
            # epsilon grows about as the square root of rho; step a little past the root.
            step = 2 * (self._AIM - point[1])
            return point[0] + (max(step, 0.01) if high is None else min(step, -0.01))
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


LATTICE_MARGIN = 1e-4
"""Noise multipliers are accounted as if smaller by this share: `m / (1 + LATTICE_MARGIN)`.

It covers laws on a lattice of at most 2^-20 scales, accounted as continuous ones (relative error in
delta near 1e-10), float rounding in PLD convolutions, and DP-SGD's floats. Pure sums take none.
"""

GRID = 1e-4
"""Step of the privacy loss, natural log units."""

_SMALLEST_PLD_DELTA = 1e-12
"""Below it the convolutions' rounding counts; the RDP bound is used instead."""

_LARGEST_PLD_EPSILON = 50.0
"""Above it the RDP bound is returned and no grid is built. No release has such an epsilon."""

_SMALLEST_PLD_MULTIPLIER = 0.05
"""Below it too, as one event alone would need a grid of millions of points."""


def epsilon(events: Sequence[PrivacyEvent], *, delta: float, grid: float = GRID) -> float:
    """Return an upper bound of the total epsilon of all events at `delta`.

    Args:
        events: in any order; adaptivity is allowed. UncalibratedError if one has no noise.
        delta: in [0, 1), else PrivacyError. At 0: the exact sum, PrivacyError with Gaussian noise.
        grid: step of the privacy loss, natural log units; a coarser one is faster and larger.
    """
    if not 0 <= delta < 1:
        raise PrivacyError(field="delta", allowed="a number in [0, 1)")
    events, delta = _without_deltas(events, delta)
    merged = merge_events(events)
    pure = pure_epsilon(merged)
    if delta == 0:
        if math.isinf(pure):
            raise PrivacyError(
                "delta = 0 cannot be met with Gaussian noise: use laplace or spherical noise, "
                "or a delta > 0"
            )
        return pure
    return min(pure, _approximate_epsilon(_with_margin(merged), delta, grid))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonBounds:
    """The epsilon of each accountant alone; infinite where it gives none.

    Attributes:
        gaussian: the closed form, where all noise is Gaussian.
        pld: privacy loss distributions, losses rounded up.
        pld_below: rounded down and without `LATTICE_MARGIN`: no sound bound is below it; or 0.
    """

    sum: float
    gaussian: float = math.inf
    rdp: float = math.inf
    pld: float = math.inf
    pld_below: float = 0.0

    @property
    def used(self) -> str:
        """Name of the bound that `epsilon` returns."""
        names = ("sum", "gaussian") if math.isfinite(self.gaussian) else ("sum", "pld", "rdp")
        return min(names, key=lambda name: float(getattr(self, name)))


def epsilon_bounds(events: Sequence[PrivacyEvent], *, delta: float) -> EpsilonBounds:
    """Return every accountant's own epsilon at `delta` in [0, 1), else PrivacyError, for an audit.

    UncalibratedError if an event holds no positive finite noise.
    """
    if not 0 <= delta < 1:
        raise PrivacyError(field="delta", allowed="a number in [0, 1)")
    events, delta = _without_deltas(events, delta)
    exact = merge_events(events)
    if delta == 0 or not exact:
        return EpsilonBounds(sum=pure_epsilon(exact))
    merged = _with_margin(exact)
    bounds = EpsilonBounds(sum=pure_epsilon(exact), rdp=_rdp_epsilon(merged, delta))
    if _only_gaussian(merged):
        closed = gaussian_epsilon(merged[0].noise_multiplier, delta)
        bounds = dataclasses.replace(bounds, gaussian=closed)
    if delta < _SMALLEST_PLD_DELTA or not _grid_pays(merged, bounds.rdp):
        return bounds
    above = compose_privacy_losses(merged, GRID)
    below = optimistic_privacy_losses(exact, GRID)
    return dataclasses.replace(
        bounds,
        pld=float(above.get_epsilon_for_delta(delta)),
        pld_below=0.0 if below is None else float(below.get_epsilon_for_delta(delta)),
    )


def epsilon_rdp(events: Sequence[PrivacyEvent], *, delta: float) -> float:
    """Return the epsilon by Renyi accounting, an independent, looser bound.

    PrivacyError unless 0 < delta < 1; UncalibratedError if an event holds no positive noise.
    """
    if not 0 < delta < 1:
        raise PrivacyError("Renyi accounting needs a number inside (0, 1)", field="delta")
    events, delta = _without_deltas(events, delta)
    if delta == 0:
        return pure_epsilon(merge_events(events))
    return _rdp_epsilon(_with_margin(merge_events(events)), delta)


def renyi_vector(events: Sequence[PrivacyEvent]) -> tuple[int, ...]:
    """Return upper bounds of the total Renyi epsilon at each order, in units of 1e-12.

    Under `LATTICE_MARGIN`, the same on every machine. Raises PrivacyError for no events, as no draw
    is free; UncalibratedError if an event holds no positive finite noise.
    """
    merged = _with_margin(merge_events(events))
    if not merged:
        raise PrivacyError(field="renyi_vector", allowed="at least one event")
    with exactly():
        totals = [
            sum(event.count * event.renyi_epsilon(order) for event in merged) for order in ORDERS
        ]
    return tuple(units_up(Decimal(total)) for total in totals)


def _without_deltas(
    events: Sequence[PrivacyEvent], delta: float
) -> tuple[tuple[PrivacyEvent, ...], float]:
    """Take every event's own delta off the total; return the rest, PrivacyError if below 0.

    If the rest is (epsilon, delta')-DP, all events are so at delta' plus the sum of their own
    deltas (docs/method.md sections 10 and 19).
    """
    delta_events = [event for event in events if isinstance(event, DeclaredEvent | ThresholdEvent)]
    if not any(event.delta for event in delta_events):
        return tuple(events), delta
    rest = Fraction(delta) - sum(Fraction(event.delta) * event.count for event in delta_events)
    rest = Fraction(0) if abs(rest) < Fraction(DELTA_UNIT) / 2 else rest  # floats of one decimal
    if rest < 0:
        raise PrivacyError(field="delta", allowed="at least the sum of the events' own deltas")
    pure = (
        dataclasses.replace(event, delta=0.0) if isinstance(event, DeclaredEvent) else event
        for event in events
        if not isinstance(event, ThresholdEvent)
    )
    return tuple(pure), float_below(rest)


def _with_margin(merged: Sequence[PrivacyEvent]) -> tuple[Any, ...]:
    """Apply `LATTICE_MARGIN` to noise events; events of a pure epsilon are exact."""
    return tuple(
        dataclasses.replace(event, noise_multiplier=event.noise_multiplier / (1 + LATTICE_MARGIN))
        if isinstance(event, NoiseEvent)
        else event
        for event in merged
    )


def _only_gaussian(merged: Sequence[PrivacyEvent]) -> bool:
    return len(merged) == 1 and isinstance(merged[0], GaussianEvent)


# A plan's search, its promise and its certificate ask for the same totals.
@functools.lru_cache(maxsize=512)
def _approximate_epsilon(merged: tuple[Any, ...], delta: float, grid: float) -> float:
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
        event.noise_multiplier >= _SMALLEST_PLD_MULTIPLIER
        for event in merged
        if isinstance(event, NoiseEvent)
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


# Privacy loss distributions

_FINEST_GRID = 1e-5


def compose_privacy_losses(merged: Sequence[PrivacyEvent], grid: float) -> Any:
    """Return the pessimistic PLD of merged events (at least one); `grid` may become finer."""
    selections = [event for event in merged if isinstance(event, ExponentialMechanismEvent)]
    # One block of selections at most may use the sharper curve: see `dpiw.privacy.gaussian`.
    block = max(selections, key=lambda event: event.count * event.epsilon**2, default=None)
    step = _step(merged, grid)
    plds = [event_privacy_loss(event, step, as_block=event is block) for event in merged]
    return functools.reduce(lambda total, part: total.compose(part), plds)


def optimistic_privacy_losses(merged: Sequence[PrivacyEvent], grid: float) -> Any | None:
    """Return the PLD with every loss rounded down: no sound bound is below it.

    None with selections among the events: their curves are bounds, and other bounds may be lower.
    """
    if not all(event.exact for event in merged):
        return None
    step = _step(merged, grid)
    plds = [_composed(event.privacy_loss(step, down=True), event.count) for event in merged]
    return functools.reduce(lambda total, part: total.compose(part), plds)


# A search over one part of a run asks for the other parts' PLDs again and again.
@functools.lru_cache(maxsize=8)
def event_privacy_loss(event: PrivacyEvent, grid: float, *, as_block: bool = False) -> Any:
    """Return the PLD of one event with its count; `as_block` as in `dpiw.privacy.gaussian`."""
    as_block = as_block and event.count > 1 and block_is_cheap(event.count)
    if as_block and isinstance(event, ExponentialMechanismEvent):
        return event.block_privacy_loss(grid)
    return _composed(event.privacy_loss(grid), event.count)


def _composed(single: Any, count: int) -> Any:
    return single if count == 1 else single.self_compose(count)


def _step(merged: Sequence[PrivacyEvent], grid: float) -> float:
    """A grid coarser than a pure event's largest loss would round many of its losses far up."""
    losses = [dataclasses.replace(event, count=1).pure for event in merged]
    return min([grid, *(max(_FINEST_GRID, loss / 10) for loss in losses)])
