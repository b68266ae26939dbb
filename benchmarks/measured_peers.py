"""Measured weights against the best of PrivBayes, MST and AIM unweighted, at equal total epsilon.

    python benchmarks/measured_peers.py --data FOLDER [--datasets ...] [--epsilons ...] [--runs 4]
    python benchmarks/measured_peers.py --page

FOLDER holds the files of `weights_cells.DATASETS`. The peers' environment is made in the cache
folder on the first run (`marginal_peers.py`). Cells are kept in `--cache`, in a folder named by
data and code; a run that was cut short goes on.

Splits, metrics and specs are those of weights_table.py. MST and AIM turn (epsilon, delta) into zCDP
by their own formula; weights on MST's rows share that rho with it, so that both together spend it.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from marginal_peers import Asked, PeerError, environment, fitted
from provenance import RESULTS, stamp
from scipy.optimize import brentq
from study import ROOT, Store, head, options, parsed, read, records, row, write
from weights_cells import DATASETS, DELTA, UNIT, Cell, Halves, compute, measure, split
from weights_page import HIGHER_IS_BETTER, LABELS, judged

from dpiw.data.tables import PrivateTable
from dpiw.methods.weights.measured.method import Measured
from dpiw.methods.weights.measured.weighing import weigh_measured
from dpiw.privacy.randomness import SeededNoise

UNWEIGHTED = ("privbayes", "mst", "aim")
WEIGHTED = ("measured on privbayes", "measured on histogram", "measured on mst")
AIM_ON = ("banknote",)
"""AIM fits a model in each of 16 d rounds: slow on wide tables, and not tried there."""

BASE_ROWS = 20_000
"""Of MST, to be weighted."""

ORDERS = 1 + np.exp(np.linspace(-7, 12, 4000))
"""Of Renyi divergence, between which rho-zCDP is turned into (epsilon, delta)."""


def _spent(rho: float) -> RdpAccountant:
    """An accountant that has met rho-zCDP: a Gaussian's Renyi divergence."""
    return RdpAccountant(ORDERS).compose(GaussianDpEvent(math.sqrt(1 / (2 * rho))))


def zcdp_of(epsilon: float, delta: float) -> float:
    """Largest rho whose delta at epsilon is at most `delta`."""
    return float(
        brentq(lambda rho: _spent(rho).get_delta(epsilon) - delta, 1e-9, epsilon, xtol=1e-12)
    )


def epsilon_of(rho: float, delta: float) -> float:
    """Least epsilon of rho-zCDP at delta; rounded up."""
    return float(_spent(rho).get_epsilon(delta)) + 1e-9


def peer_cell(cell: Cell, halves: Halves, python: Path) -> dict[str, Any]:
    """MST or AIM, unweighted; or MST with measured weights at one total."""
    facts, delta = DATASETS[cell.dataset], float(DELTA)
    epsilon, weighted = float(cell.epsilon), cell.weights == "measured"
    rho = zcdp_of(epsilon, delta)
    asked = Asked(
        method=cell.generator,
        epsilon=epsilon_of((1 - Measured.effort) * rho, delta) if weighted else epsilon,
        delta=delta,
        rows=BASE_ROWS if weighted else facts.synthetic_rows,
        seed=cell.run,
    )
    try:
        rows = fitted(python, halves.train, halves.schema, facts.nominal_rows, asked)
    except PeerError as error:
        return {"refused": str(error)}
    if not weighted:
        return {"metrics": measure(halves, rows.scaled, np.ones(rows.rows), cell.run)}
    estimator = Measured(omega_seed=1).calibrate(
        rho=Measured.effort * rho, schema=halves.schema, unit=UNIT, nominal_rows=facts.nominal_rows
    )
    private = PrivateTable(schema=halves.schema, scaled=halves.train)
    estimator = estimator.for_rows(rows)
    drawn = estimator.measure(private, rows, noise=SeededNoise(1000 * cell.run + 2))
    rng = np.random.default_rng([cell.run, 1])
    weights = weigh_measured(estimator, drawn, rows, rows=facts.synthetic_rows, rng=rng)
    chosen, w = rows.scaled.take(weights.chosen), np.exp(weights.log_weights)
    return {"metrics": measure(halves, chosen, w, cell.run)}


def kept(cell: Cell, store: Store, python: Path) -> dict[str, Any]:
    """A cell's record: kept, or made and kept."""
    if cell.generator not in ("mst", "aim"):
        return compute(cell, store)
    own = DATASETS[cell.dataset]

    def make() -> dict[str, Any]:
        return vars(cell) | peer_cell(cell, split(cell.dataset, cell.run, store.data), python)

    return store.kept(f"peer-{cell.name}", make, (store.data / own.file, ROOT / own.schema))


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

Runs = Mapping[tuple[str, str, str], Mapping[int, Mapping[str, float]]]
"""Per data set, epsilon and method: every run's metrics."""


def mean_over(own: Mapping[int, Mapping[str, float]], runs: Sequence[int]) -> dict[str, float]:
    """Every metric's mean over some runs."""
    return {name: statistics.fmean(own[run][name] for run in runs) for name in own[runs[0]]}


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


def share(wins: Mapping[str, list[bool]]) -> str:
    """How many cells are won, in all and by aspect."""
    every = [win for values in wins.values() for win in values]
    parts = ", ".join(f"{aspect} {sum(values)} of {len(values)}" for aspect, values in wins.items())
    return f"{sum(every)} of {len(every)} ({sum(every) / max(1, len(every)):.0%}); {parts}"


def summary(runs: Runs) -> dict[str, list[Any]]:
    """Cells won, and the mean of every metric."""
    best = f"the best unweighted of {', '.join(UNWEIGHTED)}"
    pairs = [(mine, UNWEIGHTED, best) for mine in WEIGHTED] + [(WEIGHTED[2], ("mst",), "`mst`")]
    wins = [(mine, told, won(runs, mine, others)) for mine, others, told in pairs]
    cells = [
        dict(zip(("dataset", "epsilon", "method"), key, strict=True))
        | {"runs": len(own)}
        | {n: float(f"{v:.4g}") for n, v in mean_over(own, list(own)).items() if n in LABELS}
        for key, own in runs.items()
    ]
    return {
        "won": [f"`{mine}` against {told}: {share(w)}." for mine, told, w in wins if w],
        "cells": cells,
    }


def lost(cells: Sequence[Mapping[str, Any]]) -> str:
    """Where the first of `WEIGHTED` is not the best by the means of all runs."""
    mine, where = WEIGHTED[0], list[tuple[str, str]]()
    by_setting: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        by_setting.setdefault((cell["dataset"], cell["epsilon"]), {})[cell["method"]] = cell
    for setting, own in by_setting.items():
        for name in judged(own[mine]).values() if mine in own else ():
            best = max if name in HIGHER_IS_BETTER else min
            rivals = [own[other][name] for other in UNWEIGHTED if other in own]
            if best(own[mine][name], *rivals) in rivals:
                where.append(setting)
    datasets, epsilons = (Counter(setting[place] for setting in where) for place in (0, 1))
    told = [f"{count} of {name}" for name, count in datasets.items()]
    told += [f"{count} at epsilon {epsilon}" for epsilon, count in epsilons.items()]
    return f"By the means of all runs, `{mine}` is not the best in: {', '.join(told) or 'none'}."


def page(record: Mapping[str, Any]) -> list[str]:
    """The page of a record."""
    lines = [
        "# Measured weights against unweighted peers, at equal total epsilon",
        "",
        f"`{record['command']}`, dpiw {record['dpiw']} ({record['commit']}). Every release spends"
        f" the same (epsilon, delta = {DELTA}) in total, add/remove one row. Splits, specs and"
        " metrics are those of [measured_table.md](measured_table.md); means over runs. MST and AIM"
        " are those of smartnoise-synth on mbi, at their defaults, on PrivBayes' public codes, each"
        " row drawn independently from the fit (benchmarks/peers); they read the exact number of"
        " rows, charge nothing for it, and their noise cannot be seeded. AIM on"
        f" {', '.join(AIM_ON)} alone. Inside a code their numbers lie evenly, as they leave it"
        " open; ours as the bins beside it say. `measured on mst`: MST has"
        f" {1 - Measured.effort:.0%} of the zCDP, weights the rest.",
        "",
        "## Cells won",
        "",
        "A cell is a data set, an epsilon and a metric; won where the mean is better than that of"
        " each of the others, over the runs that both have. Tables: all runs.",
        "",
        *(f"- {line}" for line in record["won"]),
        "",
        lost(record["cells"]),
    ]
    for setting in dict.fromkeys((cell["dataset"], cell["epsilon"]) for cell in record["cells"]):
        part = [c for c in record["cells"] if (c["dataset"], c["epsilon"]) == setting]
        names = [*judged(part[0]).values()]
        lines += [
            "",
            f"### {setting[0]}, epsilon {setting[1]}",
            "",
            *head(["method", *(LABELS[n] for n in names), "runs"]),
        ]
        lines += [row([c["method"], *(f"{c[n]:.4g}" for n in names), c["runs"]]) for c in part]
    return lines


def main(arguments: list[str]) -> int:
    parser = options(__doc__, "weights_table")
    parser.add_argument(
        "--datasets", nargs="+", default=["banknote", "breast", "boston", "adult", "acs"]
    )
    parser.add_argument("--epsilons", nargs="+", default=["0.5", "1", "3", "6"])
    parser.add_argument("--methods", nargs="+", default=[*UNWEIGHTED, *WEIGHTED])
    parser.add_argument("--runs", type=int, default=4)
    chosen = parsed(parser, arguments)
    out = chosen.out or RESULTS
    if chosen.page:
        write(out, "measured_peers", read(out, "measured_peers"), page)
        return 0
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    keys = [
        (dataset, epsilon, method, run)
        for run, dataset, epsilon in product(range(chosen.runs), chosen.datasets, chosen.epsilons)
        for method in methods_on(dataset)
        if method in chosen.methods
    ]
    stamped = stamp("python benchmarks/measured_peers.py --data FOLDER")
    work = partial(kept, store=store, python=environment(store.folder))
    grid = [cell_of(method, dataset, epsilon, run) for dataset, epsilon, method, run in keys]
    runs: dict[tuple[str, str, str], dict[int, dict[str, float]]] = {}
    done = records(grid, work, chosen.jobs)
    for (dataset, epsilon, method, run), found in zip(keys, done, strict=True):
        if "metrics" in found:
            runs.setdefault((dataset, epsilon, method), {})[run] = found["metrics"]
    write(out, "measured_peers", {**stamped, **summary(runs)}, page, again=chosen.again)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
