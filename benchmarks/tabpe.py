"""Tab-PE's protocol: a classifier fitted on rows at epsilon 1, scored on rows held out.

    python benchmarks/tabpe.py --data FOLDER [--runs 3] [--tables adult ...] [--methods aim ...]
    python benchmarks/tabpe.py --page

FOLDER holds artificial_characters_*.csv, breast.csv and adult.csv. A run is a split: 70% of the
rows are confidential, 15% (validation) are left aside, 15% are predicted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any

import boards
import numpy as np
import pandas as pd
from metrics import Array, design
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score, f1_score
from study import ROOT, Store

from dpiw.data.schema.schema import PublicSchema, ScaledTable

PRIVATE, HELD_OUT = 0.7, 0.15
LEAF = 2
"""Rows of a leaf: real rows of `characters` then score what they do with Tab-PE's classifier."""


@dataclass(frozen=True)
class Source:
    """A table, and what its publisher reports of others on it: accuracies in per cent."""

    files: str
    schema: str
    published: str


SOURCES: Mapping[str, Source] = {
    "characters": Source(
        "artificial_characters_*.csv", "benchmarks/schemas/characters.yaml",
        "real 80.8, AIM 23.2, PrivMRF 13.6, RAP++ 33.3, PrivGSD 40.4, Tab-PE 49.4",
    ),
    "breast": Source(
        "breast.csv", "examples/breast-cancer-all/schema.yaml",
        "real 97.7, AIM 89.3, PrivMRF 60.4, RAP++ 84.8, PrivGSD 60.0, Tab-PE 88.5",
    ),
    "adult": Source(
        "adult.csv", "examples/adult/schema.yaml",
        "real 84.4, AIM 83.4, PrivMRF 83.2, RAP++ 80.9, PrivGSD 82.1, Tab-PE 82.2",
    ),
}  # fmt: skip
BOUND = (
    "Noise bounds `characters`: at epsilon 10 `privbayes`, chosen, is right in 54.6% of one split."
)
TITLES = {"accuracy": "accuracy, %", "f1": "macro F1, %"}


@lru_cache(maxsize=1)
def parts(table: str, run: int, data: Path) -> tuple[PublicSchema, ScaledTable, ScaledTable]:
    """Schema, confidential rows, and rows held out."""
    own = SOURCES[table]
    schema = PublicSchema.from_yaml(ROOT / own.schema)
    frames = [
        pd.read_csv(path, dtype=str, keep_default_na=False) for path in sorted(data.glob(own.files))
    ]
    rows = schema.scale(pd.concat(frames, ignore_index=True))
    order = np.random.default_rng(run).permutation(rows.rows)
    private, held = (int(share * rows.rows) for share in (PRIVATE, HELD_OUT))
    return schema, rows.take(order[:private]), rows.take(order[-held:])


def scores(
    schema: PublicSchema, rows: ScaledTable, w: Array, held: ScaledTable, run: int
) -> dict[str, float]:
    """Per cent right, and macro F1, of a random forest of weighted rows."""
    forest = RandomForestClassifier(min_samples_leaf=LEAF, random_state=run)
    x, y = design(schema, rows)
    forest.fit(x, y, w / w.mean())
    x, y = design(schema, held)
    predicted = forest.predict(x)
    return {
        "accuracy": 100 * accuracy_score(y, predicted),
        "f1": 100 * f1_score(y, predicted, average="macro"),
    }


def compute(cell: boards.Cell, store: Store) -> dict[str, Any]:
    """The cell's scores: from the store, or made and kept."""

    def made() -> dict[str, Any]:
        schema, rows, held = parts(cell.table, cell.run, store.data)
        if cell.method == "real":
            tables, verdict = {"confidential": (rows, np.ones(rows.rows))}, None
        else:
            delta = 1 / (rows.rows * log(rows.rows))
            tables, verdict = boards.released(cell, schema, rows, delta=delta)
        found = {use: scores(schema, some, w, held, cell.run) for use, (some, w) in tables.items()}
        return vars(cell) | {"metrics": found, "verdict": verdict}

    own = SOURCES[cell.table]
    files = (*sorted(store.data.glob(own.files)), ROOT / own.schema)
    return store.kept(f"tabpe-{cell.name}", made, files)


def page(record: Mapping[str, Any]) -> list[str]:
    """Tab-PE's board: the page of a record."""
    text = [
        "# Tab-PE's board: a classifier fitted on private rows",
        "",
        f"`{record['command']}`, dpiw {record['dpiw']} ({record['commit']}). Epsilon"
        f" {boards.EPSILON}, delta 1/(n ln n), add/remove one row; as many rows published as are"
        " confidential (n, 70%); every method at its defaults, but for `chosen`: the private choice"
        " of 30 tables (of frequencies for `characters`), and 70% of the effort for weights. A"
        f" random forest of scikit-learn, leaves of {LEAF} rows, stands in for Tab-PE's classifier:"
        " `real` bounds what it can score. Weighted rows enter it by weights; resampled: a table"
        " drawn by them, without weights. Mean ± standard error over splits, on the 15% held out."
        f" {BOUND}",
    ]
    for table, own in SOURCES.items():
        if any(cell["table"] == table for cell in record["cells"]):
            published = f"Published by Tab-PE, accuracy: {own.published}."
            text += ["", f"## {table}", "", published, ""]
            text += boards.lines(record["cells"], table, TITLES)
    return text


if __name__ == "__main__":
    sys.exit(boards.main(sys.argv[1:], "tabpe", compute, page, [*SOURCES], runs=3))
