"""A small town's columns of all kinds, and what the custodian's statement says of its cells."""

import pandas as pd
from hypothesis import settings
from hypothesis import strategies as st

from dpiw.data.cells.formats import CANONICAL, CellFormat
from dpiw.data.cells.reading import canonical_frame, settled_formats
from dpiw.data.cells.statement import CellTally, statement
from dpiw.data.schema.schema import PublicSchema
from tests.support.worlds import declared

SCHEMA = declared(
    {"name": "id", "role": "identifier"},
    {"name": "income", "kind": "continuous", "lower": 0, "upper": 5000, "decimals": 2},
    {"name": "n", "kind": "integer", "lower": -5, "upper": 5000, "nullable": True},
    {"name": "d", "kind": "date", "lower": "2020-01-01", "upper": "2024-12-31"},
    {"name": "t", "kind": "datetime", "lower": "2020-01-01", "upper": "2024-12-31",
     "time_zone": "Europe/Berlin", "nullable": True},
    {"name": "b", "kind": "boolean", "true_values": ["ja"], "false_values": ["nein"]},
    {"name": "c", "kind": "categorical", "levels": ["a", "Z"], "normaliser": "casefold"},
    {"name": "o", "kind": "ordinal", "levels": ["lo", "hi", "rest"], "other": "rest"},
    name="town",
)  # fmt: skip


def frame_of(**columns: list[str]) -> pd.DataFrame:
    """Text cells of some columns; the others are empty."""
    rows = max(map(len, columns.values()))
    return pd.DataFrame(
        {c.name: pd.Series(columns.get(c.name, [""] * rows), dtype="str") for c in SCHEMA.columns}
    )


def stated(
    frame: pd.DataFrame, written: CellFormat = CANONICAL, schema: PublicSchema = SCHEMA
) -> str:
    """The custodian's statement of a frame of text."""
    formats = settled_formats(schema, written, file_format="csv")
    tally = CellTally(schema)
    tally.add(frame, canonical_frame(frame, schema, formats))
    return statement(tally, formats=formats, kept=tally.rows)


PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=40)

GERMAN = CellFormat(
    decimal=",", thousands=".", date_format="%d.%m.%Y", datetime_format="%d.%m.%Y %H:%M",
    missing=("NA", "-9"),
)  # fmt: skip

TEXTS = st.one_of(
    st.none(),
    st.sampled_from([
        "", "  ", "NA", "-9", "nan", "inf", "-Infinity", "ja", "NEIN", "a", "z", "lo", "REST",
        "x", "1669,78", "1.669,78", "1669.78", "1.669", "5000,01", "5000.004", "4999,5",
        "5000,4", "-5,5", "-5.4", "1e3", "1E+400", ",5", "0", "31.12.2024", "01.01.2020 00:00",
        "31.12.2019 23:59", "2024-12-31", "2019-12-31T23:59:59", "31.02.2021",
        "2020-01-01 00:00", "9" * 30,
    ]),
    st.text("0123456789.,-", min_size=1, max_size=9),
)  # fmt: skip
