"""Logistic regressions of a target of several levels, and their posteriors."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from dpiw import analysis
from dpiw.analysis.estimators.bayes import scaled_weights
from dpiw.errors import ReleaseError, WeightError
from tests.support.worlds import outcomes

FEATURES = ["x", "z", "h"]


def source(count=3, *, rows=300, seed=11):
    """A target `kind` of levels a, b, ... whose log odds depend on x and h; and weights."""
    frame, w = outcomes(rows, seed=seed)
    rng, places = np.random.default_rng(seed), np.arange(count)
    odds = np.outer(frame["x"], np.sin(places)) + np.outer(frame["h"] == "u", places % 2)
    picked = np.argmax(odds + rng.gumbel(size=odds.shape), axis=1)
    return frame.assign(kind=np.array(list("abcdefgh"))[picked]), w


def against_the_first(found, levels):
    """Coefficients, shape (levels, terms), of every level against the first: its own are zero."""
    return np.vstack([np.zeros(len(found) // (levels - 1)), found.reshape(levels - 1, -1)])


def peer_of(frame, **settings):
    """The fit of statsmodels, which takes no weights."""
    sm = pytest.importorskip("statsmodels.api")
    x = frame[["x", "z"]].assign(h=frame["h"] == "v").astype(float)
    codes = frame["kind"].map("abcdefgh".index)
    return sm.MNLogit(codes, sm.add_constant(x)).fit(disp=0, tol=1e-12, **settings)


def test_whole_weights_are_rows_of_statsmodels_that_repeat():
    frame, _ = source()
    counts = np.random.default_rng(2).integers(0, 4, len(frame))
    estimate = analysis.logistic_regression((frame, counts), "kind", FEATURES)
    peer = peer_of(frame.loc[np.repeat(frame.index, counts)])
    np.testing.assert_allclose(estimate.values, peer.params.to_numpy().T.ravel(), rtol=1e-6)
    assert estimate.names[:5] == (
        "b vs a: intercept", "b vs a: x", "b vs a: z", "b vs a: h=v", "c vs a: intercept",
    )  # fmt: skip


def test_the_sandwich_is_that_of_statsmodels():
    frame, _ = source(4)
    estimate = analysis.logistic_regression((frame, None), "kind", FEATURES)
    peer = peer_of(frame, cov_type="HC0").bse.to_numpy().T.ravel()
    # Ours is about the mean of the influence, which is zero but for rounding.
    np.testing.assert_allclose(np.sqrt(np.diag(estimate.covariance())), peer, rtol=1e-6)


def test_two_levels_are_the_logistic_regression():
    frame, w = source(2)
    plain = frame.assign(kind=frame["kind"] == "b")
    for fit in (analysis.logistic_regression, analysis.logistic_posterior):
        one, other = fit((frame, w), "kind", FEATURES), fit((plain, w), "kind", FEATURES)
        assert one.names == tuple(f"b vs a: {name}" for name in other.names)
        if fit is analysis.logistic_regression:
            np.testing.assert_allclose(one.values, other.values, rtol=1e-9)
            np.testing.assert_allclose(one.influence, other.influence, rtol=1e-7, atol=1e-9)
            np.testing.assert_array_equal(one.sides, other.sides)
        else:
            np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)
            np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-9)


@given(
    count=st.integers(3, 5), seed=st.integers(0, 2**20), scale=st.floats(1e-6, 1e6),
    posterior=st.booleans(), data=st.data(),
)  # fmt: skip
@settings(derandomize=True, database=None, deadline=None, max_examples=12)
def test_neither_scale_nor_order_nor_the_names_of_levels_matter(
    count, seed, scale, posterior, data
):
    frame, w = source(count, seed=seed)
    order, names = np.random.default_rng(seed).permutation(len(frame)), list("abcde")[:count]
    named = data.draw(st.permutations(names))
    other = frame.assign(kind=frame["kind"].map(dict(zip(names, named, strict=True))))

    def read(table, weights):
        if posterior:
            return analysis.logistic_posterior((table, weights), "kind", FEATURES).mean
        return analysis.logistic_regression((table, weights), "kind", FEATURES).values

    first = against_the_first(read(frame, w), count)
    changed = against_the_first(read(other.iloc[order], scale * w[order]), count)
    back = changed[[sorted(named).index(name) for name in named]]  # of a, b, ... by old names
    np.testing.assert_allclose(back - back[0], first, rtol=1e-6, atol=1e-8)


def test_levels_are_those_in_rows_that_count():
    frame, w = source(4)
    frame.loc[5, "kind"] = None
    alone = frame[frame["kind"].isin(["b", "d"])], w[frame["kind"].isin(["b", "d"])]
    expected = analysis.logistic_regression(alone, "kind", FEATURES)
    assert expected.names[1] == "d vs b: x"
    part = analysis.logistic_regression((frame, w), "kind", FEATURES, where="kind in ['b', 'd']")
    light = (frame, w * frame["kind"].isin(["b", "d"]))
    for found in (part, analysis.logistic_regression(light, "kind", FEATURES)):
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-9)
        assert found.names == expected.names
        assert not found.influence[~frame["kind"].isin(["b", "d"])].any()
    np.testing.assert_allclose(
        analysis.logistic_posterior(light, "kind", FEATURES).mean,
        analysis.logistic_posterior(alone, "kind", FEATURES).mean, rtol=1e-9,
    )  # fmt: skip


def test_a_value_rests_on_the_rows_of_its_two_levels():
    frame, w = source()
    estimate = analysis.logistic_regression((frame, w), "kind", FEATURES)
    for name, sides in zip(estimate.names, np.moveaxis(estimate.sides, 2, 0), strict=True):
        assert set(frame["kind"][sides.any(axis=0)]) == {name[0], "a"}
        assert (frame["h"][sides[0]] == "v").all() or not name.endswith("h=v")


def test_a_formula_and_a_category_name_the_same_target():
    pytest.importorskip("formulaic")
    frame, w = source()
    frame["of what"] = frame["kind"].astype("category")
    expected = analysis.logistic_regression((frame, w), "kind", ["x", "h"])
    for formula in ("kind ~ x + h", "`of what` ~ x + h", "Q('of what') ~ x + h"):
        found = analysis.logistic_regression((frame, w), formula)
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-9)
    assert found.names[2] == "b vs a: h[T.v]"
    assert found["c vs a: x"] == found.values[4]


@pytest.mark.parametrize(
    ("kind", "features", "named"),
    [
        (lambda t: t["kind"].where((t["kind"] != "b") | (t["g"] != "q"), "a"), ["g", "x"],
         "other than 'b' .* g = 'q' "),
        (lambda t: t["kind"].where(t["g"] != "q", "c"), ["g", "x"], "other than 'a' .* g = 'q' "),
        (lambda t: t["kind"].where(t["z"] < 0.5, "d"), ["x", "z"],
         "'z' alone .* other than 'd' up to .* and 'd' from "),
        (lambda t: np.select([t["x"] + t["z"] > 0.8, t["x"] + t["z"] > 0.5], ["c", "b"], "a"),
         ["x", "z"], "combination"),
        (lambda t: "a", ["x"], "has 1 of its levels .* 2 to 20"),
        (lambda t: t["kind"].where(t["x"].isna(), None), ["x"], "has 0 of its levels .* 2 to 20"),
        (lambda t: [f"{k % 21}" for k in range(len(t))], ["x"], "has 21 of its levels"),
        (lambda t: t["kind"].map("abc".index), ["x"], "truth values, 0 and 1, or text"),
        (lambda t: t["kind"], ["x", "same"], "'same' has one value"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(kind, features, named):
    frame, w = source()
    with pytest.raises(WeightError, match=named):
        analysis.logistic_regression(
            (frame.assign(kind=kind(frame), same=1.0), w), "kind", features
        )


def test_a_name_that_is_no_target_is_refused():
    frame, w = source()
    twice = pd.concat([frame, frame[["kind"]]], axis=1)
    for table, target in ((frame, ["kind"]), (twice, "kind"), (frame, "kinds")):
        with pytest.raises(ReleaseError):
            analysis.logistic_regression((table, w), target, ["x"])


def test_the_posterior_of_several_levels_by_hand():
    """The mode is scikit-learn's, which gives every level coefficients of its own.

    With N(0, s^2 / 2) for each, the log odds of each two levels are N(0, s^2).
    """
    frame, w = source(4)
    found = analysis.logistic_posterior((frame, w), "kind", ["x", "z"], prior_scale=0.7)
    _, scaled = scaled_weights((frame, w))
    mean, unit = np.zeros(2), np.zeros(2)
    for place, name in enumerate(("x", "z")):
        mean[place] = np.average(frame[name], weights=scaled)
        unit[place] = np.sqrt(np.average((frame[name] - mean[place]) ** 2, weights=scaled))
    x = np.column_stack([np.ones(len(frame)), (frame[["x", "z"]] - mean) / unit])
    peer = LogisticRegression(C=0.7**2 / 2, fit_intercept=False, tol=1e-10, max_iter=1000)
    peer.fit(x, frame["kind"], scaled)
    slopes = peer.coef_[1:] - peer.coef_[0]
    back = np.array([[1, *(-mean / unit)], [0, 1 / unit[0], 0], [0, 0, 1 / unit[1]]])
    np.testing.assert_allclose(found.mean, (slopes @ back.T).ravel(), rtol=1e-4, atol=1e-5)
    alike = (np.eye(3) + 1) / 2 * 0.7**2  # of log odds against the first level
    precision = np.linalg.inv(np.kron(alike, np.eye(3)))
    for row, p, weight in zip(x, peer.predict_proba(x)[:, 1:], scaled, strict=True):
        precision += weight * np.kron(np.diag(p) - np.outer(p, p), np.outer(row, row))
    wide = np.kron(np.eye(3), back)
    expected = wide @ np.linalg.inv(precision) @ wide.T
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-3, atol=1e-5)
    assert found.names[3] == "c vs a: intercept"


def test_a_posterior_exists_where_a_level_separates():
    frame, w = source()
    frame["kind"] = frame["kind"].where(frame["z"] < 0.5, "d")
    found = analysis.logistic_posterior((frame, w), "kind", FEATURES)
    assert np.all(np.isfinite(found.covariance))
    assert found.mean[found.names.index("d vs a: z")] > 5
