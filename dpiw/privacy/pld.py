"""Privacy loss distributions (PLDs) of events, pessimistic on a grid.

Source: Koskela et al. (2020); Doroshenko et al. (2022) for the discretisation, through
`dp_accounting`. Selections by the exponential mechanism, which it lacks, come from the curves of
`dpiw.privacy.bounded_range`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpiw.privacy.bounded_range import block_curve, block_is_cheap, selection_curve
from dpiw.privacy.events import (
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
)

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
    step = min([grid, *(max(_FINEST_GRID, _loss(event) / 10) for event in merged)])
    plds = [event_privacy_loss(event, step, as_block=event is block) for event in merged]
    return functools.reduce(lambda total, part: total.compose(part), plds)


def _loss(event: PrivacyEvent) -> float:
    """Largest loss of one pure event: a grid coarser than it would round many of them far up."""
    if isinstance(event, ExponentialMechanismEvent):
        return event.epsilon
    return 1 / event.noise_multiplier if isinstance(event, LaplaceEvent) else math.inf


# A search over one part of a run asks for the other parts' PLDs again and again.
@functools.lru_cache(maxsize=8)
def event_privacy_loss(event: PrivacyEvent, grid: float, *, as_block: bool = False) -> Any:
    """The PLD of one event, its count included; `as_block` as in `dpiw.privacy.bounded_range`."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if isinstance(event, GaussianEvent):
        single = pld.from_gaussian_mechanism(
            event.noise_multiplier, value_discretization_interval=grid
        )
    elif isinstance(event, LaplaceEvent):
        single = pld.from_laplace_mechanism(
            event.noise_multiplier, value_discretization_interval=grid
        )
    elif isinstance(event, ExponentialMechanismEvent):
        return _selection_pld(event, grid, as_block=as_block)
    else:
        single = pld.from_gaussian_mechanism(
            event.noise_multiplier,
            value_discretization_interval=grid,
            sampling_prob=event.sampling_probability,
        )
    return single if event.count == 1 else single.self_compose(event.count)


def _selection_pld(event: ExponentialMechanismEvent, grid: float, *, as_block: bool) -> Any:
    """The PLD of all the event's selections, rounded up onto the grid."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    as_block = as_block and event.count > 1 and block_is_cheap(event.count)
    # A block's lattice covers a range of epsilon times at most 1 + 1/16.
    reach = math.ceil(event.epsilon * (1.07 * event.count if as_block else 1) / grid)
    support = np.arange(-reach, reach + 1)
    order = (support * grid).astype(np.float64)
    if as_block:
        curve = block_curve(event.epsilon, event.count, order)
    else:
        curve = selection_curve(event.epsilon, order)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(grid, support, np.clip(curve, 0.0, 1.0))
    total = pld.PrivacyLossDistribution(pmf)
    return total if as_block or event.count == 1 else total.self_compose(event.count)


def optimistic_privacy_losses(merged: Sequence[PrivacyEvent], grid: float) -> Any | None:
    """As `compose_privacy_losses`, with every loss rounded down: no sound bound is below it.

    None with selections among the events: their curves are bounds, and other bounds may be lower.
    """
    kinds = (GaussianEvent, LaplaceEvent, PoissonSampledGaussianEvent)
    if not all(isinstance(event, kinds) for event in merged):
        return None
    step = min([grid, *(max(_FINEST_GRID, _loss(event) / 10) for event in merged)])
    plds = [_optimistic_pld(event, step) for event in merged]
    return functools.reduce(lambda total, part: total.compose(part), plds)


def _optimistic_pld(event: PrivacyEvent, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    down: dict[str, Any] = {
        "value_discretization_interval": grid,
        "pessimistic_estimate": False,
        "use_connect_dots": False,
    }
    if isinstance(event, GaussianEvent):
        single = pld.from_gaussian_mechanism(event.noise_multiplier, **down)
    elif isinstance(event, LaplaceEvent):
        single = pld.from_laplace_mechanism(event.noise_multiplier, **down)
    else:
        assert isinstance(event, PoissonSampledGaussianEvent)
        single = pld.from_gaussian_mechanism(
            event.noise_multiplier, sampling_prob=event.sampling_probability, **down
        )
    return single if event.count == 1 else single.self_compose(event.count)
