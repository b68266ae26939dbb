"""Two studies beside the tables: how to split one budget, and Bayesian logistic regression.

The split: the joint effort's share that weights get, at one total (epsilon, delta). The Bayesian
figure: area under the ROC curve, on the test rows, of the posterior predictive of a logistic
regression (`dpiw.analysis.bayes`, Laplace's approximation), against the total epsilon.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from metrics import Array, auc
from paper_cells import REAL, Cell, release
from paper_sets import Halves, PaperStore, split

from dpiw.analysis.bayes import logistic_posterior
from dpiw.errors import WeightError

SPLIT_SETS = ("banknote", "breast")
SPLIT_GENERATORS = ("privbayes", "dpgan")
SPLIT_KINDS = ("joint_linear", "joint_measured")
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)

BAYES_SETS = ("banknote", "breast", "iris")
BAYES_GENERATOR = "privbayes"
BAYES_KINDS = ("none", "joint_linear", "joint_measured", "joint_dp_mlp")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
PRIOR_SCALE = 10.0
DRAWS = 200


def split_cells(runs: int) -> list[Cell]:
    """Releases at one total with every share; the share 0 is `none`, in the tables already."""
    grid = []
    for run in range(runs):
        for dataset in SPLIT_SETS:
            for generator in SPLIT_GENERATORS:
                setting = {"run": run, "dataset": dataset, "generator": generator}
                grid.append(Cell(**setting, weights="none"))
                grid += [
                    Cell(**setting, weights=kind, share=share)
                    for kind in SPLIT_KINDS
                    for share in SHARES
                ]
    return grid


def bayes_cells(runs: int) -> list[Cell]:
    """Releases over the epsilons, and the confidential rows themselves."""
    grid = []
    for run in range(runs):
        for dataset in BAYES_SETS:
            grid.append(Cell(run=run, dataset=dataset, generator=REAL, weights="none"))
            grid += [
                Cell(
                    run=run, dataset=dataset, generator=BAYES_GENERATOR, weights=kind,
                    epsilon=epsilon,
                )
                for epsilon in EPSILONS
                for kind in BAYES_KINDS
            ]  # fmt: skip
    return grid


def predictive_auc(halves: Halves, rows: Array, w: Array, *, weighted: bool, seed: int) -> float:
    """Of the mean probability over posterior draws, at the test rows; one half without a fit."""
    x, y = halves.ruler.parts(rows)
    names = [f"x{j}" for j in range(x.shape[1])]
    frame = pd.DataFrame(x, columns=names).assign(y=np.rint(y))
    tx, ty = halves.ruler.parts(halves.test)
    try:
        posterior = logistic_posterior(
            (frame, w), "y", names, prior_scale=PRIOR_SCALE, weighted=weighted
        )
    except WeightError:
        return 0.5
    draws = posterior.draw(DRAWS, np.random.default_rng(seed))
    scores = np.column_stack([np.ones(len(tx)), tx]) @ draws.T
    return auc(ty, (1 / (1 + np.exp(-np.clip(scores, -500, 500)))).mean(axis=1))


def _rows(cell: Cell, halves: Halves, data: Path) -> tuple[Array, Array]:
    if cell.generator == REAL:
        return halves.ruler.rows(halves.train), np.ones(halves.train.rows)
    drawn, w = release(cell, data)
    return halves.ruler.rows(drawn.scaled), w


def compute_bayes(cell: Cell, store: PaperStore) -> dict[str, Any]:
    """The record of one Bayesian cell: from the store, or made and kept."""
    name = f"bayes-{cell.name}"
    known = store.read(cell.dataset, name)
    if known is not None:
        return known
    started = time.process_time()
    halves = split(cell.dataset, cell.run, store.data)
    weighted, record = cell.weights != "none", vars(cell) | {"refused": ""}
    try:
        rows, w = _rows(cell, halves, store.data)
        area = predictive_auc(halves, rows, w, weighted=weighted, seed=cell.run)
        record["metrics"] = {"bayes_auc": area}
    except WeightError as error:
        record["refused"] = str(error)
    record["cpu_seconds"] = time.process_time() - started
    store.write(cell.dataset, name, record)
    return record
