"""Noise sources: refusals, hygiene, determinism. Their laws: tests/proof/test_sampler_laws.py."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.privacy import randomness
from dpiw.privacy.randomness import (
    LARGEST_SCALE,
    NoiseSource,
    SecureNoise,
    SeededNoise,
    spherical_integers,
)
from tests.support.noise import check_forks_draw_apart, every_draw

SOURCES = [SecureNoise(), SeededNoise(7)]


def test_only_secure_noise_is_publishable() -> None:
    assert SecureNoise().publishable
    assert not SeededNoise(1).publishable


def test_secure_noise_takes_no_seed() -> None:
    assert not inspect.signature(SecureNoise).parameters
    with pytest.raises(TypeError):
        SecureNoise(1)  # type: ignore[call-arg]


def test_secure_noise_uses_no_seedable_generator() -> None:
    source = inspect.getsource(SecureNoise) + inspect.getsource(randomness._system_uniform)
    for banned in ("np.random", "default_rng", "import random", "seed("):
        assert banned not in source


@pytest.mark.parametrize("seed", [-1, 1.0, None, True, "1"])
def test_a_seed_must_be_a_whole_number(seed: object) -> None:
    with pytest.raises(SpecError, match="seed"):
        SeededNoise(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [3.0, 2.0**30])
def test_equal_seeds_give_equal_draws_and_others_do_not(scale: float) -> None:
    first, second = every_draw(SeededNoise(5), scale), every_draw(SeededNoise(5), scale)
    other = every_draw(SeededNoise(6), scale)
    for one, two, three in zip(first, second, other, strict=True):
        assert np.array_equal(one, two)
        assert not np.array_equal(one, three)


def test_two_secure_runs_differ() -> None:
    for one, two in zip(
        every_draw(SecureNoise(), 2.0**30)[:3], every_draw(SecureNoise(), 2.0**30)[:3], strict=True
    ):
        assert not np.array_equal(one, two)


def test_draws_are_integers_of_the_asked_shape() -> None:
    for noise in SOURCES:
        for draw in every_draw(noise, 2.0**30)[:3]:
            assert draw.dtype == np.int64
            assert draw.shape == (8,)


@pytest.mark.parametrize("noise", SOURCES)
@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, 2 * LARGEST_SCALE])
def test_scales_outside_their_range_are_refused(noise: NoiseSource, scale: float) -> None:
    with pytest.raises(UncalibratedError, match="scale"):
        noise.discrete_gaussian(scale=scale, size=1)
    with pytest.raises(UncalibratedError, match="scale"):
        noise.discrete_laplace(scale=scale, size=1)
    with pytest.raises(UncalibratedError, match="scale"):
        noise.spherical_laplace(scale=scale, dimension=1)
    with pytest.raises(UncalibratedError, match="scale"):
        noise.noisy_argmax(np.zeros(1, dtype=np.int64), scale=scale)


@pytest.mark.parametrize("noise", SOURCES)
@pytest.mark.parametrize("bound", [0, -3, 1.0, True])
def test_bounds_outside_their_range_are_refused(noise: NoiseSource, bound: object) -> None:
    with pytest.raises(SpecError, match="bound"):
        noise.whole_below(bound)  # type: ignore[arg-type]
    assert noise.whole_below(1) == 0


@pytest.mark.parametrize("noise", SOURCES)
def test_empty_draws_are_refused(noise: NoiseSource) -> None:
    for size in (0, -1):
        with pytest.raises(SpecError, match="size"):
            noise.discrete_gaussian(scale=1.0, size=size)
        with pytest.raises(SpecError, match="size"):
            noise.spherical_laplace(scale=1.0, dimension=size)


@pytest.mark.parametrize("noise", SOURCES)
def test_scores_outside_the_lattice_are_refused(noise: NoiseSource) -> None:
    for bad in (np.zeros(3), np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(SpecError, match="scores"):
            noise.noisy_argmax(bad, scale=1.0)
    for edge in (2**62 + 1, -(2**62) - 1):
        with pytest.raises(PrivacyError, match="lattice range") as error:
            noise.noisy_argmax(np.array([0, edge]), scale=1.0)
        assert str(edge) not in str(error.value)


# Python 3.12 warns of forks in processes with threads; the draws below are what is under test.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_eight_forked_workers_draw_distinct_noise() -> None:
    check_forks_draw_apart()


def test_a_failing_system_generator_stops_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", fail)
    with pytest.raises(OSError, match="no entropy"):
        SecureNoise().spherical_laplace(scale=1.0, dimension=3)


DRAWS: dict[str, Callable[[], object]] = {
    "make_gaussian": lambda: SecureNoise().discrete_gaussian(scale=4.0, size=2),
    "make_laplace": lambda: SecureNoise().discrete_laplace(scale=4.0, size=2),
    "make_noisy_max": lambda: SecureNoise().noisy_argmax(np.zeros(2, dtype=np.int64), scale=4.0),
}


@pytest.mark.parametrize("maker", DRAWS)
def test_a_failing_sampler_stops_the_draw(monkeypatch: pytest.MonkeyPatch, maker: str) -> None:
    import opendp.measurements

    def sampler(_: object) -> object:
        raise OSError("no entropy")

    monkeypatch.setattr(opendp.measurements, maker, lambda *_, **__: sampler)
    with pytest.raises(OSError, match="no entropy"):
        DRAWS[maker]()


def test_opendp_states_the_guarantee_we_account() -> None:
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


def test_spherical_vector_from_known_uniforms() -> None:
    """By hand for d' = 2: norm from two uniforms, direction from one pair."""
    uniforms = iter([Decimal("0.5"), Decimal("0.25"), Decimal("0.65"), Decimal("0.7")])
    drawn = spherical_integers(scale=1e6, dimension=2, draw=lambda: next(uniforms))
    norm = -1e6 * np.log(0.5 * 0.25)
    assert drawn == pytest.approx(norm * np.array([0.6, 0.8]) / 1.0, abs=1)


def test_polar_pairs_outside_the_disc_are_redrawn() -> None:
    uniforms = iter(map(Decimal, ["0.5", "0.25", "0.99", "0.99", "0.5", "0.5", "0.65", "0.7"]))
    drawn = spherical_integers(scale=1e6, dimension=2, draw=lambda: next(uniforms))
    assert drawn[0] / drawn[1] == pytest.approx(0.75, abs=1e-5)


def test_a_spherical_draw_beyond_the_lattice_is_refused() -> None:
    uniforms = iter([Decimal("1e-5000")] * 2 + [Decimal("0.65"), Decimal("0.7")])
    with pytest.raises(PrivacyError, match="lattice range"):
        spherical_integers(scale=LARGEST_SCALE, dimension=2, draw=lambda: next(uniforms))


def test_system_uniforms_fill_the_open_interval() -> None:
    draws = [randomness._system_uniform() for _ in range(200)]
    assert all(0 < draw < 1 for draw in draws)
    assert len(set(draws)) == 200
    # Misses either quarter with probability 2 * 0.75^200 < 1e-24.
    assert min(draws) < Decimal("0.25") < Decimal("0.75") < max(draws)
