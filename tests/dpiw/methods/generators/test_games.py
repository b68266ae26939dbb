"""What all games of networks keep to: draws that are accounted, noise alone that leaves, resumes.

Of images and of rows, with known marginals and without, and of PATE where it has the same promise.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest

from dpiw.errors import PrivacyError
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.registry import make_generator
from dpiw.plan.plan import compile_plan
from dpiw.privacy import mechanisms
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.generators import image_world, leaks, neural_world, pate_world
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
from tests.support.small import SMALL
from tests.support.specs import spec
from tests.support.training_watch import KilledError, Recorder


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    settle_on_few_rows(monkeypatch)


GAMES = {
    "dpgan": neural_world.ready,
    "dpcgan": partial(neural_world.ready, DPCGAN),
    "unsettled": partial(neural_world.ready, settle=0.0),
    "wasserstein": partial(neural_world.ready, DPCGAN, loss="wasserstein"),
    "marginals": with_marginals,
    "marginals and label": partial(with_marginals, DPCGAN),
    "images": image_world.ready,
    "images, wasserstein": partial(image_world.ready, loss="wasserstein"),
}
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


PLANTS = [
    *((plant, GAMES["dpcgan"]) for plant in (
        leaks.exact_proportions, leaks.divisor_from_data, leaks.batch_by_size,
        leaks.real_rows_for_the_generator)),
    *((plant, partial(with_marginals, kind)) for kind in KINDS
      for plant in (leaks.exact_counts, leaks.levelled_on_the_table)),
    (leaks.a_trace_of_the_exact_sums, GAMES["dpgan"]),
    *((plant, partial(pate_world.ready, rho=1e6)) for plant in (
        leaks.exact_votes, leaks.teachers_by_size, leaks.student_meets_real_rows)),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "ready"), PLANTS)
def test_a_planted_leak_is_found(plant, ready, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_tables_do_not_interfere(ready(), monkeypatch)


def test_a_planted_leak_of_images_is_found(monkeypatch):
    leaks.a_trace_of_the_exact_sums(monkeypatch)
    with pytest.raises(AssertionError):
        assert_tables_do_not_interfere(image_world.ready(), monkeypatch, table=image_world.table)


@games
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


# Checkpoints


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


# Plans and settings


@pytest.mark.parametrize("method", SMALL)
def test_it_is_planned_at_the_spec_s_total(method):
    generator = {"method": method, "settings": SMALL[method]}
    asked = spec(generator=generator, weights={"method": "none"}, nominal_rows=400)
    plan = compile_plan(asked, SCHEMA)
    assert 1 - 2e-4 <= plan.epsilon_pld <= 1
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
