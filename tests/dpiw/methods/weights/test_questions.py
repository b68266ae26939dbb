"""Declared questions: their words, the features that they add, and means that rows keep to."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.analysis.errors.law import played_sample
from dpiw.analysis.estimators.quantiles import quantile
from dpiw.analysis.questions import answer, answers
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.errors import ReleaseError, SpecError
from dpiw.methods.recipe import play
from dpiw.methods.weights.measured.constants import FORCED, KEPT, MOVED
from dpiw.methods.weights.measured.features import PARTS, Stack, with_questions
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.measured.scoring import Scoring
from dpiw.methods.weights.measured.sums import exact_sum, sum_noise
from dpiw.methods.weights.questions import (
    MOST_ASKED,
    Term,
    importance,
    parse_questions,
    shares_of,
)
from dpiw.plan.plan import compile_plan
from dpiw.plan.rehearsal.candidates import candidates
from dpiw.plan.rehearsal.populations import WeightedRows, credit_of
from dpiw.plan.spec import parse_spec
from dpiw.plan.table import plan_table
from dpiw.privacy.randomness import SeededNoise
from tests.proof.neighbours import extreme_rows
from tests.support.worlds import ADD, declared, mixed, uniform_rows, unit_of

SCHEMA = declared(
    {"name": "visits", "kind": "integer", "lower": 0, "upper": 40},
    {"name": "age", "kind": "continuous", "lower": 18, "upper": 98, "nullable": True},
    {"name": "odd by name", "kind": "continuous", "lower": -5, "upper": 5},
    {"name": "born", "kind": "date", "lower": "1950-01-01", "upper": "2000-01-01"},
    {"name": "one", "kind": "categorical", "levels": ["only"]},
    {"name": "faith", "kind": "integer", "lower": 1, "upper": 4, "nullable": True},
    {"name": "site", "kind": "categorical", "levels": ["north", "south", "west"]},
    {"name": "plan", "kind": "ordinal", "levels": ["a", "b", "c", "d"], "nullable": True},
)
RATE = {"name": "rate", "kind": "continuous", "values": [0, 0.25, 0.5, 0.95], "nullable": True}
LISTED = declared(*(column.to_mapping() for column in SCHEMA.columns), RATE)

GOOD = [
    {"mean": "visits"}, {"mean": "visits by site"}, {"mean": "odd by name"},
    {"mean": "age by plan"},
    {"share": "site"}, {"share": "plan by site"}, {"correlation": ["visits", "age"]},
    {"regression": "visits ~ age + C(site) + `odd by name`"}, {"quantiles": "age"},
    {"table": ["plan", "site"], "weight": 4}, {"mean": "visits", "spread": 3.5},
    {"share": "site by faith"}, {"mean": "visits by faith"}, {"table": ["faith", "plan"]},
    {"correlation": ["faith", "visits"]}, {"regression": "visits ~ born"},
    {"mean": "rate by faith"}, {"share": "rate by site"}, {"regression": "visits ~ rate + faith"},
]  # fmt: skip


@pytest.mark.parametrize("stated", GOOD, ids=str)
def test_a_question_is_read_and_stated_in_one_form(stated):
    (question,) = parse_questions([stated], LISTED)
    assert parse_questions([question.to_json()], LISTED) == (question,)
    assert question.weight == stated.get("weight", 1)
    assert all(Term.read(term.key, LISTED) == term for term in question.terms(LISTED))


BAD = [
    ("mean: visits", "[1]"), ({}, "[1]"), ({"mean": "visits", "share": "site"}, "[1]"),
    ({"means": "visits"}, "[1].means"), ({"mean": "visit"}, "[1].mean"),
    ({"mean": "site"}, "[1].mean"), ({"mean": "visits by age"}, "[1].mean"),
    ({"share": "age"}, "[1].share"), ({"mean": ["visits"]}, "[1].mean"),
    ({"quantiles": "age by site"}, "[1].quantiles"), ({"table": "site"}, "[1].table"),
    ({"table": ["site", "site"]}, "[1].table"), ({"table": ["site", "age"]}, "[1].table"),
    ({"correlation": ["age", "site"]}, "[1].correlation"),
    ({"regression": "visits"}, "[1].regression"), ({"regression": "~ age"}, "[1].regression"),
    ({"regression": "visits ~ age * site"}, "[1].regression"),
    ({"regression": "visits ~ log(age)"}, "[1].regression"),
    ({"regression": "visits ~ C(age)"}, "[1].regression"),
    ({"regression": "visits ~ age + visits"}, "[1].regression"),
    ({"regression": "site ~ age"}, "[1].regression"), ({"mean": "visits", "weight": 0}, "weight"),
    ({"mean": "visits", "spread": -1}, "spread"), ({"mean": "visits", "spread": 1e-9}, "spread"),
    ({"mean": "born"}, "[1].mean"), ({"quantiles": "born"}, "[1].quantiles"),
    ({"correlation": ["born", "age"]}, "[1].correlation"), ({"share": "one"}, "[1].share"),
    ({"mean": "visits", "wieght": 2}, "[1].wieght"), ({"mean": "age by one"}, "[1].mean"),
    ({"share": "site", "spread": 1}, "spread"),
]  # fmt: skip


@pytest.mark.parametrize(("stated", "field"), BAD, ids=str)
def test_what_is_no_question_is_refused_by_its_field(stated, field):
    with pytest.raises(SpecError) as caught:
        parse_questions([stated], SCHEMA)
    assert field in caught.value.field


@pytest.mark.parametrize("key", [
    "linear", "[]", '["id"]', '["job", "job"]', '[{"halves": "job"}]', '[{"values": "x"}]',
    '[ "x"]', "[[1]]", "7", "{", '["x", "pay", "job"]', '[{"halves": "x"}, "x"]', '[{}]', "null",
    '[{"halves": "x"}, {"halves": "x"}]', '[{"complete": []}]', '[{"complete": ["x"]}]',
    '["pay", {"complete": ["job"]}]', '["x", {"complete": ["pay", "job"]}]',
    '["x", {"complete": 1}]',
    '[{"halves": "x"}, {"complete": ["pay"]}]', '[{"own": "x"}]', '["nobody"]', "[" * 9000,
])  # fmt: skip
def test_no_other_text_is_the_key_of_a_term(key):
    assert Term.read(key, mixed()) is None
    with pytest.raises(SpecError):
        Stack(schema=mixed(), shares={"nothing": 1.0, key: 1.0})


def questions_on(schema: PublicSchema):
    """Every kind of question that a schema can have."""
    numbers = [column.name for column in schema.released if column.is_numeric]
    others = [c.name for c in schema.released if not c.is_numeric and c.cardinality > 1]
    few = [name for name in numbers if name in ("faith", "rate")]
    others += few
    numbers = [name for name in numbers if name not in (*few, "born")]
    stated = [{"mean": f"{y} by {g}"} for y, g in itertools.product(numbers, others)]
    stated += [{"share": name} for name in others] + [{"quantiles": name} for name in numbers]
    stated += [{"table": [*pair]} for pair in itertools.combinations(others, 2)]
    stated += [{"correlation": [*pair]} for pair in itertools.combinations(numbers, 2)]
    right = [name for name in numbers[1:] + others if " " not in name]
    return [*stated, {"regression": f"{numbers[0]} ~ {' + '.join(right)}"}]


@st.composite
def stacks(draw):
    schema = draw(st.sampled_from([mixed(), LISTED]))
    stated = draw(st.lists(st.sampled_from(questions_on(schema)), min_size=1, max_size=6))
    parts = draw(st.sets(st.sampled_from([part for part in PARTS if part != "target"])))
    general = Stack(
        schema=schema, shares=dict.fromkeys(sorted(parts), 0.6) or {"fourier": 1.0},
        frequencies=3, ranges=Ranges(bounds={schema.released[0].name: (0.25, 0.5)}),
    )  # fmt: skip
    return with_questions(general, parse_questions(stated, schema)), general


@given(stacks(), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_no_row_is_longer_than_the_norm_and_scores_are_those_of_the_features(made, seed):
    stack, general = made
    rng = np.random.default_rng(seed)
    parts = [extreme_rows(stack.schema, 60, rng), uniform_rows(stack.schema, 60, rng)]
    for rows in parts:
        features = stack.matrix(rows)
        for part in stack.parts:
            lengths = np.linalg.norm(features[:, stack.places(part)], axis=1)
            assert lengths.max() <= stack.shares[part] * (1 + 1e-9)
        assert np.linalg.norm(features, axis=1).max() <= stack.norm * (1 + 1e-9)
        before = general.matrix(rows)  # the others are as they were, to the last bit
        kept = np.concatenate([stack.places(part) for part in general.parts])
        assert np.array_equal(features[:, kept], before)
        theta = rng.standard_normal(stack.dimension)
        tilted = Scoring(stack=stack)(theta)(rows, None)
        scores = features @ theta
        masses = np.exp(scores - scores.max())
        np.testing.assert_allclose(tilted.scores, scores, atol=1e-11)
        np.testing.assert_allclose(tilted.sums, features.T @ masses, atol=1e-9)
    asked = stack.norm**2 - general.norm**2
    assert asked <= MOST_ASKED * general.norm**2 * (1 + 1e-9)


@given(stacks(), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_hostile_row_adds_no_more_to_the_sum_than_is_paid_for(made, seed):
    """Rows beyond every bound or without a number; the sum of rows is that of each alone."""
    stack, rng = made[0], np.random.default_rng(seed)
    rows = extreme_rows(stack.schema, 12, rng)
    columns = dict(rows.columns)
    for name, cells in columns.items():
        if cells.dtype.kind == "f":
            odd = rng.choice([np.nan, np.inf, -np.inf, 1e300, -3.0, 1 + 1e-12, 0.5], rows.rows)
            columns[name] = np.where(rng.random(rows.rows) < 0.5, odd, cells)
    rows = ScaledTable(columns, rows.rows)
    unit = unit_of(ADD)
    paid = sum_noise(stack, multiplier=1.0, unit=unit, nominal_rows=10)
    alone = [
        exact_sum(stack, [rows.take(np.array([i]))], constant=paid.constant)
        for i in range(rows.rows)
    ]
    assert np.linalg.norm(alone, axis=1).max() <= paid.sensitivity
    whole = exact_sum(stack, [rows], constant=paid.constant)
    assert np.array_equal(whole, np.sum(alone, axis=0))


@given(st.sampled_from([mixed(), LISTED]), st.integers(0, 2**32), st.data())
@settings(max_examples=40, deadline=None)
def test_weights_that_keep_the_means_of_the_features_keep_the_answer(schema, seed, data):
    """Whatever cells are missing; a regression counts rows without a missing cell alone."""
    asked = data.draw(st.sampled_from([q for q in questions_on(schema) if "quantiles" not in q]))
    questions, rng = parse_questions([asked], schema), np.random.default_rng(seed)
    rows = schema.project(uniform_rows(schema, 600, rng))
    stack = Stack(schema=schema, shares=shares_of(questions, schema, norm=1.0))
    kept, _ = np.linalg.qr(np.column_stack([np.ones(rows.rows), stack.matrix(rows)]))
    moved = rng.standard_normal(rows.rows)
    moved -= kept @ (kept.T @ moved)
    frame = schema.unscale(rows)
    before, after = (
        answers((frame, weights), questions).set_index("value")["estimate"]
        for weights in (np.ones(rows.rows), 1 + 0.9 * moved / np.abs(moved).max())
    )
    np.testing.assert_allclose(after, before[after.index], rtol=1e-6, atol=1e-9)


@given(st.sampled_from([mixed(), LISTED]), st.floats(0.1, 100), st.data())
@settings(max_examples=30, deadline=None)
def test_a_weight_counts_beside_other_weights_alone(schema, factor, data):
    stated = data.draw(st.lists(st.sampled_from(questions_on(schema)), min_size=1, max_size=5))
    questions = parse_questions(stated, schema)
    scaled = parse_questions([entry | {"weight": factor} for entry in stated], schema)
    usual, other = (shares_of(each, schema, norm=1.2) for each in (questions, scaled))
    assert usual == pytest.approx(other)
    again = shares_of(questions[::-1], schema, norm=1.2)
    assert usual == pytest.approx(again)
    assert importance(questions, schema).keys() == usual.keys()


# A release that was asked


ASKED = (
    {"mean": "visits by site"}, {"share": "plan"}, {"table": ["site", "plan"]},
    {"correlation": ["visits", "odd by name"]},
    {"regression": "visits ~ `odd by name` + C(site)"}, {"share": "site by faith"},
)  # fmt: skip


def spec_of(questions=ASKED, **changes):
    return parse_spec(
        {
            "format": 1, "name": "asked", "population": "asked", "schema": "unused",
            "source": {"path": "unused", "format": "csv"}, "epsilon": 2, "delta": "1e-6",
            "nominal_rows": 20_000, "synthetic_rows": 4000,
            "generator": {"method": "histogram", "settings": {"bins": 8}},
            "weights": {"method": "measured", "settings": {"frequencies": 30}},
            "questions": list(questions),
            "state": "unused", "signing_key": "unused", "publish_to": "unused",
        } | changes
    )  # fmt: skip


def population(rows, rng):
    """Visits depend on site and on the odd number; plans on site."""
    site = rng.choice(3, rows, p=[0.5, 0.4, 0.1])
    odd = rng.normal(0.5, 0.1, rows).clip(0, 1)
    visits = (rng.gamma(1.0 + site, 2.0, rows) + 20 * (odd - 0.3).clip(0)).clip(0, 40)
    plan = np.where(rng.random(rows) < 0.1, -1, (site + rng.choice(2, rows)).clip(0, 3))
    return ScaledTable(
        {
            "visits": np.rint(visits) / 40, "age": rng.random(rows), "odd by name": odd,
            "born": rng.random(rows), "one": np.zeros(rows, dtype=np.int32),
            "faith": rng.choice(4, rows, p=[0.1, 0.2, 0.3, 0.4]) / 3,
            "site": site.astype(np.int32), "plan": plan.astype(np.int32),
        },
        rows,
    )  # fmt: skip


@pytest.fixture(scope="module")
def asked():
    plan = compile_plan(spec_of(), SCHEMA)
    people = population(20_000, np.random.default_rng(3))
    private = PrivateTable(schema=SCHEMA, scaled=people)
    played = play(plan.recipe, private, noise=SeededNoise(8), rng=np.random.default_rng(9))
    return plan, people, played


def test_weights_keep_to_the_means_that_were_asked_for(asked):
    _, _, played = asked
    facts = played.weights.facts["measured"]
    stack = played.estimator.stack(SCHEMA, played.estimator.ranges)
    forced = np.array(facts["forced"])
    assert np.isin(forced, stack.asked).all()
    assert forced.size > 0.9 * stack.asked.size
    deviation = played.estimator.calibrated.law.scale / facts["rows"]
    features = stack.matrix(played.rows.scaled)[:, forced]
    spreads, axes = np.linalg.eigh(np.cov(features, rowvar=False))
    movable = axes[:, spreads > deviation**2 / FORCED * 4]  # not the sum of a column's levels
    left = movable.T @ np.array(facts["residual"])[forced]
    assert movable.shape[1] > 0.5 * forced.size
    assert np.abs(left).max() <= 2 * KEPT * deviation


def test_a_row_is_doubted_by_its_own_log_ratio_and_not_by_rounded_digits(asked):
    """Under a lognormal law the squared log ratios have mean log(base rows / effective ones).

    A residual of five digits says nothing of the ratio along means that are kept to: every row was
    doubted as much as one can be, and intervals of regressions were up to three times as wide.
    """
    *_, played = asked
    facts, law = played.weights.facts["measured"], played_sample(played).law
    moved = np.median(law.prior) - law.doubt / law.credit
    assert 0 < moved < 4 * MOVED * np.log(facts["base_rows"] / facts["effective_base_rows"])
    rounded = dataclasses.replace(law, theta=None)
    assert np.median(rounded.prior) > 5 * np.median(law.prior)


def test_answers_are_nearly_as_narrow_as_without_privacy_and_may_be_used(asked):
    """Without questions the same release answers none of the relations with `use`."""
    _, people, played = asked
    questions = parse_questions(ASKED, SCHEMA)
    found = answers(played_sample(played), questions)
    exact = answers((SCHEMA.unscale(people), None), questions)
    both = found.merge(exact, on=["question", "value"], suffixes=("", "_exact"))
    width = (both.upper - both.lower) / (both.upper_exact - both.lower_exact)
    common = both.estimate_exact.abs() > 0.02
    assert width[common].median() < 1.3
    assert (both.verdict[common] == "use").mean() > 0.8
    general = compile_plan(spec_of(()), SCHEMA)  # the control
    private = PrivateTable(schema=SCHEMA, scaled=people)
    plain = play(general.recipe, private, noise=SeededNoise(8), rng=np.random.default_rng(9))
    relations = answers(played_sample(plain), [q for q in questions if len(q.others) > 0])
    assert (relations.verdict != "use").all()


@pytest.mark.nightly_cases("3000-2")
@pytest.mark.parametrize(
    ("rows", "epsilon", "releases", "least"), [(1000, "0.4", 40, 34), (3000, "2", 12, 9)]
)
@pytest.mark.slow
def test_quantiles_hold_the_truth_whether_parts_are_kept_to_or_drowned(
    rows, epsilon, releases, least
):
    """A true coverage of 95% fails with probability 0.003 a quantile.

    Where noise drowns the parts of the range, they are no bins: with them intervals were too short.
    """
    schema = declared(
        {"name": "income", "kind": "continuous", "lower": 0, "upper": 1000},
        {"name": "g", "kind": "categorical", "levels": ["a", "b"]}, name="incomes",
    )  # fmt: skip
    plan = compile_plan(
        spec_of(
            ({"quantiles": "income"}, {"mean": "income by g"}), nominal_rows=rows, epsilon=epsilon,
            synthetic_rows=2000,
            weights={"method": "measured", "when_infeasible": "keep",
                     "settings": {"frequencies": 10, "base_rows": 2000}},
        ),
        schema,
    )  # fmt: skip
    held = np.zeros(2)
    for seed in range(releases):
        rng = np.random.default_rng(seed)
        g = rng.integers(0, 2, rows)
        income = np.exp(np.log(60) + 0.6 * rng.standard_normal(rows)).clip(0, 1000)
        people = ScaledTable({"income": income / 1000, "g": g.astype(np.int32)}, rows)
        private = PrivateTable(schema=schema, scaled=people)
        sample = played_sample(play(plan.recipe, private, noise=SeededNoise(seed), rng=rng))
        for place, (p, normal) in enumerate([(0.25, -0.67449), (0.75, 0.67449)]):
            truth = 60 * np.exp(0.6 * normal)
            interval = quantile(sample, "income", p).interval()
            held[place] += interval.lower[0] <= truth <= interval.upper[0]
    assert held.min() >= least


@pytest.mark.parametrize("facts", [
    {"least_credit": 0, "rows": 9}, {"least_credit": 1, "rows": 0}, {"least_credit": -1, "rows": 9},
    {"least_credit": np.inf, "rows": 9}, {"least_credit": 1, "rows": np.nan},
    {"least_credit": [1], "rows": 9}, {"least_credit": "x", "rows": 9},
])  # fmt: skip
def test_a_certificate_s_credit_is_a_number_above_zero(facts):
    assert credit_of({"least_credit": 3, "rows": 12}) == 0.25
    assert credit_of({}) is None
    with pytest.raises(ReleaseError):
        credit_of(facts)


def test_a_plan_forecasts_half_widths_before_data_is_read(asked):
    plan, _, played = asked
    sample = played_sample(played)
    told = {str(forecast.question): forecast for forecast in plan.forecasts()}
    assert [*told] == [str(question) for question in parse_questions(ASKED, SCHEMA)]
    shares = told["share: plan"]
    real = answer(sample, shares.question).interval()
    widest = ((real.upper - real.lower) / 2).max()
    assert shares.half_width == pytest.approx(widest, rel=0.2)
    assert all(0 < each.without < each.half_width for each in told.values())
    assert all(
        each.rare > each.half_width for each in told.values() if each.question.kind == "mean"
    )


def test_a_forecast_for_people_like_these_is_nearer_to_every_half_width(asked):
    """Rows of a release, by their weights, have the shares, spreads and relations of its people.

    Ranges of numbers may differ: they are chosen on rows of the generator, whose tails are longer
    than those of published rows, which a share of the weights has thinned.
    """
    plan, _, played = asked
    sample = played_sample(played)
    weights, facts = np.exp(played.weights.log_weights), played.weights.facts["measured"]
    like = WeightedRows(
        scaled=played.rows.scaled, weights=weights / weights.sum(), credit=credit_of(facts)
    )
    near, blind = plan.forecasts(like), plan.forecasts()
    off = np.empty((2, len(near)))
    for place, pair in enumerate(zip(near, blind, strict=True)):
        real = answer(sample, pair[0].question).interval()
        widest = ((real.upper - real.lower) / 2)[np.isfinite(real.values)].max()
        off[:, place] = [abs(np.log(forecast.half_width / widest)) for forecast in pair]
    assert off[0].max() < np.log(1.5) < off[1].max()


@pytest.mark.parametrize("epsilon", ["0.02", "0.2", "2", "10"])
def test_a_forecast_is_the_interval_that_a_release_would_print(epsilon):
    """Cut to what is possible; of a quantile, from one whole number to another, or at one."""
    stated = ({"mean": "visits by site"}, {"share": "plan"}, {"quantiles": "visits"})
    plan = compile_plan(
        spec_of(stated, epsilon=epsilon, weights={"method": "measured", "when_infeasible": "keep"}),
        SCHEMA,
    )
    mean, share, quantiles = plan.forecasts()
    assert mean.half_width <= 20
    assert share.half_width <= 0.5
    steps = 2 * quantiles.half_width
    assert 0 < steps < 1 or steps == pytest.approx(round(steps))
    assert steps <= 40


def test_a_plan_warns_of_a_wide_answer_and_names_an_epsilon_that_suffices():
    small = {"nominal_rows": 600, "epsilon": "0.5"}
    wide = compile_plan(spec_of(**small), SCHEMA)
    told = plan_table(wide)
    forecasts = wide.forecasts()
    assert any(forecast.is_wide for forecast in forecasts)
    assert told.count("warning: ") >= sum(forecast.is_wide for forecast in forecasts)
    worst = max(forecasts, key=lambda each: each.half_width / each.without)
    enough = worst.enough(0.5)
    again = compile_plan(spec_of(**small | {"epsilon": f"{1.3 * enough:.3f}"}), SCHEMA)
    assert not again.forecasts()[forecasts.index(worst)].is_wide
    assert "over 2 times" not in plan_table(compile_plan(spec_of(), SCHEMA))


@pytest.mark.parametrize("published", [1, 20, 300, 50_000])
def test_a_forecast_counts_the_rows_that_are_published(published):
    stated = ({"share": "site"}, {"mean": "visits by site"}, {"quantiles": "visits"})
    plan = compile_plan(spec_of(stated, synthetic_rows=published), SCHEMA)
    for found in plan.forecasts():
        assert found.half_width > 0 or np.isnan(found.half_width)
        assert not found.without > found.half_width
        assert published > 20 or found.verdict != "use"
        assert np.isnan(found.half_width) or found.enough(2) >= 0
    assert "forecast" in plan_table(plan)


@pytest.mark.parametrize("unit", [1e60, 1e-60])
def test_the_largest_and_smallest_numbers_that_are_admitted_have_the_same_answers(unit):
    def half_widths(unit):
        numbers = ({"name": name, "kind": "continuous", "lower": 0, "upper": unit} for name in "xy")
        schema = declared(*numbers, {"name": "site", "kind": "categorical", "levels": ["a", "b"]})
        stated = ({"mean": "x by site"}, {"correlation": ["x", "y"]}, {"quantiles": "x"},
                  {"regression": "x ~ C(site)"})  # fmt: skip
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            found = compile_plan(spec_of(stated), schema).forecasts()
        return np.array([forecast.half_width for forecast in found])

    units = [unit, 1, unit, unit]
    assert half_widths(unit) == pytest.approx(half_widths(1) * units, rel=1e-6, abs=0)


def test_a_rehearsal_of_a_spec_with_questions_has_every_candidate():
    found = {each.name: each for each in candidates(spec_of(), SCHEMA)}
    assert {"none", "spec"} <= found.keys()
    assert found["none"].plan.spec.questions == ()
    assert found["spec"].plan.weights.questions == parse_questions(ASKED, SCHEMA)


def test_questions_without_the_weights_that_measure_them_are_told():
    loud = spec_of(epsilon="0.001", weights={"method": "measured"}, nominal_rows=100)
    plan = compile_plan(loud, SCHEMA)
    assert plan.weights is None
    assert plan.forecasts() == ()
    assert any("question" in warning for warning in plan.warnings)


def test_questions_are_a_promise_and_need_weights_that_measure_them():
    plan = compile_plan(spec_of(), SCHEMA)
    none = compile_plan(spec_of(()), SCHEMA)
    assert len({plan.digest, none.digest}) == 2
    assert none.forecasts() == ()
    assert "questions" not in none.weights.parameters()
    for method in ("none", "beta_debiased"):
        with pytest.raises(SpecError) as caught:
            compile_plan(spec_of(weights={"method": method}), SCHEMA)
        assert caught.value.field == "questions"


def test_the_frequencies_follow_from_population_and_dictionary_alone():
    seeds = {
        compile_plan(spec_of(questions, epsilon=epsilon, population=population), SCHEMA)
        .weights.omega_seed: population
        for questions in ((), ASKED) for epsilon in (1, 2) for population in ("a", "b")
    }  # fmt: skip
    assert sorted(seeds.values()) == ["a", "b"]
    given = {"method": "measured", "settings": {"omega_seed": 7}}
    assert compile_plan(spec_of(weights=given), SCHEMA).weights.omega_seed == 7
