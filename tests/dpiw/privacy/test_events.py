"""Events: what JSON keeps of them, what is refused, and their forms elsewhere."""

import json
import math

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
from dpiw.privacy.events import EVENT_TYPES, GaussianEvent, ThresholdEvent, merge_events
from tests.support.events import declared, gaussian, laplace, selection, sgd

EVENTS = [
    gaussian(2.5, 3), laplace(1.25), selection(0.1, 14), sgd(1.1, 800, 0.0128),
    declared(0.7, 1e-7), ThresholdEvent(delta=1e-7, count=2),
]  # fmt: skip


def test_events_survive_json():
    for event in EVENTS:
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
        stored = canonical(event_to_json(event), field="e")
        assert not any(isinstance(value, float) for value in stored.values())
        assert stored_event(json.loads(entry_json(stored))) == event
    assert {type(event) for event in EVENTS} == set(EVENT_TYPES.values())


@pytest.mark.parametrize(
    "change",
    [
        {"type": "os.system"}, {"type": None}, {"x": 1}, {"noise_multiplier": "1"},
        {"noise_multiplier": True}, {"count": 0}, {"count": 1.5},
    ],
)  # fmt: skip
def test_foreign_json_is_refused(change):
    good = {"type": "gaussian", "noise_multiplier": 1.0, "count": 1}
    assert event_from_json(good) == gaussian(1.0)
    with pytest.raises(PrivacyError):
        event_from_json(good | change)
    for field in good:
        with pytest.raises(PrivacyError):
            event_from_json({name: value for name, value in good.items() if name != field})


@pytest.mark.parametrize("strength", [0.0, -1.0, math.inf, math.nan])
def test_events_without_noise_are_refused(strength):
    makes = (gaussian, laplace, selection, lambda of: sgd(of, 5))
    for event in (make(strength) for make in makes):
        with pytest.raises(UncalibratedError, match=type(event).__name__):
            epsilon([event], delta=1e-6)


@pytest.mark.parametrize("probability", [0.0, 1.5, math.nan])
def test_sampling_probabilities_outside_their_range_are_refused(probability):
    with pytest.raises(PrivacyError, match="sampling probability"):
        epsilon([sgd(1.0, 5, probability)], delta=1e-6)


def test_unknown_events_are_refused():
    with pytest.raises(PrivacyError, match="unknown type object"):
        epsilon([object()], delta=1e-6)  # type: ignore[list-item]


def test_merging_gaussians_is_exact():
    (merged,) = merge_events([gaussian(3.0), gaussian(4.0), gaussian(6.0, 2)])
    assert isinstance(merged, GaussianEvent)
    assert merged.noise_multiplier == pytest.approx((1 / 9 + 1 / 16 + 2 / 36) ** -0.5)


def test_dp_accounting_forms():
    import dp_accounting as dpa

    assert to_dp_event(gaussian(2.0, 3)) == dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(2.0), 3)
    assert to_dp_event(laplace(2.0)) == dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(2.0), 1)
    assert to_dp_event(selection(0.4)).event == dpa.ZCDpEvent(rho=pytest.approx(0.02))
    assert to_dp_event(sgd(2.0, 5)).event == dpa.PoissonSampledDpEvent(
        0.01, dpa.GaussianDpEvent(2.0)
    )
