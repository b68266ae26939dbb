"""The law of measured weights, against brute force in a world that is its own model."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.sample import WeightedSample
from dpiw.methods.weights.diagnostics import Verdict, worst
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.constants import (
    GUESSED,
    ROWS_CARE,
    ROWS_USE,
    STEP,
    SUPPORT_CARE,
    SUPPORT_USE,
)
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import tilt
from dpiw.methods.weights.measured.verdict import BIN, guessed
from tests.dpiw.methods.weights.measuring import calibration_of
from tests.support.worlds import at_weights

CREDIT, PRIVATE_ROWS, NOISE = 4000.0, 3000.0, 0.004


def variance(law, influence, **settings):
    return sum(law.variances(influence, **settings))


def law_of(features, weights, covariance, **facts):
    known = {"rows": PRIVATE_ROWS, "credit": CREDIT} | facts
    return MeansLaw(features=features, weights=weights, covariance=covariance, **known)


def world(rng, rows=2500):
    """Base rows, d = 4 features, and three estimands that they reach wholly, in part, hardly."""
    x = rng.uniform(-0.5, 0.5, (rows, 4))
    other = rng.uniform(-0.5, 0.5, rows)
    targets = np.column_stack([x[:, 0] - x[:, 1], x[:, 2] + other, np.cos(6 * other)])
    return x, targets


@pytest.mark.nightly_cases("1.0")
@pytest.mark.parametrize("doubt", [1.0, 4.0])
@pytest.mark.slow
def test_intervals_cover_a_truth_drawn_from_the_model(doubt):
    # Truth and noise are drawn from the law's own prior and noise: the means of features and
    # estimands move by N(0, doubt K/alpha), features are seen with N(0, S + C/N), and the rows are
    # tilted towards them. 1,500 worlds: a coverage of 0.95 has a standard error of 0.0056; the
    # tolerance is 3 of them (false alarms: 0.3% each). Variances wrong by 20% would give .92, .97.
    rng = np.random.default_rng(51)
    x, g = world(rng)
    both = np.column_stack([x, g])
    prior = doubt * np.cov(both.T, bias=True) / CREDIT
    noise = NOISE**2 * np.eye(4)
    sampling = np.cov(x.T, bias=True) / PRIVATE_ROWS
    base, inside, shifts = BaseRows(x), np.zeros(3), []
    for _ in range(1500):
        truth = both.mean(axis=0) + rng.multivariate_normal(np.zeros(7), prior)
        seen = truth[:4] + rng.multivariate_normal(np.zeros(4), noise + sampling)
        targets = Targets(means=seen, covariance=noise, rows=PRIVATE_ROWS)
        weights = tilt(base, targets, credit=CREDIT).weights * len(x)
        law = law_of(x, weights, noise, doubt=doubt)
        estimate = weights @ g / len(x)
        reach = 1.96 * np.sqrt(variance(law, g - estimate))
        inside += np.abs(estimate - truth[4:]) <= reach
        shifts.append((estimate - truth[4:]) / reach)
    assert inside / 1500 == pytest.approx([0.95] * 3, abs=3 * 0.0056)
    assert np.all(np.abs(np.mean(shifts, axis=0)) < 0.1)  # nothing is biased


def test_where_the_generator_is_far_off_intervals_reach_what_no_feature_does():
    """Two columns that go together, in a world whose generator has them apart.

    Features see four fifths of their product. The credit is the many right directions', and says
    nothing of the rest; the weights have moved much, and that widens it. 100 worlds.
    """
    rng, held = np.random.default_rng(59), np.zeros(2)
    noise = 1e-6 * np.eye(6)
    for _ in range(100):
        (a, b), right = rng.uniform(-1.7, 1.7, (2, 3000)), rng.normal(size=(4, 3000))
        product, other = a * b, rng.normal(size=3000)
        x = np.column_stack([product + 0.5 * other, *right, a])
        w = np.exp(0.6 * product)
        truth = w @ np.column_stack([x, product]) / w.sum()
        seen = truth[:6] + rng.normal(scale=1e-3, size=6)
        solved = tilt(BaseRows(x), Targets(means=seen, covariance=noise, rows=1e9), credit=250.0)
        law = law_of(x, solved.weights * 3000, noise, rows=1e9, credit=250.0, doubt=4.0)
        g = (product - solved.weights @ product)[:, None]
        told = replace(law, residual=seen - solved.means)
        reach = 1.96 * np.sqrt([variance(law, g)[0], variance(told, g)[0]])
        held += abs(solved.weights @ product - truth[6]) <= reach
    assert held[0] / 100 < 0.1
    assert held[1] / 100 > 0.95


@pytest.mark.slow
def test_what_shrinkage_withholds_is_reached_by_the_pull():
    """A generator that is right but for one direction, by 6 of the prior's standard deviations.

    300 worlds: without the pull the interval seldom holds the truth, with it nearly always; of a
    direction that is right it is no wider than by a fifth.
    """
    rng = np.random.default_rng(54)
    x, _ = world(rng)
    base, noise = BaseRows(x), NOISE**2 * np.eye(4)
    away = x.mean(axis=0)
    away[0] += 6 * x[:, 0].std() / np.sqrt(CREDIT)
    held, widths = np.zeros((2, 4)), []
    for _ in range(300):
        seen = away + rng.normal(scale=NOISE, size=4)
        targets = Targets(means=seen, covariance=noise, rows=1e9)
        solved = tilt(base, targets, credit=CREDIT)
        weights = solved.weights * len(x)
        law = law_of(x, weights, noise, rows=1e9, doubt=4.0)
        pulled = replace(law, residual=seen - solved.means)
        reach = np.sqrt([variance(law, x - solved.means), variance(pulled, x - solved.means)])
        held += np.abs(solved.means - away) <= 1.96 * reach
        widths.append(reach[1, 1:] / reach[0, 1:])
    assert held[0, 0] / 300 < 0.2
    assert held[1, 0] / 300 > 0.9
    assert held[1, 1:].min() / 300 > 0.9
    assert np.median(widths) < 1.2


def sample_of(rng, *, credit=2000.0, rows=3000, base_rows=np.inf):
    """A sample whose law is known, with a table to estimate from."""
    x, _ = world(rng, rows)
    other = rng.uniform(-0.5, 0.5, rows)
    weights = np.exp(0.8 * x[:, 0] - 0.5 * x[:, 1])
    weights /= weights.mean()
    table = pd.DataFrame({
        "a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "other": other,
        "y": rng.random(rows) < 1 / (1 + np.exp(-2 * x[:, 0] - other)),
    })  # fmt: skip
    means = weights @ x / rows
    covariance = NOISE**2 * (np.eye(4) + 4 * np.outer(means, means))
    law = law_of(x, weights, covariance, credit=credit, base_rows=base_rows)
    return WeightedSample(frame=table, weights=weights, law=law)


def test_a_small_credit_and_a_singular_spread():
    """Features whose covariance is singular, as levels of one column are."""
    law = sample_of(np.random.default_rng(3), credit=1e-9).law
    doubled = replace(
        law, features=np.hstack([law.features, law.features]), covariance=np.eye(8) * NOISE**2
    )
    influence = law.features[:, :1] - law.means[0]
    assert np.all(np.isfinite(variance(doubled, influence)))
    assert doubled.support(SimpleNamespace(influence=influence)) == pytest.approx(1)


SMOOTH = ("mean", "unseen", "part", "logistic")
ESTIMANDS = {
    "mean": lambda s: analysis.mean(s, "a"),
    "unseen": lambda s: analysis.mean(s, "other"),
    "part": lambda s: analysis.mean(s, "b", where=lambda t: t["other"] > 0),
    "logistic": lambda s: analysis.logistic_regression(s, "y", ["a", "other"]),
    "quantile": lambda s: analysis.quantile(s, "c", 0.5),
}


@pytest.mark.parametrize(
    ("doubt", "calibration", "relative"),
    [(1.0, np.inf, None), (4.0, np.inf, None), (4.0, 1500.0, None),
     (4.0, 1500.0, np.array([1.0, 0.02, 1.0, 0.3]))],
)  # fmt: skip
@pytest.mark.nightly_cases("logistic", "-4.0-inf-None", "-4.0-1500.0-None")
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.slow
def test_replicates_and_closed_form_agree(name, doubt, calibration, relative):
    # 1,000 replicates: a variance has a relative standard error of sqrt(2/1000) = 4.5%; the
    # tolerance is 4 of them.
    rng = np.random.default_rng(52)
    sample = sample_of(rng)
    residual = np.full(4, 0.01) if np.isfinite(calibration) else None
    law = replace(
        sample.law, doubt=doubt, calibration=calibration, residual=residual, relative=relative
    )
    sample = replace(sample, law=law)
    estimate = ESTIMANDS[name](sample)
    drawn = sample.law.replicates(1000, rng)
    parts = estimate.interval().parts
    assert set(parts) == {"rows", "means", "prior"}
    assert np.all(drawn.weights > 0)
    np.testing.assert_allclose(drawn.weights.mean(axis=0), 1, rtol=1e-12)
    variance = drawn.variance(at_weights(ESTIMANDS[name], sample), sample.weights)
    np.testing.assert_allclose(variance, sum(parts.values()), rtol=0.18)


@pytest.mark.slow
def test_replicates_of_a_quantile_agree_on_average():
    # A quantile moves from row to row, about ten rows here: their distances make its replicate
    # variance uncertain by about a third, and the closed form's density is an estimate too. 12
    # samples: 9% of standard error for the mean ratio; the tolerance is 3 of them.
    ratios = []
    for seed in range(12):
        rng = np.random.default_rng(520 + seed)
        sample = sample_of(rng)
        estimate = ESTIMANDS["quantile"](sample)
        at = at_weights(ESTIMANDS["quantile"], sample)
        drawn = sample.law.replicates(200, rng).variance(at, sample.weights)
        closed = estimate.interval().parts["rows"] + variance(sample.law, estimate.influence)
        ratios.append(float(drawn[0] / closed[0]))  # of the whole prior
    assert np.mean(ratios) == pytest.approx(1, abs=0.27)


def test_a_part_of_less_credit_is_shrunk_less_and_its_fit_is_the_tilting_s():
    """The slopes of the law are the moves of the solved tilting, part by part."""
    rng = np.random.default_rng(57)
    x, _ = world(rng)
    noise, relative = NOISE**2 * np.eye(4), np.array([1.0, 0.05, 1.0, 1.0])
    base = BaseRows(x)
    moved = x.mean(axis=0) + 1e-4 * np.array([0.0, 1.0, 0.0, 0.0])
    for shares in (None, relative):
        problems = [Targets(means=means, covariance=noise, rows=1e9, relative=shares)
                    for means in (x.mean(axis=0), moved)]  # fmt: skip
        before, after = (tilt(base, targets, credit=CREDIT) for targets in problems)
        law = law_of(x, before.weights * len(x), noise, rows=1e9, relative=shares)
        slopes = law.fit.T @ law.fit @ law.spread
        np.testing.assert_allclose(
            after.means - before.means, 1e-4 * slopes[1], rtol=0.02, atol=1e-8
        )
    assert slopes[1, 1] > 0.9


@pytest.mark.parametrize("doubt", [1.0, 4.0])
def test_a_quantile_in_a_known_bin_has_a_sixteenth_of_the_prior(doubt):
    sample = sample_of(np.random.default_rng(530))
    law = replace(sample.law, doubt=doubt)
    estimate = ESTIMANDS["quantile"](replace(sample, law=law))
    for inside, step in ((np.nan, 1.0), (0.0, STEP)):
        told = replace(estimate, facts={**estimate.facts, "inside": np.full(1, inside)})
        parts = law.parts(told)
        assert parts["means"] + parts["prior"] == pytest.approx(
            variance(law, estimate.influence, step=step)
        )
    assert law.parts(estimate)["prior"] == pytest.approx(16 * parts["prior"])
    assert parts["prior"] > 0


@pytest.mark.slow
def test_replicates_hold_what_chosen_rows_that_repeat_leave_out():
    rng = np.random.default_rng(53)
    sample = sample_of(rng, base_rows=600.0)
    effective = sample.effective_rows
    assert sample.law.repeats == pytest.approx(effective / 600)
    estimate = analysis.mean(sample, "a")
    alone = np.diag(estimate.covariance())
    assert estimate.interval().parts["rows"] == pytest.approx(alone * effective / 600)
    drawn = sample.law.replicates(1000, rng)
    mean = at_weights(lambda s: analysis.mean(s, "a"), sample)
    variance = drawn.variance(mean, sample.weights)
    np.testing.assert_allclose(variance, sum(estimate.interval().parts.values()), rtol=0.18)
    assert sample_of(rng).law.repeats == 1


@pytest.mark.nightly
def test_of_the_rows_error_is_left_what_calibration_leaves():
    """400 choices of a base's rows: variances within 4 standard errors of sqrt(2/400)."""
    rng = np.random.default_rng(57)
    base, latent = rng.uniform(-0.5, 0.5, (40_000, 4)), rng.uniform(-0.5, 0.5, 40_000)
    logs = base @ np.array([0.8, -0.5, 0.0, 0.0])
    full = np.exp(logs) / np.exp(logs).sum()
    targets = Targets(means=full @ base, covariance=NOISE**2 * np.eye(4), rows=PRIVATE_ROWS)
    # Wholly a feature, half of one, none: calibration leaves little, half, all.
    g = np.column_stack([base[:, 0], (base[:, 1] + latent) / np.sqrt(2), np.cos(6 * latent)])
    estimates, variances = [], []
    for _ in range(400):
        order = rng.permutation(len(base))  # a systematic choice knows the order
        calibration = calibration_of(logs[order], 1000, targets, base[order], rng=rng)
        rows = order[calibration.chosen]
        w = np.exp(calibration.log_weights)
        estimates.append(w @ g[rows] / 1000)
        law = law_of(base[rows], w, targets.covariance, calibration=calibration.credit)
        pushed = w[:, None] * law.calibrated(g[rows])
        variances.append((pushed**2).sum(axis=0) / 1000**2)
    ratio = np.var(estimates, axis=0) / np.mean(variances, axis=0)
    np.testing.assert_allclose(ratio, 1, atol=4 * np.sqrt(2 / 400))
    plain = g.var(axis=0) / 1000
    assert np.mean(variances, axis=0)[0] < 0.3 * plain[0]


@pytest.mark.slow
def test_the_base_s_own_error_is_in_it_where_the_generator_is_right():
    """300 bases of a generator that is right, credit without end: a mean's error is the base's.

    Variances within 4 standard errors of sqrt(2/300); the rows' residual alone is far below.
    """
    rng = np.random.default_rng(58)
    targets = Targets(means=np.zeros(4), covariance=1e-4**2 * np.eye(4), rows=PRIVATE_ROWS)
    errors, variances, residual_only = [], [], []
    for _ in range(300):
        base = rng.uniform(-0.5, 0.5, (2000, 4))
        shown = replace(targets, means=base.mean(axis=0))
        calibration = calibration_of(np.zeros(2000), 1000, shown, base, rng=rng)
        rows, w = base[calibration.chosen], np.exp(calibration.log_weights)
        own = {"base_rows": 2000, "calibration": calibration.credit}
        law = law_of(rows, w, targets.covariance, rows=1e12, credit=1e12, **own)
        errors.append(w @ rows[:, 0] / 1000)
        residual = law.calibrated(rows[:, :1])
        residual_only.append(float(((w[:, None] * residual) ** 2).sum()) / 1000**2)
        variances.append(residual_only[-1] + float(variance(law, rows[:, :1])[0]))
    assert np.var(errors) / np.mean(variances) == pytest.approx(1, abs=4 * np.sqrt(2 / 300))
    assert np.mean(residual_only) < 0.1 * np.mean(variances)


def test_support_is_a_share_and_says_what_the_means_reach():
    rng = np.random.default_rng(55)
    sample = sample_of(rng)
    share = {name: ESTIMANDS[name](sample).interval().support for name in ESTIMANDS}
    for support in share.values():
        assert np.all((support >= 0) & (support <= 1))
    # One feature's mean: its prior variance C/alpha against S + C/N.
    spread = float(sample.law.spread[0, 0])
    seen = spread / (spread + 2000 * sample.law.covariance[0, 0])
    assert share["mean"][0] == pytest.approx(seen, rel=0.02)
    assert share["unseen"][0] < 0.01
    assert share["mean"] > share["part"] > share["unseen"]
    # A generator that is believed more is corrected less.
    trusted = replace(sample, law=replace(sample.law, credit=1e9))
    assert ESTIMANDS["mean"](trusted).interval().support[0] < 1e-3
    constant = analysis.mean(sample, lambda t: t["a"] > -9)
    assert constant.interval().support[0] == 0


def test_unsupported_estimates_are_wide_and_not_to_be_used():
    rng = np.random.default_rng(56)
    sample = sample_of(rng, credit=300.0)
    near, far = (ESTIMANDS[name](sample).interval() for name in ("mean", "unseen"))
    assert near.support[0] >= SUPPORT_USE > SUPPORT_CARE > far.support[0]
    assert (near.verdicts, far.verdicts) == (("use",), ("do not use",))
    middle = ESTIMANDS["part"](sample).interval()
    assert SUPPORT_CARE <= middle.support[0] < SUPPORT_USE
    assert middle.verdicts == ("use with care",)
    variance = float(np.cov(sample.table["other"], aweights=sample.weights))
    assert far.parts["prior"][0] == pytest.approx(variance / 300, rel=0.02)
    assert far.parts["prior"][0] > 3 * near.parts["prior"][0]
    # The verdict follows the base's effective rows as well.
    for rows, verdict in ((ROWS_USE - 1, "use with care"), (ROWS_CARE - 1, "do not use")):
        fewer = replace(sample, law=replace(sample.law, base_rows=rows))
        assert ESTIMANDS["mean"](fewer).interval().verdicts == (verdict,)


@pytest.mark.parametrize("name", ["mean", "quantile"])
def test_values_of_a_handful_of_published_rows_are_not_to_be_used(name):
    """Rows of equal weight, which no other rule finds too few."""
    for rows, few in ((2, True), (int(ROWS_CARE) - 1, True), (int(ROWS_CARE), False)):
        sample = sample_of(np.random.default_rng(57), rows=rows)
        even = np.ones(rows)
        law = replace(sample.law, weights=even, base_rows=5000.0)
        estimate = ESTIMANDS[name](replace(sample, weights=even, law=law))
        enough = {part: np.zeros(1) for part in ("rows", "means", "prior")}
        sure = replace(law, covariance=1e-12 * np.eye(4))
        refused = worst(sure.objections(estimate, enough)[0]) is Verdict.DO_NOT_USE
        assert refused == (few or sure.support(estimate)[0] < SUPPORT_CARE)
        assert not few or estimate.interval().verdicts == ("do not use",)


def test_a_quantile_in_a_bin_that_nobody_knows_is_to_be_used_with_care():
    sample = sample_of(np.random.default_rng(531))
    estimate = ESTIMANDS["quantile"](sample)
    known = replace(estimate, facts={**estimate.facts, "inside": np.zeros(1)})
    parts = sample.law.parts(known)
    assert sample.law.support(known)[0] >= SUPPORT_USE
    assert sample.law.objections(known, parts) == [[]]
    assert sample.law.objections(estimate, parts) == [[BIN]]
    # Of a guess alone: its share depends on where the quantile fell, and is no ground.
    guess = {"rows": np.zeros(1), "means": np.full(1, 1e-9), "prior": np.ones(1)}
    assert sample.law.objections(estimate, guess) == sample.law.objections(estimate, parts)
    assert any("is a guess" in objection.reason for objection in
               sample.law.objections(ESTIMANDS["mean"](sample), guess)[0])  # fmt: skip


def test_an_interval_that_is_mostly_a_guess_is_no_use():
    """The same estimate, support and all, where nothing but the prior's doubt is larger."""
    sample = sample_of(np.random.default_rng(532))
    seen = []
    for doubt in (1.0, 3.0, 10.0, 100.0):
        law = replace(sample.law, doubt=doubt)
        interval = ESTIMANDS["mean"](replace(sample, law=law)).interval()
        share = guessed(interval.parts)[0]
        assert interval.support[0] >= SUPPORT_USE
        assert interval.verdicts == (("use",) if share <= GUESSED else ("use with care",))
        assert (interval.reasons[0] != ()) == (share > GUESSED)
        seen.append(share)
    assert seen == sorted(seen)
    assert seen[0] <= GUESSED < seen[-1]
    assert guessed({"rows": np.zeros(1), "prior": np.zeros(1)})[0] == 0  # a constant's


@pytest.mark.parametrize(
    ("base_rows", "verdict", "few"),
    [(600.0, Verdict.CARE, 0), (60.0, Verdict.CARE, 1), (6.0, Verdict.DO_NOT_USE, 1)],
)
def test_few_rows_forbid_the_use_of_an_interval_and_a_guess_asks_for_care(base_rows, verdict, few):
    sample = sample_of(np.random.default_rng(533))
    parts = {"rows": np.ones(1), "means": np.zeros(1), "prior": np.full(1, 9.0)}
    law = replace(sample.law, base_rows=base_rows)
    (objections,) = law.objections(ESTIMANDS["mean"](sample), parts)
    assert worst(objections) is verdict
    assert len(objections) == 1 + few
