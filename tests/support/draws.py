"""Whether a method draws what it declares: laws at the door, events, and what enters the noise.

`check_draws` is for every method of both registries; `PROVED_ELSEWHERE` names those whose draws no
plain list of events foretells, and the test that proves each.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from dpiw.privacy import mechanisms
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent, LaplaceEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw


class Elsewhere(NamedTuple):
    """Why `check_draws` cannot judge a method, and the test that does."""

    reason: str
    test: str


REPEATED = "a resumed training may repeat steps, which are accounted and not drawn"
PROVED_ELSEWHERE = {
    "aim": Elsewhere(
        "noisy output decides what each round draws, and how many rounds there are",
        "dpiw/methods/generators/test_aim.py::test_all_draws_together_are_the_events"),
    "bayes": Elsewhere(
        "parameters are drawn part by part, and no noise is added",
        "proof/test_pseudo_posterior.py::test_the_method_keeps_its_events"),
    "pategan": Elsewhere(
        "each of a query's counts is an event, and a resumed run may repeat some",
        "dpiw/methods/generators/test_pategan.py::test_as_many_counts_as_accounted"),
    **dict.fromkeys(("dpgan", "dpcgan"), Elsewhere(
        REPEATED, "dpiw/methods/generators/test_games.py::test_as_many_draws_as_accounted")),
    "dp_mlp": Elsewhere(REPEATED, "dpiw/methods/neural/test_dp_mlp.py"
                        "::test_events_are_known_before_data_and_are_what_is_drawn"),
}  # fmt: skip


class Still(SeededNoise):
    """No noise, and the first candidate of every selection: what a method would release exactly."""

    def __init__(self) -> None:
        super().__init__(0)

    def discrete_gaussian(self, *, scale: float, size: int) -> Any:
        return np.zeros(size, dtype=np.int64)

    discrete_laplace = discrete_gaussian

    def spherical_laplace(self, *, scale: float, dimension: int) -> Any:
        return np.zeros(dimension, dtype=np.int64)

    def gaussian_vector(self, *, scale: float, size: int) -> Any:
        return np.zeros(size)

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        return 0


Measure = Callable[[Any], Measurement]
"""From a source of noise to a measurement of one table."""


def drawn(measure: Measure) -> tuple[list[NoiseLaw], list[float]]:
    """The laws that passed the door of all noise, and the epsilon of every selection, in order."""
    laws: list[NoiseLaw] = []
    selections: list[float] = []
    draw, select = mechanisms._draw, mechanisms.select

    def watched_draw(law: NoiseLaw, **rest: Any) -> Any:
        laws.append(law)
        return draw(law, **rest)

    def watched_select(scores: Any, *, epsilon: float, **rest: Any) -> int:
        selections.append(epsilon)
        return select(scores, epsilon=epsilon, **rest)

    with mock.patch.multiple(mechanisms, _draw=watched_draw, select=watched_select):
        measure(SeededNoise(1))
    return laws, selections


def check_draws(
    method: Any, *, schema: Any, unit: Any, neighbours: tuple[Measure, Measure]
) -> None:
    """Assert that a method draws, declares and states the same.

    As many draws as its events count, each of scale multiplier times the stated sensitivity; as
    many selections, each of its epsilon; the law that is stated, which its event accounts for; the
    measurement states what the method does; the table decides neither that nor what is written
    beside the arrays; and all values of two tables that differ by one unit, as `neighbours`
    measures them, lie no further apart than the events account for, each array behind noise.
    """
    events = method.events(schema=schema, unit=unit)
    stated = method.released_noise(schema=schema, unit=unit)
    by_event = {law.event: law for law in stated}
    laws, selections = drawn(neighbours[0])
    other_laws, other_selections = drawn(neighbours[1])
    by_table = [[(law.kind, law.scale) for law in each] for each in (laws, other_laws)]
    assert by_table[0] == by_table[1], "the table decides what is drawn"
    assert selections == other_selections, "the table decides what is selected"
    assert all(isinstance(events[law.event], ACCOUNTED_BY[law.law]) for law in stated), "other law"
    expected = [
        (by_event[place].law, event.noise_multiplier * by_event[place].sensitivity)
        if place in by_event
        else (None, np.nan)
        for place, event in enumerate(events)
        if hasattr(event, "noise_multiplier")
        for _ in range(event.count)
    ]
    kinds, scales = [law.kind for law in laws], [law.scale for law in laws]
    assert kinds == [kind for kind, _ in expected], "draws are not the events"
    np.testing.assert_allclose(
        scales, [scale for _, scale in expected], rtol=1e-6, err_msg="draws are not the events"
    )
    chosen = [
        e.epsilon
        for e in events
        if isinstance(e, ExponentialMechanismEvent)
        for _ in range(e.count)
    ]
    np.testing.assert_allclose(
        selections, chosen, rtol=1e-9, err_msg="selections are not the events"
    )
    measurement = neighbours[0](SeededNoise(1))
    assert Measurement.from_bytes(measurement.to_bytes()).noise == measurement.noise == stated
    still = [measure(Still()) for measure in neighbours]
    arrays = [each.arrays for each in still]
    outside = [(each.kind, each.facts, [(n, a.shape) for n, a in each.arrays.items()])
               for each in still]  # fmt: skip
    assert outside[0] == outside[1], "the table is told outside of noisy values"
    _check_sensitivity(events, stated, *arrays)
    again = neighbours[0](SeededNoise(2)).arrays
    for name, values in arrays[0].items():
        is_private = not np.array_equal(values, arrays[1][name])
        repeated = np.array_equal(measurement.arrays[name], again[name])
        assert not (is_private and repeated), f"{name} has no noise"


ACCOUNTED_BY = {
    NoiseKind.GAUSSIAN: GaussianEvent,
    NoiseKind.LAPLACE: LaplaceEvent,
    NoiseKind.SPHERICAL: LaplaceEvent,
}
"""The event that accounts for noise of a law."""


def _check_sensitivity(events: Any, stated: Any, one: Any, other: Any) -> None:
    """What one unit moves, in scales of the noise: each array, and all of them by the events."""
    assert one.keys() == other.keys()
    pure = any(law.law is not NoiseKind.GAUSSIAN for law in stated)
    power = 1 if pure else 2
    spent = 0.0
    for name, values in one.items():
        own = [law for law in stated if name.startswith(law.values)] or stated
        moved = np.linalg.norm(
            (values - other[name]).ravel(), ord=1 if own and own[0].law is NoiseKind.LAPLACE else 2
        )
        reach = max((law.sensitivity for law in own), default=0.0)
        assert moved <= reach * (1 + 1e-9), f"{name} moves by more than the stated sensitivity"
        spent += (moved / max((law.scale for law in own), default=1.0)) ** power
    paid = sum(event.count / event.noise_multiplier**power for event in events
               if hasattr(event, "noise_multiplier"))  # fmt: skip
    assert spent <= paid * (1 + 1e-6), (
        "all values together move by more than the events account for"
    )
