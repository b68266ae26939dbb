"""Events: what JSON keeps of them, what is refused, and their forms elsewhere."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dpiw.errors import PrivacyError, UncalibratedError
from dpiw.ledger.entries import canonical, entry_json
from dpiw.privacy.accounting import (
    epsilon,
    event_from_json,
    event_to_json,
    stored_event,
    to_dp_event,
)
from dpiw.privacy.events import (
    EVENT_TYPES,
    GaussianEvent,
    PrivacyEvent,
    ThresholdEvent,
    merge_events,
)
from tests.support.events import declared, gaussian, laplace, selection, sgd


@pytest.mark.parametrize(
    "event",
    [
        gaussian(2.5, 3),
        laplace(1.25),
        selection(0.1, 14),
        sgd(1.1, 800, 0.0128),
        declared(0.7, 1e-7),
        ThresholdEvent(delta=1e-7, count=2),
    ],
)
def test_events_survive_json(event: PrivacyEvent) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
    assert stored_event(json.loads(entry_json(canonical(event_to_json(event), field="e")))) == (
        event
    )


def test_every_kind_of_event_is_among_these_tests() -> None:
    made = [
        gaussian(1.0), laplace(1.0), selection(1.0), sgd(1.0, 1), declared(1.0),
        ThresholdEvent(delta=0.1),
    ]  # fmt: skip
    assert {type(event) for event in made} == set(EVENT_TYPES.values())
    assert len(made) == len(EVENT_TYPES)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ({"type": "os.system", "count": 1}, "type must be one of"),
        ({"count": 1}, "type must be one of"),
        ({"type": "gaussian", "noise_multiplier": 1.0}, "fields"),
        ({"type": "gaussian", "noise_multiplier": 1.0, "count": 1, "x": 1}, "fields"),
        ({"type": "gaussian", "noise_multiplier": "1", "count": 1}, "numbers"),
        ({"type": "gaussian", "noise_multiplier": True, "count": 1}, "numbers"),
        ({"type": "gaussian", "noise_multiplier": 1.0, "count": 0}, "count"),
        ({"type": "gaussian", "noise_multiplier": 1.0, "count": 1.5}, "count"),
    ],
)
def test_foreign_json_is_refused(data: dict[str, Any], match: str) -> None:
    with pytest.raises(PrivacyError, match=match):
        event_from_json(data)


@pytest.mark.parametrize("strength", [0.0, -1.0, math.inf, math.nan])
def test_events_without_noise_are_refused(strength: float) -> None:
    for event in (
        gaussian(strength), laplace(strength), selection(strength), sgd(strength, 5),
    ):  # fmt: skip
        with pytest.raises(UncalibratedError, match=type(event).__name__):
            epsilon([event], delta=1e-6)


@pytest.mark.parametrize("probability", [0.0, 1.5, math.nan])
def test_sampling_probabilities_outside_their_range_are_refused(probability: float) -> None:
    with pytest.raises(PrivacyError, match="sampling probability"):
        epsilon([sgd(1.0, 5, probability)], delta=1e-6)


def test_unknown_events_are_refused() -> None:
    with pytest.raises(PrivacyError, match="unknown type object"):
        epsilon([object()], delta=1e-6)  # type: ignore[list-item]


def test_merging_gaussians_is_exact() -> None:
    (merged,) = merge_events([gaussian(3.0), gaussian(4.0), gaussian(6.0, 2)])
    assert isinstance(merged, GaussianEvent)
    assert merged.noise_multiplier == pytest.approx((1 / 9 + 1 / 16 + 2 / 36) ** -0.5)


def test_dp_accounting_forms() -> None:
    import dp_accounting as dpa

    assert to_dp_event(gaussian(2.0, 3)) == dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(2.0), 3)
    assert to_dp_event(laplace(2.0)) == dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(2.0), 1)
    assert to_dp_event(selection(0.4)).event == dpa.ZCDpEvent(rho=pytest.approx(0.02))
    assert to_dp_event(sgd(2.0, 5)).event == dpa.PoissonSampledDpEvent(
        0.01, dpa.GaussianDpEvent(2.0)
    )
