"""Codes from tables are those of the domain, for every number that there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpiw.data.discretisation import CodeTable, Domain
from dpiw.data.schema import Column, ColumnKind, PublicSchema, ScaledTable

KINDS = {
    "plain": Column(name="c", kind=ColumnKind.CONTINUOUS, lower=-3.0, upper=5.0),
    "nullable": Column(name="c", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True),
    "cuts": Column(name="c", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0,
                   cuts=(1e-9, 0.1, 0.1 + 1e-12, 0.1001, 0.5, 1 - 1e-12)),
    "whole": Column(name="c", kind=ColumnKind.INTEGER, lower=-7, upper=93),
    "wide": Column(name="c", kind=ColumnKind.INTEGER, lower=0, upper=10**9, nullable=True),
    "dates": Column(name="c", kind=ColumnKind.DATE, lower="1930-01-01", upper="2010-01-01"),
    "levels": Column(name="c", kind=ColumnKind.CATEGORICAL, levels=("a", "b", "c")),
    "missing": Column(name="c", kind=ColumnKind.CATEGORICAL, levels=("a", "b"), nullable=True),
}  # fmt: skip


def assert_same(column: Column, values: np.ndarray, bins: int) -> None:
    schema = PublicSchema(name="one", columns=(column,))
    domain = Domain.from_schema(schema, bins=bins)
    rows = ScaledTable({"c": values}, values.size)
    (line,) = CodeTable(domain=domain, columns=(0,)).lines(rows)
    assert np.array_equal(line, domain.codes(rows)[:, 0])


@pytest.mark.parametrize("bins", [1, 2, 7, 32, 64, 1000])
@pytest.mark.parametrize("name", KINDS)
def test_codes_change_at_the_same_numbers(name: str, bins: int) -> None:
    """At every edge, at every cell's end, next to both, beyond the box, and where none is."""
    column = KINDS[name]
    if not column.is_numeric:
        assert_same(column, np.array([-1, 0, 1, 2, 3, -5, 900], dtype=np.int32), bins)
        return
    domain = Domain.from_schema(PublicSchema(name="one", columns=(column,)), bins=bins)
    (held,) = domain.columns
    assert held.edges is not None
    span = held.span or 1
    edges = np.concatenate([held.edges / span, (held.edges - 0.5) / span, np.arange(257) / 256])
    near = [edges, np.nextafter(edges, -9.0), np.nextafter(edges, 9.0)]
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e300, -0.3, 1.3])
    assert_same(column, np.concatenate([*near, odd, np.random.default_rng(1).random(500)]), bins)


@given(
    name=st.sampled_from([name for name in KINDS if KINDS[name].is_numeric]),
    values=st.lists(st.floats(0.0, 1.0) | st.just(np.nan), min_size=1),
    bins=st.integers(1, 70),
)
def test_any_number_has_its_code(name: str, values: list[float], bins: int) -> None:
    assert_same(KINDS[name], np.array(values), bins)


def test_columns_are_lines_in_the_order_asked() -> None:
    names = ("plain", "levels", "whole", "missing")
    columns = tuple(
        Column.from_mapping({**KINDS[name].to_mapping(), "name": f"c{i}"})
        for i, name in enumerate(names)
    )
    schema = PublicSchema(name="four", columns=columns)
    domain = Domain.from_schema(schema, bins=5)
    rng = np.random.default_rng(2)
    rows = ScaledTable(
        {"c0": rng.random(50), "c1": rng.integers(0, 3, 50), "c2": rng.random(50),
         "c3": rng.integers(-1, 2, 50)},
        50,
    )  # fmt: skip
    lines = CodeTable(domain=domain, columns=(3, 0, 2)).lines(rows)
    assert np.array_equal(lines.T, domain.codes(rows)[:, [3, 0, 2]])
