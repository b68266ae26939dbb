"""From the cells of the weights table to paired differences, outcomes and verdict counts.

Paired: the same run (split, noise stream, sampling seed) with weights less the same run without.
Two bases: `none`, the release that gave the generator the whole budget (what the weights bought),
and `unused`, the same rows with the weights left out (what the verdict is asked).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from weights_cells import KINDS, LEFT_OUT, REAL, UNUSED, UNUSED_MEASURED

LABELS: Mapping[str, str] = {
    "beta_mse": "beta MSE",
    "beta_relative_error": "beta relative error",
    "mlp_auc": "MLP AUC",
    "mlp_mse": "MLP MSE",
    "linear_auc": "linear AUC",
    "linear_mse": "linear MSE",
    "linear_r2": "linear R2",
    "wasserstein_1d": "W1, sum of 1-D",
    "wasserstein_sliced": "W1, sliced",
    "tv_1way": "TV 1-way",
    "tv_2way": "TV 2-way",
}
HIGHER_IS_BETTER = frozenset({"mlp_auc", "linear_auc", "linear_r2"})
JUDGED: Mapping[str, tuple[str, ...]] = {
    "coefficients": ("beta_relative_error",),
    "MLP": ("mlp_auc", "mlp_mse"),
    "linear": ("linear_auc", "linear_mse"),
    "W1, sum of 1-D": ("wasserstein_1d",),
    "W1, sliced": ("wasserstein_sliced",),
    "TV 1-way": ("tv_1way",),
    "TV 2-way": ("tv_2way",),
}
"""Seven aspects, each by one metric: beta MSE and R2 repeat two of them in other units."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "models": ("coefficients", "MLP", "linear"),
    "distributions": ("W1, sum of 1-D", "W1, sliced", "TV 1-way", "TV 2-way"),
}
"""What the rows are for: fitting a model of the target, or describing the population."""

LEVEL = 0.95
VERDICTS = ("use", "use with care", "do not use")
OUTCOMES = ("helped", "mixed", "no clear difference", "hurt")
WEIGHTED = tuple(kind for kind in KINDS if kind not in ("none", *LEFT_OUT))
CELL = ["dataset", "generator", "epsilon", "weights"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A paired difference over runs, signed so that above zero is better.

    `outcome`: `helped` if the mean is above zero by more than the two-sided 95% t quantile times
    its standard error, `hurt` if below by as much, else `no clear difference`.
    """

    mean: float
    error: float
    runs: int

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`, never `mixed`."""
        if self.runs < 2:
            return "no clear difference"
        reach = stats.t.ppf((1 + LEVEL) / 2, self.runs - 1) * self.error
        if self.mean > reach:
            return "helped"
        return "hurt" if self.mean < -reach else "no clear difference"


def paired(values: Sequence[float], base: Sequence[float], *, higher_is_better: bool) -> Change:
    """The change from `base` to `values`, run by run."""
    change = np.asarray(values, dtype=float) - np.asarray(base, dtype=float)
    change = change if higher_is_better else -change
    runs = change.size
    error = float(change.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.nan
    return Change(mean=float(change.mean()), error=error, runs=runs)


def overall(outcomes: Sequence[str]) -> str:
    """`helped`: somewhere, and hurt nowhere; `hurt`: the reverse; `mixed`: both."""
    helped, hurt = "helped" in outcomes, "hurt" in outcomes
    if helped and hurt:
        return "mixed"
    if helped or hurt:
        return "helped" if helped else "hurt"
    return "no clear difference"


def frame_of(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One line per cell, its metrics as columns; groups keep the order of the records."""
    rows = [{k: v for k, v in r.items() if k != "metrics"} | dict(r["metrics"]) for r in records]
    return pd.DataFrame(rows)


def metrics_of(part: pd.DataFrame) -> list[str]:
    """The metrics a data set has."""
    return [name for name in LABELS if name in part and part[name].notna().any()]


OF_MEASURED = ("measured", "measured-debiased", UNUSED_MEASURED)
"""Kinds that rest on one draw of the generator: measured weights leave it more of the effort."""


def rows_of(base: str, weights: str) -> str:
    """The kind that `base` means for these weights: `unused` rows are of their own release."""
    return UNUSED_MEASURED if base == UNUSED and weights in OF_MEASURED else base


def changes(frame: pd.DataFrame, base: str) -> dict[tuple[str, ...], dict[str, Change]]:
    """Per weighted setting and metric: the paired change from `base`."""
    by_setting = {}
    for key, part in frame[frame.weights.isin(WEIGHTED)].groupby(CELL, sort=False):
        dataset, generator, epsilon, kind = key
        same = (frame.dataset == dataset) & (frame.generator == generator)
        same &= (frame.epsilon == epsilon) & (frame.weights == rows_of(base, kind))
        theirs = frame[same].set_index("run")
        mine = part.set_index("run")
        runs = [run for run in mine.index if run in theirs.index]
        by_setting[key] = {
            name: paired(
                mine.loc[runs, name],
                theirs.loc[runs, name],
                higher_is_better=name in HIGHER_IS_BETTER,
            )
            for name in metrics_of(part)
        }
    return by_setting


def aspects(change: Mapping[str, Change]) -> dict[str, Change]:
    """The judged metric of each aspect."""
    return {
        aspect: change[next(name for name in names if name in change)]
        for aspect, names in JUDGED.items()
        if any(name in change for name in names)
    }


def tally(change: Mapping[str, Change], group: str) -> tuple[int, int]:
    """How many of a group's aspects were helped and hurt."""
    outcomes = [c.outcome for name, c in aspects(change).items() if name in GROUPS[group]]
    return outcomes.count("helped"), outcomes.count("hurt")


def outcome_of(change: Mapping[str, Change], chosen: str | None = None) -> str:
    """A setting's outcome over an aspect, over a group's aspects, or over all of them."""
    names = tuple(JUDGED) if chosen is None else GROUPS.get(chosen, (chosen,))
    return overall([c.outcome for name, c in aspects(change).items() if name in names])


def verdict_counts(part: pd.DataFrame) -> dict[str, int]:
    """How often each verdict fell."""
    return {verdict: int((part.verdict == verdict).sum()) for verdict in VERDICTS}


def agreement(frame: pd.DataFrame, base: str, chosen: str | None) -> pd.DataFrame:
    """Releases by verdict (rows) and by what weights did in their setting (columns).

    Args:
        frame: of `frame_of`.
        base: `none` or `unused`.
        chosen: an aspect or group, or None for all aspects.
    """
    table = pd.DataFrame(0, index=list(VERDICTS), columns=list(OUTCOMES))
    by_setting = changes(frame, base)
    for key, part in frame[frame.weights.isin(WEIGHTED)].groupby(CELL, sort=False):
        outcome = outcome_of(by_setting[key], chosen)
        for verdict, count in verdict_counts(part).items():
            table.loc[verdict, outcome] += count
    return table


def better_alone(frame: pd.DataFrame, aspect: str) -> pd.DataFrame:
    """Of the releases of each verdict: the share better with their weights than without them."""
    counts = pd.DataFrame(0, index=list(VERDICTS), columns=["releases", "better"])
    for key, part in frame[frame.weights.isin(WEIGHTED)].groupby(CELL, sort=False):
        dataset, generator, epsilon, kind = key
        same = (frame.dataset == dataset) & (frame.generator == generator)
        same &= (frame.epsilon == epsilon) & (frame.weights == rows_of(UNUSED, kind))
        base = frame[same].set_index("run")
        mine = part.set_index("run")
        name = next(n for n in JUDGED[aspect] if n in metrics_of(part))
        gain = mine[name] - base[name]
        gain = gain if name in HIGHER_IS_BETTER else -gain
        for verdict in VERDICTS:
            chosen = mine.verdict == verdict
            counts.loc[verdict] += [int(chosen.sum()), int((gain[chosen] > 0).sum())]
    return counts


def same_rows(frame: pd.DataFrame) -> bool:
    """Whether `unused` and the weighted releases of a run rest on one generator draw."""
    released = frame[(frame.generator != REAL) & (frame.weights != "none")]
    keys = ["dataset", "generator", "epsilon", "run"]
    measured = released.weights.isin(OF_MEASURED)
    draws = released.groupby([*keys, measured]).generator_digest.nunique()
    return bool((draws == 1).all())
