"""A schema with a column of every kind, and strategies for tables of it."""

import math

import numpy as np
import pandas as pd
from hypothesis import settings
from hypothesis import strategies as st

from dpiw.data.schema.schema import Column, ColumnKind, PublicSchema, ScaledTable
from tests.support.worlds import declared

PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=40)


def mapping():
    return {
        "name": "people",
        "columns": [
            {"name": "id", "role": "identifier"},
            {"name": "age", "kind": "integer", "lower": 0, "upper": 120, "nullable": True},
            {"name": "x", "kind": "continuous", "lower": -1.0, "upper": 1.5},
            {"name": "price", "kind": "continuous", "lower": 0, "upper": 100, "decimals": 2,
             "nullable": True},
            {"name": "employed", "kind": "boolean", "nullable": True},
            {"name": "citizen", "kind": "boolean", "fill": True},
            {"name": "job", "kind": "categorical", "levels": ["a", "b", "rest"], "other": "rest",
             "nullable": True},
            {"name": "grade", "kind": "ordinal", "levels": ["lo", "mid", "hi"], "role": "target"},
            {"name": "born", "kind": "date", "lower": "1900-01-01", "upper": "2020-12-31",
             "nullable": True},
            {"name": "seen", "kind": "datetime", "lower": "1900-01-01", "upper": "2020-12-31T10:00",
             "time_zone": "Europe/Berlin"},
        ],
    }  # fmt: skip


SCHEMA = PublicSchema.from_mapping(mapping())


def one_column(kind, **fields):
    return PublicSchema(name="one", columns=(Column(name="c", kind=ColumnKind(kind), **fields),))


def cells_of(schema, cells, dtype=object):
    frame = pd.DataFrame({"c": pd.Series(cells, dtype=dtype)})
    return schema.unscale(schema.scale(frame))["c"].tolist()


@st.composite
def scaled_tables(draw, schema=SCHEMA, least_rows=0, *, wild=False):
    """Admissible tables, or with any numbers and codes."""
    count = draw(st.integers(least_rows, 10))
    columns = {}
    for column in schema.released:
        if column.is_numeric:
            cell = st.floats(0, 1)
            if column.nullable:
                cell = st.one_of(cell, st.just(math.nan))
            cell, dtype = st.floats() if wild else cell, np.float64
        else:
            cell = st.integers(-1 if column.nullable else 0, column.cardinality - 1)
            cell, dtype = st.integers(-(2**31), 2**31 - 1) if wild else cell, np.int32
        values = draw(st.lists(cell, min_size=count, max_size=count))
        columns[column.name] = np.array(values, dtype=dtype)
    table = ScaledTable(columns, count)
    return table if wild else schema.project(table)


# Round trips and projections
def conforming_frame():
    moments = pd.to_datetime(["1899-12-31 23:00", "2000-01-01 00:00", "2020-12-31 09:00"], utc=True)
    return pd.DataFrame(
        {
            "age": pd.array([0, 120, None], dtype="Int64"),
            "x": [-1.0, 0.1, 1.5],
            "price": [0.01, math.nan, 99.99],
            "employed": pd.array([True, None, False], dtype="boolean"),
            "citizen": [True, False, True],
            "job": pd.Series(["a", None, "rest"], dtype="str"),
            "grade": pd.Series(["lo", "mid", "hi"], dtype="str"),
            "born": pd.Series(["1900-01-01", None, "2020-12-31"], dtype="datetime64[s]"),
            "seen": pd.Series(moments, dtype="datetime64[s, UTC]").dt.tz_convert("Europe/Berlin"),
        }
    )


def toy_schema(*, own_person=False, levels=("a", "b", "z")):
    """Three columns, the first of which names a person."""
    return declared(
        {"name": "id", "role": "identifier", "null_is_own_person": own_person},
        {"name": "n", "kind": "integer", "lower": 0, "upper": 9, "nullable": True},
        {"name": "c", "kind": "categorical", "levels": levels, "other": "z"},
        name="toy",
    )


TOY = toy_schema()
