"""Privacy loss distributions (PLDs) of events together, pessimistic on a grid.

Source: Koskela et al. (2020); Doroshenko et al. (2022) for the discretisation, through
`dp_accounting`. The PLD of one event is its own (`dpiw.privacy.events`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from dpiw.privacy.bounded_range import block_is_cheap
from dpiw.privacy.events import ExponentialMechanismEvent, PrivacyEvent

_FINEST_GRID = 1e-5


def compose_privacy_losses(merged: Sequence[PrivacyEvent], grid: float) -> Any:
    """The PLD of all events together.

    Args:
        merged: at least one event, from `dpiw.privacy.events.merge_events`.
        grid: step of the privacy loss; a finer one is used where single events need it.

    Returns:
        A `dp_accounting` privacy loss distribution, pessimistic.
    """
    selections = [event for event in merged if isinstance(event, ExponentialMechanismEvent)]
    # One block of selections at most may use the sharper curve: see `dpiw.privacy.bounded_range`.
    block = max(selections, key=lambda event: event.count * event.epsilon**2, default=None)
    step = _step(merged, grid)
    plds = [event_privacy_loss(event, step, as_block=event is block) for event in merged]
    return functools.reduce(lambda total, part: total.compose(part), plds)


def optimistic_privacy_losses(merged: Sequence[PrivacyEvent], grid: float) -> Any | None:
    """As `compose_privacy_losses`, with every loss rounded down: no sound bound is below it.

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
    """The PLD of one event, its count included; `as_block` as in `dpiw.privacy.bounded_range`."""
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
