"""Noisy one-way marginals as means of features: what is known of them, exactly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from dpiw import one_way
from dpiw.domain import Domain
from dpiw.generators.estimation import combined
from dpiw.generators.histogram import Histogram
from dpiw.generators.network import Family
from dpiw.generators.privbayes import PrivBayes
from dpiw.measurement import Measurement
from dpiw.one_way import OneWayLaw
from dpiw.privacy import NeighbouringRelation, PrivacyUnit
from dpiw.randomness import SeededNoise
from dpiw.schema import PublicSchema, ScaledTable
from dpiw.tables import PrivateTable
from dpiw.weights.means_noise import means_noise

SCHEMA = PublicSchema.from_mapping(
    {
        "name": "marginals",
        "columns": [
            {"name": "region", "kind": "categorical", "levels": ["north", "south", "west"]},
            {"name": "age", "kind": "integer", "lower": 0, "upper": 99},
            {"name": "income", "kind": "continuous", "lower": 0, "upper": 1e5, "nullable": True},
            {"name": "ill", "kind": "boolean", "role": "target"},
        ],
    }
)
DOMAIN = Domain.from_schema(SCHEMA, bins=8)
UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=1)
BINS = 8


def rows_of(count: int, seed: int = 1) -> ScaledTable:
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


def law(variances: Sequence[float] = (1.0, 2.0, 3.0, 4.0)) -> OneWayLaw:
    return OneWayLaw.of(DOMAIN, bins=BINS, variances=variances)


@given(rows=st.integers(1, 300), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_means_of_the_features_are_shares_of_the_codes(rows: int, seed: int) -> None:
    table = rows_of(rows, seed)
    found, codes, start = law().matrix(table).mean(axis=0), DOMAIN.codes(table), 0
    for j, size in enumerate(DOMAIN.sizes):
        shares = np.bincount(codes[:, j], minlength=size) / rows
        assert found[start : start + size - 1] == pytest.approx(shares[:-1])
        start += size - 1
    assert start == law().dimension == found.size


def centring(size: int) -> np.ndarray:
    """From noise of counts to noise of the features, but for the division."""
    return (np.eye(size) - 1 / size)[:-1]


def shares_of(counts: Sequence[np.ndarray], rows: float) -> np.ndarray:
    """What noisy counts say of the features' means, if there are so many rows."""
    return np.concatenate([centring(c.size) @ c / rows + 1 / c.size for c in counts])


def test_the_covariance_is_that_of_what_is_done_to_the_counts() -> None:
    found, start = law().covariance(50.0), 0
    for size, variance in zip(DOMAIN.sizes, (1.0, 2.0, 3.0, 4.0), strict=True):
        step = centring(size) / 50
        place = slice(start, start + size - 1)
        assert found[place, place] == pytest.approx(variance * step @ step.T)
        found[place, place] = 0
        start += size - 1
    assert not found.any()
    np.linalg.cholesky(law().covariance(50.0))


def test_an_error_of_the_number_of_rows_is_shared() -> None:
    """To first order: counts over 1.001 N against counts over N, beside the measured means."""
    rows, wrong, measured = 400.0, 400.4, np.array([30.0, -2.0])
    codes = DOMAIN.codes(rows_of(400))
    counts = [np.bincount(codes[:, j], minlength=s) for j, s in enumerate(DOMAIN.sizes)]
    about = np.concatenate([measured / rows, shares_of(counts, rows)])
    told = np.concatenate([measured / wrong, shares_of(counts, wrong)])
    own = means_noise(scale=2.0, rows=rows, constant=0.0, about=about, known=law())
    shared = means_noise(scale=2.0, rows=rows, constant=0.5, about=about, known=law()) - own
    # An error of N by one standard deviation, s/c = 4 rows, moves the means by its square root.
    moved = (told - about) * 4.0 / (wrong - rows)
    assert shared == pytest.approx(np.outer(moved, moved), rel=0.01, abs=1e-12)
    assert own[:2, :2] == pytest.approx((2.0 / rows) ** 2 * np.eye(2))


def test_noise_of_a_shared_table_cancels() -> None:
    """Two columns of one noisy table: their marginals' errors are shared in the totals alone."""
    sizes = (3, 4)
    child = np.kron(np.ones((1, sizes[0])), np.eye(sizes[1]))  # cells (parent, child), row by row
    parent = np.kron(np.eye(sizes[0]), np.ones((1, sizes[1])))
    assert (parent @ child.T).any()
    assert centring(3) @ parent @ child.T @ centring(4).T == pytest.approx(np.zeros((2, 3)))


def test_combined_marginals_weigh_every_table_by_its_precision() -> None:
    one, other = np.array([10.0, 20.0]), np.array([5.0, 15.0, 10.0])
    table = np.array([[1.0, 4.0, 3.0], [4.0, 10.0, 8.0]])
    families = [Family(child=0, parents=()), Family(child=1, parents=(0,))]
    counts, variances = combined(
        [one, other], families, [table], one_way_variance=2.0, family_variance=1.0
    )
    # A sum of three cells has variance 3, of two cells 2.
    assert variances == pytest.approx([1 / (1 / 2 + 1 / 3), 1 / (1 / 2 + 1 / 2)])
    assert counts[0] == pytest.approx((one / 2 + table.sum(axis=1) / 3) / (1 / 2 + 1 / 3))
    assert counts[1] == pytest.approx((other + table.sum(axis=0)) / 2)


def test_facts_read_back() -> None:
    again = OneWayLaw.from_json(json.loads(json.dumps(law().to_json())), SCHEMA)
    assert again == law()
    with pytest.raises(KeyError, match="column weight"):
        OneWayLaw.from_json({"bins": 8, "variances": {"weight": 1.0}}, SCHEMA)


def test_large_columns_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_way, "MOST_CODES", 8)
    assert law().columns == (0, 1, 3)
    monkeypatch.setattr(one_way, "MOST_INDICATORS", 5)
    assert (law().columns, law().variances) == ((0, 3), (1.0, 4.0))
    assert law().dimension == len(law().covariance(10.0)) == 3
    monkeypatch.setattr(one_way, "MOST_CODES", 1)
    assert law().levels.size == law().covariance(1.0).size == 0
    assert law().matrix(rows_of(4)).shape == (4, 0)


def drawn_counts(measurement: Measurement) -> list[np.ndarray]:
    """The best unbiased marginals of what a generator drew."""
    facts, arrays = measurement.facts, measurement.arrays
    one = [arrays[f"one_way_{j}"] for j in range(len(DOMAIN.sizes))]
    if "network" not in facts:
        return one
    families = [Family(child=c, parents=tuple(p)) for c, p in facts["network"]]
    tables = [arrays[f"family_{family.child}"] for family in families[1:]]
    return combined(
        one, families, tables,
        one_way_variance=facts["one_way_scale"] ** 2, family_variance=facts["family_scale"] ** 2,
    )[0]  # fmt: skip


@pytest.mark.parametrize("method", [Histogram(bins=BINS), PrivBayes(degree=1, bins=BINS)])
def test_a_generators_marginals_have_the_noise_they_state(method: Any) -> None:
    """Squared distances in units of the stated noise, 60 draws: chi-square.

    Two-sided, red by chance at 2e-6; noise of 2/3 or 3/2 of its scale lies far beyond.
    """
    table, total, freedom = rows_of(2000), 0.0, 0
    ready = method.calibrate(rho=0.5, schema=SCHEMA, unit=UNIT, nominal_rows=2000)
    private = PrivateTable(schema=SCHEMA, scaled=table)
    for seed in range(60):
        drawn = ready.measure(private, noise=SeededNoise(seed))
        known = ready.model(drawn, schema=SCHEMA).one_way
        away = shares_of(drawn_counts(drawn), 2000.0) - known.matrix(table).mean(axis=0)
        total += float(away @ np.linalg.solve(known.covariance(2000.0), away))
        freedom += away.size
    low, high = chi2.ppf(1e-6, freedom), chi2.isf(1e-6, freedom)
    assert low < total < high
    assert 4 / 9 * total < low
    assert 9 / 4 * total > high


def test_the_rows_show_the_marginals_that_were_drawn() -> None:
    """Where noise is small the generator's rows are the targets: their error is the noise's."""
    ready = Histogram(bins=BINS).calibrate(rho=50.0, schema=SCHEMA, unit=UNIT, nominal_rows=2000)
    drawn = ready.measure(PrivateTable(schema=SCHEMA, scaled=rows_of(2000)), noise=SeededNoise(1))
    model = ready.model(drawn, schema=SCHEMA)
    rows = model.sample(200_000, rng=np.random.default_rng(2)).scaled
    shown, told = model.one_way.matrix(rows).mean(axis=0), shares_of(drawn_counts(drawn), 2000.0)
    assert shown == pytest.approx(told, abs=0.006)
