"""Numbers of listed values: read as the nearest one, levels for codes, numbers for the analyst."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.analysis import mean
from dpiw.analysis.columns import levels
from dpiw.analysis.errors.law import played_sample
from dpiw.analysis.sample import WeightedSample
from dpiw.data.cells.counts import count_cells
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.discretisation import Domain, value_codes, value_points
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SchemaError
from dpiw.methods.recipe import play
from dpiw.plan.plan import compile_plan
from dpiw.privacy.randomness import SeededNoise
from tests.support.specs import spec
from tests.support.worlds import declared

COINSURANCE = [0, 25, 50, 95, 100]


@st.composite
def listed_columns(draw):
    """Also lists without gaps, or with gaps of two: there a bin has half a step."""
    whole = draw(st.booleans())
    size = {"min_size": 2, "max_size": 30, "unique": True}
    if whole:
        reach = draw(st.sampled_from([20, 40, 2**20]))
        values = draw(st.lists(st.integers(-reach, reach), **size))
    else:
        values = [v / 64 for v in draw(st.lists(st.integers(-(2**20), 2**20), **size))]
    kind = ColumnKind.INTEGER if whole else ColumnKind.CONTINUOUS
    nullable = draw(st.booleans())
    return Column(name="x", kind=kind, values=sorted(values), nullable=nullable)


NUMBERS = st.lists(
    st.floats(-1e13, 1e13) | st.sampled_from([np.nan, np.inf, -np.inf, 0.5]), min_size=1, max_size=9
)


@settings(derandomize=True, database=None, deadline=None, max_examples=150)
@given(column=listed_columns(), numbers=NUMBERS)
@pytest.mark.slow
def test_every_number_becomes_the_nearest_listed_one_and_is_its_code(column, numbers):
    schema = PublicSchema(name="listed", columns=(column,))
    if column.kind is ColumnKind.INTEGER:
        numbers = [x if not np.isfinite(x) else float(np.rint(x)) for x in numbers]
    scaled = schema.scale(pd.DataFrame({"x": numbers}))
    read = schema.unscale(scaled)["x"]
    values = np.asarray(column.values, dtype=np.float64)
    domain = Domain.from_schema(schema, bins=4)
    codes = domain.codes(scaled)[:, 0]
    assert domain.sizes == (len(values) + column.nullable,)
    assert value_codes(value_points(column), scaled.columns["x"]).tolist() == codes.tolist()
    for number, cell, code in zip(numbers, read, codes, strict=True):
        if np.isnan(number):
            assert pd.isna(cell) if column.nullable else cell == values[0]
            assert code == (len(values) if column.nullable else 0)
            continue
        assert cell == values[code]
        near = np.abs(values - np.clip(number, values[0], values[-1]))
        assert abs(cell - np.clip(number, values[0], values[-1])) <= near.min() * (1 + 1e-12)
    again = schema.scale(pd.DataFrame({"x": read}))
    assert np.array_equal(again.columns["x"], scaled.columns["x"], equal_nan=True)
    assert Column.from_mapping(column.to_mapping()) == column
    assert dataclasses.replace(column, description="a list") == dataclasses.replace(
        Column.from_mapping(column.to_mapping()), description="a list"
    )


@settings(derandomize=True, database=None, deadline=None, max_examples=50)
@given(column=listed_columns(), seed=st.integers(0, 2**32 - 1))
def test_a_drawn_code_is_its_value_in_the_published_row(column, seed):
    schema = PublicSchema(name="listed", columns=(column,))
    domain, rng = Domain.from_schema(schema, bins=16), np.random.default_rng(seed)
    codes = rng.integers(0, domain.sizes[0], (50, 1)).astype(np.int32)
    rows = SyntheticTable(schema=schema, scaled=domain.fill(codes, rng=rng))
    assert domain.codes(rows.scaled).tolist() == codes.tolist()
    known = [column.values[code] for code in codes[:, 0] if code < len(column.values)]
    assert schema.unscale(rows.scaled)["x"].dropna().tolist() == known


def test_of_two_equally_near_values_it_is_the_upper_one():
    schema = declared({"name": "x", "kind": "integer", "values": [0, 2, 10]})
    rows = schema.unscale(schema.scale(pd.DataFrame({"x": ["1", "6", "5", " 2.4 ", "-7", "1e9"]})))
    assert rows["x"].tolist() == [2, 10, 2, 2, 0, 10]


def test_values_beyond_what_doubles_hold_stay_apart():
    values = [2**63 - 808, 2**63 - 802, 2**63 - 1]
    schema = declared({"name": "x", "kind": "integer", "values": values})
    cells = [*map(str, values), str(2**63 - 806), str(2**63 - 805), str(2**70), "-1e30"]
    rows = schema.unscale(schema.scale(pd.DataFrame({"x": cells})))
    assert rows["x"].tolist() == [*values, values[0], values[1], values[2], values[0]]


def test_the_custodian_sees_how_many_cells_were_moved():
    column = Column(name="x", kind=ColumnKind.INTEGER, values=COINSURANCE, nullable=True)
    texts = pd.Series(["0", "25", "24", "95.0", "95.5", "101", "", "none", "1e2"], dtype="str")
    typed = pd.Series([0.0, 25.0, 24.0, 95.0, 95.5, 101.0, np.nan])
    for cells, unreadable in ((texts, 1), (typed, 0)):
        counts = count_cells(column, cells)
        assert (counts.rounded, counts.outside, counts.unreadable) == (2, 1, unreadable)
    real = dataclasses.replace(column, kind=ColumnKind.CONTINUOUS, values=(0, 0.5), lower=None,
                               upper=None)  # fmt: skip
    assert count_cells(real, pd.Series(["0.5", "0.25", "0"], dtype="str")).rounded == 1


BAD = [
    ({"values": [1]}, "values"), ({"values": [2, 1]}, "values"), ({"values": [1, 1]}, "values"),
    ({"values": [0, 0.5]}, "values"), ({"values": ["0", "1"]}, "values"),
    ({"values": [False, True]}, "values"), ({"values": 5}, "values"),
    ({"values": [0, 10**400]}, "values"), ({"values": [*range(1001)]}, "values"),
    ({"values": [0, 2**60]}, "lower/upper"), ({"values": [0, 1], "lower": 0}, "lower/upper"),
    ({"values": [0, 1], "bins": 2}, "bins"), ({"values": [0, 9], "cuts": [5]}, "cuts"),
    ({"values": [0, 1], "fill": 2}, "fill"),
    ({"values": [0, 1], "kind": "continuous", "decimals": 1}, "decimals"),
    ({"values": [0, float("nan")], "kind": "continuous"}, "values"),
    ({"values": [0, float("inf")], "kind": "continuous"}, "values"),
    ({"values": [0, 1e-12, 1], "kind": "continuous"}, "values"),
    ({"values": [2**53, 2**53 + 1, 2**53 + 2**28], "kind": "continuous"}, "values"),
    ({"values": [0, 1], "kind": "date"}, "values"),
    ({"values": [0, 1], "kind": "categorical"}, "values"),
    ({"values": [0, 1], "role": "identifier"}, "values"),
]  # fmt: skip


@pytest.mark.parametrize(("stated", "field"), BAD, ids=lambda value: repr(value)[:40])
def test_what_is_no_list_of_values_is_refused_by_its_field(stated, field):
    with pytest.raises(SchemaError) as caught:
        Column.from_mapping({"name": "x", "kind": "integer", **stated})
    assert caught.value.field == f"column x: {field}"


def test_a_constraint_names_no_listed_number():
    rule = {"name": "rule", "never": {"x": 25, "y": True}}
    with pytest.raises(SchemaError) as caught:
        PublicSchema.from_mapping({
            "name": "listed", "constraints": [rule],
            "columns": [{"name": "x", "kind": "integer", "values": COINSURANCE},
                        {"name": "y", "kind": "boolean"}],
        })  # fmt: skip
    assert caught.value.field == "constraint rule"


def test_an_analyst_has_numbers_and_groups_that_were_measured_as_levels():
    """Four groups within four standard errors of the truth: red by chance in 3 of 10,000 tries."""
    schema = declared(
        {"name": "visits", "kind": "integer", "lower": 0, "upper": 40},
        {"name": "rate", "kind": "continuous", "values": [0, 0.25, 0.5, 0.95]},
    )
    settings = {"method": "measured", "settings": {"frequencies": 10, "base_rows": 4000}}
    plan = compile_plan(
        spec(
            questions=[{"mean": "visits by rate"}], weights=settings, nominal_rows=8000,
            epsilon="2", synthetic_rows=4000,
            generator={"method": "histogram", "settings": {"bins": 8}},
        ),
        schema,
    )  # fmt: skip
    rng = np.random.default_rng(7)
    rate = rng.choice([0, 0.25, 0.5, 0.95], 8000, p=[0.4, 0.3, 0.2, 0.1])
    visits = rng.poisson(8 - 5 * rate).clip(0, 40)
    people = pd.DataFrame({"visits": visits, "rate": rate})
    private = PrivateTable(schema=schema, scaled=schema.scale(people))
    played = play(plan.recipe, private, noise=SeededNoise(8), rng=np.random.default_rng(9))
    sample = played_sample(played)
    assert set(sample.frame["rate"]) == {0, 0.25, 0.5, 0.95}
    found = mean(sample, "visits", by="rate").interval()
    truth = people.groupby("rate")["visits"].mean().to_numpy()
    error = (found.upper - found.lower) / 2 / 1.96
    assert (np.abs(found.values - truth) < 4 * error).all()
    alone = people.groupby("rate")["visits"].sem().to_numpy()
    assert np.median(error / alone) < 2


@pytest.mark.parametrize("kind", ["integer", "continuous"])
def test_groups_are_the_listed_values_however_many(kind):
    """More than other numbers may have, none that cannot occur, and one that no row has."""
    schema = declared({"name": "x", "kind": kind, "values": [*range(0, 120, 2)]})
    frame = schema.unscale(schema.scale(pd.DataFrame({"x": [*range(2, 120, 2)]})))
    sample = WeightedSample(frame=frame, weights=np.ones(len(frame)), schema=schema)
    assert levels(sample, "x").labels == tuple(range(0, 120, 2))
    assert levels(sample, "x").codes.tolist() == [*range(1, 60)]
