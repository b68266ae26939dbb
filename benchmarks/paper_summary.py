"""From cells to means, and ours beside the paper's: who is better, and clearly so.

A cell is won if our mean is strictly better than the paper's in the metric's direction; clearly if
by more than two joint standard errors, sqrt(ours^2 + theirs^2). Ours are over our own runs, theirs
as printed; the splits are not the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from paper_cells import ADVERSARIAL, REAL
from paper_measure import METRICS, higher_is_better
from paper_sets import SETS

Key = tuple[str, str, str, str]
"""Data set, generator, weights, metric."""

_METHODS = {
    "None": "none", "BetaNoised": "beta_noised", "BetaDebiased": "beta_debiased",
    "DP-MLP": "dp_mlp", "Discriminator": "discriminator", "LogReg": "logreg", "MLP": "mlp",
}  # fmt: skip
_METRICS = {"WST": "wst", "beta_MSE": "beta_mse", "MLP_ROC_AUC": "mlp", "MLP_MSE": "mlp"}
PAPER_KINDS = tuple(_METHODS.values())
EXTRA_KINDS = ("joint_linear", "joint_fourier")
LABELS: Mapping[str, str] = {
    **{own: name for name, own in _METHODS.items()},
    "joint_linear": "Beta debiased, one total",
    "joint_fourier": "Fourier debiased, one total",
}
GENERATORS: Mapping[str, str] = {
    "dpgan": "DPGAN", "dpcgan": "DPCGAN", "privbayes": "PrivBayes", "gan": "GAN, not private",
    "cgan": "CGAN, not private",
}  # fmt: skip
MNIST = "mnist"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A mean with its standard error over runs (nan for one run; 0 runs: as printed)."""

    mean: float
    error: float
    runs: int = 0

    @property
    def text(self) -> str:
        """Four digits, or three with an error."""
        if math.isnan(self.error):
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} ± {self.error:.1g}"


def figure(values: Sequence[float]) -> Figure:
    """Mean and standard error of runs."""
    series = pd.Series(list(values), dtype=float)
    return Figure(mean=float(series.mean()), error=float(series.sem()), runs=len(series))


def figures(records: Sequence[Mapping[str, Any]]) -> dict[Key, Figure]:
    """Of the table's records: one figure per cell and metric."""
    runs: dict[Key, list[float]] = {}
    for record in records:
        for metric, value in record.get("metrics", {}).items():
            key = (record["dataset"], record["generator"], record["weights"], metric)
            runs.setdefault(key, []).append(value)
    return {key: figure(values) for key, values in runs.items()}


def printed(path: Path) -> dict[Key, Figure]:
    """The paper's cells, by our names."""
    published = {own.published: name for name, own in SETS.items() if own.published}
    found = {}
    for row in pd.read_csv(path, keep_default_na=False).itertuples():
        dataset = published.get(row.dataset, str(row.dataset).lower())
        key = (dataset, str(row.sdgp).lower(), _METHODS[row.iw_method], _METRICS[row.metric])
        found[key] = Figure(mean=float(row.mean), error=float(row.se))
    return found


def is_higher_better(key: Key) -> bool:
    """In the metric's direction on that data set."""
    regression = key[0] in SETS and SETS[key[0]].regression
    return higher_is_better(key[3], regression=regression)


def gain(key: Key, ours: Figure, theirs: Figure) -> float:
    """Ours over theirs, above zero if better."""
    difference = ours.mean - theirs.mean
    return difference if is_higher_better(key) else -difference


def joint_error(ours: Figure, theirs: Figure) -> float:
    """Of the difference; with one run of ours, theirs alone."""
    own = 0.0 if math.isnan(ours.error) else ours.error
    return math.hypot(own, theirs.error)


@dataclass(frozen=True, kw_only=True)
class Count:
    """Cells compared, won, clearly won and clearly lost."""

    cells: int
    won: int
    clearly_won: int
    clearly_lost: int

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"{self.won} of {self.cells} won ({self.clearly_won} clearly,"
            f" {self.clearly_lost} clearly lost)"
        )


def count(pairs: Mapping[Key, tuple[Figure, Figure]]) -> Count:
    """Over cells of ours and theirs."""
    gains = {key: gain(key, *pair) for key, pair in pairs.items()}
    reach = {key: 2 * joint_error(*pair) for key, pair in pairs.items()}
    return Count(
        cells=len(gains),
        won=sum(value > 0 for value in gains.values()),
        clearly_won=sum(value > reach[key] for key, value in gains.items()),
        clearly_lost=sum(value < -reach[key] for key, value in gains.items()),
    )


def against_none(records: Sequence[Mapping[str, Any]], kind: str, metric: str) -> Count:
    """Weights against none of our own releases: settings (data, generator), paired over runs.

    Clearly: the mean paired difference is beyond twice its standard error; never with one run.
    """
    runs: dict[tuple[str, str, int], dict[str, float]] = {}
    for record in records:
        if "metrics" in record:
            place = (record["dataset"], record["generator"], record["run"])
            runs.setdefault(place, {})[record["weights"]] = record["metrics"][metric]
    changes: dict[tuple[str, str], list[float]] = {}
    for (dataset, generator, _), values in runs.items():
        if kind in values and "none" in values:
            sign = 1 if is_higher_better((dataset, generator, kind, metric)) else -1
            change = sign * (values[kind] - values["none"])
            changes.setdefault((dataset, generator), []).append(change)
    found = [figure(values) for values in changes.values()]
    return Count(
        cells=len(found),
        won=sum(one.mean > 0 for one in found),
        clearly_won=sum(one.mean > 2 * one.error for one in found),
        clearly_lost=sum(one.mean < -2 * one.error for one in found),
    )


def pairs(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> dict[Key, Any]:
    """Cells that both have."""
    return {key: (ours[key], theirs[key]) for key in theirs if key in ours}


def unreachable(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> set[Key]:
    """The paper's Wasserstein cells below what any weights of the real rows could reach here.

    By more than two of its standard errors below the mean distance from a test row to its nearest
    confidential row (`wst_least` of `real`): no synthetic rows do better than real ones.
    """
    return {
        key
        for key, one in theirs.items()
        if key[3] == "wst"
        and (key[0], REAL, "none", "wst_least") in ours
        and one.mean + 2 * one.error < ours[key[0], REAL, "none", "wst_least"].mean
    }


def better_than_real(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> set[Key]:
    """The paper's cells that beat the confidential rows themselves, clearly, on our splits."""
    found = set()
    for key, one in theirs.items():
        floor = ours.get((key[0], REAL, "none", key[3]))
        if floor is not None and gain(key, one, floor) > 2 * joint_error(floor, one):
            found.add(key)
    return found


def kinds_in(ours: Mapping[Key, Figure], dataset: str, generator: str) -> list[str]:
    """Weights that a generator's rows have here, the paper's first."""
    order = (*PAPER_KINDS, *EXTRA_KINDS)
    return [k for k in order if any((dataset, generator, k, m) in ours for m in METRICS)]


def paper_flaw(dataset: str, generator: str, kind: str) -> str:
    """What is known against the printed figure's privacy beyond min-max scaling (METHOD)."""
    if kind in ("beta_noised", "beta_debiased"):
        return "iid Laplace at an L2 scale: not epsilon-DP as derived"
    if kind == "dp_mlp":
        return "Algorithm 1: not as claimed under add/remove, over-noised under replace-one"
    if kind in ("logreg", "mlp"):
        return "not private, and not meant to be"
    if kind == "discriminator" and generator in ADVERSARIAL:
        return "free if the discriminator is inside the guarantee; a Wasserstein critic is no ratio"
    return ""
