"""A1: random compositions, accounted by roads that share nothing but the events' definitions.

The reported epsilon is not below the largest valid lower bound: the floor of the audit's own
accountant, which inverts transforms, and for one in twenty optimistic privacy loss distributions.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from dpiw.audit.accountant import audited_epsilon
from dpiw.privacy import accounting
from dpiw.privacy.events import (
    ExponentialMechanismEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
)
from tests.proof.figures import tiers
from tests.proof.neighbours import instead, scaled

SLACK = 1e-2
"""Both totals are upper bounds, and one may be looser than the other: by 0.9% in one of 5,000
compositions (Laplace with exponential mechanisms at delta 1e-8), else by the grid, 0.2%."""

BOUNDED = 20
"""Of as many compositions one is accounted by optimistic distributions as well: they are slow."""


def random_event(rng: np.random.Generator) -> PrivacyEvent:
    """One of every kind there is, as a plan might hold it."""
    multiplier = float(10 ** rng.uniform(-0.2, 1.8))
    count = int(10 ** rng.uniform(0, 1.5))
    kind = rng.integers(7)
    if kind <= 2:
        return GaussianEvent(noise_multiplier=multiplier, count=count)
    if kind <= 4:
        return LaplaceEvent(noise_multiplier=2 + multiplier * count, count=count)
    if kind == 5:
        return ExponentialMechanismEvent(epsilon=float(10 ** rng.uniform(-2, 0)), count=count)
    return PoissonSampledGaussianEvent(
        sampling_probability=float(10 ** rng.uniform(-3, -0.5)),
        noise_multiplier=float(rng.uniform(0.7, 3)), count=int(10 ** rng.uniform(0, 3)),
    )  # fmt: skip


def one_by_one(events: Sequence[PrivacyEvent], rng: np.random.Generator) -> list[PrivacyEvent]:
    """Every count in parts (singles where there are at most 40), in any order."""
    pieces: list[PrivacyEvent] = []
    for event in events:
        parts = [1] * event.count
        if event.count > 40:
            cuts = np.sort(rng.choice(np.arange(1, event.count), size=39, replace=False))
            parts = np.diff(np.r_[0, cuts, event.count]).tolist()
        pieces += [dataclasses.replace(event, count=int(part)) for part in parts]
    return [pieces[place] for place in rng.permutation(len(pieces))]


def dearer(event: PrivacyEvent, rng: np.random.Generator) -> PrivacyEvent:
    """The event with less noise, a larger sampling rate, or one more time."""
    changes = {"count": event.count + 1}
    for name, factor in (
        ("noise_multiplier", 0.9), ("epsilon", 1.1), ("sampling_probability", 1.15),
    ):  # fmt: skip
        if hasattr(event, name) and rng.random() < 0.6:
            changes = {name: getattr(event, name) * factor}
    return dataclasses.replace(event, **changes)


@dataclasses.dataclass
class Account:
    """Totals below a lower bound; k at once other than one by one, in any bit; and falling ones.

    A total falls if it does so beyond `SLACK` as a part gets dearer.
    """

    compositions: int = 0
    below: int = 0
    unequal: int = 0
    falling: int = 0
    largest_gap: float = 0.0
    """Of the reported total above the largest lower bound, relative."""

    def add(self, events: list[PrivacyEvent], delta: float, rng: np.random.Generator) -> None:
        reported = accounting.epsilon(events, delta=delta)
        lower = audited_epsilon(events, delta).floor
        if self.compositions % BOUNDED == 0:
            bounds = accounting.epsilon_bounds(events, delta=delta)
            assert reported == getattr(bounds, bounds.used)
            lower = max(lower, bounds.pld_below)
        split = accounting.epsilon(one_by_one(events, rng), delta=delta)
        dearer_events = [*events[:-1], dearer(events[-1], rng)]
        dear = accounting.epsilon(dearer_events, delta=delta, grid=1e-3)
        self.compositions += 1
        self.below += reported < lower
        self.largest_gap = max(self.largest_gap, reported / lower - 1 if lower > 0.05 else 0.0)
        self.unequal += split != reported
        self.falling += dear < reported * (1 - SLACK) - SLACK


def test_an_accountant_that_is_two_percent_too_low_is_found(rng, monkeypatch):
    """Test of the test: 2% off everywhere is below a lower bound at once."""
    account = Account()
    events: list[PrivacyEvent] = [
        GaussianEvent(noise_multiplier=5.0), LaplaceEvent(noise_multiplier=9.0, count=4),
    ]  # fmt: skip
    account.add(events, 1e-6, rng)
    assert account.below == 0

    def lower(real, *given, **named):
        bounds = real(*given, **named)
        return dataclasses.replace(bounds, pld=0.98 * bounds.pld)

    scaled(accounting, "epsilon", lambda *_: 0.98)(monkeypatch)
    instead(accounting, "epsilon_bounds", lower)(monkeypatch)
    account.add(events, 1e-6, rng)
    assert account.below == 1


def test_counts_that_are_ignored_are_found(rng, monkeypatch):
    """Test of the test: an accountant that forgets `count`."""
    account = Account()

    def once(real, events, **settings):
        return real([dataclasses.replace(event, count=1) for event in events], **settings)

    for name in ("epsilon", "epsilon_bounds"):
        instead(accounting, name, once)(monkeypatch)
    account.add([LaplaceEvent(noise_multiplier=20.0, count=10)], 1e-6, rng)
    assert account.below == 1
    assert account.unequal == 1


EVERY_KIND: list[PrivacyEvent] = [
    GaussianEvent(noise_multiplier=5.0, count=6),
    LaplaceEvent(noise_multiplier=20.0, count=6),
    ExponentialMechanismEvent(epsilon=0.1, count=6),
    PoissonSampledGaussianEvent(sampling_probability=0.05, noise_multiplier=1.5, count=6),
]


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_six_at_once_cost_what_six_singles_cost(event):
    """Each kind alone, as the few compositions of the slice may hold a kind but once."""
    whole = accounting.epsilon([event], delta=1e-6)
    singles = accounting.epsilon([dataclasses.replace(event, count=1)] * 6, delta=1e-6)
    assert whole == singles
    assert whole >= audited_epsilon([event], 1e-6).floor
    assert whole > 1.3 * accounting.epsilon([dataclasses.replace(event, count=1)], delta=1e-6)


@tiers("compositions", fast=2, full=1_000)
@pytest.mark.slow
def test_random_compositions_are_bounded_from_below_and_add_up(compositions, rng, prove):
    """A fault that one composition in a hundred shows is missed by all 1,000 with 4e-5."""
    account = Account()
    while account.compositions < compositions:
        events = [random_event(rng) for _ in range(rng.integers(1, 5))]
        account.add(events, float(10 ** rng.uniform(-9, -3)), rng)
    assert (account.below, account.unequal, account.falling) == (0, 0, 0)
    prove(
        "A1: totals of random compositions",
        f"{compositions:,} compositions: 0 below the largest lower bound, 0 k-fold other than"
        f" singles, 0 falling; furthest above the lower bound {account.largest_gap:.1%}",
    )
