"""Bugs of generators, plans, samplers, teachers and runs, and the checks that must find them."""

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.discretisation import Domain
from dpiw.errors import PrivacyError
from dpiw.ledger import Ledger, StageState
from dpiw.methods.generators import marginal_noise
from dpiw.methods.generators.gan.pategan import PATEGAN, vote_sensitivity
from dpiw.methods.generators.gan.teachers import Teachers, deal
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.pgm.mst import MST
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.neural.backend import CPU
from dpiw.plan import plan as planning
from dpiw.plan.stages import PrivateMethods
from dpiw.privacy import accounting, mechanisms
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.gaussian import gaussian_epsilon
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.dpiw.data.schema_example import TOY
from tests.dpiw.methods.generators import neural_world
from tests.dpiw.methods.generators import pate_world as pate
from tests.hostile.leaks import neighbours as leaks
from tests.proof import blind as noninterference
from tests.proof import generator_worlds as generators
from tests.proof.attacks import assault
from tests.proof.neighbours import Plant, instead, scaled
from tests.support import specs
from tests.support.draws import Still, check_draws, drawn
from tests.support.noise import check_forks_draw_apart

ingest = importlib.import_module("dpiw.data.source.ingest")
ADD, REPLACE = generators.UNIT, generators.REPLACED


# Checks
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

    def spread(scores, *, scale):
        return np.ptp(scores) / scale

    for epsilon, sensitivity in ((1.0, 1.0), (1.6, 2.0)):
        scores, noise = np.array([0.0, sensitivity]), SimpleNamespace(noisy_argmax=spread)
        apart = mechanisms.select(scores, epsilon=epsilon, sensitivity=sensitivity, noise=noise)
        assert apart == pytest.approx(epsilon / 2, rel=1e-6)


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


class Watched(SeededNoise):
    """Seeded noise that asks, at each draw, whether the stage is armed in the ledger."""

    current: Any = None
    """The last one made, for the bug that draws from it too early."""

    def __init__(self, run: ReleaseRun) -> None:
        super().__init__(1)
        self._run, self.early = run, 0
        Watched.current = self

    def discrete_gaussian(self, *, scale, size):
        stage = self._run.open_ledger().run(self._run.key).stages["fit_generator"]
        self.early += stage.state is not StageState.ARMED
        return super().discrete_gaussian(scale=scale, size=size)


def check_nothing_is_drawn_before_it_is_charged():
    with tempfile.TemporaryDirectory() as folder:
        places = SimpleNamespace(mktemp=lambda name: Path(tempfile.mkdtemp(name, dir=folder)))
        root = leaks.template_of(places).world(0, leaks.table(3))
        run = ReleaseRun.prepare(root / "release.yaml", period=None)
        steps.reserve(run)
        steps.ingest(run)
        noise = Watched(run)
        steps.fit_generator(run, noise=noise)
    assert noise.early == 0


def check_teachers_see_their_own_rows():
    dealt = deal(20, 3, noise=SeededNoise(2))
    pate.check_teachers_are_disjoint(pate.numbered(3, dealt), dealt)


def check_a_person_moves_one_vote():
    assert pate.largest_move([0, 1, 2], pate.coupled) <= vote_sensitivity(ADD, 3)


def check_every_vote_is_an_event():
    generator = pate.ready(resumes=0)
    laws, _ = drawn(lambda noise: generator.measure(neural_world.table(20), noise=noise))
    (event,) = generator.events(schema=neural_world.SCHEMA, unit=ADD)
    assert 12 == sum(law.dimension for law in laws) == event.count
    np.testing.assert_allclose([law.scale for law in laws], event.noise_multiplier, rtol=1e-9)


# Bugs
def bounds_from_data(real, self, scaled):
    """Numbers are scaled by the least and greatest that were seen."""
    columns = {
        name: (v - np.nanmin(v)) / max(np.nanmax(v) - np.nanmin(v), 1e-9)
        if v.dtype.kind == "f" and len(v) else v
        for name, v in scaled.columns.items()
    }  # fmt: skip
    return real(self, replace(scaled, columns=columns))


def categories_from_data(real, self, table, *, noise):
    """Only levels that occur are released."""
    measurement = real(self, table, noise=noise)
    domain = Domain.from_schema(table.schema, bins=measurement.facts["bins"])
    seen = [np.unique(codes) for codes in domain.codes(table.confidential()).T]
    arrays = {f"one_way_{j}": measurement.arrays[f"one_way_{j}"][s] for j, s in enumerate(seen)}
    return replace(measurement, arrays=arrays)


def noise_of_a_share(patch):
    """Laplace noise for shares, put on counts."""
    for name in ("histogram", "privbayes"):
        module = importlib.import_module(f"dpiw.methods.generators.{name}")
        scaled(module, "noise_scale", lambda *_: 1 / 500)(patch)


def a_buffer_that_is_forked(patch):
    state = np.random.default_rng()

    def gaussian(self, *, scale, size):
        return np.rint(state.normal(scale=scale, size=size)).astype(np.int64)

    patch.setattr(SecureNoise, "discrete_gaussian", gaussian)


def every_teacher_sees_all(real, self, size):
    """A fresh sample of the whole table for every teacher and step."""
    _, weights = real(self, size)
    rng = np.random.default_rng(self.step)
    return self.rows[rng.integers(0, len(self.rows), (len(self.sizes), size))], weights


def the_first_part_for_all(patch):
    """An index that does not advance: every teacher reads the first part."""
    real = Teachers.start.__func__

    def start(cls, *given, **named):
        teachers = real(cls, *given, **named)
        return replace(teachers, starts=np.zeros_like(teachers.starts))

    patch.setattr(Teachers, "start", classmethod(start))


def votes_without_a_clamp(_, self, asked):
    """Teachers add their logits instead of one vote each."""
    outputs = CPU.to_numpy(self._outputs(CPU.array(self.parameters), CPU.array(asked)))
    return np.rint(10 * outputs[:, :, 0].sum(axis=0)).astype(np.int64)


def charged_after_the_draw(real, *given, **named):
    Watched.current.discrete_gaussian(scale=1.0, size=1)
    return real(*given, **named)


FLOATS = np.random.default_rng(1)
BUGS: dict[str, tuple[Plant, Callable[[], None], str]] = {
    "noise of shares on counts": (
        noise_of_a_share, check_draws_are_the_events,
        "DataResponsibly/DataSynthesizer#34; noise too small: opendp/smartnoise-core#316"),
    "replace-one paid as add/remove": (
        instead(marginal_noise, "marginal_sensitivity", lambda _, unit, kind: 1.0 * unit.max_rows),
        check_draws_are_the_events, "google/differential-privacy#378"),
    "all columns on one column's budget": (
        instead(Histogram, "events", lambda real, *given, **named: tuple(
            replace(event, count=1) for event in real(*given, **named))),
        check_draws_are_the_events,
        "opendp/smartnoise-sdk#472; IBM/differential-privacy-library#104 (item 2)"),
    "exponential mechanism without the factor 2": (
        instead(mechanisms, "select", lambda real, scores, *, epsilon, **rest: real(
            scores, epsilon=2 * epsilon, **rest)),
        check_a_selection_has_its_law, "known class"),
    "half the noise": (
        instead(mechanisms, "_draw", lambda real, law, **rest: real(
            replace(law, scale=law.scale / 2), **rest)),
        check_a_canary_is_hidden, "opendp/smartnoise-core#316 (a sign gave too small a sigma)"),
    "bounds from data": (
        instead(Domain, "codes", bounds_from_data), check_one_row_moves_one_cell,
        "google/dpsynth#34; vanderschaarlab/synthcity#278; hazy/dpart#6"),
    "categories from data": (
        instead(Histogram, "measure", categories_from_data),
        check_a_blind_measurement_says_nothing, "alan-turing-institute/reprosyn#38"),
    "floating-point Laplace noise": (
        instead(mechanisms, "noisy_vector", lambda _, vector, *, law, noise: (
            vector + FLOATS.laplace(scale=law.scale, size=law.dimension))),
        check_neighbours_share_a_lattice,
        "Mironov 2012; opendp/smartnoise-core#242; IBM/differential-privacy-library#19"),
    "epsilon given twice": (  # each stage gets all of it
        instead(PrivateMethods, "events", lambda real, self, *given: real(
            replace(self, weights=None), *given)),
        check_a_plan_costs_what_it_promises, "IBM/differential-privacy-library#104 (item 2)"),
    "delta ignored": (  # Gaussian noise taken for noise of a pure epsilon 1/m
        instead(accounting, "pure_epsilon", lambda _, events: sum(
            e.count / getattr(e, "noise_multiplier", 1.0) for e in events)),
        check_gaussian_noise_costs_a_delta, "known class"),
    "any number of rows per person": (
        instead(ingest, "rows_within_unit", lambda _, ids, *__, **___: np.ones(
            sum(map(len, ids)), dtype=bool)),
        check_rows_per_person, "known class: OpenMined/PipelineDP#263"),
    "a generator shared by forks": (
        a_buffer_that_is_forked, check_forks_draw_apart, "opendp/opendp#2934"),
    "every teacher samples all rows": (
        instead(Teachers, "_lot", every_teacher_sees_all), check_teachers_see_their_own_rows,
        "vanderschaarlab/synthcity#275; arXiv 2406.13985"),
    "every teacher reads the first part": (
        the_first_part_for_all, check_teachers_see_their_own_rows,
        "vanderschaarlab/mlforhealthlabpub#29; arXiv 2406.13985"),
    "votes without a clamp": (
        instead(Teachers, "votes", votes_without_a_clamp), check_a_person_moves_one_vote,
        "known class"),
    "votes accounted by the round": (
        instead(PATEGAN, "events", lambda real, self, **given: tuple(
            replace(event, count=self.rounds) for event in real(self, **given))),
        check_every_vote_is_an_event,
        "vanderschaarlab/synthcity#276 (its accountant counts too little)"),
    "charged after the draw": (
        instead(Ledger, "arm", charged_after_the_draw), check_nothing_is_drawn_before_it_is_charged,
        "known class: opendp/smartnoise-sdk#424 (checked before, tallied after)"),
}  # fmt: skip
"""By name: what is planted, the check that must find it, and where it is known from."""
