"""Ours beside the peers', each peer in an environment of its own, on the same public codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench_record import Cost, Found, NotRunError, Place, median, timed
from boards import Cell, released
from marginal_peers import HERE, environment, made
from metrics import total_variation
from study import ROOT
from weights_cells import calibrated, table

from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.registry import make_generator
from dpiw.privacy.randomness import SecureNoise

EPSILON, DELTA = 1.0, 1e-9


@dataclass(frozen=True)
class Peer:
    """A package of others: its version, as a page says it, and its environment."""

    version: str
    requirements: str
    folder: str


PEERS: Mapping[str, Peer] = {
    "smartnoise-synth": Peer(
        "smartnoise-synth 1.0.8 on private-pgm (mbi) 1.1.0", "requirements.txt", "peers"
    ),
    "DataSynthesizer": Peer("DataSynthesizer 0.1.13", "datasynthesizer.txt", "datasynthesizer"),
}


def fitted(
    python: Path, script: str, given: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], Cost]:
    """What `peers/SCRIPT.py` makes in a peer's environment, and what it took; no imports."""
    arrays = made(python, script, given)
    return arrays, Cost(wall=float(arrays.pop("wall")), cpu=float(arrays.pop("cpu")))


def python_of(place: Place, peer: str) -> Path:
    """A peer's Python, made on the first call, if peers are wanted."""
    if not place.with_peers:
        raise NotRunError("without peers, as asked")
    return environment(place.environments, PEERS[peer].folder, PEERS[peer].requirements)


def _rows(place: Place, dataset: str) -> tuple[PublicSchema, ScaledTable]:
    if place.data is None or not (place.data / f"{dataset}.csv").exists():
        raise NotRunError(f"needs {dataset}.csv: make bench DATA=folder")
    return table(dataset, place.data)


def own(
    schema: PublicSchema, rows: ScaledTable, name: str, delta: float, repeats: int
) -> tuple[Cost, float, Domain]:
    """Median cost of a fit and of as many rows, mean total variation of pairs, public codes."""
    method = make_generator(name, {}, pure=delta == 0)
    (generator,) = calibrated([(method, 1.0)], schema, rows.rows, EPSILON, delta)
    SecureNoise().discrete_gaussian(scale=2.0, size=1)  # importing OpenDP is not fitting

    def drawn() -> Any:
        fit = generator.measure(PrivateTable(schema=schema, scaled=rows), noise=SecureNoise())
        model = generator.model(fit, schema=schema)
        return fit, model.sample(rows.rows, rng=np.random.default_rng(1))

    turns = [timed(drawn) for _ in range(repeats if name == "privbayes" else 1)]
    measurement, synthetic = turns[-1][0]
    domain = Domain.from_schema(schema, bins=int(measurement.facts["bins"]))
    distance = _distance(domain, rows, domain.codes(synthetic.scaled))
    return median([cost for _, cost in turns]), distance, domain


def _distance(domain: Domain, rows: ScaledTable, codes: np.ndarray) -> float:
    return total_variation(domain.codes(rows), codes, domain.sizes)[1]


def fits(
    place: Place, peer: str, dataset: str, method: str, *, delta: float = DELTA
) -> dict[str, Found]:
    """A generator of a peer beside ours; on Adult PrivBayes beside their MST as well."""
    python = python_of(place, peer)
    schema, rows = _rows(place, dataset)
    names = (method, "privbayes") if (dataset, method) == ("adult", "mst") else (method,)
    results = {name: own(schema, rows, name, delta, place.repeats) for name in names}
    domain = results[method][2]
    given = {"codes": domain.codes(rows), "sizes": np.array(domain.sizes), "method": method,
             "epsilon": EPSILON, "delta": delta, "seed": 1}  # fmt: skip
    arrays, took = fitted(python, "marginals" if delta else method, given)
    theirs = _distance(domain, rows, arrays["rows"])
    lines = {}
    for name, (cost, distance, _) in results.items():
        worse = " (**worse**)" if distance > theirs else ""
        text = f"2-way distance {distance:.3f}{worse}, theirs {theirs:.3f}"
        key = f"{name}-{dataset}-{method}" if delta else name
        lines[key] = Found(ours=cost, reference=took, told=text)
    return lines


def weighed(place: Place) -> dict[str, Found]:
    """A release in memory of as many rows, drawn from Adult's, with and without weights."""
    schema, rows = _rows(place, "adult")
    many = rows.take(np.random.default_rng(1).integers(rows.rows, size=place.rows))
    cells = [
        Cell(run=0, table="adult", method="privbayes", weights=w) for w in ("measured", "none")
    ]
    ours, reference = (
        timed(partial(released, cell, schema, many, delta=DELTA))[1] for cell in cells
    )
    return {"adult-weights": Found(ours=ours, reference=reference, told=f"{place.rows:,} rows")}


TRAINING = """import json, sys
sys.path.insert(0, sys.argv[1])
import dp_sgd, torch
torch.set_num_threads(1)
print(json.dumps(dp_sgd.measure(int(sys.argv[2]))))
"""


def training(place: Place) -> dict[str, Found]:
    """DP-SGD of a perceptron, by `dp_sgd.py` in a process of its own: seconds of a step."""
    if not place.with_peers:
        raise NotRunError("without peers, as asked")
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-c", TRAINING, str(HERE.parent), str(20 * place.repeats)]
    done = subprocess.run(
        command, env=os.environ | single | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    if done.returncode:
        raise NotRunError("torch and Opacus are not usable here: make test")
    steps = {
        name: Cost(wall=row["wall_us"] / 1e6, cpu=row["cpu_us"] / 1e6)
        for name, row in json.loads(done.stdout).items()
    }
    return {
        f"dp-sgd: {name}": Found(
            ours=steps["ours"], reference=steps[name], told="the best turn; of CPU the median"
        )
        for name in ("Opacus, hooks, its loader", "Opacus, ghost, its loader", "torch, no privacy")
    }
