from __future__ import annotations

import math
from decimal import Decimal

import pytest

from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.weights.paper.steps import (
    STEPS,
    BetaCalibrate,
    Clip,
    ParetoSmooth,
    PostProcessing,
    Resample,
    SelfNormalise,
    Temper,
    parse_post_processing,
)
from dpiw.methods.weights.resampling import Resampling

PUBLIC = {"step": "beta_calibrate", "a": 1.1, "b": 0.9, "c": 0.1, "declared": "the 2020 survey"}
FILE = {"step": "beta_calibrate", "rows": "survey.csv", "declared": "the 2020 survey"}
ALL = [
    PUBLIC,
    {"step": "temper", "alpha": Decimal("0.5")},
    {"step": "pareto_smooth"},
    {"step": "clip", "at": 20},
    {"step": "self_normalise"},
    {"step": "resample", "rows": 100, "scheme": "multinomial"},
]


def test_a_spec_list_becomes_steps():
    parsed = parse_post_processing(ALL)
    assert parsed.steps == (
        BetaCalibrate(a=1.1, b=0.9, c=0.1, declared="the 2020 survey"),
        Temper(alpha=0.5),
        ParetoSmooth(),
        Clip(at=20.0),
        SelfNormalise(),
        Resample(rows=100, scheme=Resampling.MULTINOMIAL),
    )
    assert tuple(type(step) for step in parsed.steps) == STEPS
    assert parse_post_processing([]) == PostProcessing()
    assert (parsed.calibrate, parsed.resample) == (parsed.steps[0], parsed.steps[5])
    assert PostProcessing().calibrate is None
    assert PostProcessing().resample is None


def test_every_step_says_what_it_does():
    assert tuple(step.text for step in parse_post_processing(ALL).steps) == (
        "beta calibration (a=1.1, b=0.9, c=0.1; the 2020 survey)",
        "temper to the power 0.5",
        "Pareto-smooth the largest weights",
        "clip at 20 times the mean weight",
        "self-normalise",
        "resample 100 rows by weight (multinomial); weights are one",
    )


@pytest.mark.parametrize("i", range(len(ALL)))
@pytest.mark.parametrize("j", range(len(ALL)))
def test_one_order_and_each_step_once(i, j):
    pair = [ALL[i], ALL[j]]
    if i < j:
        assert len(parse_post_processing(pair).steps) == 2
    else:
        with pytest.raises(SpecError, match="expected the order beta_calibrate, temper"):
            parse_post_processing(pair)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("temper", "expected a list of steps"),
        ({"step": "temper"}, "expected a list of steps"),
        (None, "expected a list of steps"),
        (["temper"], "each a mapping with `step`; expected one of beta_calibrate"),
        ([{"alpha": 1}], "each a mapping with `step`"),
        ([{"step": "smooth"}], "each a mapping with `step`"),
        ([{"step": ["temper"]}], "each a mapping with `step`"),
        ([{"step": "temper"}], "temper.alpha: missing"),
        ([{"step": "temper", "alpha": 1, "beta": 1}], r"temper.beta: unknown \(known: alpha\)"),
        ([{"step": "temper", 7: 1, "alpha": 1}], "temper.7: unknown"),
        ([{"step": "pareto_smooth", "k": 1}], r"pareto_smooth.k: unknown \(known: none\)"),
        ([{"step": "temper", "alpha": 0}], "temper.alpha=0: expected above 0, at most 1"),
        ([{"step": "temper", "alpha": 1.5}], "temper.alpha=1.5"),
        ([{"step": "temper", "alpha": math.nan}], "temper.alpha=nan"),
        ([{"step": "temper", "alpha": True}], "temper.alpha: expected a number"),
        ([{"step": "temper", "alpha": "0.5"}], "temper.alpha: expected a number"),
        ([{"step": "clip", "at": 1}], "clip.at=1: expected above 1"),
        ([{"step": "clip", "at": 10**400}], "clip.at=inf"),
        ([{"step": "resample", "rows": 0}], "resample.rows: expected a whole number >= 1"),
        ([{"step": "resample", "rows": 2.0}], "resample.rows: expected a whole number"),
        ([{"step": "resample", "rows": True}], "resample.rows: expected a whole number"),
        ([{"step": "resample", "rows": 5, "scheme": "x"}], "scheme: expected one of systematic"),
        ([{"step": "beta_calibrate"}], "beta_calibrate: expected a, b, c and `declared`"),
        ([{**PUBLIC, "declared": ""}], "beta_calibrate: expected a, b, c and `declared`"),
        ([{**PUBLIC, "declared": 3}], "declared: expected text"),
        ([{**PUBLIC, "source": "private"}], "source: expected public"),
        ([{**PUBLIC, "a": "1"}], "beta_calibrate.a: expected a number"),
        ([{**PUBLIC, "limit": 0}], "limit=0: expected above 0"),
        ([{**PUBLIC, "limit": None}], "limit: expected a number"),
        ([{**FILE, "a": 1}], "expected all of a, b, c or none"),
    ],
)
def test_what_is_no_post_processing(value, text):
    with pytest.raises(SpecError, match=text):
        parse_post_processing(value)


def test_steps_that_lose_the_scale_are_refused_where_it_is_published():
    fitted = BetaCalibrate(a=1, b=1, c=0, declared="a survey")
    for step in (fitted, SelfNormalise(), Resample(rows=5)):
        single = PostProcessing(steps=(step,))
        single.check(self_normalised=True)
        with pytest.raises(SpecError, match=f"{step.step}: loses the scale"):
            single.check(self_normalised=False)
    PostProcessing(steps=(Temper(alpha=0.5), ParetoSmooth(), Clip(at=3))).check(
        self_normalised=False
    )


def test_a_calibration_on_a_file_has_no_numbers_until_it_is_fitted():
    unfitted = parse_post_processing([FILE | {"limit": 2}])
    assert unfitted.calibrate.text == "beta calibration on the 2020 survey"
    with pytest.raises(UncalibratedError, match="has not been fitted"):
        _ = unfitted.calibrate.map
    filled = unfitted.with_calibration(1.2, 0.8, 0.1)
    assert (filled.calibrate.map, filled.calibrate.limit) == ((1.2, 0.8, 0.1), 2.0)
    assert filled.calibrate.text == "beta calibration (a=1.2, b=0.8, c=0.1; the 2020 survey)"
