"""A run that another version of dpiw drew, by other defaults, is not signed as if it were ours."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dpiw.errors import LedgerConflictError, StageFailedError
from dpiw.ledger import EntryKind, StageState
from dpiw.methods.generators.gan.dpgan import DPGAN
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.pgm import aim
from dpiw.methods.generators.pgm.aim import AIM
from dpiw.methods.generators.pgm.aim_rounds import draw_round
from dpiw.methods.weights.paper.mlp import DensityNetwork
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.noise import Cut
from tests.support.whole_runs import finish, prepared

GENERATORS = {
    DPGAN: "{method: dpgan, settings: {steps: 20, lot: 32, batch: 8}}",
    PATEGAN: "{method: pategan, settings: {rounds: 4, queries: 2, batch: 8, teacher_steps: 1}}",
    AIM: "{method: aim, settings: {resumes: 1}}",
    Histogram: "{method: histogram}",
}
HISTOGRAM = "{method: histogram, settings: {bins: 4}}"
WEIGHTS = "beta_noised"
NETWORK = "dp_mlp, settings: {steps: 20, lot: 32}"
EVENTS, SETTINGS = {"marginals_share": 0.0}, {"learning_rate": 0.02}
"""Defaults of another version, under which other events are drawn, or the same ones otherwise."""

COARSER = {"bins": 5}
"""The same events, of a histogram."""

REFUSED = "fit_generator: what was drawn differs from what this version .* nothing is signed"


@pytest.fixture
def make_run(make_workplace):
    """Makes a function that takes a run up, as the version of dpiw does that is there."""

    def make(kind=DPGAN, *, weights=WEIGHTS):
        place = make_workplace(weights=weights, max_attempts=3)
        place.rewrite(HISTOGRAM, GENERATORS.get(kind, HISTOGRAM))
        return lambda: prepared(place)

    return make


@contextlib.contextmanager
def another_version(kind: Any, defaults: Mapping[str, Any]) -> Iterator[None]:
    ours = kind.from_settings

    def from_settings(cls: Any, /, settings: Mapping[str, Any], **known: Any) -> Any:
        return ours.__func__(cls, {**defaults, **settings}, **known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "from_settings", classmethod(from_settings))
        yield


def drawn(run: ReleaseRun, noise: SecureNoise | None = None) -> ReleaseRun:
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=noise or SecureNoise())
    return run


def ended(run: ReleaseRun) -> Any:
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    return finish(run)


def entries(run: ReleaseRun) -> list[EntryKind]:
    return [entry.kind for entry in run.open_ledger().entries()]


@pytest.mark.nightly_cases("defaults0-PATEGAN", "defaults1-DPGAN")
@pytest.mark.parametrize("kind", [DPGAN, PATEGAN])
@pytest.mark.parametrize("defaults", [EVENTS, SETTINGS])
@pytest.mark.slow
def test_what_another_version_drew_is_not_signed(make_run, kind, defaults):
    take_up = make_run(kind, weights="none")
    with another_version(kind, defaults):
        key = drawn(take_up()).key
    run = take_up()
    assert run.key == key
    (planned,), (stage,) = run.plan.stages, run.open_ledger().run(key).stages.values()
    assert len(planned.events) == len(stage.events) or defaults is EVENTS
    with pytest.raises(LedgerConflictError, match=REFUSED):
        ended(run)
    assert not {EntryKind.CERTIFY, EntryKind.PUBLISH} & set(entries(run))
    assert not (run.directory / "built").exists()
    with another_version(kind, defaults):
        certificate = verify(steps.publish(take_up())).certificate
    declared = [event for certified in certificate.stages for event in certified.events]
    assert stage.declares(declared)


def test_other_events_of_the_same_settings_are_not_signed(make_run, monkeypatch):
    ours, further = Histogram.events, GaussianEvent(noise_multiplier=1e4)
    take_up = make_run(Histogram, weights="none")
    monkeypatch.setattr(Histogram, "events", lambda self, **whom: (further, *ours(self, **whom)))
    monkeypatch.setattr("dpiw.run.run.check_certifiable", lambda _: None)  # which it stated, too
    settings = drawn(take_up()).plan.stages[0].settings
    monkeypatch.setattr(Histogram, "events", ours)
    run = take_up()
    assert run.plan.stages[0].settings == settings
    with pytest.raises(LedgerConflictError, match=REFUSED):
        ended(run)
    assert EntryKind.CERTIFY not in entries(run)


@pytest.mark.nightly_cases("DPGAN")
@pytest.mark.parametrize(("kind", "defaults"), [(Histogram, COARSER), (DPGAN, EVENTS)])
@pytest.mark.slow
def test_nothing_more_is_drawn_beside_it(make_run, kind, defaults):
    take_up = make_run(kind)
    with another_version(kind, defaults):
        steps.draw_synthetic(drawn(take_up()))
    run, before = take_up(), None
    for _ in range(2):
        with pytest.raises(LedgerConflictError, match=REFUSED):
            steps.fit_weights(run, noise=SecureNoise())
        stage = run.open_ledger().run(run.key).stages["fit_weights"]
        assert stage.state is StageState.RESERVED
        assert before in (None, entries(run))
        before = entries(run)
    with another_version(kind, defaults):
        ended(take_up())


@pytest.mark.slow
def test_nothing_is_reserved_anew_beside_it(make_run):
    take_up = make_run(Histogram)
    with another_version(Histogram, COARSER):
        run = drawn(take_up())
    run.open_ledger().arm(run.key, 1, "fit_weights")  # and its process dies
    spent = run.open_ledger().spent("town")
    with pytest.raises(LedgerConflictError, match=REFUSED):
        steps.reserve(take_up())
    assert run.open_ledger().spent("town") == spent
    with another_version(Histogram, COARSER):
        steps.reserve(take_up())
        ended(take_up())


def test_a_draw_that_does_not_say_its_settings_is_not_signed(make_run, monkeypatch):
    """Of a version that did not keep them; which it drew with, nobody can tell."""
    under = Measurement.under

    def silent(self, grant, *, settings):
        measurement = under(self, grant, settings=settings)
        facts = {
            name: fact for name, fact in measurement.facts.items() if name != "planned_settings"
        }
        return replace(measurement, facts=facts)

    take_up = make_run(Histogram, weights="none")
    monkeypatch.setattr(Measurement, "under", silent)
    run = drawn(take_up())
    with pytest.raises(LedgerConflictError):
        ended(run)
    assert EntryKind.CERTIFY not in entries(run)


@pytest.mark.nightly_cases("defaults0", "defaults1", "defaults3")
@pytest.mark.parametrize(
    ("kind", "weights", "defaults"),
    [
        (DPGAN, "none", SETTINGS), (DPGAN, "none", {"latent": 3}),
        (DensityNetwork, NETWORK, SETTINGS), (DensityNetwork, NETWORK, {"hidden": [4]}),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_another_version_s_checkpoint_uses_no_resume_up(make_run, kind, weights, defaults):
    """Whose training had the same events; the version that began it still goes on."""
    take_up = make_run(kind, weights=weights)
    with another_version(kind, defaults), pytest.raises(StageFailedError):
        trained(take_up(), Cut(12, of=("poisson_sample",)))
    check_refused(take_up())
    with another_version(kind, defaults):
        drawn(run := take_up())
        verify(ended(take_up()))
    assert entries(run).count(EntryKind.RESUME) == 1


@pytest.mark.nightly
def test_nor_does_a_checkpoint_of_rounds(make_run, monkeypatch):
    take_up, calls = make_run(AIM, weights="none"), iter(range(1))

    def dies(*drawn, **terms):
        if next(calls, None) is None:
            raise RuntimeError("gone")
        return draw_round(*drawn, **terms)

    with another_version(AIM, {"max_cells": 100}), monkeypatch.context() as patch:
        patch.setattr(aim, "draw_round", dies)
        with pytest.raises(StageFailedError):
            trained(take_up(), SecureNoise())
    check_refused(take_up())


def trained(run: ReleaseRun, noise: SecureNoise) -> None:
    """Draw whatever there is to draw; the last stage with this noise."""
    names = [stage.name for stage in run.plan.stages]
    drawn(run, noise if names == ["fit_generator"] else SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=noise)


def check_refused(run: ReleaseRun) -> None:
    steps.reserve(run)
    name = run.plan.stages[-1].name
    with pytest.raises(LedgerConflictError, match=f"{name}: what was drawn differs"):
        trained(run, SecureNoise())
    stage = run.open_ledger().run(run.key).stages[name]
    assert (stage.state, stage.resumes_left) == (StageState.ARMED, 1)
