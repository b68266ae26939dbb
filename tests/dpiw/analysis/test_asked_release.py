"""A published release with declared questions: its certificate, and its answers."""

import html
import importlib
import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from dpiw.analysis.errors.law import law_of_release
from dpiw.analysis.questions import answer, answers, asked_of, pair_support
from dpiw.analysis.sample import weighted_sample
from dpiw.cli.main import main
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ReleaseError, SpecError
from dpiw.methods.weights.questions import parse_questions
from dpiw.plan.table import plan_table
from dpiw.release.report.figures import answers_of, counted
from dpiw.release.signing import create_key_pair
from flows.summary import summary
from tests.dpiw.analysis.conftest import publish
from tests.support.around import around
from tests.support.played import law_inside
from tests.support.whole_runs import asked as request_of
from tests.support.whole_runs import loaded
from tests.support.worlds import declared

ASKED = [
    {"share": "region by ill"}, {"mean": "age by ill", "weight": 2}, {"quantiles": "age"},
    {"regression": "income ~ age + ill"}, {"table": ["region", "ill"]},
]  # fmt: skip
SETTINGS = {
    "weights": "measured, settings: {frequencies: 20, base_rows: 3000}",
    "population": f"town\nquestions: {json.dumps(ASKED)}",
}


@pytest.fixture
def asked(publishing):
    return publishing(**SETTINGS)


@pytest.mark.slow
def test_the_law_of_the_folder_is_that_of_the_run(asked):
    run, release = asked
    stage = next(s for s in release.certificate.stages if s.stage == "fit_weights")
    assert stage.parameters["questions"] == ASKED
    inside, law = law_inside(run)[0], law_of_release(release)
    assert (law.credit, law.rows) == (inside.credit, inside.rows)
    even = np.ones(law.features.shape[1])  # None: the evidence's credit was low enough
    relative = even if law.relative is None else law.relative
    assert (relative == (even if inside.relative is None else inside.relative)).all()
    told = release.certificate.diagnostics["measured"]
    assert told["forced"]
    assert (relative[told["forced"]] == told["forced_credit"] / law.credit).all()


@pytest.mark.parametrize("stated", [5, None, {"a": 1}, ["x"], [{"mean": "nobody"}], "mean: age"])
def test_a_certificate_with_other_questions_is_refused(asked, stated):
    certificate = asked[1].certificate
    stages = tuple(
        replace(stage, parameters={**stage.parameters, "questions": stated})
        for stage in certificate.stages
    )
    odd = replace(asked[1], certificate=replace(certificate, stages=stages))
    with pytest.raises(ReleaseError):
        asked_of(odd)


def test_a_question_that_rows_cannot_answer_takes_no_other_with_it():
    schema = declared(
        {"name": "x", "kind": "continuous", "lower": 0, "upper": 1},
        {"name": "y", "kind": "continuous", "lower": 0, "upper": 1},
    )
    table = (pd.DataFrame({"x": np.ones(50), "y": np.linspace(0, 1, 50)}), None)
    questions = parse_questions([{"correlation": ["x", "y"]}, {"mean": "y"}], schema)
    found = answers(table, questions)
    assert [*found["value"]] == ["no answer", "mean(y)"]
    assert found["why"][0]
    assert found["estimate"][1] == pytest.approx(0.5)


def test_every_question_is_answered_with_its_interval(asked):
    run, release = asked
    answers = release.questions()
    assert [*answers["question"].unique()] == [
        str(question) for question in run.plan.weights.questions
    ]
    assert (answers["lower"] <= answers["estimate"]).all()
    assert (answers["estimate"] <= answers["upper"]).all()
    mean = release.mean("age", by="ill").interval()
    told = answers[answers["question"] == "mean: age by ill"]
    assert told["upper"].to_numpy() == pytest.approx(mean.upper)
    assert [*told["verdict"]] == [*mean.verdicts]
    shares = answers[answers["question"] == "table: region, ill"]
    assert shares["estimate"].sum() == pytest.approx(1)


def test_the_report_shows_the_answers_that_analysts_get(asked):
    release = asked[1]
    page = html.unescape((release.verified.folder / "report.html").read_text())
    found, pairs = release.questions(), pair_support(release)
    for question in found["question"].unique():
        verdicts = found["verdict"][found["question"] == question].value_counts()
        assert f"<h3>{question}</h3>" in page
        assert f"Values by verdict: {counted(verdicts)}" in page
    assert f"Values by verdict: {counted(pairs.iloc[:, 3:].sum())}." in page


@pytest.mark.slow
def test_the_report_is_given_the_numbers_that_analysts_get(make_workplace, monkeypatch):
    given, module = [], importlib.import_module("dpiw.run.publish")

    def recorded(*tables):
        given.append(tables)

    around(module, "answers_of", before=recorded, replace=monkeypatch.setattr)
    release = publish(make_workplace(**SETTINGS))[1]
    [(answered, pairs)] = given  # of rows in another order
    pd.testing.assert_frame_equal(answered, release.questions(), rtol=1e-6)
    pd.testing.assert_frame_equal(pairs, pair_support(release), rtol=1e-6)


def test_the_support_of_a_pair_is_that_of_its_question(asked):
    release = asked[1]
    pairs = pair_support(release).set_index(["first", "second"])
    names = [column.name for column in PublicSchema.from_mapping(release.schema).released]
    assert [*pairs.index] == [(a, b) for k, b in enumerate(names) for a in names[: k + 1]]
    for first, second, question in (
        ("age", "income", {"correlation": ["age", "income"]}),
        ("age", "ill", {"mean": "age by ill"}),
        ("region", "ill", {"table": ["region", "ill"]}),
        ("region", "region", {"share": "region"}),
    ):
        [asked_for] = parse_questions([question], PublicSchema.from_mapping(release.schema))
        interval = answer(release, asked_for).interval()
        line = pairs.loc[first, second]
        assert line["support"] == pytest.approx(np.median(interval.support))
        assert line["use"] == interval.verdicts.count("use")
        assert line.iloc[1:].sum() == len(interval.names)


@pytest.mark.slow
def test_a_release_that_cannot_answer_says_so_in_plan_terminal_and_report(make_workplace):
    """400 people at epsilon 0.2."""
    stated = json.dumps([{"correlation": ["age", "income"]}, {"mean": "age by region"}])
    place = make_workplace(**SETTINGS | {"population": f"town\nquestions: {stated}"})
    place.rewrite("epsilon: 2", "epsilon: 0.2")
    run, release = publish(place)
    plan, found = plan_table(run.plan), release.questions()
    assert "use" not in {*found["verdict"]}
    told = counted(found["verdict"].value_counts())
    assert f"questions  {told};" in summary(release.verified.folder, request_of(place.spec), 1.0)
    page = html.unescape((release.verified.folder / "report.html").read_text())
    for question in found["question"].unique():
        assert f"warning: {question}: over" in plan
        verdicts = found["verdict"][found["question"] == question].value_counts()
        assert f"Values by verdict: {counted(verdicts)}" in page


@pytest.mark.parametrize("broken", ["pair_support", "answers_of", "asked_of"])
@pytest.mark.slow
def test_a_fault_of_these_figures_stops_no_publication(make_workplace, monkeypatch, broken):
    fail = mock.Mock(side_effect=ValueError("alpha (nan) is outside 0-1 range"))
    monkeypatch.setattr(f"dpiw.run.publish.{broken}", fail)
    release = publish(make_workplace(**SETTINGS))[1]
    assert "This page shows no answers." in (release.verified.folder / "report.html").read_text()


def test_what_has_no_known_support_is_left_out_of_the_pairs():
    sample = weighted_sample((pd.DataFrame({"x": np.linspace(0, 1, 60)}), None))
    bounded = declared({"name": "x", "kind": "continuous", "lower": 0, "upper": 1})
    for schema in (bounded, None):  # without a law
        assert pair_support(replace(sample, schema=schema)).empty
    assert answers_of(pd.DataFrame(), pair_support(sample)).support is None


def test_a_plan_forecasts_for_people_like_those_of_an_earlier_release(asked, capsys, says):
    run, release = asked
    spec, folder = str(Path(run.spec.state).parent / "release.yaml"), str(release.verified.folder)
    before = says("plan", spec)
    told = says("plan", spec, "--like", folder)
    assert "people like those of the release" in told
    assert [line for line in told.splitlines() if "±" in line] != [
        line for line in before.splitlines() if "±" in line
    ]
    for refused in (str(run.directory / "built"), spec):
        assert main(["plan", spec, "--like", refused]) != 0
    assert "state folder" in capsys.readouterr().err
    assert main(["plan", spec, "--key", folder]) == SpecError.exit_code


@pytest.mark.slow
def test_the_command_answers_and_a_release_without_questions_says_so(
    asked, published, says, tmp_path
):
    run, release = asked
    folder, key = str(release.verified.folder), run.plan.spec.signing_key
    public = str(key).removesuffix(".key") + ".pub"
    told = json.loads(says("describe", folder, "--key", public, "--questions", "--json"))
    assert [line["value"] for line in told] == [*release.questions()["value"]]
    assert "mean: age by ill" in says("describe", folder, "--questions")
    _, other = create_key_pair(tmp_path, "other")  # of several keys one must have signed
    assert says("describe", folder, "--key", other, "--key", public, "--questions")
    assert main(["describe", str(published[1].verified.folder), "--questions"]) == (
        ReleaseError.exit_code
    )
    assert published[1].questions().empty
    assert loaded(release.verified.folder).questions().equals(release.questions())
