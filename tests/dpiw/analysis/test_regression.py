import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

from dpiw import analysis
from dpiw.analysis.estimators.design import design
from dpiw.errors import ReleaseError, WeightError, optional
from tests.support.worlds import outcomes


def source():
    frame, w = outcomes()
    return frame.assign(x=1000 * frame["x"]), w


def test_a_name_alone_is_one_column():
    frame, w = source()
    alone = analysis.linear_regression((frame, w), "y", "x")
    assert alone.names == ("intercept", "x")
    assert "uses 400 of 400 synthetic rows" in repr(alone)
    assert analysis.fit_sklearn(LinearRegression(), (frame, w), "y", "x").n_features_in_ == 1


@pytest.mark.parametrize(
    ("family", "fit", "target", "wide"),
    [
        ("gaussian", analysis.linear_regression, "y", 1e-5),
        ("binomial", analysis.logistic_regression, "flag", 1e-5),
        ("poisson", analysis.poisson_regression, "count", 1e-5),
        # Ours inverts the observed curvature, statsmodels the expected one: the same for a
        # canonical link, and near it for the gamma law's logarithm.
        ("gamma", analysis.gamma_regression, "cost", 0.1),
    ],
)
def test_values_and_sandwich_against_statsmodels(family, fit, target, wide):
    pytest.importorskip("statsmodels")
    frame, w = source()
    rng, rate = np.random.default_rng(4), np.exp(3 + frame["z"] - 0.4 * (frame["g"] == "q"))
    frame["count"] = rng.poisson(rate)
    frame["cost"] = frame["count"] + rng.gamma(2, 1, len(frame))
    estimate = fit((frame, w), target, ["z", "g", "x"])
    peer = analysis.to_statsmodels((frame, w), target, ["z", "g", "x"], family=family)
    np.testing.assert_allclose(estimate.values, peer.params, rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(estimate.covariance())), peer.bse, rtol=wide)
    assert list(peer.params.index) == ["const", *estimate.names[1:]]


def test_design_of_mixed_columns():
    frame = pd.DataFrame(
        {
            "g": ["b", "a", "c", None],
            "d": pd.to_datetime(["2025-01-01", "2025-01-03", "2025-01-02", "2025-01-05"]),
            "f": pd.array([True, False, None, True], dtype="boolean"),
            "y": [1.0, 2.0, 3.0, 4.0],
        }
    )
    designed = design(frame, "y", ["g", "d", "f", "g:f"])
    assert designed.names == ("intercept", "g=b", "g=c", "d", "f", "g=b:f", "g=c:f")
    np.testing.assert_array_equal(designed.present, [True, True, False, False])
    np.testing.assert_array_equal(designed.matrix[0], [1, 1, 0, 0, 1, 1, 0])
    np.testing.assert_array_equal(designed.matrix[1], [1, 0, 0, 2, 0, 0, 0])
    assert not designed.matrix[2:].any()
    for target, feature in (("g", "d"), ("y", "h")):
        with pytest.raises(ReleaseError):
            design(frame, target, [feature])


def separated(**columns):
    """Three features without a word on `flag`, and columns that separate it or make it up."""
    frame, w = source()
    frame["m"] = np.random.default_rng(12).choice(list("st"), len(frame))
    frame["some"] = frame["g"] == "r"
    frame["days"] = np.where(frame["some"], 1.0 + frame["z"] ** 2, 0.0)
    for name, values in columns.items():
        frame[name] = values(frame)
    return frame, w


@pytest.mark.parametrize(
    ("flag", "features", "named"),
    [
        (lambda t: t["flag"] & (t["g"] != "p"), ["g", "x"], "False .* g = 'p' "),  # no column
        (lambda t: t["flag"] & (t["g"] != "q"), ["g", "x"], "False .* g = 'q' "),
        (lambda t: t["flag"] | (t["g"] == "q"), ["g", "x"], "True .* g = 'q' "),
        (lambda t: t["flag"] & t["some"], ["x", "some"], "False .* some = False "),
        (lambda t: t["flag"] | t["some"], ["x", "some"], "True .* some = True "),
        (lambda t: t["flag"] & ~((t["g"] == "q") & (t["m"] == "t")), ["g", "m", "g:m"],
         "False .* g = 'q' and m = 't' "),
        (lambda t: t["z"] > 0.5, ["x", "z"], "'z' .* False .* True "),
        (lambda t: t["z"] < 0.5, ["x", "z"], "'z' .* True .* False "),
        (lambda t: t["flag"] | t["some"], ["x", "days"], "True .*'days' other than zero "),
        (lambda t: t["z"] + t["x"] / 1000 > 0.5, ["x", "z"], "combination"),
    ],
)  # fmt: skip
def test_what_separates_a_target_is_named(flag, features, named):
    frame, w = separated(flag=flag)
    with pytest.raises(WeightError, match=named):
        analysis.logistic_regression((frame, w), "flag", features)


@pytest.mark.parametrize(
    ("model", "target", "features", "named"),
    [
        (analysis.poisson_regression, "z", ["x"], "target"),
        (analysis.poisson_regression, "none", ["g"], "g = 'q'"),
        (analysis.gamma_regression, "flag", ["x"], "target"),
        (analysis.logistic_regression, "flag", ["sure"], "sure = 1"),
        (analysis.logistic_regression, "y", ["x"], "truth values"),
        (analysis.logistic_regression, "all", ["x"], "'all'"),
        (analysis.linear_regression, "y", ["missing"], "missing"),
    ],
)
def test_what_cannot_be_fitted_is_refused(model, target, features, named):
    frame, w = source()
    frame = frame.assign(sure=frame["flag"] * 1.0, all=True)
    frame = frame.assign(none=np.where(frame["g"] == "q", 0, 1), missing=np.nan)
    with pytest.raises(WeightError, match=named):
        model((frame, w), target, features)


def test_what_another_library_cannot_fit_is_refused():
    for estimator, features in (
        (KNeighborsRegressor(), ["x"]), (LinearRegression(), ["no"]), ("x", ["x"]),
        (LinearRegression, ["x"]),
    ):  # fmt: skip
        with pytest.raises(ReleaseError):
            analysis.fit_sklearn(estimator, source(), "y", features)
    with pytest.raises(ReleaseError, match=r"no_such_library.*dpiw\[bayes\]"):
        optional("no_such_library.part", extra="bayes")


def test_what_separates_is_looked_for_in_the_rows_that_count():
    frame, w = separated(flag=lambda t: t["flag"] & ((t["g"] != "q") | (t["z"] < 0)))
    analysis.logistic_regression((frame, w), "flag", ["g", "x"])
    with pytest.raises(WeightError, match="of g = 'q' "):
        analysis.logistic_regression((frame, w), "flag", ["g", "x"], where="z > 0")
    with pytest.raises(WeightError, match="of g = 'q' "):
        analysis.logistic_regression((frame, w * (frame["z"] > 0)), "flag", ["g", "x"])


def test_logistic_is_exact_far_from_zero():
    # Two cells, saturated model: the fit is the log odds of the weighted shares.
    frame = pd.DataFrame({"x": [0, 0, 1, 1], "y": [1, 0, 1, 0]})
    weighted = frame, np.array([1.0, 999.0, 300.0, 1.0])
    coefficients = analysis.logistic_regression(weighted, "y", ["x"]).values
    np.testing.assert_allclose(
        coefficients, [np.log(1 / 999), np.log(300) - np.log(1 / 999)], rtol=1e-6
    )


def test_fit_sklearn_leaves_out_rows_without_a_target():
    frame, w = source()
    frame.loc[0, "y"] = np.nan
    complete = analysis.fit_sklearn(LinearRegression(), (frame, w), "y", ["z"])
    plain = LinearRegression().fit(frame[["z"]][1:], frame["y"][1:], w[1:])
    np.testing.assert_allclose(complete.coef_, plain.coef_)
