from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpiw.data.schema import ScaledTable
from dpiw.errors import SpecError
from dpiw.methods.weights.features import FourierMap, InteractionMap, LinearMap, feature_map
from dpiw.methods.weights.geometry import blocks
from tests.dpiw.data.centred_bounds import reference_squared_norm, squared_diameter, squared_norm

MAPS = {
    "linear": LinearMap,
    "interactions": InteractionMap,
    "fourier": lambda schema: FourierMap(schema, 40, None, 7),
}


def corners(schema):
    """Every combination of extreme cells."""
    choices = []
    for column in schema.released:
        cells = [0.0, 1.0] if column.is_numeric else list(range(column.cardinality))
        if column.nullable:
            cells.append(np.nan if column.is_numeric else -1)
        choices.append(cells)
    combinations = np.array(list(itertools.product(*choices)))
    columns = {
        c.name: combinations[:, i] if c.is_numeric else combinations[:, i].astype(np.int32)
        for i, c in enumerate(schema.released)
    }
    return ScaledTable(columns, len(combinations))


def extremes(matrix):
    gaps = matrix[:, None, :] - matrix[None, :, :]
    return {
        "norm": np.sqrt((matrix**2).sum(axis=1)).max(),
        "l1_norm": np.abs(matrix).sum(axis=1).max(),
        "coordinate": np.abs(matrix).max(),
        "diameter": np.sqrt((gaps**2).sum(axis=2)).max(),
        "l1_diameter": np.abs(gaps).sum(axis=2).max(),
    }


@pytest.mark.parametrize("name", MAPS)
def test_bounds_hold_at_corners_and_inside(name, mixed, rows):
    feature_rows = MAPS[name](mixed)
    bounds = feature_rows.bounds
    inside = rows(mixed, 400, np.random.default_rng(3))
    for scaled in (corners(mixed), inside):
        matrix = feature_rows.matrix(scaled)
        assert matrix.shape == (scaled.rows, bounds.dimension)
        for field, value in extremes(matrix).items():
            assert value <= getattr(bounds, field) * (1 + 1e-12), field


def test_linear_bounds_are_attained_and_those_of_the_schema(mixed):
    bounds, attained = LinearMap(mixed).bounds, extremes(LinearMap(mixed).matrix(corners(mixed)))
    for field in ("norm", "diameter", "l1_norm"):
        assert attained[field] == pytest.approx(getattr(bounds, field), rel=1e-12), field
    assert bounds.norm**2 == pytest.approx(squared_norm(mixed) + 0.25)
    assert bounds.diameter**2 == pytest.approx(squared_diameter(mixed))
    assert bounds.reference_norm**2 == pytest.approx(reference_squared_norm(mixed) + 0.25)
    assert bounds.dimension == mixed.width + 1


@pytest.mark.parametrize("count", [1, 4, 13, 100])
def test_linear_bounds_on_numeric_columns_are_those_of_method_section_1(count, numeric):
    bounds = LinearMap(numeric(count)).bounds
    assert bounds.norm == pytest.approx(math.sqrt(count + 1) / 2)
    assert bounds.diameter == pytest.approx(math.sqrt(count))
    assert bounds.l1_norm == pytest.approx((count + 1) / 2)
    assert bounds.l1_diameter == pytest.approx(count)
    assert bounds.reference_norm == pytest.approx(math.sqrt(count / 12 + 0.25))


@pytest.mark.parametrize("target", [False, True])
@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_interaction_bounds_are_tight_on_numeric_columns(count, target, numeric):
    schema = numeric(count, target=target)
    attained = extremes(InteractionMap(schema).matrix(corners(schema)))
    bounds = InteractionMap(schema).bounds
    assert attained["norm"] == pytest.approx(bounds.norm)
    assert attained["l1_norm"] == pytest.approx(bounds.l1_norm)
    if target or count % 2:
        assert attained["diameter"] == pytest.approx(bounds.diameter)
    else:  # (d+1)/2 against the integer optimum sqrt(d(d+2))/2
        assert bounds.diameter == pytest.approx((count + 1) / 2)
        assert attained["diameter"] == pytest.approx(math.sqrt(count * (count + 2)) / 2)


def test_interactions_are_products_of_columns(numeric):
    schema = numeric(3)
    scaled = ScaledTable({f"x{i}": np.array([v]) for i, v in enumerate((0.0, 0.75, 1.0))}, 1)
    np.testing.assert_allclose(
        InteractionMap(schema).matrix(scaled)[0],
        [-0.5, 0.25, 0.5, 2 * -0.5 * 0.25, 2 * -0.5 * 0.5, 2 * 0.25 * 0.5, 0.5],
    )


def test_interactions_with_a_target_leave_out_pairs_of_features(numeric):
    dimensions = [InteractionMap(numeric(5, target=t)).bounds.dimension for t in (False, True)]
    assert dimensions == [5 + 10 + 1, 5 + 4 + 1]


def test_interactions_see_a_correlation_that_linear_features_cannot(numeric):
    rng = np.random.default_rng(4)
    x = rng.random(4000)
    y = np.where(rng.random(4000) < 0.5, x, rng.random(4000))
    scaled = ScaledTable({"x0": x, "x1": y}, 4000)
    free = ScaledTable({"x0": x, "x1": rng.permutation(y)}, 4000)
    schema = numeric(2)
    means = [InteractionMap(schema).matrix(table).mean(axis=0) for table in (scaled, free)]
    gap = means[0] - means[1]
    assert abs(gap[2]) > 0.05
    np.testing.assert_allclose(np.delete(gap, 2), 0, atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_reference_moments_match_simulated_uniform_rows(name, numeric, rows):
    schema = numeric(4, target=True)
    matrix = MAPS[name](schema).matrix(rows(schema, 60_000, np.random.default_rng(5)))
    eigenvalues = np.linalg.eigvalsh(np.cov(matrix.T))
    stated = np.sort(MAPS[name](schema).reference_eigenvalues())
    np.testing.assert_allclose(eigenvalues, stated, atol=0.003)
    reference = MAPS[name](schema).bounds.reference_norm
    assert np.sqrt((matrix**2).sum(1).mean()) == pytest.approx(reference, rel=0.01)


def test_fourier_eigenvalues_on_mixed_columns_match_simulation(mixed, rows):
    fourier = MAPS["fourier"](mixed)
    matrix = fourier.matrix(rows(mixed, 60_000, np.random.default_rng(6)))
    np.testing.assert_allclose(
        np.linalg.eigvalsh(np.cov(matrix.T)), fourier.reference_eigenvalues(), atol=0.003
    )


def test_fourier_rows_have_norm_one_and_approximate_the_gaussian_kernel(numeric, rows):
    schema = numeric(5)
    features = FourierMap(schema, 4000, 2.0, 11)
    scaled = rows(schema, 30, np.random.default_rng(7))
    matrix = features.matrix(scaled)
    np.testing.assert_allclose((matrix**2).sum(axis=1), 1, rtol=1e-12)
    z = schema.centred(scaled)
    squared = ((z[:, None] - z[None]) ** 2).sum(axis=2)
    # Monte Carlo error 1/sqrt(2 * 4000) = 0.011 per entry, 900 entries: 5 standard errors.
    np.testing.assert_allclose(matrix @ matrix.T, np.exp(-2.0 * squared), atol=0.056)


def test_fourier_frequencies_are_public_stable_and_gaussian(numeric):
    schema = numeric(5)
    first, again = FourierMap(schema, 2000, 2.0, 3).omega, FourierMap(schema, 2000, 2.0, 3).omega
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, FourierMap(schema, 2000, 2.0, 4).omega)
    # 10,000 entries: mean within 5 * 2/100, standard deviation within 5 * 2/141.
    assert abs(first.mean()) < 0.1
    assert first.std() == pytest.approx(2.0, abs=0.071)
    # A change here would change every released ratio that was made with this seed.
    np.testing.assert_allclose(FourierMap(numeric(1), 2, 1.0, 0).omega, PHILOX_0, rtol=1e-12)


def test_fourier_scale_rule_is_two_on_five_numeric_columns(numeric):
    assert FourierMap(numeric(5), 10, None, 0).scale == pytest.approx(2.0)
    assert FourierMap(numeric(20), 10, None, 0).scale == pytest.approx(1.0)


def test_blocks_have_the_layout_of_the_schema(mixed):
    assert blocks(mixed)[-1].stop == mixed.width
    assert [part.start for part in blocks(mixed)] == [0, 1, 3, 7, 10]


def test_one_level_carries_no_distance():
    from dpiw.data.schema import Column, ColumnKind, PublicSchema

    schema = PublicSchema(
        name="one", columns=(Column(name="c", kind=ColumnKind.CATEGORICAL, levels=("a",)),)
    )
    bounds = LinearMap(schema).bounds
    assert (bounds.norm, bounds.diameter) == (0.5, 0.0)


def test_unknown_map_and_missing_seed_are_refused(numeric):
    settings = {"frequencies": 4, "frequency_scale": None, "omega_seed": None}
    with pytest.raises(SpecError, match="features=cubic: expected one of linear"):
        feature_map("cubic", numeric(2), **settings)
    with pytest.raises(SpecError, match="omega_seed"):
        feature_map("fourier", numeric(2), **settings)


PHILOX_0 = [[2.2844414847774095, -1.5494507935122228]]
