"""Where a person may have several rows: intervals, thresholds, totals, and what is said of it."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw import analysis
from dpiw.analysis.errors.intervals import noise_aware_covariance, variance_parts
from dpiw.analysis.errors.verdicts import EMPTY, few, size_objections
from dpiw.analysis.estimators.bayes import scaled_weights
from dpiw.analysis.sample import WeightedSample
from dpiw.errors import ReleaseError
from dpiw.methods.weights.measured.credit import Misfit
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.plan.assumptions import caveats
from dpiw.privacy.units import rows_caveat
from tests.benchmarks.scripts import load
from tests.support.worlds import at_weights

ROWS = 400

ESTIMATORS = {
    "mean": lambda s: analysis.mean(s, "y"),
    "share": lambda s: analysis.mean(s, "ill"),
    "group": lambda s: analysis.mean(s, "y", where="x > 0"),
    "groups": lambda s: analysis.mean(s, "y", by="g"),
    "shares": lambda s: analysis.value_counts(s, "g"),
    "total": lambda s: analysis.total(s, "y", rows=4000),
    "median": lambda s: analysis.median(s, "y"),
    "quantile": lambda s: analysis.quantile(s, "y", 0.9, where="x > -0.2"),
    "std": lambda s: analysis.std(s, "y"),
    "correlation": lambda s: analysis.correlation(s, "x", "y"),
    "linear": lambda s: analysis.linear_regression(s, "y", ["x", "g"]),
    "logistic": lambda s: analysis.logistic_regression(s, "ill", ["x"]),
    "poisson": lambda s: analysis.poisson_regression(s, "count", ["x"]),
    "t test": lambda s: analysis.t_test(s, "y", by="ill").estimate,
    "chi square": lambda s: analysis.chi_square_test(s, "g", "ill").estimate,
    "joint": lambda s: analysis.joint(analysis.mean(s, "y"), analysis.mean(s, "x")),
}


def sample_of(*, seed=3, rows=4000.0, max_rows=1):
    """A release with measured weights, of about so many confidential rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-0.5, 0.5, ROWS)
    y = np.exp(x + 0.3 * rng.normal(size=ROWS))
    ill = rng.random(ROWS) < 1 / (1 + np.exp(-2 * x))
    table = pd.DataFrame({"x": x, "y": y, "g": rng.choice(list("abc"), ROWS), "ill": ill})
    table = table.assign(count=rng.poisson(y))
    weights = np.exp(0.4 * x) * rng.uniform(0.8, 1.2, ROWS)
    weights = weights / weights.mean()
    features = np.column_stack([table["x"], table["y"] - 1])
    law = MeansLaw(
        features=features, weights=weights, covariance=1e-4 * np.eye(2), rows=rows, credit=200.0,
        max_rows=max_rows,
    )  # fmt: skip
    return WeightedSample(frame=table, weights=weights, law=law)


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(derandomize=True, database=None, deadline=None, max_examples=3)
@given(max_rows=st.integers(2, 60), rows=st.sampled_from([800.0, 4000.0, 60_000.0]))
def test_a_person_s_rows_may_all_be_alike(name, max_rows, rows):
    one = ESTIMATORS[name](sample_of(rows=rows))
    several = ESTIMATORS[name](sample_of(rows=rows, max_rows=max_rows))
    parts, before = variance_parts(several), variance_parts(one)
    weights, g = one.sample.weights, one.influence
    square = weights @ g**2 / len(weights)
    np.testing.assert_allclose(parts.pop("people"), (max_rows - 1) * square / rows)
    assert "people" not in before
    for part, variance in before.items():
        np.testing.assert_allclose(parts[part], variance)
    wide, narrow = several.interval(), one.interval()
    least, most = one.least_and_most
    inside = (wide.lower > least) & (wide.upper < most)
    assert np.all((wide.upper - wide.lower)[inside] >= (narrow.upper - narrow.lower)[inside])
    np.testing.assert_allclose(wide.values, narrow.values)
    order = ("use", "use with care", "do not use")
    assert all(
        order.index(ours) >= order.index(theirs)
        for ours, theirs in zip(wide.verdicts, narrow.verdicts, strict=True)
    )
    assert "people" not in repr(narrow)
    assert f"up to {max_rows} a person" in repr(wide)


@pytest.mark.slow
def test_p_values_and_drawn_errors_hold_it_too():
    one, several = sample_of(), sample_of(max_rows=60)
    tests = [analysis.t_test(s, "y", by="ill") for s in (one, several)]
    assert tests[1].p_value > tests[0].p_value
    both = [ESTIMATORS["joint"](s) for s in (one, several)]
    np.testing.assert_allclose(
        np.diag(noise_aware_covariance(both[1])), sum(variance_parts(both[1]).values())
    )
    # 400 draws know a standard deviation to 3.5%: 20% is 5.6 of that; 60 rows change it by more.
    estimate = analysis.mean(several, "y")

    def drawn(sample):
        replicates = sample.law.replicates(400, np.random.default_rng(1))
        mean = at_weights(lambda s: analysis.mean(s, "y"), sample)
        return math.sqrt(replicates.variance(mean, sample.weights)[0])

    error = math.sqrt(sum(variance_parts(estimate).values())[0])
    assert drawn(several) == pytest.approx(error, rel=0.2)
    assert drawn(one) < 0.8 * error


def test_thresholds_count_people_who_may_be_few():
    enough, thin = sample_of(rows=1000.0), sample_of(rows=1000.0, max_rows=11)
    mean = lambda s: size_objections(analysis.mean(s, "y"))[0]  # noqa: E731
    assert mean(enough) == []
    assert mean(thin) == [few(11)]
    assert few(1).reason == "fewer than 100 people are behind it"
    group = "x > 0.45"  # about 50 rows of 1,000: they may be of 5 people
    empty = [size_objections(analysis.mean(s, "y", where=group))[0] for s in (enough, thin)]
    assert EMPTY not in empty[0]
    assert empty[1][0] in (few(11), EMPTY)
    least = sample_of(rows=100.0, max_rows=100)
    assert size_objections(analysis.mean(least, "y", where=group))[0][0] == EMPTY


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_a_total_takes_rows_and_no_number_of_people(rows):
    sample = sample_of(max_rows=rows)
    of_rows = analysis.total(sample, "y", rows=57_752)
    assert of_rows.value == pytest.approx(57_752 * analysis.mean(sample, "y").value)
    if rows == 1:
        assert analysis.total(sample, "y", population=57_752).value == of_rows.value
        for wrong in (-5, 0, math.inf, math.nan, "569", type):
            with pytest.raises(ReleaseError, match="population"):
                analysis.total(sample, "y", population=wrong)
    else:
        with pytest.raises(ReleaseError):
            analysis.total(sample, "y", population=5810)
    with pytest.raises(ReleaseError, match="rows" if rows > 1 else "population"):
        analysis.total(sample, "y")  # what is missing is named
    with pytest.raises(ReleaseError):
        analysis.total(sample, "y", rows=10, population=10)
    for wrong in (0, -1.0, math.inf, math.nan, "many", [10]):
        with pytest.raises(ReleaseError, match="rows"):
            analysis.total(sample, "y", rows=wrong)


def visits():
    """The plan of the coverage study's people with five rows each, and how it makes a release."""
    (population,) = (p for p in load("coverage_populations").SEVERAL if p.name == "visits")
    study = load("coverage", "interval_coverage")
    chosen = study.Setting(
        population="visits", generator="privbayes", features="measured", epsilon="4", rows=4000,
        synthetic=4000, seed=27, replicates=0,
    )  # fmt: skip
    return study.plan_for(chosen), population, lambda seed: study.one_release(chosen, seed)


@pytest.mark.slow
def test_posteriors_and_descriptions_know_it():
    sizes = [scaled_weights(sample_of(rows=300.0, max_rows=k))[1].sum() for k in (1, 10)]
    assert sizes == pytest.approx([300, 30])
    one, several = (analysis.describe(sample_of(max_rows=k)) for k in (1, 4))
    assert one.index.name == "column"
    assert "up to 4 a person" in several.index.name
    pd.testing.assert_frame_equal(one, several.rename_axis("column"))
    assert rows_caveat(1) == ""
    assert "4 rows" in rows_caveat(4)
    assert caveats(visits()[0], weighted=True).count(rows_caveat(5)) == 1


def test_the_release_s_tests_know_it():
    misfits = [
        Misfit(
            axes=np.eye(3), distances=np.full(3, 2.0), spreads=np.full(3, 100.0), rows=100.0,
            base_rows=10**6, max_rows=k,
        )
        for k in (1, 8)
    ]  # fmt: skip
    chances = [misfit.chi_square()[1] for misfit in misfits]
    evidence = [misfit.evidence_test(np.random.default_rng(1)) for misfit in misfits]
    assert chances[0] < 0.2 < chances[1]
    assert evidence[0] < evidence[1]
    np.testing.assert_allclose(misfits[0].log_evidence(), misfits[1].log_evidence())


QUESTIONS = {
    "mean": lambda s: analysis.mean(s, "x"),
    "difference": lambda s: analysis.mean(s, lambda t: t["x"] - t["z"]),
    "total": lambda s: analysis.total(s, "z", rows=1000),
    "product": lambda s: analysis.mean(s, lambda t: t["x"] * t["z"]),
}
"""All are zero of the people."""


@pytest.mark.nightly_cases("each time")
@pytest.mark.parametrize("kind", ["once", "each time"])
@pytest.mark.slow
def test_intervals_hold_the_truth_of_people_with_five_rows(kind):
    """160 people of five rows each; 300 releases whose means are all but exact.

    Of columns that a person has once 95% hold it: tolerance three standard errors of 1.3 points,
    a false alarm in 370 for a question, were the law exact. Without the unit 62% do, and 80% is
    six standard errors off. Of columns that differ each time the bound is too wide: more than
    98% hold it.
    """
    scaled = {name: ([], []) for name in QUESTIONS}
    rng = np.random.default_rng(17)
    for _ in range(300):
        sample = few_people(rng, repeated=kind == "once")
        for name, question in QUESTIONS.items():
            estimate = question(sample)
            parts = variance_parts(estimate)
            known = sum(parts.values())[0]
            for kept, variance in zip(
                scaled[name], (known, known - parts["people"][0]), strict=True
            ):
                kept.append(estimate.value / math.sqrt(variance))
    for name, errors in scaled.items():
        wide, narrow = (np.mean(np.abs(error) < 1.96) for error in errors)
        if kind == "once":
            assert wide == pytest.approx(0.95, abs=0.038), name
            assert narrow < 0.8, name
        else:
            assert wide > 0.98, name


def few_people(rng, *, repeated):
    """Rows whose weights have the private rows' means of x, z and x z."""
    side = (np.arange(16) + 0.5) / 16 - 0.5
    x, z = (grid.ravel() for grid in np.meshgrid(side, side))
    phi = np.column_stack([x, z, x * z])
    people = rng.uniform(-0.5, 0.5, (160 if repeated else 800, 2))
    private = np.column_stack([people, people.prod(axis=1)]).mean(axis=0)
    weights = 1 + phi @ np.linalg.solve(phi.T @ phi / len(phi), private)
    law = MeansLaw(
        features=phi, weights=weights, covariance=1e-9 * np.eye(3), rows=800.0, credit=1.0,
        calibration=1.0, base_rows=1e9, max_rows=5,
    )  # fmt: skip
    return WeightedSample(frame=pd.DataFrame({"x": x, "z": z}), weights=weights, law=law)


@pytest.mark.nightly
def test_whole_releases_of_people_with_five_rows():
    """48 releases of 800 people, of columns that a person has once: some 290 intervals in `use`.

    Their errors go together within a release; as if a release had four of its own, 192, the
    standard error at a true 95% is 1.6 points: at a true 96%, as the bound gives it, 2.5% of such
    studies fall below 93%; the seeds are fixed, so this one does or does not. Without the unit 74%
    hold the truth: 85% is three standard errors from that, and six from 95%.
    """
    held, narrow, (_, population, released) = [], [], visits()
    everybody = population.table(2_000_000, np.random.default_rng(20261127)), None
    asked = [
        population.estimands["mean"], population.estimands["share"],
        lambda s: analysis.value_counts(s, "region"),
    ]  # fmt: skip
    truths = [dict(zip(e.names, e.values, strict=True)) for e in (ask(everybody) for ask in asked)]
    for seed in range(48):
        sample = released(seed)
        alone = replace(sample, law=replace(sample.law, max_rows=1))
        for question, values in zip(asked, truths, strict=True):
            for source, kept in ((sample, held), (alone, narrow)):
                interval = question(source).interval()
                true = np.array([values[name] for name in interval.names])
                inside = (interval.lower <= true) & (true <= interval.upper)
                kept += inside[np.array(interval.verdicts) == "use"].tolist()
    assert len(held) > 200
    assert np.mean(held) >= 0.93
    assert np.mean(narrow) < 0.85
