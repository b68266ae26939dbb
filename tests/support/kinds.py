"""Every kind of column through every method: what is expected, and the table that the docs show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpiw.data.schema.schema import PublicSchema
from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS

_PAST, _NEVER = "1900-01-01T03:00", "2199-12-31"
MANY = tuple(f"code {number}" for number in range(10_000))
_WIDE = r"{method}: a row of this schema is 20\d{{3}} numbers; expected at most 8192: group a"
_PRODUCTS = "features on this schema; expected at most 8192: .* or name `fourier` features alone"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One row of the table: what the docs say, and a column but for `name` and `nullable`.

    `dtypes`: of the released cells, without and with missing ones. `cells`: raw, drawn from again
    and again. `refused`: what a plan says, by method; what the dictionary's reader says, `schema`.
    """

    said: str
    declared: Mapping[str, Any]
    dtypes: tuple[str, str]
    cells: tuple[Any, ...]
    refused: Mapping[str, str]

    def schema(self) -> PublicSchema:
        """Such a column, one more that may be missing, and a target."""
        columns = [
            {"name": "full", **self.declared},
            {"name": "gaps", "nullable": True, **self.declared},
            {"name": "y", "kind": "boolean", "role": "target"},
        ]
        return PublicSchema.from_mapping({"name": "kinds", "columns": columns})

    def frame(self, rows: int) -> pd.DataFrame:
        """Raw cells of that schema; every third of `gaps` is missing."""
        cells = pd.Series(np.resize(np.array(self.cells, dtype=object), rows), dtype=object)
        gaps = cells.mask(np.arange(rows) % 3 == 0, None)
        return pd.DataFrame({"full": cells, "gaps": gaps, "y": np.arange(rows) % 2 == 0})


def _kind(
    said: str,
    dtype: str,
    cells: tuple[Any, ...],
    *,
    nullable: str = "",
    refused: Mapping[str, str] | None = None,
    **declared: Any,
) -> Kind:
    dtypes, known = (dtype, nullable or dtype), {"levels": _LISTED}
    return Kind(
        said=said, declared=declared, dtypes=dtypes, cells=cells, refused=refused or known
    )  # fmt: skip


METHODS = (*GENERATORS, *WEIGHTS)

_LISTED = "generator.method=levels: finds the levels of `unseen` columns"
_UNSEEN = "column full is declared `unseen: true`, and this method needs its levels"
_NARROW = {"privbayes", "histogram", "mst", "aim", "bayes", "external", "levels"}
_DENSE = (*(set(GENERATORS) - _NARROW), *(set(WEIGHTS) - {"discriminator"}))
_TOO_WIDE = {method: _WIDE.format(method=method) for method in _DENSE} | {
    "measured": _PRODUCTS, "discriminator": _WIDE.format(method="dpgan"), "levels": _LISTED,
}  # fmt: skip

KINDS = {
    "continuous": _kind(
        "`continuous`", "float64", (0.1, 12.5, -1.0, 3e9), kind="continuous", lower=0, upper=10
    ),
    "integer": _kind(
        "`integer`", "int64", (0, 7, 99, 10**30), nullable="Int64",
        kind="integer", lower=-5, upper=99,
    ),
    "boolean": _kind("`boolean`", "bool", (True, False), nullable="boolean", kind="boolean"),
    "categorical": _kind(
        "`categorical`", "str", ("a", "b", "unheard"), kind="categorical", levels=["a", "b", "c"]
    ),
    "ordinal": _kind(
        "`ordinal`", "str", ("low", "high"), kind="ordinal", levels=["low", "mid", "high"]
    ),
    "date": _kind(
        "`date`", "datetime64[s]", ("1899-12-31", "1969-12-31", "2199-01-01"),
        kind="date", lower="1900-01-01", upper=_NEVER,
    ),
    "datetime": _kind(
        "`datetime`", "datetime64[s, UTC]", ("1960-02-29T12:00", "2024-03-31T02:30+02:00"),
        kind="datetime", lower=_PAST, upper=_NEVER,
    ),
    "zoned": _kind(
        "`datetime` with a `time_zone`", "datetime64[s, Europe/Berlin]",
        ("1960-02-29T12:00", "2024-03-31T02:30", "2199-06-01T00:00Z"),
        kind="datetime", lower=_PAST, upper=_NEVER, time_zone="Europe/Berlin",
    ),
    "buckets": _kind(
        "`categorical`, `hash_buckets`", "str", (*MANY[:200], "never listed"),
        kind="categorical", hash_buckets=12,
    ),
    "groups": _kind(
        "`categorical`, `hierarchy_file` of 10,000 members", "str", MANY[::50],
        kind="categorical", levels=["early", "late"], members=[MANY[:5000], MANY[5000:]],
    ),
    "many": _kind(
        "`categorical` of 10,000 levels", "str", MANY[::50], refused=_TOO_WIDE,
        kind="categorical", levels=MANY,
    ),
    "unseen": _kind(
        "`categorical`, `unseen`", "str", ("smith", "baker"), kind="categorical", unseen=True,
        refused=dict.fromkeys(set(METHODS) - {"levels"}, _UNSEEN),
    ),
    "text": _kind(
        "free text", "str", ("He said so.",), kind="text",
        refused={"schema": "column full: kind: free text is not released, .* take the column out"},
    ),
}  # fmt: skip

CELLS = [(kind, method) for kind in KINDS for method in METHODS]
"""Every kind with every method, by name."""


def table() -> str:
    """What `docs/spec.md` shows: the kinds that some method refuses; `levels` takes one kind."""
    lines = ["| kind | refused by |", "|---|---|"]
    for kind in KINDS.values():
        refused = [method for method in METHODS if {method, "schema"} & kind.refused.keys()]
        taken = [method for method in METHODS if method not in refused]
        if refused != ["levels"]:
            every = "every method" + "".join(f" but `{method}`" for method in taken)
            few = ", ".join(f"`{method}`" for method in refused)
            lines.append(f"| {kind.said} | {every if len(taken) < 2 else few} |")
    return "\n".join(lines)
