import importlib
import re
from unittest import mock

import numpy as np
import pytest

from dpiw import analysis
from dpiw.analysis.estimators.design import design
from dpiw.errors import ReleaseError, WeightError
from tests.support.worlds import people

pytest.importorskip("formulaic")


def source(rows=300):
    """Some regions are missing, and the ill are rather the old."""
    rng, frame = np.random.default_rng(41), people(rows)
    frame["region"] = frame["region"].astype(object).where(rng.random(rows) > 0.1, None)
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
    assert fitted.names == ("region[north]", "region[south]", "region[west]", "I(visits ** 2)")
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


@pytest.mark.parametrize(
    "formula",
    [
        "ill ~ agee", "ill ~ ~ age", "ill ~ age + (", "ill", "~ age", "region ~ age",
        "ill ~ age | smoker", "ill ~ unknown(age)", "ill ~ log(age - 50)", "ill ~ log(region)",
        "ill ~ age + poly(region, 2)", "ill ~ C(region, Treatment('Mars'))", "age - 30 ~ ill",
        "(age - 30) ~ ill", "log(age) - 20 ~ ill", "-age ~ ill", "age/2 ~ ill",
        "log(age) + (ill) ~ ill", "age:visits ~ ill", "ill ~ ill", "age ~ age * smoker",
        "log(age) ~ log(age)", "age ~ 0", "ill ~ age + age**2", "ill ~ visits*age ^ 2",
        "ill ~ (age)**2", "ill ~ `age`**2", "ill ~ log(age)**2", "ill ~ (age + visits**2)",
        "ill ~ factor(region)", "ill ~ as.factor(region)", "age - 30 ~ ill + 0", "age + 0 ~ ill",
        "age - 30 ~ 0 + ill", "age * 2 ~ ill",
    ],
)  # fmt: skip
def test_formulas_that_are_refused(formula):
    with pytest.raises(ReleaseError):
        analysis.linear_regression(source(), formula)


def test_what_to_write_instead_computes():
    """Each refusal of arithmetic or a power names a formula that is admitted."""
    for formula in ("age - 30 ~ 0 + ill", "age - 30 ~ ill + 0", "ill ~ (age)**2", "ill ~ `age`**2"):
        with pytest.raises(ReleaseError) as refusal:
            analysis.linear_regression(source(), formula)
        written = re.search(r"write '(.*?)'", str(refusal.value))[1]
        whole = written if "~" in written else f"ill ~ {written}"
        assert np.isfinite(analysis.linear_regression(source(), whole).values).all()


@pytest.mark.parametrize(
    ("term", "why"), [("bs(age, df=1)", "ValueError: .*`df`"), ("cr(age)", "ValueError: .*'knots'")]
)
def test_the_reason_of_a_term_that_cannot_be_computed_is_formulaic_s(term, why):
    with pytest.raises(ReleaseError, match=why):
        analysis.logistic_regression(source(), f"ill ~ {term}")


def test_without_the_library_it_is_named(monkeypatch):
    missing = ModuleNotFoundError("formulaic", name="formulaic")
    monkeypatch.setattr(importlib, "import_module", mock.Mock(side_effect=missing))
    with pytest.raises(ReleaseError, match="formulaic"):
        analysis.logistic_regression(source(), "ill ~ age")


@pytest.mark.parametrize(
    "formula",
    ["ill ~ age + region", "ill ~ age + C(region)", "ill ~ region * smoker", "ill ~ 0 + region"],
)
def test_a_separated_level_of_a_formula_is_named(formula):
    for level in ("north", "south"):
        frame, w = source()
        frame["ill"] &= frame["region"] != level
        with pytest.raises(WeightError, match=f"region = '{level}'"):
            analysis.logistic_regression((frame, w), formula)


def test_powers_that_are_what_they_say():
    """Of sums they are R's: all products; inside a function's brackets they are numbers."""
    frame, w = source()
    for formula, name in (
        ("age ~ (visits + region)**2", "visits:region[T.south]"),
        ("age ~ (visits + region) ^ 2", "visits:region[T.south]"),
        ("age ~ I(visits**2)", "I(visits ** 2)"),
        ("age ~ log(visits**2) + smoker", "log(visits ** 2)"),
        ("age ~ {visits**2}", "visits ** 2"),
    ):
        assert name in analysis.linear_regression((frame, w), formula).names
