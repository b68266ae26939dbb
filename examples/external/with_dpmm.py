"""MST of dpmm 0.1.9, in an environment of its own; from CODES.csv to MADE.csv of `make_rows.py`.

The domain is public, and so is the number of rows made. Add/remove, epsilon 1, delta 1e-6.
"""

from __future__ import annotations

import sys

import pandas as pd
from dpmm.models.mst import MSTGM

EPSILON, DELTA, ROWS = 1.0, 1e-6, 10_000


def main(source: str, target: str) -> None:
    frame = pd.read_csv(source)
    names, sizes = zip(*(name.split(":") for name in frame.columns), strict=True)
    codes = frame.set_axis(list(names), axis=1)
    domain = {name: int(size) for name, size in zip(names, sizes, strict=True)}
    tool = MSTGM(
        epsilon=EPSILON, delta=DELTA, domain=domain, n_iters=1000, compress=False, n_jobs=1
    )
    tool.fit(codes)
    made = tool.generate(n_records=ROWS)
    made[list(names)].sample(frac=1).to_csv(target, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
