"""Names of columns mean the column, whatever Python, pandas, formulaic or Matplotlib read."""

import keyword
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpiw import analysis
from dpiw.analysis.conditions import chosen, condition
from dpiw.analysis.names import as_typed, column_name
from dpiw.analysis.sample import WeightedSample, weighted_sample
from dpiw.data.schema.declarations import name_fault
from dpiw.errors import ReleaseError
from tests.support.worlds import declared

KEPT_BY_OTHERS = (
    "inf", "Inf", "nan", "NaN", "True", "False", "None", "true", "null", "and", "not", "in", "is",
    "class", "lambda", "print", "list", "tuple", "datetime", "Timestamp", "sin", "abs", "log",
    "exp",
    "poly", "bs", "center", "C", "I", "Q", "np", "index", "columns", "level_0", "ilevel_0", "self",
    "c0", "c1", "v0", "column_0_", "quoted_0_", "stand_in_0_", "Intercept", "const", "__class__",
    "0", "1", "-1", "1e5", "2nd", "_", "__",
)  # fmt: skip
CHANGED_BY_PYTHON = (
    "µg_l", "μg_l", "cafe\u0301", "café", "ａｇｅ", "m²", "x₁", "ﬁt", "Å", "K", "ſ", "ª", "№",
    "中文", "हिन्दी",
)  # fmt: skip
SIGNS = (
    "odd name", "it's", 'say "x"', "a`b", "`", "``", "`a`", "a\\b", "a.b", ".", "x[1]", "{x}",
    "a:b", "a + b", "a|b", "a&b", "x > 2", "#x", "@x", "x%", "a$b", "$a$ $b$", "~", "y ~ x",
    "log(x)", "'a'", "(", "-", ",", "^_{x}$", "size in cm",
)  # fmt: skip
NAMES = (*KEPT_BY_OTHERS, *CHANGED_BY_PYTHON, *SIGNS)
FEW_NAMES = (
    "inf", "nan", "True", "None", "and", "log", "C", "I", "Q", "index", "c0", "column_0_",
    "Intercept", "1", "µg_l", "cafe\u0301", "ａｇｅ", "odd name", "it's", "a`b", "a.b", "a:b",
    "@x", "$a$ $b$", "y ~ x", "log(x)",
)  # fmt: skip
"""Of each kind; the nightly tests take all names."""
EACH_NAME = pytest.mark.parametrize(
    "name", [name if name in FEW_NAMES else pytest.param(name, marks=pytest.mark.nightly)
             for name in NAMES]
)  # fmt: skip
OTHER, TOWN = "other column", "town of"

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
PRINTABLE = TEXTS.filter(lambda name: name_fault(name) is None and name not in (OTHER, TOWN))
QUIET = settings(derandomize=True, database=None, deadline=None, max_examples=5)


def forms(name):
    """What an analyst may write for a name in a condition."""
    quoted = f"`{name.replace('`', '``')}`"
    return [quoted, name] if name.isidentifier() and not keyword.iskeyword(name) else [quoted]


def rows(name, size=60):
    rng = np.random.default_rng(41)
    return pd.DataFrame(
        {
            name: rng.integers(0, 5, size).astype(float),
            OTHER: rng.normal(size=size),
            TOWN: rng.choice(["a`b` & c", 'it\'s | "so"', name], size),
        }
    )


def check_conditions(name):
    table = rows(name)
    x, z, town = table[name], table[OTHER], table[TOWN]
    for typed in forms(name):
        for text, expected in (
            (f"{typed} == 3 or {typed} in [0, 1]", x.isin([3, 0, 1])),
            (f"not {typed} > 2 & `{OTHER}` > 0", ~(x > 2) & (z > 0)),
            (f"-0.5 < `{OTHER}` and 1 <= {typed} < 4", (z > -0.5) & x.between(1, 3)),
            (f"`{TOWN}` in [{town[0]!r}, {town[1]!r}] and {typed} < 4",
             town.isin(town[:2]) & (x < 4)),
        ):  # fmt: skip
            np.testing.assert_array_equal(condition(table, text), expected, err_msg=text)
        found = analysis.mean((table, None), OTHER, where=f"{typed} > 2")
        right = analysis.mean((table, None), OTHER, where=lambda rows: rows[name] > 2)
        assert found.value == right.value
        np.testing.assert_array_equal(found.groups, right.groups)


@EACH_NAME
def test_a_condition_means_the_column(name):
    check_conditions(name)
    table = rows(name)
    for ask, text in (
        (lambda text: condition(table, text), f"{forms(name)[0]} == 'text'"),
        (lambda text: chosen(weighted_sample((table, None)), text), f"{as_typed(name)} > 1000"),
    ):
        with pytest.raises(ReleaseError) as refused:
            ask(text)
        assert repr(name) in str(refused.value)


@QUIET
@given(name=PRINTABLE)
@example(name="²a")
def test_a_condition_means_the_column_of_any_name(name):
    check_conditions(name)


@pytest.mark.nightly
@settings(QUIET, max_examples=200)
@given(name=PRINTABLE)
def test_a_condition_means_the_column_of_any_of_many_names(name):
    check_conditions(name)


@pytest.mark.parametrize("name", CHANGED_BY_PYTHON)
@pytest.mark.parametrize("form", ["NFD", "NFKC"])
def test_a_name_is_the_same_in_another_unicode_form(name, form):
    table, other = rows(name), unicodedata.normalize(form, name)
    schema = declared({"name": name, "kind": "continuous", "lower": 0, "upper": 4})
    sample = WeightedSample(frame=table, weights=np.ones(len(table)), schema=schema)
    for typed in forms(other):
        np.testing.assert_array_equal(condition(table, f"{typed} > 2"), table[name] > 2)
    assert analysis.mean(sample, other).value == table[name].mean()
    np.testing.assert_array_equal(analysis.mean(sample, other).limits, [[0], [4]])
    np.testing.assert_array_equal(analysis.median(sample, other).limits, [[0], [4]])
    assert len(analysis.value_counts(sample, other).names) == 5
    assert analysis.mean(sample, OTHER, by=other).values.size == 5
    by_list = analysis.linear_regression(sample, OTHER, [other])
    by_formula = analysis.linear_regression(sample, f"`{OTHER}` ~ `{other}`")
    np.testing.assert_allclose(by_list.values, by_formula.values)


@pytest.mark.parametrize("own", ["NFC", "NFD"])
def test_a_level_is_the_same_in_another_unicode_form(own):
    level, other = (unicodedata.normalize(form, "caf\u00e9 \u00fc") for form in (own, "NFC"))
    other = other if own == "NFD" else unicodedata.normalize("NFD", other)
    table = rows("x").assign(town=[level, "x"] * 30)
    for text in (f"town == '{other}'", f"town in ['{other}']", f"not town != '{other}'"):
        np.testing.assert_array_equal(condition(table, text), table["town"] == level)
    shares = analysis.value_counts((table, None), "town")
    assert shares[other] == shares[f"town={other}"] == shares[level] == 0.5
    both = table.assign(town=[level, other] * 30)  # told apart where a table has both
    np.testing.assert_array_equal(condition(both, f"town == '{other}'"), both["town"] == other)


def test_names_that_differ_in_their_form_alone_are_told_apart_in_backticks():
    table = pd.DataFrame({"µ": [1.0, 5.0], "μ": [5.0, 1.0]})  # micro sign, Greek letter
    for name in table:
        np.testing.assert_array_equal(condition(table, f"`{name}` > 2"), table[name] > 2)
        with pytest.raises(ReleaseError, match=r"'\\xb5', '\\u03bc'"):
            condition(table, f"{name} > 2")
    twice = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    with pytest.raises(ReleaseError, match="column 'a'"):
        column_name(twice, "a")


@pytest.mark.parametrize("word", ["True", "False", "None"])
def test_a_value_is_no_column_of_its_name(word):
    table = rows(word)
    for text in (f"{word} > 2", f"not {word}", f"{word} == 3"):
        with pytest.raises(ReleaseError, match=f"`{word}`"):
            condition(table, text)
    assert condition(rows("x"), "True").all()


@EACH_NAME
def test_a_formula_means_the_column(name):
    pytest.importorskip("formulaic")
    table = rows(name)
    levels = pd.DataFrame({name: table[TOWN], OTHER: table[OTHER]})
    for frame in (table, levels):
        right = analysis.linear_regression((frame, None), OTHER, [name])
        for typed in forms(name)[:1] if name == "I" else forms(name):
            found = analysis.linear_regression((frame, None), f"`{OTHER}` ~ {typed}")
            np.testing.assert_allclose(found.values, right.values)
            levels_too = [name.replace("=", "[T.") + "]" * ("=" in name) for name in right.names]
            assert list(found.names) == (levels_too if frame is levels else list(right.names))
    squared = table.assign(square=table[name] ** 2)
    right = analysis.linear_regression((squared, None), OTHER, ["square"])
    found = analysis.linear_regression((table, None), f"`{OTHER}` ~ I({forms(name)[0]}**2)")
    np.testing.assert_allclose(found.values, right.values)


def test_a_column_that_is_only_called_like_a_function_drops_no_row():
    pytest.importorskip("formulaic")
    table = rows("x").assign(log=np.nan, degree=np.nan)
    table["x"] += 1
    found = analysis.linear_regression((table, None), f"`{OTHER}` ~ log(x)")
    assert found.groups.all()
    found = analysis.linear_regression((table, None), f"`{OTHER}` ~ poly(x, degree=1)")
    assert found.groups.all()


def test_one_name_of_two_values_is_refused():
    table = rows("intercept")
    found = analysis.linear_regression((table, None), OTHER, ["intercept"])
    for ask in (lambda: found["intercept"], lambda: analysis.wald_test(found, ["intercept"])):
        with pytest.raises(ReleaseError, match="'intercept'"):
            ask()


def test_a_level_is_found_by_its_whole_name():
    table = pd.DataFrame({"g": ["b", "a=b", "x | g=b", "c"], "x": [1.0, 2.0, 3.0, 4.0]})
    for value, level in zip(table["x"], table["g"], strict=True):
        assert analysis.mean((table, None), "x", by="g")[level] == value
        assert analysis.value_counts((table, None), "g")[level] == 0.25


@pytest.mark.parametrize("given", [["x"], {"x": 1}, np.array(["x"]), ("x", TOWN), slice(2), 3])
def test_what_names_no_column_is_refused(given):
    table = rows("x")
    asked = (
        lambda: analysis.value_counts((table, None), given),
        lambda: analysis.crosstab((table, None), given, TOWN),
        lambda: analysis.crosstab((table, None), TOWN, given),
        lambda: analysis.linear_regression((table, None), given, [TOWN]),
    )
    for ask in asked:
        with pytest.raises(ReleaseError):
            ask()


@pytest.mark.parametrize("given", [3, slice(2), 0.5])
def test_features_that_are_no_list_are_refused(given):
    with pytest.raises(ReleaseError):
        analysis.linear_regression((rows("x"), None), "x", given)


@pytest.mark.parametrize("name", ["$a$ $b$", "_^$"])
@pytest.mark.slow
def test_plots_show_names_and_levels_as_they_are(name):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    table = rows(name)
    histogram = analysis.histogram((table, None), TOWN)
    assert name in [text.get_text() for text in histogram.get_xticklabels()]
    axes = [
        histogram,
        analysis.histogram((table, None), name),
        analysis.box((table, None), name, by=TOWN),
        *analysis.pairs((table, None), [name, OTHER]).axes,
    ]
    assert name in [ax.get_xlabel() for ax in axes]
    for ax in axes:
        texts = [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels()]
        assert not any(text.get_parse_math() for text in texts if "$" in text.get_text())
        ax.figure.draw_without_rendering()
    pyplot.close("all")


def test_a_target_in_another_form_is_no_feature():
    class Recorder:
        def fit(self, x, y, sample_weight):
            self.columns = [*x.columns, y.name]
            return self

    table = rows("µg_l")
    fitted = analysis.fit_sklearn(Recorder(), (table, None), "μg_l")
    assert fitted.columns == [OTHER, TOWN, "µg_l"]
