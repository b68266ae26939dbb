"""What all games of networks keep to: draws that are accounted, noise alone that leaves, resumes.

Of images and of rows, with known marginals and without, and of PATE where it has the same promise.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest

from dpiw.errors import PrivacyError
from dpiw.methods.generators.gan import design
from dpiw.methods.generators.gan import pategan as module
from dpiw.methods.generators.gan import teachers as parties
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.heads import Heads
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.gan.teachers import Teachers
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.registry import make_generator
from dpiw.methods.neural import dp_sgd
from dpiw.plan.plan import compile_plan
from dpiw.privacy import mechanisms
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.generators import image_world, neural_world, pate_world
from tests.dpiw.methods.generators.neural_world import (
    SCHEMA,
    UNIT,
    Counting,
    Turning,
    assert_tables_do_not_interfere,
    settle_on_few_rows,
    table,
    with_marginals,
)
from tests.support.around import around
from tests.support.small import SMALL
from tests.support.specs import spec
from tests.support.training_watch import KilledError, Recorder


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    settle_on_few_rows(monkeypatch)


GAMES = {
    "dpgan": neural_world.ready, "dpcgan": partial(neural_world.ready, DPCGAN),
    "unsettled": partial(neural_world.ready, settle=0.0),
    "wasserstein": partial(neural_world.ready, DPCGAN, loss="wasserstein"),
    "marginals": with_marginals, "marginals and label": partial(with_marginals, DPCGAN),
    "images": image_world.ready,
    "images, wasserstein": partial(image_world.ready, loss="wasserstein"),
}  # fmt: skip
games = pytest.mark.parametrize("name", GAMES)
KINDS = [DPGAN, DPCGAN, PATEGAN]


def world(name):
    return image_world if name.startswith("images") else neural_world


@games
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_as_many_draws_as_accounted(name, rows):
    """One Gaussian vector and one lot per step, of the event's noise and rate; empty lots too."""
    generator, noise = GAMES[name](), Counting()
    generator.measure(world(name).table(rows), noise=noise)
    event = generator.events(schema=world(name).SCHEMA, unit=UNIT)[-1]
    assert len(noise.scales) == len(noise.lots) == 8
    assert event.count == 9  # with the step that one resume may repeat
    np.testing.assert_allclose(noise.scales, event.noise_multiplier * generator.clip)
    assert {rate for rate, _ in noise.lots} == {event.sampling_probability} == {0.25}


@pytest.mark.parametrize("name", [*GAMES, "pate", "pate with marginals"])
def test_tables_do_not_interfere(name, monkeypatch):
    """Parameters, shapes and facts are those of the noisy values alone."""
    pates = {"pate": pate_world.ready, "pate with marginals": partial(with_marginals, PATEGAN)}
    ready = (GAMES | pates)[name]
    assert_tables_do_not_interfere(ready(), monkeypatch, table=world(name).table)


def exact_proportions(patch):
    """The labels' exact counts, as conditional GANs are usually trained."""
    patch.setattr(
        DPCGAN, "_proportions",
        lambda self, design, _, scaled, noise: design.given.encode(scaled).sum(axis=0) + 1,
    )  # fmt: skip


def divisor_from_data(patch):
    """The mean over the lot that was drawn."""
    step = dp_sgd.PrivateTraining.private_step

    def private_step(self, state, lots, *, noise, public=None):
        size = max(1, lots.rows.shape[0])
        moved = dataclasses.replace(self, divisor=float(size))
        state = dataclasses.replace(state, settings=moved.digest)
        after = step(moved, state, lots, noise=noise, public=public)
        return dataclasses.replace(after, settings=self.digest)

    patch.setattr(dp_sgd.PrivateTraining, "private_step", private_step)


def batch_by_size(patch):
    measure = DPCGAN.measure

    def by_size(self, table, *, noise):
        rows = table.confidential().rows
        return measure(dataclasses.replace(self, batch=5 + rows % 5), table, noise=noise)

    patch.setattr(DPCGAN, "measure", by_size)


def real_rows_for_the_generator(patch):
    """Initial parameters that have seen the table."""
    encode = design.Design.encode

    def seen(self, scaled):
        rows = encode(self, scaled)
        object.__setattr__(self, "generator", (5 + len(rows) % 3,))
        self.__dict__.pop("generator_architecture", None)
        return rows

    patch.setattr(design.Design, "encode", seen)


def a_trace_of_the_exact_sums(patch):
    update, seen = dp_sgd.PrivateTraining._updated, []

    def updated(self, state, gradient):
        return update(self, state, gradient + 1e-9 * seen[-1].numpy())

    around(dp_sgd, "clipped_sum", after=lambda total, *_, **__: seen.append(total),
           replace=patch.setattr)  # fmt: skip
    patch.setattr(dp_sgd.PrivateTraining, "_updated", updated)


def exact_counts(patch):
    draw = Histogram.measure

    def exact(self, table, *, noise):
        measurement = draw(self, table, noise=noise)
        codes = table.confidential().columns["sick"]
        return dataclasses.replace(
            measurement,
            arrays={**measurement.arrays, "one_way_2": np.bincount(codes, minlength=2) + 0.0},
        )

    patch.setattr(Histogram, "measure", exact)


def levelled_on_the_table(patch):
    """Offsets that give the table's own shares of levels."""
    encode = Heads.encode

    def encoded(self, scaled):
        rows = encode(self, scaled)
        if self.distributions is not None:
            levels = slice(*self.groups[0])
            seen = self.distributions.shares[levels] + 1e-3 * rows[:, levels].sum(axis=0)
            self.distributions.shares[levels] = seen / seen.sum()
        return rows

    patch.setattr(Heads, "encode", encoded)


def exact_votes(patch):
    patch.setattr(mechanisms, "noisy_counts", lambda counts, *, law, noise: counts.astype(float))
    patch.setattr("tests.dpiw.methods.generators.neural_world.blind", lambda patch: None)


def teachers_by_size(patch):
    start = Teachers.start.__func__

    def by_size(cls, rows, dealt, *, count, **facts):
        school = start(cls, rows, dealt, count=count, **facts)
        patch.setattr(module, "law_bias", len(rows), raising=False)
        return school

    patch.setattr(Teachers, "start", classmethod(by_size))
    play = PATEGAN._play
    patch.setattr(
        PATEGAN, "_play",
        lambda self, design, chance, ask, teachers, **where: play(
            self, design, chance, ask, 2 * (3 + module.law_bias % 5), **where
        ),
    )  # fmt: skip


def student_meets_real_rows(patch):
    start, met = Teachers.start.__func__, []

    def seen(cls, rows, dealt, **facts):
        met.append(rows[:1])
        return start(cls, rows, dealt, **facts)

    original = parties.Student.told
    patch.setattr(Teachers, "start", classmethod(seen))
    patch.setattr(
        parties.Student, "told",
        lambda self, rows, labels, *, memory: original(
            self, np.vstack([rows, *met[-1:]]), np.append(labels, [1.0] * len(met[-1])),
            memory=memory,
        ),
    )  # fmt: skip


PLANTS = [
    *((plant, GAMES["dpcgan"]) for plant in (
        exact_proportions, divisor_from_data, batch_by_size,
        real_rows_for_the_generator)),
    *((plant, partial(with_marginals, kind)) for kind in KINDS
      for plant in (exact_counts, levelled_on_the_table)),
    *((a_trace_of_the_exact_sums, GAMES[name]) for name in ("dpgan", "images")),
    *((plant, partial(pate_world.ready, rho=1e6)) for plant in (
        exact_votes, teachers_by_size, student_meets_real_rows)),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "ready"), PLANTS)
def test_a_planted_leak_is_found(plant, ready, monkeypatch):
    plant(monkeypatch)
    made = (image_world if ready is GAMES["images"] else neural_world).table
    with pytest.raises(AssertionError):
        assert_tables_do_not_interfere(ready(), monkeypatch, table=made)


@games
@pytest.mark.nightly_cases("[3-")
@pytest.mark.parametrize("at", [0, 3, 4, 8])
def test_a_resumed_game_is_the_game_that_was_not_stopped(name, at):
    """With the same noise from there on, bit for bit; step 4 is where the generator rests."""
    generator, rows = GAMES[name](settle=0.5), world(name).table(40)
    whole = generator.measure(rows, noise=Turning(1, at=at, then=2))
    killed = Recorder(dies_at=at)
    with pytest.raises(KilledError):
        generator.measure(rows, noise=SeededNoise(1), watch=killed)
    resumed = Recorder(resumed=killed.saved[at])
    measurement = generator.measure(rows, noise=SeededNoise(2), watch=resumed)
    assert measurement.to_bytes() == whole.to_bytes()
    assert resumed.steps == [(step, 8) for step in range(at + 1, 9)]


@pytest.mark.parametrize("ready", [GAMES["dpcgan"], GAMES["marginals"]])
def test_a_resumed_game_draws_no_histogram_again(ready, monkeypatch):
    generator, watch = ready(), Recorder()
    generator.measure(table(40), noise=SeededNoise(1), watch=watch)
    monkeypatch.setattr(mechanisms, "noisy_counts", lambda *_, **__: pytest.fail("drawn again"))
    noise = Counting()
    generator.measure(table(40), noise=noise, watch=Recorder(resumed=watch.saved[7]))
    assert len(noise.scales) == 1


def refused(generator, data):
    """By the training, and by what asks before a resume is used up."""
    with pytest.raises(PrivacyError):
        generator.measure(table(40), noise=SeededNoise(1), watch=Recorder(resumed=data))
    with pytest.raises(PrivacyError):
        generator.resumed_state(data, schema=SCHEMA)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "other",
    [{"batch": 5}, {"latent": 3}, {"learning_rate": 0.02}, {"marginals_share": 0.0}, {"start": 1},
     {"resumes": 2}],
)  # fmt: skip
def test_a_checkpoint_of_other_settings_is_refused(kind, other):
    """Whether steps are left to take or not."""
    watch, one = Recorder(), with_marginals(kind)
    with_marginals(kind, **other).measure(table(40), noise=SeededNoise(1), watch=watch)
    for at in (0, max(watch.saved)):
        refused(one, watch.saved[at])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_checkpoint_with_a_histogram_too_many_or_too_few_is_refused(kind, share):
    one, watch = with_marginals(kind, marginals_share=share), Recorder()
    one.measure(table(40), noise=SeededNoise(1), watch=watch)
    data = watch.saved[0]
    one.resumed_state(data, schema=SCHEMA)
    stored = Measurement.from_bytes(data)
    arrays = {"marginals": np.zeros(3, dtype=np.uint8)} | dict(stored.arrays)
    if share:
        del arrays["marginals"]
    else:
        counts = Histogram(bins=4).calibrate(rho=1, schema=SCHEMA, unit=UNIT, nominal_rows=40)
        drawn = counts.measure(table(40), noise=SeededNoise(1)).to_bytes()
        arrays["marginals"] = np.frombuffer(drawn, dtype=np.uint8)
    refused(one, dataclasses.replace(stored, arrays=arrays).to_bytes())


def test_a_checkpoint_that_is_none_or_names_no_settings_is_refused():
    """Games of earlier versions named none."""
    one, watch = with_marginals(), Recorder()
    end = one.measure(table(40), noise=SeededNoise(1), watch=watch)
    stored = Measurement.from_bytes(watch.saved[4])
    facts = {name: fact for name, fact in stored.facts.items() if name != "settings"}
    unnamed = dataclasses.replace(stored, facts=facts).to_bytes()
    for data in (b"something else", end.to_bytes(), unnamed):
        refused(one, data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_without_a_reserve_is_refused(kind):
    watch = Recorder()
    with_marginals(kind, resumes=0).measure(table(40), noise=SeededNoise(1), watch=watch)
    again = Recorder(resumed=watch.saved[0])
    with pytest.raises(PrivacyError, match="reserved"):
        with_marginals(kind, resumes=0).measure(table(40), noise=SeededNoise(1), watch=again)


@pytest.mark.parametrize("method", SMALL)
def test_it_is_planned_at_the_spec_s_total(method):
    generator = {"method": method, "settings": SMALL[method]}
    asked = spec(generator=generator, weights={"method": "none"}, nominal_rows=400)
    plan = compile_plan(asked, SCHEMA)
    assert 1 - 2e-4 <= plan.composed["pld"] <= 1
    (stage,) = plan.stages
    assert stage.resumption.is_paid_by([{"count": event.count} for event in stage.events])


@pytest.mark.parametrize("method", SMALL)
def test_the_start_is_public_and_changes_the_training(method):
    """The same noise from another start ends elsewhere; from the same start at the same place."""

    def measured(start):
        one = make_generator(method, SMALL[method] | {"start": start}, pure=False)
        ready = one.calibrate(rho=1.0, schema=SCHEMA, unit=UNIT, nominal_rows=40)
        assert ready.parameters()["start"] == start
        return ready.measure(table(40), noise=SeededNoise(1)).digest

    assert measured(0) == measured(0)
    assert measured(0) != measured(1)
