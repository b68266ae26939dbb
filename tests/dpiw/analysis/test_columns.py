"""Tables list what the public schema declares, and a share of no row has an honest interval."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw import analysis
from dpiw.analysis.columns import levels
from dpiw.analysis.errors.verdicts import NONE, left_open
from dpiw.analysis.sample import WeightedSample
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.release.report.figures import axis

HOSTILE = (
    "missing", "(missing)", "((missing))", "outside", "nan", "None", "True", "false", "0", "-1",
    "a=b", "b", "x | g=b", "$a$ $b$", "[0, 1]", "other", "catch all", "inf", "é", "日本",
)  # fmt: skip
ROWS, PEOPLE = 120, 300

TEXT_LEVELS = st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=6, unique=True)


@st.composite
def columns(draw):
    """A column of any kind that tables take."""
    kind = draw(st.sampled_from(list(ColumnKind)))
    about = {"name": "g", "kind": kind, "nullable": draw(st.booleans())}
    if kind in (ColumnKind.CATEGORICAL, ColumnKind.ORDINAL):
        names = tuple(draw(TEXT_LEVELS))
        other = draw(st.sampled_from([None, names[-1]]))
        return Column(**about, levels=names, other=other)
    if kind is ColumnKind.BOOLEAN:
        return Column(**about)
    if kind in (ColumnKind.DATE, ColumnKind.DATETIME):
        cuts = ("2025-02-01", "2025-03-15")
        return Column(**about, lower="2025-01-01", upper="2025-06-30", cuts=cuts)
    if kind is ColumnKind.INTEGER and draw(st.booleans()):
        low = draw(st.integers(-3, 3))
        return Column(**about, lower=low, upper=low + draw(st.integers(1, 7)))
    cuts = draw(st.sampled_from([(10,), (3, 10, 77), (99.5,), (0.5, 1, 1.5)]))
    return Column(**about, lower=0, upper=100, cuts=cuts)


def expected_labels(column):
    """The declared domain, written down once more."""
    if column.kind is ColumnKind.BOOLEAN:
        names = [False, True]
    elif column.is_discrete:
        names = list(column.levels)
    elif column.cuts:
        names = [None] * Domain.from_schema(
            PublicSchema(name="t", columns=(column,)), bins=1
        ).columns[0].values
    else:
        names = list(range(column.lower, column.upper + 1))
    word = "missing"
    while word in map(str, names):
        word = f"({word})"
    return names + [word] * column.nullable


def certificate(epsilon, max_rows=1):
    unit = SimpleNamespace(max_rows=max_rows)
    return SimpleNamespace(epsilon=epsilon, diagnostics={}, unit=unit)


def released(column, codes, seed=3):
    """Rows of some of a column's codes, as a release has them, and a column `x` in [0, 1]."""
    schema = PublicSchema(
        name="people",
        columns=(
            column,
            Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0, upper=1, cuts=(0.5,)),
        ),
    )
    domain, rng = Domain.from_schema(schema, bins=10_000), np.random.default_rng(seed)
    size = domain.sizes[0]
    drawn = rng.choice([code % size for code in codes], ROWS)
    both = np.column_stack([drawn, rng.integers(0, 2, ROWS)]).astype(np.int32)
    table = schema.unscale(domain.fill(both, rng=rng))
    release = SimpleNamespace(schema=schema.to_mapping(), certificate=certificate("2"))
    weights = rng.gamma(4.0, 0.25, ROWS)
    weights /= weights.mean()
    law = MeansLaw(
        features=np.asarray(table[["x"]] - 0.5), weights=weights, covariance=1e-6 * np.eye(1),
        rows=PEOPLE, credit=1e4,
    )  # fmt: skip
    sample = WeightedSample(frame=table, weights=weights, law=law, release=release)
    return sample, schema.scale(table)


QUIET = settings(derandomize=True, database=None, deadline=None, max_examples=5)
LONG = settings(QUIET, max_examples=60)
CODES = st.lists(st.integers(0, 50), min_size=1, max_size=4)
LEVEL = st.sampled_from([0.5, 0.95, 0.99])


@QUIET
@given(column=columns(), codes=CODES)
def test_tables_have_the_declared_domain(column, codes):
    sample, scaled = released(column, codes)
    expected = expected_labels(column)
    found = levels(sample, "g")
    assert len(found.labels) == len(set(map(str, found.labels))) == len(expected)
    for label, want in zip(found.labels, expected, strict=True):
        assert want is None or label == want
    if column.is_discrete or column.cuts:  # as the generators' own bins
        schema = PublicSchema.from_mapping(sample.release.schema)
        own_codes = Domain.from_schema(schema, bins=1).codes(scaled)[:, 0]
        np.testing.assert_array_equal(found.codes, own_codes)
    names = [str(label) for label in found.labels]

    shares = analysis.value_counts(sample, "g")
    assert [name.removeprefix("g=") for name in shares.names] == names
    assert shares.values.sum() == pytest.approx(1)
    table = analysis.crosstab(sample, "g", "x")
    assert table.index.tolist() == list(found.labels)
    assert analysis.crosstab(sample, "x", "g").columns.tolist() == list(found.labels)
    np.testing.assert_allclose(table.sum(axis=1), shares.values)

    for estimator in (analysis.mean, analysis.median, analysis.std):
        by = estimator(sample, "x", by="g")
        assert [name.partition("| g=")[2] for name in by.names] == names
        interval = by.interval()
        empty = np.isnan(by.values)
        np.testing.assert_array_equal(empty, shares.values == 0)
        assert all(verdict == "do not use" for verdict in np.array(interval.verdicts)[empty])
        assert (interval.lower[empty] <= 0).all()
        assert (interval.upper[empty] >= 1).all()
        for name, value in zip(names, by.values, strict=True):
            assert by[name] == value or np.isnan(value)
            assert shares[name] >= 0


@QUIET
@given(column=columns(), codes=CODES, level=LEVEL)
def test_no_interval_of_a_share_or_a_total_is_empty_or_impossible(column, codes, level):
    sample, _ = released(column, codes)
    found = levels(sample, "g")
    shares = analysis.value_counts(sample, "g")
    estimates = [shares]
    for place in range(len(found.labels))[-3:]:
        asked = found.codes == place
        estimates += [
            analysis.mean(sample, lambda t, asked=asked: pd.Series(asked)),
            analysis.mean(sample, asked * 1.0),
            analysis.total(sample, asked, population=PEOPLE),
        ]
    for method in ("noise_aware", "sandwich"):
        for estimate in estimates:
            interval = estimate.interval(level=level, method=method)
            most = PEOPLE if estimate.names[0].startswith("total") else 1
            assert (interval.lower >= 0).all()
            assert (interval.upper <= most).all()
            assert (interval.upper - interval.lower > 1e-6).all()
            assert (interval.lower <= estimate.values + 1e-12).all()
            assert (interval.upper >= estimate.values - 1e-12).all()
    noisy, alone = (shares.interval(level=level, method=m) for m in ("noise_aware", "sandwich"))
    empty = noisy.values == 0
    assert (noisy.upper[empty] > alone.upper[empty]).all()  # people and noise leave more open
    assert all(NONE.reason in why for why in np.array(noisy.reasons, dtype=object)[empty])


@pytest.mark.nightly
@LONG
@given(column=columns(), codes=CODES, level=LEVEL)
def test_many_tables_and_intervals(column, codes, level):
    test_tables_have_the_declared_domain.hypothesis.inner_test(column, codes)
    test_no_interval_of_a_share_or_a_total_is_empty_or_impossible.hypothesis.inner_test(
        column, codes, level
    )
    test_histograms_and_reports_show_the_declared_domain.hypothesis.inner_test(column)


def test_what_no_row_shows_is_as_open_as_rows_people_and_noise_leave_it():
    """At the bound a release without such a row is as rare as promised; at a tenth it is not.

    20,000 releases each: their share's standard error is 0.0011 at 2.5%.
    """
    rng, people, rows, noise, runs = np.random.default_rng(12), 400, 800, 2.0, 20_000
    nobody, table = np.zeros(rows, dtype=bool), pd.DataFrame({"x": np.zeros(rows)})
    law = SimpleNamespace(rows=people, count_noise=noise, base_rows=np.inf, max_rows=1)
    sample = WeightedSample(frame=table, weights=np.ones(rows), law=law)
    bound = float(left_open(analysis.mean(sample, nobody), miss=0.025, noisy=True)[0])

    def rare(share):
        counts = rng.binomial(people, share, runs) + rng.normal(0, noise, runs)
        none = (1 - np.clip(counts / people, 0, 1)) ** rows
        return float(none.mean())

    assert rare(bound) <= 0.025
    assert rare(bound / 10) > 0.025
    alone = float(left_open(analysis.mean(sample, nobody), miss=0.025, noisy=False)[0])
    assert (1 - alone) ** rows == pytest.approx(0.025)


def test_fewer_rows_people_or_epsilon_leave_more_open():
    sample, _ = released(Column(name="g", levels=("a", "b")), [0])
    nobody = np.zeros(ROWS, dtype=bool)

    def open_end(**changes):
        moved = replace(sample, law=replace(sample.law, **changes))
        return analysis.mean(moved, nobody).interval().upper[0]

    ends = [open_end(rows=people) for people in (10**6, 1000, 100, 10)]
    assert ends == sorted(ends)
    assert ends[0] < 0.06
    assert ends[-1] == 1
    weak = SimpleNamespace(**vars(sample.release) | {"certificate": certificate("0.1")})
    at_less = analysis.mean(replace(sample, release=weak), nobody).interval().upper[0]
    assert at_less > analysis.mean(sample, nobody).interval().upper[0]
    half = np.arange(ROWS) % 2 == 0
    part = analysis.mean(sample, nobody, where=half).interval().upper[0]
    assert part > analysis.mean(sample, nobody).interval().upper[0]


@pytest.mark.parametrize(
    ("bounds", "least"), [((0, 20), 0), ((-5, 20), -np.inf), ((3, 20), 0), ((-9, -3), -np.inf)]
)
def test_a_total_ends_at_zero_where_no_person_can_be_below(bounds, least):
    column = Column(name="g", kind=ColumnKind.INTEGER, lower=bounds[0], upper=bounds[1])
    sample, _ = released(column, [0])
    asked = analysis.total(sample, "g", population=PEOPLE, where=np.arange(ROWS) < 2)
    interval = asked.interval(level=0.999)
    assert interval.lower[0] >= least
    assert (interval.lower[0] < 0) == (least < 0)
    assert interval.upper[0] > interval.lower[0]


def test_rows_that_no_schema_declares_are_not_lost():
    sample, _ = released(Column(name="g", levels=("b", "a")), [0, 1])
    table = sample.table
    table["g"] = table["g"].astype(object)
    table.loc[:2, "g"] = ["new", None, "new"]
    changed = replace(sample, frame=table)
    assert levels(changed, "g").labels == ("b", "a", "new", "missing")
    assert analysis.value_counts(changed, "g").values.sum() == pytest.approx(1)


@QUIET
@given(column=columns())
def test_histograms_and_reports_show_the_declared_domain(column):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    sample, _ = released(column, [0])
    axes = analysis.histogram(sample, "g")
    if column.is_discrete:
        expected = [str(label) for label in expected_labels(column)]
        assert [text.get_text() for text in axes.get_xticklabels()] == expected
        assert len(axes.patches) == len(expected)
        assert len(set(axis(column).labels)) == len(expected)
    elif column.cuts:
        assert len(axes.patches) == len(expected_labels(column)) - column.nullable
    pyplot.close("all")


@pytest.mark.parametrize("dtype", ["int64", "Int64", "uint64"])
@pytest.mark.parametrize("first", [2**53 - 4, 2**53, 1_700_000_000_000_000_000])
def test_edges_between_whole_numbers_beyond_doubles_are_exact(first, dtype):
    table = pd.DataFrame({"n": pd.Series([first + step for step in range(10)], dtype=dtype)})
    edges = [first, first + 5, first + 9]
    shares = analysis.value_counts((table, None), "n", bins=edges)
    assert shares.names == (f"n=[{edges[0]}, {edges[1]}]", f"n=({edges[1]}, {edges[2]}]")
    np.testing.assert_allclose(shares.values, [0.6, 0.4])
    parts = analysis.value_counts((table, None), "n", bins=3)
    assert parts.names[0] == f"n=[{first}, {first + 3}]"
    np.testing.assert_allclose(parts.values, [0.4, 0.3, 0.3])
