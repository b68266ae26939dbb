"""A release whose weights were chosen by a charged private selection, from spec to analyst."""

from __future__ import annotations

import json
import warnings

import pytest

from dpiw import analysis, steps
from dpiw.analysis.rehearsal import mechanism_of
from dpiw.audit import audit, release_folders
from dpiw.errors import ReleaseError, SpecError
from dpiw.ledger import Ledger, RunState
from dpiw.plan import compile_plan
from dpiw.plan_table import plan_table
from dpiw.privacy import SelectedGaussianEvent, SelectedPureEvent
from dpiw.randomness import SecureNoise
from dpiw.release import UnreliableWeightsWarning, load_release
from dpiw.runs import ReleaseRun
from dpiw.spec import load_schema, load_spec

SELECTED = (
    "selected, settings: {candidates: [{settings: {tau: 0.2}}, {settings: {tau: 0.05}},"
    " {method: beta_noised, settings: {features: interactions}}], mean_runs: 3}"
)


@pytest.fixture
def place(make_workplace):
    return make_workplace(weights=SELECTED)


def plan_of(place):
    spec = load_spec(place.spec)
    return compile_plan(spec, load_schema(spec))


def published(place):
    run = ReleaseRun.prepare(place.spec, period=None)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    steps.debias(run)
    steps.diagnose(run)
    return run, steps.publish(run)


def loaded(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWeightsWarning)
        return load_release(folder)


def test_one_stage_and_one_charge(place):
    run, folder = published(place)
    ledger = Ledger.open(place.ledger)
    assert ledger.run(run.key).state is RunState.PUBLISHED
    assert ledger.spent("town").epsilon == 2
    (stored,) = ledger.run(run.key).stages["fit_weights"].events
    assert stored["type"] == "selected_gaussian"
    report = audit(
        ledger_url=str(place.ledger), releases=release_folders(place.releases),
        public_key=place.root / "state" / "keys" / "test.pub",
    )  # fmt: skip
    assert {finding.code for finding in report.findings} == set()
    certificate = loaded(folder).certificate
    stage = next(s for s in certificate.stages if s.stage == "fit_weights")
    assert stage.method == "selected"
    assert [c["tau"] for c in stage.parameters["candidates"]] == [0.2, 0.05, 0.2]
    assert stage.parameters["runs"] == "logarithmic"
    (law,) = stage.noise
    assert law["values"] == "one_run"  # the law of one run, and not called the release's
    assert law["scale"] in [c["scale"] for c in stage.parameters["candidates"]]
    assert any("no interval includes it" in text for text in certificate.caveats)
    assert not any("confidence_interval includes" in text for text in certificate.caveats)
    assert certificate.post_processing == ("self-normalise",)


def test_analysts_are_told_no_law(place):
    release = loaded(published(place)[1])
    mean = analysis.mean(release, "age")
    assert mean.sample.law is None
    assert mean.interval().method == "sandwich"
    with pytest.raises(ReleaseError):
        mean.interval(method="noise_aware")
    with pytest.raises(ReleaseError, match="chosen by a private score cannot be replayed"):
        mechanism_of(release)


def test_a_run_comes_back_with_the_same_plan(place):
    run = ReleaseRun.prepare(place.spec, period=None)
    again = ReleaseRun.load(run.directory)
    assert again.plan.stages == run.plan.stages
    assert again.plan.weights == run.plan.weights
    (event,) = again.plan.stages[1].events
    assert isinstance(event, SelectedGaussianEvent)
    assert "selected_gaussian" in plan_table(run.plan)
    json.dumps(run.plan.to_json(), allow_nan=False)


def test_pure_releases_select_with_pure_noise(place):
    text = place.spec.read_text()
    place.spec.write_text(
        text.replace("delta: 1e-6", "delta: 0")
        .replace("settings: {bins: 4}", "settings: {bins: 4, noise: laplace}")
        .replace("mean_runs: 3", "mean_runs: 3, runs: geometric")
    )
    plan = plan_of(place)
    (event,) = plan.stages[1].events
    assert isinstance(event, SelectedPureEvent)
    assert event.shape == 1
    assert plan.epsilon_pld <= 2
    assert plan.epsilon_pld == pytest.approx(2, rel=2e-4)


@pytest.mark.parametrize("source", ["private", "public"])
def test_a_chosen_ratio_is_not_calibrated(place, source):
    place.add_steps(f"{{step: beta_calibrate, source: {source}, limit: 2}}")
    with pytest.raises(SpecError, match="beta_calibrate"):
        plan_of(place)


def test_settings_are_checked_before_anything_happens(make_workplace):
    place = make_workplace(weights="selected, settings: {candidates: [{settings: {tau: 0.2}}]}")
    with pytest.raises(SpecError, match="list of 2 to 20"):
        plan_of(place)
