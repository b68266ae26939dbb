"""Weights against no weights, and generators against each other, at equal total epsilon.

    make bench-weights DATA=FOLDER [QUICK=1], make bench-neural DATA=FOLDER [QUICK=1]
    python benchmarks/weights_table.py --data FOLDER --name measured_table [--jobs 2] [--runs 10]
    python benchmarks/weights_table.py --name measured_table --page

FOLDER holds the data sets' files (`weights_cells.DATASETS`). A name stands for a study of `STUDIES`
and its page. Cells are kept in `--cache`, in a folder named by data and code: a run that was cut
short goes on. Noise, splits and rows are seeded per run: the table can be made again to the digit.
`--quick` makes two runs and writes beside the cache instead of into benchmarks/results.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from metrics import PENALTY_PER_ROW
from provenance import RESULTS, stamp
from study import Store, options, parsed, read, records, write
from weights_cells import (
    DATASETS,
    DELTA,
    DIRECTIONS,
    EPSILONS,
    EXACT,
    GENERATORS,
    NEURAL,
    PERCEPTRON,
    SLICED_TEST_ROWS,
    TEST_SHARE,
    TV_BINS,
    Cell,
    cells,
    compute,
    plan_for,
)
from weights_page import CELL, body, summary

QUICK_RUNS = 2


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a page compares; `fewer` are data sets whose runs take long, with their numbers."""

    datasets: tuple[str, ...]
    generators: tuple[str, ...] = ("privbayes", "histogram")
    epsilons: tuple[str, ...] = EPSILONS
    kinds: tuple[str, ...] = ("none", "measured")
    runs: int = 10
    fewer: Mapping[str, int] = field(default_factory=dict)


STUDIES: Mapping[str, Study] = {
    "weights_table": Study(
        datasets=("banknote", "breast", "boston", "adult"), kinds=("none", "linear")
    ),
    "measured_table": Study(
        datasets=("banknote", "breast", "boston", "adult", "acs"), epsilons=("0.5", "1", "3", "6")
    ),
    "generators": Study(
        datasets=("banknote", "acs", "adult"), epsilons=("1",), runs=5,
        generators=("histogram", "privbayes", "mst", *NEURAL),
    ),
    "generators_aim": Study(
        datasets=("banknote", "acs"), generators=("aim",), epsilons=("1",), runs=5
    ),
    "measured_neural": Study(
        datasets=("adult",), generators=("dpgan", "pategan"), epsilons=("1", "6")
    ),
    "neural_table": Study(
        datasets=("banknote", "breast", "iris", "adult"), epsilons=("1", "6"), runs=3,
        generators=("privbayes", "histogram", *NEURAL, *EXACT), fewer={"adult": 1},
        kinds=("none", "discriminator", "linear", "dp_mlp", "measured"),
    ),
}  # fmt: skip


def settings(record: Mapping[str, Any]) -> list[str]:
    """How it was made and what the words mean."""
    net = PERCEPTRON
    sizes = "; ".join(
        f"{name} {runs} runs, {DATASETS[name].synthetic_rows} synthetic rows (nominal rows"
        f" {DATASETS[name].nominal_rows})"
        for name, runs in record["runs"].items()
    )
    return [
        f"`{record['command']}`; these figures: dpiw {record['dpiw']} ({record['commit']})."
        f"{record.get('note', '')} Each cell of the tables: mean over runs ± standard error. A run"
        f" fixes the split ({TEST_SHARE:.0%} held out), the noise stream and the rows drawn. The"
        " runs share one data file: the errors are those of splits, noise and sampling, not of"
        " another file; and the settings share the runs' noise streams, so their outcomes are not"
        " independent.",
        "",
        f"- {sizes}; as many other rows for a fit of weights.",
        f"- Every private release spends the same total (epsilon, delta = {DELTA}), add/remove one"
        " row, its noise solved jointly over its stages. `none` and `discriminator`: the generator"
        " has the whole budget. `linear`, `dp_mlp`: effort shared 1:1; `measured`: 7:3.",
        "- weights: `linear`: `beta_debiased`, Gaussian noise, self-normalised. `measured`: noisy"
        " means of features by the public rule, and rows chosen from base rows. `dp_mlp`: a network"
        " by DP-SGD. `discriminator`: the logit of a logistic-loss discriminator.",
        "- Weights are kept even where the plan would publish none, to see what they would do."
        " forecast: the plan's public resolution; `no`: the plan advises against weights.",
        f"- Generators: {'; '.join(f'{k} {dict(GENERATORS[k])}' for k in record['generators'])};"
        " without settings: the defaults, not tuned on these data sets. `gan`, `cgan`: what `dpgan`"
        " and `dpcgan` are without noise and clipping, not private.",
        "- `real`: the confidential rows themselves (80% of the file, weight one): the floor.",
        "- beta: coefficients, intercept included, of a logistic (Boston: ridge) regression of the"
        " target on all columns (public [0, 1] scale, levels one-hot) fitted on weighted rows,"
        " against those fitted on the held-out rows; both with the same penalty per row,"
        f" {PENALTY_PER_ROW:g}. Relative error: squared distance over the squared norm.",
        "- linear: that model's AUC (Boston: mean squared error and R2) on the held-out rows."
        " Squared errors are in units of the public target range squared. Of three classes: the"
        " mean of the one-vs-rest areas.",
        f"- MLP: one hidden layer of {net.hidden} ReLU, Adam at {net.learning_rate:g}, {net.steps}"
        f" steps of {net.batch} rows, on the first {net.rows} rows; seeded per run.",
        "- W1, sum of 1-D: over columns on the public [0, 1] scale; unordered levels at distance"
        f" one. Sliced: mean over {DIRECTIONS} fixed random directions of the centred encoding; at"
        f" most {SLICED_TEST_ROWS} held-out rows.",
        f"- TV: mean over all one- and two-way margins, on public bins (declared cuts, else"
        f" {TV_BINS} of equal width), against the held-out rows.",
        "- Lower is better but for AUC, R2 and ESS share.",
        "- Outcomes: an aspect is **helped** if the paired difference over runs is better than zero"
        " by more than its two-sided 95% t interval, *hurt* if worse by as much; by chance alone"
        " either happens in 2.5% of the comparisons. Over several aspects: `helped` if some is and"
        " none is hurt, `hurt` if the reverse, `mixed` if both.",
        "",
    ]


def page(record: Mapping[str, Any]) -> list[str]:
    """The page of a record."""
    return ["# Weights at equal total epsilon", "", *settings(record), *body(record["cells"])]


def forecasts(grid: Sequence[Cell], data: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """What the plans of private releases say of their weights beforehand, by setting."""
    facts = {}
    for key in dict.fromkeys(tuple(getattr(cell, part) for part in CELL) for cell in grid):
        if key[1] in GENERATORS and key[1] not in EXACT:
            forecast = plan_for(*key, data).forecast
            if forecast is not None:
                facts[key] = {
                    "resolution": round(forecast.resolution, 4), "feasible": forecast.feasible
                }  # fmt: skip
    return facts


def main(arguments: list[str]) -> int:
    parser = options(__doc__, "weights_table")
    parser.add_argument("--name", default="weights_table", choices=STUDIES)
    parser.add_argument("--runs", type=int, help="of each data set")
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs, without Adult")
    chosen = parsed(parser, arguments)
    study, out = STUDIES[chosen.name], chosen.out or RESULTS
    if chosen.page:
        write(out, chosen.name, read(out, chosen.name), page)
        return 0
    datasets = chosen.datasets or study.datasets
    runs = {name: chosen.runs or study.fewer.get(name, study.runs) for name in datasets}
    if chosen.quick:
        out = chosen.out or chosen.cache / "quick"
        runs = {name: QUICK_RUNS for name in datasets if name != "adult"}
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    grid = cells(runs, study.generators, study.epsilons, study.kinds)
    stamped = stamp(f"python benchmarks/weights_table.py --data FOLDER --name {chosen.name}")
    done = records(grid, partial(compute, store=store), chosen.jobs)
    found = summary(done, forecasts(grid, store.data))
    record = {**stamped, "runs": runs, "generators": study.generators, "cells": found}
    write(out, chosen.name, record, page, again=chosen.again)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
