"""Ours beside the peers', each peer in an environment of its own, on the same public codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench_record import Cost, Found, NotRunError, Place, median, timed
from marginal_peers import HERE, environment, made
from metrics import total_variation
from study import ROOT
from weights_cells import calibrated, table

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.discretisation import Domain
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.counting import ContingencyCounter, noisy_marginal
from dpiw.methods.generators.registry import make_generator
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NoiseKind

EPSILON, DELTA = 1.0, 1e-9
CELLS = {1: 100, 2: 100}
"""Bins of each column, by the number of columns of a histogram."""


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
    "diffprivlib": Peer("diffprivlib 0.6.6", "diffprivlib.txt", "diffprivlib"),
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


@dataclass(frozen=True, kw_only=True)
class Own:
    """A generator of ours, fitted to a whole table, and as many rows drawn from it."""

    schema: PublicSchema
    rows: ScaledTable
    method: str
    delta: float

    def made(self, repeats: int) -> tuple[Cost, float, Domain]:
        """Median cost, mean total variation of all pairs of columns, and the public codes."""
        method = make_generator(self.method, {}, pure=self.delta == 0)
        stages = [(method, 1.0)]
        (generator,) = calibrated(stages, self.schema, self.rows.rows, EPSILON, self.delta)
        private = PrivateTable(schema=self.schema, scaled=self.rows)
        SecureNoise().discrete_gaussian(scale=2.0, size=1)  # importing OpenDP is not fitting

        def drawn() -> Any:
            measurement = generator.measure(private, noise=SecureNoise())
            model = generator.model(measurement, schema=self.schema)
            rng = np.random.default_rng(1)
            return measurement, model.sample(self.rows.rows, rng=rng)

        turns = [timed(drawn) for _ in range(repeats)]
        measurement, synthetic = turns[-1][0]
        domain = Domain.from_schema(self.schema, bins=int(measurement.facts["bins"]))
        distance = _distance(domain, self.rows, domain.codes(synthetic.scaled))
        return median([cost for _, cost in turns]), distance, domain


def _distance(domain: Domain, rows: ScaledTable, codes: np.ndarray) -> float:
    return total_variation(domain.codes(rows), codes, domain.sizes)[1]


def privbayes(place: Place) -> dict[str, Found]:
    """PrivBayes on Adult, pure epsilon, beside DataSynthesizer's."""
    python = python_of(place, "DataSynthesizer")
    schema, rows = _rows(place, "adult")
    ours, distance, domain = Own(schema=schema, rows=rows, method="privbayes", delta=0.0).made(
        place.repeats
    )
    given = {"codes": domain.codes(rows), "epsilon": EPSILON, "seed": 1}
    arrays, took = fitted(python, "privbayes", given)
    text = _distances(distance, _distance(domain, rows, arrays["rows"]))
    return {"privbayes": Found(ours=ours, reference=took, told=text)}


def _distances(ours: float, theirs: float) -> str:
    worse = " (**worse**)" if ours > theirs else ""
    return f"2-way distance {ours:.3f}{worse}, theirs {theirs:.3f}"


def marginals(place: Place, dataset: str, method: str) -> dict[str, Found]:
    """MST or AIM of smartnoise-synth beside ours; on Adult PrivBayes beside their MST as well."""
    python = python_of(place, "smartnoise-synth")
    schema, rows = _rows(place, dataset)
    ours = {method: Own(schema=schema, rows=rows, method=method, delta=DELTA)}
    if dataset == "adult":
        ours["privbayes"] = Own(schema=schema, rows=rows, method="privbayes", delta=DELTA)
    results = {
        name: release.made(1 if name == method else place.repeats) for name, release in ours.items()
    }
    domain = results[method][2]
    given = {"codes": domain.codes(rows), "sizes": np.array(domain.sizes), "method": method,
             "epsilon": EPSILON, "delta": DELTA, "seed": 1}  # fmt: skip
    arrays, took = fitted(python, "marginals", given)
    theirs = _distance(domain, rows, arrays["rows"])
    return {
        f"{name}-{dataset}-{method}": Found(
            ours=cost, reference=took, told=_distances(distance, theirs)
        )
        for name, (cost, distance, _) in results.items()
    }


def counts(place: Place) -> dict[str, Found]:
    """Private histograms of one and two columns of numbers beside diffprivlib's."""
    python, lines = python_of(place, "diffprivlib"), {}
    for columns, bins in CELLS.items():
        values = np.random.default_rng(columns).random((place.rows, columns))
        names = [f"x{j}" for j in range(columns)]
        schema = PublicSchema(
            name="numbers",
            columns=tuple(
                Column(name=name, kind=ColumnKind.CONTINUOUS, lower=0, upper=1) for name in names
            ),
        )
        rows = ScaledTable(dict(zip(names, values.T, strict=True)), place.rows)
        private = PrivateTable(schema=schema, scaled=rows)
        domain = Domain.from_schema(schema, bins=bins)

        def ours(private: PrivateTable = private, domain: Domain = domain) -> Any:
            exact = ContingencyCounter.of(private, domain).count(range(len(domain.sizes)))
            law = {"kind": NoiseKind.LAPLACE, "scale": 1 / EPSILON}
            return noisy_marginal(exact, noise=SecureNoise(), **law)

        timed(ours)  # importing OpenDP is not counting
        mine = [timed(ours)[1] for _ in range(place.repeats)]
        given = {"values": values, "bins": bins, "epsilon": EPSILON}
        theirs = [fitted(python, "counts", given)[1] for _ in range(place.repeats)]
        text = f"{bins**columns:,} cells of {place.rows:,} rows"
        lines[f"counts-{columns}"] = Found(ours=median(mine), reference=median(theirs), told=text)
    return lines


TRAINING = """import json, sys
sys.path.insert(0, sys.argv[1])
import dp_sgd, torch
torch.set_num_threads(1)
print(json.dumps(dp_sgd.measure(int(sys.argv[2]))))
"""


def training(place: Place) -> dict[str, Found]:
    """DP-SGD of a perceptron, by `dp_sgd.py` in a Python with torch: seconds of a step."""
    if not place.with_peers:
        raise NotRunError("without peers, as asked")
    if place.neural is None:
        raise NotRunError("no Python with torch and Opacus: make test")
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [str(place.neural), "-c", TRAINING, str(HERE.parent), str(20 * place.repeats)]
    done = subprocess.run(
        command, env=os.environ | single | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    if done.returncode:
        raise NotRunError("torch and Opacus are not usable there: make test")
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
