"""From cells to means, and ours beside the paper's: who is better, and clearly so.

A cell is won if our mean is strictly better than the paper's in the metric's direction; clearly if
by more than two joint standard errors, sqrt(ours^2 + theirs^2). Ours are over our own runs, theirs
as printed; the splits are not the same. Of cells where nothing differs `chance_of_clear` would be
called clear: they are counted, not tested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from paper_cells import ADVERSARIAL, REAL
from paper_measure import METRICS, higher_is_better
from paper_sets import SETS
from scipy import stats

Key = tuple[str, str, str, str]
"""Data set, generator, weights, metric."""

_METHODS = {
    "None": "none", "BetaNoised": "beta_noised", "BetaDebiased": "beta_debiased",
    "DP-MLP": "dp_mlp", "Discriminator": "discriminator", "LogReg": "logreg", "MLP": "mlp",
}  # fmt: skip
_METRICS = {"WST": "wst", "beta_MSE": "beta_mse", "MLP_ROC_AUC": "mlp", "MLP_MSE": "mlp"}
PAPER_KINDS = tuple(_METHODS.values())
EXTRA_KINDS = ("joint_linear", "joint_measured")
LABELS: Mapping[str, str] = {
    **{kind: name for name, kind in _METHODS.items()},
    "joint_linear": "Beta debiased, one total",
    "joint_measured": "measured, one total",
}
GENERATORS: Mapping[str, str] = {
    "dpgan": "DPGAN", "dpcgan": "DPCGAN", "privbayes": "PrivBayes", "gan": "GAN, not private",
    "cgan": "CGAN, not private",
}  # fmt: skip
AS_SHIPPED = " as shipped"
"""Ends the name of a peer's rows that its package's own default drew."""

MNIST = "mnist"
CONSTANT_MSE: Mapping[str, float] = {"boston": (9.1971 / 45) ** 2}
"""Mean squared error of predicting the mean, target on [0, 1]: the published standard deviation of
MEDV over its published range, 5 to 50."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A mean with its standard error over runs (nan for one run; 0 runs: as printed).

    Attributes:
        by_run: the runs' own values, where they are known.
    """

    mean: float
    error: float
    runs: int = 0
    by_run: Mapping[int, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Three digits of the mean, two of the error."""
        if math.isnan(self.error):
            return _plain(self.mean, 3)
        return f"{_plain(self.mean, 3)} ± {_plain(self.error, 2)}"


def _plain(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def figure(values: Sequence[float]) -> Figure:
    """Mean and standard error of runs."""
    series = pd.Series(list(values), dtype=float)
    return Figure(mean=float(series.mean()), error=float(series.sem()), runs=len(series))


def figures(records: Sequence[Mapping[str, Any]]) -> dict[Key, Figure]:
    """Of the table's records: one figure per cell and metric."""
    runs: dict[Key, dict[int, float]] = {}
    for record in records:
        for metric, value in record.get("metrics", {}).items():
            key = (record["dataset"], record["generator"], record["weights"], metric)
            runs.setdefault(key, {})[record["run"]] = value
    return {key: replace(figure(list(group.values())), by_run=group) for key, group in runs.items()}


def printed(path: Path) -> dict[Key, Figure]:
    """The paper's cells, by our names."""
    published = {facts.published: name for name, facts in SETS.items() if facts.published}
    cells = {}
    for row in pd.read_csv(path, keep_default_na=False).itertuples():
        dataset = published.get(row.dataset, str(row.dataset).lower())
        key = (dataset, str(row.sdgp).lower(), _METHODS[row.iw_method], _METRICS[row.metric])
        cells[key] = Figure(mean=float(row.mean), error=float(row.se))
    return cells


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
    error = 0.0 if math.isnan(ours.error) else ours.error
    return math.hypot(error, theirs.error)


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
    differences = [figure(values) for values in changes.values()]
    return Count(
        cells=len(differences),
        won=sum(difference.mean > 0 for difference in differences),
        clearly_won=sum(difference.mean > 2 * difference.error for difference in differences),
        clearly_lost=sum(difference.mean < -2 * difference.error for difference in differences),
    )


def chance_of_clear(runs: int) -> tuple[float, float]:
    """Chance beyond two joint errors if nothing differs, both having so many runs.

    A t statistic whose degrees of freedom (Welch) are from runs - 1, one error being all of the
    joint one, to 2 (runs - 1), both being equal: the lesser chance first.
    """
    few, many = (2 * float(stats.t.sf(2, k * (runs - 1))) for k in (1, 2))
    return many, few


def same_side(
    ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure], *, better: bool
) -> set[Key]:
    """Cells that are not clear though every run of ours is on one side of the printed mean."""
    keys = set()
    for key, (mine, paper) in pairs(ours, theirs).items():
        sign = 1 if is_higher_better(key) == better else -1
        clear = abs(gain(key, mine, paper)) > 2 * joint_error(mine, paper)
        values = mine.by_run.values()
        if not clear and values and all(sign * (v - paper.mean) > 0 for v in values):
            keys.add(key)
    return keys


def sure_unit(key: Key) -> bool:
    """Whether the cell's metric is most likely the paper's, at full size.

    WST was identified on unweighted rows; an area under a curve has no unit. The unit of the
    slopes, and of Boston's target, is not known; MNIST is reduced here.
    """
    regression = key[0] in SETS and SETS[key[0]].regression
    return key[0] != MNIST and (key[3] == "wst" or (key[3] == "mlp" and not regression))


def too_steady(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> set[Key]:
    """The paper's Wasserstein cells with less than half the error of the confidential rows here.

    Splits alone make that error, and synthetic rows and weights add to it.
    """
    keys = set()
    for key, paper in theirs.items():
        floor = ours.get((key[0], REAL, "none", "wst"))
        if key[3] == "wst" and floor is not None and paper.error < floor.error / 2:
            keys.add(key)
    return keys


def carried_by_few(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> set[Key]:
    """Cells where less is better and our error is above half our mean: never clearly lost."""
    return {
        key
        for key, (mine, _) in pairs(ours, theirs).items()
        if not is_higher_better(key) and mine.error > mine.mean / 2
    }


def below_constant(theirs: Mapping[Key, Figure]) -> set[Key]:
    """The paper's regressions that a constant would beat, clearly, were the unit ours."""
    return {
        key
        for key, paper in theirs.items()
        if key[3] == "mlp"
        and key[0] in CONSTANT_MSE
        and paper.mean - 2 * paper.error > CONSTANT_MSE[key[0]]
    }


def peer_label(peer: str) -> str:
    """The name of a peer's rows on the page."""
    method = peer.removesuffix(AS_SHIPPED)
    return method.upper() + peer.removeprefix(method)


def against_peer(
    ours: Mapping[Key, Figure], peer: str, generator: str, kind: str, metric: str
) -> Count:
    """Our releases against a peer's without weights, over data sets, paired by run.

    Clearly: in every run that both have, and at least two.
    """
    differences = []
    for dataset in SETS:
        key = (dataset, generator, kind, metric)
        theirs = ours.get((dataset, peer, "none", metric))
        if key in ours and theirs is not None:
            sign, mine = (1 if is_higher_better(key) else -1), ours[key].by_run
            common = mine.keys() & theirs.by_run.keys()
            differences.append([sign * (mine[run] - theirs.by_run[run]) for run in sorted(common)])
    differences = [changes for changes in differences if changes]
    return Count(
        cells=len(differences),
        won=sum(sum(changes) > 0 for changes in differences),
        clearly_won=sum(min(changes) > 0 and len(changes) > 1 for changes in differences),
        clearly_lost=sum(max(changes) < 0 and len(changes) > 1 for changes in differences),
    )


def pairs(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> dict[Key, Any]:
    """Cells that both have."""
    return {key: (ours[key], theirs[key]) for key in theirs if key in ours}


def unreachable(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> set[Key]:
    """The paper's Wasserstein cells below what any weights of the real rows could reach here.

    By more than two of its standard errors below the mean distance from a test row to its nearest
    confidential row (`wst_least` of `real`); as many synthetic rows are hardly nearer.
    """
    return {
        key
        for key, paper in theirs.items()
        if key[3] == "wst"
        and (key[0], REAL, "none", "wst_least") in ours
        and paper.mean + 2 * paper.error < ours[key[0], REAL, "none", "wst_least"].mean
    }


def better_than_real(ours: Mapping[Key, Figure], theirs: Mapping[Key, Figure]) -> set[Key]:
    """The paper's cells that beat the confidential rows themselves, clearly, on our splits."""
    keys = set()
    for key, paper in theirs.items():
        floor = ours.get((key[0], REAL, "none", key[3]))
        if floor is not None and gain(key, paper, floor) > 2 * joint_error(floor, paper):
            keys.add(key)
    return keys


def kinds_in(ours: Mapping[Key, Figure], dataset: str, generator: str) -> list[str]:
    """Weights that a generator's rows have here, the paper's first."""
    order = (*PAPER_KINDS, *EXTRA_KINDS)
    return [k for k in order if any((dataset, generator, k, m) in ours for m in METRICS)]


def paper_flaw(dataset: str, generator: str, kind: str) -> str:
    """What is known against the printed figure's privacy beyond min-max scaling."""
    if kind in ("beta_noised", "beta_debiased"):
        return "iid Laplace at an L2 scale: not epsilon-DP as derived"
    if kind == "dp_mlp":
        return "Algorithm 1: not as claimed under add/remove, over-noised under replace-one"
    if kind in ("logreg", "mlp"):
        return "not private, and not meant to be"
    if kind == "discriminator" and generator in ADVERSARIAL:
        return "free if the discriminator is inside the guarantee; a Wasserstein critic is no ratio"
    return ""
