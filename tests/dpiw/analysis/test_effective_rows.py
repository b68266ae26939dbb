"""How many rows of equal weight each value of an estimate is worth (docs/method.md section 12)."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dpiw import analysis
from dpiw.release.report.figures import RowsShown
from tests.dpiw.release import release_example
from tests.support.worlds import outcomes

examined = settings(derandomize=True, database=None, deadline=None, max_examples=40)
NUMBERS = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=9, unique=True)
WEIGHTS = st.lists(st.floats(0.01, 100), min_size=2, max_size=9)


def worth(x, weights, **of):
    return float(analysis.mean((pd.DataFrame({"x": x}), weights), "x", **of).effective_rows[0])


def narrow_from_wide(rng, *shape):
    """Rows of N(0, 2^2), and their weights towards N(0, 1)."""
    x = 2 * rng.standard_normal(shape)
    return x, stats.norm.pdf(x) / stats.norm.pdf(x, scale=2)


def test_equation_16_corrected():
    """4,630 of 4,000 rows: neither Kish's 2,646 nor what the paper prints, 2,985 and 3,456."""

    def second_moment(v):
        return v**2 * stats.norm.pdf(v) ** 2 / stats.norm.pdf(v, scale=2)

    expected = 4000 / integrate.quad(second_moment, -30, 30)[0]
    assert expected == pytest.approx(4630, abs=1)
    x, weights = narrow_from_wide(np.random.default_rng(57), 400_000)
    assert worth(x, weights) / 100 == pytest.approx(expected, rel=0.02)
    kish = analysis.weighted_sample((pd.DataFrame({"x": x}), weights)).effective_rows / 100
    assert kish == pytest.approx(2646, rel=0.01)


def test_as_many_rows_of_the_target_vary_as_much():
    """2,000 weighted means have the variance of means of that many rows; four errors of 3%."""
    x, weights = narrow_from_wide(np.random.default_rng(58), 2000, 1000)
    means = (weights * x).sum(axis=1) / weights.sum(axis=1)
    typical = np.mean([worth(*pair) for pair in zip(x[:50], weights[:50], strict=True)])
    assert 1 / means.var() == pytest.approx(typical, rel=0.13)


@examined
@given(values=NUMBERS, weights=WEIGHTS)
def test_kish_where_weights_do_not_depend_on_the_value(values, weights):
    """Every value has every weight once."""
    x, w = (np.ravel(part) for part in np.meshgrid(values, weights))
    assert worth(x, w) == pytest.approx(w.sum() ** 2 / (w**2).sum())


@examined
@given(values=NUMBERS, data=st.data())
@pytest.mark.slow
def test_units_do_not_matter_and_equal_weights_count_the_rows(values, data):
    x = np.array(values)
    w = np.array(data.draw(st.lists(st.floats(0.01, 100), min_size=x.size, max_size=x.size)))
    found = worth(x, w)
    assert 1 - 1e-9 <= found <= w.sum() / w.min() * (1 + 1e-9)
    for factor in (1e-9, 0.1, 1e9):
        assert worth(x, factor * w) == pytest.approx(found)
        assert worth(factor * x, w) == pytest.approx(found)
        assert worth(x, np.full(x.size, factor)) == pytest.approx(x.size)
    more = np.r_[x, 7.0, np.nan], np.r_[w, 0.0, 5.0]  # without weight, and without a value
    assert worth(*more) == pytest.approx(found)


def test_a_column_of_one_value_is_worth_kish_s_number_and_no_row_nothing():
    assert worth(np.full(3, 7.5), [1.0, 1.0, 2.0]) == pytest.approx(16 / 6)
    table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "g": pd.Categorical(list("aab"), list("abc"))})
    groups = analysis.mean((table, [1.0, 1.0, 2.0]), "x", by="g")
    assert groups.effective_rows.tolist() == [2.0, 1.0, 0.0]
    assert "synthetic rows, worth 0 to 2 of equal weight" in repr(groups)


def test_coefficients_by_scores_and_hessian():
    """The trace of the paper is a mean of the coefficients' numbers, by their variances."""
    (frame, w), names = outcomes(300), ["x", "y"]
    fit = analysis.logistic_regression((frame, w), "flag", names)
    x = np.column_stack([np.ones(len(frame)), frame[names]])
    mean = 1 / (1 + np.exp(-x @ fit.values))
    hessian = np.linalg.inv((x * (w * mean * (1 - mean))[:, None]).T @ x / w.sum())
    scores = x * (frame["flag"].to_numpy() - mean)[:, None]
    plain, pushed = (
        np.diag(hessian @ ((scores * m[:, None]).T @ scores) @ hessian) for m in (w, w**2)
    )
    np.testing.assert_allclose(fit.effective_rows, w.sum() * plain / pushed, rtol=1e-6)
    trace = w.sum() * plain.sum() / pushed.sum()
    assert trace == pytest.approx(np.average(fit.effective_rows, weights=pushed))


def test_a_group_is_worth_what_it_is_alone():
    frame, w = outcomes(300)
    parts = {level: (frame["g"] == level).to_numpy() for level in ("p", "q")}
    alone = [analysis.mean((frame[rows], w[rows]), "y").effective_rows for rows in parts.values()]
    groups = analysis.mean((frame, w), "y", by="g")
    chosen = [
        groups.effective_rows[[name.endswith(f"={p}") for name in groups.names]] for p in parts
    ]
    np.testing.assert_allclose(chosen, alone)


def test_descriptions_and_the_report_say_it():
    frame, weights = release_example.example_frame(), np.exp(release_example.example_log_weights())
    shown, page = analysis.describe((frame, weights)), release_example.example_report()
    rows = RowsShown(release_example.SCHEMA, release_example.example_log_weights())
    assert [*rows.passing([frame])]
    for column in release_example.SCHEMA.released:
        if column.is_discrete:
            shares = analysis.value_counts((frame, weights), column.name)
            worths = shares.effective_rows[shares.values > 0]
            ends = dict.fromkeys(f"{end:,.0f}" for end in (worths.min(), worths.max()))
            assert rows.worth(column.name) == " to ".join(ends)
        assert f"worth {rows.worth(column.name)} rows of equal weight" in page
        if column.is_numeric and frame[column.name].dtype.kind in "if":
            number = analysis.mean((frame, weights), column.name).effective_rows[0]
            assert shown.loc[column.name, "effective rows"] == pytest.approx(number)
    unweighted = replace(release_example.example_certificate(), weights={"method": "none"})
    assert "rows of equal weight)" not in release_example.example_report(unweighted, weighted=False)
    alike = RowsShown(release_example.SCHEMA, np.zeros(3))
    assert [*alike.passing([frame.iloc[[0, 0, 0]]])]
    assert {alike.worth(column.name) for column in release_example.SCHEMA.released} == {""}
