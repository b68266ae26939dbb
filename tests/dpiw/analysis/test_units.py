"""Every estimator in other units: a column that is shifted or scaled changes no conclusion.

Slopes, intervals, p-values and verdicts, of the feature's side and of the target's. `PUBLIC` is
complete against the public names: a new one fails until it is here or says why not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.sample import WeightedSample
from dpiw.errors import ReleaseError, WeightError
from dpiw.methods.weights.measured.law import MeansLaw

ROWS = 300
UNITS = {
    "a year": (1.0, 2000.0), "a million": (1.0, 1e6), "below zero": (1.0, -1e6),
    "micro": (1e6, 0.0), "mega": (1e-6, 0.0), "tiny": (1e-9, 0.0), "both": (1e6, 2e9),
}  # fmt: skip
"""By what a column is multiplied, and what is added then."""
FEW_UNITS = {"means": ("below zero",), "none": ("a year",)}
"""Units of the fast tests, by law; the nightly ones take all units under every law."""


def sample_of(law):
    rng = np.random.default_rng(71)
    phi = np.column_stack([rng.uniform(-0.5, 0.5, (ROWS, 2)), np.full(ROWS, 0.5)])
    x, z = 2 * phi[:, 0] + 0.2 * rng.normal(size=ROWS), phi[:, 1] + 0.3 * rng.normal(size=ROWS)
    mean = np.exp(0.5 * x - 0.3 * z)
    frame = pd.DataFrame(
        {
            "x": x,
            "z": z,
            "y": 1 + x - z + 0.4 * x * z + rng.normal(size=ROWS),
            "flag": rng.random(ROWS) < 1 / (1 + np.exp(-x)),
            "g": rng.choice(list("pqr"), ROWS),
            "count": rng.poisson(3 * mean).astype(float),
            "cost": mean * rng.gamma(2.0, 1.0, ROWS),
        }
    )
    logs = phi @ np.array([0.6, -0.4, 0.0])
    weights = np.exp(logs) / np.exp(logs).mean()
    laws = {
        "means": MeansLaw(
            features=phi[:, :2], weights=weights, covariance=1e-5 * np.eye(2), rows=5000,
            credit=300.0,
        ),
        "none": None,
    }  # fmt: skip
    return WeightedSample(frame=frame, weights=weights, law=laws[law])


Reading = tuple[np.ndarray, float, Any]
"""Numbers, the width that their differences are small against, and what must be equal."""


@dataclass(frozen=True)
class Case:
    """An estimator, and what a column's unit does to it."""

    read: Callable[[Any], Mapping[str, Reading]]
    powers: Mapping[str, Mapping[str, int] | int]  # of the unit, by column, in each number or all
    moves: tuple[str, ...] = ()  # columns with whose origin the numbers move
    shifts: tuple[str, ...] = ("x", "y")  # those that may be shifted: no target of a logarithm
    slack: float = 1e-6  # what rounding of squares leaves
    only: tuple[str, ...] = ()  # laws; all where there are none
    without: tuple[str, ...] = ()  # units that are refused


def of_estimate(estimate, *, leave=()):
    """Estimate and interval of each value with its verdict, and the p-value beside it."""
    interval, found = estimate.interval(), {}
    for k, name in enumerate(estimate.names):
        if name not in leave:
            ends = np.array([interval.values[k], interval.lower[k], interval.upper[k]])
            told = interval.verdicts[k], interval.reasons[k : k + 1]
            found[name] = ends, float(np.ptp(ends)), told
    return found


def of_regression(estimate, *, leave=("intercept",)):
    found = of_estimate(estimate, leave=leave)
    for name in list(found):
        test = analysis.wald_test(estimate, [name])
        found[f"p {name}"] = (np.array([test.p_value, test.statistic]), 1.0, test.verdict)
    slopes = [name for name in estimate.names if name not in leave]
    test = analysis.wald_test(estimate, slopes)  # several at once: their covariance
    found["p all"] = (np.array([test.p_value, test.statistic]), abs(test.statistic), test.verdict)
    return found


def of_test(test):
    found = {"p": (np.array([test.p_value, test.statistic]), 1.0, test.verdict)}
    return found | of_estimate(test.estimate) if test.degrees == 1 else found


def of_posterior(posterior):
    draws = posterior.draw(50, np.random.default_rng(1))
    return {
        name: (np.array([mean, mean + error, *drawn]), error, None)
        for name, mean, error, drawn in zip(
            posterior.names, posterior.mean, posterior.standard_deviation, draws.T, strict=True
        )
        if not name.endswith("intercept")
    }


def of_statsmodels(found):
    numbers = zip(found.params.index, found.params, found.bse, found.pvalues, strict=True)
    return {
        key: reading
        for name, b, error, p in numbers
        if name != "const"
        for key, reading in ((name, (np.array([b, b + error]), error, None)),
                             (f"p {name}", (np.array([p]), 1.0, None)))
    }  # fmt: skip


def of_frame(frame):
    numbers = frame.to_numpy(dtype=float)
    return {"all": (numbers, float(np.abs(numbers).max()), None)}


SLOPES = {"x": -1, "x:z": -1, "x:g=q": -1, "x:g[T.q]": -1, "x:g=r": -1, "x:g[T.r]": -1}
LINEAR: Mapping[str, Any] = {"x": SLOPES, "y": 1}
LOG: Mapping[str, Any] = {"x": SLOPES}
LEVELS: Mapping[str, Any] = {"x": {"q vs p: x": -1, "r vs p: x": -1}}


def regression(function, target, features, powers, **settings):
    leave = settings.pop("leave", ("intercept",))
    return Case(
        lambda s: of_regression(function(s, target, features), leave=leave), powers, **settings
    )


def formula(function, text, powers, **settings):
    return regression(function, text, None, powers, **settings)


A = analysis
MIXED = ["x", "z", "g"]
PUBLIC: Mapping[str, list[Case]] = {
    "linear_regression": [
        regression(A.linear_regression, "y", MIXED, LINEAR),
        regression(A.linear_regression, "y", ["x", "z", "x:z"], LINEAR, leave=("intercept", "z")),
        regression(A.linear_regression, "y", ["x", "g", "x:g"], LINEAR,
                   leave=("intercept", "g=q", "g=r")),
        formula(A.linear_regression, "y ~ x + z", LINEAR),
        formula(A.linear_regression, "y ~ 0 + g + x", LINEAR, leave=("g[p]", "g[q]", "g[r]")),
        formula(A.linear_regression, "y ~ x * z", LINEAR, leave=("intercept", "z")),
        formula(A.linear_regression, "y ~ x * g", LINEAR,
                leave=("intercept", "g[T.q]", "g[T.r]")),
        formula(A.linear_regression, "y ~ poly(x, 2) + z", {"x": 0, "y": 1}, slack=1e-3),
        formula(A.linear_regression, "y ~ x + I(x ** 2)", {"x": {"I(x ** 2)": -2}, "y": 1},
                leave=("intercept", "x"), slack=1e-2),
    ],
    "logistic_regression": [
        regression(A.logistic_regression, "flag", MIXED, LOG, shifts=("x",)),
        formula(A.logistic_regression, "flag ~ x + C(g)", LOG, shifts=("x",)),
        regression(A.logistic_regression, "g", ["x", "z"], LEVELS,
                   leave=("q vs p: intercept", "r vs p: intercept")),
    ],
    "poisson_regression": [
        regression(A.poisson_regression, "count", MIXED, {**LOG, "count": 0}, shifts=("x",)),
        formula(A.poisson_regression, "count ~ 0 + g + x", LOG, shifts=("x",),
                leave=("g[p]", "g[q]", "g[r]")),
    ],
    "gamma_regression": [
        regression(A.gamma_regression, "cost", MIXED, {**LOG, "cost": 0}, shifts=("x",)),
    ],
    "linear_posterior": [
        Case(lambda s: of_posterior(A.linear_posterior(s, "y", MIXED, prior_scale=0.5)), LINEAR),
    ],
    "logistic_posterior": [
        Case(lambda s: of_posterior(A.logistic_posterior(s, "flag", MIXED, prior_scale=0.5)),
             LOG, shifts=("x",)),
        Case(lambda s: of_posterior(A.logistic_posterior(s, "g", ["x", "z"])), LEVELS),
    ],
    "to_statsmodels": [
        Case(lambda s: of_statsmodels(A.to_statsmodels(s, "y", MIXED)), LINEAR, slack=1e-2,
             only=("none",), without=("both",)),
        Case(lambda s: of_statsmodels(A.to_statsmodels(s, "flag", MIXED, family="binomial")), LOG,
             slack=1e-2, only=("none",), without=("both",)),
    ],
    "correlation": [Case(lambda s: of_estimate(A.correlation(s, "x", "y")), {"x": 0, "y": 0})],
    "mean": [
        Case(lambda s: of_estimate(A.mean(s, "x")), {"x": 1}, ("x",)),
        Case(lambda s: of_estimate(A.mean(s, "x", by="g")), {"x": 1}, ("x",)),
        Case(lambda s: of_estimate(A.mean(s, "x", where="g == 'q'")), {"x": 1}, ("x",)),
    ],
    "std": [Case(lambda s: of_estimate(A.std(s, "x", by="g")), {"x": 1})],
    "variance": [Case(lambda s: of_estimate(A.variance(s, "x")), {"x": 2})],
    "total": [Case(lambda s: of_estimate(A.total(s, "x", population=1)), {"x": 1}, ("x",))],
    "quantile": [
        Case(lambda s: of_estimate(A.quantile(s, "x", 0.3, by="g")), {"x": 1}, ("x",)),
    ],
    "median": [Case(lambda s: of_estimate(A.median(s, "x")), {"x": 1}, ("x",))],
    "t_test": [
        Case(lambda s: of_test(A.t_test(s, "x", "flag")), {"x": {"x: True less False": 1}}),
        Case(lambda s: of_test(A.t_test(s, lambda t: t["x"] - t["x"].median())),
             {"x": {"mean(value) less 0": 1}}),
    ],
    "chi_square_test": [
        Case(lambda s: of_test(A.chi_square_test(s, "x", "g", bins=3)), {"x": 0}),
    ],
    "value_counts": [
        Case(lambda s: dict(enumerate(of_estimate(A.value_counts(s, "x", bins=3)).values())),
             {"x": 0}),
    ],
    "crosstab": [Case(lambda s: of_frame(A.crosstab(s, "x", "g", bins=3)), {"x": 0})],
    "describe": [
        Case(lambda s: of_frame(A.describe(s, "x")[["std"]]), {"x": 1}),
        Case(lambda s: of_frame(A.describe(s, "x")[["mean", "25%", "50%", "75%"]]), {"x": 1},
             ("x",)),
    ],
}  # fmt: skip
LEFT_OUT = {
    "Change": "a type", "Estimate": "a type", "Interval": "a type", "WaldTest": "a type",
    "change": "of two releases: test_changes.py",
    "WeightedSample": "a type", "weighted_sample": "rows and weights", "resample": "rows",
    "export": "files", "box": "a picture", "histogram": "a picture", "pairs": "a picture",
    "confidence_interval": "of every estimate above", "wald_test": "of every regression above",
    "joint": "of estimates above", "dirichlet_posterior": "levels alone",
    "fit_sklearn": "scikit-learn's own model",
}  # fmt: skip


def test_no_public_estimator_is_missing():
    assert set(PUBLIC) | set(LEFT_OUT) == set(analysis.__all__)
    assert not set(PUBLIC) & set(LEFT_OUT)


def moved(sample, column, scale, shift):
    frame = sample.table
    frame[column] = frame[column] * scale + shift
    return replace(sample, frame=frame)


def check(case, before, after, column, unit):
    scale, shift = unit
    powers = case.powers[column]
    assert before.keys() == after.keys()
    for name, (numbers, width, equal) in before.items():
        power = powers.get(name, 0) if isinstance(powers, Mapping) else powers
        power = 0 if str(name).startswith("p ") or name == "p" else power
        found, _, also = after[name]
        found = (found - shift * (column in case.moves)) / scale**power
        np.testing.assert_allclose(found, numbers, rtol=0, atol=case.slack * width, err_msg=name)
        assert also == equal, name


@pytest.mark.nightly_cases("all-")
@pytest.mark.parametrize("law", FEW_UNITS)
@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("units", ["few", "all"])
def test_a_unit_changes_no_conclusion(units, name, law):
    check_units(name, law, FEW_UNITS[law] if units == "few" else UNITS)


def check_units(name, law, units):
    if name == "to_statsmodels":
        pytest.importorskip("statsmodels")
    sample = sample_of(law)
    for case in PUBLIC[name]:
        if case.only and law not in case.only:
            continue
        before = case.read(sample)
        for column in case.powers:
            for unit in units:
                scale, shift = UNITS[unit]
                if unit not in case.without and (shift == 0 or column in case.shifts):
                    after = case.read(moved(sample, column, scale, shift))
                    check(case, before, after, column, (scale, shift))


IDS = 9_007_199_254_740_993
"""2^53 + 1: no double."""


def numbered(rows=60, wide=7):
    """Whole numbers beyond doubles that differ by less than ten, and what goes with them."""
    rng = np.random.default_rng(81)
    small = rng.integers(0, wide, rows)
    frame = pd.DataFrame({"small": small.astype(float), "late": small + IDS, "early": small - IDS})
    frame["gaps"] = frame["late"].astype("Int64").where(small < 9)
    frame["big"] = small.astype("uint64") + np.uint64(2**63 + 1)
    frame["ok"] = rng.random(rows) < (0.2 + 0.08 * small)
    frame["half"] = np.arange(rows) % 2 == 0
    return frame, rng.gamma(2.0, 1.0, rows)


@pytest.mark.parametrize("name", ["late", "early", "gaps", "big"])
def test_whole_numbers_beyond_doubles(name):
    source = numbered()
    origin = {"early": -IDS, "big": 2**63 + 1}.get(name, IDS)
    for model in (A.linear_regression, A.logistic_regression):
        for features in (["small", "half", "small:half"], ["small"]):
            ours = [feature.replace("small", name) for feature in features]
            expected = of_regression(model(source, "ok", features), leave=("intercept", "half"))
            found = of_regression(model(source, "ok", ours), leave=("intercept", "half"))
            for one, other in zip(found.values(), expected.values(), strict=True):
                np.testing.assert_allclose(one[0], other[0], rtol=1e-9)
        pytest.importorskip("formulaic")
        found = model(source, f"ok ~ {name} * half").covariance()
        expected = model(source, "ok ~ small * half").covariance()
        np.testing.assert_allclose(found[3, 3], expected[3, 3], rtol=1e-9)
    posterior = A.linear_posterior(source, "ok", [name])
    np.testing.assert_allclose(
        posterior.mean[1], A.linear_posterior(source, "ok", ["small"]).mean[1], rtol=1e-9
    )
    back = A.linear_regression(source, name, ["ok"])
    np.testing.assert_allclose(back.values[1], A.linear_regression(source, "small", ["ok"])["ok"])
    for estimator in (lambda c: A.correlation(source, c, "ok"), lambda c: A.std(source, c)):
        one, other = estimator(name), estimator("small")
        np.testing.assert_allclose([one.value, one.lower], [other.value, other.lower], rtol=1e-9)
    for settings in ({"by": "ok"}, {}):
        one = A.t_test(source, name, **settings | ({} if settings else {"value": origin + 3}))
        other = A.t_test(source, "small", **settings | ({} if settings else {"value": 3}))
        np.testing.assert_allclose(one.p_value, other.p_value, rtol=1e-9)
        np.testing.assert_allclose(one.estimate.value, other.estimate.value, rtol=1e-9)


def test_what_doubles_or_statsmodels_would_lose_is_refused_by_name():
    for library in ("matplotlib", "statsmodels"):
        pytest.importorskip(library)
    frame, w = numbered()
    frame = frame.assign(far=frame["late"] * 512, again=2 * frame["small"])
    for ask, error, named in (
        (lambda: A.histogram((frame, None), "far", bins=30), ReleaseError, "'far'"),
        (lambda: A.histogram((frame.head(1), None), "far"), ReleaseError, "'far'"),
        (lambda: A.pairs((frame, None), ["small", "far"]), ReleaseError, "'far'"),
        (lambda: A.to_statsmodels((frame, w), "ok", ["late"]), ReleaseError, "'late'"),
        (lambda: A.to_statsmodels((frame, w), "ok", ["small", "again"]), WeightError, "'again'"),
    ):
        with pytest.raises(error, match=named):
            ask()


CONSTANT: Mapping[str, Any] = {
    "a year": 2019, "beyond": IDS, "money": 1e6 + 0.1, "tiny": 1e-9, "computed": 0.1 + 0.2,
}  # fmt: skip


@pytest.mark.parametrize("value", CONSTANT)
def test_what_is_constant_or_a_combination_is_named(value):
    frame, w = numbered()
    frame["same"] = CONSTANT[value]
    frame["two"] = 2 * frame["small"].astype(int) + CONSTANT[value]
    frame["sum"] = frame["two"] + 1_000_000 * frame["half"].astype(int)
    frame.loc[0, "same"] *= 1 + 2e-16 if isinstance(CONSTANT[value], float) else 1  # a rounding
    for model, target, features, named in (
        (A.linear_regression, "small", ["half", "same"], "'same'"),
        (A.logistic_regression, "ok", ["half", "same"], "'same'"),
        (A.logistic_regression, "ok", ["half", "small", "two"], "'two' .* small "),
        (A.logistic_regression, "ok", ["half", "two", "sum"], "'sum' .* half, two "),
    ):
        with pytest.raises(WeightError, match=named):
            model((frame, w), target, features)
    with pytest.raises(ReleaseError, match="'same'"):
        A.correlation((frame, w), "same", "small")


def test_without_an_intercept_a_model_keeps_its_meaning():
    pytest.importorskip("formulaic")
    frame, w = numbered()
    frame["year"] = 2015 + frame["small"]
    for text, columns in (
        ("small ~ 0 + year", [frame["year"]]),
        ("small ~ 0 + year + I(year ** 2)", [frame["year"], frame["year"] ** 2]),
        ("small ~ 0 + half:year", [frame["year"] * frame["half"]]),
    ):
        root = np.sqrt(w)
        x = np.column_stack(columns).astype(float)
        expected = np.linalg.lstsq(x * root[:, None], frame["small"] * root, rcond=None)[0]
        found = A.linear_regression((frame, w), text).values
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "features", [["year", "year:year"], ["year:year", "year"], ["year", "small", "small:year"]]
)
def test_a_product_far_from_zero_is_the_product(features):
    frame, w = numbered()
    frame["year"], frame["y"] = 2015.0 + np.arange(len(frame)) % 9, np.arange(len(frame)) % 7
    found = A.linear_regression((frame, w), "y", features)
    plain = {f"p{k}": frame[name.split(":")].prod(axis=1) for k, name in enumerate(features)}
    right = A.linear_regression((frame.assign(**plain), w), "y", list(plain))
    np.testing.assert_allclose(found.values, right.values, rtol=1e-6)
    np.testing.assert_allclose(found.interval().upper, right.interval().upper, rtol=1e-6)
