"""The door from confidential numbers to noisy ones: lattice, slack, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.privacy.mechanisms import (
    calibrated_law,
    lattice_slack,
    lattice_step,
    noisy_counts,
    noisy_vector,
    select,
)
from dpiw.privacy.units import NoiseKind, NoiseLaw

KINDS = list(NoiseKind)


class StubNoise:
    """Records what it is asked, returns fixed integers."""

    publishable = False

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.calls: list[tuple[str, float]] = []
        self.scores = np.zeros(0, dtype=np.int64)

    def _vector(self, name: str, scale: float, size: int) -> NDArray[np.int64]:
        self.calls.append((name, scale))
        return np.full(size, self.value, dtype=np.int64)

    def discrete_gaussian(self, *, scale: float, size: int) -> NDArray[np.int64]:
        return self._vector("gaussian", scale, size)

    def discrete_laplace(self, *, scale: float, size: int) -> NDArray[np.int64]:
        return self._vector("laplace", scale, size)

    def spherical_laplace(self, *, scale: float, dimension: int) -> NDArray[np.int64]:
        return self._vector("spherical", scale, dimension)

    def noisy_argmax(self, scores: NDArray[np.int64], *, scale: float) -> int:
        self.calls.append(("gumbel", scale))
        self.scores = scores
        return int(np.argmax(scores))


def law(kind: NoiseKind = NoiseKind.GAUSSIAN, scale: float = 1.0, dimension: int = 3) -> NoiseLaw:
    return NoiseLaw(kind=kind, scale=scale, dimension=dimension)


@given(scale=st.floats(min_value=2.0**-400, max_value=2.0**400), bits=st.integers(20, 40))
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_the_step_is_a_power_of_two_just_below_its_share(scale, bits):
    step = lattice_step(scale, bits=bits)
    assert math.frexp(step)[0] == 0.5
    assert 2.0**bits <= scale / step < 2.0 ** (bits + 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("release", [noisy_vector, noisy_counts])
def test_each_law_is_drawn_at_its_scale(kind, release):
    noise = StubNoise(value=5)
    counts = release is noisy_counts
    values = np.array([0, 2, 7]) if counts else np.array([0.0, 2.0, 7.0])
    released = release(values, law=law(kind, 3.0), noise=noise)  # type: ignore[operator]
    step = lattice_step(3.0, bits=20 if counts else 30)
    ((name, units),) = noise.calls
    assert name == kind.value
    assert units * step == 3.0
    assert released == pytest.approx(values + 5 * step, abs=0)


def test_counts_keep_their_shape_and_are_exact_on_the_lattice():
    counts = np.arange(24).reshape(2, 3, 4)
    released = noisy_counts(counts, law=law(dimension=24, scale=0.3), noise=StubNoise())
    assert released.dtype == np.float64
    assert np.array_equal(released, counts)
    noise = StubNoise(value=1)
    released = noisy_counts(np.array([3]), law=law(scale=2.0**25, dimension=1), noise=noise)
    assert released.tolist() == [4.0]  # step 1, not 2^5
    assert noise.calls == [("gaussian", 2.0**25)]


@given(
    first=st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
    move=st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    scale=st.floats(1e-3, 1e3),
)
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_rounding_adds_at_most_the_slack(first, move, scale):
    start, end = np.array(first), np.array(first) + np.array(move)
    rounded = [
        noisy_vector(vector, law=law(scale=scale, dimension=4), noise=StubNoise())
        for vector in (start, end)
    ]
    gap, moved = rounded[0] - rounded[1], start - end
    for kind, order in ((NoiseKind.GAUSSIAN, 2), (NoiseKind.SPHERICAL, 2), (NoiseKind.LAPLACE, 1)):
        slack = lattice_slack(law(kind, scale, 4))
        assert np.linalg.norm(gap, order) <= np.linalg.norm(moved, order) + slack * (1 + 1e-6)


def test_the_slack_is_attained():
    step = lattice_step(1.0)
    below = np.full(4, (0.5 - 1e-6) * step)
    above = np.full(4, (0.5 + 1e-6) * step)
    released = [noisy_vector(v, law=law(dimension=4), noise=StubNoise()) for v in (below, above)]
    gap = np.abs(released[0] - released[1])
    assert np.linalg.norm(gap) == pytest.approx(lattice_slack(law(dimension=4)))
    assert gap.sum() == pytest.approx(lattice_slack(law(NoiseKind.LAPLACE, 1.0, 4)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("multiplier", [0.1, 4.2247, 1e4])
@pytest.mark.parametrize("dimension", [1, 14, 301])
def test_a_calibrated_law_covers_sensitivity_and_slack(kind, multiplier, dimension):
    calibrated = calibrated_law(
        kind=kind, noise_multiplier=multiplier, sensitivity=0.37, dimension=dimension
    )
    assert calibrated.kind is kind
    assert calibrated.dimension == dimension
    assert calibrated.scale >= multiplier * (0.37 + lattice_slack(calibrated))
    assert calibrated.scale <= multiplier * 0.37 * (
        1 + 2 * dimension * multiplier * 2.0**-30 + 1e-12
    )


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_uncalibrated_laws_are_refused(bad):
    for release, values in ((noisy_counts, np.zeros(3, dtype=int)), (noisy_vector, np.zeros(3))):
        with pytest.raises(UncalibratedError, match="scale"):
            release(values, law=law(scale=bad), noise=StubNoise())  # type: ignore[operator]
    with pytest.raises(UncalibratedError, match="scale"):
        lattice_slack(law(scale=bad))
    for arguments in (
        {"noise_multiplier": bad, "sensitivity": 1.0},
        {"noise_multiplier": 1.0, "sensitivity": bad},
    ):
        with pytest.raises(UncalibratedError, match="finite numbers > 0"):
            calibrated_law(kind=NoiseKind.GAUSSIAN, dimension=2, **arguments)
    for epsilon, sensitivity in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(UncalibratedError, match="select"):
            select(np.zeros(2), epsilon=epsilon, sensitivity=sensitivity, noise=StubNoise())


def test_what_fits_no_law_is_refused():
    with pytest.raises(UncalibratedError, match="too large for the lattice"):
        calibrated_law(kind=NoiseKind.GAUSSIAN, noise_multiplier=1e9, sensitivity=1.0, dimension=10)
    unknown = law(kind="cauchy")  # type: ignore[arg-type]
    with pytest.raises(SpecError):
        noisy_vector(np.zeros(3), law=unknown, noise=StubNoise())
    for values in (np.zeros(4), np.zeros((2, 2), dtype=int)):  # of another dimension
        release = noisy_vector if values.ndim == 1 else noisy_counts
        with pytest.raises(UncalibratedError, match="dimension"):
            release(values, law=law(dimension=3), noise=StubNoise())
    with pytest.raises(PrivacyError, match="one dimension"):
        noisy_vector(np.zeros((1, 3)), law=law(), noise=StubNoise())
    for dtype in (float, bool, np.uint8):
        with pytest.raises(PrivacyError, match="signed integers"):
            noisy_counts(np.zeros(3, dtype=dtype), law=law(), noise=StubNoise())
    for scores in (np.zeros(0), np.zeros((2, 2))):
        with pytest.raises(PrivacyError, match="non-empty vector"):
            select(scores, epsilon=1.0, sensitivity=1.0, noise=StubNoise())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused_unseen(bad):
    canary = 123.456789
    with pytest.raises(PrivacyError, match="vector: expected finite") as error:
        noisy_vector(np.array([canary, bad, 0.0]), law=law(), noise=StubNoise())
    assert "123" not in str(error.value)
    with pytest.raises(PrivacyError, match="scores: expected finite"):
        select(np.array([canary, bad]), epsilon=1.0, sensitivity=1.0, noise=StubNoise())


def test_values_beyond_the_lattice_are_refused_unseen():
    with pytest.raises(PrivacyError, match="lattice range") as error:
        noisy_vector(np.array([0.0, 0.0, 2.0**33]), law=law(), noise=StubNoise())
    assert "8589934592" not in str(error.value)
    noisy_vector(np.array([0.0, 0.0, 2.0**31]), law=law(), noise=StubNoise())
    with pytest.raises(PrivacyError, match="lattice range"):
        noisy_counts(np.array([0, 0, 2**43]), law=law(), noise=StubNoise())
    noisy_counts(np.array([0, 0, 2**41]), law=law(), noise=StubNoise())
    with pytest.raises(PrivacyError, match="lattice range"):
        select(np.array([0.0, 1e30]), epsilon=1.0, sensitivity=1.0, noise=StubNoise())


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 1.0), (0.03, 2.5), (5.0, 1e-3)])
def test_a_selection_scales_its_noise_to_the_rounded_sensitivity(epsilon, sensitivity):
    noise = StubNoise()
    scores = np.array([0.0, sensitivity, 3 * sensitivity / 2])
    assert select(scores, epsilon=epsilon, sensitivity=sensitivity, noise=noise) == 2
    step = lattice_step(2 * sensitivity / epsilon)
    ((name, scale),) = noise.calls
    assert name == "gumbel"
    # Rounded scores move by at most sensitivity + step, in units of the step.
    assert epsilon * scale / 2 >= sensitivity / step + 1
    assert epsilon * scale / 2 == pytest.approx(sensitivity / step + 1, rel=1e-12)
    assert noise.scores == pytest.approx(scores / step, abs=0.5)
