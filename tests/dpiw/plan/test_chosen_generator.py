"""`generator: {method: auto}`: by public facts alone, and never one that a plan refuses."""

import dataclasses

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.generators import registry
from dpiw.methods.generators.registry import GENERATORS
from dpiw.plan import plan as plans
from dpiw.plan.json_schema import SCHEMAS
from dpiw.plan.plan import compile_plan, settled
from dpiw.plan.table import plan_table
from dpiw.run.certifiable import planned_facts
from tests.support.specs import SCHEMA, spec
from tests.support.worlds import declared

AUTO = {"method": "auto"}
NUMBER = {"kind": "continuous", "lower": 0, "upper": 1}
KINDS = {
    "number": NUMBER, "levels": {"kind": "categorical", "levels": ["a", "b", "c"]},
    "many bins": NUMBER | {"bins": 700_000}, "too many": NUMBER | {"bins": (1 << 20) + 1},
}  # fmt: skip
"""Columns; AIM refuses the third, MST the last too."""


def table(*kinds):
    return declared(*({"name": f"c{n}", **KINDS[kind]} for n, kind in enumerate(kinds)))


def chosen(*kinds, **changes):
    return compile_plan(spec(generator=AUTO, **changes), table(*kinds)).generator.method


def refused(found, schema, method):
    try:
        compile_plan(found.model_copy(update={"generator": found.with_generator(method).generator}),
                     schema)  # fmt: skip
    except (SpecError, PrivacyError):
        return True
    return False


@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    phases=[Phase.explicit, Phase.generate],
)
@given(
    kinds=st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=4),
    rows=st.sampled_from([10, 4000, 10**6]),
    epsilon=st.sampled_from(["1e-11", "1e-6", "1", "10"]),
    delta=st.sampled_from(["0", "1e-18", "1e-9"]),
    relation=st.sampled_from(["add_or_remove_one", "replace_one"]),
    weights=st.sampled_from(["none", "measured", "magic"]),
    order=st.permutations(registry.AUTOMATIC),
)
@example(  # no noise of MST costs so little
    kinds=["levels"] * 4, rows=5000, epsilon="1e-6", delta="1e-18", relation="add_or_remove_one",
    weights="none", order=registry.AUTOMATIC,
)  # fmt: skip
@pytest.mark.slow
def test_a_method_is_chosen_that_a_plan_admits_if_there_is_one(
    kinds, rows, epsilon, delta, relation, weights, order
):
    """Whatever the rule prefers: the first of its methods that could have been named."""
    schema = table(*kinds)
    found = spec(
        generator=AUTO, nominal_rows=rows, epsilon=epsilon, delta=delta, relation=relation,
        weights={"method": weights},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "preferred", lambda *_, **__: tuple(order))
        first = next((method for method in order if not refused(found, schema, method)), None)
        if first is None:
            with pytest.raises((SpecError, PrivacyError)):
                compile_plan(found, schema)
            return
        plan = compile_plan(found, schema)
    assert plan.generator.method == first
    named = spec(**found.model_dump(by_alias=True) | {"generator": {"method": first}})
    assert plan.digest == compile_plan(named, schema).digest


@pytest.mark.parametrize("rows", [10, 10**5, 10**9])
@pytest.mark.parametrize("kinds", [["number"], ["levels"] * 9, ["levels", "number"] * 30])
def test_the_rule_orders_all_methods_and_reads_public_facts_alone(kinds, rows):
    """Equal facts, equal order; a description, a provenance and a level's name are none."""
    schema = table(*kinds)
    first = registry.preferred(schema, nominal_rows=rows)
    assert sorted(first) == sorted(registry.AUTOMATIC)
    assert {*first} <= {*GENERATORS}
    again = [
        dataclasses.replace(column, description="another", provenance="law")
        for column in schema.columns
    ]
    other = dataclasses.replace(schema, columns=tuple(again))
    assert registry.preferred(other, nominal_rows=rows) == first


@pytest.mark.slow
def test_what_is_chosen():
    """AIM where it is fast and takes the table, numbers or levels; else PrivBayes."""
    assert chosen("number") == chosen("number", "number", "levels") == "aim"
    assert chosen("number", "levels") == chosen(*["levels"] * 5) == "aim"
    assert chosen("levels", delta="0") == "privbayes"
    assert chosen(*["levels"] * 3, "many bins") == "privbayes"
    assert chosen(*["levels"] * 3, nominal_rows=10**9, delta="1e-9") == "privbayes"
    for kind in ("levels", "number"):
        assert chosen(*[kind] * 28) == "aim"
        assert chosen(*[kind] * 40) == "privbayes"


def test_the_last_refusal_is_told():
    with pytest.raises(SpecError, match=r"weights\.method=magic"):
        chosen("levels", delta="0", weights={"method": "magic"})


def test_the_plan_and_what_it_promises_name_the_method(monkeypatch):
    auto, named = (
        compile_plan(spec(generator={"method": method}), SCHEMA) for method in ("auto", "aim")
    )
    assert auto.spec.generator.method == auto.stages[0].method == "aim"
    assert (auto.digest, auto.run_key("once")) == (named.digest, named.run_key("once"))
    assert planned_facts(auto, auto.generator, max_unpaid_reads=0)["generator"] == {
        "method": "aim", "settings": {},
    }  # fmt: skip
    assert '"auto"' not in str(auto.to_json())
    told = [line for line in plan_table(auto).splitlines() if "`auto`" in line]
    assert told == [
        "  generator       aim, by `auto`: 6 columns, 5000 nominal rows, `aim` about 24 s"
    ]
    assert "`auto`" not in plan_table(named)
    assert settled(named.spec, SCHEMA) is named.spec
    assert settled(spec(generator=AUTO), SCHEMA) == named.spec


@pytest.mark.parametrize("shares", [{}, {"shares": {"generator": 0.5, "weights": 0.5}}])
def test_the_split_is_the_weights_usual_one_or_as_stated(shares):
    found = spec(generator=AUTO, weights={"method": "measured"}, **shares)
    assert compile_plan(found, SCHEMA).spec.shares.weights == (0.5 if shares else 0.3)


def test_auto_has_no_settings():
    with pytest.raises(SpecError, match=r"generator.settings.bins: method: auto has no settings"):
        spec(generator=AUTO | {"settings": {"degree": 1, "bins": 8}})


def test_who_types_a_wrong_method_sees_auto():
    with pytest.raises(SpecError, match="did you mean 'auto'"):
        compile_plan(spec(generator={"method": "auot"}), SCHEMA)
    described = SCHEMAS["spec"]()["$defs"]["GeneratorSpec"]["properties"]["method"]["description"]
    assert "`auto`" in described
