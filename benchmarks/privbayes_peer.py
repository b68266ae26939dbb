"""A public PrivBayes on the same Adult codes: DataSynthesizer 0.1.13, the paper's implementation.

    python benchmarks/privbayes_peer.py --data FOLDER --out benchmarks/results

It gets exactly the codes that benchmarks/privbayes_adult.py gives ours (so bins are public), in an
environment of its own (`bench_peers.environment`); what it does is said in peers/privbayes.py.
Seconds are of the fit and of as many rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from bench_peers import PEERS, environment, fitted
from privbayes_adult import classifier_auc, load, total_variation
from weights_cells import ROOT

from dpiw.data.discretisation import Domain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--environments", type=Path, default=ROOT / ".dpiw" / "weights_table")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0])
    options = parser.parse_args()
    python = environment(options.environments.resolve(), "DataSynthesizer")
    schema, frame = load(options.data)
    train, test = (schema.scale(frame[frame["split"] == part]) for part in ("train", "test"))
    domain = Domain.from_schema(schema, bins=16)
    codes = domain.codes(train)
    records = []
    for epsilon in options.epsilon:
        arrays, took = fitted(python, "privbayes", {"codes": codes, "epsilon": epsilon, "seed": 1})
        one_way, two_way = total_variation(codes, arrays["rows"], domain.sizes)
        filled = schema.project(domain.fill(arrays["rows"], rng=np.random.default_rng(1)))
        records.append(
            {
                "epsilon": epsilon,
                "fit_seconds": took.wall,
                "tv_1way": one_way,
                "tv_2way": two_way,
                "auc": classifier_auc(schema, filled, test),
            }
        )
    results = {
        "command": "python benchmarks/privbayes_peer.py --data FOLDER",
        "peer": f"{PEERS['DataSynthesizer'].version}, degree 2, delta 0, seed 1",
        "rows": records,
    }
    (options.out / "privbayes_peer.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
