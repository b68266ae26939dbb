"""Bugs of generators, plans and samplers, and the checks that must find them."""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpiw.data.discretisation import Domain
from dpiw.errors import PrivacyError
from dpiw.methods.generators import marginal_noise
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.pgm.mst import MST
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.plan import plan as planning
from dpiw.plan.stages import PrivateMethods
from dpiw.privacy import accounting, mechanisms
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.gaussian import gaussian_epsilon
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit
from tests.dpiw.data.schema_example import TOY
from tests.dpiw.methods.generators import neural_world
from tests.proof import blind as noninterference
from tests.proof import generator_worlds as generators
from tests.proof.attacks import assault
from tests.support import specs
from tests.support.draws import Still, check_draws
from tests.support.noise import check_forks_draw_apart

ingest = importlib.import_module("dpiw.data.ingest")
ADD, REPLACE = generators.UNIT, generators.REPLACED
Patch = pytest.MonkeyPatch


# Checks
class Watching(SeededNoise):
    """Seeded noise that remembers selections: how far the scores lay apart, in noise scales."""

    def __init__(self) -> None:
        super().__init__(1)
        self.spreads: list[float] = []

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        self.spreads.append(float(np.ptp(scores)) / scale)
        return super().noisy_argmax(scores, scale=scale)


def check_draws_are_the_events():
    """As many draws as events, each of the event's multiplier times the sensitivity.

    Of these three, whose bugs are planted here; the contract tests ask every registered method.
    """
    public_schema = generators.schema(3)
    for unit in (ADD, REPLACE):
        for kind in (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE):
            for method in (Histogram(noise=kind), PrivBayes(noise=kind), MST(noise=kind)):
                ready = method.calibrate(rho=1.0, schema=public_schema, unit=unit, nominal_rows=500)
                one, other = (
                    lambda noise, m=ready, t=table: m.measure(t, noise=noise)
                    for table in generators.neighbours(public_schema, unit)
                )
                check_draws(ready, schema=public_schema, unit=unit, neighbours=(one, other))


def check_a_selection_has_its_law():
    """Scores S apart differ by epsilon/2 in the exponent."""
    for epsilon, sensitivity in ((1.0, 1.0), (1.6, 2.0)):
        noise, scores = Watching(), np.array([0.0, sensitivity])
        mechanisms.select(scores, epsilon=epsilon, sensitivity=sensitivity, noise=noise)
        assert noise.spreads == pytest.approx([epsilon / 2], rel=1e-6)


def check_a_canary_is_hidden():
    world = generators.histogram("gaussian", columns=2, tight=0)
    bound = assault(world, runs=800, noise=SeededNoise(7))
    assert bound.lower <= bound.claimed


def check_one_row_moves_one_cell():
    """Exact marginals of neighbours, for ordinary rows and extreme ones."""
    public_schema, whole = neural_world.SCHEMA, neural_world.table(30)
    ready = Histogram().calibrate(rho=1.0, schema=public_schema, unit=ADD, nominal_rows=500)
    scaled = whole.confidential()
    for row in range(scaled.rows):
        exact = [
            ready.measure(table, noise=Still()).arrays
            for table in (whole, neural_world.without(whole, row))
        ]
        for name, values in exact[0].items():
            assert np.abs(values - exact[1][name]).sum() <= 1


def check_a_blind_measurement_says_nothing():
    noninterference.compare_measurements("histogram", 6)


def check_neighbours_share_a_lattice():
    """Every output for one value must be possible for another (Mironov 2012)."""
    law = NoiseLaw(kind=NoiseKind.LAPLACE, scale=1.0, dimension=300)
    step = mechanisms.lattice_step(1.0)
    for value in (0.0, 1 / 3, 1.0):
        noisy = mechanisms.noisy_vector(np.full(300, value), law=law, noise=SecureNoise())
        assert np.array_equal(np.rint(noisy / step) * step, noisy)


def check_a_plan_costs_what_it_promises():
    """Every stage's events, by an accountant that the plan did not search with."""
    try:
        plan = planning.compile_plan(specs.spec(), specs.SCHEMA)
    except PrivacyError as error:  # the plan's own second look
        raise AssertionError("the plan contradicts itself") from error
    methods = (plan.generator, plan.weights)
    events = [e for m in methods for e in m.events(schema=plan.schema, unit=ADD)]
    bounds = accounting.epsilon_bounds(events, delta=1e-6)
    assert {stage.name for stage in plan.stages} == {"fit_generator", "fit_weights"}
    assert bounds.pld_below <= float(plan.spec.epsilon)


def check_gaussian_noise_costs_a_delta():
    event = GaussianEvent(noise_multiplier=1.0)
    assert accounting.epsilon([event], delta=1e-6) >= gaussian_epsilon(1.0, 1e-6)
    with pytest.raises(PrivacyError):
        accounting.epsilon([event], delta=0.0)


def check_rows_per_person():
    unit = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=2, id_column="id")
    frame = pd.DataFrame({"id": ["7"] * 9 + ["8"]})
    with tempfile.TemporaryDirectory() as folder:
        ids, person = [frame["id"]], TOY.column("id")
        assert ingest.rows_within_unit(ids, person, unit, directory=Path(folder)).sum() <= 3


CHECKS = [
    check_draws_are_the_events, check_a_selection_has_its_law, check_a_canary_is_hidden,
    check_one_row_moves_one_cell, check_a_blind_measurement_says_nothing,
    check_neighbours_share_a_lattice, check_a_plan_costs_what_it_promises,
    check_gaussian_noise_costs_a_delta, check_rows_per_person, check_forks_draw_apart,
]  # fmt: skip


# Bugs
def noise_of_a_share(patch):
    """Laplace noise for shares, put on counts."""
    real = marginal_noise.noise_scale
    for name in ("histogram", "privbayes"):
        module = importlib.import_module(f"dpiw.methods.generators.{name}")
        patch.setattr(module, "noise_scale", lambda *a, **k: real(*a, **k) / 500)


def add_for_replace(patch):
    patch.setattr(marginal_noise, "marginal_sensitivity", lambda unit, kind: float(unit.max_rows))


def one_budget_for_all_columns(patch):
    """Every column's marginal has the whole effort, and one is accounted."""
    real = Histogram.events

    def events(self, *, schema, unit):
        return tuple(dataclasses.replace(e, count=1) for e in real(self, schema=schema, unit=unit))

    patch.setattr(Histogram, "events", events)


def selection_without_the_two(patch):
    """Probabilities in exp(score epsilon / S)."""
    real = mechanisms.select
    patch.setattr(
        mechanisms, "select", lambda scores, *, epsilon, **rest: real(
            scores, epsilon=2 * epsilon, **rest)
    )  # fmt: skip


def half_the_noise(patch):
    real = mechanisms._draw
    patch.setattr(
        mechanisms, "_draw", lambda law, **rest: real(
            dataclasses.replace(law, scale=law.scale / 2), **rest)
    )  # fmt: skip


def bounds_from_data(patch):
    """Numbers are scaled by the least and greatest that were seen."""
    real = Domain.codes

    def codes(self, scaled):
        columns = {
            name: (v - np.nanmin(v)) / max(np.nanmax(v) - np.nanmin(v), 1e-9)
            if v.dtype.kind == "f" and len(v) else v
            for name, v in scaled.columns.items()
        }  # fmt: skip
        return real(self, dataclasses.replace(scaled, columns=columns))

    patch.setattr(Domain, "codes", codes)


def categories_from_data(patch):
    """Only levels that occur are released."""
    real = Histogram.measure

    def measure(self, table, *, noise):
        measurement = real(self, table, noise=noise)
        exact = real(self, table, noise=Still()).arrays if noise else {}
        levels = Domain.from_schema(table.schema, bins=measurement.facts["bins"]).codes(
            table.confidential()
        )
        seen = {f"one_way_{j}": np.unique(levels[:, j]) for j in range(len(exact))}
        return dataclasses.replace(
            measurement, arrays={name: measurement.arrays[name][seen[name]] for name in exact}
        )

    patch.setattr(Histogram, "measure", measure)


def float_noise(patch):
    rng = np.random.default_rng(1)
    patch.setattr(
        mechanisms, "noisy_vector", lambda vector, *, law, noise: vector + rng.laplace(
            scale=law.scale, size=law.dimension)
    )  # fmt: skip


def weights_for_nothing(patch):
    """The search for the noise forgets the second stage: each stage gets all of epsilon."""
    real = PrivateMethods.events
    patch.setattr(
        PrivateMethods, "events",
        lambda self, spec, schema: real(dataclasses.replace(self, weights=None), spec, schema),
    )  # fmt: skip


def no_delta(patch):
    """Gaussian noise taken for noise of a pure epsilon 1/m."""
    patch.setattr(
        accounting, "pure_epsilon",
        lambda events: sum(e.count / getattr(e, "noise_multiplier", 1.0) for e in events),
    )  # fmt: skip


def every_row_of_a_person(patch):
    patch.setattr(
        ingest,
        "rows_within_unit",
        lambda ids, *_, **__: np.ones(sum(map(len, ids)), dtype=bool),
    )


def a_buffer_that_is_forked(patch):
    state = np.random.default_rng()

    def gaussian(self, *, scale, size):
        return np.rint(state.normal(scale=scale, size=size)).astype(np.int64)

    patch.setattr(SecureNoise, "discrete_gaussian", gaussian)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bug:
    """A row of the panel: what is planted, where it is known from, what finds it."""

    plant: Callable[[Patch], None]
    known: str
    check: Callable[[], None]


BUGS = {
    "noise of shares on counts": Bug(
        plant=noise_of_a_share, check=check_draws_are_the_events,
        known="DataResponsibly/DataSynthesizer#34; noise too small: opendp/smartnoise-core#316"),
    "replace-one paid as add/remove": Bug(
        plant=add_for_replace, check=check_draws_are_the_events,
        known="google/differential-privacy#378"),
    "all columns on one column's budget": Bug(
        plant=one_budget_for_all_columns, check=check_draws_are_the_events,
        known="opendp/smartnoise-sdk#472; IBM/differential-privacy-library#104 (item 2)"),
    "exponential mechanism without the factor 2": Bug(
        plant=selection_without_the_two, check=check_a_selection_has_its_law, known="known class"),
    "half the noise": Bug(
        plant=half_the_noise, check=check_a_canary_is_hidden,
        known="opendp/smartnoise-core#316 (a sign gave too small a sigma)"),
    "bounds from data": Bug(
        plant=bounds_from_data, check=check_one_row_moves_one_cell,
        known="google/dpsynth#34; vanderschaarlab/synthcity#278; hazy/dpart#6"),
    "categories from data": Bug(
        plant=categories_from_data, check=check_a_blind_measurement_says_nothing,
        known="alan-turing-institute/reprosyn#38"),
    "floating-point Laplace noise": Bug(
        plant=float_noise, check=check_neighbours_share_a_lattice,
        known="Mironov 2012; opendp/smartnoise-core#242; IBM/differential-privacy-library#19"),
    "epsilon given twice": Bug(
        plant=weights_for_nothing, check=check_a_plan_costs_what_it_promises,
        known="IBM/differential-privacy-library#104 (item 2)"),
    "delta ignored": Bug(
        plant=no_delta, check=check_gaussian_noise_costs_a_delta, known="known class"),
    "any number of rows per person": Bug(
        plant=every_row_of_a_person, check=check_rows_per_person,
        known="known class: OpenMined/PipelineDP#263"),
    "a generator shared by forks": Bug(
        plant=a_buffer_that_is_forked, check=check_forks_draw_apart, known="opendp/opendp#2934"),
}  # fmt: skip
