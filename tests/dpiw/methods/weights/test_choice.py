"""A private choice of the blocks that the sum of `measured` weights has (method.md section 14)."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.analysis.errors.law import played_sample
from dpiw.analysis.estimators.means import mean
from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.errors import ReleaseError, SpecError
from dpiw.methods.recipe import play
from dpiw.methods.weights.measured import choice
from dpiw.methods.weights.measured.choice import Chosen, chosen_blocks, score_sensitivity
from dpiw.methods.weights.measured.features import ROOM, Stack
from dpiw.methods.weights.measured.fourier import Waves
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.measured.scoring import Scoring
from dpiw.plan.plan import compile_plan
from dpiw.privacy import accounting
from dpiw.privacy.events import ExponentialMechanismEvent
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.weights.measuring import base_of, private
from tests.proof.neighbours import extreme_rows
from tests.support import specs
from tests.support.worlds import ADD, REPLACE, UNIT, declared, levels, mixed, numbers, unit_of

EVERY_KIND = declared(
    {"name": "age", "kind": "integer", "lower": 18, "upper": 95},
    {"name": "pay", "kind": "continuous", "lower": 0, "upper": 9, "nullable": True, "cuts": [1, 4]},
    {"name": "born", "kind": "date", "lower": "1950-01-01", "upper": "2000-01-01"},
    {"name": "rate", "kind": "continuous", "values": [0, 0.25, 0.5], "nullable": True},
    {"name": "kids", "kind": "integer", "lower": 0, "upper": 3},
    {"name": "one", "kind": "categorical", "levels": ["only"]},
    {"name": "plan", "kind": "ordinal", "levels": ["a", "b", "c"], "nullable": True},
    {"name": "ill", "kind": "boolean", "role": "target"},
)
SCHEMAS = [EVERY_KIND, mixed(), numbers(6, nullable=True), levels(4, nullable=True)]
ASKED = '["plan", "ill"]'


def room_for(schema, chosen, *, seed=5, **shares):
    return Stack(schema=schema, shares=shares or {ROOM: 1.0}, omega_seed=seed).with_chosen(chosen)


@st.composite
def some_blocks(draw):
    """A schema, and blocks within the room for them."""
    schema = draw(st.sampled_from(SCHEMAS))
    every = Chosen.candidates(schema)
    places = draw(st.lists(st.integers(0, every.count - 1), unique=True, max_size=20))
    while sum(every.taken(places).widths(schema)) > choice.MOST_CHOSEN:
        places.pop()
    return schema, every.taken(places)


@settings(max_examples=40)
@given(some_blocks(), st.floats(0.01, 30), st.floats(0.01, 30), st.integers(0, 99))
@pytest.mark.slow
def test_chosen_blocks_have_the_norm_and_the_room_that_were_paid(blocks, room, beside, seed):
    schema, chosen = blocks
    assert Chosen.from_json(json.loads(json.dumps(chosen.to_json())), schema) == chosen
    assert len({Chosen.term(pair, schema).key for pair in chosen.tables}) == len(chosen.tables)
    shares = {"linear": beside, ROOM: room} | ({ASKED: beside} if schema is EVERY_KIND else {})
    before = Stack(schema=schema, shares=shares, omega_seed=seed)
    after = before.with_chosen(chosen)
    assert after.norm <= before.norm
    assert after.norm == pytest.approx(before.norm, rel=1e-11) or not chosen.count
    both = ASKED in shares and ("plan", "ill") in chosen.tables  # a table that is asked for as well
    more = sum(chosen.widths(schema)) - both * 8
    assert after.dimension == before.dimension - choice.MOST_CHOSEN + more
    assert after.asked.size == before.asked.size
    rng = np.random.default_rng(seed)
    rows, theta = extreme_rows(schema, 30, rng), rng.standard_normal(after.dimension)
    features = after.matrix(rows)
    assert np.linalg.norm(features, axis=1).max() <= before.norm * (1 + 1e-12)
    scores = Scoring(stack=after)(theta)(rows, None).scores
    np.testing.assert_allclose(scores, features @ theta, atol=1e-9)


PAIR, BUNDLE = ["age", "ill"], [2.0, 1]


@pytest.mark.parametrize("stated", [
    None, 3, "age", [], {}, {"tables": [PAIR]}, {"tables": 1, "bundles": []},
    *({"tables": [PAIR], "bundles": [], "norms": norms} for norms in ("equal", None)),
    *({"tables": tables, "bundles": []} for tables in (
        [PAIR, PAIR], [PAIR[::-1]], [["age", "age"]], [["age", "one"]], [["age", "no"]], [["age"]],
        [[*PAIR, "born"]], [[["age"], "ill"]], [None])),
    *({"tables": [], "bundles": bundles} for bundles in (
        [BUNDLE, BUNDLE], [[2.5, 1]], [[2.0, 6]], [[2.0, -1]], [[2.0, 1.0]], [[2.0, "1"]],
        [[2.0]], [[math.nan, 1]], [[10**400, 1]], [[2.0, [1]]], [[2.0, None]],
        [[s, j] for s in (2.0, 3.0) for j in range(4)])),  # too many features
])  # fmt: skip
def test_other_facts_are_refused(stated):
    good = Chosen(tables=(tuple(PAIR),), bundles=(tuple(BUNDLE),)).to_json()
    assert Chosen.from_json(good, EVERY_KIND).count == 2
    if isinstance(stated, dict):
        stated = {"norms": good["chosen"]["norms"]} | stated
    with pytest.raises(ReleaseError, match="chosen"):
        Chosen.from_json({"chosen": stated}, EVERY_KIND)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_scores_are_of_the_features_that_the_sum_has(schema):
    """Beside tables of few cells, and rows out of the box, as no ingest has them."""
    every, rows = Chosen.candidates(schema), extreme_rows(schema, 60, np.random.default_rng(3))
    for cells in rows.columns.values():
        cells[5:8] = [np.inf, -3.0, 1e300] if cells.dtype.kind == "f" else cells[5:8]
    waves = room_for(schema, Chosen(bundles=every.bundles)).waves
    table = PrivateTable(schema=schema, scaled=rows)
    sums, count = choice._summed(every, waves, Ranges(bounds={}), table)
    assert every.tables
    assert count == 60
    step = 60 * 0.0017 / math.sqrt(choice.FREQUENCIES)  # a phase may lie in the next step
    for place, (total, width) in enumerate(zip(sums, every.widths(schema), strict=True)):
        one = room_for(schema, every.taken([place]))
        assert one.dimension == total.size == width <= choice.MOST_CELLS
        near = 1e-9 if place < len(every.tables) else step
        np.testing.assert_allclose(total, one.matrix(rows).sum(axis=0), atol=near)


def chosen_of(schema, *, count, epsilon, scale, seed=1):
    return chosen_blocks(
        Chosen.candidates(schema), private(schema, 50), base_of(schema, 50), count=count,
        epsilon=epsilon, ranges=Ranges(bounds={}), omega_seed=1, scale=scale, unit=UNIT,
        noise=SeededNoise(seed),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_no_more_features_are_chosen_than_there_is_room_for(seed):
    schema = numbers(6)
    total = sum(chosen_of(schema, count=64, epsilon=1e-3, scale=1.0, seed=seed).widths(schema))
    assert choice.MOST_CHOSEN - min(Chosen.candidates(schema).widths(schema)) < total
    assert total <= choice.MOST_CHOSEN


def test_no_private_row_makes_a_choice_fail():
    """Scores are cut to what the lattice of a selection holds, whatever its epsilon."""
    assert chosen_of(mixed(), count=2, epsilon=1e9, scale=1e-9).count == 2


@pytest.mark.parametrize("unit", [unit_of(r, k) for r in (ADD, REPLACE) for k in (1, 10**6)])
def test_the_rounding_of_every_row_of_a_person_is_paid(unit):
    rows = unit.max_rows * (2 if unit.relation is REPLACE else 1)
    frequencies = 2 * choice.FREQUENCIES * len(Chosen.candidates(mixed()).bundles)
    assert score_sensitivity(unit) - rows >= rows * math.sqrt(frequencies) * choice.UNIT / 2


def test_a_bundle_has_the_frequencies_of_its_own_seed():
    chosen, seed = Chosen(bundles=((1.5, 2), (3.0, 0), (3.0, 5))), 2**64 - 2
    alone = [
        Waves(schema=mixed(), frequencies=choice.FREQUENCIES, scales=(scale,), omega_seed=own)
        for (scale, _), own in zip(chosen.bundles, chosen.seeds(seed), strict=True)
    ]
    together = room_for(mixed(), chosen, seed=seed).waves.omega
    assert np.array_equal(together, np.hstack([waves.omega for waves in alone]))
    assert len({7, *Chosen.candidates(mixed()).seeds(7)}) == 25


def plan_of(schema, settings, **changes):
    made = {"method": "histogram", "settings": {"bins": 8}}
    weights = {"method": "measured", "when_infeasible": "keep", "settings": settings}
    asked = {"nominal_rows": 2000, "synthetic_rows": 1000, "generator": made, "weights": weights}
    return compile_plan(specs.spec(**asked, **changes), schema)


@pytest.mark.parametrize(("settings", "schema"), [
    *((given, mixed()) for given in (
        {"choose": -1}, {"choose": 65}, {"choose": True}, {"choose": 2.5}, {"selection": 1.0},
        {"choose": 4, "features": {"fourier": 1.0}}, {"features": {"chosen": 1.0}})),
    ({"choose": 2}, declared({"name": "a", "kind": "boolean"})), ({"choose": 2}, numbers(200)),
])  # fmt: skip
def test_settings_without_a_choice_are_refused_before_data_is_read(settings, schema):
    with pytest.raises(SpecError):
        plan_of(schema, settings)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_a_plan_pays_for_every_choice_within_its_epsilon(relation):
    plan = plan_of(EVERY_KIND, {"choose": 5, "features": {"chosen": 2.0}}, relation=relation)
    events = [event for stage in plan.stages for event in stage.events]
    selections = [e for e in events if isinstance(e, ExponentialMechanismEvent)]
    assert [event.count for event in selections] == [5]
    assert selections[0].epsilon == plan.recipe.weights.selection > 0
    assert 0.9 < accounting.epsilon(events, delta=1e-6) <= 1
    assert plan.recipe.weights.calibrated.norm == 2.0  # the share of the blocks, as stated


@pytest.mark.parametrize("unit", [UNIT, unit_of(ADD, 3)])
def test_the_table_that_differs_most_is_chosen(unit):
    """Its score lies 400 of 1,000 rows above all others: one of them wins with under 1e-9."""
    schema, codes = levels(6), np.random.default_rng(8).integers(0, 3, (1000, 6), dtype=np.int32)
    codes[:, 1] = codes[:, 0]
    people = ScaledTable({f"c{j}": codes[:, j] for j in range(6)}, 1000)
    table, rho = PrivateTable(schema=schema, scaled=people), 0.5 * unit.max_rows**2
    ready = Measured(choose=1).calibrate(rho=rho, schema=schema, unit=unit, nominal_rows=1000)
    for seed in range(5):
        drawn = ready.measure(table, base_of(schema, 3000), noise=SeededNoise(seed))
        assert drawn.facts["chosen"] == Chosen(tables=(("c0", "c1"),)).to_json()["chosen"]


@pytest.mark.slow
def test_intervals_of_a_release_with_a_choice_hold_the_truth():
    """30 releases; of intervals of 95% fewer than 24 hold it with probability 0.0001."""
    three = {"kind": "categorical", "levels": ["a", "b", "c"]}
    number = {"name": "x", "kind": "continuous", "lower": 0, "upper": 1}
    schema = declared(number, {"name": "g", **three}, {"name": "h", **three}, name="town")
    plan, held = plan_of(schema, {"choose": 2, "base_rows": 2000}), 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        g = rng.integers(0, 3, 2000, dtype=np.int32)
        x = np.clip(0.3 + 0.2 * g + 0.1 * rng.standard_normal(2000), 0, 1)
        table = PrivateTable(schema=schema, scaled=ScaledTable({"x": x, "g": g, "h": g}, 2000))
        played = play(plan.recipe, table, noise=SeededNoise(seed), rng=rng)
        assert len(played.weights.facts["measured"]["chosen"]["tables"]) == 2
        interval = mean(played_sample(played), "x").interval()
        held += interval.lower[0] <= 0.5 <= interval.upper[0]
    assert held >= 24
