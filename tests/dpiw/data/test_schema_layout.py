"""Scaled tables: round trips, projections, the layout of columns, norms."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.errors import SchemaError
from tests.dpiw.data.centred_bounds import reference_squared_norm, squared_diameter, squared_norm
from tests.dpiw.data.schema_example import (
    PROPERTY,
    SCHEMA,
    cells_of,
    conforming_frame,
    one_column,
    scaled_tables,
)
from tests.support.worlds import uniform_rows


@PROPERTY
@given(scaled_tables())
@pytest.mark.slow
def test_unscale_and_scale_are_identities(scaled):
    frame = SCHEMA.unscale(scaled)
    again = SCHEMA.scale(frame)
    assert again.equals(scaled)
    pd.testing.assert_frame_equal(SCHEMA.unscale(again), frame)
    encoded = SCHEMA.encode(scaled)
    assert encoded.shape == (scaled.rows, SCHEMA.width)
    assert ((encoded >= 0) & (encoded <= 1)).all()
    text = frame.astype(object).map(lambda cell: None if pd.isna(cell) else str(cell))
    assert SCHEMA.scale(text).equals(scaled)  # a CSV of the release reads back


@PROPERTY
@given(scaled_tables(wild=True))
@pytest.mark.slow
def test_any_scaled_table_unscales_to_declared_types_and_ranges(scaled):
    frame = SCHEMA.unscale(scaled)
    assert (frame.dtypes == conforming_frame().dtypes).all()
    assert frame["age"].dropna().between(0, 120).all()
    assert frame["x"].between(-1, 1.5).all()
    assert frame["seen"].notna().all()
    assert frame["grade"].isin(["lo", "mid", "hi"]).all()
    projected = SCHEMA.project(scaled)
    assert SCHEMA.project(projected).equals(projected)
    assert SCHEMA.scale(frame).equals(projected)


@PROPERTY
@given(st.integers(-(2**62), 2**62), st.integers(1, 2**53), st.floats(0, 1, exclude_max=True))
@pytest.mark.slow
def test_integers_are_exact_up_to_the_widest_range(lower, width, share):
    schema = one_column("integer", lower=lower, upper=lower + width)
    value = min(lower + int(share * width), lower + width)
    for cell in (value, lower, lower + width, lower + width - 1, lower + 1):
        frame = pd.DataFrame({"c": [cell]})
        scaled = schema.scale(frame)
        assert schema.unscale(scaled)["c"][0] == cell
        assert schema.encode(scaled)[0, 0] == scaled.columns["c"][0]
        assert cells_of(schema, [str(cell)]) == [cell]


@PROPERTY
@given(
    st.floats(-1e12, 1e12), st.floats(1e-3, 1e12), st.lists(st.floats(0, 1), min_size=1, max_size=9)
)
def test_continuous_grid_is_a_projection_close_to_the_value(lower, width, shares):
    upper = lower + width
    if upper - lower < 2.0**-31 * max(abs(lower), abs(upper)):
        return
    schema = one_column("continuous", lower=lower, upper=upper)
    values = np.clip(lower + np.array(shares) * width, lower, upper)
    scaled = schema.scale(pd.DataFrame({"c": values}))
    again = schema.unscale(scaled)
    assert schema.scale(again).equals(scaled)
    step = 10.0 ** -schema.column("c").released_decimals
    assert np.abs(again["c"] - values).max() <= step * 0.51 + 1e-15 * max(abs(lower), abs(upper))


def test_a_code_that_no_level_has_stays_in_its_column():
    (grade,) = (block for block in SCHEMA.blocks if block.column == "grade")
    scaled = uniform_rows(SCHEMA, 2, np.random.default_rng(7))
    codes = np.array([-1, grade.width], dtype=np.int32)  # `grade` is not nullable
    encoded = SCHEMA.encode(ScaledTable({**scaled.columns, "grade": codes}, 2))
    assert (encoded[:, grade.stop - 1] == 1).all()
    others = np.delete(encoded - SCHEMA.encode(scaled), np.r_[grade.start : grade.stop], axis=1)
    assert not others.any()


# Layout, norms
def test_names_of_the_layout():
    assert SCHEMA.encoded_names[:4] == ("age", "age:present", "age:missing", "x")
    assert "job=rest" in SCHEMA.encoded_names
    assert "job:missing" in SCHEMA.encoded_names
    assert SCHEMA.width == len(SCHEMA.encoded_names) == SCHEMA.blocks[-1].stop
    level = one_column("categorical", levels=("missing",), nullable=True)
    assert level.encoded_names == ("c=missing", "c:missing")


def _naive_centred(schema, scaled, row):
    features = []
    for column in schema.released:
        value = scaled.columns[column.name][row]
        if column.is_numeric:
            missing = math.isnan(value)
            features.append(0.0 if missing else value - 0.5)
            if column.nullable:
                features += [
                    (float(missing == flag) - 0.5) / math.sqrt(2) for flag in (False, True)
                ]
            continue
        labels = [*range(column.cardinality), *([-1] if column.nullable else [])]
        features += [(float(value == label) - 1 / len(labels)) / math.sqrt(2) for label in labels]
    return np.array(features)


@PROPERTY
@given(scaled_tables(least_rows=2))
def test_centred_norm_and_diameter_bounds_hold(scaled):
    centred = SCHEMA.centred(scaled)
    np.testing.assert_allclose(centred[0], _naive_centred(SCHEMA, scaled, 0), atol=1e-15)
    assert (centred**2).sum(axis=1).max() <= squared_norm(SCHEMA) * (1 + 1e-12)
    distances = ((centred[:, None, :] - centred[None, :, :]) ** 2).sum(axis=2)
    assert distances.max() <= squared_diameter(SCHEMA) * (1 + 1e-12)


def _corner(values, codes):
    columns = {}
    for column in SCHEMA.released:
        if column.is_numeric:
            columns[column.name] = np.array([values[column.nullable]])
        else:
            columns[column.name] = np.array([codes], dtype=np.int32)
    return ScaledTable(columns, 1)


@PROPERTY
@given(scaled_tables(least_rows=2))
def test_by_rows_and_by_columns_are_the_same_bits(scaled):
    """Also of numbers outside of the box, as a confidential table from elsewhere may hold them."""
    far = {
        name: np.resize([-0.0, -1e300, np.inf, 7.0], scaled.rows) if cells.dtype == float else cells
        for name, cells in scaled.columns.items()
    }
    for table in (scaled, ScaledTable(far, scaled.rows)):
        for of in (SCHEMA.encode, SCHEMA.centred):
            rows, columns = of(table), of(table, order="F")
            assert rows.flags.c_contiguous
            assert columns.flags.f_contiguous
            assert rows.tobytes() == np.ascontiguousarray(columns).tobytes()


def test_centred_bounds_are_attained():
    top = SCHEMA.centred(_corner((1.0, 1.0), 1))
    assert (top**2).sum() == pytest.approx(squared_norm(SCHEMA), rel=1e-12)
    bottom = SCHEMA.centred(_corner((0.0, math.nan), 0))  # nullable numeric: bound against missing
    distance = ((top - bottom) ** 2).sum()
    assert distance == pytest.approx(squared_diameter(SCHEMA), rel=1e-12)


def test_the_expected_norm_is_that_of_uniform_rows():
    schema = PublicSchema(
        name="s", columns=tuple(c for c in SCHEMA.released if not (c.is_numeric and c.nullable))
    )
    rows = uniform_rows(schema, 40_000, np.random.default_rng(11))
    # Relative standard error of the mean of 40,000 bounded squares below 0.005: 6 of them.
    found = (schema.centred(rows) ** 2).sum(axis=1).mean()
    assert found == pytest.approx(reference_squared_norm(schema), rel=0.03)


# ScaledTable
@PROPERTY
@given(scaled_tables())
def test_scaled_table_storage_and_rows(scaled):
    assert ScaledTable.from_arrow(scaled.to_arrow()).equals(scaled)
    assert scaled.to_arrow().schema.metadata is None
    half = scaled.rows // 2
    parts = [scaled.take(np.arange(half)), scaled.take(np.arange(half, scaled.rows))]
    assert ScaledTable.concatenate(parts).equals(scaled)
    mask = np.arange(scaled.rows) % 2 == 0
    assert scaled.take(mask).rows == mask.sum()


def test_scaled_table_refusals_and_sealed_repr():
    values = np.array([0.123456])
    table = ScaledTable({"a": values}, 1)
    assert "0.123" not in repr(table)
    assert not table.equals(ScaledTable({"b": values}, 1))
    with pytest.raises(SchemaError, match="column a"):
        ScaledTable({"a": values}, 2)
    with pytest.raises(SchemaError, match="different columns"):
        ScaledTable.concatenate([table, ScaledTable({"b": values}, 1)])
    with pytest.raises(SchemaError, match="column c: missing"):
        one_column("boolean").encode(table)
