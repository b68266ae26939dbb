"""Fits of the tilt: its minimum, credits, and the test of the generator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom, multivariate_normal

from dpiw.errors import WeightError
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.constants import MOST_CREDIT
from dpiw.methods.weights.measured.credit import Misfit, evidence_credit, reweight
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import tilt
from tests.support.around import around

ROWS, DIMENSION = 300, 4


def problem(seed, *, noise=0.02, shift=0.5):
    """Features of base rows, and noisy means of rows that lie elsewhere."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(DIMENSION, DIMENSION))
    base = rng.normal(size=(ROWS, DIMENSION)) @ mix
    means = base.mean(axis=0) + shift * mix[0] + noise * rng.normal(size=DIMENSION)
    factor = rng.normal(size=(DIMENSION, DIMENSION))
    covariance = noise**2 * (np.eye(DIMENSION) + 0.1 * factor @ factor.T)
    return base, Targets(means=means, covariance=covariance, rows=500.0)


def objective(base, targets, credit):
    def value(theta):
        scores = base @ theta
        top = scores.max()
        mass = top + np.log(np.mean(np.exp(scores - top)))
        return float(mass - theta @ targets.means + credit / 2 * theta @ targets.covariance @ theta)

    return value


@pytest.mark.parametrize("credit", [0.1, 10.0, 1e5])
def test_another_minimiser_finds_no_less(credit):
    base, targets = problem(1)
    solved = tilt(BaseRows(base), targets, credit=credit)
    value = objective(base, targets, credit)
    minimum = minimize(value, np.zeros(DIMENSION), method="BFGS", options={"gtol": 1e-9})
    assert value(solved.theta) <= minimum.fun + 1e-9
    assert solved.gap <= 1e-10
    assert solved.theta == pytest.approx(minimum.x, abs=1e-3 * np.abs(minimum.x).max())


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), credit=st.floats(1e-3, 1e6), noise=st.floats(1e-3, 1.0),
    shift=st.floats(0.0, 20.0),
)  # fmt: skip
def test_it_is_always_solved(seed, credit, noise, shift):
    """Also where no weights can reach the targets: the credit bounds what is asked."""
    base, targets = problem(seed, noise=noise, shift=shift)
    solved = tilt(BaseRows(base), targets, credit=credit)
    weights = solved.weights
    assert weights.sum() == pytest.approx(1)
    assert solved.means == pytest.approx(weights @ base)
    centred = base - solved.means
    assert solved.covariance == pytest.approx((centred * weights[:, None]).T @ centred, abs=1e-9)
    # The dual's optimality: what is missed is alpha S theta.
    missed = targets.means - solved.means
    pull = credit * targets.covariance @ solved.theta
    root = np.linalg.cholesky(credit * targets.covariance)
    size = np.sqrt(1 + abs(objective(base, targets, credit)(solved.theta)))
    assert np.linalg.norm(np.linalg.solve(root, missed - pull)) <= 2e-5 * size


def test_far_targets_cost_few_passes(monkeypatch):
    """Where few rows lie, or none: Newton's steps go many times too far (halved, 6,794)."""
    passes, counted = [], lambda base, _: passes.append(base.rows)
    around(BaseRows, "tilted", before=counted, replace=monkeypatch.setattr)
    for seed in range(12):
        base, targets = problem(seed, shift=4.0)
        tilt(BaseRows(base), targets, credit=0.01)
    assert len(passes) < 2000  # 1,259; other processors have other last digits


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("means", np.full(DIMENSION, np.nan)), ("rows", 0.0), ("rows", np.inf), ("rows", np.nan),
     ("covariance", np.full((DIMENSION, DIMENSION), np.inf))],
)  # fmt: skip
def test_targets_are_finite(name, wrong):
    facts = {"means": np.zeros(DIMENSION), "covariance": np.eye(DIMENSION), "rows": 3.0}
    with pytest.raises(WeightError):
        Targets(**facts | {name: wrong})


def test_credit_covariance_and_rows_that_have_no_minimum_are_refused():
    base, targets = problem(5)
    flat = Targets(means=np.zeros(DIMENSION), covariance=np.zeros((DIMENSION,) * 2), rows=3.0)
    for credit, wanted in ((0.0, targets), (-1.0, targets), (1.0, flat)):
        with pytest.raises(WeightError):
            tilt(BaseRows(base), wanted, credit=credit)
    for rows in (np.zeros((0, 2)), np.array([[1.0, np.nan]])):
        with pytest.raises(WeightError):
            BaseRows(rows)


WIDTH, PEOPLE, BASE = 5, 400.0, 2000


def base_of(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(BASE, WIDTH)) @ np.diag([1.0, 0.5, 0.2, 0.1, 0.05])


def targets(base, rng, *, credit):
    """Means as the model says: off by C/credit, noise, and the samples' own errors."""
    spread = np.cov(base.T, bias=True)
    noise = 0.02**2 * (np.eye(WIDTH) + 0.3)
    total = spread * (1 / PEOPLE + 1 / BASE) + noise + spread / credit
    means = base.mean(axis=0) + np.linalg.cholesky(total) @ rng.normal(size=WIDTH)
    return Targets(means=means, covariance=noise, rows=PEOPLE)


def misfit_of(base, wanted):
    return Misfit.of(base, wanted)


def misfit(seed, *, credit=np.inf):
    base = base_of(seed)
    rng = np.random.default_rng(seed + 1)
    return misfit_of(BaseRows(base), targets(base, rng, credit=credit))


def test_the_evidence_is_the_density_of_the_distance():
    base = base_of(3)
    wanted = targets(base, np.random.default_rng(4), credit=30.0)
    fit = misfit_of(BaseRows(base), wanted)
    spread, distance = np.cov(base.T, bias=True), wanted.means - base.mean(axis=0)
    direct = [
        multivariate_normal.logpdf(
            distance, cov=spread / credit + wanted.covariance + spread * (1 / PEOPLE + 1 / BASE)
        )
        for credit in fit.credits[::40]
    ]
    ours = fit.log_evidence()[::40]
    assert ours - ours[0] == pytest.approx(np.array(direct) - direct[0], rel=1e-8)


def test_the_least_credit_is_below_the_true_one_as_often_as_it_should():
    """One side of a 95% interval, 2.5%, and a grid: 200 draws under a fixed seed, some 5 misses.

    A rule that misses 4% misses more than 20 at 1e-4; one that misses 15% at most 20 at 3%.
    """
    rng = np.random.default_rng(70)
    draws = [misfit(int(rng.integers(2**31)), credit=30.0).least_credit() for _ in range(200)]
    assert sum(least > 30 for least in draws) <= 20


def test_a_generator_that_is_right_gets_more_credit():
    right = np.median([evidence_credit(misfit(seed)) for seed in range(20)])
    wrong = np.median([evidence_credit(misfit(seed, credit=5.0)) for seed in range(20)])
    assert right > 10 * wrong


@pytest.mark.parametrize("level", [0.05, 0.2])
@pytest.mark.slow
def test_the_tests_have_their_size(level):
    """400 generators that are right; red by chance in one run of 10^6."""
    rng = np.random.default_rng(11)
    runs = 400
    misfits = [misfit(100 + seed) for seed in range(runs)]
    most = binom.ppf(1 - 5e-7, runs, level)
    least = binom.ppf(5e-7, runs, level)
    chi = sum(fit.chi_square()[1] <= level for fit in misfits)
    evidence = sum(fit.evidence_test(rng, replays=199) <= level for fit in misfits)
    assert least <= chi <= most
    assert evidence <= most  # ties at a ratio of one make it smaller, never larger


def test_the_evidence_sees_what_the_chi_square_drowns():
    """One wrong direction among 200 that are noise; either misses with probability below 1e-6."""
    rng = np.random.default_rng(7)
    size = 200
    fit = Misfit(
        axes=np.eye(size), distances=np.append(rng.normal(size=size - 1), 8.0),
        spreads=np.append(np.full(size - 1, 1e-3), 100.0), rows=PEOPLE, base_rows=BASE,
    )  # fmt: skip
    assert fit.evidence_test(rng) == 1 / 2000
    assert fit.chi_square()[1] > fit.evidence_test(rng)


@pytest.mark.slow
def test_the_gain_is_that_of_the_ridge_which_shrinks():
    """Features with credits of their own: Stein's estimate is unbiased for the squared error.

    1,000 draws of the noise; fitted means and their error by dense algebra. The paired difference
    has a standard error, and 4 of them are allowed: red by chance once in 16,000 seeds.
    """
    rng, base = np.random.default_rng(12), base_of(12) + 0.05 * base_of(14)[:, ::-1]
    spread, noise = np.cov(base.T, bias=True), 0.02**2 * (np.eye(WIDTH) + 0.3)
    relative, credit = np.array([1.0, 1.0, 0.1, 0.02, 0.02]), 30.0
    half = np.diag(np.sqrt(relative))
    hat = spread @ np.linalg.inv(spread + credit * half @ noise @ half)
    centre, root, sure = base.mean(axis=0), np.linalg.cholesky(noise), np.linalg.inv(noise)
    truth = centre + 0.1 * rng.normal(size=WIDTH)
    apart, one_credit = np.zeros(1000), np.zeros(1000)
    for draw in range(1000):
        seen = truth + root @ rng.normal(size=WIDTH)
        wanted = Targets(means=seen, covariance=noise, rows=PEOPLE, relative=relative)
        fit, away = misfit_of(BaseRows(base), wanted), seen - centre
        error = centre + hat @ away - truth
        without = away @ sure @ away - WIDTH
        loss = error @ sure @ error
        apart[draw] = without * (1 - fit.gain(fit.left(credit * wanted.ridge))) - loss
        one_credit[draw] = without * (1 - fit.gain(fit.left(credit * noise))) - loss
    assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(1000)
    assert abs(one_credit.mean()) > 8 * one_credit.std() / np.sqrt(1000)  # another tilting's


def test_what_is_certified_of_weights_counts_the_products_own_credit():
    """Against dense algebra, of the fresh features alone; and it is not that of one credit."""
    rng, fresh = np.random.default_rng(13), 41
    a, b, columns = rng.normal(size=2000), rng.normal(size=2000), rng.normal(size=(2000, 43))
    base = np.column_stack([columns[:, :40], a * b, columns[:, 40:]])
    noise = 0.02**2 * (np.eye(44) + 0.1)
    means = base.mean(axis=0) + 2 * np.linalg.cholesky(noise) @ rng.normal(size=44)
    means[40] += 0.5
    wanted = Targets(means=means, covariance=noise, rows=4000.0, fresh=fresh)
    reweighting = reweight(BaseRows(base), wanted, rng=rng, pairs=np.array([40]))
    assert reweighting.pairs_credit < 0.5 * reweighting.tilt.credit
    spread, noise = np.cov(base.T, bias=True)[:fresh, :fresh], noise[:fresh, :fresh]
    half, sure = np.eye(fresh), np.linalg.inv(noise)
    away = (means - base.mean(axis=0))[:fresh]
    chance = noise + spread * (1 / 4000 + 1 / 2000)
    expected = []
    for products in (reweighting.pairs_credit, reweighting.tilt.credit):
        half[40, 40] = np.sqrt(products / reweighting.tilt.credit)
        hat = spread @ np.linalg.inv(spread + reweighting.tilt.credit * half @ noise @ half)
        shrinkage = np.eye(fresh) - hat
        remains = shrinkage @ away @ sure @ shrinkage @ away
        without = away @ sure @ away
        gain = 1 - (remains + 2 * np.trace(hat) - fresh) / (without - fresh)
        beyond = remains - np.trace(sure @ shrinkage @ chance @ shrinkage.T)
        expected.append((gain, 1 - beyond / (without - np.trace(sure @ chance))))
    assert (reweighting.gain, reweighting.to_json()["explained"]) == pytest.approx(expected[0])
    assert abs(expected[0][0] - expected[1][0]) > 1e-3


def test_evidence_believes_no_generator_more_than_a_share_of_the_private_rows():
    """Distances of nought speak for any credit, and prove none; a curator may set his own."""
    base, rng = base_of(10), np.random.default_rng(10)
    wanted = targets(base, rng, credit=np.inf)
    right = Targets(means=base.mean(axis=0), covariance=wanted.covariance, rows=PEOPLE)
    reweighting = reweight(BaseRows(base), right, rng=rng)
    assert reweighting.tilt.credit == MOST_CREDIT * PEOPLE
    assert reweighting.tilt.weights * BASE == pytest.approx(np.ones(BASE))  # nothing to move
    given = reweight(BaseRows(base), right, credit=10 * PEOPLE, rng=rng)
    assert given.tilt.credit == 10 * PEOPLE


def test_a_part_has_the_misfit_of_its_own_features():
    base = base_of(3)
    wanted, part = targets(base, np.random.default_rng(4), credit=30.0), np.array([1, 3])
    rows = BaseRows(base)
    whole, by_part = Misfit.of(rows, wanted), Misfit.of(rows, wanted, part)
    alone = Targets(
        means=wanted.means[part], covariance=wanted.covariance[np.ix_(part, part)], rows=PEOPLE
    )
    expected = misfit_of(BaseRows(base[:, part]), alone)
    np.testing.assert_allclose(by_part.log_evidence(), expected.log_evidence())
    alike = misfit_of(BaseRows(base), wanted)
    np.testing.assert_allclose(whole.chi_square(), alike.chi_square())


@pytest.mark.slow
def test_products_that_a_generator_lost_have_less_credit_and_are_found_again():
    """60 directions in which it is right, and one product in which it is not: 20 worlds.

    With one credit for all the many right ones decide, and half of the way is missing.
    """
    errors = np.zeros((20, 2))
    for world in range(20):
        rng = np.random.default_rng(20261124 + world)
        a, b, other = rng.normal(size=2000), rng.normal(size=2000), rng.normal(size=(2000, 60))
        base = np.column_stack([other, a * b])
        means = base.mean(axis=0) + 0.02 * rng.normal(size=61)
        means[60] += 0.5
        wanted = Targets(means=means, covariance=0.02**2 * np.eye(61), rows=4000.0)
        for at, pairs in enumerate((None, np.array([60]))):
            reweighting = reweight(BaseRows(base), wanted, rng=rng, pairs=pairs)
            errors[world, at] = abs(reweighting.tilt.means[60] - means[60])
            assert (reweighting.pairs_credit < 0.2 * reweighting.tilt.credit) == (pairs is not None)
    assert errors[:, 1].mean() < 0.5 * errors[:, 0].mean()


def test_products_that_are_right_have_the_credit_of_all():
    rng = np.random.default_rng(20261124)
    base = rng.normal(size=(2000, 30))
    means = base.mean(axis=0) + 0.001 * rng.normal(size=30)
    wanted = Targets(means=means, covariance=0.02**2 * np.eye(30), rows=4000.0)
    reweighting = reweight(BaseRows(base), wanted, rng=rng, pairs=np.arange(20, 30))
    assert (
        reweighting.pairs_credit == reweighting.tilt.credit == reweighting.to_json()["pairs_credit"]
    )
