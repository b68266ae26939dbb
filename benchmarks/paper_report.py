"""The whole page of the paper benchmark: method, counts, losses, budgets, tables, studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from paper_cells import FITTING_ROWS, GENERATORS, REAL
from paper_figures import frame_of
from paper_known import METHODS, PRINTED, SIZES, TOY_ROWS
from paper_measure import PERCEPTRON
from paper_mnist import TOLD
from paper_page import (
    Figures,
    budget_table,
    counts,
    gains,
    head,
    losses,
    metric_name,
    missing,
    mnist_table,
    row,
    runs_line,
    tables,
)
from paper_peers import SMALL
from paper_sets import SETS
from paper_studies import BAYES_GENERATOR, BAYES_KINDS, DRAWS, EPSILONS, SHARES
from paper_summary import EXTRA_KINDS, LABELS, MNIST, figure

Records = Sequence[Mapping[str, Any]]


def settings(facts: Mapping[str, Any], ours: Figures) -> list[str]:
    """What was run, and how it differs from the paper."""
    there, planned = facts["cells_there"], facts["cells_planned"]
    told = ", ".join(f"{part} {there[part]} of {planned[part]}" for part in planned)
    own = PERCEPTRON
    return [
        f"`{facts['command']}`, dpiw {facts['dpiw']} ({facts['commit']}), Python"
        f" {facts['python']}, {facts['cpu_minutes']:.0f} CPU minutes without the peers."
        f" Cells there: {told}. {runs_line(ours)}",
        "",
        "What is compared: the 173 cells of Tables 1 to 3 of Ghalebikesabi et al. (UAI 2022), mean"
        " and standard error as printed, with ours from fresh runs. How to read a cell:"
        " `ours / the paper's`; bold: ours is better; ` +`, ` −`: better or worse by more than"
        " two joint standard errors; `(u)`: the printed distance is below what any weights of the"
        " confidential rows could reach on our splits, so it cannot be this distance. With few runs"
        " our standard errors are themselves rough.",
        "",
        "- **Budgets.** The text at hand prints one epsilon for each table and does not say how it"
        " is split. We read it as the epsilon of each stage: `None` and `Discriminator` spend the"
        " generator's (1, delta); `BetaNoised`, `BetaDebiased` and `DP-MLP` spend (1, delta) for"
        " the generator and (1, delta) for the weights; `LogReg` and `MLP` are not private. If the"
        " paper meant one total of 1, its private weights had less than ours. Two columns of ours"
        " spend (1, delta) **in total**, noise solved jointly, efforts 1:1: linear and Fourier"
        " features, debiased. The table of budgets below gives every total. Delta is 10^-6/N_D.",
        "- **Noise.** Ours is sound throughout: Gaussian on the coefficients, calibrated by the"
        " exact sensitivity; one draw per lot in DP-SGD; public bounds. The paper's figures were"
        " not obtained so: its iid Laplace noise at an L2 scale does not give the epsilon"
        " (BetaNoised, BetaDebiased), its DP-MLP adds noise per row, and every column, `None`"
        " included, is scaled by the confidential minimum and maximum, which is a leak"
        " (docs/method.md). In few columns (Banknote) that Laplace noise may be enough by accident,"
        " in Breast's 31 it is not. So a cell that ours loses may have been bought with privacy.",
        "- **Metrics.** WST: exact Wasserstein-1 on min-max scaled columns, target included."
        " beta MSE: slopes of scikit-learn's default logistic regression (C = 1; Boston, TGFB:"
        " least squares) on the weighted rows against those on the test rows, min-max scaled."
        f" MLP: one hidden layer of {own.hidden}, Adam at {own.learning_rate:g}, {own.steps}"
        " steps; the paper's network is not known. Relative error: the fair form (docs/method.md),"
        " one penalty per row on both sides. Min-max scaling is for the metrics alone.",
        "- **Runs.** A run fixes the split (80/20), the noise and the rows; errors are over runs."
        f" Rows published: as many as confidential ones; weights are fitted on {FITTING_ROWS}"
        " other synthetic rows, which cost nothing. The GANs' first parameters, latents and batches"
        " follow from their public settings, of which `start` is the run's number: the errors hold"
        " noise, split and start.",
        f"- **Generators.** Ours, at their defaults, not tuned to these data: "
        f"{'; '.join(f'{k} {dict(v)}' if v else k for k, v in GENERATORS.items())}. The paper's"
        " settings are not in the text at hand. GAN and CGAN are not private.",
        "- **Peers.** MST and AIM of smartnoise-synth 1.0.8 on mbi 1.1.0, in an environment of"
        " their own (benchmarks/peers), unweighted, the same public codes as PrivBayes and the same"
        " (1, delta) in total. They read the exact number of rows without charge, and their noise"
        f" cannot be seeded: these rows cannot be made again to the digit. AIM on"
        f" {' and '.join(SMALL['aim'])} alone: it fits a model in each of 16 d rounds, and was not"
        " tried on wider tables.",
        "- **Which runs may be compared.** The paper's splits, rows and seeds are not ours, and the"
        " cells of one run share rows: cells won are not independent trials.",
    ]


def log_weight_table(known: Records) -> list[str]:
    """Mean squared error of log weights by method and size."""
    if not known:
        return ["Not run."]
    frame = pd.DataFrame(list(known))
    sizes = [s for s in SIZES if ((frame.d == s[0]) & (frame["rows"] == s[1])).any()]
    lines = head(["method", *(f"d = {d}, N_D = {n}" for d, n in sizes)])
    for method in METHODS:
        found = []
        for d, n in sizes:
            own = frame[(frame.method == method) & (frame.d == d) & (frame["rows"] == n)]
            found.append(figure(own.mse).text if len(own) else "")
        told = f"{method} (**not private as claimed**)" if method == PRINTED else method
        lines.append(row([told, *found]))
    return lines


def bayes_table(bayes: Records) -> list[str]:
    """Area under the curve by data set, weights and epsilon."""
    if not bayes:
        return ["Not run."]
    frame = frame_of(bayes)
    lines = head(["data", "weights", *(f"epsilon {e:g}" for e in EPSILONS)])
    for dataset, part in frame.groupby("dataset", sort=False):
        floor = figure(part[part.generator == REAL].bayes_auc).text
        lines.append(row([dataset, "the confidential rows themselves", floor, "", "", ""]))
        for kind in BAYES_KINDS:
            own = part[(part.weights == kind) & (part.generator != REAL)]
            values = [own[own.epsilon == e].bayes_auc for e in EPSILONS]
            told = [figure(v).text if len(v) else "" for v in values]
            lines.append(row([dataset, kind, *told]))
    return lines


def split_table(split: Records) -> list[str]:
    """The fair coefficient error and the distance by share."""
    if not split:
        return ["Not run."]
    frame = frame_of(split)
    lines = head(["data, generator, weights", "metric", "none", *(f"{s:.0%}" for s in SHARES)])
    for (dataset, generator), part in frame.groupby(["dataset", "generator"], sort=False):
        base = part[part.weights == "none"]
        for kind in EXTRA_KINDS:
            own = part[part.weights == kind]
            for metric in ("beta_relative", "wst", "mlp"):
                values = [base, *(own[own.share == s] for s in SHARES)]
                told = [figure(v[metric]).text if len(v) else "" for v in values]
                name = f"{dataset}, {generator}, {LABELS[kind]}"
                lines.append(row([name, metric_name(str(dataset), metric), *told]))
    return lines


def mnist_section(ours: Figures, theirs: Figures) -> list[str]:
    """Table 3, or that it was not run."""
    if not any(key[0] == MNIST for key in ours):
        return ["Not run here: none of Table 3's 14 cells is compared."]
    return [TOLD, "", *mnist_table(ours, theirs)]


def _refusals(refused: Records) -> list[str]:
    told = dict.fromkeys(
        f"- {r['dataset']}, {r['generator']}, {r['weights']}: {r['refused']}" for r in refused
    )
    return ["", "Releases without a result:", "", *told] if told else []


def report(
    ours: Figures,
    theirs: Figures,
    *,
    tables_records: Records,
    facts: Mapping[str, Any],
    known: Records,
    bayes: Records,
    split: Records,
    refused: Records,
    peers: Sequence[str],
    plots: Sequence[str],
    spent: Mapping[tuple[str, str, str], float],
) -> list[str]:
    """The lines of paper.md."""
    by_plot = {name.split(".")[0]: f"![{name}](paper/{name})" for name in plots}
    absent = missing(ours, tuple(SETS))
    lines = [
        "# The paper's tables, with sound noise", "", *settings(facts, ours), "",
        "## Cells won", "", *counts(ours, theirs), "",
        "## Cells clearly lost", "", *losses(ours, theirs), "",
        "## What weights did to our own releases", "",
        "Settings (data, generator) in which weights were better than none on the mean over runs,"
        " paired by run; in brackets those beyond two standard errors of the paired difference,"
        " better (+) and worse (−). The paper's columns have more budget than `None`, the two of"
        " one total have the same; LogReg and MLP are not private.", "",
        *gains(tables_records), "",
        "## What each column spends", "",
        "Total epsilon at the table's delta, all stages composed by privacy loss distributions.",
        "", *budget_table(spent),
    ]  # fmt: skip
    if absent:
        lines += ["", f"Not a single run yet: {'; '.join(absent)}."]
    lines += [*_refusals(refused), *tables(ours, theirs, peers), ""]
    lines += ["## MNIST (Table 3)", "", *mnist_section(ours, theirs), ""]
    lines += ["## Toy: from the square to the triangle", "", by_plot.get("toy", "")]
    lines += [
        "", f"{TOY_ROWS} confidential rows uniform below the diagonal, synthetic rows uniform on"
        " the square (public, no budget), epsilon 1. Points: rows drawn by weight; the share of"
        " the weight above the diagonal should be 0 and is 50% without weights. The debiased and"
        " the noised weights are nearly the same here: with sound noise and the public penalty"
        " the noise is small, and what remains is the shrinkage.",
        "", by_plot.get("weights", ""),
        "", "## Log weights against the truth", "",
        "Mean squared error of log weights (mean weight one) on known log-linear ratios, epsilon 1."
        " The poster has such a table; its figures are not in the text at hand, so this is ours"
        f" alone. `{PRINTED}`: the paper's penalty lambda = 0.1 and its noise; its error is mostly"
        " shrinkage, as `logreg, lambda 0.1` (the same without noise) shows, and its noise is"
        " too small for its epsilon in many columns.",
        "", *log_weight_table(known), "",
        "## How to split one budget", "", by_plot.get("split", ""), "", *split_table(split), "",
        "## Bayesian logistic regression", "", by_plot.get("bayes", ""), "",
        f"ROC AUC on the test rows of the posterior predictive mean of {DRAWS} draws (Laplace's"
        f" approximation, `dpiw.analysis.bayes`); generator {BAYES_GENERATOR}; one total epsilon"
        " for both stages. Which data and epsilons the paper's figure has is not in the text at"
        " hand.", "", *bayes_table(bayes),
    ]  # fmt: skip
    return lines
