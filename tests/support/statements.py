"""A small town's columns of all kinds, and what the custodian's statement says of its cells."""

from __future__ import annotations

import pandas as pd

from dpiw.data.cell_formats import CANONICAL, CellFormat, settled_formats
from dpiw.data.cell_reading import canonical_frame
from dpiw.data.cell_statement import CellTally, statement
from dpiw.data.schema import PublicSchema

SCHEMA = PublicSchema.from_mapping(
    {
        "name": "town",
        "columns": [
            {"name": "id", "role": "identifier"},
            {"name": "income", "kind": "continuous", "lower": 0, "upper": 5000, "decimals": 2},
            {"name": "n", "kind": "integer", "lower": -5, "upper": 5000, "nullable": True},
            {"name": "d", "kind": "date", "lower": "2020-01-01", "upper": "2024-12-31"},
            {"name": "t", "kind": "datetime", "lower": "2020-01-01", "upper": "2024-12-31",
             "time_zone": "Europe/Berlin", "nullable": True},
            {"name": "b", "kind": "boolean", "true_values": ["ja"], "false_values": ["nein"]},
            {"name": "c", "kind": "categorical", "levels": ["a", "Z"], "normaliser": "casefold"},
            {"name": "o", "kind": "ordinal", "levels": ["lo", "hi", "rest"], "other": "rest"},
        ],
    }
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
    return statement(tally, schema, formats, tally.rows)
