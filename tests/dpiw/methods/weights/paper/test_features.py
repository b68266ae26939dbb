from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpiw.data.schema import ScaledTable
from dpiw.methods.weights.geometry import blocks
from dpiw.methods.weights.paper.regression import LinearMap
from tests.dpiw.data.centred_bounds import reference_squared_norm, squared_diameter, squared_norm


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


def test_bounds_hold_at_corners_and_inside(mixed, rows):
    feature_rows = LinearMap(mixed)
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


def test_reference_moments_match_simulated_uniform_rows(numeric, rows):
    schema = numeric(4, target=True)
    matrix = LinearMap(schema).matrix(rows(schema, 60_000, np.random.default_rng(5)))
    eigenvalues = np.linalg.eigvalsh(np.cov(matrix.T))
    stated = np.sort(LinearMap(schema).reference_eigenvalues())
    np.testing.assert_allclose(eigenvalues, stated, atol=0.003)
    reference = LinearMap(schema).bounds.reference_norm
    assert np.sqrt((matrix**2).sum(1).mean()) == pytest.approx(reference, rel=0.01)


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
