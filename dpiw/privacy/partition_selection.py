"""Which levels a column has, without showing one that a single person holds.

Every level that occurs gets a noisy count, and those at or above a public threshold are shown. That
a level occurs at all is what neighbours may differ in: a delta of its own pays for the chance that
one shows although a single unit holds all its rows.

Source: Desfontaines, Voss, Gipson & Mandayam (2022), "Differentially private partition selection";
with Gaussian noise Swanberg, Desfontaines & Haney (2023), "DP-SIPS"; the bound for several rows and
the proof for both relations: docs/method.md section 19.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dpiw.errors import PrivacyError, UncalibratedError
from dpiw.privacy.event_base import EventKind, library, pld_library

_LATTICE = 2.0**-20
"""Most of a lattice step, in noise scales (`dpiw.privacy.mechanisms`): its tail is no heavier than
the continuous one a step nearer."""

_UP = 1 + 1e-9
"""Against the error of the quantile."""


@dataclass(frozen=True, kw_only=True)
class ThresholdEvent(EventKind):
    """`count` columns of noisy counts, of each of which only those above a threshold are shown.

    With probability `delta` at most each shows a level that one unit alone holds; else nothing that
    the noise on the counts, an event of its own, does not pay for. The total's delta is the sum.
    """

    delta: float
    count: int = 1
    exact = False

    @property
    def strength(self) -> float:
        """Delta."""
        return self.delta

    def check(self) -> None:
        """Also that delta is one."""
        super().check()
        if self.delta >= 1:
            raise PrivacyError("privacy event: expected a delta in (0, 1)")

    def renyi_epsilon(self, order: Decimal) -> Decimal:
        """Infinite: what shows has probability zero without the unit."""
        return Decimal("Infinity")

    def dp_event(self) -> Any:
        """None there; what its delta does not cover is nothing."""
        return library().NoOpDpEvent()

    def privacy_loss(self, grid: float, *, down: bool = False) -> Any:
        """Likewise: none."""
        assert not down
        return pld_library().identity(grid)


def level_threshold(*, scale: float, rows: int, delta: float) -> float:
    """The least noisy count at which a level is shown.

    A unit's rows lie on levels that nobody else has, c_l on level l. With q(c) the chance that
    Gaussian noise takes a count c to the threshold, one shows with probability sum_l q(c_l) at
    most, by the union bound. q is convex below the threshold, so the sum is largest with all rows
    on one level or each on its own: max(q(rows), rows q(1)).

    Args:
        scale: standard deviation of the noise on the lattice of `mechanisms.noisy_counts`, in rows.
        rows: most rows of one unit.
        delta: of the column, in (0, 1/2).

    Returns:
        In rows, rounded up.

    Raises:
        UncalibratedError: no noise, no rows, or a delta outside (0, 1/2).
    """
    from scipy.special import ndtri

    if not (math.isfinite(scale) and scale > 0 and rows >= 1 and 0 < delta < 0.5):
        raise UncalibratedError("threshold: expected noise, rows >= 1 and 0 < delta < 1/2")
    whole, single = (-float(ndtri(part)) for part in (delta, delta / rows))
    return (max(rows + scale * whole, 1 + scale * single) + scale * _LATTICE) * _UP
