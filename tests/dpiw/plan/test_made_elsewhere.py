"""What a plan refuses of rows made elsewhere, and what its key depends on; no data is read."""

import shutil
from dataclasses import replace
from decimal import Decimal

import pytest

from dpiw.cli.main import main
from dpiw.errors import NotPublishableError, SpecError
from dpiw.plan.assumptions import declared_assumption
from dpiw.plan.plan import compile_plan
from dpiw.plan.rehearsal.candidates import candidates
from dpiw.plan.spec import load_schema, load_spec
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE
from dpiw.plan.table import plan_table
from dpiw.privacy import accounting
from dpiw.privacy.events import DeclaredEvent
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.support.made_elsewhere import rows_of_town, write_spec, written


def planned(place, **changes):
    spec = load_spec(write_spec(place, **changes))
    return compile_plan(spec, load_schema(spec))


UNSTATED = {"weights": {"method": "measured", "settings": {"omega_seed": 1, "frequencies": 10}}}
"""Weights of which nobody says how many rows they weight."""


def test_the_declared_cost_is_part_of_the_total(workplace):
    plan = planned(workplace)
    assert [stage.name for stage in plan.stages] == [GENERATOR_STAGE, WEIGHTS_STAGE]
    assert plan.stages[0].events == (DeclaredEvent(epsilon=0.5, delta=1e-7),)
    assert 1 - 1e-3 < plan.composed["pld"] <= 1
    alone = accounting.epsilon(plan.stages[1].events, delta=9e-7)
    assert 0.5 <= alone < 0.6  # composed, ours gets a little more than the difference
    assert "made by sdg 1.2 at a cost declared by A. Curator, charged here" in plan_table(plan)


def test_what_a_stage_costs_alone_and_what_is_promised_of_it_are_told_apart(workplace):
    """The one is at the release's whole delta, the other at what the declared delta leaves."""
    plan = planned(workplace, delta=5e-7)
    events = plan.stages[1].events
    whole, rest = (accounting.epsilon(events, delta=delta) for delta in (1e-6, 5e-7))
    assert whole < 0.5 < rest
    lines = plan_table(plan).splitlines()
    declared, promised = [line for line in lines if "alone it would cost" in line]
    assert declared.endswith("epsilon=0.5")
    for told in (f"epsilon={whole:.4g} ", f"epsilon={rest:.6g}, at the delta=5e-07 "):
        assert told in promised


def forgetting(plan):
    """Plans that a declared cost is missing in, by what they say of themselves."""
    declared = [e for stage in plan.stages for e in stage.events if isinstance(e, DeclaredEvent)]
    counted = "paid by run" in plan_table(plan)
    return [] if counted or declared else ["declared and not charged"]


def test_a_declared_cost_that_is_not_charged_is_seen(workplace, monkeypatch):
    """The planted bug: the whole total goes to our own noise, and the rows cost nothing."""
    from dpiw.methods.generators.external import External

    assert forgetting(planned(workplace)) == []
    honest = planned(workplace).stages[1].events[0]
    monkeypatch.setattr(External, "events", lambda self, **facts: ())
    plan = planned(workplace)
    assert forgetting(plan) == ["declared and not charged"]
    assert plan.stages[1].events[0].noise_multiplier < 0.7 * honest.noise_multiplier  # type: ignore[union-attr]


def test_rows_may_go_without_weights_at_their_own_cost(workplace):
    top = {"epsilon": "0.1", "delta": "1e-6"}
    plan = planned(workplace, weights="none", top=top, epsilon="0.1", delta="1e-6")
    assert plan.composed["pld"] == 0.1
    assert plan.spec.cost.epsilon_units == 10**11


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epsilon": 1}, "epsilon=1"), ({"epsilon": 3}, "epsilon"), ({"delta": 1e-6}, "delta"),
        ({"weights": "none", "epsilon": 1.5}, "epsilon"),
        ({"weights": "none", "counted_by": "ab" * 32}, "nothing else is drawn"),
        ({"weights": "beta_noised"}, "beta_noised"), ({"weights": "dp_mlp"}, "dp_mlp"),
        ({"weights": "discriminator"}, "discriminator"), ({"relation": "replace_one"}, "relation"),
        ({"top": {"synthetic_rows": 401}, "weights": "none"}, "synthetic_rows=401"),
        ({"top": {"weights": {"method": "measured",
                              "settings": {"omega_seed": 1, "base_rows": 401}}}}, "base_rows=401"),
        ({"top": UNSTATED | {"synthetic_rows": 401}}, "synthetic_rows=401"),
        ({"sha256": "0" * 64}, "sha256"), ({"rows": "nowhere.parquet"}, "rows"),
        ({"rows": "data.csv"}, r"source\.path"),
        ({"rows": "state/workspace/town/ab/private/scaled.parquet"}, "workspace"),
        ({"rows": None}, "rows"), ({"tool": None}, "tool"), ({"epsilon": "1e400"}, "epsilon"),
        ({"relation": "replace_one", "rows_per_unit": 5, "top": {"relation": "replace_one"}},
         "rows_per_unit"),
        ({"top": {"relation": "replace_one"}, "delta": 0.9}, "settings.delta"),
    ],
)  # fmt: skip
def test_a_plan_is_refused_before_anything_happens(workplace, changes, told):
    with pytest.raises(SpecError, match=told):
        planned(workplace, **changes)


def test_a_file_of_few_rows_is_weighted_whole_and_the_plan_says_so(workplace):
    assert not planned(workplace).warnings  # `base_rows` is stated
    plan = planned(workplace, top=UNSTATED)
    (warning,) = plan.warnings
    assert "holds 400 rows" in warning
    assert f"warning: {warning}" in plan_table(plan)


def test_a_hundred_rows_are_the_least_that_are_weighted(workplace):
    path, top = workplace.root / "made.parquet", UNSTATED | {"synthetic_rows": 50}
    planned(workplace, top=top, sha256=written(path, rows_of_town(100)))
    digest = written(path, rows_of_town(99))
    with pytest.raises(SpecError, match="at least 100 rows"):
        planned(workplace, top=top, sha256=digest)
    planned(workplace, weights="none", top={"synthetic_rows": 50, "epsilon": "0.5"}, sha256=digest)


def test_rows_that_nobody_vouches_for_are_in_no_release(workplace):
    with pytest.raises(NotPublishableError):
        planned(workplace, epsilon="unknown")


def test_weights_that_are_not_worth_it_leave_no_budget_over(workplace):
    """Elsewhere the generator would get it; a file has no use for it."""
    top = {"epsilon": "0.001", "nominal_rows": 2, "delta": "1e-9"}
    with pytest.raises(SpecError):
        planned(workplace, top=top, epsilon="0.0009", delta="0")


def test_no_rehearsal_is_advised_where_there_can_be_none(workplace):
    """No stand-in population rehearses rows of the real one."""
    place = write_spec(workplace)
    spec = load_spec(place)
    with pytest.raises(SpecError):
        candidates(spec, load_schema(spec))
    table = plan_table(compile_plan(spec, load_schema(spec)))
    assert "forecast: resolution" in table
    assert "rehearse" not in table
    assert main(["rehearse", str(place)]) == SpecError.exit_code


def test_the_key_depends_on_the_rows_and_not_on_where_they_lie(workplace):
    def key(**changes):
        spec = load_spec(write_spec(workplace, **changes))
        return spec.run_key(load_schema(spec), "once")

    first = key()
    shutil.copy(workplace.root / "made.parquet", workplace.root / "moved.parquet")
    assert key(rows="moved.parquet") == first
    assert len({first, key(evidence="other"), key(epsilon=0.4), key(counted_by="ab" * 32)}) == 4
    digest = written(workplace.root / "made.parquet", rows_of_town(seed=4))
    assert key(sha256=digest) != first


def test_a_replace_one_release_pays_twice_for_add_or_remove(workplace):
    plan = planned(workplace, top={"relation": "replace_one", "epsilon": 2})
    (event,) = plan.stages[0].events
    assert (event.epsilon, plan.spec.cost.epsilon_units) == (1.0, 2 * 10**12)
    assert Decimal(repr(event.delta)) > Decimal("2e-7")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("group", "relation", "told"),
    [
        (None, "add_or_remove_one", ""), (1, "add_or_remove_one", "one value of pid"),
        (5, "add_or_remove_one", "under add_or_remove_one, that is epsilon=2.5,"),
        (1, "replace_one", "under replace_one, that is epsilon=1.0,"),
    ],
)  # fmt: skip
def test_the_sentence_that_a_total_rests_on_says_for_whom_it_holds(
    workplace, group, relation, told
):
    """What group privacy makes of a declaration for single rows depends on a bound that is told."""
    stated = planned(workplace).generator
    unit = PrivacyUnit(
        relation=NeighbouringRelation(relation), id_column=None if group is None else "pid"
    )
    generator = stated if group is None else replace(stated, rows_per_unit=group)
    sentence = declared_assumption(generator, unit)
    assert told in sentence
    cost = generator.declared(unit)
    assert (f"epsilon={cost.epsilon}, delta={cost.delta}." in sentence) == (cost.epsilon != 0.5)
