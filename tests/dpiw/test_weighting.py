from __future__ import annotations

import numpy as np
import pytest

from dpiw.diagnostics import Verdict
from dpiw.errors import WeightError
from dpiw.privacy import NoiseKind, NoiseLaw
from dpiw.weighting import Normalisation, uniform_weights, weigh


class Ratio:
    """A released ratio with known features."""

    law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=0.3, dimension=2)
    coefficients = np.array([1.0, -0.5])

    def __init__(self, rows=100):
        self.x = np.random.default_rng(61).random((rows, 2))

    def features(self, synthetic):
        return self.x

    def log_ratio(self, synthetic):
        return self.x @ self.coefficients

    def sampling_covariance(self, synthetic):
        return None


def test_unnormalised():
    ratio = Ratio()
    plain = weigh(ratio, None, debias=False, normalisation=Normalisation.UNNORMALISED)
    np.testing.assert_array_equal(plain.log_weights, ratio.log_ratio(None))
    assert plain.steps == ()
    found = weigh(ratio, None, debias=True, normalisation=Normalisation.UNNORMALISED)
    square = (ratio.x**2).sum(axis=1)
    np.testing.assert_allclose(found.log_weights, ratio.log_ratio(None) - 0.045 * square)
    np.testing.assert_allclose(found.noise, 0.3 * np.sqrt(square))
    assert found.steps == ("debias b(x)",)


def test_self_normalised():
    ratio = Ratio()
    plain, found = (weigh(ratio, None, debias=debias) for debias in (False, True))
    for weights in (plain, found):
        assert np.exp(weights.log_weights).mean() == pytest.approx(1)
    assert plain.steps == ("self-normalise",)
    assert found.steps == ("debias b(x - mu)", "self-normalise")
    shares = np.exp(plain.log_weights) / 100
    centred = ratio.x - shares @ ratio.x
    expected = ratio.log_ratio(None) - 0.045 * (centred**2).sum(axis=1)
    difference = found.log_weights - expected
    np.testing.assert_allclose(difference, difference[0])
    np.testing.assert_allclose(found.noise, 0.3 * np.linalg.norm(centred, axis=1))
    np.testing.assert_allclose(plain.noise, found.noise)
    assert found.law == Ratio.law


def test_resolution_reaches_the_verdict():
    found = weigh(Ratio(), None, debias=True, resolution=0.1)
    assert found.diagnostics.verdict is Verdict.DO_NOT_USE


def test_uniform_weights():
    found = uniform_weights(40)
    assert (found.rows, found.law, found.steps) == (40, None, ("none",))
    assert np.all(found.log_weights == 0)
    assert found.diagnostics.verdict is Verdict.USE


def test_no_rows_are_refused():
    with pytest.raises(WeightError, match="at least one synthetic row"):
        uniform_weights(0)
    with pytest.raises(WeightError, match="at least one synthetic row"):
        weigh(Ratio(rows=0), None, debias=True)
