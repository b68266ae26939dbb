"""Weights against no weights on four data sets, at equal total epsilon: the table.

    make bench-weights DATA=FOLDER
    python benchmarks/weights_table.py --data FOLDER [--runs 10] [--jobs 2] [--quick]

FOLDER holds banknote.csv, breast.csv, boston.csv and adult.csv. Cells are kept in `--cache`, in a
folder named by data, settings and code: a run that was cut short goes on, and stale cells are never
mixed in. Noise, splits and rows are seeded per run: the table can be made again to the digit.
`--quick` makes two runs and writes beside the cache instead of into benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from metrics import PENALTY_PER_ROW
from threadpoolctl import threadpool_limits
from weights_cells import (
    DATASETS,
    DELTA,
    DIRECTIONS,
    EPSILONS,
    GENERATORS,
    KINDS,
    PERCEPTRON,
    REAL,
    ROOT,
    SLICED_TEST_ROWS,
    TABLE,
    TABULAR,
    TEST_SHARE,
    TV_BINS,
    UNUSED,
    Cell,
    Store,
    cells,
    compute,
    plan_for,
)
from weights_page import page
from weights_summary import (
    CELL,
    GROUPS,
    WEIGHTED,
    changes,
    frame_of,
    metrics_of,
    outcome_of,
    same_rows,
)

from dpiw import __version__

QUICK_RUNS = 2
Work = Callable[[Cell, Store], dict[str, Any]]
"""From a cell to its record, kept in the store."""


def one_thread() -> None:
    """Each job uses one thread, whatever the linear algebra library would like."""
    threadpool_limits(limits=1)


def made(wanted: list[Cell], store: Store, jobs: int, work: Work) -> Iterator[dict[str, Any]]:
    """Every cell's record, in the order of completion."""
    if jobs == 1:
        one_thread()
        yield from (work(cell, store) for cell in wanted)
        return
    with ProcessPoolExecutor(jobs, initializer=one_thread) as pool:
        futures = [pool.submit(work, cell, store) for cell in wanted]
        yield from (future.result() for future in as_completed(futures))


def records(
    wanted: list[Cell], store: Store, jobs: int, work: Work = compute
) -> list[dict[str, Any]]:
    """All records, with a line of progress at most every ten seconds."""
    started, last, done = time.monotonic(), 0.0, []
    for record in made(wanted, store, jobs, work):
        done.append(record)
        elapsed = time.monotonic() - started
        if elapsed - last >= 10 or len(done) == len(wanted):
            last = elapsed
            left = elapsed / len(done) * (len(wanted) - len(done))
            print(f"{len(done)} of {len(wanted)} cells, {elapsed:.0f} s, about {left:.0f} s left;"
                  f" last: {record['dataset']} {record['generator']} {record['epsilon']}"
                  f" {record['weights']}", flush=True)  # fmt: skip
    return done


def commit() -> str:
    """The tree's commit, for people; the cache goes by the files themselves.

    `DPIW_COMMIT` says it where the tree is a copy without its history.
    """
    if told := os.environ.get("DPIW_COMMIT"):
        return told
    try:
        process = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return process.stdout.strip()


def settings(chosen: argparse.Namespace, command: str, minutes: float) -> list[str]:
    net = PERCEPTRON
    sizes = "; ".join(
        f"{name} {DATASETS[name].synthetic_rows} (nominal rows {DATASETS[name].nominal_rows})"
        for name in chosen.datasets
    )
    return [
        f"`{command}`, dpiw {__version__} ({commit()}), {chosen.runs} runs, {minutes:.0f} CPU"
        " minutes. Each cell of the tables: mean over runs ± standard error. A run fixes the split"
        f" ({TEST_SHARE:.0%} held out), the noise stream and the rows drawn. The runs share one"
        " data file: the errors are those of splits, noise and sampling, not of another file; and"
        " the settings share the runs' noise streams, so their outcomes are not independent.",
        "",
        f"- Every release spends the same total (epsilon, delta = {DELTA}), add/remove one row.",
        "- weights: `none`: the generator has the whole budget. `linear`:"
        " `beta_debiased`, Gaussian noise, self-normalised, effort shared 1:1 with the generator."
        " `measured`: noisy means of features by the public rule, default settings and split"
        " of the effort; published rows as many, chosen from base rows."
        " `unused`: the rows of such a release, its weights left out.",
        "- Weights are kept even where the plan would publish none, to see what they would do."
        " forecast: the plan's public resolution and tau; `no`: the plan advises against weights.",
        f"- Generators: {'; '.join(f'{k} {dict(GENERATORS[k])}' for k in chosen.generators)}.",
        f"- Synthetic rows published, and as many others for the weights' fit: {sizes}.",
        "- `real`: the confidential rows themselves (80% of the file, weight one): the floor.",
        "- beta: coefficients, intercept included, of a logistic (Boston: ridge) regression of the"
        " target on all columns (public [0, 1] scale, levels one-hot) fitted on weighted rows,"
        " against those fitted on the held-out rows; both with the same penalty per row,"
        f" {PENALTY_PER_ROW:g}. Relative error: squared distance over the squared norm.",
        "- linear: that model's AUC (Boston: mean squared error and R2) on the held-out rows."
        " Squared errors are in units of the public target range squared.",
        f"- MLP: scikit-learn {version('scikit-learn')}, one hidden layer of {net.hidden} ReLU,"
        f" Adam at {net.learning_rate:g}, {net.steps} steps of {net.batch} rows, on the first"
        f" {net.rows} rows; weights by `sample_weight`; seeded per run.",
        "- W1, sum of 1-D: over columns on the public [0, 1] scale; unordered levels at distance"
        f" one. Sliced: mean over {DIRECTIONS} fixed random directions of the centred encoding; at"
        f" most {SLICED_TEST_ROWS} held-out rows.",
        f"- TV: mean over all one- and two-way margins, on public bins (declared cuts, else"
        f" {TV_BINS} of equal width), against the held-out rows.",
        "- Lower is better but for AUC, R2 and ESS share.",
        "- `none` against weighted: what the budget bought. `unused` against weighted: what the"
        " verdict is asked, the same rows with and without their weights.",
        "- Outcomes: an aspect is **helped** if the paired difference over runs is better than zero"
        " by more than its two-sided 95% t interval, *hurt* if worse by as much; by chance alone"
        " either happens in 2.5% of the comparisons. Over several aspects: `helped` if some is and"
        " none is hurt, `hurt` if the reverse, `mixed` if both.",
    ]


def record_of(
    frame: pd.DataFrame, facts: dict[str, Any], public: dict[tuple[str, ...], dict[str, Any]]
) -> str:
    """The whole table as JSON, one line per setting with its runs."""
    by_base = {base: changes(frame, base) for base in ("none", UNUSED)}
    lines = []
    for key, part in frame.groupby(CELL, sort=False):
        cell: dict[str, Any] = dict(zip(CELL, key, strict=True))
        if key[-1] in WEIGHTED:
            cell |= {"forecast": rounded(public[key]), "verdict": list(part.verdict)}
            cell |= {
                f"against_{base}": {
                    group: outcome_of(by_base[base][key], group) for group in GROUPS
                }
                for base in by_base
            }
            cell |= {n: [float(f"{v:.3g}") for v in part[n]] for n in ("noise", "signal_p")}
        names = [*metrics_of(part), "ess_share"]
        cell["runs"] = {n: [float(f"{v:.5g}") for v in part[n]] for n in names}
        lines.append(json.dumps(cell))
    body = ",\n  ".join(lines)
    head = json.dumps(facts, indent=1)[:-2]
    return f'{head},\n "cells": [\n  {body}\n ]\n}}\n'


def rounded(forecast: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in forecast.items()}


def forecasts(chosen: argparse.Namespace, data: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    by_setting = {}
    for dataset in chosen.datasets:
        for generator in chosen.generators:
            for epsilon in chosen.epsilons:
                for kind in (kind for kind in chosen.kinds if kind in WEIGHTED):
                    plan = plan_for(dataset, generator, epsilon, kind, data)
                    assert plan.forecast is not None
                    by_setting[dataset, generator, epsilon, kind] = vars(plan.forecast)
    return by_setting


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs, for a look")
    parser.add_argument("--datasets", nargs="+", default=list(TABLE), choices=list(DATASETS))
    parser.add_argument("--epsilons", nargs="+", default=list(EPSILONS))
    parser.add_argument("--generators", nargs="+", default=list(TABULAR), choices=GENERATORS)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--name", default="weights_table", help="of the result files")
    parser.add_argument("--cache", type=Path, default=ROOT / ".dpiw" / "weights_table")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    chosen.runs = QUICK_RUNS if chosen.quick else chosen.runs
    results = ROOT / "benchmarks" / "results"
    out = chosen.out or (chosen.cache / "quick" if chosen.quick else results)
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    asked = (tuple(chosen.datasets), tuple(chosen.epsilons), tuple(chosen.kinds), chosen.runs)
    wanted = cells(*asked, generators=tuple(chosen.generators))
    made_records = {record["name"]: record for record in records(wanted, store, chosen.jobs)}
    frame = frame_of([made_records[cell.name] for cell in wanted])
    if not same_rows(frame):
        raise SystemExit("the weighted releases of a run do not rest on one generator draw")
    public = forecasts(chosen, store.data)
    minutes = frame.cpu_seconds.sum() / 60
    words = [word for word in arguments if word not in ("--data", str(chosen.data))]
    command = " ".join(["python benchmarks/weights_table.py --data FOLDER", *words])
    facts = {
        "command": command, "dpiw": __version__, "commit": commit(),
        "python": platform.python_version(), "cpu_minutes": round(minutes, 1),
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{chosen.name}.json").write_text(record_of(frame, facts, public))
    text = ["# Weights at equal total epsilon", "", *settings(chosen, command, minutes), "",
            *page(frame, public)]  # fmt: skip
    (out / f"{chosen.name}.md").write_text("\n".join(text) + "\n")
    print(f"wrote {out / chosen.name}.md; {REAL} rows: the floor")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
