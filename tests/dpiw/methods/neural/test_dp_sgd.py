"""The DP-SGD core: what it draws, what it charges, where it stops, how it resumes."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.methods.neural.checkpoints import Adam, TrainingState
from dpiw.privacy import accounting
from dpiw.privacy.events import PoissonSampledGaussianEvent
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from tests.dpiw.methods.neural import settings
from tests.support.training_watch import KilledError, Recorder
from tests.support.worlds import ADD, REPLACE, unit_of


def trained(noise, *, lots=None, **changes):
    training = settings.training(**changes)
    start = settings.start(training, noise)
    return start, training.train(start, settings.lots() if lots is None else lots, noise=noise)


def test_the_event_is_what_was_drawn(counting):
    trained(counting)
    (event,) = settings.training().events()
    assert event == PoissonSampledGaussianEvent(
        sampling_probability=0.25, noise_multiplier=1.5, count=20
    )
    assert len(counting.scales) == len(counting.lots) == event.count
    assert set(counting.scales) == {1.5 * 0.5}


def test_public_rows_enter_without_noise_and_without_budget(no_noise):
    training = settings.training(steps=3)
    start = settings.start(training, no_noise)
    lots = settings.lots(rows=np.empty((0, 3)))
    steps = []

    def public(network, step):
        steps.append(step)
        return settings.rows(np.full(network.architecture.size, 10.0))

    end = training.train(start, lots, noise=no_noise, public=public)
    assert steps == [0, 1, 2]
    np.testing.assert_allclose(start.parameters - end.parameters, 3.0)


def test_people_with_several_rows_get_more_noise_and_a_higher_rate():
    training = settings.training(unit=unit_of(ADD, 3))
    (event,) = training.events()
    assert training.scale == pytest.approx(3 * settings.training().scale)
    assert event.sampling_probability == pytest.approx(1 - 0.75**3)
    assert event.noise_multiplier == pytest.approx(1.5)
    assert settings.training(unit=unit_of(ADD, 3), sampling_rate=1.0).unit_rate == 1.0


def hockey_stick(one, two, epsilon):
    """Integral of (one - e^epsilon two)+ over a fine grid, both densities in grid cells."""
    return np.maximum(one - math.exp(epsilon) * two, 0).sum()


@pytest.mark.parametrize(("k", "q", "s"), [(2, 0.1, 1.0), (3, 0.3, 2.0), (5, 0.02, 0.6)])
def test_the_group_event_covers_the_exact_law_of_a_persons_rows(k, q, s):
    """k rows shift the sum by a binomial number of bounds; j of them by any number up to j."""
    (event,) = settings.training(unit=unit_of(ADD, k), sampling_rate=q, noise_multiplier=s).events()
    cells = np.linspace(-12 * k * s, 12 * k * s + k, 40001)
    cell = cells[1] - cells[0]

    def law(shifts, chances):  # noise of k s bounds
        return cell * chances @ stats.norm.pdf(cells, np.array(shifts)[:, None], k * s)

    rate = event.sampling_probability
    ours, nothing = law([0, k], np.array([1 - rate, rate])), law([0], np.ones(1))
    for least in (-1, 0, 1):  # shifts against, without and with the worst direction
        chances = stats.binom.pmf(range(k + 1), k, q)
        exact = law([j if least == 1 else least * j for j in range(k + 1)], chances)
        for epsilon in (0.0, 0.1, 0.5, 2.0):
            removed = hockey_stick(exact, nothing, epsilon)
            assert removed <= hockey_stick(ours, nothing, epsilon) + 1e-12
            added = hockey_stick(nothing, exact, epsilon)
            assert added <= hockey_stick(nothing, ours, epsilon) + 1e-12


def test_replace_one_is_refused():
    with pytest.raises(SpecError, match="replace_one"):
        settings.training(unit=unit_of(REPLACE))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("sampling_rate", 0.0), ("sampling_rate", 1.1), ("clip", 0.0), ("clip", math.inf),
     ("clip", 9e-4)],
)  # fmt: skip
def test_constants_out_of_range_are_refused(name, wrong):
    with pytest.raises(SpecError, match=name):
        settings.training(**{name: wrong})


@pytest.mark.parametrize("multiplier", [None, 0.0, math.nan, math.inf])
def test_nothing_is_drawn_before_calibration(counting, multiplier):
    with pytest.raises(UncalibratedError, match=r"noise.multiplier"):
        trained(counting, noise_multiplier=multiplier)
    assert not counting.scales
    with pytest.raises(UncalibratedError, match="call `calibrate` first"):
        settings.training(noise_multiplier=None).events()


def test_training_stops_where_the_accountant_did(counting):
    training = settings.training()
    _, end = trained(counting)
    assert end.step == training.steps
    with pytest.raises(PrivacyError, match="every accounted step"):
        training.private_step(end, settings.lots(), noise=counting)
    assert training.train(end, settings.lots(), noise=counting) is end
    assert len(counting.scales) == training.steps


def test_seeded_noise_never_becomes_publishable():
    training = settings.training(steps=2)
    state = settings.start(training, SecureNoise())
    with pytest.raises(PrivacyError, match="publishable noise source"):
        training.private_step(state, settings.lots(), noise=SeededNoise(1))
    assert training.train(state, settings.lots(), noise=SecureNoise()).publishable
    assert not trained(SeededNoise(1), steps=2)[1].publishable


@pytest.mark.slow
def test_effort_becomes_noise_continuously_and_downwards():
    training = settings.training(steps=300, sampling_rate=0.05)
    efforts = np.geomspace(1e-6, 1e6, 200)
    multipliers = np.array([training.multiplier_for(rho) for rho in efforts])
    assert np.all(np.diff(multipliers) < 0)
    # Against the accountant, where the limit theorem is good: rho = mu^2/2 of a Gaussian.
    for rho in (0.02, 0.2):
        ready = dataclasses.replace(training, noise_multiplier=training.multiplier_for(rho))
        sampled = accounting.epsilon(ready.events(), delta=1e-6)
        plain = accounting.epsilon(
            [PoissonSampledGaussianEvent(
                sampling_probability=1.0, noise_multiplier=1 / math.sqrt(2 * rho)
            )],
            delta=1e-6,
        )  # fmt: skip
        assert sampled == pytest.approx(plain, rel=0.1)
    with pytest.raises(SpecError, match="rho"):
        training.multiplier_for(0.0)


def test_the_average_is_over_the_last_share_of_the_steps(counting):
    training = settings.training(steps=10, averaged=0.4)
    state = settings.start(training, counting)
    path = []
    for _ in range(10):
        state = training.private_step(state, settings.lots(), noise=counting)
        path.append(state.parameters)
    np.testing.assert_allclose(state.average, np.mean(path[6:], axis=0))
    _, last = trained(counting, steps=10)
    np.testing.assert_array_equal(last.average, last.parameters)


def test_a_resumed_run_continues_and_is_charged_as_planned(counting):
    """KilledError at step 15 before its checkpoint was kept: steps 11 to 15 are drawn again."""
    training = settings.training(steps=100, resumes=1)
    start, killed = settings.start(training, counting), Recorder(dies_at=15)
    with pytest.raises(KilledError):
        training.train(start, settings.lots(), noise=counting, watch=killed)
    assert [step for step, _ in killed.steps] == [0, 5, 10, 15]
    resumed = Recorder(resumed=killed.saved[10])
    end = training.train(start, settings.lots(), noise=counting, watch=resumed)
    assert resumed.steps == [(step, 100) for step in range(15, 101, 5)]
    assert end.step == training.steps
    (event,) = training.events()
    assert len(counting.scales) == event.count == 105
    with pytest.raises(PrivacyError, match="training: "):
        dataclasses.replace(training, resumes=0).train(
            start, settings.lots(), noise=counting, watch=resumed
        )


def test_a_checkpoint_of_other_settings_is_refused(counting):
    two_resumes, one_resume = settings.training(resumes=2), settings.training(resumes=1)
    first = settings.start(two_resumes, counting)
    for state in (
        first,
        dataclasses.replace(first, step=two_resumes.steps),
    ):  # also of one that ended
        with pytest.raises(PrivacyError, match="other settings"):
            one_resume.train(
                settings.start(one_resume, counting), settings.lots(), noise=counting,
                watch=Recorder(resumed=state.to_bytes()),
            )  # fmt: skip
    assert counting.scales == []


def test_resuming_at_a_checkpoint_gives_the_run_that_was_not_stopped():
    """With the same noise from there on, bit for bit; moments and averages included."""
    changes = {"optimiser": Adam(learning_rate=0.1), "averaged": 0.5}
    training = settings.training(**changes)
    noise = SeededNoise(4)
    state = settings.start(training, noise)
    for _ in range(12):
        state = training.private_step(state, settings.lots(), noise=noise)
    ends = []
    for held in (state, TrainingState.from_bytes(state.to_bytes())):
        ends.append(training.train(held, settings.lots(), noise=SeededNoise(9)))
    assert ends[0].to_bytes() == ends[1].to_bytes()


def test_adam_is_that_of_the_paper():
    """Kingma & Ba (2015), algorithm 1, written out."""
    rule, rng = Adam(learning_rate=0.01), np.random.default_rng(0)
    ours, moments = np.zeros(4), rule.start(4)
    theirs, m, v = np.zeros(4), np.zeros(4), np.zeros(4)
    for t in range(1, 30):
        g = rng.normal(size=4)
        ours, moments = rule.update(ours, g, moments, t)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        theirs = theirs - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "dp_sgd.json").read_text())
DELTA = 1e-6


def identity(row):
    return f"{row['rows']}-{row['lot']}-{row['noise_multiplier']}-{row['steps']}"


def golden_events(row, *, rate):
    return settings.training(
        sampling_rate=rate, steps=row["steps"], noise_multiplier=row["noise_multiplier"]
    ).events()


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=identity)
def test_epsilon_of_a_training_is_that_of_the_table(row):
    found = golden_events(row, rate=row["lot"] / (2 * row["rows"]))
    epsilon = accounting.epsilon(found, delta=DELTA, grid=GOLDEN["grid"])
    assert epsilon == pytest.approx(row["pld"], abs=GOLDEN["tolerance"])
    looser = accounting.epsilon_rdp(found, delta=DELTA)
    assert looser == pytest.approx(row["rdp"], abs=GOLDEN["tolerance"])


@pytest.mark.parametrize("row", GOLDEN["rows"][1::5], ids=identity)
def test_twice_the_rate_costs_what_the_table_says(row):
    found = golden_events(row, rate=row["lot"] / row["rows"])
    epsilon = accounting.epsilon(found, delta=DELTA, grid=GOLDEN["grid"])
    assert epsilon == pytest.approx(row["pld_double_rate"], abs=GOLDEN["tolerance"])


@pytest.mark.parametrize("change", [{"steps": 1576}, {"noise_multiplier": 1.49}])
def test_one_percent_more_shows(change):
    """The table would notice: 1% more steps or less noise is outside its tolerance."""
    row = GOLDEN["rows"][5] | change
    found = golden_events(row, rate=0.0128)
    epsilon = accounting.epsilon(found, delta=DELTA, grid=GOLDEN["grid"])
    assert epsilon > row["pld"] + GOLDEN["tolerance"]
