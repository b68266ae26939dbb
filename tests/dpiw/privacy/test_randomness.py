"""Noise sources: refusals, hygiene, determinism. Their laws: tests/proof/test_samplers.py."""

import inspect
import os
from collections.abc import Callable
from decimal import Decimal
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.ledger import Ledger
from dpiw.privacy import gaussian, mechanisms, randomness
from dpiw.privacy.randomness import (
    LARGEST_SCALE,
    SecureNoise,
    SeededNoise,
    check_noise_library,
    spherical_integers,
)
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.noise import check_forks_draw_apart, every_draw
from tests.support.whole_runs import ingested

SOURCES = [SecureNoise(), SeededNoise(7)]


def test_secure_noise_takes_no_seed():
    """And is alone publishable; it uses no generator that could be seeded."""
    assert SecureNoise().publishable
    assert not SeededNoise(1).publishable
    parts = (SecureNoise, randomness._system_uniform, mechanisms, gaussian)
    source = "".join(map(inspect.getsource, parts))
    for banned in ("np.random", "default_rng", "import random", "seed("):
        assert banned not in source
    assert not inspect.signature(SecureNoise).parameters
    with pytest.raises(TypeError):
        SecureNoise(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("scale", [3.0, 2.0**30])
def test_equal_seeds_give_equal_draws_and_others_do_not(scale):
    first, second = every_draw(SeededNoise(5), scale), every_draw(SeededNoise(5), scale)
    other = every_draw(SeededNoise(6), scale)
    for one, two, three in zip(first, second, other, strict=True):
        assert np.array_equal(one, two)
        assert not np.array_equal(one, three)


def test_two_secure_runs_differ():
    for one, two in zip(
        every_draw(SecureNoise(), 2.0**30)[:3], every_draw(SecureNoise(), 2.0**30)[:3], strict=True
    ):
        assert not np.array_equal(one, two)


def test_a_seed_must_be_a_whole_number():
    for seed in (-1, 1.0, None, True, "1"):
        with pytest.raises(SpecError, match="seed"):
            SeededNoise(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", SOURCES)
def test_what_is_outside_its_range_is_not_drawn(noise):
    for draw in every_draw(noise, 2.0**30)[:3]:
        assert (draw.dtype, draw.shape) == (np.int64, (8,))
    zeros = np.zeros(1, dtype=np.int64)
    for scale in (0.0, -1.0, np.inf, np.nan, 2 * LARGEST_SCALE):
        for act in (
            lambda scale=scale: noise.discrete_gaussian(scale=scale, size=1),
            lambda scale=scale: noise.discrete_laplace(scale=scale, size=1),
            lambda scale=scale: noise.spherical_laplace(scale=scale, dimension=1),
            lambda scale=scale: noise.noisy_argmax(zeros, scale=scale),
        ):
            with pytest.raises(UncalibratedError, match="scale"):
                act()
    for bound in (0, -3, 1.0, True):
        with pytest.raises(SpecError, match="bound"):
            noise.whole_below(bound)  # type: ignore[arg-type]
    assert noise.whole_below(1) == 0
    for size in (0, -1):
        with pytest.raises(SpecError, match="size"):
            noise.discrete_gaussian(scale=1.0, size=size)
        with pytest.raises(SpecError, match="size"):
            noise.spherical_laplace(scale=1.0, dimension=size)
    for bad in (np.zeros(3), np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(SpecError, match="scores"):
            noise.noisy_argmax(bad, scale=1.0)
    for edge in (2**62 + 1, -(2**62) - 1):
        with pytest.raises(PrivacyError, match="lattice range") as error:
            noise.noisy_argmax(np.array([0, edge]), scale=1.0)
        assert str(edge) not in str(error.value)


# Python 3.12 warns of forks in processes with threads; the draws below are what is under test.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.slow
def test_eight_forked_workers_draw_distinct_noise():
    check_forks_draw_apart()


def test_a_failing_system_generator_stops_the_draw(monkeypatch):
    monkeypatch.setattr(os, "urandom", mock.Mock(side_effect=OSError("no entropy")))
    for draw in (
        lambda: SecureNoise().spherical_laplace(scale=1.0, dimension=3),
        lambda: SecureNoise().gaussian_vector(scale=1.0, size=3),
        lambda: SecureNoise().poisson_sample(rows=9, probability=0.5),
    ):
        with pytest.raises(OSError, match="no entropy"):
            draw()


DRAWS: dict[str, Callable[[], object]] = {
    "make_gaussian": lambda: SecureNoise().discrete_gaussian(scale=4.0, size=2),
    "make_laplace": lambda: SecureNoise().discrete_laplace(scale=4.0, size=2),
    "make_noisy_max": lambda: SecureNoise().noisy_argmax(np.zeros(2, dtype=np.int64), scale=4.0),
}


@pytest.mark.parametrize("maker", DRAWS)
def test_a_failing_sampler_stops_the_draw(monkeypatch, maker):
    import opendp.measurements

    sampler = mock.Mock(side_effect=OSError("no entropy"))
    monkeypatch.setattr(opendp.measurements, maker, lambda *_, **__: sampler)
    with pytest.raises(OSError, match="no entropy"):
        DRAWS[maker]()


def test_opendp_states_the_guarantee_we_account():
    """Gumbel noise of scale 2/epsilon on scores of sensitivity 1: rho = epsilon^2/8."""
    opendp = randomness._OpenDP()
    sampler = opendp.measurements.make_noisy_max(
        *opendp.integers("linf"), opendp.measures.zero_concentrated_divergence(), scale=4.0
    )
    assert sampler.map(1) == pytest.approx(0.5**2 / 8)
    gaussian = opendp.measurements.make_gaussian(*opendp.integers("l2"), scale=4.0)
    assert gaussian.map(1.0) == pytest.approx(1 / 32)
    laplace = opendp.measurements.make_laplace(*opendp.integers("l1"), scale=4.0)
    assert laplace.map(1) == pytest.approx(0.25)


def spherical(*uniforms: str, scale: float = 1e6) -> NDArray[np.int64]:
    told = iter(map(Decimal, uniforms))
    return spherical_integers(scale=scale, dimension=2, draw=lambda: next(told))


def test_spherical_vector_from_known_uniforms():
    """By hand for d' = 2: norm from two uniforms, direction from one pair in the disc."""
    norm = -1e6 * np.log(0.5 * 0.25)
    by_hand = pytest.approx(norm * np.array([0.6, 0.8]), abs=1)
    assert spherical("0.5", "0.25", "0.65", "0.7") == by_hand
    redrawn = spherical("0.5", "0.25", "0.99", "0.99", "0.5", "0.5", "0.65", "0.7")
    assert redrawn[0] / redrawn[1] == pytest.approx(0.75, abs=1e-5)
    with pytest.raises(PrivacyError, match="lattice range"):
        spherical("1e-5000", "1e-5000", "0.65", "0.7", scale=LARGEST_SCALE)


def test_system_uniforms_fill_the_open_interval():
    draws = [randomness._system_uniform() for _ in range(200)]
    assert all(0 < draw < 1 for draw in draws)
    assert len(set(draws)) == 200
    # Misses either quarter with probability 2 * 0.75^200 < 1e-24.
    assert min(draws) < Decimal("0.25") < Decimal("0.75") < max(draws)


@pytest.fixture(params=["0.13.0", "0.14.1", "0.14.0a1"])
def old(request, monkeypatch):
    monkeypatch.setattr(randomness, "version", lambda _: request.param)
    return request.param


def test_an_old_library_draws_nothing(old):
    with pytest.raises(PrivacyError, match=r"expected 0\.14\.2 or later"):
        SecureNoise().discrete_gaussian(scale=4.0, size=3)
    with pytest.raises(PrivacyError, match="another law"):
        SecureNoise().discrete_laplace(scale=4.0, size=3)


def test_nor_is_anything_reserved_for_it(old, make_workplace):
    place = make_workplace()
    run = ReleaseRun.prepare(place.spec, period="2026-q4")
    with pytest.raises(PrivacyError, match="another law"):
        steps.reserve(run)
    assert Ledger.open(place.ledger).find_run(run.key) is None


def test_nor_is_a_stage_armed_for_it(make_workplace, monkeypatch):
    """The library may have been put back after the budget was reserved."""
    place = make_workplace()
    run = ingested(place, period="2026-q4")
    before = Ledger.open(place.ledger).run(run.key)
    monkeypatch.setattr(randomness, "version", lambda _: "0.14.1")
    with pytest.raises(PrivacyError, match="another law"):
        steps.fit_generator(run, noise=SecureNoise())
    assert Ledger.open(place.ledger).run(run.key) == before


def test_later_ones_are_admitted(monkeypatch):
    for text in ("0.14.2", "0.15.0", "1.0.0", "0.14.10"):
        monkeypatch.setattr(randomness, "version", lambda _, text=text: text)
        check_noise_library()
