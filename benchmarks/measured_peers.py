"""Measured weights against the best of PrivBayes, MST and AIM unweighted, at equal total epsilon.

    python benchmarks/measured_peers.py --data FOLDER [--datasets ...] [--epsilons ...] [--runs 3]

FOLDER holds the files of `weights_cells.DATASETS`. The peers' environment is made in the cache
folder on the first run (`paper_peers.environment`, about 1.1 GB). Cells are kept in `--cache`, in a
folder named by data, settings and code; a run that was cut short goes on. The peers' unweighted
rows take minutes a fit and do not depend on our weights: their metrics are kept in the repository
as well (`results/peers_kept.jsonl`), with a digest of what they depend on, so that runs add up from
one machine to the next. The peers' noise cannot be seeded: their rows cannot be made again to the
digit.

Splits, metrics and specs are those of weights_table.py. MST and AIM turn (epsilon, delta) into zCDP
by their own formula; weights on MST's rows share that rho with it, so that both together spend it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from paper_peers import Asked, environment, fit
from scipy.optimize import brentq
from weights_cells import (
    DATASETS,
    DELTA,
    GENERATORS,
    ROOT,
    Cell,
    Halves,
    Store,
    compute,
    measure,
    split,
)
from weights_summary import HIGHER_IS_BETTER, JUDGED, LABELS
from weights_table import commit, one_thread

from dpiw import __version__
from dpiw.data.discretisation import Domain
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.generators.marginal_noise import useful_bins
from dpiw.methods.weights.measured import Measured
from dpiw.methods.weights.weigh_measured import weigh_measured
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
UNWEIGHTED = ("privbayes", "mst", "aim")
WEIGHTED = ("measured on privbayes", "measured on histogram", "measured on mst")
AIM_ON = ("banknote",)
"""AIM fits a model in each of 16 d rounds: slow on wide tables, and not tried there."""

BASE_ROWS = 20_000
"""Of MST, to be weighted."""

KEPT = ROOT / "benchmarks" / "results" / "peers_kept.jsonl"


SOURCES = (
    *(f"benchmarks/{name}" for name in ("metrics.py", "weights_cells.py")),
    *(f"benchmarks/peers/{name}" for name in ("peer.py", "sampling.py", "requirements.txt")),
    *(f"dpiw/data/{name}" for name in ("discretisation.py", "encoding.py", "scaled.py")),
    "dpiw/methods/generators/marginal_noise.py",
)
"""What makes a peer's unweighted cell, besides data and schema: splits, codes, fits, metrics."""


@cache
def peers_digest(dataset: str, data: Path) -> str:
    """Of all that a peer's unweighted cell depends on."""
    facts = DATASETS[dataset]
    digest = hashlib.sha256(f"{facts} {DELTA}".encode())
    for path in (data / facts.file, ROOT / facts.schema, *(ROOT / name for name in SOURCES)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def kept(cell: Cell, store: Store) -> dict[str, Any] | None:
    """A peer's cell that the repository holds, if nothing that it depends on has changed."""
    if not KEPT.exists():
        return None
    digest = peers_digest(cell.dataset, store.data)
    for line in KEPT.read_text().splitlines():
        record: dict[str, Any] = json.loads(line)
        if (record["name"], record["digest"]) == (cell.name, digest):
            return record
    return None


def keep(cell: Cell, record: dict[str, Any], store: Store) -> None:
    """One line more; of a fit that was refused none, so that it is tried again."""
    if "metrics" not in record:
        return
    metrics = {name: float(f"{value:.6g}") for name, value in record["metrics"].items()}
    line = {"name": cell.name, "digest": peers_digest(cell.dataset, store.data), "metrics": metrics}
    with KEPT.open("a") as file:
        file.write(json.dumps(line) + "\n")


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Least delta of rho-zCDP at epsilon (Canonne, Kamath, Steinke 2020, proposition 12)."""

    def log_delta(a: float) -> float:
        return (a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1)

    orders = 1 + np.exp(np.linspace(-7, 12, 4000))
    return float(math.exp(min(0.0, min(log_delta(float(a)) for a in orders))))


def zcdp_of(epsilon: float, delta: float) -> float:
    """Largest rho whose delta at epsilon is at most `delta`."""
    return float(brentq(lambda r: zcdp_delta(r, epsilon) - delta, 1e-9, epsilon, xtol=1e-12))


def epsilon_of(rho: float, delta: float) -> float:
    """Least epsilon of rho-zCDP at delta; rounded up."""
    top = rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1
    return float(brentq(lambda e: zcdp_delta(rho, e) - delta, rho, top, xtol=1e-10)) + 1e-9


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A peer's rows for one release, or why there are none."""

    rows: SyntheticTable | None
    reason: str = ""


def peer_rows(python: Path, asked: Asked, halves: Halves, nominal_rows: int, seed: int) -> Peer:
    """Independent rows of a fit, on the public scale."""
    bins = useful_bins(int(GENERATORS["privbayes"]["bins"]), nominal_rows)
    domain = Domain.from_schema(halves.schema, bins=bins)
    peer = fit(python, domain.codes(halves.train), domain.sizes, asked)
    if peer.refused:
        return Peer(rows=None, reason=peer.refused)
    filled = domain.fill(peer.independent, rng=np.random.default_rng([seed, 2]))
    return Peer(rows=SyntheticTable(schema=halves.schema, scaled=filled))


def peer_cell(cell: Cell, store: Store, python: Path) -> dict[str, Any]:
    """MST or AIM, unweighted; or MST with measured weights at one total."""
    facts, halves = DATASETS[cell.dataset], split(cell.dataset, cell.run, store.data)
    epsilon, delta = float(cell.epsilon), float(DELTA)
    weighted = cell.weights == "measured"
    rho = zcdp_of(epsilon, delta)
    asked = Asked(
        method=cell.generator,
        epsilon=epsilon_of((1 - Measured.effort) * rho, delta) if weighted else epsilon,
        delta=delta,
        rows=BASE_ROWS if weighted else facts.synthetic_rows,
        fitting=0,
        seed=cell.run,
    )
    peer = peer_rows(python, asked, halves, facts.nominal_rows, cell.run)
    if peer.rows is None:
        return {"refused": peer.reason}
    if not weighted:
        return {"metrics": measure(halves, peer.rows.scaled, np.ones(peer.rows.rows), cell.run)}
    estimator = Measured(omega_seed=1).calibrate(
        rho=Measured.effort * rho, schema=halves.schema, unit=UNIT, nominal_rows=facts.nominal_rows
    )
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    estimator = estimator.for_rows(peer.rows)
    drawn = estimator.measure(private, peer.rows, noise=SeededNoise(1000 * cell.run + 2))
    rng = np.random.default_rng([cell.run, 1])
    weights = weigh_measured(estimator, drawn, peer.rows, rows=facts.synthetic_rows, rng=rng)
    rows, w = peer.rows.scaled.take(weights.chosen), np.exp(weights.log_weights)
    return {
        "metrics": measure(halves, rows, w, cell.run),
        "verdict": weights.diagnostics.verdict.value,
    }


def made(cell: Cell, store: Store, python: Path) -> dict[str, Any]:
    """A cell's record: kept, or made and kept."""
    if cell.generator not in ("mst", "aim"):
        return compute(cell, store)
    if cell.weights == "none":
        known = kept(cell, store)
        if known is None:
            known = peer_cell(cell, store, python)
            keep(cell, known, store)
        return known
    known = store.read(cell.dataset, cell.name)
    if known is not None:
        return known
    started = time.monotonic()
    result = vars(cell) | peer_cell(cell, store, python)
    record = result | {"seconds": time.monotonic() - started}
    store.write(cell.dataset, cell.name, record)
    return record


def at_hand(cell: Cell, store: Store) -> bool:
    """Whether a cell is made already."""
    if cell.generator in ("mst", "aim") and cell.weights == "none":
        return kept(cell, store) is not None
    return store.read(cell.dataset, cell.name) is not None


def methods_on(dataset: str) -> list[str]:
    """AIM takes hours on wide tables."""
    return [m for m in (*UNWEIGHTED, *WEIGHTED) if m != "aim" or dataset in AIM_ON]


def cell_of(method: str, dataset: str, epsilon: str, run: int) -> Cell:
    """`mst`, or `measured on mst`."""
    generator, weights = method, "none"
    if method.startswith("measured on "):
        generator, weights = method.removeprefix("measured on "), "measured"
    return Cell(run=run, dataset=dataset, generator=generator, epsilon=epsilon, weights=weights)


# The page

Runs = dict[tuple[str, str, str], dict[int, dict[str, float]]]
"""Per data set, epsilon and method: every run's metrics."""


def means_of(runs: Runs) -> dict[tuple[str, str, str], dict[str, float]]:
    """Every metric's mean over runs."""
    return {key: mean_over(by_run, list(by_run)) for key, by_run in runs.items()}


def mean_over(own: dict[int, dict[str, float]], runs: list[int]) -> dict[str, float]:
    names = own[runs[0]]
    return {name: statistics.fmean(own[run][name] for run in runs) for name in names}


def judged(metrics: dict[str, float]) -> dict[str, str]:
    """The metric of each aspect that a data set has."""
    by_aspect = {aspect: [n for n in names if n in metrics] for aspect, names in JUDGED.items()}
    return {aspect: names[0] for aspect, names in by_aspect.items() if names}


def won(runs: Runs, mine: str, others: tuple[str, ...]) -> dict[str, list[bool]]:
    """By aspect: whether `mine` is better than each of `others`, for each setting.

    By the means over the runs that both of a pair have: each run has a split of its own.
    """
    wins: dict[str, list[bool]] = {}
    for (dataset, epsilon, method), ours in runs.items():
        if method != mine:
            continue
        pairs = []
        for other in others:
            theirs = runs.get((dataset, epsilon, other), {})
            common = [run for run in ours if run in theirs]
            if common:
                pairs.append((mean_over(ours, common), mean_over(theirs, common)))
        for aspect, name in judged(next(iter(ours.values()))).items():
            sign = 1 if name in HIGHER_IS_BETTER else -1
            better = [sign * a[name] > sign * b[name] for a, b in pairs]
            if better:
                wins.setdefault(aspect, []).append(all(better))
    return wins


def share(found: dict[str, list[bool]]) -> str:
    every = [win for values in found.values() for win in values]
    parts = ", ".join(
        f"{aspect} {sum(values)} of {len(values)}" for aspect, values in found.items()
    )
    return f"{sum(every)} of {len(every)} ({sum(every) / max(1, len(every)):.0%}); {parts}"


def page(runs: Runs) -> list[str]:
    means = means_of(runs)
    settings = list(dict.fromkeys(key[:2] for key in means))
    lines = [
        "## Cells won",
        "",
        "A cell is a data set, an epsilon and a metric; won where the mean is better than that of"
        " each of the others, over the runs that both have. Tables: all runs.",
        "",
    ]
    for mine in WEIGHTED:
        if wins := won(runs, mine, UNWEIGHTED):
            best = f"the best unweighted of {', '.join(UNWEIGHTED)}"
            lines.append(f"- `{mine}` against {best}: {share(wins)}.")
    if wins := won(runs, WEIGHTED[2], ("mst",)):
        lines.append(f"- `measured on mst` against `mst`: {share(wins)}.")
    for dataset, epsilon in settings:
        methods = [m for m in (*UNWEIGHTED, *WEIGHTED) if (dataset, epsilon, m) in means]
        names = list(judged(means[dataset, epsilon, methods[0]]).values())
        lines += ["", f"### {dataset}, epsilon {epsilon}", "",
                  "| method | " + " | ".join(LABELS[n] for n in names) + " | runs |",
                  "|---" * (len(names) + 2) + "|"]  # fmt: skip
        for method in methods:
            values = means[dataset, epsilon, method]
            cells = " | ".join(f"{values[n]:.4g}" for n in names)
            lines.append(f"| {method} | {cells} | {len(runs[dataset, epsilon, method])} |")
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=["banknote", "breast", "boston"])
    parser.add_argument("--epsilons", nargs="+", default=["1", "3"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kept", action="store_true", help="finished cells alone; make none")
    parser.add_argument("--methods", nargs="+", default=[*UNWEIGHTED, *WEIGHTED])
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "weights_table")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    one_thread()
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    python = environment(chosen.cache.resolve())
    runs: Runs = {}
    for run in range(chosen.runs):
        for dataset in chosen.datasets:
            for epsilon in chosen.epsilons:
                asked = [cell_of(method, dataset, epsilon, run) for method in methods_on(dataset)]
                for method, cell in zip(methods_on(dataset), asked, strict=True):
                    if method not in chosen.methods:
                        continue
                    if chosen.kept and not at_hand(cell, store):
                        continue
                    record = made(cell, store, python)
                    if "metrics" in record:
                        runs.setdefault((dataset, epsilon, method), {})[run] = record["metrics"]
                    print(f"run {run}: {dataset} {epsilon} {method}"
                          f" {record.get('refused', '')}", flush=True)  # fmt: skip
    words = [word for word in arguments if word not in ("--data", str(chosen.data))]
    command = " ".join(["python benchmarks/measured_peers.py --data FOLDER", *words])
    text = [
        "# Measured weights against unweighted peers, at equal total epsilon",
        "",
        f"`{command}`, dpiw {__version__} ({commit()}). Every release spends the same (epsilon,"
        f" delta = {DELTA}) in total, add/remove one row. Splits, specs and metrics are those of"
        " [measured_table.md](measured_table.md); means over runs. MST and AIM are those of"
        " smartnoise-synth on mbi, at their defaults, on PrivBayes' public codes, each row drawn"
        " independently from the fit (benchmarks/peers); they read the exact number of rows, charge"
        f" nothing for it, and their noise cannot be seeded. AIM on {', '.join(AIM_ON)} alone."
        " Inside a code their numbers lie evenly, as they leave it open; ours as the bins beside it"
        " tell (histospline.md)."
        f" `measured on mst`: MST has {1 - Measured.effort:.0%} of the zCDP, weights the rest.",
        "",
        *page(runs),
    ]
    (chosen.out / "measured_peers.md").write_text("\n".join(text) + "\n")
    means = {" ".join(key): value for key, value in means_of(runs).items()}
    facts = {"command": command, "commit": commit(), "means": means}
    (chosen.out / "measured_peers.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"wrote {chosen.out / 'measured_peers.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
