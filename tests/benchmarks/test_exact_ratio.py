"""The regression without noise that the paper's tables compare with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, WeightError
from dpiw.methods.weights.paper.regression import LinearMap, Regression, solve
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.benchmarks.scripts import load, rows, schema

LogisticRegressionRatio = load("exact_ratio").LogisticRegressionRatio


@pytest.fixture
def tables(rng):
    private = PrivateTable(schema=schema(), scaled=rows(rng, 150, 2.0))
    return schema(), private, SyntheticTable(schema=schema(), scaled=rows(rng, 450))


def test_it_is_the_regression_without_noise(tables):
    schema, private, synthetic = tables
    estimator = LogisticRegressionRatio(penalty=4.0)
    measured = estimator.measure(private, synthetic, noise=SeededNoise(1))
    features = LinearMap(schema)
    exact = solve(
        Regression(
            private=features.matrix(private.confidential()),
            synthetic=features.matrix(synthetic.scaled),
            synthetic_weight=150 / 450,
            penalty=4.0,
        ),
        tolerance=1e-11,
    )
    np.testing.assert_allclose(measured.arrays["coefficients"], exact, atol=1e-8)


def test_it_is_not_private_and_says_so(tables):
    schema, private, synthetic = tables
    estimator = LogisticRegressionRatio()
    assert not estimator.private
    assert not estimator.measure(private, synthetic, noise=SeededNoise(1)).publishable
    unit = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
    assert estimator.events(schema=schema, unit=unit) == ()


def test_empty_tables_are_refused(tables, rng):
    schema, private, synthetic = tables
    nothing = rows(rng, 0)
    estimator = LogisticRegressionRatio()
    for real, drawn in (
        (PrivateTable(schema=schema, scaled=nothing), synthetic),
        (private, SyntheticTable(schema=schema, scaled=nothing)),
    ):
        with pytest.raises(WeightError, match="rows in both tables"):
            estimator.measure(real, drawn, noise=SeededNoise(1))


@pytest.mark.parametrize("penalty", [0, -1.0, float("inf"), "1"])
def test_inadmissible_penalty_is_refused(penalty):
    with pytest.raises(SpecError, match=r"settings\.penalty"):
        LogisticRegressionRatio(penalty=penalty)


def test_foreign_measurements_are_refused(tables):
    schema, private, synthetic = tables
    estimator = LogisticRegressionRatio()
    measured = estimator.measure(private, synthetic, noise=SeededNoise(1))
    with pytest.raises(WeightError, match="not a measurement of this method"):
        estimator.ratio(replace(measured, kind="beta"), schema=schema)
    short = replace(measured, arrays={"coefficients": np.zeros(1)})
    with pytest.raises(WeightError, match="does not fit"):
        estimator.ratio(short, schema=schema)
