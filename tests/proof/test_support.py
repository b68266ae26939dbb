"""S2: what one table can release, its neighbour can release, down to the lowest bits; and S3.

Two things are compared between neighbours, whose values differ by less and by more than a lattice
step, by whole numbers and by numbers no double holds exactly: the set of possible outputs (all
multiples of one public step: Mironov 2012), and the law of the low bits (chi-square at 1e-9 on the
last 6 bits of the integer output). The control is NumPy's Laplace noise, of whose outputs four in
five could not have come from the neighbour, by inverting its generator (docs/privacy.md section 4).

S3, where it is not tested elsewhere: nothing that a curator may set seeds privacy noise.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.plan import spec as specs
from dpiw.privacy.mechanisms import lattice_step, noisy_counts, noisy_sum, noisy_vector
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw
from tests.proof.figures import tiers

FALSE_ALARM = 1e-9
NOISE = SecureNoise()
LOW = 64
Array = NDArray[np.float64]

PAIRS = [
    (0.0, 1.0), (0.0, 1e-12), (1 / 3, 2 / 3), (0.1, 0.3), (math.pi, math.e), (-1.0, 1.0),
    (0.0, 5e-324), (1e-300, 0.0), (7.0, 7.0 + 2**-40), (1e6, 1e6 + 1), (0.5, 0.25), (-0.0, 0.0),
    (1 / 7, 1 / 7 + 2**-30), (2**-31, 3 * 2**-31), (100.1, 99.9), (1e-5, 1e-6), (12.0, 11.0),
    (-1 / 3, 1 / 3), (2.0**20, 2.0**20 - 1), (0.7, 0.7 * (1 + 2**-52)),
]  # fmt: skip
"""Values of one coordinate in two neighbouring tables."""

COUNTS = [
    (0, 1), (0, 3), (12, 11), (1, 2), (3, 0), (5, 8), (99, 100), (100, 101), (7, 4), (63, 64),
    (64, 67), (255, 256), (1000, 1001), (1023, 1024), (2**16, 2**16 - 1), (10**6, 10**6 + 1),
    (2**20, 2**20 - 3), (2**31, 2**31 - 1), (10**9, 10**9 + 1), (0, 10**6),
]  # fmt: skip
"""One cell of two neighbouring tables, units of 1 and 3 rows; and one pair that is far apart."""


def vector(kind: NoiseKind, scale: float) -> Callable[[float, int], tuple[Array, float]]:
    def draw(value, size):
        law = NoiseLaw(kind=kind, scale=scale, dimension=size)
        return noisy_vector(np.full(size, value), law=law, noise=NOISE), lattice_step(scale)

    return draw


def spherical(value: float, size: int) -> tuple[Array, float]:
    """Three coordinates a draw, one law of the norm for all of them."""
    law = NoiseLaw(kind=NoiseKind.SPHERICAL, scale=0.9, dimension=3)
    drawn = [noisy_vector(np.full(3, value), law=law, noise=NOISE) for _ in range(-(-size // 3))]
    return np.concatenate(drawn)[:size], lattice_step(0.9)


def counts(value: float, size: int) -> tuple[Array, float]:
    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=1.3, dimension=size)
    noisy = noisy_counts(np.full(size, int(value)), law=law, noise=NOISE)
    return noisy, lattice_step(1.3, bits=20)


def dp_sgd(value: float, size: int) -> tuple[Array, float]:
    return noisy_sum(np.full(size, value), scale=0.9, noise=NOISE), lattice_step(0.9, bits=10)


RELEASES = {
    "Gaussian vector": (vector(NoiseKind.GAUSSIAN, 0.9), 200_000),
    "Laplace vector": (vector(NoiseKind.LAPLACE, 1.0), 200_000),
    "spherical vector": (spherical, 20_000),
    "counts": (counts, 200_000),
    "noisy sum of DP-SGD": (dp_sgd, 200_000),
}


def outside(released: Array, step: float) -> int:
    """Outputs that are no multiple of the public step."""
    return int((np.rint(released / step) * step != released).sum())


def low_bits(released: Array, step: float) -> NDArray[np.int64]:
    """How often each value of the last 6 bits of the integer output occurs."""
    return np.bincount(np.rint(released / step).astype(np.int64) % LOW, minlength=LOW)


@pytest.mark.parametrize("name", RELEASES)
@tiers("tier", fast=(2, 3_000), full=(20, None))
def test_neighbours_share_support_and_low_bits(tier, name, prove):
    draw, whole = RELEASES[name]
    pairs, size = tier
    size, odd, least = size or whole, 0, 1.0
    if name == "spherical vector":
        size = min(size, 600) if pairs < 20 else size
    for pair in (COUNTS if name == "counts" else PAIRS)[:pairs]:
        tallies = []
        for value in pair:
            released, step = draw(value, size)
            odd += outside(released, step)
            tallies.append(low_bits(released, step))
        homogeneous = float(stats.chi2_contingency(np.array(tallies)).pvalue)
        least = min(least, homogeneous, *(float(stats.chisquare(t).pvalue) for t in tallies))
    assert odd == 0
    assert least > FALSE_ALARM
    prove(
        f"S2: {name}",
        f"{pairs} pairs, {size:,} draws a world: {odd} outside the common support, least p of the"
        f" low bits {least:.1e}",
    )


def numpy_laplace_can_be(outputs: Array, value: float) -> NDArray[np.bool_]:
    """Whether `Generator.laplace(loc=value)` can return each output, by inverting its source.

    It returns loc + log(2U) for U < 1/2 and loc - log(2 - 2U) otherwise, U a multiple of 2^-53.
    """
    gap = outputs - value
    below = gap < 0
    uniform = np.where(below, np.exp(gap) / 2, 1 - np.exp(-gap) / 2)
    grid = np.rint(uniform * 2**53)
    log = np.frompyfunc(math.log, 1, 1)
    possible = np.zeros(outputs.size, dtype=bool)
    for shift in range(-6, 7):
        near = np.clip(grid + shift, 1, 2**53 - 1) * 2.0**-53
        left, right = np.minimum(near, 0.5), np.maximum(near, 0.5)
        there = np.where(
            near < 0.5, value + log(left + left).astype(float),
            value - log(2.0 - right - right).astype(float),
        )  # fmt: skip
        possible |= there == outputs
    return possible


@tiers("size", fast=5_000, full=200_000)
def test_numpy_noise_names_the_table_it_came_from(size, rng, prove):
    """The control of the support test: floating-point noise fails it."""
    zero, one = rng.laplace(0.0, 1.0, size), rng.laplace(1.0, 1.0, size)
    assert numpy_laplace_can_be(zero, 0.0).mean() > 0.999  # the inversion knows its own outputs
    assert numpy_laplace_can_be(one, 1.0).mean() > 0.999
    impossible = 1 - numpy_laplace_can_be(zero, 1.0).mean()
    assert impossible > 0.2
    step = lattice_step(1.0)
    assert outside(zero, step) > 0.99 * size
    prove(
        "S2: NumPy's Laplace noise (must fail)",
        f"{size:,} draws from value 0: {impossible:.1%} cannot come from value 1",
    )


def test_low_bits_that_stay_are_found(rng):
    """Test of the test: noise on a lattice four steps wide leaves the value's last two bits."""
    step, tallies = 2.0**-30, []
    for units in (0, 1):
        noisy = units + 4 * rng.integers(-(2**30), 2**30, 4_000)
        assert outside(noisy * step, step) == 0
        tallies.append(low_bits(noisy * step, step))
    assert stats.chisquare(tallies[0]).pvalue < FALSE_ALARM
    with np.errstate(all="ignore"):
        both = np.array(tallies)[:, np.sum(tallies, axis=0) > 0]
    assert stats.chi2_contingency(both).pvalue < FALSE_ALARM


# S3
def seed_fields(kind: type) -> set[str]:
    names = (field.name for field in dataclasses.fields(kind))
    return {name for name in names if "seed" in name or "random" in name}


def test_nothing_that_can_be_set_seeds_the_noise():
    """`omega_seed` fixes public features, and is the only seed a spec knows (S3)."""
    for kind in (*GENERATORS.values(), *WEIGHTS.values()):
        if dataclasses.is_dataclass(kind):
            assert seed_fields(kind) <= {"omega_seed"}, kind
    for name, kind in vars(specs).items():
        fields = getattr(kind, "model_fields", {})
        assert not [field for field in fields if "seed" in field or "random" in field], name
