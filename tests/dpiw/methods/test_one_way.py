"""Noisy one-way marginals as means of features: what is known of them, exactly."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.errors import ReleaseError
from dpiw.methods import one_way
from dpiw.methods.generators.estimation import NoisyMarginal, combined
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.one_way import OneWayLaw, OneWayMarginals
from dpiw.methods.weights.measured.targets import means_noise
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation
from tests.support.worlds import UNIT, declared, unit_of

SCHEMA = declared(
    {"name": "region", "kind": "categorical", "levels": ["north", "south", "west"]},
    {"name": "age", "kind": "integer", "lower": 0, "upper": 99},
    {"name": "income", "kind": "continuous", "lower": 0, "upper": 1e5, "nullable": True},
    {"name": "ill", "kind": "boolean", "role": "target"},
    name="marginals",
)
DOMAIN = Domain.from_schema(SCHEMA, bins=8)
BINS = 8


def rows_of(count, seed=1):
    """Rows of which some lack an income."""
    rng = np.random.default_rng(seed)
    income = rng.random(count)
    return ScaledTable(
        columns={
            "region": rng.choice(3, count, p=[0.6, 0.3, 0.1]).astype(np.int32),
            "age": np.round(rng.beta(2, 5, count) * 99) / 99,
            "income": np.where(rng.random(count) < 0.1, np.nan, income),
            "ill": rng.choice(2, count, p=[0.8, 0.2]).astype(np.int32),
        },
        rows=count,
    )


def law(variances=(1.0, 2.0, 3.0, 4.0), total=0.0):
    return marginals(variances, total).law


def marginals(variances=(1.0, 2.0, 3.0, 4.0), total=0.0):
    codes = DOMAIN.codes(rows_of(400))
    marginals = [np.bincount(codes[:, j], minlength=s) / 2 for j, s in enumerate(DOMAIN.sizes)]
    return OneWayMarginals.of(
        DOMAIN, bins=BINS, marginals=marginals, variances=variances, total_variance=total
    )


@given(rows=st.integers(1, 300), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_means_of_the_features_are_shares_of_the_codes(rows, seed):
    table = rows_of(rows, seed)
    means, codes, start = law().matrix(table).mean(axis=0), DOMAIN.codes(table), 0
    for j, size in enumerate(DOMAIN.sizes):
        shares = np.bincount(codes[:, j], minlength=size) / rows
        assert means[start : start + size - 1] == pytest.approx(shares[:-1])
        start += size - 1
    assert start == law().dimension == means.size
    assert marginals().shares == pytest.approx(law().matrix(rows_of(400)).mean(axis=0))


def test_the_covariance_is_that_of_what_is_done_to_the_counts():
    covariance, start = law().covariance(marginals().shares, 50.0), 0
    np.linalg.cholesky(covariance)
    for size, variance in zip(DOMAIN.sizes, (1.0, 2.0, 3.0, 4.0), strict=True):
        step = (np.eye(size) - 1 / size)[:-1] / 50  # from noise of counts to noise of features
        place = slice(start, start + size - 1)
        assert covariance[place, place] == pytest.approx(variance * step @ step.T)
        covariance[place, place] = 0
        start += size - 1
    assert not covariance.any()


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_measured_means_and_known_marginals_share_no_noise(constant):
    about = np.concatenate([[0.1, -0.2], marginals().shares])
    covariance = means_noise(
        scale=2.0, rows=400.0, constant=constant, about=about, known=law(total=5)
    )
    shared = 0.0 if constant == 0 else np.outer(about[:2], about[:2]) / constant**2
    assert covariance[:2, :2] == pytest.approx((2.0 / 400) ** 2 * (np.eye(2) + shared))
    assert not covariance[:2, 2:].any()
    assert covariance[2:, 2:] == pytest.approx(law(total=5).covariance(about[2:], 400.0))


def test_combined_marginals_weigh_every_table_by_its_precision():
    first, second = np.array([10.0, 20.0]), np.array([5.0, 15.0, 10.0])
    table = np.array([[1.0, 4.0, 3.0], [4.0, 10.0, 8.0]])
    measured = [
        NoisyMarginal(columns=(0,), values=first, variance=2.0),
        NoisyMarginal(columns=(1,), values=second, variance=2.0),
        NoisyMarginal(columns=(0, 1), values=table, variance=1.0),
    ]
    one, two = combined(measured)
    # A sum of three cells has variance 3, of two cells 2.
    assert one.variance == pytest.approx(1 / (1 / 2 + 1 / 3))
    assert two.variance == pytest.approx(1 / (1 / 2 + 1 / 2))
    assert one.values == pytest.approx((first / 2 + table.sum(axis=1) / 3) / (1 / 2 + 1 / 3))
    assert two.values == pytest.approx((second + table.sum(axis=0)) / 2)


@pytest.mark.parametrize(
    "change",
    [
        {"bins": "x"}, {"bins": 0}, {"bins": 1 << 20}, {"bins": 8.0}, {"total_variance": -1},
        {"total_variance": math.nan}, {"variances": [1]}, {"variances": {"weight": 1.0}},
        {"variances": {"age": 0.0}}, {"variances": {"age": math.inf}}, {"variances": {"age": "x"}},
        {"variances": {"age": None}}, {"variances": 3},
    ],
)  # fmt: skip
def test_facts_that_fit_no_law_are_refused(change):
    with pytest.raises(ReleaseError, match="`one_way` does not fit the release's schema"):
        OneWayLaw.from_json(law().to_json() | change, SCHEMA)
    again = OneWayLaw.from_json(json.loads(json.dumps(law(total=7).to_json())), SCHEMA)
    assert again == law(total=7)
    for facts in (None, [], [1], "x", {}):
        with pytest.raises(ReleaseError):
            OneWayLaw.from_json(facts, SCHEMA)


def test_large_columns_are_left_out(monkeypatch):
    monkeypatch.setattr(one_way, "MOST_CODES", 8)
    assert law().columns == (0, 1, 3)
    monkeypatch.setattr(one_way, "MOST_INDICATORS", 5)
    known = marginals()
    assert (known.law.columns, known.law.variances) == ((0, 3), (1.0, 4.0))
    assert known.law.dimension == known.shares.size == 3
    assert known.law.covariance(known.shares, 10.0).shape == (3, 3)
    monkeypatch.setattr(one_way, "MOST_CODES", 1)
    unknown = marginals()
    assert unknown.shares.size == unknown.law.covariance(unknown.shares, 1.0).size == 0
    assert unknown.law.matrix(rows_of(4)).shape == (4, 0)


METHODS = {
    "histogram": Histogram(bins=BINS),
    "one parent": PrivBayes(degree=1, bins=BINS),
    "two parents": PrivBayes(degree=2, bins=BINS),
}


@pytest.mark.parametrize("relation", list(NeighbouringRelation))
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.slow
def test_a_generators_shares_have_the_noise_they_state(name, relation):
    """Squared distances in units of the stated noise, 60 draws: chi-square.

    Rows so many that no cell is cut at zero. Two-sided, red by chance at 2e-6; noise of 2/3 or 3/2
    of its scale lies far beyond.
    """
    unit, table = unit_of(relation), rows_of(20_000)
    ready = METHODS[name].calibrate(rho=0.5, schema=SCHEMA, unit=unit, nominal_rows=20_000)
    private, total, freedom = PrivateTable(schema=SCHEMA, scaled=table), 0.0, 0
    for seed in range(60):
        drawn = ready.measure(private, noise=SeededNoise(seed))
        known = ready.model(drawn, schema=SCHEMA).one_way
        exact = known.law.matrix(table).mean(axis=0)
        away = known.shares - exact
        assert known.shares.min() > 0
        total += float(away @ np.linalg.solve(known.law.covariance(exact, 20_000.0), away))
        freedom += away.size
    low, high = chi2.ppf(1e-6, freedom), chi2.isf(1e-6, freedom)
    assert low < total < high
    assert 4 / 9 * total < low
    assert 9 / 4 * total > high


@pytest.mark.parametrize("relation", list(NeighbouringRelation))
@pytest.mark.slow
def test_the_error_of_the_generators_total_is_in_it(relation):
    """Along the one direction that the number of rows moves: 300 draws, chi-square, 2e-6."""
    unit, table = unit_of(relation), rows_of(4000)
    ready = METHODS["histogram"].calibrate(rho=0.5, schema=SCHEMA, unit=unit, nominal_rows=4000)
    private, total = PrivateTable(schema=SCHEMA, scaled=table), 0.0
    for seed in range(300):
        drawn = ready.measure(private, noise=SeededNoise(seed))
        known = ready.model(drawn, schema=SCHEMA).one_way
        exact = known.law.matrix(table).mean(axis=0)
        noise = known.law.covariance(exact, 4000.0)
        alone = replace(known.law, total_variance=0.0).covariance(exact, 4000.0)
        levels = np.concatenate([np.full(s - 1, 1 / s) for s in known.law.sizes])
        lever = np.linalg.solve(alone, exact - levels)
        total += float((lever @ (known.shares - exact)) ** 2 / (lever @ noise @ lever))
    assert chi2.ppf(1e-6, 300) < total < chi2.isf(1e-6, 300)
    assert lever @ alone @ lever < 0.8 * (lever @ noise @ lever)  # what a law without it would say


@pytest.mark.parametrize("name", METHODS)
def test_the_generators_rows_show_its_shares(name):
    ready = METHODS[name].calibrate(rho=5.0, schema=SCHEMA, unit=UNIT, nominal_rows=2000)
    drawn = ready.measure(PrivateTable(schema=SCHEMA, scaled=rows_of(2000)), noise=SeededNoise(1))
    model = ready.model(drawn, schema=SCHEMA)
    rows = model.sample(200_000, rng=np.random.default_rng(2)).scaled
    shown = model.one_way.law.matrix(rows).mean(axis=0)
    assert shown == pytest.approx(model.one_way.shares, abs=0.006)
