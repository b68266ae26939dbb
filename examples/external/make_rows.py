"""From the table that plays the confidential one to public codes for another tool, and back.

`codes CODES.csv` writes what a tool is given, `rows MADE.csv NAME.parquet` what it made, as rows.
Codes are of the data dictionary's public bounds and levels alone, so that a tool need infer nothing
from the table; the first line of CODES.csv says how many each column has. This, the tools' scripts
beside it and the two Parquet files were run once: the example itself needs neither tool.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema

HERE = Path(__file__).resolve().parent
BINS = 16
FILL_SEED = 20261123
"""Of the places inside bins: public, as the codes are all that a tool releases."""


def domain() -> Domain:
    schema = PublicSchema.from_yaml(HERE.parent / "population" / "schema.yaml")
    return Domain.from_schema(schema, bins=BINS)


def write_codes(path: Path) -> None:
    sys.path.insert(0, str(HERE.parent / "population"))
    import simulate

    public = domain()
    frame = simulate.population(rows=50_000, seed=simulate.CONFIDENTIAL_SEED)
    codes = public.codes(public.schema.scale(frame))
    names = [
        f"{column.name}:{size}"
        for column, size in zip(public.schema.released, public.sizes, strict=True)
    ]
    pd.DataFrame(codes, columns=names).to_csv(path, index=False)


def write_rows(made: Path, target: Path) -> None:
    public = domain()
    codes = pd.read_csv(made).to_numpy(dtype=np.int32)
    filled = public.fill(codes, rng=np.random.default_rng(FILL_SEED))
    frame = public.schema.unscale(filled)
    frame["income"] = frame["income"].round(-2)  # to the hundred, so that the file stays small
    frame["last_visit"] = frame["last_visit"].dt.date
    frame.to_parquet(target, index=False, compression="zstd")


if __name__ == "__main__":
    action, *paths = sys.argv[1:]
    {"codes": write_codes, "rows": write_rows}[action](*map(Path, paths))
