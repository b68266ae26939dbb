"""`output_noised`: one vector release on the published rows (docs/method.md section 12)."""

from __future__ import annotations

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.methods.weights.base import Normalisation
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.output import REASON, OutputNoised, rows_digest
from dpiw.methods.weights.paper.ratio import weigh
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise


@pytest.fixture
def tables(numeric, rows):
    schema, rng = numeric(3), np.random.default_rng(95)
    private = PrivateTable(schema=schema, scaled=rows(schema, 200, rng, power=2.0))
    fitting, published = (
        SyntheticTable(schema=schema, scaled=rows(schema, count, rng)) for count in (300, 4)
    )
    return schema, private, fitting, published


def made(schema, unit, *, rho=0.05, **settings):
    return OutputNoised(**{"rows": 4, **settings}).calibrate(
        rho=rho, schema=schema, unit=unit, nominal_rows=200
    )


def test_never_better_than_noise_on_the_coefficients(numeric, rows, unit):
    """Each log weight's noise is sigma_max(X)/norm(x) times larger: here more than 5 times.

    By simulation 878 against 9.7 Delta2 at d = 13 and 10,000 rows.
    """
    schema, rng = numeric(13), np.random.default_rng(97)
    published = SyntheticTable(schema=schema, scaled=rows(schema, 200, rng))
    private = PrivateTable(schema=schema, scaled=rows(schema, 100, rng))
    output_noised = made(schema, unit, rows=200, allow_more_rows=True, penalty=50.0).for_rows(
        published
    )
    beta = BetaDebiased(penalty=50.0).calibrate(
        rho=0.05, schema=schema, unit=unit, nominal_rows=200
    )
    noises = []
    for estimator in (output_noised, beta):
        measured = estimator.measure(private, published, noise=SeededNoise(1))
        ratio = estimator.ratio(measured, schema=schema)
        noises.append(
            weigh(ratio, published, debias=True, normalisation=Normalisation.UNNORMALISED).noise
        )
    x = output_noised.feature_map(schema).matrix(published.scaled)
    share = np.linalg.norm(x, 2) / np.linalg.norm(x, axis=1)
    np.testing.assert_allclose(noises[0] / noises[1], share, rtol=1e-4)
    assert np.median(share) > 5


def test_more_rows_than_coefficients_are_refused_with_the_reason(tables, numeric, unit):
    schema = tables[0]
    with pytest.raises(SpecError, match="rows=5: expected at most 4, the number of coeff") as told:
        made(schema, unit, rows=5)
    assert "sqrt(rows)" in str(told.value)
    assert "allow_more_rows: true" in str(told.value)
    wanted = made(schema, unit, rows=5, allow_more_rows=True)
    assert REASON in wanted.warnings(schema=schema, nominal_rows=200)[-1]
    assert not any(
        REASON in told for told in made(schema, unit).warnings(schema=schema, nominal_rows=200)
    )


def test_the_vector_belongs_to_its_rows(tables, unit, rows):
    schema, private, fitting, published = tables
    with pytest.raises(WeightError):
        made(schema, unit).for_rows(fitting)
    estimator = made(schema, unit).for_rows(published)
    with pytest.raises(UncalibratedError):
        made(schema, unit).measure(private, fitting, noise=SeededNoise(1))
    measured = estimator.measure(private, fitting, noise=SeededNoise(1))
    stored = Measurement.from_bytes(measured.to_bytes())
    assert stored.facts["published_rows"] == rows_digest(published)
    assert stored.facts["scale"] >= (stored.facts["noise_multiplier"] * stored.facts["sensitivity"])
    # Who reads the measurement needs no published rows to rebuild the ratio.
    ratio = made(schema, unit).ratio(stored, schema=schema)
    np.testing.assert_array_equal(ratio.log_ratio(published), measured.arrays["log_ratio"])
    scored = ratio.scored(published)
    np.testing.assert_array_equal(scored.features, np.eye(4))
    assert scored.law.scale == stored.facts["scale"]
    assert ratio.chance(published).shape == (999,)
    reordered = SyntheticTable(schema=schema, scaled=published.scaled.take(np.array([1, 0, 2, 3])))
    for use in (ratio.log_ratio, ratio.scored, ratio.signal):
        with pytest.raises(WeightError, match="not the rows whose weights were released"):
            use(reordered)
    assert rows_digest(published) == rows_digest(
        SyntheticTable(schema=schema, scaled=published.scaled)
    )


def test_settings_are_refused(tables, unit):
    schema = tables[0]
    for name, value in (("noise", "laplace"), ("rows", 0), ("rows", 2000), ("allow_more_rows", 1)):
        with pytest.raises(SpecError, match=name):
            OutputNoised(**{name: value})
    with pytest.raises(SpecError, match="rows"):
        made(schema, unit, rows=None)
    wild = made(schema, unit, noise="spherical", penalty=1.0)
    with pytest.raises(SpecError, match="noise"):
        wild.predicted_log_weight_noise(schema=schema)
