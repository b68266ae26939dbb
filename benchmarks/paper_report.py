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
    peer_counts,
    row,
    runs_line,
    tables,
)
from paper_peers import PEERS, SMALL
from paper_sets import SETS
from paper_studies import BAYES_GENERATOR, BAYES_KINDS, DRAWS, EPSILONS, SHARES
from paper_summary import (
    CONSTANT_MSE,
    EXTRA_KINDS,
    LABELS,
    MNIST,
    against_none,
    against_peer,
    better_than_real,
    chance_of_clear,
    count,
    figure,
    pairs,
    peer_label,
    sure_unit,
)

Records = Sequence[Mapping[str, Any]]


EARLIER = (
    "The count moves with the starts of the GANs: pages in which all runs shared one start had 77"
    " (commit fe10df8, also other settings) and 109 (commit 39464f5) of 173 cells won."
)


def in_short(ours: Figures, theirs: Figures, records: Records) -> list[str]:
    """What was found, and what it does not show; the page's first paragraphs."""
    both = pairs(ours, theirs)
    sure = {key: pair for key, pair in both.items() if sure_unit(key)}
    unsure = {key: pair for key, pair in both.items() if not sure_unit(key)}
    plain = count({key: pair for key, pair in both.items() if key[2] == "none"})
    parts = []
    for dataset, metric in dict.fromkeys((key[0], key[3]) for key in sure):
        part = count({k: v for k, v in sure.items() if (k[0], k[3]) == (dataset, metric)})
        parts.append(f"{dataset} {metric_name(dataset, metric)} {part.won} of {part.cells}")
    slopes = {key: cell for key, cell in theirs.items() if key[3] == "beta_mse" and key in both}
    odd = better_than_real(ours, slopes)
    equal = []
    for kind in EXTRA_KINDS:
        tallies = {m: against_none(records, kind, m) for m in ("wst", "beta_relative", "mlp")}
        text = ", ".join(
            f"{name} {tally.won} of {tally.cells} settings ({tally.clearly_won} clearly,"
            f" {tally.clearly_lost} clearly worse)"
            for name, tally in zip(("WST", "slopes", "MLP"), tallies.values(), strict=True)
        )
        equal.append(f"{LABELS[kind]}: {text}")
    peers = []
    for peer in PEERS:
        wst, mlp = (against_peer(ours, peer, "privbayes", "none", m) for m in ("wst", "mlp"))
        if wst.cells:
            peers.append(f"{peer_label(peer)}: WST {wst.won} of {wst.cells}, MLP {mlp.won}")
    few, many = chance_of_clear(max((cell.runs for cell in ours.values()), default=2))
    return [
        f"- **Cells.** Of the {len(theirs)} printed cells of Tables 1 to 3 ours are beside"
        f" {len(both)}: {count(both).text}. {EARLIER}",
        "- **What that counts.** Where the metric is most likely the paper's (WST, identified on"
        " unweighted rows; area under the curve), without MNIST, which is reduced here:"
        f" {count(sure).text}; by part:"
        f" {'; '.join(parts)}. In the others, {count(unsure).text}, the paper's unit or set-up is"
        " not known, and a win or a loss may be one of units: beta MSE (of its printed cells"
        f" {len(odd)} clearly beat the confidential rows themselves under our reading), Boston's"
        f" MLP MSE (printed values are above {CONSTANT_MSE['boston']:.2g}, the error of a constant"
        " in our unit), MNIST at 14 x 14 pixels.",
        f"- **Not a test of the weights.** Under `None`, without weights: {plain.text}. The"
        " generators are other implementations with other settings, and every column of a generator"
        " inherits its rows. What weights do shows against no weights on our own releases, paired"
        f" by run, at one total budget. Better than none: {'; '.join(equal)}.",
        "- **Peers at the same total,** data sets in which our PrivBayes without weights has the"
        f" better mean: {'; '.join(peers) or 'not run'}. `As shipped`: rows of the same fits as"
        " the peers' package draws them, which is not by the fitted model; the fair comparison is"
        " the other.",
        f"- **Chance.** `Clearly` is two joint standard errors: where nothing differs, between"
        f" {few:.0%} and {many:.0%} of the cells are called clear, half of them won. No correction"
        " for their number is made, and cells share runs and rows: the counts describe, they do"
        " not test.",
        "- **Not in the paper's text at hand:** Iris and TGFB (no printed cell: ours alone), the"
        " poster's figures, the data and epsilons of the Bayesian figure, the paper's settings.",
    ]


def settings(facts: Mapping[str, Any], ours: Figures) -> list[str]:
    """What was run, and how it differs from the paper."""
    there, planned = facts["cells_there"], facts["cells_planned"]
    cells = ", ".join(f"{part} {there[part]} of {planned[part]}" for part in planned)
    net = PERCEPTRON
    return [
        f"`{facts['command']}`, dpiw {facts['dpiw']} ({facts['commit']}), Python"
        f" {facts['python']}, {facts['cpu_minutes']:.0f} CPU minutes without the peers."
        f" Cells there: {cells}. {runs_line(ours)}",
        "",
        "How to read a cell: `ours / the paper's`, mean and standard error, theirs as printed;"
        " bold: ours is better; ` +`, ` −`: better or worse by more than two joint standard errors;"
        " `(u)`: the printed distance is below what any weights of the confidential rows could"
        " reach on our splits; `(k)`: the printed error is above that of a constant if its unit is"
        " ours. Both say that the printed figure is hardly of our metric.",
        "",
        "- **Budgets.** The text at hand prints one epsilon for each table and does not say how it"
        " is split. We read it as the epsilon of each stage: `None` and `Discriminator` spend the"
        " generator's (1, delta); `BetaNoised`, `BetaDebiased` and `DP-MLP` spend (1, delta) for"
        " the generator and (1, delta) for the weights; `LogReg` and `MLP` are not private. If the"
        " paper meant one total of 1, its private weights had less than ours: for that reading the"
        " last lines of the counts set our releases of one total beside its BetaDebiased. They"
        " spend (1, delta) **in total**, noise solved jointly: linear and Fourier features,"
        " debiased, efforts 1:1, and `measured` at its usual share. The table of budgets below"
        " gives every total. Delta is 10^-6/N_D.",
        "- **Noise.** Ours is sound throughout: Gaussian on the coefficients, calibrated by the"
        " exact sensitivity; one draw per lot in DP-SGD; public bounds. The paper's figures were"
        " not obtained so: its iid Laplace noise at an L2 scale does not give the epsilon"
        " (BetaNoised, BetaDebiased), its DP-MLP adds noise per row, and every column, `None`"
        " included, is scaled by the confidential minimum and maximum, which is a leak"
        " (docs/method.md). In few columns (Banknote) that Laplace noise may be enough by accident,"
        " in Breast's 31 it is not. A loss in those columns may have been bought with privacy; one"
        " under `None`, `Discriminator`, `LogReg` or `MLP` was not.",
        "- **Public bounds.** Round numbers, but Breast's are near the columns' ranges, which are"
        " published with that table: there we are hardly worse off than with the paper's scaling."
        " TGFB's file was standardised by its publisher over all rows, those of the test part too.",
        "- **Weights.** `BetaDebiased` corrects for self-normalised use, by b(x - mu), where the"
        " paper prints b(x) (docs/method.md). `LogReg`: linear, penalty 1 in total. `MLP`: the"
        f" network of the metrics, {net.steps} steps on exact rows; most of its weight falls on few"
        " rows (ESS share). `Discriminator`: our GANs learn by the logistic loss; the paper's DPGAN"
        " is a Wasserstein GAN, whose critic is no ratio.",
        "- **Metrics.** WST: exact Wasserstein-1 on min-max scaled columns, target included."
        " beta MSE: slopes of scikit-learn's default logistic regression (C = 1; Boston, TGFB:"
        " least squares) on the weighted rows against those on the test rows, min-max scaled."
        f" MLP: one hidden layer of {net.hidden}, Adam at {net.learning_rate:g}, {net.steps}"
        " steps; the paper's network is not known. Relative error: the fair form (docs/method.md),"
        " one penalty per row on both sides. Min-max scaling, over the whole file, is for the"
        " metrics alone. Slopes of rows of one class alone count as zero, their area as one half.",
        "- **Runs.** A run fixes the split (80/20), the seeded noise and the rows; errors are over"
        " runs, all of one file. The weights' noise and the draws of rows are seeded by the run"
        " alone: data sets and generators of a run share them. Rows published: as many as"
        " confidential ones, N_D taken as public; weights are fitted on"
        f" {FITTING_ROWS} other synthetic rows, which cost nothing. The GANs' first parameters,"
        " latents and batches follow from their public settings, of which `start` is the run's"
        " number: the errors hold noise, split and start. The DP-MLP's first parameters are the"
        " same in every run: its errors do not hold another start.",
        f"- **Generators.** Ours, at their defaults: "
        f"{'; '.join(f'{k} {dict(v)}' if v else k for k, v in GENERATORS.items())} (MNIST: below)."
        " No setting was searched on these tables, but benchmarks on the same data were in view"
        " while the package was made. The paper's settings are not in the text at hand. GAN and"
        " CGAN are not private.",
        "- **Peers.** MST and AIM of smartnoise-synth 1.0.8 on mbi 1.1.0, in an environment of"
        " their own (benchmarks/peers), at their defaults, unweighted, at the same (1, delta) in"
        " total, on the same public codes as PrivBayes. They turn it into zCDP by a formula of"
        " their own, which is looser by some percent than our accountant: ours draw a little less"
        " noise. They read the exact number of rows without charge, and their noise cannot be"
        " seeded: these rows cannot be made again to the digit. Each fit gives two rows of the"
        " tables. `MST`, `AIM`: published rows drawn independently from the fitted model"
        " (benchmarks/peers/sampling.py). `As shipped`: drawn by mbi's default, `round`, from the"
        " same fit, hence with the same noise; there the columns drawn given one parent share"
        " unshuffled ranks, and two that are independent given a third come out correlated by .99."
        " Earlier editions of this page had those rows alone and called them MST and AIM, which was"
        " unfair. mbi's other way, `sample`, leaves out what a model with a cycle of columns needs,"
        " and is not used. AIM on"
        f" {' and '.join(SMALL['aim'])} alone: it fits a model in each of 16 d rounds, and was not"
        " tried on wider tables.",
    ]


def log_weight_table(known: Records) -> list[str]:
    """Mean squared error of log weights by method and size."""
    if not known:
        return ["Not run."]
    frame = pd.DataFrame(list(known))
    sizes = [s for s in SIZES if ((frame.d == s[0]) & (frame["rows"] == s[1])).any()]
    lines = head(["method", *(f"d = {d}, N_D = {n}" for d, n in sizes)])
    for method in METHODS:
        cells = []
        for d, n in sizes:
            runs = frame[(frame.method == method) & (frame.d == d) & (frame["rows"] == n)]
            cells.append(figure(runs.mse).text if len(runs) else "")
        label = f"{method} (**not private as claimed**)" if method == PRINTED else method
        lines.append(row([label, *cells]))
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
            runs = part[(part.weights == kind) & (part.generator != REAL)]
            values = [runs[runs.epsilon == e].bayes_auc.dropna() for e in EPSILONS]
            cells = [figure(v).text if len(v) else "" for v in values]
            lines.append(row([dataset, kind, *cells]))
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
            runs = part[part.weights == kind]
            for metric in ("beta_relative", "wst", "mlp"):
                values = [base, *(runs[runs.share == s] for s in SHARES)]
                cells = [figure(v[metric]).text if len(v) else "" for v in values]
                name = f"{dataset}, {generator}, {LABELS[kind]}"
                lines.append(row([name, metric_name(str(dataset), metric), *cells]))
    return lines


def mnist_section(ours: Figures, theirs: Figures) -> list[str]:
    """Table 3, or that it was not run."""
    if not any(key[0] == MNIST for key in ours):
        return ["Not run here: none of Table 3's 14 cells is compared."]
    return [
        TOLD,
        "",
        "The generator's settings are MNIST's own (`mnist.py`), chosen on scikit-learn's digits;"
        " one of them, `label_scale`, was added after a first run on MNIST without it had a poor"
        " area under the curve. Test digits are the same in every run: the errors hold noise, start"
        " and rows, no split. Fourier weights were not run. The confidential digits: one draw of"
        " as many, no error.",
        "",
        *mnist_table(ours, theirs),
    ]


def _run_count(records: Records) -> str:
    runs = len({record["run"] for record in records})
    return f"Runs: {runs}." if runs else ""


def _refusals(refused: Records) -> list[str]:
    lines = dict.fromkeys(
        f"- {r['dataset']}, {r['generator']}, {r['weights']}: {r['refused']}" for r in refused
    )
    return ["", "Releases without a result:", "", *lines] if lines else []


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
        "# The paper's tables, with sound noise", "",
        "Tables 1 to 3 of Ghalebikesabi et al. (UAI 2022) beside ours, cell by cell, at the same"
        " epsilon and delta, and what the paper and its poster have besides.", "",
        *in_short(ours, theirs, tables_records), "",
        "## How it was made", "", *settings(facts, ours), "",
        "## Cells won", "", *counts(ours, theirs), "",
        "## Cells clearly lost", "", *losses(ours, theirs), "",
        "## What weights did to our own releases", "",
        "Settings (data, generator) in which weights were better than none on the mean over runs,"
        " paired by run; in brackets those beyond two standard errors of the paired difference,"
        " better (+) and worse (−). The paper's columns have more budget than `None`, the two of"
        " one total have the same; LogReg and MLP are not private. All five data sets, not MNIST;"
        " where there are more than 13 settings, those of the non-private GANs are among them.",
        "", *gains(tables_records), "",
        "## Ours and the peers at one total", "",
        "Data sets in which our mean is the better one, over the runs that both have (same splits);"
        " in brackets those better (+) and worse (−) in every run: of three runs one in four is"
        " so by chance.", "",
        *peer_counts(ours, peers), "",
        "## What each column spends", "",
        "Total epsilon at the table's delta, all stages composed by privacy loss distributions."
        " MNIST: 9.64 for each stage, or for both.",
        "", *budget_table(spent),
    ]  # fmt: skip
    if absent:
        lines += ["", f"Not a single run yet: {'; '.join(absent)}."]
    lines += [*_refusals(refused), *tables(ours, theirs, peers), ""]
    lines += ["## MNIST (Table 3)", "", *mnist_section(ours, theirs), ""]
    lines += ["## Toy: from the square to the triangle", "", by_plot.get("toy", "")]
    lines += [
        "", f"{TOY_ROWS} confidential rows uniform below the diagonal, synthetic rows uniform on"
        " the square (public, no budget), epsilon 1 for the private weights, delta"
        " 10^-6/N_D; one draw. Points: rows drawn by weight; the share of"
        " the weight above the diagonal should be 0 and is 50% without weights. The debiased and"
        " the noised weights are nearly the same here: with sound noise and the public penalty"
        " the noise is small, and what remains is the shrinkage.",
        "", by_plot.get("weights", ""), "",
        "Above, the toy's log weights: right is log 2 (dashed) for half of the rows and minus"
        " infinity for the others. Below, one PrivBayes release of Banknote; beta and DP-MLP"
        " weights spend epsilon 1 beside the generator's, Fourier weights share one total with it.",
        "", "## Log weights against the truth", "",
        "Mean squared error of log weights (mean weight one) on known log-linear ratios, epsilon 1"
        " for the weights alone, delta 10^-6/N_D (spherical and Laplace: 0)."
        " The poster has such a table; its figures are not in the text at hand, so this is ours"
        f" alone. `{PRINTED}`: the penalty lambda = 0.1 of the paper's toy and its noise; its error"
        " is mostly shrinkage, as `logreg, lambda 0.1` (the same without noise) shows, and its"
        " noise is too small for its epsilon in many columns.",
        "", *log_weight_table(known), "",
        "## How to split one budget", "", by_plot.get("split", ""), "",
        "One total (1, delta); the share of the joint effort (of zCDP's rho or its like) that goes"
        " to the weights. Runs of this study share splits and noise streams between shares."
        f" {_run_count(split)}", "",
        *split_table(split), "",
        "## Bayesian logistic regression", "", by_plot.get("bayes", ""), "",
        f"ROC AUC on the test rows of the posterior predictive mean of {DRAWS} draws (Laplace's"
        f" approximation, `dpiw.analysis.bayes`); generator {BAYES_GENERATOR}; one total epsilon"
        " for both stages. A release without a fit counts as one half. Which data and epsilons the"
        f" paper's figure has is not in the text at hand. {_run_count(bayes)}", "",
        *bayes_table(bayes),
    ]  # fmt: skip
    return lines
