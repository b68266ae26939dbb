from __future__ import annotations

import builtins

import numpy as np
import pandas as pd
import pytest

from dpiw import analysis
from dpiw.analysis.estimators.design import design
from dpiw.errors import ReleaseError, WeightError

pytest.importorskip("formulaic")


def source(rows=300, seed=41):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, rows),
            "smoker": rng.random(rows) < 0.3,
            "visits": pd.array(rng.choice([1, 2, 3, None], rows), dtype="Int64"),
            "region": np.where(rng.random(rows) < 0.1, None, rng.choice(list("pqr"), rows)),
            "born": pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 9999, rows), "D"),
        }
    )
    frame["ill"] = rng.random(rows) < 1 / (1 + np.exp(2 - frame["age"] / 40))
    return frame, rng.gamma(2.0, 1.0, rows)


@pytest.mark.parametrize(
    ("formula", "features"),
    [
        ("ill ~ age + smoker", ["age", "smoker"]),
        ("ill ~ age * smoker", ["age", "smoker", "age:smoker"]),
        ("ill ~ visits + born", ["visits", "born"]),
        ("ill ~ age + region", ["age", "region"]),
    ],
)
def test_a_formula_is_the_design_of_its_columns(formula, features):
    frame, w = source()
    one, other = design(frame, formula, None), design(frame, "ill", features)
    np.testing.assert_array_equal(one.present, other.present)
    np.testing.assert_allclose(one.matrix, other.matrix)
    np.testing.assert_array_equal(one.outcome, other.outcome)
    assert one.names[0] == "intercept"
    fitted = analysis.logistic_regression((frame, w), formula)
    np.testing.assert_allclose(
        fitted.values, analysis.logistic_regression((frame, w), "ill", features).values
    )


def test_names_functions_and_no_intercept():
    frame, w = source()
    fitted = analysis.linear_regression((frame, w), "log(age) ~ 0 + region + I(visits ** 2)")
    assert fitted.names == ("region[p]", "region[q]", "region[r]", "I(visits ** 2)")
    above = analysis.linear_regression((frame, w), "log(age - 50) ~ smoker", where="age > 50.1")
    assert np.isfinite(above.values).all()  # the others are left out before
    cubic = analysis.poisson_regression((frame, w), "visits ~ poly(age, 3)")
    assert len(cubic.names) == 4


@pytest.mark.parametrize(
    ("formula", "naive"),
    [
        ("I(age - 30) ~ ill", lambda t: t["age"] - 30),
        ("I((age - 30) * 2) ~ ill", lambda t: (t["age"] - 30) * 2),
        ("I(log(age) - 20) ~ ill", lambda t: np.log(t["age"]) - 20),
        ("{age - 30} ~ ill", lambda t: t["age"] - 30),
        ("(log(age)) ~ ill", lambda t: np.log(t["age"])),
        ("`age` ~ ill", lambda t: t["age"]),
    ],
)
def test_the_left_side_is_what_it_says(formula, naive):
    frame, _ = source()
    np.testing.assert_allclose(design(frame, formula, None).outcome, naive(frame))


def test_statsmodels_takes_the_same_formula():
    pytest.importorskip("statsmodels")
    frame, w = source()
    peer = analysis.to_statsmodels((frame, w), "ill ~ age * smoker", family="binomial")
    fitted = analysis.logistic_regression((frame, w), "ill ~ age * smoker")
    np.testing.assert_allclose(peer.params, fitted.values, rtol=1e-6)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("ill ~ agee", "column 'agee': not in this table; did you mean 'age'"),
        ("ill ~ ~ age", "not in formulaic's notation"),
        ("ill ~ age + (", "not in formulaic's notation"),
        ("ill", "expected a target"),
        ("~ age", "expected a target"),
        ("region ~ age", "expected one number"),
        ("ill ~ age | smoker", "expected a target"),
        ("ill ~ unknown(age)", "function 'unknown': expected one of .*, bs, .*, poly, "),
        ("ill ~ log(age - 50)", r"not a finite number in \d+ of 300 synthetic rows, though"),
        ("ill ~ log(region)", "'log.region.': .*when it was computed: column 'region' holds text"),
        ("ill ~ age + poly(region, 2)", "'poly.region, 2.': .*column 'region' holds text"),
        (
            "ill ~ C(region, Treatment('Mars'))",
            "column 'region' has no level 'Mars'; its levels, nearest first: ",
        ),
        ("age - 30 ~ ill", r"'age - 30' is arithmetic, .* write 'I\(age - 30\) ~ ill'"),
        ("(age - 30) ~ ill", r"write 'I\(age - 30\) ~ ill'"),
        ("log(age) - 20 ~ ill", r"write 'I\(log\(age\) - 20\) ~ ill'"),
        ("-age ~ ill", r"write 'I\(-age\) ~ ill'"),
        ("age/2 ~ ill", r"write 'I\(age/2\) ~ ill'"),
        ("log(age) + (ill) ~ ill", "is arithmetic"),
        ("age:visits ~ ill", r"write 'I\(age \* visits\) ~ ill'"),
        ("ill ~ ill", "'ill': the target stands among the features"),
        ("age ~ age * smoker", "'age': the target stands among the features"),
        ("log(age) ~ log(age)", r"'log\(age\)': the target stands among the features"),
        ("age ~ 0", "no feature and no intercept; write 'age ~ 1' for the intercept"),
        ("ill ~ age + age**2", r"'age\*\*2' is 'age' alone .*: write 'I\(age\*\*2\)'"),
        ("ill ~ visits*age ^ 2", r"'age \^ 2' is 'age' alone .*: write 'I\(age\*\*2\)'"),
        ("ill ~ (age)**2", r"'\(age\)\*\*2' is '\(age\)' alone .*: write 'I\(age\*\*2\)'"),
        ("ill ~ `age`**2", r"write 'I\(`age`\*\*2\)'"),
        ("ill ~ log(age)**2", r"'log\(age\)\*\*2' is 'log\(age\)' alone"),
        ("ill ~ (age + visits**2)", r"write 'I\(visits\*\*2\)'"),
        ("ill ~ factor(region)", r"function 'factor': expected one of C, .*; write C\(region\)"),
        ("ill ~ as.factor(region)", r"not in formulaic's notation; .*; write C\(region\)"),
    ],
)
def test_formulas_that_are_refused(formula, words):
    with pytest.raises(ReleaseError, match=words):
        analysis.logistic_regression(source(), formula)


def test_without_the_library_the_command_is_named(monkeypatch):
    load = builtins.__import__

    def without(name, *rest, **settings):
        if name.startswith("formulaic"):
            raise ModuleNotFoundError(name, name=name)
        return load(name, *rest, **settings)

    import importlib

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ReleaseError, match=r"formulaic: not installed; pip install './dpiw\[form"):
        analysis.logistic_regression(source(), "ill ~ age")


@pytest.mark.parametrize(
    "formula",
    ["ill ~ age + region", "ill ~ age + C(region)", "ill ~ region * smoker", "ill ~ 0 + region"],
)
def test_a_separated_level_of_a_formula_is_named(formula):
    """The first level, too, which has no column of its own."""
    for level in ("p", "q"):
        frame, w = source()
        frame["ill"] &= frame["region"] != level
        with pytest.raises(
            WeightError, match=f"False in every row that counts of region = '{level}'"
        ):
            analysis.logistic_regression((frame, w), formula)


def test_powers_that_are_what_they_say():
    """Of sums they are R's: all products; inside a function's brackets they are numbers."""
    frame, w = source()
    for formula, name in (
        ("age ~ (visits + region)**2", "visits:region[T.q]"),
        ("age ~ (visits + region) ^ 2", "visits:region[T.q]"),
        ("age ~ I(visits**2)", "I(visits ** 2)"),
        ("age ~ log(visits**2) + smoker", "log(visits ** 2)"),
        ("age ~ {visits**2}", "visits ** 2"),
    ):
        assert name in analysis.linear_regression((frame, w), formula).names
