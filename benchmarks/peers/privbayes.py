"""PrivBayes of DataSynthesizer on public codes, for `timed.py`: fitted, and as many rows drawn.

Degree 2, pure epsilon split in halves, as its DataDescriber does. Its mutual information is
computed here by an equal but faster routine (packed codes instead of joined strings), and its tasks
one after the other. It takes level counts from the rows and clips counts at zero; nothing of that
is changed.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from DataSynthesizer.lib import PrivBayes as package  # noqa: N813
from sklearn.metrics import mutual_info_score


class SerialPool:
    """Stands in for the package's process pool: same results, one process."""

    def __enter__(self) -> SerialPool:
        return self

    def __exit__(self, *reason: object) -> None:
        return None

    def map(self, function: Any, tasks: Any) -> list[Any]:
        """As Pool.map, one after the other."""
        return [function(task) for task in tasks]


def fast_mutual_information(child: Any, parents: Any) -> float:
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


def fit(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Given: `codes` (n, d), `epsilon`, `seed`."""
    package.mutual_information, package.Pool = fast_mutual_information, SerialPool
    codes, epsilon, seed = given["codes"], float(given["epsilon"]), int(given["seed"])
    names = [f"c{j}" for j in range(codes.shape[1])]
    table = pd.DataFrame(np.array(codes), columns=names)
    network = package.greedy_bayes(table, 2, epsilon / 2, seed=seed)
    laws = package.construct_noisy_conditional_distributions(network, table, epsilon / 2)
    drawn = sample(network, laws, len(codes), np.random.default_rng(seed))
    return {"rows": np.column_stack([drawn[name] for name in names]).astype(np.int32)}
