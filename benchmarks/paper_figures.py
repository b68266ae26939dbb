"""Plots of the paper's page: toy, weight histograms, budget split, Bayesian logistic regression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from metrics import Array
from paper_cells import Cell, release
from paper_known import TOY_METHODS, Known, mass_outside
from paper_studies import BAYES_KINDS, BAYES_SETS, SPLIT_GENERATORS, SPLIT_KINDS, SPLIT_SETS

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

HISTOGRAM_KINDS = (
    "beta_noised", "beta_debiased", "dp_mlp", "logreg", "mlp",
)  # fmt: skip
COLOURS: Mapping[str, str] = {
    "real": "black", "none": "tab:grey", "joint_linear": "tab:blue",
    "joint_dp_mlp": "tab:green",
}  # fmt: skip
SHOWN = 700
"""Points of a toy panel."""


def _save(figure: Figure, path: Path, **settings: Any) -> Path:
    # The same figure gives the same file, and text stays text: half the size.
    mpl.rcParams.update({"svg.hashsalt": "dpiw", "svg.fonttype": "none"})
    options: dict[str, Any] = {} if path.suffix == ".png" else {"metadata": {"Date": None}}
    figure.savefig(path, bbox_inches="tight", **options, **settings)
    plt.close(figure)
    return path


def toy(known: Known, weights: Mapping[str, Array], path: Path) -> Path:
    """Rows drawn in proportion to their weights, against the triangle they should fill."""
    panels = ["confidential", *TOY_METHODS]
    figure, axes = plt.subplots(2, 4, figsize=(10, 5.2), sharex=True, sharey=True)
    rng = np.random.default_rng(0)
    for axis, name in zip(axes.flat, panels, strict=True):
        if name == "confidential":
            rows, title = known.real[:SHOWN], "confidential rows"
        else:
            w = weights[name]
            chosen = rng.choice(len(w), SHOWN, p=w / w.sum())
            rows = known.published[chosen]
            title = f"{name}: {mass_outside(known, w):.0%} above"
        axis.scatter(rows[:, 0], rows[:, 1], s=3, alpha=0.5, linewidths=0)
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.7)
        axis.set(title=title, aspect="equal", xticks=[0, 1], yticks=[0, 1])
        axis.title.set_fontsize(9)
    return _save(figure, path, dpi=75)


def histograms(data: Path, toy_weights: Mapping[str, Array], path: Path) -> Path:
    """Log weights (mean weight one) of the toy and of one PrivBayes release of Banknote."""
    figure, axes = plt.subplots(2, len(HISTOGRAM_KINDS), figsize=(12, 4), sharey="row")
    for column, kind in enumerate(HISTOGRAM_KINDS):
        cell = Cell(run=0, dataset="banknote", generator="privbayes", weights=kind)
        weights = {"toy": toy_weights[kind], "banknote": release(cell, data)[1]}
        for line, (where, w) in enumerate(weights.items()):
            axis = axes[line, column]
            log_weights = np.log(np.maximum(w / w.mean(), 1e-6))
            axis.hist(np.clip(log_weights, -6, 6), bins=np.linspace(-6, 6, 49), density=True)
            if where == "toy":
                axis.axvline(np.log(2), color="black", ls="--", lw=0.8)
            axis.set(xlim=(-6, 6), xticks=(-6, -3, 0, 3, 6))
            axis.set_yscale("log")
            axis.set_title(f"{where}: {kind}", fontsize=8)
            axis.tick_params(labelsize=7)
    figure.supxlabel("log weight (mean weight one; cut at -6 and 6)", fontsize=8)
    figure.supylabel("density of synthetic rows", fontsize=8)
    figure.tight_layout()
    return _save(figure, path)


def _lines(
    axis: Any, frame: pd.DataFrame, x: str, y: str, name: str, *, colour: str,
    shift: float = 0.0, stretch: float = 1.0,
) -> None:  # fmt: skip
    # Points of several lines stand a little apart, so that their errors can be told from each other
    parts = frame.groupby(x)[y]
    mean, error = parts.mean(), parts.sem().fillna(0.0)
    axis.errorbar(
        mean.index * stretch + shift, mean, yerr=error, label=name, color=colour, capsize=2
    )


def frame_of(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One line per record, its metrics as columns."""
    flat = [{k: v for k, v in r.items() if k != "metrics"} | r.get("metrics", {}) for r in records]
    return pd.DataFrame(flat)


def budget_split(frame: pd.DataFrame, path: Path) -> Path:
    """Metrics against the share of the one budget that goes to the weights; 0: no weights."""
    metrics = {
        "beta_relative": "beta, relative error (down)", "wst": "WST (down)", "mlp": "MLP AUC (up)",
    }  # fmt: skip
    rows = [(d, g) for d in SPLIT_SETS for g in SPLIT_GENERATORS]
    figure, axes = plt.subplots(len(rows), len(metrics), figsize=(9, 2.2 * len(rows)))
    for line, (dataset, generator) in enumerate(rows):
        subset = frame[(frame.dataset == dataset) & (frame.generator == generator)]
        base = subset[subset.weights == "none"].assign(share=0.0)
        for column, metric in enumerate(metrics):
            axis = axes[line, column]
            for place, kind in enumerate(SPLIT_KINDS):
                part = pd.concat([base, subset[subset.weights == kind]])
                _lines(axis, part, "share", metric, kind, colour=COLOURS[kind], shift=0.012 * place)
            axis.set_title(f"{dataset}, {generator}: {metrics[metric]}", fontsize=8)
            axis.tick_params(labelsize=7)
    axes[0, 0].legend(fontsize=7)
    figure.supxlabel(
        "share of the effort for the weights (0: none); in brackets where better is", fontsize=8
    )
    figure.tight_layout()
    return _save(figure, path)


def bayes(frame: pd.DataFrame, path: Path) -> Path:
    """Area under the curve of the posterior predictive against the total epsilon."""
    figure, axes = plt.subplots(1, len(BAYES_SETS), figsize=(10, 3))
    for axis, dataset in zip(axes, BAYES_SETS, strict=True):
        subset = frame[frame.dataset == dataset]
        floor = subset[subset.generator == "real"].bayes_auc.mean()
        axis.axhline(floor, color=COLOURS["real"], ls=":", label="confidential rows")
        for place, kind in enumerate(BAYES_KINDS):
            part = subset[(subset.weights == kind) & (subset.generator != "real")]
            if len(part):
                _lines(
                    axis, part, "epsilon", "bayes_auc", kind, colour=COLOURS[kind],
                    stretch=1.03**place,
                )  # fmt: skip
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
        ticks = sorted(subset.epsilon.unique())
        axis.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        axis.set_title(dataset, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.set_xlabel("total epsilon", fontsize=8)
    axes[0].set_ylabel("ROC AUC", fontsize=8)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    return _save(figure, path)


def drawn(tasks: Sequence[tuple[Callable[..., Path], tuple[Any, ...]]]) -> list[Path]:
    """Every plot of a list of functions and their arguments."""
    return [make(*arguments) for make, arguments in tasks]
