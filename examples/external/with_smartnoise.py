"""MST of smartnoise-synth 1.0.8 on mbi 1.1.0, likewise; from CODES.csv to MADE.csv.

The domain is public, and so is the number of rows made. Add/remove, epsilon 1, delta 1e-6.
"""

from __future__ import annotations

import sys

import pandas as pd
from mbi import Dataset, Domain
from snsynth.mst import MSTSynthesizer

EPSILON, DELTA, ROWS = 1.0, 1e-6, 10_000


def main(source: str, target: str) -> None:
    frame = pd.read_csv(source)
    names, sizes = zip(*(name.split(":") for name in frame.columns), strict=True)
    codes = Dataset(frame.to_numpy(), domain=Domain(names, [int(size) for size in sizes]))
    tool = MSTSynthesizer(epsilon=EPSILON, delta=DELTA)
    tool.MST(codes, tool.epsilon, tool.delta)
    # As shipped (`round`) columns share ranks, which makes dependence that nobody measured: weights
    # of such rows are found unfit. Each row by itself, along the tree that was measured:
    drawn = tool.synthesizer.synthetic_data(rows=ROWS, method="sample")
    tool.undo_compress_fn(drawn).df[list(names)].to_csv(target, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
