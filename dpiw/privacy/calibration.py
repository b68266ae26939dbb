"""Search for the noise that meets a total cost (`dpiw.privacy.accounting`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpiw.errors import PrivacyError
from dpiw.privacy import accounting
from dpiw.privacy.events import PrivacyEvent


def calibrate(
    make_events: Callable[[float], Sequence[PrivacyEvent]], *, epsilon: float, delta: float
) -> float:
    """Return the effort rho whose events cost at most `epsilon` at `delta`, within 1e-4 of it.

    Where the cost jumps past the target, the effort just below the jump. The cost of
    `make_events` must be continuous and increasing in rho > 0. Raises PrivacyError for an
    inadmissible target, or if no rho in [1e-16, 1e16] times the first guess meets it.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyError("epsilon: expected a finite number > 0 to calibrate to")
    if not 0 <= delta < 1:
        raise PrivacyError("delta: expected a number in [0, 1)")
    log_rho = math.log(_first_guess(epsilon, delta))
    for grid in (10 * accounting.GRID, accounting.GRID):
        log_rho = _Search(make_events, epsilon=epsilon, delta=delta, grid=grid).solve(log_rho)
    return math.exp(log_rho)


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
        events = self._make_events(math.exp(log_rho))
        total = accounting.epsilon(events, delta=self._delta, grid=self._grid)
        # Compared before the logarithm, so that "not above" is exact.
        if total > self._target:
            return max(math.log(total / self._target), 1e-16)
        return math.log(max(total, 1e-300) / self._target)

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
            "calibration: no noise level meets the target epsilon; "
            "the events that do not depend on it may already cost more"
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
