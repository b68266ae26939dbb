"""NIST's excerpt of the American Community Survey, national 2019: k-marginal score at epsilon 1.

    python benchmarks/nist.py --data FOLDER [--runs 10] [--tables ten all] [--methods aim ...]
    python benchmarks/nist.py --page

FOLDER holds acs_national2019.csv. Scores are those of NIST's SDNist 2.4, and of weighted rows by
their weights: over all pairs of columns, 1000 (1 - mean total variation), and a propensity error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import boards
import numpy as np
import pandas as pd
from metrics import Array, total_variation
from sklearn.tree import DecisionTreeClassifier
from study import ROOT, Store

from dpiw.data.schema.schema import PublicSchema, ScaledTable

FILE, SCHEMA = "acs_national2019.csv", "benchmarks/schemas/nist.yaml"
TEN = ("AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET",
       "DEYE")  # fmt: skip
"""NIST's demographic columns."""

DELTA = 1e-9
EACH = 5
"""Published rows for each confidential one: they are free, and their number is public."""

PARTS = 20
NUMBERS = ("AGEP", "PINCP", "POVPIP", "PWGTP", "WGTP")
"""Of these NIST compares `PARTS` parts of equal frequency in the real rows."""

RICH = 501
"""Code of POVPIP for incomes above five times the poverty line: a part by itself."""

DENSITY = (7, 12, 7, 7, 7, 11, 10, 7, 8, 8, 7, 8, 0, 9, 13, 13, 0, 0, 10, 10)
"""NIST's part of each area's density, in the order of the dictionary's areas."""

SAMPLES = (10, 20, 40, 90)
"""Per cent of the real rows, as bounds."""

PUBLISHED = (
    "NIST's own reports, ten columns, one release each: AIM of smartnoise 976, MST 958; samples of"
    " 10, 20, 40 and 90% of the rows 969, 977, 987 and 996."
)
ALL = (
    "The four-digit industry is not released, and, like the area, in no pair of NIST's; density"
    " follows from the area, in NIST's parts."
)
OTHERS = (
    "`smartnoise mst` spends the same total; AIM of smartnoise was not done in half an hour beside"
    " other work. `mbi` is the peer that weights: rows of our `privbayes` and the shares of"
    " `chosen`, all 45 pairs measured with equal noise, and 50 steps of"
    " `ReweightedDatasetEstimator`. How many steps it takes was chosen by the score, which reads"
    " the real rows: in one earlier run 50 steps scored 981.3, its default of 1,000 steps 978.2."
)
TITLES = {"k_marginal": "k-marginal", "propensity": "propensity error"}


@lru_cache(maxsize=2)
def truth(table: str, data: Path) -> tuple[PublicSchema, ScaledTable]:
    """Schema and rows of the ten columns, or of all."""
    schema = PublicSchema.from_yaml(ROOT / SCHEMA)
    if table == "ten":
        columns = tuple(column for column in schema.columns if column.name in TEN)
        schema = replace(schema, columns=columns)
    return schema, schema.scale(pd.read_csv(data / FILE, dtype=str, keep_default_na=False))


def values(schema: PublicSchema, rows: ScaledTable) -> dict[str, Array]:
    """Numbers, or numbers of levels, of every column; -1 where a cell is missing."""
    frame, found = schema.unscale(rows), {}
    for column in schema.released:
        if column.is_numeric:
            found[column.name] = frame[column.name].astype(float).fillna(-1e9).to_numpy()
        else:
            found[column.name] = rows.columns[column.name].astype(float)
    if "PUMA" in found:
        found["DENSITY"] = np.array(DENSITY, dtype=float)[found["PUMA"].astype(int)]
    return found


def ends(real: Array) -> Array:
    """The largest number of each of NIST's parts but the last."""
    common = pd.Series(real[(real > -1e9) & (real != RICH)])
    part = np.minimum(PARTS * common.rank(pct=True), PARTS - 1).astype(int)
    last = common.groupby(part).max().to_numpy()
    return last if (real == RICH).any() else last[:-1]


def codes(found: Mapping[str, Array], real: Mapping[str, Array]) -> np.ndarray:
    """NIST's codes of every column that its score counts, shape (rows, columns)."""
    columns = []
    for name in (name for name in found if name != "PUMA"):
        cut = ends(real[name]) if name in NUMBERS else np.unique(real[name])
        coded = np.searchsorted(cut, found[name])
        columns.append(np.where(found[name] == -1e9, len(cut) + 1, coded))
    return np.column_stack(columns)


def scores(found: Mapping[str, Array], w: Array, real: Mapping[str, Array]) -> dict[str, float]:
    """NIST's k-marginal score, and how well a tree of depth 6 tells the rows from real ones."""
    one, two = codes(found, real), codes(real, real)
    sizes = tuple(int(max(a.max(), b.max())) + 1 for a, b in zip(one.T, two.T, strict=True))
    _, pairs = total_variation(one, two, sizes, w)
    both = np.vstack([np.column_stack([*each.values()]) for each in (found, real)])
    is_made = np.arange(len(both)) < len(w)
    weight = np.append(w / w.sum(), np.full(len(two), 1 / len(two)))
    tree = DecisionTreeClassifier(max_depth=6, random_state=0).fit(both, is_made, weight)
    gap = tree.predict_proba(both)[:, 1] - 0.5
    return {
        "k_marginal": 1000 * (1 - pairs),
        "propensity": float(np.average(gap**2, weights=weight)),
    }


def compute(cell: boards.Cell, store: Store) -> dict[str, Any]:
    """The cell's scores: from the store, or made and kept."""

    def made() -> dict[str, Any]:
        schema, rows = truth(cell.table, store.data)
        real, verdict = values(schema, rows), None
        if cell.method == "real":
            order = np.random.default_rng(cell.run).permutation(rows.rows)
            tables = {
                f"sample, {share}%": (rows.take(order[: rows.rows * share // 100]), None)
                for share in SAMPLES
            }
        elif cell.method in boards.PEERS:
            tables = boards.by_peer(cell, schema, rows, delta=DELTA, each=EACH, folder=store.folder)
        else:
            tables, verdict = boards.released(cell, schema, rows, delta=DELTA, each=EACH)
        found = {
            use: scores(values(schema, some), np.ones(some.rows) if w is None else w, real)
            for use, (some, w) in tables.items()
        }
        return vars(cell) | {"metrics": found, "verdict": verdict}

    return store.kept(f"nist-{cell.name}", made, (store.data / FILE, ROOT / SCHEMA))


def page(record: Mapping[str, Any]) -> list[str]:
    """NIST's board: the page of a record."""
    text = [
        "# NIST's excerpt of the American Community Survey",
        "",
        f"`{record['command']}`, dpiw {record['dpiw']} ({record['commit']}). National sample of"
        f" 2019, 27,253 rows, epsilon 1, delta {DELTA}, add/remove one row; {EACH} rows published"
        " for each; every method at its defaults, but for `chosen`: the private choice of 30"
        " tables, and 70% of the effort for weights. k-marginal: 1000 (1 - mean total variation"
        f" over all pairs of columns), of {', '.join(NUMBERS)} in {PARTS} parts of equal frequency,"
        " as SDNist 2.4 has it. Propensity error: the mean squared distance of a tree's probability"
        " (depth 6, its own rows) from one half; all synthetic rows weigh as much as all real ones."
        " Weighted rows are scored by weights; resampled: a table drawn by them, without weights."
        " Mean ± standard error over runs.",
        "",
        PUBLISHED,
    ]
    for table, title in (("ten", "Ten demographic columns"), ("all", "All columns")):
        if any(cell["table"] == table for cell in record["cells"]):
            text += ["", f"## {title}", "", *boards.lines(record["cells"], table, TITLES)]
            text += ["", ALL if table == "all" else OTHERS]
    return text


if __name__ == "__main__":
    sys.exit(
        boards.main(
            sys.argv[1:], "nist", compute, page, ("ten", "all"), runs=10, peers=boards.PEERS
        )
    )
