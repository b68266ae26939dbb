"""What every kind of privacy event says, and the library that accounts for it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np

from dpiw.errors import PrivacyError, UncalibratedError
from dpiw.privacy.bounded_range import FloatArray
from dpiw.privacy.units import NoiseKind


class EventKind(ABC):
    """What every kind says: of one of its `count` mechanisms, where nothing else is said."""

    count: int
    exact = True
    """Whether the PLD's curve is the mechanism's own; if not, it bounds it from above."""

    @property
    @abstractmethod
    def strength(self) -> float:
        """What must be finite and positive: a noise multiplier or an epsilon."""

    @property
    def pure(self) -> float:
        """Epsilon of all `count` at delta = 0; infinite if there is none."""
        return math.inf

    def check(self) -> None:
        """Raise as `check_event`."""
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise PrivacyError("privacy event: expected a whole count >= 1")
        if not (math.isfinite(self.strength) and self.strength > 0):
            raise UncalibratedError(
                f"{type(self).__name__}: expected a finite noise multiplier or epsilon > 0"
            )

    @abstractmethod
    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Upper bound of the Renyi divergence at `order` > 1, in the caller's decimal context."""

    @abstractmethod
    def dp_event(self) -> Any:
        """The form in `dp_accounting`."""

    @abstractmethod
    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """The PLD of `dp_accounting` on a grid, rounded up; `down` (only if `exact`): down."""


class NoiseEvent(EventKind):
    """The kinds whose cost is that of noise with a `noise_multiplier`."""

    noise_multiplier: float
    laws: ClassVar[frozenset[NoiseKind]]
    """Laws of noise that the kind accounts for."""

    @property
    def strength(self) -> float:
        """The noise multiplier."""
        return self.noise_multiplier


def library() -> Any:
    """Loaded when the first event needs it."""
    import dp_accounting

    return dp_accounting


def pld_library() -> Any:
    """Its privacy loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def rounding(grid: float, down: bool) -> dict[str, Any]:
    """How a PLD is put on a grid, as that library's arguments."""
    return {
        "value_discretization_interval": grid,
        "pessimistic_estimate": not down,
        "use_connect_dots": not down,
    }


def bounded_pld(grid: float, largest: float, curve: Callable[[FloatArray], FloatArray]) -> Any:
    """The PLD of a curve above a mechanism's own, for losses of at most `largest`."""
    from dp_accounting.pld import pld_pmf

    reach = math.ceil(largest / grid)
    support = np.arange(-reach, reach + 1)
    above = np.clip(curve((support * grid).astype(np.float64)), 0.0, 1.0)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(grid, support, above)
    return pld_library().PrivacyLossDistribution(pmf)
