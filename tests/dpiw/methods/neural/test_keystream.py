"""Fast secure noise: its law on both sides, its tail, its hygiene; and the noisy sum's lattice.

Checks of laws accept when p > 1e-9 and reject when p < 1e-9. The secure source draws other values
on each run, so the false-alarm rate of each of its checks is 1e-9; seeded ones are deterministic.
"""

import math

import numpy as np
import pytest
from scipy import stats

from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.privacy import keystream
from dpiw.privacy.keystream import bernoulli_rows, keystream_normals, keystream_uniforms
from dpiw.privacy.mechanisms import noisy_sum
from dpiw.privacy.randomness import SecureNoise, SeededNoise

FALSE_ALARM = 1e-9
SOURCES = [SecureNoise, lambda: SeededNoise(20240404)]
sources = pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])


def two_sided(law, value):
    return 2 * min(law.cdf(value), law.sf(value))


@sources
@pytest.mark.slow
def test_the_normals_are_normal(source):
    """Kolmogorov-Smirnov, and the counts beyond three and four deviations on either side."""
    draws = source().gaussian_vector(scale=3.0, size=400_000) / 3.0
    assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM
    for wrong in (stats.t(20), stats.norm(scale=2 / 3), stats.norm(scale=3 / 2)):
        assert stats.kstest(draws, wrong.cdf).pvalue < FALSE_ALARM
    for bound in (3.0, 4.0):
        law = stats.binom(draws.size, stats.norm.sf(bound))
        for side in (draws, -draws):
            assert two_sided(law, (side > bound).sum()) > FALSE_ALARM


def test_the_two_halves_of_a_draw_are_independent():
    """Sine and cosine share a radius and an angle: no power of one tells of the other."""
    draws = keystream_normals(400_000)
    one, two = draws[:200_000], draws[200_000:]
    for f, g in ((one, two), (one**2 - 1, two**2 - 1), (one, two**2 - 1), (np.abs(one), two)):
        score = (f * g).mean() / ((f * g).std() / math.sqrt(f.size))
        assert abs(score) < stats.norm.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize("word", [0, 1, 2, 2**44, 2**63, 2**64 - 1])
def test_every_word_gives_a_finite_normal(monkeypatch, word):
    """The smallest radius word gets further bits, so the tail is no coarse grid."""
    monkeypatch.setattr(
        keystream, "keystream_words", lambda count: np.full(count, word, dtype=np.uint64)
    )
    draws = keystream_normals(6)
    assert np.all(np.isfinite(draws))
    assert np.abs(draws).max() < math.sqrt(2 * 118 * math.log(2))
    uniforms = keystream_uniforms(3)
    assert np.all((uniforms > 0) & (uniforms <= 1))


def test_small_words_get_further_bits():
    """Each from its own cell, [3, 4) or [-4, -3) of 2^63; larger words are left as they are."""
    radii = keystream._radii(np.array([3.0, 3.0, -4.0, 2.0**50]))
    uniforms = 2.0**63 * np.exp(-0.5 * radii**2)
    assert len(set(uniforms)) == 4
    assert np.all(np.abs(uniforms[:3] - 3.5) <= 0.5 + 1e-9)
    assert uniforms[3] == pytest.approx(2.0**50, rel=1e-12)


def test_normals_are_those_of_box_and_muller(monkeypatch):
    """Their formula, written out, on the same words; the odd one out is left away."""
    words = np.random.default_rng(8).integers(0, 2**64, size=20_000, dtype=np.uint64)
    monkeypatch.setattr(keystream, "keystream_words", lambda count: words[:count].copy())
    first, second = words.view(np.int64).astype(float).reshape(2, -1)
    radius = np.sqrt(-2 * np.log(np.abs(first) / 2.0**63))
    angle = second * (2 * math.pi / 2.0**64)
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    np.testing.assert_allclose(keystream_normals(20_000), expected, atol=1e-12)
    np.testing.assert_allclose(keystream_normals(19_999), expected[:-1], atol=1e-12)


@sources
@pytest.mark.parametrize("probability", [0.02, 0.2, 0.9])
def test_every_row_is_drawn_with_the_rate_and_independently(source, probability):
    """Counts of lots and of single rows are binomial, on both sides; neighbours do not interact."""
    noise, rows, lots = source(), 300, 4000
    drawn = np.zeros((lots, rows), dtype=bool)
    for lot in drawn:
        lot[noise.poisson_sample(rows=rows, probability=probability)] = True
    total = stats.binom(lots * rows, probability)
    assert two_sided(total, drawn.sum()) > FALSE_ALARM
    assert two_sided(stats.binom(lots * rows, 0.9 * probability), drawn.sum()) < FALSE_ALARM
    spread = lots * rows * probability * (1 - probability)
    for counts in (drawn.sum(axis=1), drawn.sum(axis=0)):
        square = ((counts - counts.size**-1 * drawn.sum()) ** 2).sum() * counts.size / spread
        assert two_sided(stats.chi2(counts.size - 1), square) > FALSE_ALARM
    both = (drawn[:, 1:] & drawn[:, :-1]).sum()
    pairs = lots * (rows - 1)
    assert two_sided(stats.norm(
        pairs * probability**2, math.sqrt(pairs * probability**2 * (1 + 2 * probability))
    ), both) > FALSE_ALARM  # fmt: skip


def test_samples_at_the_ends():
    noise = SecureNoise()
    np.testing.assert_array_equal(noise.poisson_sample(rows=4, probability=1.0), np.arange(4))
    assert noise.poisson_sample(rows=0, probability=0.5).size == 0
    assert noise.poisson_sample(rows=10**6, probability=1e-15).size == 0
    found = noise.poisson_sample(rows=10**5, probability=0.01)
    assert found.dtype == np.int64
    assert np.all(np.diff(found) > 0)
    assert 0 <= found[0] < found[-1] < 10**5
    small = bernoulli_rows(3, 0.5, uniforms=lambda count: np.ones(count))
    np.testing.assert_array_equal(small, np.arange(3))


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(1)], ids=["secure", "seeded"])
def test_draws_out_of_range_are_refused(noise):
    for scale in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(UncalibratedError, match="scale"):
            noise.gaussian_vector(scale=scale, size=2)
    with pytest.raises(SpecError, match="size"):
        noise.gaussian_vector(scale=1.0, size=0)
    for probability in (0.0, -0.1, 1.1, np.nan):
        with pytest.raises(SpecError, match="probability"):
            noise.poisson_sample(rows=2, probability=probability)


@pytest.mark.parametrize(
    "total",
    [np.zeros((2, 2)), np.zeros(3, dtype=np.float32), np.array([1.0, np.nan]),
     np.array([np.inf])],
)  # fmt: skip
def test_sums_that_are_no_vectors_of_numbers_are_refused(total):
    with pytest.raises(PrivacyError, match="sum:"):
        noisy_sum(total, scale=1.0, noise=SecureNoise())
    with pytest.raises(UncalibratedError, match="scale"):
        noisy_sum(np.zeros(2), scale=0.0, noise=SecureNoise())
    large = np.array([1e300, -1e300])  # its squares overflow, its entries do not
    np.testing.assert_allclose(noisy_sum(large, scale=1.0, noise=SecureNoise()), large)
