"""A run of `method: auto` goes on with the method that it began with, whatever the rule says."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from dpiw.errors import AlreadyPaidError
from dpiw.methods.generators import registry
from dpiw.plan import plan as plans
from dpiw.privacy.randomness import SecureNoise
from dpiw.release.verification import verify
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.support.whole_runs import asked, diagnosed, fit, prepared, reserved

NAMED = "{method: histogram, settings: {bins: 4}}"


@pytest.fixture
def rule(monkeypatch) -> Callable[..., None]:
    """Let another method come first."""

    def prefers(*methods: str) -> None:
        monkeypatch.setattr(plans, "preferred", lambda *_, **__: methods)

    return prefers


@pytest.fixture
def place(workplace, rule) -> Any:
    rule("histogram", "mst")
    workplace.rewrite(NAMED, "{method: auto}")
    return workplace


def method(run: ReleaseRun) -> str:
    assert run.plan.stages[0].method == run.spec.generator.method
    return run.spec.generator.method


def test_key_record_ledger_and_certificate_name_the_method(place, rule):
    """They are those of a spec that names it, and no `auto` is anywhere; so is a rerun."""
    run = fit(reserved(place))
    assert "auto" not in (run.directory / "run.json").read_text()
    assert json.loads((run.directory / "run.json").read_text())["spec"]["generator"] == {
        "method": "histogram", "settings": {},
    }  # fmt: skip
    rule("mst", "histogram")
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    folder = steps.publish(diagnosed(ReleaseRun.load(run.directory)))
    certificate = verify(folder, public_key=place.key).certificate
    assert certificate.generator["method"] == certificate.stages[0].method == "histogram"
    assert "auto" not in certificate.to_json().decode()
    assert run.open_ledger().run(run.key).plan_digest == run.plan.digest
    place.rewrite("{method: auto}", "{method: histogram}")
    assert prepared(place).key == run.key


@pytest.mark.parametrize("until", ["prepared", "reserved", "drawn"])
def test_a_run_goes_on_with_its_method_after_the_rule_has_changed(place, rule, says, until):
    run = prepared(place)
    if until != "prepared":
        steps.reserve(run)
    if until == "drawn":
        fit(run)
    rule("mst", "histogram")
    again = prepared(place)
    assert (again.key, method(again)) == (run.key, "histogram")
    assert (again.plan.stages, asked(place.spec).found().key) == (run.plan.stages, run.key)
    told = says("plan", place.spec)
    assert "fit_generator (histogram)" in told
    assert ("nothing more: its run holds" in told) is (until != "prepared")
    steps.reserve(again)  # and nothing is paid twice
    assert [record.run_key for record in run.open_ledger().runs("town")] == [run.key]


@pytest.mark.slow
def test_a_run_that_was_not_begun_takes_the_rule_of_today(place, rule, says):
    place.rewrite("cadence: once", "cadence: monthly")
    first = prepared(place, period="2026-01")
    rule("mst", "histogram")
    assert "fit_generator (mst)" in says("plan", place.spec)
    second = prepared(place, period="2026-02")
    assert (method(first), method(second)) == ("histogram", "mst")


def test_a_drawn_run_that_is_not_here_is_paid_no_second_time(place, rule):
    """Another rule, and a workspace without the run: refused, as for another method by name."""
    run = fit(reserved(place))
    shutil.rmtree(run.directory)
    rule("mst", "histogram")
    other = prepared(place)
    assert method(other) == "mst"
    with pytest.raises(AlreadyPaidError) as caught:
        steps.reserve(other)
    assert caught.value.run == run.key


@pytest.mark.slow
def test_all_that_the_rule_may_choose_is_looked_for(place, rule):
    for name in registry.AUTOMATIC:
        rule(name)
        shutil.rmtree(prepared(place).directory.parent, ignore_errors=True)
        run = prepared(place)
        rule(*[other for other in registry.AUTOMATIC if other != name])
        assert method(prepared(place)) == name == method(run)
