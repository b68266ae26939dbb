"""The measures of a rehearsal, against slow twins."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance
from sklearn.linear_model import LogisticRegression, Ridge

from dpiw.data.schema import PublicSchema
from dpiw.plan.rehearsal.populations import KINDS, WeightedRows, random_law
from dpiw.plan.rehearsal.scores import MEASURES, PENALTY_PER_ROW, Scorer


def schema(*columns):
    return PublicSchema.from_mapping({"name": "s", "columns": list(columns)})


MIXED = schema(
    {"name": "x", "kind": "continuous", "lower": 0, "upper": 1, "nullable": True},
    {"name": "g", "kind": "categorical", "levels": ["a", "b", "c"]},
    {"name": "o", "kind": "ordinal", "levels": ["low", "middle", "high"]},
    {"name": "y", "kind": "boolean", "role": "target"},
)


def rows(own, count, seed, *, even=True, kind="strong"):
    rng = np.random.default_rng(seed)
    scaled = random_law(own, KINDS[kind], rng=rng).draw(count, rng=rng)
    weights = np.ones(count) if even else rng.random(count)
    return WeightedRows(scaled=scaled, weights=weights / weights.sum())


def scorer(own):
    return Scorer.of(own, rng=np.random.default_rng(0))


def test_a_table_is_at_no_distance_from_itself():
    own, table = scorer(MIXED), rows(MIXED, 300, 1)
    portrait = own.portrait(table)
    assert own.measures == tuple(MEASURES)
    assert all(value == 0 for value in own.distances(portrait, portrait).values())


def test_distances_equal_slow_twins():
    own = scorer(MIXED)
    one, two = rows(MIXED, 400, 1, even=False), rows(MIXED, 700, 2)
    found = own.distances(own.portrait(one), own.portrait(two))

    def share(table, column, level):
        return table.weights[table.scaled.columns[column] == level].sum()

    twin = sum(abs(share(one, "g", k) - share(two, "g", k)) for k in range(3)) / 2
    only = Scorer(schema=schema({"name": "g", "kind": "categorical", "levels": ["a", "b", "c"]}),
                  pairs=(), measures=("one_way",))  # fmt: skip
    assert only.distances(only.portrait(one), only.portrait(two))["one_way"] == pytest.approx(twin)

    distance = 0.0
    for name, top in (("x", 1), ("o", 2), ("y", 1)):
        cells = []
        for table in (one, two):
            values = table.scaled.columns[name] / top
            known = ~np.isnan(values)
            cells.append((values[known], table.weights[known]))
        (u, uw), (v, vw) = cells
        distance += wasserstein_distance(u, v, uw, vw)
    assert found["wasserstein"] == pytest.approx(distance, abs=3 / 1024)
    means = [table.weights @ MIXED.encode(table.scaled) for table in (one, two)]
    assert found["means"] == pytest.approx(np.linalg.norm(means[0] - means[1]))


def test_pairs_see_dependence_that_single_columns_do_not():
    table = rows(MIXED, 4000, 5)
    rng = np.random.default_rng(1)
    shuffled = WeightedRows(
        scaled=type(table.scaled)(
            {name: rng.permutation(values) for name, values in table.scaled.columns.items()}, 4000
        ),
        weights=table.weights,
    )
    own = scorer(MIXED)
    found = own.distances(own.portrait(shuffled), own.portrait(table))
    assert found["one_way"] == pytest.approx(0, abs=1e-12)
    assert found["two_way"] > 0.05
    assert found["coefficients"] > 0.1 * own.norms(own.portrait(table))["coefficients"]


@pytest.mark.parametrize(
    "target",
    [
        {"name": "t", "kind": "boolean", "role": "target"},
        {"name": "t", "kind": "continuous", "lower": 0, "upper": 5, "role": "target"},
        {"name": "t", "kind": "categorical", "levels": ["a", "b", "c"], "role": "target"},
        {"name": "t", "kind": "ordinal", "levels": ["a", "b", "c"], "role": "target",
         "nullable": True},
    ],
)  # fmt: skip
def test_coefficients_are_those_of_a_penalty_per_row(target):
    """docs/method.md section 8's trap: the same rows twice are the same fit; and scikit-learn's."""
    own = schema({"name": "x", "kind": "continuous", "lower": 0, "upper": 1},
                 {"name": "z", "kind": "integer", "lower": 0, "upper": 9}, target)  # fmt: skip
    table = rows(own, 300, 3, even=False)
    doubled = WeightedRows(
        scaled=type(table.scaled).concatenate([table.scaled, table.scaled]),
        weights=np.concatenate([table.weights, table.weights]) / 2,
    )
    found = scorer(own).portrait(table).coefficients
    assert np.allclose(found, scorer(own).portrait(doubled).coefficients, atol=2e-3)
    x = own.centred(table.scaled)[:, :2]
    t = table.scaled.columns["t"]
    if target["kind"] == "boolean":
        model = LogisticRegression(C=1 / (PENALTY_PER_ROW * 300), max_iter=5000)
        model.fit(x, t, sample_weight=table.weights * 300)
        twin = [*model.coef_[0], *model.intercept_]
    elif target["kind"] == "continuous":
        model = Ridge(alpha=PENALTY_PER_ROW).fit(x, t, sample_weight=table.weights)
        twin = [*model.coef_, model.intercept_]
    else:
        return
    assert np.allclose(found, twin, atol=1e-6)


def test_measures_without_meaning_are_left_out():
    lone = scorer(schema({"name": "g", "kind": "categorical", "levels": ["a", "b", "c"],
                          "role": "target"}))  # fmt: skip
    assert lone.measures == ("one_way", "means")
    wide = schema(*[{"name": f"f{i}", "kind": "boolean"} for i in range(40)])
    assert len(scorer(wide).pairs) == 300


def test_a_target_of_one_class_has_no_coefficients():
    table = rows(MIXED, 50, 1)
    flat = dict(table.scaled.columns) | {"y": np.zeros(50, dtype=np.int32)}
    portrait = scorer(MIXED).portrait(
        WeightedRows(scaled=type(table.scaled)(flat, 50), weights=table.weights)
    )
    assert not portrait.coefficients.any()


def test_one_class_with_uneven_weights_is_one_class():
    """Sums of weights in another order differ in the last bit, which is no second class."""
    table, rng = rows(MIXED, 500, 1), np.random.default_rng(5)
    ones = dict(table.scaled.columns) | {"y": np.ones(500, dtype=np.int32)}
    for _ in range(40):
        weights = rng.random(500)
        weights /= weights.sum()
        shown = WeightedRows(scaled=type(table.scaled)(ones, 500), weights=weights)
        assert not scorer(MIXED).portrait(shown).coefficients.any()
