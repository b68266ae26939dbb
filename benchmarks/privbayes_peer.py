"""A public PrivBayes on the same Adult codes: DataSynthesizer 0.1.13, the paper's implementation.

    pip install --target PEER --no-deps DataSynthesizer==0.1.13
    python benchmarks/privbayes_peer.py --data FOLDER --peer PEER --out benchmarks/results

It gets exactly the codes that benchmarks/privbayes_adult.py gives ours (so bins are public), degree
2, pure epsilon split in halves as its DataDescriber does. Its mutual information is computed here
by an equal but faster routine (packed codes instead of joined strings). It takes level counts from
the data and clips counts at zero; nothing of that is changed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from privbayes_adult import classifier_auc, load, total_variation

from dpiw.data.discretisation import Domain


class SerialPool:
    """Stands in for the peer's process pool: same results, one process."""

    def __enter__(self) -> SerialPool:
        return self

    def __exit__(self, *reason: object) -> None:
        return None

    def map(self, function: Any, tasks: Any) -> list[Any]:
        """As Pool.map, one after the other."""
        return [function(task) for task in tasks]


def fast_mutual_information(child: Any, parents: Any) -> float:
    from sklearn.metrics import mutual_info_score

    packed = np.zeros(len(parents), dtype=int)
    for name in parents:
        packed = packed * 1000 + parents[name].to_numpy().astype(int)
    return float(mutual_info_score(child.to_numpy().astype(int), packed))


def sample(network: Any, conditionals: Any, rows: int, rng: np.random.Generator) -> Any:
    root = network[0][1][0]
    drawn = {root: rng.choice(len(conditionals[root]), rows, p=conditionals[root])}
    for child, parents in network:
        codes = np.zeros(rows, dtype=int)
        seen = pd.DataFrame({name: drawn[name] for name in parents})
        tables = {tuple(map(int, json.loads(k))): v for k, v in conditionals[child].items()}
        for key, index in seen.groupby(parents).indices.items():
            law = tables[tuple(map(int, key if isinstance(key, tuple) else (key,)))]
            codes[index] = rng.choice(len(law), len(index), p=law)
        drawn[child] = codes
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0])
    options = parser.parse_args()
    sys.path.insert(0, str(options.peer))
    from DataSynthesizer.lib import PrivBayes as peer  # noqa: N813

    peer.mutual_information, peer.Pool = fast_mutual_information, SerialPool
    warnings.filterwarnings("ignore")  # the peer's pandas idioms
    schema, frame = load(options.data)
    train, test = (schema.scale(frame[frame["split"] == part]) for part in ("train", "test"))
    domain = Domain.from_schema(schema, bins=16)
    codes = domain.codes(train)
    names = [column.name for column in schema.released]
    table = pd.DataFrame(np.array(codes), columns=names)
    found = []
    for epsilon in options.epsilon:
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            network = peer.greedy_bayes(table, 2, epsilon / 2, seed=1)
            laws = peer.construct_noisy_conditional_distributions(network, table, epsilon / 2)
        seconds = time.perf_counter() - start
        rng = np.random.default_rng(1)
        drawn = sample(network, laws, train.rows, rng)
        synthetic = np.column_stack([drawn[name] for name in names]).astype(np.int32)
        one, two = total_variation(codes, synthetic, domain.sizes)
        filled = schema.project(domain.fill(synthetic, rng=rng))
        found.append(
            {
                "epsilon": epsilon,
                "fit_seconds": seconds,
                "tv_1way": one,
                "tv_2way": two,
                "auc": classifier_auc(schema, filled, test),
            }
        )
    results = {
        "command": "python benchmarks/privbayes_peer.py --data FOLDER --peer PEER",
        "peer": "DataSynthesizer 0.1.13, degree 2, delta 0, seed 1",
        "rows": found,
    }
    (options.out / "privbayes_peer.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
