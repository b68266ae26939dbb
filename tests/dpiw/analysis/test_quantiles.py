"""Where in its generator's bin a quantile lies: nothing measured tells, and intervals say so."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.errors.intervals import noise_aware_covariance
from dpiw.analysis.errors.law import played_sample
from dpiw.analysis.estimators.estimates import picked
from dpiw.data.tables import PrivateTable
from dpiw.methods.recipe import play
from dpiw.methods.weights.measured.constants import STEP
from dpiw.plan.plan import compile_plan
from dpiw.privacy.randomness import SeededNoise
from tests.support.specs import spec
from tests.support.worlds import declared

ROWS = 6000
SCHEMA = declared(
    {"name": "bill", "kind": "continuous", "lower": 0, "upper": 80},
    {"name": "paid", "kind": "categorical", "levels": ["yes", "no"]},
    {"name": "district", "kind": "categorical", "levels": ["north", "south"]},
)


def bills(rng, rows):
    """A least charge: nobody's bill lies between 20 and 22.5, within bins of five."""
    bill = np.clip(rng.gamma(4, 7, rows), 0.0, 80.0)
    bill = np.where((bill > 20) & (bill < 25), 22.5 + (bill - 20) / 2, bill)
    paid = np.where(rng.random(rows) < 0.3, "no", "yes")
    district = np.where(rng.random(rows) < 0.4, "north", "south")
    return pd.DataFrame({"bill": bill, "paid": paid, "district": district})


@pytest.fixture(scope="module")
def sample():
    """Of a release in memory, with the law of its weights."""
    weights = {"method": "measured", "settings": {"omega_seed": 1, "frequencies": 60}}
    asked = spec(
        epsilon="3", nominal_rows=ROWS, synthetic_rows=3000,
        generator={"method": "histogram", "settings": {"bins": 16}},
        weights=weights | {"when_infeasible": "keep"},
    )  # fmt: skip
    scaled = SCHEMA.scale(bills(np.random.default_rng(5), ROWS))
    table = PrivateTable(schema=SCHEMA, scaled=scaled)
    recipe = compile_plan(asked, SCHEMA).recipe
    played = play(recipe, table, noise=SeededNoise(6), rng=np.random.default_rng(7))
    return played_sample(played)


TRUTH = bills(np.random.default_rng(8), 400_000)


def test_a_gap_inside_a_bin_is_in_the_interval(sample):
    """Within the bin from 20 to 25 a quantile is told too low by more than noise brings."""
    probability = float((TRUTH.bill < 23.5).mean())
    truth = float(TRUTH.bill.quantile(probability))
    interval = analysis.quantile(sample, "bill", probability).interval()
    assert interval.lower[0] <= truth <= interval.upper[0]
    blind = replace(sample, law=replace(sample.law, bins={}))
    narrow = analysis.quantile(blind, "bill", probability).interval()
    assert narrow.upper[0] < truth
    assert interval.upper[0] - interval.lower[0] < 5


def test_what_is_open_inside_a_bin_is_a_third_of_one_person_s(sample):
    values, w = sample.table["bill"].to_numpy(), sample.weights
    bins = sample.law.bins["bill"]
    np.testing.assert_array_equal(bins, np.minimum(values // 5, 15))
    for probability in (0.1, 0.37, 0.8):
        estimate = analysis.quantile(sample, "bill", probability)
        mask = bins == min(estimate.value // 5, 15)
        share, below = (
            w[mask].sum() / w.sum(),
            w[mask & (values <= estimate.value)].sum() / w[mask].sum(),
        )
        sd = share * np.sqrt(below * (1 - below)) / 3 / estimate.facts["density"]
        assert estimate.facts["inside"] == pytest.approx(sd, rel=0.01)  # one row, above or below
        blind = analysis.quantile(
            replace(sample, law=replace(sample.law, bins={})), "bill", probability
        )
        assert np.isnan(blind.facts["inside"]).all()
        ours, others = estimate.interval().parts["prior"], blind.interval().parts["prior"]
        law = sample.law
        apart = law.variances(estimate.influence, step=1.0)[1]
        assert others == pytest.approx(apart)
        assert ours == pytest.approx(
            law.variances(estimate.influence, step=STEP)[1] + estimate.facts["inside"] ** 2
        )


def test_groups_and_joint_estimates_keep_it_by_value(sample):
    by = analysis.quantile(sample, "bill", 0.6, by="district")
    single = [
        analysis.quantile(sample, "bill", 0.6, where=lambda t, one=one: t["district"] == one)
        for one in ("north", "south")
    ]
    np.testing.assert_allclose(
        by.facts["inside"], [one.facts["inside"][0] for one in single], rtol=1e-9
    )
    assert picked(by, [1]).facts["inside"] == pytest.approx(single[1].facts["inside"])
    joined = analysis.joint(by, analysis.median(sample, lambda t: t["bill"] + 1))
    assert np.isfinite(joined.facts["inside"]).tolist() == [True, True, False]
    np.testing.assert_allclose(joined.interval().parts["prior"][:2], by.interval().parts["prior"])


def test_a_bin_of_one_value_leaves_nothing_open(sample):
    table = pd.DataFrame({"k": np.repeat([1.0, 2.0, 3.0], 1000)})
    codes = {"k": np.repeat(np.arange(3, dtype=np.int32), 1000)}
    law = replace(sample.law, bins=codes)
    median = analysis.quantile(analysis.WeightedSample(frame=table, weights=np.ones(3000), law=law),
                               "k", 0.5)  # fmt: skip
    assert median.value == 2.0
    assert median.facts["inside"] == 0.0


def test_quantiles_vary_together_as_the_prior_says_and_inside_bins_each_alone(sample):
    blind = replace(sample, law=replace(sample.law, bins={}))
    known = analysis.joint(*(analysis.quantile(sample, "bill", p) for p in (0.3, 0.6)))
    mixed = analysis.joint(known, analysis.median(sample, lambda t: t["bill"] + 1))
    for estimate in (known, mixed, analysis.quantile(blind, "bill", 0.6, by="district")):
        covariance = noise_aware_covariance(estimate)
        np.testing.assert_allclose(
            np.diag(covariance), sum(estimate.interval().parts.values()), rtol=1e-9
        )
        assert np.linalg.eigvalsh(covariance).min() > 0
        assert np.isfinite(analysis.wald_test(estimate).statistic)
    law, (a, b) = sample.law, known.influence.T
    pushed = law.weights[:, None] * law.calibrated(known.influence)
    rows = law.repeats * np.cov(pushed.T, bias=True)[0, 1] / len(pushed)
    variances = [sum(law.variances(g[:, None], step=STEP))[0] for g in (a + b, a - b)]
    expected = rows + (variances[0] - variances[1]) / 4
    assert noise_aware_covariance(known)[0, 1] == pytest.approx(expected)
