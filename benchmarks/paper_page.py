"""From cells of the paper's tables to a summary, ours beside the paper's, and to its page.

A cell is won if our mean is strictly better than the paper's in the metric's direction; clearly if
by more than two joint standard errors, sqrt(ours^2 + theirs^2). Ours are over our own runs, theirs
as printed; the splits are not the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from paper_sets import METRICS, PAPER_METRICS, PERCEPTRON, SETS, TGFB_COLUMNS, higher_is_better
from paper_toy import TOY_ROWS
from paper_weights import NOT_PRIVATE, PAPER_KINDS
from study import head, mean_and_error, row, table

Key = tuple[str, str, str, str]
"""Data set, generator, weights, metric."""

Figures = Mapping[Key, Sequence[float]]
"""Mean and standard error of each."""

Entries = Sequence[Mapping[str, Any]]
"""Of a part: data set, generator, weights, epsilon, metrics."""

_METHODS = dict(zip(
    ("None", "BetaNoised", "BetaDebiased", "DP-MLP", "Discriminator", "LogReg", "MLP"),
    PAPER_KINDS, strict=True,
))  # fmt: skip
_METRICS = {"WST": "wst", "beta_MSE": "beta_mse", "MLP_ROC_AUC": "mlp", "MLP_MSE": "mlp"}
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
POSTER: Mapping[tuple[str, str], tuple[float, float]] = {
    ("cgan", "breast"): (1.48, 0.0775), ("cgan", "banknote"): (0.0420, 0.0413),
    ("cgan", "iris"): (8.75, 3.46), ("gan", "boston"): (8.21, 1.44),
    ("dpcgan", "breast"): (0.0582, 0.0445), ("dpcgan", "banknote"): (0.0420, 0.0413),
    ("dpcgan", "iris"): (0.783, 1.23),
}  # fmt: skip
"""The poster's mean squared errors of log weights by generator and data: noised, debiased."""

LINEAR, NETWORKS = ("beta_noised", "beta_debiased"), ("discriminator", "dp_mlp")
REAL, MNIST = "real", "mnist"
NAMES = {"wst": "WST", "beta_mse": "beta MSE", "beta_relative": "beta, relative error",
         "ess_share": "ESS share", "k_hat": "k-hat"}  # fmt: skip
COMPARED = (*PAPER_METRICS, "beta_relative")
CONSTANT_MSE: Mapping[str, float] = {"boston": (9.1971 / 45) ** 2}
"""Mean squared error of predicting the mean, target on [0, 1]: the published standard deviation of
MEDV over its published range, 5 to 50."""


# Summary


def printed(path: Path) -> list[list[Any]]:
    """The paper's cells by our names: data set, generator, weights, metric, mean, error."""
    published = {facts.published: name for name, facts in SETS.items() if facts.published}
    return [
        [published.get(r.dataset, str(r.dataset).lower()), str(r.sdgp).lower(),
         _METHODS[r.iw_method], _METRICS[r.metric], float(r.mean), float(r.se)]
        for r in pd.read_csv(path, keep_default_na=False).itertuples()
    ]  # fmt: skip


def _differences(
    dataset: str, mine: Mapping[int, Any], base: Mapping[int, Any]
) -> dict[str, list[float]]:
    """By metric, above zero where mine is better, over the runs that both have."""
    runs = sorted(mine.keys() & base.keys())
    signs = {m: 1 if higher_is_better(dataset, m) else -1 for m in COMPARED if runs}
    return {
        m: [sign * (mine[run][m] - base[run][m]) for run in runs]
        for m, sign in signs.items()
        if m in mine[runs[0]]
    }


def summary(records: Sequence[Mapping[str, Any]], paper: Path) -> dict[str, Any]:
    """What the page prints.

    Figures are means with errors over runs; `none`: mean, error and runs of the paired difference
    from no weights, or of weights after some steps from those before them.
    """
    runs: dict[tuple[Any, ...], dict[int, Mapping[str, float]]] = {}
    refused: dict[str, dict[str, None]] = {}
    for r in records:
        if "metrics" not in r:
            told = f"{r['dataset']}, {r['generator']}, {r['weights']}: {r['refused']}"
            refused.setdefault(r["part"], {})[told] = None
            continue
        key = (r["part"], r["dataset"], r["generator"], r["weights"], r["epsilon"])
        runs.setdefault(key, {})[r["run"]] = r["metrics"]
    parts: dict[str, list[dict[str, Any]]] = {}
    for (part, dataset, generator, kind, epsilon), mine in runs.items():
        every = next(iter(mine.values()))
        names = [m for m in every if m != "wst_least" or generator == REAL]
        entry: dict[str, Any] = {
            "dataset": dataset, "generator": generator, "weights": kind, "epsilon": epsilon,
            "runs": len(mine),
            "metrics": {m: mean_and_error([values[m] for values in mine.values()]) for m in names},
        }  # fmt: skip
        if part in ("tables", "steps") and kind not in ("none", REAL):
            method, _, steps = kind.partition(", ")
            base = runs.get((part, dataset, generator, method if steps else "none", epsilon), {})
            changes = _differences(dataset, mine, base)
            entry["none"] = {m: [*mean_and_error(c), len(c)] for m, c in changes.items()}
        parts.setdefault(part, []).append(entry)
    reasons = {part: list(lines) for part, lines in refused.items()}
    return {"refused": reasons, "paper": printed(paper)} | parts


# Words of the page


def text_of(figure: Sequence[float]) -> str:
    """Three digits of the mean, two of the error; without an error the mean alone."""
    mean, error = figure[0], figure[1]
    return _plain(mean, 3) if math.isnan(error) else f"{_plain(mean, 3)} ± {_plain(error, 2)}"


def _plain(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def _name(dataset: str, metric: str) -> str:
    if metric == "mlp":
        return "MLP ROC AUC" if higher_is_better(dataset, metric) else "MLP MSE"
    return NAMES[metric]


def gain(key: Key, ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Ours over theirs, above zero if better; and two joint errors, with one run theirs alone."""
    difference = ours[0] - theirs[0]
    reach = 2 * math.hypot(0.0 if math.isnan(ours[1]) else ours[1], theirs[1])
    return (difference if higher_is_better(key[0], key[3]) else -difference), reach


def count(keys: Iterable[Key], ours: Figures, theirs: Figures) -> list[int]:
    """Cells compared, won, clearly won, clearly lost."""
    gains = [gain(key, ours[key], theirs[key]) for key in keys]
    return [len(gains), sum(g > 0 for g, _ in gains), sum(g > r for g, r in gains),
            sum(g < -r for g, r in gains)]  # fmt: skip


def _told(counts: Sequence[int]) -> str:
    return f"{counts[1]} of {counts[0]} won ({counts[2]} clearly, {counts[3]} clearly lost)"


def sure_unit(key: Key) -> bool:
    """Whether the cell's metric is most likely the paper's, at full size.

    WST was identified on unweighted rows; an area under a curve has no unit. The unit of the
    slopes, and of Boston's target, is not known; MNIST is reduced here.
    """
    is_area = key[3] == "mlp" and higher_is_better(key[0], key[3])
    return key[0] != MNIST and (key[3] == "wst" or is_area)


def doubt(key: Key, ours: Figures, theirs: Figures) -> str:
    """` (u)` or ` (k)` where the printed figure is hardly of our metric.

    Below what any weights of the confidential rows could reach, by two of its errors; or above the
    error of a constant by as much.
    """
    mean, error = theirs[key]
    least = ours.get((key[0], REAL, "none", "wst_least"))
    if key[3] == "wst" and least is not None and mean + 2 * error < least[0]:
        return " (u)"
    is_poor = key[3] == "mlp" and mean - 2 * error > CONSTANT_MSE.get(key[0], math.inf)
    return " (k)" if is_poor else ""


def _cell(key: Key, ours: Figures, theirs: Figures) -> str:
    if key not in ours:
        return ""
    if key not in theirs:
        return text_of(ours[key])
    value, reach = gain(key, ours[key], theirs[key])
    mine = f"**{text_of(ours[key])}**" if value > 0 else text_of(ours[key])
    mark = " +" if value > reach else " −" if value < -reach else ""
    return f"{mine} / {text_of(theirs[key])}{mark}{doubt(key, ours, theirs)}"


# Sections


def _counts(ours: Figures, theirs: Figures) -> list[str]:
    """Cells won, by table and metric, by weights, by generator."""
    both = [key for key in theirs if key in ours]
    rows: list[list[object]] = [["cells", "compared", "won", "clearly won", "clearly lost"]]

    def line(name: str, keys: Sequence[Key]) -> None:
        if keys:
            rows.append([name, *count(keys, ours, theirs)])

    line("all", both)
    line("without (u) and (k)", [k for k in both if not doubt(k, ours, theirs)])
    line("WST and ROC AUC, without MNIST: unit known", [k for k in both if sure_unit(k)])
    line("all others: unit unknown, or reduced", [k for k in both if not sure_unit(k)])
    line("private methods alone", [k for k in both if k[2] not in NOT_PRIVATE])
    for dataset, metric in dict.fromkeys((key[0], key[3]) for key in both):
        keys = [k for k in both if (k[0], k[3]) == (dataset, metric)]
        line(f"{dataset}, {_name(dataset, metric)}", keys)
    for kind in PAPER_KINDS:
        line(f"weights: {LABELS[kind]}", [k for k in both if k[2] == kind])
    for generator, name in GENERATORS.items():
        line(f"generator: {name}", [k for k in both if k[1] == generator])
    return table(rows)


def _changed(
    entries: Entries, kind: str, metrics: Sequence[str] = COMPARED
) -> tuple[int, int, int, int]:
    """Comparisons with no weights, or with weights before some steps, and how they ended.

    How many; better; better and worse by more than two standard errors.
    """
    own = [e["none"] for e in entries if e["weights"] == kind and "none" in e]
    changes = [changes[metric] for changes in own for metric in metrics]
    better = sum(mean > 2 * error for mean, error, _ in changes)
    worse = sum(mean < -2 * error for mean, error, _ in changes)
    return len(changes), sum(mean > 0 for mean, _, _ in changes), better, worse


def _gains(entries: Entries, labels: Mapping[str, str]) -> list[str]:
    """Settings in which weights were better than none, or than before some steps."""
    lines = head(["weights", "beta MSE", "WST", "MLP", "beta, relative error"])
    for kind, label in labels.items():
        counts = [_changed(entries, kind, [metric]) for metric in COMPARED]
        cells = [f"{up} of {every} (+{better} −{worse})" for every, up, better, worse in counts]
        if any(every for every, *_ in counts):
            lines.append(row([label, *cells]))
    return lines


def _shown(entries: Entries, ours: Figures) -> list[str]:
    """What the tables show, in words made from the figures."""
    gaps: dict[bool, list[float]] = {}
    for (dataset, generator, kind, metric), figure in ours.items():
        if kind == "beta_noised" and metric in COMPARED and dataset != MNIST:
            other = ours[dataset, generator, "beta_debiased", metric]
            gaps.setdefault(metric == "mlp", []).append(abs(other[0] / figure[0] - 1))
    lines = []
    if gaps:
        lines.append(
            "- **Debiasing.** With sound noise, noised and debiased weights differ by at most"
            f" {max(gaps[False]):.1%} in the means of slopes and WST, and by at most"
            f" {max(gaps[True]):.1%} in those of the perceptron, whose training small changes of"
            " weights may turn."
        )
    told = {"joint_linear": "the paper's linear weights", "joint_measured": "`measured` weights"}
    for kind, name in told.items():
        every, up, better, worse = _changed(entries, kind)
        if every:
            lines.append(
                f"- **At one total epsilon of 1** {name} {'' if better > worse else 'do not '}pay:"
                f" they are better than no weights in {up} of {every} comparisons, clearly in"
                f" {better}, and clearly worse in {worse}."
            )
    return lines


def _dataset(dataset: str, ours: Figures, theirs: Figures) -> list[str]:
    """A data set's tables, a metric each."""
    facts = SETS[dataset]
    note = {
        "iris": " The paper's text at hand has no table of it. Target: virginica or not.",
        "tgfb": f" The paper's text at hand has no table of it. The target and the first"
                f" {TGFB_COLUMNS} of 1,000 probe sets.",
        "banknote": " Beta MSE with a penalty fixed in total says little: the confidential rows"
                    " themselves may score worse than synthetic ones.",
        "boston": f" Predicting the mean has an MSE of {CONSTANT_MSE['boston']:.2g} in our unit.",
    }.get(dataset, "")  # fmt: skip
    lines = ["", f"## {dataset.upper() if dataset == 'tgfb' else dataset.capitalize()}", "",
             f"{facts.nominal_rows} rows published, as many confidential; delta {facts.delta:.2g}."
             + note]  # fmt: skip
    columns = [g for g in GENERATORS if (dataset, g, "none", "wst") in ours]
    least = ours.get((dataset, REAL, "none", "wst_least"))
    if least is not None:
        lines[-1] += (
            f" Least WST that any weights of the confidential rows could reach: {text_of(least)}."
        )
    for metric in (m for m in METRICS if m != "wst_least"):
        rows: list[list[object]] = [
            [f"{_name(dataset, metric)}: weights", *(GENERATORS[g] for g in columns)]
        ]
        for kind in (*PAPER_KINDS, *EXTRA_KINDS):
            cells = [_cell((dataset, g, kind, metric), ours, theirs) for g in columns]
            if any(cells):
                rows.append([LABELS[kind], *cells])
        floor = ours.get((dataset, REAL, "none", metric))
        if floor is not None:
            blank = [""] * (len(columns) - 1)
            rows.append(["the confidential rows themselves", text_of(floor), *blank])
        lines += ["", *table(rows)]
    return lines


def _mnist(record: Mapping[str, Any], ours: Figures, theirs: Figures) -> list[str]:
    if not record.get("mnist"):
        return ["Not run."]
    metrics = ("beta_mse", "mlp", "ess_share")
    rows: list[list[object]] = [["weights", *(_name(MNIST, m) for m in metrics)]]
    for kind in (*PAPER_KINDS, *EXTRA_KINDS):
        cells = [_cell((MNIST, "dpcgan", kind, m), ours, theirs) for m in metrics]
        if any(cells):
            rows.append([LABELS[kind], *cells])
    floor = [_cell((MNIST, REAL, "none", m), ours, theirs) for m in metrics]
    return table([*rows, ["the confidential digits themselves", *floor]])


def _poster(entries: Entries) -> list[str]:
    """A row for each of the poster's cells."""
    found = {(e["generator"], e["dataset"], e["weights"]): e["metrics"] for e in entries}
    sides = ("noised", "debiased")
    rows = [["generator, data", *(f"{told}: {side}" for told in (
        "noise alone", "against LogReg", "poster") for side in sides)]]  # fmt: skip
    for (generator, dataset), theirs in POSTER.items():
        ours = [
            text_of(found[generator, dataset, kind][f"log_{reference}"])
            for reference in ("own", "logreg") for kind in LINEAR
            if (generator, dataset, kind) in found
        ]  # fmt: skip
        if ours:
            name = f"{GENERATORS[generator]}, {dataset}"
            rows.append([name, *ours, *(f"{value:g}" for value in theirs)])
    return table(rows)


def _bayes(entries: Entries) -> list[str]:
    """A row for each generator and kind of weights, columns for each epsilon."""
    found = {(e["generator"], e["weights"], e["epsilon"]): e["metrics"] for e in entries}
    values = sorted({key[2] for key in found})
    metrics = {"shift": "shift", "width": "width", "auc": "ROC AUC"}
    rows = [["generator, weights", *(
        f"{name}, epsilon {v:g}" for v in values for name in metrics.values())]]  # fmt: skip
    for generator, kind in dict.fromkeys(key[:2] for key in found):
        own = [found.get((generator, kind, v), {}) for v in values]
        cells = [text_of(m[name]) if name in m else "" for m in own for name in metrics]
        name = GENERATORS.get(generator, "the confidential rows")
        rows.append([f"{name}, {LABELS[kind]}", *cells])
    return table(rows)


def _steps(entries: Entries) -> list[str]:
    """Counts by kind and steps, and a row for each release."""
    kinds = dict.fromkeys(e["weights"] for e in entries if e["weights"].startswith(NETWORKS))
    metrics = ("wst", "mlp", "beta_relative", "ess_share", "k_hat")
    rows = [["data, generator", "weights", *(_name("banknote", metric) for metric in metrics)]]
    for e in entries:
        cells = []
        for metric in metrics:
            mean, error, _ = e.get("none", {}).get(metric, (0.0, 0.0, 0))
            text = text_of(e["metrics"][metric])
            mark = " +" if mean > 2 * error else " −" if mean < -2 * error else ""
            cells.append(text + mark)
        rows.append([f"{e['dataset']}, {GENERATORS[e['generator']]}", e["weights"], *cells])
    return [*_gains(entries, {kind: kind for kind in kinds}), "", *table(rows)]


def _settings(record: Mapping[str, Any]) -> list[str]:
    """What was run, and how it differs from the paper."""
    net = PERCEPTRON
    return [
        *(
            f"- `{own['command']}`: dpiw {own['dpiw']} ({own['commit']}).{own.get('note', '')}"
            for own in record["made"].values()
        ),
        "",
        "How to read a cell: `ours / the paper's`, mean and standard error, theirs as printed;"
        " bold: ours is better; ` +`, ` −`: better or worse by more than two joint standard errors;"
        " `(u)`: the printed distance is below what any weights of the confidential rows could"
        " reach on our splits; `(k)`: the printed error is above that of a constant if its unit is"
        " ours. Both say that the printed figure is hardly of our metric.",
        "",
        "- **Budgets.** The text at hand prints one epsilon for each table. We read it as that of"
        " each stage: `None` and `Discriminator` spend the generator's (1, delta); `BetaNoised`,"
        " `BetaDebiased` and `DP-MLP` spend (1, delta) for the generator and (1, delta) for the"
        " weights; `LogReg` and `MLP` are not private. `One total`: generator and weights spend"
        " (1, delta) together, noise solved jointly, efforts 1:1, `measured` at its usual share."
        " Delta is 10^-6/N_D.",
        "- **Noise.** Ours is sound throughout: Gaussian on the coefficients, calibrated by the"
        " exact sensitivity; one draw per lot in DP-SGD; public bounds. The paper's figures were"
        " not obtained so: its iid Laplace noise at an L2 scale does not give the epsilon"
        " (BetaNoised, BetaDebiased), its DP-MLP adds noise per row, and every column is scaled by"
        " the confidential minimum and maximum, which is a leak (docs/method.md). A loss in those"
        " columns may have been bought with privacy; one under `None`, `Discriminator`, `LogReg` or"
        " `MLP` was not.",
        "- **Weights.** `BetaDebiased` corrects for self-normalised use, by b(x - mu), where the"
        " paper prints b(x). `LogReg`: linear, penalty 1 in total. `MLP`: the network of the"
        " metrics on exact rows. `Discriminator`: our GANs learn by the logistic loss; the paper's"
        " DPGAN is a Wasserstein GAN, whose critic is no ratio.",
        "- **Metrics.** WST: exact Wasserstein-1 on min-max scaled columns, target included. beta"
        " MSE: slopes of scikit-learn's default logistic regression (C = 1; Boston, TGFB: least"
        " squares) on the weighted rows against those on the test rows, min-max scaled. MLP: one"
        f" hidden layer of {net.hidden}, Adam at {net.learning_rate:g}, {net.steps} steps; the"
        " paper's network is not known. Relative error: the fair form (docs/method.md), one penalty"
        " per row on both sides.",
        "- **Runs.** A run fixes the split (80/20), the seeded noise, the rows and the GANs' public"
        " start; errors are over runs, all of one file. Rows published: as many as confidential"
        " ones, N_D taken as public; weights are fitted on 4,000 other synthetic rows.",
        "- **Generators.** Ours, at their defaults; PrivBayes of degree 2 with 16 bins. No setting"
        " was searched on these tables, but benchmarks on the same data were in view while the"
        " package was made. The paper's settings are not known to us.",
        "- Iris and TGFB are in none of the paper's printed tables.",
    ]


def page(record: Mapping[str, Any]) -> list[str]:
    """The lines of paper.md."""
    tabular = record.get("tables", [])
    entries = [*tabular, *record.get("mnist", [])]
    ours = {(e["dataset"], e["generator"], e["weights"], m): v
            for e in entries for m, v in e["metrics"].items()}  # fmt: skip
    theirs = {(d, g, w, m): (mean, error) for d, g, w, m, mean, error in record["paper"]}
    both = [key for key in theirs if key in ours]
    plain = count([key for key in both if key[2] == "none"], ours, theirs)
    most = max((entry["runs"] for entry in entries), default=0)
    lines = [
        "# The paper's tables, with sound noise", "",
        "Tables 1 to 3 of Ghalebikesabi et al. (UAI 2022) beside ours, cell by cell, at the same"
        " epsilon and delta, and what the paper and its poster have besides.", "",
        *_shown(tabular, ours),
        f"- **Cells.** Of the {len(theirs)} printed cells ours are beside {len(both)}:"
        f" {_told(count(both, ours, theirs))}. Where the metric is most likely the paper's (WST;"
        " area under the curve), without MNIST, which is reduced here:"
        f" {_told(count([k for k in both if sure_unit(k)], ours, theirs))}. In the others a win or"
        " a loss may be one of units. Cells share runs and rows: the counts describe, they do not"
        f" test. Most runs of a cell: {most}.",
        f"- **Not a test of the weights.** Under `None`, without weights: {_told(plain)}. The"
        " generators are other implementations with other settings, and every column of a"
        " generator inherits its rows. What weights do shows against no weights on our own"
        " releases, below.",
        "", "## How it was made", "", *_settings(record), "",
        "## Cells won", "", *_counts(ours, theirs), "",
        "## What weights did to our own releases", "",
        "Settings (data, generator) in which weights were better than none on the mean over runs,"
        " paired by run; in brackets those beyond two standard errors, better (+) and worse (−)."
        " The paper's columns have more budget than `None`, the two of one total have the same.",
        "", *_gains(tabular, {kind: LABELS[kind] for kind in (*PAPER_KINDS[1:], *EXTRA_KINDS)}),
        "",
    ]  # fmt: skip
    refused = [f"- {part}: {line}" for part, own in record["refused"].items() for line in own]
    if refused:
        lines += ["", "Releases without a result:", "", *refused]
    for dataset in dict.fromkeys(e["dataset"] for e in tabular):
        lines += _dataset(dataset, ours, theirs)
    lines += [
        "", "## MNIST (Table 3)", "",
        "**Reduced for a CPU**: 14 x 14 pixels and small networks (`mnist.py`, size `half`), all"
        " 60,000 training digits, 10,000 digits drawn. Beta MSE is not in the paper's unit. Errors"
        " hold noise, start and rows, no split.", "", *_mnist(record, ours, theirs), "",
        "## Toy: from the square to the triangle", "", "![toy.png](paper/toy.png)", "",
        f"{TOY_ROWS} confidential rows uniform below the diagonal, synthetic rows uniform on the"
        " square (public), epsilon 1 for the private weights, delta 10^-6/N_D; one draw. Points:"
        " rows drawn by weight; the share of the weight above the diagonal should be 0 and is 50%"
        " without weights.",
        "", "## Log weights: noised and debiased (the poster)", "",
        "Mean squared error of the log weights of published rows, mean weight one. The poster"
        " leaves open the penalty, what it compares with, the epsilon and how weights are scaled,"
        " so its figures and ours are not of one unit. Ours: the penalty of our public rule,"
        " epsilon 1, delta 10^-6/N_D for the weights. `noise alone`: against the same regression"
        " without noise. `against LogReg`: against the tables' regression of penalty 1, so the"
        " error includes the shrinkage.",
        "", *(_poster(record["poster"]) if record.get("poster") else ["Not run."]),
        "", "## The Bayesian figure: posterior of a logistic regression", "",
        "Banknote; budgets as in the tables. Laplace's approximation of the posterior"
        " (`dpiw.analysis.logistic_posterior`, weights scaled to their effective size) beside that"
        " of the confidential rows. Shift: root mean square over coefficients of the distance of"
        " the means, in confidential standard deviations. Width: standard deviations over the"
        " confidential ones, geometric mean. ROC AUC: of the mean of 200 draws on the test rows.",
        "", *(_bayes(record["bayes"]) if record.get("bayes") else ["Not run."]),
        "", "## Beta calibration and Pareto smoothing of network ratios", "",
        "A tenth of the confidential rows is public here, and nothing else reads it: the real rows"
        " of `beta_calibrate`. Counts and marks (+, −: beyond two standard errors) compare"
        " weights after steps with the same weights before them, and weights without steps with"
        " none, paired by run. k-hat: Pareto shape of the weights' tail, 0 where there is none.",
        "", *(_steps(record["steps"]) if record.get("steps") else ["Not run."]),
    ]  # fmt: skip
    return lines
