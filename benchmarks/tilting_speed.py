"""How long measured weights take: Adult's features, one core, everything after the draw.

    python benchmarks/tilting_speed.py --data FOLDER [--rows 20000 100000 1000000]

FOLDER holds adult.csv. A PrivBayes model of Adult gives the base rows; the noisy sum is of the
spec's default features. Timed: means and credit (one decomposition and a simulated test), the
tilting itself, and both together with the published rows. Memory: the process' largest so far.
"""

from __future__ import annotations

import argparse
import platform
import resource
import sys
import time
from pathlib import Path

import numpy as np
from weights_cells import ROOT, plan_for, table
from weights_table import commit, one_thread

from dpiw import __version__
from dpiw.data.tables import PrivateTable
from dpiw.methods.weights.base_rows import BaseRows
from dpiw.methods.weights.measured import Measured
from dpiw.methods.weights.reweighting import reweight
from dpiw.methods.weights.stack import all_features
from dpiw.methods.weights.weigh_measured import weigh_measured
from dpiw.privacy.randomness import SeededNoise

PUBLISHED = 20_000


def largest_gib() -> float:
    """Most memory that the process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    one_thread()
    data = chosen.data.resolve()
    schema, every = table("adult", data)
    plan = plan_for("adult", "privbayes", "1", "measured", data)
    estimator, noise = plan.weights, SeededNoise(1)
    assert isinstance(estimator, Measured)
    private = PrivateTable(schema=schema, scaled=every)
    model = plan.generator.model(plan.generator.measure(private, noise=noise), schema=schema)
    known, stack = model.one_way, estimator.stack(schema)
    lines = []
    for rows in chosen.rows:
        base = model.sample(rows, rng=np.random.default_rng(2))
        drawn = estimator.measure(private, base, noise=SeededNoise(3))
        scaled = base.scaled

        def features(start: int, stop: int, scaled=scaled) -> np.ndarray:
            return all_features(stack, known.law, scaled.take(np.arange(start, stop)))

        started = time.perf_counter()
        streamed = BaseRows(rows, features)
        even = streamed.means(np.full(rows, 1 / rows))
        made = time.perf_counter() - started
        targets = estimator.targets(drawn, about=even, known=known)
        started = time.perf_counter()
        solution = reweight(streamed, targets, rng=np.random.default_rng(4))
        solved = time.perf_counter() - started
        started = time.perf_counter()
        weigh_measured(estimator, drawn, base, rows=PUBLISHED, rng=np.random.default_rng(5),
                       known=known)  # fmt: skip
        whole = time.perf_counter() - started
        lines.append(
            f"| {rows:,} | {stack.dimension} + {known.law.dimension} | {made:.1f} | {solved:.1f} |"
            f" {solution.tilt.steps} | {whole:.1f} | {largest_gib():.1f} |"
        )
        print(lines[-1], flush=True)
    sizes = " ".join(str(rows) for rows in chosen.rows)
    text = [
        "# Speed of measured weights",
        "",
        f"`python benchmarks/tilting_speed.py --data FOLDER --rows {sizes}`, dpiw {__version__}"
        f" ({commit()}),"
        f" Python {platform.python_version()}, one thread. Adult, PrivBayes, epsilon 1; features:"
        " measured, and those of known marginals. Features: made and averaged, kept in memory up to"
        " one GiB and else made again at every pass. Solved: credit, exact test and tilting, to"
        f" a certified gap. Whole: all of it, and the choice of {PUBLISHED:,} rows with their noise"
        " and verdict.",
        "",
        "| base rows | features | features, s | solved, s | steps | whole, s | most memory, GiB |",
        "|---|---|---|---|---|---|---|",
        *lines,
    ]
    (chosen.out / "tilting_speed.md").write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
