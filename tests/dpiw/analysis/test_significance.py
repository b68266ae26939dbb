from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpiw import analysis
from dpiw.analysis.errors.intervals import noise_aware_covariance, variance_parts
from dpiw.analysis.estimators.wald import chi_square_tail
from dpiw.errors import ReleaseError


def source(rows=600, seed=51):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "y": rng.normal(size=rows),
            "half": np.arange(rows) % 2 == 0,
            "g": rng.choice(list("pqr"), rows),
            "h": rng.choice(["u", "v"], rows),
        }
    )
    return frame, rng.gamma(2.0, 1.0, rows)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 12, 25])
@pytest.mark.parametrize("statistic", [0.0, 0.1, 2.5, 30.0, 200.0])
def test_the_tail_against_scipy(degrees, statistic):
    expected = stats.chi2.sf(statistic, degrees)
    assert chi_square_tail(statistic, degrees) == pytest.approx(expected, rel=1e-10, abs=1e-300)


def test_without_weights_a_difference_is_welchs():
    frame, _ = source()
    first, second = (frame["y"][frame["half"] == side] for side in (True, False))
    peer = stats.ttest_ind(first, second, equal_var=False).statistic
    ours = analysis.t_test((frame, None), "y", by="half")
    assert ours.statistic == pytest.approx(peer * np.sqrt(300 / 299))  # spreads over n, not n - 1
    assert ours.p_value == pytest.approx(2 * stats.norm.sf(abs(ours.statistic)))
    assert ours.estimate.names == ("y: True less False",)
    assert ours.estimate.value == pytest.approx(first.mean() - second.mean())
    single = analysis.t_test((frame, None), "y", value=0.1)
    peer = stats.ttest_1samp(frame["y"], 0.1).statistic
    assert single.statistic == pytest.approx(peer * np.sqrt(600 / 599))


def test_independence_by_the_slow_formula():
    frame, w = source()
    ours = analysis.chi_square_test((frame, w), "g", "h")
    share = w / w.sum()
    g, h = (
        (frame["g"].to_numpy()[:, None] == ["p", "q"]) * 1.0,
        (frame["h"] == "u").to_numpy() * 1.0,
    )
    p, q = share @ g, share @ h
    both = share @ (g * h[:, None])
    d = both - p * q
    rows = g * h[:, None] - both - (g - p) * q - p * (h - q)[:, None]
    v = np.einsum("n,ni,nj->ij", share**2, rows, rows)
    assert ours.statistic == pytest.approx(d @ np.linalg.solve(v, d), rel=1e-6)
    assert ours.degrees == 2
    assert ours.p_value == pytest.approx(stats.chi2.sf(ours.statistic, 2))
    assert ours.method == "sandwich"
    assert ours.verdict == "not assessed"


def test_without_weights_independence_is_near_pearsons():
    frame, _ = source(rows=20_000)
    ours = analysis.chi_square_test((frame, None), "g", "h")
    peer = stats.chi2_contingency(pd.crosstab(frame["g"], frame["h"]), correction=False)
    assert ours.degrees == peer.dof
    assert ours.statistic == pytest.approx(peer.statistic, rel=0.05)


def test_a_group_or_bins_of_a_table():
    frame, w = source()
    mask = (frame["y"] > 0).to_numpy()
    grouped = analysis.chi_square_test((frame, w), "g", "h", where="y > 0")
    alone = analysis.chi_square_test((frame[mask], w[mask]), "g", "h")
    assert grouped.statistic == pytest.approx(alone.statistic, rel=1e-6)
    assert analysis.chi_square_test((frame, w), "y", "h", bins=3).degrees == 2


def test_all_coefficients_at_once():
    frame, w = source()
    fit = analysis.linear_regression((frame, w), "y", ["g", "h"])
    test = analysis.wald_test(fit, ["g=q", "g=r"])
    v = fit.covariance()[1:3, 1:3]
    expected = fit.values[1:3] @ np.linalg.solve(v, fit.values[1:3])
    assert test.statistic == pytest.approx(expected)
    assert test.degrees == 2
    assert repr(test).startswith("g=q, g=r = 0: W = ")
    assert f"p = {test.p_value:.3g}" in repr(test)


def test_the_joint_covariance_has_the_variances_of_the_parts(publishing):
    for weights in ("measured, settings: {omega_seed: 5, frequencies: 20, base_rows: 3000}",):
        _, release = publishing(weights=weights)
        fit = analysis.joint(release.mean("age"), release.std("income"))
        covariance = noise_aware_covariance(fit)
        np.testing.assert_allclose(np.diag(covariance), sum(variance_parts(fit).values()))
        # The slow twin: the variance of any combination is that of its influence.
        for mix in ([1.0, 1e-3], [1.0, -1e-3]):
            combined = replace(fit, influence=fit.influence @ np.array(mix)[:, None])
            direct = float(sum(variance_parts(combined).values())[0])
            assert np.array(mix) @ covariance @ mix == pytest.approx(direct, rel=1e-6)
        test = analysis.t_test(release, "age", by="ill")
        assert test.method == "noise_aware"
        assert test.verdict in ("use", "use with care", "do not use")
        alone = analysis.t_test(release, "age", by="ill", method="sandwich")
        assert alone.p_value < test.p_value


def test_what_is_refused():
    frame, w = source()
    fit = analysis.mean((frame, w), "y", by="g")
    with pytest.raises(ReleaseError, match="names: expected some of"):
        analysis.wald_test(fit, ["x"])
    with pytest.raises(ReleaseError, match="names: expected some of"):
        analysis.wald_test(fit, [])
    with pytest.raises(ReleaseError, match="method: expected one of noise_aware, sandwich"):
        analysis.wald_test(fit, method="bootstrap")
    with pytest.raises(ReleaseError, match="law of these weights is not known"):
        analysis.wald_test(fit, method="noise_aware")
    with pytest.raises(ReleaseError, match="depend on each other"):
        analysis.wald_test(analysis.value_counts((frame, w), "g"))
    with pytest.raises(ReleaseError, match="has no error"):
        analysis.wald_test(analysis.mean((frame.assign(y=1.0), w), "y"))
    with pytest.raises(ReleaseError, match="expected two levels"):
        analysis.t_test((frame, w), "y", by="g")
    with pytest.raises(ReleaseError, match="column 'g' has one level"):
        analysis.chi_square_test((frame.assign(g="p"), w), "g", "h")


def test_a_t_test_prints_what_it_tests():
    """The difference and its interval, not only the statistic."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame({"income": rng.normal(10, 2, 800), "smoker": rng.random(800) < 0.4})
    test = analysis.t_test((table, None), "income", by="smoker")
    low, high = (getattr(test.estimate.interval(), end)[0] for end in ("lower", "upper"))
    assert repr(test).splitlines()[1] == (
        f"income: True less False: {test.estimate.value:.6g}, 95% interval {low:.6g} to {high:.6g}"
    )
    assert (test.lower, test.upper) == (low, high)
    again = analysis.t_test((table, None), "income", "smoker")
    assert repr(again) == repr(test)
    with pytest.raises(ReleaseError, match="by: expected the name of one column"):
        analysis.t_test((table, None), "income", 9)
    several = analysis.wald_test(analysis.linear_regression((table, None), "income", ["smoker"]))
    with pytest.raises(ReleaseError, match="several values"):
        _ = several.lower
    single = analysis.t_test((table, None), "income", value=9, where="income > 0")
    assert "mean(income) where income > 0 less 9: " in repr(single)
    assert "degree" not in repr(single)


@pytest.mark.parametrize("names", [["mean(x) | g=b"], ["mean(x) | g=b", "mean(x) | g=a"]])
def test_a_part_of_some_values_keeps_their_own_intervals(names):
    rng = np.random.default_rng(20261124)
    table = pd.DataFrame({"x": rng.normal(size=300), "g": np.repeat(["a", "b", "c"], 100)})
    table.loc[table["g"] == "b", "x"] += 10
    whole = analysis.mean((table, None), "x", by="g")
    part = analysis.wald_test(whole, names).estimate.interval()
    medians = analysis.median((table, None), "x", by="g")
    chosen_medians = analysis.wald_test(medians, [name.replace("mean", "median") for name in names])
    for chosen, every in (
        (part, whole.interval()),
        (chosen_medians.estimate.interval(), medians.interval()),
    ):
        places = [every.names.index(name) for name in chosen.names]
        np.testing.assert_allclose(chosen.lower, every.lower[places])
        np.testing.assert_allclose(chosen.upper, every.upper[places])


def test_a_test_says_why_its_verdict_is_not_use(publishing):
    """In the words of the intervals that it rests on, and nothing where there is nothing to say."""
    _, release = publishing(
        weights="measured, settings: {omega_seed: 5, frequencies: 20, base_rows: 3000}"
    )
    difference = analysis.t_test(release, "income", by="ill", where="age > 70")
    (objections,) = difference.estimate.interval().reasons
    assert difference.verdict != "use"
    assert difference.reasons == (f"{difference.estimate.names[0]}: {'; '.join(objections)}",)
    assert repr(difference).splitlines()[2:] == [*difference.reasons]
    dependence = analysis.chi_square_test(release, "income", "ill", bins=3, where="age > 70")
    assert dependence.degrees > 1
    assert dependence.reasons == tuple(dependence.estimate.interval().told())
    assert repr(dependence).splitlines()[1:] == [*dependence.reasons]
    assert dependence.reasons
    (reason,) = analysis.t_test((release.table, None), "income", by="ill").reasons
    assert reason.startswith("not assessed: it holds the error of the synthetic rows alone")


def test_what_tests_refuse_is_named():
    frame, w = source()
    slopes = analysis.linear_regression((frame, w), "y", ["half", "g"])
    for ask, words in (
        (lambda: analysis.wald_test(frame), "wald_test: expected an estimate, .* found DataFrame"),
        (lambda: analysis.wald_test(slopes, ["halv"]), "did you mean 'half'"),
        (lambda: analysis.wald_test(slopes, method="sandwhich"), "did you mean 'sandwich'"),
        (
            lambda: analysis.t_test((frame, w), "y", value="50"),
            "value: expected a number, found '5",
        ),
        (lambda: analysis.t_test((frame, w), "y", value=np.nan), "expected a number, found nan"),
        (
            lambda: analysis.t_test((frame.assign(half=None), w), "y", by="half"),
            "column 'half' is missing in every row that counts",
        ),
        (lambda: analysis.chi_square_test((frame, w), "g", "g"), "column 'g' stands twice"),
        (
            lambda: analysis.chi_square_test((frame, w), "g", "h", where="h == 'u'"),
            "column 'h' has one level in the rows that count",
        ),
    ):
        with pytest.raises(ReleaseError, match=words):
            ask()
    assert analysis.wald_test(slopes, "half").estimate.names == ("half",)


def test_a_small_p_value_is_printed_as_a_bound():
    frame, w = source()
    far = analysis.t_test((frame, w), "y", value=50)
    assert far.p_value < 1e-12
    assert ", p < 0.0001 (sandwich" in repr(far)
    near = analysis.t_test((frame, w), "y", value=0.1)
    assert f", p = {near.p_value:.3g} (sandwich" in repr(near)
