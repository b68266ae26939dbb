"""Plans: one total, noise solved jointly, feasibility from public facts. No data exists here."""

import dataclasses
import hashlib
import json
import math
from fractions import Fraction

import pytest

from dpiw import __version__
from dpiw.data.cells.formats import FORMAT_FIELDS
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import NotPublishableError, SpecError
from dpiw.methods.weights.paper.beta import BetaNoised
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.plan.plan import RESOLUTION_FLOOR, compile_plan, restore_plan
from dpiw.plan.sections import Places, Promise, SourceFormat, SourceSpec
from dpiw.plan.spec import ReleaseSpec, compact_json
from dpiw.plan.stages import PRIVATE_STAGES
from dpiw.plan.table import plan_table
from dpiw.privacy import accounting
from dpiw.privacy.events import GaussianEvent, LaplaceEvent
from tests.support.around import around
from tests.support.specs import REFUSED_SETTINGS, SCHEMA, spec


@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "1e-5"), ("1.1", "1e-6"), ("0.7", "1e-5")])
def test_no_float_of_the_promise_is_above_its_decimal(epsilon, delta, monkeypatch):
    """Calibration, its check and a lost stage's price; the nearest float of one is above it."""
    calls, watched = [], lambda *_, **keywords: calls.append(keywords)
    for name in ("calibrate", "epsilon", "epsilon_rdp"):
        around(accounting, name, before=watched, replace=monkeypatch.setattr)
    plan = compile_plan(spec(epsilon=epsilon, delta=delta), SCHEMA)
    plan.stage_cost(frozenset({"fit_weights"}))
    assert plan.composed.keys() == {"pld", "rdp"}
    exact = {"epsilon": Fraction(epsilon), "delta": Fraction(delta)}
    assert any(Fraction(float(value)) > value for value in exact.values())
    assert {tuple(keywords) for keywords in calls} >= {("epsilon", "delta"), ("delta",)}
    for keywords in calls:
        for name in keywords.keys() & exact.keys():
            assert Fraction(keywords[name]) <= exact[name]
            assert Fraction(math.nextafter(keywords[name], 1e9)) > exact[name]


def test_joint_calibration_beats_splitting_epsilon():
    """The weights' noise at a joint total of 1 is far below that of half the epsilon."""
    (event,) = compile_plan(spec(), SCHEMA).stages[1].events
    assert isinstance(event, GaussianEvent)
    assert event.noise_multiplier < accounting.gaussian_noise_multiplier(0.5, 5e-7) * 0.8


@pytest.mark.slow
def test_infeasible_weights_are_dropped_in_advance_and_cost_nothing():
    low = {"epsilon": "0.05", "nominal_rows": 200}
    weights = {"method": "beta_debiased", "when_infeasible": "none"}
    plan = compile_plan(spec(**low, weights=weights), SCHEMA)
    alone = compile_plan(spec(**low, weights={"method": "none"}), SCHEMA)
    assert plan.weights is None
    assert plan.forecast.resolution < RESOLUTION_FLOOR
    assert plan.stages[0].events == alone.stages[0].events  # the generator gets all of it
    assert plan.warnings
    with pytest.raises(SpecError):
        compile_plan(spec(**low, weights=weights | {"when_infeasible": "refuse"}), SCHEMA)
    keeping = compile_plan(spec(**low, weights=weights | {"when_infeasible": "keep"}), SCHEMA)
    assert keeping.weights is not None
    assert keeping.warnings


@pytest.mark.parametrize("method", ["keep", "none"])
def test_a_restored_plan_is_the_same_plan(method):
    weights = {"method": "beta_debiased", "when_infeasible": method}
    plan = compile_plan(spec(epsilon="0.05", nominal_rows=200, weights=weights), SCHEMA)
    assert plan.warnings
    record = {
        "effort": plan.effort,
        "publishes_weights": plan.weights is not None,
        "forecast": vars(plan.forecast),
        "warnings": list(plan.warnings),
    }
    again = restore_plan(plan.spec, SCHEMA, json.loads(json.dumps(record)))
    assert again.stages == plan.stages
    assert again.digest == plan.digest
    assert again.warnings == plan.warnings
    assert (again.composed, again.forecast) == (plan.composed, plan.forecast)


def test_the_digest_follows_the_promise_and_not_the_paths():
    plan = compile_plan(spec(), SCHEMA)
    moved = spec(state="elsewhere", publish_to="there", max_attempts=3)
    assert compile_plan(moved, SCHEMA).digest == plan.digest
    assert compile_plan(spec(synthetic_rows=101), SCHEMA).digest != plan.digest
    assert plan.run_key("2026-11") != plan.run_key("2026-12")


@pytest.mark.parametrize(("changes", "message"), REFUSED_SETTINGS)
def test_settings_are_refused_by_name(changes, message):
    with pytest.raises(SpecError, match=message):
        compile_plan(spec(**changes), SCHEMA)


def test_non_private_methods_are_refused(monkeypatch):
    class Exact(BetaNoised):
        method, private = "exact", False

    monkeypatch.setitem(WEIGHTS, "exact", Exact)
    with pytest.raises(NotPublishableError):
        compile_plan(spec(weights={"method": "exact"}), SCHEMA)


def test_the_page_for_people_says_what_matters():
    """A German `1.000` is one, and `dpiw plan` is the last to tell before it counts."""
    plan = compile_plan(spec(), SCHEMA)
    document = json.loads(json.dumps(plan.to_json()))
    assert [stage["name"] for stage in document["stages"]] == ["fit_generator", "fit_weights"]
    assert document["weights_forecast"]["feasible"] is True
    whole = {"kind": "integer", "lower": -9007199254740993, "upper": -123456789012}
    day = {"kind": "date", "lower": "2025-01-01", "upper": "2025-12-31"}
    numbers = [{"kind": "continuous", "lower": -0.5, "upper": upper}
               for upper in (1.000, 1234567.890625, 9_000_000)]  # fmt: skip
    columns = [{"name": f"c{j}"} | column for j, column in enumerate([whole, day, *numbers])]
    schema = PublicSchema.from_mapping({"name": "town", "columns": columns})
    page = " ".join(plan_table(dataclasses.replace(plan, schema=schema)).split())
    for words in (
        "epsilon=1, delta=0.000001", "add_or_remove_one", "nominal rows 5000",
        "fit_generator (privbayes)", "exponential_mechanism", "tau=", "no data was read",
        "c0 -9007199254740993 to -123456789012", "c1 2025-01-01 to 2025-12-31", "c2 -0.5 to 1,",
        "c3 -0.5 to 1234567.890625", "c4 -0.5 to 9,000,000",
    ):  # fmt: skip
        assert words in page


def test_an_epsilon_too_small_to_be_drawn_is_refused():
    with pytest.raises(SpecError, match="epsilon"):
        compile_plan(spec(epsilon="1e-9", delta="0"), SCHEMA)


@pytest.mark.parametrize("delta", ["1e-6", "0"])
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_stages_compose_to_the_total(delta, relation):
    weights = {"method": "beta_debiased", "when_infeasible": "keep"}
    plan = compile_plan(spec(weights=weights, delta=delta, relation=relation, epsilon="2"), SCHEMA)
    assert [stage.name for stage in plan.stages] == list(PRIVATE_STAGES)
    events = [event for stage in plan.stages for event in stage.events]
    total = accounting.epsilon(events, delta=float(delta))
    assert 2 * (1 - 2e-4) <= total <= 2
    kind = LaplaceEvent if delta == "0" else GaussianEvent
    assert all(type(event) is kind for event in plan.stages[1].events)
    assert plan.stages[1].parameters["noise"] == ("spherical" if delta == "0" else "gaussian")
    if delta == "0":
        assert [*plan.composed] == ["pld"]
    else:  # the second accountant, looser and never tighter
        assert total <= plan.composed["rdp"] <= 2 * total
    alone = [plan.stage_cost(frozenset({stage.name})).epsilon for stage in plan.stages]
    assert max(alone) < 2
    assert sum(alone) > 2 or delta == "0"  # joint composition gives each more than its part


def test_a_digest_is_that_of_the_decisions():
    """By hand: what a spec promised it promises still, whatever settings come and go."""
    plan = compile_plan(spec(), SCHEMA)
    dumped = plan.spec.model_dump(mode="json")
    decisions = {
        "format": 1, "name": "town", "population": "town", "cadence": "once",
        "source": {key: dumped["source"][key]
                   for key in dumped["source"] if key not in ("path", *FORMAT_FIELDS)},
        "unit": dumped["unit"], "relation": "add_or_remove_one", "epsilon": "1",
        "delta": dumped["delta"], "nominal_rows": 5000, "generator": dumped["generator"],
        "weights": dumped["weights"], "shares": {"generator": 0.5, "weights": 0.5},
        "synthetic_rows": 100, "public_truth": False,
    }  # fmt: skip
    body = {"spec": decisions, "schema": SCHEMA.to_mapping(), "dpiw": __version__}
    text = b"dpiw-plan-v1\n" + compact_json(body).encode()
    assert plan.digest == hashlib.sha256(text).hexdigest()


def test_every_field_is_promised_or_a_place():
    assert not ReleaseSpec.__annotations__
    assert not set(Promise.model_fields) & set(Places.model_fields)
    assert set(SourceSpec.model_fields) - set(SourceFormat.model_fields) == {"path"}


def test_how_many_rows_are_resampled_is_promised():
    """A step's `rows` is a number here, and the path of a file in another step."""
    few, many = (
        compile_plan(spec(weights={"method": "beta_debiased", "post_processing": [
            {"step": "resample", "rows": rows}]}), SCHEMA)
        for rows in (50, 100)
    )  # fmt: skip
    assert few.digest != many.digest


def test_a_kept_plan_is_refused_what_a_new_one_would_be():
    plan = compile_plan(spec(weights={"method": "measured", "settings": {"omega_seed": 1}}), SCHEMA)
    steps = [{"step": "temper", "alpha": 0.5}]
    weights = plan.spec.weights.model_copy(update={"post_processing": steps})
    record = {"effort": plan.effort, "publishes_weights": True, "forecast": None, "warnings": []}
    with pytest.raises(SpecError, match="post_processing"):
        restore_plan(plan.spec.model_copy(update={"weights": weights}), SCHEMA, record)
