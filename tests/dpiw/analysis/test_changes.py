"""Change between two releases: who may be in both, what is refused, and coverage of panels."""

import functools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw import analysis
from dpiw.analysis.changes import SHARED, difference
from dpiw.analysis.errors.intervals import variance_parts
from dpiw.analysis.sample import WeightedSample
from dpiw.errors import ReleaseError, SpecError
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import tilt
from dpiw.methods.weights.questions import parse_questions
from tests.support.worlds import KnownMeans, declared

# A panel whose truth is known: coverage

RATES = (0.9, -0.7)
"""Of the densities exp(rate x) in both periods; generators take x for uniform."""

NOISE, CREDIT, PEOPLE, ROWS, PAIRS = 0.004, 1e-3, 600, 800, 300

TOLERANCE = 3 * np.sqrt(0.95 * 0.05 / PAIRS)
"""Of a coverage of 95%, 3.8 points: a false alarm in 370 for each side, were the law exact."""


def rows_of(x, z):
    return pd.DataFrame({"x": x, "y": np.exp(x + z), "high": x > 0.1})


ESTIMANDS = {
    "mean": lambda s: analysis.mean(s, "x"),
    "share": lambda s: analysis.mean(s, "high"),
    "median": lambda s: analysis.median(s, "x"),
    "groups": lambda s: analysis.mean(s, "y", by="high"),
    "slope": lambda s: analysis.linear_regression(s, "y", ["x"]),
}


def features(x, z):
    return np.column_stack([x, z, 4 * x * z, 4 * x**2])


def at(rate, u):
    """Values on [-1/2, 1/2] of people at the ranks `u` of a density exp(rate x)."""
    return np.log1p(u * np.expm1(rate)) / rate - 0.5


def release(people, rate, rng):
    """A release of the people's ranks, shape (PEOPLE, 2): noisy means, and tilted rows."""
    x, z = rng.uniform(-0.5, 0.5, (2, ROWS))
    base, noise = features(x, z), NOISE**2 * np.eye(4)
    means = features(at(rate, people[:, 0]), people[:, 1] - 0.5).mean(axis=0)
    seen = Targets(means=means + rng.normal(scale=NOISE, size=4), covariance=noise, rows=PEOPLE)
    weights = ROWS * tilt(BaseRows(base), seen, credit=CREDIT).weights
    law = KnownMeans(
        features=base, weights=weights, covariance=noise, rows=PEOPLE, credit=CREDIT,
        calibration=CREDIT, base_rows=1e9,
    )  # fmt: skip
    return WeightedSample(frame=rows_of(x, z), weights=weights, law=law)


@functools.cache
def pairs(overlap, turn):
    """Pairs of releases: that share of the people is in both, at the ranks 1 - u if they `turn`."""
    rng, kept = np.random.default_rng(811), int(overlap * PEOPLE)
    found = []
    for _ in range(PAIRS):
        before, after = rng.random((2, PEOPLE, 2))
        after[:kept] = 1 - before[:kept] if turn else before[:kept]
        found.append((release(before, RATES[0], rng), release(after, RATES[1], rng)))
    return found


@functools.cache
def truth(name):
    """The estimand's change, on a grid with exact weights."""
    side = (np.arange(500) + 0.5) / 500 - 0.5
    x, z = (line.ravel() for line in np.meshgrid(side, side))
    values = [ESTIMANDS[name]((rows_of(x, z), np.exp(rate * x))).values for rate in RATES]
    return values[1] - values[0]


@functools.cache
def changes(name, overlap, turn):
    of = ESTIMANDS[name]
    return [difference(of(a), of(b), same_people=True) for a, b in pairs(overlap, turn)]


@functools.cache
def ends(name, overlap, turn, same_people):
    """Changes less the true ones, and distances to both ends, shape (3, PAIRS, p)."""
    found = []
    for change in changes(name, overlap, turn):
        told = replace(change, same_people=same_people).interval()
        found.append(
            [told.values - truth(name), told.values - told.lower, told.upper - told.values]
        )
    return np.swapaxes(found, 0, 1)


def coverage(name, overlap, turn, *, same_people, factor=1.0):
    """Share of the intervals, widths times `factor`, that contain the true change."""
    error, down, up = ends(name, overlap, turn, same_people)
    return float(np.mean((error <= factor * down) & (-error <= factor * up)))


@pytest.mark.nightly_cases("share", "median", "groups", "slope")
@pytest.mark.parametrize("name", ESTIMANDS)
@pytest.mark.slow
def test_everybody_in_both_with_opposed_values_is_the_worst_case(name):
    # Errors add linearly here: the bound is nearly attained by a mean. As if of different people,
    # a mean's interval is short by about a factor sqrt(2) and contains the truth 84% of the time.
    assert coverage(name, 1, True, same_people=True) > 0.95 - TOLERANCE
    if name == "mean":
        assert coverage(name, 1, True, same_people=True) < 0.95 + TOLERANCE
        assert coverage(name, 1, True, same_people=True, factor=2 / 3) < 0.95 - TOLERANCE
        assert coverage(name, 1, True, same_people=False) < 0.95 - TOLERANCE


@pytest.mark.nightly
@pytest.mark.parametrize("name", ESTIMANDS)
@pytest.mark.parametrize(("overlap", "turn"), [(1, False), (0.5, True), (0.5, False), (0, False)])
def test_every_overlap_and_correlation_is_covered(name, overlap, turn):
    assert coverage(name, overlap, turn, same_people=True) > 0.95 - TOLERANCE


@pytest.mark.nightly  # its law: `test_errors_of_people_add_linearly_and_others_in_quadrature`
@pytest.mark.parametrize("name", ESTIMANDS)
def test_different_people_have_independent_errors(name):
    # Wrong by 3/2 either way, standard errors give 81% or 99.7%: outside on both sides.
    assert coverage(name, 0, False, same_people=False) == pytest.approx(0.95, abs=TOLERANCE)
    assert coverage(name, 0, False, same_people=False, factor=2 / 3) < 0.95 - TOLERANCE
    assert coverage(name, 0, False, same_people=False, factor=3 / 2) > 0.95 + TOLERANCE


# The law of a change, on samples of any law


def sample_of(*, seed=3, rows=4000.0, max_rows=1):
    rng = np.random.default_rng(seed)
    x, ill = rng.uniform(-0.5, 0.5, 400), rng.random(400) < 0.4
    y, g = np.exp(x + ill + 0.3 * rng.normal(size=400)), rng.choice(list("abc"), 400)
    weights = np.exp(0.4 * x) * rng.uniform(0.8, 1.2, 400)
    weights = weights / weights.mean()
    numbers, levels = np.array([x, y, np.ones(400)]), np.array([ill, g == "a", g == "b"])
    seen = [*numbers[:2], x**2, y**2, x * y, *(m * level for m in numbers for level in levels)]
    law = MeansLaw(
        features=np.column_stack(seen), weights=weights, rows=rows, credit=400.0,
        covariance=1e-6 * np.eye(len(seen)), max_rows=max_rows, base_rows=4000,
    )  # fmt: skip
    table = pd.DataFrame({"x": x, "y": y, "g": g, "ill": ill})
    return WeightedSample(frame=table, weights=weights, law=law)


ESTIMATORS = {
    "mean": lambda s: analysis.mean(s, "y"),
    "groups": lambda s: analysis.mean(s, "y", by="g", where="x > -0.4"),
    "shares": lambda s: analysis.value_counts(s, "g"),
    "total": lambda s: analysis.total(s, "y", rows=4000),
    "quantile": lambda s: analysis.quantile(s, "y", 0.8),
    "quantiles": lambda s: analysis.joint(*(analysis.quantile(s, "y", p) for p in (0.3, 0.7))),
    "correlation": lambda s: analysis.correlation(s, "x", "y"),
    "linear": lambda s: analysis.linear_regression(s, "y", ["x", "ill"]),
    "logistic": lambda s: analysis.logistic_regression(s, "ill", ["x"]),
    "t test": lambda s: analysis.t_test(s, "y", by="ill").estimate,
}


@functools.cache
def estimates(name, max_rows=1):
    return tuple(
        ESTIMATORS[name](sample_of(seed=seed, rows=rows, max_rows=max_rows))
        for seed, rows in ((3, 4000.0), (4, 3000.0))
    )


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(derandomize=True, database=None, deadline=None, max_examples=2)
@given(max_rows=st.sampled_from([1, 4]), level=st.floats(0.5, 0.999))
def test_errors_of_people_add_linearly_and_others_in_quadrature(name, max_rows, level):
    a, b = estimates(name, max_rows)
    shared, apart = (difference(a, b, same_people=same) for same in (True, False))
    wide, narrow = shared.interval(level), apart.interval(level)
    np.testing.assert_allclose(shared.values, b.values - a.values)
    assert np.all(wide.upper - wide.lower > narrow.upper - narrow.lower)
    assert np.all((wide.lower < narrow.lower) & (narrow.upper < wide.upper))
    own, other = a.interval(level), b.interval(level)
    assert np.all(wide.lower > other.lower - own.upper)  # as if errors were one and the same
    assert np.all(wide.upper < other.upper - own.lower)
    errors = [
        np.sqrt(max_rows / e.sample.law.rows * (e.sample.weights @ e.influence**2) / 400)
        for e in (a, b)
    ]
    assert SHARED not in narrow.parts
    np.testing.assert_allclose(wide.parts[SHARED], 2 * errors[0] * errors[1])
    for part, of_a in variance_parts(a).items():
        np.testing.assert_allclose(wide.parts[part], of_a + variance_parts(b)[part])
    if a.ends is None and not (wide.cut or narrow.cut):
        ratio = (wide.upper - wide.lower) / (narrow.upper - narrow.lower)
        variances = (sum(interval.parts.values()) for interval in (wide, narrow))
        np.testing.assert_allclose(ratio, np.sqrt(np.divide(*variances)))
        np.testing.assert_allclose(wide.upper - shared.values, shared.values - wide.lower)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_way_back_is_the_same_change_with_the_other_sign(name, same):
    a, b = estimates(name)
    there, back = difference(a, b, same_people=same), difference(b, a, same_people=same)
    np.testing.assert_allclose(there.values, -back.values)
    np.testing.assert_allclose(there.interval().lower, -back.interval().upper)
    np.testing.assert_allclose(there.interval().upper, -back.interval().lower)
    assert there.interval().verdicts == back.interval().verdicts


@pytest.mark.parametrize(("scale", "shift"), [(3.0, 2.0), (-0.5, 1e6)])
def test_a_change_in_other_units(scale, shift):
    def of_units(m, c):
        means = (analysis.mean(sample_of(seed=k), lambda t: m * t["y"] + c) for k in (3, 4))
        return difference(*means, same_people=True).interval()

    found, moved = of_units(1, 0), of_units(scale, shift)
    ends = np.sort([scale * found.lower, scale * found.upper], axis=0)
    np.testing.assert_allclose(moved.values, scale * found.values, rtol=1e-6)
    np.testing.assert_allclose([moved.lower, moved.upper], ends, rtol=1e-6)


def test_values_that_either_release_cannot_say_are_unknown_and_the_others_are_not():
    a, b = (sample_of(seed=seed) for seed in (3, 4))
    few = b.table
    few.loc[few["g"] == "c", "g"] = "a"
    few.loc[:2, "g"] = "c"
    b = replace(b, frame=few)
    found = difference(*(analysis.mean(s, "y", by="g") for s in (a, b)), same_people=True)
    lines = found.interval().frame()
    unknown = lines[["estimate", "lower", "upper"]].isna().all(axis=1)
    assert (unknown == [False, False, True]).all()
    assert (unknown == (lines["verdict"] == "do not use")).all()
    assert "in b: " in lines["why"].iloc[2]
    assert np.isnan(found["c"])
    assert found["a"] == found.values[0]
    assert "The same people may be in both" in repr(found)
    with pytest.raises(ReleaseError, match="do not use"):
        difference(*(analysis.mean(s, "y", where="g == 'c'") for s in (a, b)), same_people=True)


# Of releases

ASKED = [
    {"share": "region by ill"}, {"mean": "age by ill", "weight": 2}, {"quantiles": "age"},
    {"regression": "income ~ age + ill"}, {"table": ["region", "ill"]},
]  # fmt: skip


@pytest.fixture
def a(publishing):
    return publishing(
        weights="measured, settings: {frequencies: 20, base_rows: 3000}",
        population=f"town\nquestions: {json.dumps(ASKED)}",
    )[1]


def certified(release, **changes):
    return replace(release, certificate=replace(release.certificate, **changes))


@pytest.fixture
def b(a):
    """A release of the next period, with the same rows and draws that nothing shows to be so."""
    return certified(a, release_id="town-2026-02-0a1b2c3d", period="2026-02")


def test_a_question_may_be_asked_in_four_ways(a, b):
    [question] = parse_questions(
        [{"mean": "age by ill"}], declared(*[dict(c) for c in a.schema["columns"]])
    )
    asked = [question, {"mean": "age by ill"}, "mean: age by ill",
             lambda s: analysis.mean(s, "age", by="ill")]  # fmt: skip
    for each in asked:
        found = analysis.change(a, b, each)
        assert isinstance(found, analysis.Change)
        assert found.names == a.mean("age", by="ill").names
        assert found.interval().lower == pytest.approx(
            analysis.change(a, b, question).interval().lower
        )
    for entry in ("table: region, ill", "table: [region, ill]", "quantiles: age"):
        assert np.nanmax(np.abs(analysis.change(a, b, entry).values)) == 0
    one = analysis.change(a, b, "mean: age")
    assert one.lower < one.value == float(one) == 0 < one.upper
    assert one.verdict == a.mean("age").verdict


def test_people_are_apart_only_in_two_populations_under_one_key(a, b):
    city = certified(b, population="city")
    elsewhere = replace(city, verified=replace(city.verified, key_id="0" * 16))
    same = [analysis.change(a, other, "mean: age") for other in (b, city, elsewhere)]
    assert [found.same_people for found in same] == [True, False, True]
    assert same[0].upper == same[2].upper > same[1].upper > 0
    assert "two populations" in repr(same[1])


def test_changes_that_are_refused(a, b, released):
    more = certified(
        b, generator={**b.certificate.generator,
                      "more_rows_of": {"release_id": a.certificate.release_id, "manifest": ""}}
    )  # fmt: skip
    unit = certified(b, unit=replace(b.certificate.unit, id_column="id", max_rows=3))
    for other in (a, more, unit, released, (a.table, None)):
        with pytest.raises(ReleaseError) as refusal:
            analysis.change(a, other, "mean: age")
        assert refusal.value.field.startswith("change")
    for question in (lambda s: analysis.mean(s, "nobody"), lambda s: s.mean("age"), lambda s: 3):
        with pytest.raises(ReleaseError):
            analysis.change(a, b, question)
    with pytest.raises(SpecError):
        analysis.change(a, b, "mean: nobody")
    names = iter(["one", "other"])
    with pytest.raises(ReleaseError, match="one, and b other"):
        analysis.change(a, b, lambda s: analysis.mean(s, "age", name=next(names)))


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"upper": 91}, "upper"), ({"description": "in months"}, "description"),
     ({"name": "years"}, "one release alone"), ({"provenance": "codebook", "cuts": [30, 60]}, "")],
)  # fmt: skip
def test_columns_of_another_definition_are_refused_and_only_they(a, b, changes, told):
    columns = [
        column | changes if column["name"] == "age" else column for column in b.schema["columns"]
    ]
    other, sample = replace(b, schema={**b.schema, "columns": columns}), b.sample
    vars(other)["sample"] = sample  # the law is that of the rows
    for question in ("mean: age", "mean: age by ill", lambda s: analysis.mean(s, "age"),
                     lambda s: analysis.mean(s, lambda t: t["age"] > 40)):  # fmt: skip
        if not told:
            assert np.nanmax(np.abs(analysis.change(a, other, question).values)) == 0
            continue
        with pytest.raises(ReleaseError, match=told) as refusal:
            analysis.change(a, other, question)
        assert refusal.value.field == "change: column 'age'"
    for question in ("share: region", lambda s: analysis.mean(s, "ill")):
        assert np.nanmax(np.abs(analysis.change(a, other, question).values)) == 0
