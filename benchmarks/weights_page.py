"""From the cells of a weights table to a summary by setting, and from that to its page.

Paired: the same run (split, noise stream, sampling seed) with weights less the same run without.
Two bases: `none`, the release that gave the generator the whole budget (what the weights bought),
and `unused`, rows of the same generator without weights (what the verdict is asked).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import stats
from study import head, mean_and_error, number, row
from weights_cells import NEURAL, NO_PRIVACY

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
    "ess_share": "ESS share",
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
REFERENCES = ("histogram", "privbayes")
"""Generators that neural ones are held against, both without weights."""

CELL = ("dataset", "generator", "epsilon", "weights")
Change = Sequence[float]
"""Mean of a paired difference, above zero if better, its standard error, and the runs."""

Cells = Sequence[Mapping[str, Any]]


# Summary


def paired(values: Sequence[float], base: Sequence[float], name: str) -> list[float]:
    """The change of a metric from `base` to `values`, run by run."""
    change = np.asarray(values, dtype=float) - np.asarray(base, dtype=float)
    change = change if name in HIGHER_IS_BETTER else -change
    return [*mean_and_error(change), change.size]


def outcome(change: Change) -> str:
    """`helped` or `hurt` where the two-sided 95% t interval leaves out zero; never `mixed`."""
    mean, error, runs = change
    if runs < 2:
        return "no clear difference"
    reach = _quantile(int(runs)) * error
    return "helped" if mean > reach else "hurt" if mean < -reach else "no clear difference"


@cache
def _quantile(runs: int) -> float:
    return float(stats.t.ppf((1 + LEVEL) / 2, runs - 1))


def _changes(
    mine: Mapping[int, Mapping[str, float]], base: Mapping[int, Mapping[str, float]]
) -> dict[str, list[float]]:
    runs = [run for run in mine if run in base]
    names = [name for name in mine[runs[0]] if name != "ess_share"]
    return {
        name: paired([mine[r][name] for r in runs], [base[r][name] for r in runs], name)
        for name in names
    }


def summary(records: Cells, forecasts: Mapping[tuple[str, ...], Any]) -> list[dict[str, Any]]:
    """One entry per setting: metrics, verdicts, forecast, and changes from the two bases."""
    by_setting: dict[tuple[str, ...], dict[int, Mapping[str, Any]]] = {}
    for record in records:
        by_setting.setdefault(tuple(record[k] for k in CELL), {})[record["run"]] = record

    def part(key: tuple[str, ...], name: str = "metrics") -> dict[int, Mapping[str, float]]:
        return {run: record[name] for run, record in by_setting.get(key, {}).items()}

    entries = []
    for key, runs in by_setting.items():
        mine, first = part(key), next(iter(runs.values()))
        entry = dict(zip(CELL, key, strict=True)) | {
            "metrics": {n: mean_and_error([m[n] for m in mine.values()]) for n in first["metrics"]}
        }
        if "unweighted" in first:
            verdicts = [record["verdict"] for record in runs.values()]
            entry |= {
                "verdicts": {v: verdicts.count(v) for v in VERDICTS if v in verdicts},
                "forecast": forecasts.get(key),
                "unused": _changes(mine, part(key, "unweighted")),
            }
            if base := part((*key[:3], "none")):
                entry["none"] = _changes(mine, base)
        elif key[1] in NEURAL:
            bases = {name: part((key[0], name, *key[2:])) for name in REFERENCES}
            entry["against"] = {n: _changes(mine, base) for n, base in bases.items() if base}
        entries.append(entry)
    return entries


# Outcomes


def judged(names: Iterable[str]) -> dict[str, str]:
    """The metric of each aspect that there is."""
    there = set(names)
    return {a: name for a, metrics in JUDGED.items() for name in metrics if name in there}


def aspects(changes: Mapping[str, Change]) -> dict[str, Change]:
    """The change of each aspect that there is."""
    return {aspect: changes[name] for aspect, name in judged(changes).items()}


def overall(outcomes: Sequence[str]) -> str:
    """`helped`: somewhere, and hurt nowhere; `hurt`: the reverse; `mixed`: both."""
    helped, hurt = "helped" in outcomes, "hurt" in outcomes
    if helped and hurt:
        return "mixed"
    return "helped" if helped else "hurt" if hurt else "no clear difference"


def outcome_of(changes: Mapping[str, Change], chosen: str) -> str:
    """A setting's outcome over an aspect, or over a group's aspects."""
    names = GROUPS.get(chosen, (chosen,))
    return overall([outcome(c) for name, c in aspects(changes).items() if name in names])


def _weighted(cells: Cells, base: str = "unused") -> list[Mapping[str, Any]]:
    return [cell for cell in cells if base in cell]


# Page


def _text(change: Change, name: str) -> str:
    """Weighted minus unweighted in the metric's own direction; bold better, italic worse."""
    mean = change[0] if name in HIGHER_IS_BETTER else -change[0]
    text = f"{mean:+.2g}" + ("" if math.isnan(change[1]) else f" ± {change[1]:.1g}")
    return {"helped": f"**{text}**", "hurt": f"*{text}*"}.get(outcome(change), text)


def _counts(settings: Iterable[Mapping[str, Change]], aspect: str) -> str:
    """`+2 -1 of 4`: helped, hurt, of how many; empty of none."""
    every = [outcome(own[aspect]) for own in map(aspects, settings) if aspect in own]
    return f"+{every.count('helped')} -{every.count('hurt')} of {len(every)}" if every else ""


def _in_words(cells: Cells) -> list[str]:
    """Where weights help, and whether verdict and forecast agree."""
    against, lines = _weighted(cells, "none"), []
    for group in GROUPS:
        outcomes = [outcome_of(cell["none"], group) for cell in against]
        lines.append(
            f"- {group.capitalize()}, against no weights at equal total epsilon: of {len(outcomes)}"
            f" settings weights helped in {outcomes.count('helped')}, were mixed in"
            f" {outcomes.count('mixed')}, made no clear difference in"
            f" {outcomes.count('no clear difference')} and hurt in {outcomes.count('hurt')}."
        )
    for base, told in (("unused", "the same rows without weights"), ("none", "no weights")):
        for group in GROUPS:
            parts = []
            for verdict in VERDICTS:
                counts = dict.fromkeys(OUTCOMES, 0)
                for cell in _weighted(cells, base):
                    releases = cell["verdicts"].get(verdict, 0)
                    counts[outcome_of(cell[base], group)] += releases
                helped, every = counts["helped"], sum(counts.values())
                parts.append(f"`{verdict}` ({every}): helped {helped}, did not help"
                             f" {every - helped} (of these hurt {counts['hurt']})")  # fmt: skip
            lines.append(f"- Releases by verdict, and {group} against {told}: {'; '.join(parts)}.")
    forecast = [cell for cell in against if cell["forecast"]]
    for group in GROUPS if forecast else ():
        parts = []
        for feasible, word in ((True, "worth"), (False, "not worth")):
            own = [cell["none"] for cell in forecast if cell["forecast"]["feasible"] is feasible]
            outcomes = [outcome_of(changes, group) for changes in own]
            parts.append(f"{word} their budget ({len(outcomes)} settings): helped"
                         f" {outcomes.count('helped')}, hurt {outcomes.count('hurt')}")  # fmt: skip
        lines.append(f"- The plan's forecast and {group}, against no weights: {'; '.join(parts)}.")
    return lines


def _breakdown(cells: Cells) -> list[str]:
    """Settings by outcome, over all and over each value of the setting's parts."""
    lines = head(["settings", *(f"{group}: {o}" for group in GROUPS for o in OUTCOMES)])
    against = _weighted(cells, "none")

    def count(name: str, chosen: Callable[[Mapping[str, Any]], bool]) -> None:
        part = [cell for cell in against if chosen(cell)]
        outcomes = {group: [outcome_of(cell["none"], group) for cell in part] for group in GROUPS}
        lines.append(row([name, *(outcomes[g].count(o) for g in GROUPS for o in OUTCOMES)]))

    count("all", lambda cell: True)
    for field in CELL:
        for value in dict.fromkeys(cell[field] for cell in against):
            name = f"epsilon {value}" if field == "epsilon" else value
            count(name, lambda cell, f=field, v=value: cell[f] == v)
    return lines


def _by_aspect(cells: Cells) -> list[str]:
    kinds = list(dict.fromkeys(cell["weights"] for cell in _weighted(cells)))
    bases = {"none": "no weights", "unused": "the same rows"}
    lines = head(["aspect", *(f"{kind}, against {told}" for kind in kinds
                              for told in bases.values())])  # fmt: skip
    for aspect in JUDGED:
        columns = [
            _counts([c[base] for c in _weighted(cells, base) if c["weights"] == kind], aspect)
            for kind in kinds for base in bases
        ]  # fmt: skip
        if any(columns):
            lines.append(row([aspect, *columns]))
    return lines


def _generators(cells: Cells) -> list[str]:
    """Neural generators against the references, without weights, the whole budget each."""
    lines: list[str] = []
    neural = [cell for cell in cells if "against" in cell]
    for generator in dict.fromkeys(cell["generator"] for cell in neural):
        for name in REFERENCES:
            part = [c["against"][name] for c in neural
                    if c["generator"] == generator and name in c["against"]]  # fmt: skip
            lines.append(row([generator, name, *(_counts(part, aspect) for aspect in JUDGED)]))
    if not lines:
        return []
    told = ("Settings in which a neural generator is clearly better (+) and clearly worse (-) than"
            " the other, both without weights and with the whole budget:")  # fmt: skip
    return ["", "## Neural generators", "", told, "", *head(["generator", "against", *JUDGED]),
            *lines]  # fmt: skip


def _values(cells: Cells) -> list[str]:
    names = [name for name in LABELS if any(name in cell["metrics"] for cell in cells)]
    lines = head(["generator", "epsilon", "weights", *(LABELS[n] for n in names), "forecast",
                  "verdicts"])  # fmt: skip
    for cell in cells:
        forecast, verdicts = cell.get("forecast"), cell.get("verdicts", {})
        text = "" if not forecast else f"{forecast['resolution']:.2f}" + (
            "" if forecast["feasible"] else ", no"
        )  # fmt: skip
        values = [number(*cell["metrics"][name]) for name in names]
        told = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())
        name = cell["generator"] + (" (not private)" if cell["epsilon"] == NO_PRIVACY else "")
        lines.append(row([name, cell["epsilon"], cell["weights"], *values, text, told]))
    return lines


def _differences(cells: Cells) -> list[str]:
    against = _weighted(cells, "none")
    names = [name for name in LABELS if any(name in cell["none"] for cell in against)]
    lines = head(["generator", "epsilon", "weights", *(LABELS[n] for n in names)])
    for cell in against:
        lines.append(row([*(cell[k] for k in CELL[1:]),
                          *(_text(cell["none"][name], name) for name in names)]))  # fmt: skip
    return lines


def body(cells: Cells) -> list[str]:
    """What stands below the settings of a weights table's page."""
    private = [cell for cell in cells if cell["epsilon"] != NO_PRIVACY]
    lines = ["## Where weights help, and whether the verdict agrees", "",
             *_in_words(private), "",
             "Settings by outcome, against no weights at equal total epsilon:", "",
             *_breakdown(private), "",
             "Settings helped (+) and hurt (-), by aspect and weights:", "", *_by_aspect(private),
             *_generators(cells)]  # fmt: skip
    for dataset in dict.fromkeys(cell["dataset"] for cell in cells):
        part = [cell for cell in cells if cell["dataset"] == dataset]
        lines += ["", f"## {dataset.capitalize()}", "", *_values(part), "",
                  "Weighted minus unweighted at equal total epsilon:", "",
                  *_differences(part)]  # fmt: skip
    return lines
