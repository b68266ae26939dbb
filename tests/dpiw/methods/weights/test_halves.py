"""A number's people in halves, beside heaps and few whole numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.analysis.errors.law import played_sample
from dpiw.analysis.estimators.quantiles import quantile
from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.recipe import play
from dpiw.methods.weights.measured.features import Stack
from dpiw.methods.weights.measured.halves import cuts_of
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.questions import HALVES, Term
from dpiw.plan.plan import compile_plan
from dpiw.privacy.randomness import SeededNoise
from tests.support.specs import spec
from tests.support.worlds import declared


@pytest.mark.slow
def test_a_heap_at_the_lower_bound_leaves_other_quantiles_narrow():
    """Six in ten have none; nobody is below, so that the first halves have one side alone."""
    schema = declared(
        {"name": "drinks", "kind": "integer", "lower": 0, "upper": 1000, "cuts": [1]},
        {"name": "g", "kind": "categorical", "levels": ["a", "b"]}, name="drinkers",
    )  # fmt: skip
    chosen = {"frequencies": 10, "base_rows": 4000}
    weights = {"method": "measured", "when_infeasible": "keep", "settings": chosen}
    asked = spec(
        epsilon="2", nominal_rows=20_000, synthetic_rows=4000, weights=weights,
        generator={"method": "histogram", "settings": {"bins": 8}},
        questions=[{"quantiles": "drinks"}],
    )  # fmt: skip
    plan = compile_plan(asked, schema)
    rng = np.random.default_rng(1)
    drinks = np.where(rng.random(20_000) < 0.6, 0, np.rint(rng.gamma(2, 60, 20_000)).clip(1, 1000))
    people = ScaledTable(
        {"drinks": drinks / 1000, "g": rng.integers(0, 2, 20_000).astype(np.int32)}, 20_000
    )
    private = PrivateTable(schema=schema, scaled=people)
    sample = played_sample(play(plan.recipe, private, noise=SeededNoise(1), rng=rng))
    for p in (0.65, 0.75, 0.9):
        interval = quantile(sample, "drinks", p).interval()
        assert interval.upper - interval.lower < 80  # of 1000; with lost halves up to 863
        assert interval.lower - 5 <= np.quantile(drinks, p) <= interval.upper + 5
    bottom = quantile(sample, "drinks", 0.1).interval()  # the heap is well known
    assert bottom.verdicts == ("use",)
    assert bottom.values == bottom.lower == 0


@given(st.floats(0, 0.9), st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from([0, 7, 900]),
       st.integers(0, 2**32))  # fmt: skip
@settings(max_examples=40, deadline=None)
@pytest.mark.slow
def test_halves_hold_equally_many_rows_beside_a_heap_or_few_whole_numbers(
    share, heap, values, seed
):
    """Every half that the rows split has a feature that no others give; the rest are zero."""
    schema = declared({"name": "x", "kind": "continuous", "lower": 0, "upper": 1})
    rng = np.random.default_rng(seed)
    cells = np.where(rng.random(6000) < share, heap, rng.random(6000) ** 2)
    cells = np.rint(cells * values) / values if values else cells
    rows = ScaledTable({"x": cells}, 6000)
    key = Term(factors=(("x", HALVES),)).key
    ranges = Ranges(bounds={}, cuts={"x": cuts_of(cells)})
    stack = Stack(schema=schema, shares={key: 1.0}, ranges=ranges)
    features = stack.matrix(rows)
    live = features.std(axis=0) > 0
    assert (features[:, ~live] == 0).all()
    assert np.linalg.matrix_rank(features[:, live] - features[:, live].mean(axis=0)) == live.sum()
    ((_, halves),) = stack.halves_of(rows, np.zeros(stack.dimension))
    pairs = {*zip(cells.tolist(), halves.tolist(), strict=True)}
    counts = np.bincount(halves)
    assert len({value for value, _ in pairs}) == len(pairs)  # a value is in one half
    most = np.unique(cells, return_counts=True)[1].max()
    assert counts.max() <= most + 2 * 6000 / 128
    assert (halves > 1).all() or len(pairs) == 1
