"""Neural generators, with and without weights, at equal total epsilon: the table.

    make bench-neural DATA=FOLDER
    python benchmarks/neural_table.py --data FOLDER [--runs 5] [--adult-runs 3] [--quick]

FOLDER holds banknote.csv, breast.csv, iris.csv and adult.csv. Cells are kept in `--cache`, in a
folder named by data, settings and code: a run that was cut short goes on. Noise, splits and rows
are seeded by the run's number (1, 2, ...): the table can be made again to the digit, times aside.
`--quick` makes two runs of the small sets and writes beside the cache.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from neural_cells import (
    DATASETS,
    EPSILONS,
    EXACT,
    GENERATORS,
    MEASURED,
    ORDER,
    WEIGHTS,
    NeuralStore,
    cells,
    compute,
    plan_for,
)
from neural_page import METRICS, page, table_of
from weights_cells import CODE, DELTA, PERCEPTRON, ROOT, TEST_SHARE, TV_BINS
from weights_summary import CELL
from weights_table import QUICK_RUNS, commit, records

from dpiw import __version__
from dpiw.plan.plan import Plan


def runs_of(chosen: argparse.Namespace) -> dict[str, int]:
    """How many runs each data set gets."""
    if chosen.quick:
        return dict.fromkeys((name for name in chosen.datasets if name != "adult"), QUICK_RUNS)
    return {name: chosen.adult_runs if name == "adult" else chosen.runs for name in chosen.datasets}


def settings(facts: Mapping[str, Any]) -> list[str]:
    """How it was made and what the words mean."""
    net = PERCEPTRON
    sizes = "; ".join(
        f"{name} {runs} runs, nominal rows {DATASETS[name].nominal_rows}, synthetic rows"
        f" {DATASETS[name].synthetic_rows}"
        for name, runs in facts["runs"].items()
    )
    return [
        f"`{facts['command']}`, dpiw {__version__} ({facts['commit']}), Python {facts['python']},"
        f" {facts['cpu_minutes']} CPU minutes on one core, no GPU. Values: mean over runs ±"
        " standard error. The runs share one data file: the errors are those of splits, noise,"
        " sampling and the GANs' public starts (a run has its own), not of another file. Time, not"
        " results, decided how many runs there are.",
        "",
        f"- {sizes}.",
        f"- Every private release spends the same total (epsilon, delta = {DELTA}), add/remove one"
        " row, its noise solved jointly over its stages. `none` and `discriminator`: the generator"
        " has the whole budget. `linear`, `dp_mlp`: effort shared 1:1;"
        f" `{MEASURED}`: 7:3.",
        "- weights: `linear`: `beta_debiased`, Gaussian noise, self-normalised."
        " `dp_mlp`: a network by"
        " DP-SGD, without replays (they judge the verdict and change no weight)."
        " `discriminator`: the logit of a logistic-loss discriminator, free; not for `pategan`,"
        " whose student is no ratio. `measured`: noisy means of features, and rows chosen from a"
        " base of the generator's; without weights its rows are others of the same fit. Weights are"
        " kept whatever the plan's forecast says.",
        f"- Generators: {'; '.join(f'{k} {dict(v)}' for k, v in GENERATORS.items())}; no settings:"
        " the defaults, the same on all data sets and not tuned on these.",
        f"- {', '.join(EXACT)}: not private: the same networks on exact gradients, what `dpgan` and"
        " `dpcgan` would be without noise and clipping. `real`: the confidential rows themselves.",
        "- `histogram` draws every column by itself: without weights nothing predicts its target,"
        " and its AUC is that of chance, on either side of one half. Being above it says little.",
        f"- TV: mean total variation over all one- and two-way margins on public bins (declared"
        f" cuts, else {TV_BINS} of equal width) against the held-out {TEST_SHARE:.0%}.",
        f"- MLP: one hidden layer of {net.hidden} ReLU, {net.steps} steps of {net.batch} rows;"
        " linear: logistic regression; both fitted on the weighted rows, AUC on the held-out ones."
        " Iris has three classes: mean of the three one-vs-rest areas (macro).",
        "- Fit, CPU s: of the generator's private stage; weights, CPU s: their stage and the"
        " weighing. Shared machine.",
        "- Lower is better for TV, higher for AUC. Clearly better: the paired difference over runs"
        " is above zero by more than its two-sided 95% t interval; by chance alone 2.5% of the"
        " comparisons are, and 2.5% clearly worse. Settings share the runs' noise streams. Of few"
        " runs few differences are clear: see also in how many settings the mean is better (up). In"
        " the tables of differences: **clearly better**, *clearly worse*.",
        "",
    ]


def record_of(frame: pd.DataFrame, facts: Mapping[str, Any], noise: Mapping[str, Any]) -> str:
    """The whole table as JSON, one line per setting with its runs."""
    names = [*METRICS, "ess_share", "generator_seconds", "weights_seconds"]
    lines = []
    for key, part in frame.groupby(CELL, sort=False):
        cell: dict[str, Any] = dict(zip(CELL, key, strict=True))
        cell["plan"] = noise.get("-".join(key))
        cell["verdict"] = [verdict for verdict in part.verdict if isinstance(verdict, str)]
        cell["runs"] = {n: [float(f"{v:.5g}") for v in part[n]] for n in names if part[n].any()}
        cell["unweighted"] = {n: [float(f"{v:.5g}") for v in part[f"plain_{n}"]] for n in METRICS}
        lines.append(json.dumps({k: v for k, v in cell.items() if v}))
    body = ",\n  ".join(lines)
    top = json.dumps(dict(facts), indent=1)[:-2]
    return f'{top},\n "cells": [\n  {body}\n ]\n}}\n'


def plans(frame: pd.DataFrame, store: NeuralStore) -> dict[str, Any]:
    """Public facts of every private setting, kept like cells: their plans take long to compile."""
    facts = {}
    for key, _ in frame[frame.epsilon.isin(EPSILONS)].groupby(CELL, sort=False):
        name = "-".join(key)
        known = store.read(key[0], f"plan-{name}")
        facts[name] = plan_facts(plan_for(*key, store.data)) if known is None else known
        if known is None:
            store.write(key[0], f"plan-{name}", facts[name])
    return facts


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Effort, composed epsilon, and what the plan says of its weights beforehand."""
    facts: dict[str, Any] = {"effort": plan.effort, "epsilon_pld": plan.epsilon_pld}
    if plan.forecast is not None:
        facts |= {"resolution": plan.forecast.resolution, "feasible": plan.forecast.feasible}
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in facts.items()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5, help="of the small sets")
    parser.add_argument("--adult-runs", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--datasets", nargs="+", default=list(ORDER), choices=list(ORDER))
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "neural_table")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    runs = runs_of(chosen)
    store = NeuralStore(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    wanted = cells(runs, EPSILONS)
    by_name = {record["name"]: record for record in records(wanted, store, chosen.jobs, compute)}
    frame = table_of([by_name[cell.name] for cell in wanted])
    command = "python benchmarks/neural_table.py --data FOLDER" + (
        " --quick" if chosen.quick else f" --runs {chosen.runs} --adult-runs {chosen.adult_runs}"
    )
    facts = {
        "command": command, "dpiw": __version__, "commit": commit(), "code": CODE[:16],
        "python": platform.python_version(), "runs": runs, "delta": DELTA,
        "cpu_minutes": round(frame.cpu_seconds.sum() / 60, 1),
        "generators": {k: dict(v) for k, v in GENERATORS.items()},
        "weights": {k: dict(v) for k, v in WEIGHTS.items()},
    }  # fmt: skip
    beside = chosen.cache / "quick" if chosen.quick else ROOT / "benchmarks" / "results"
    out = chosen.out or beside
    out.mkdir(parents=True, exist_ok=True)
    (out / "neural_table.json").write_text(record_of(frame, facts, plans(frame, store)))
    text = ["# Neural generators and weights at equal total epsilon", "", *settings(facts),
            *page(frame)]  # fmt: skip
    (out / "neural_table.md").write_text("\n".join(text) + "\n")
    print(f"wrote {out / 'neural_table.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
