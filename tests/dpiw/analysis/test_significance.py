from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpiw import analysis
from dpiw.analysis.errors.intervals import noise_aware_covariance, variance_parts
from dpiw.analysis.estimators.wald import chi_square_tail
from dpiw.errors import ReleaseError
from tests.support.worlds import outcomes

MEASURED = "measured, settings: {omega_seed: 5, frequencies: 20, base_rows: 3000}"


def source():
    frame, w = outcomes(600)
    return frame.assign(half=np.arange(600) % 2 == 0), w


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
    interval = ours.estimate.interval()
    assert (ours.lower, ours.upper) == (interval.lower[0], interval.upper[0])
    assert repr(analysis.t_test((frame, None), "y", "half")) == repr(ours)
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


def test_the_joint_covariance_has_the_variances_of_the_parts(publishing):
    _, release = publishing(weights=MEASURED)
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
    slopes = analysis.linear_regression((frame, w), "y", ["half", "g"])
    for ask in (
        lambda: analysis.wald_test(frame),
        lambda: analysis.wald_test(fit, ["x"]),
        lambda: analysis.wald_test(fit, []),
        lambda: analysis.wald_test(slopes, ["halv"]),
        lambda: analysis.wald_test(fit, method="bootstrap"),
        lambda: analysis.wald_test(fit, method="noise_aware"),
        lambda: analysis.wald_test(analysis.value_counts((frame, w), "g")),
        lambda: analysis.wald_test(analysis.mean((frame.assign(y=1.0), w), "y")),
        lambda: analysis.t_test((frame, w), "y", by="g"),
        lambda: analysis.t_test((frame, w), "y", by=9),
        lambda: analysis.t_test((frame, w), "y", value="50"),
        lambda: analysis.t_test((frame, w), "y", value=np.nan),
        lambda: analysis.t_test((frame.assign(half=None), w), "y", by="half"),
        lambda: analysis.chi_square_test((frame.assign(g="p"), w), "g", "h"),
        lambda: analysis.chi_square_test((frame, w), "g", "g"),
        lambda: analysis.chi_square_test((frame, w), "g", "h", where="h == 'u'"),
        lambda: analysis.wald_test(slopes).lower,
    ):
        with pytest.raises(ReleaseError):
            ask()
    assert analysis.wald_test(slopes, "half").estimate.names == ("half",)


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
    _, release = publishing(weights=MEASURED)
    difference = analysis.t_test(release, "income", by="ill", where="age > 70")
    (objections,) = difference.estimate.interval().reasons
    assert difference.verdict != "use"
    assert difference.reasons == (f"{difference.estimate.names[0]}: {'; '.join(objections)}",)
    dependence = analysis.chi_square_test(release, "income", "ill", bins=3, where="age > 70")
    assert dependence.degrees > 1
    assert dependence.reasons == tuple(dependence.estimate.interval().told())
    assert dependence.reasons
    for test in (difference, dependence):
        assert repr(test).splitlines()[-len(test.reasons) :] == [*test.reasons]
