"""The page of the paper's tables: markdown from figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paper_cells import NOT_PRIVATE, REAL
from paper_measure import PAPER_METRICS
from paper_sets import SETS, TGFB_COLUMNS
from paper_summary import (
    CONSTANT_MSE,
    EXTRA_KINDS,
    GENERATORS,
    LABELS,
    MNIST,
    PAPER_KINDS,
    Figure,
    Key,
    against_none,
    against_peer,
    below_constant,
    better_than_real,
    carried_by_few,
    count,
    gain,
    joint_error,
    kinds_in,
    pairs,
    paper_flaw,
    peer_label,
    same_side,
    sure_unit,
    too_steady,
    unreachable,
)

Figures = Mapping[Key, Figure]


def row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def head(cells: Sequence[str]) -> list[str]:
    return [row(cells), "|" + "---|" * len(cells)]


def metric_name(dataset: str, metric: str) -> str:
    mlp = "MLP MSE" if dataset in SETS and SETS[dataset].regression else "MLP ROC AUC"
    return {
        "beta_mse": "beta MSE", "wst": "WST", "mlp": mlp, "wst_least": "least WST",
        "beta_relative": "beta, relative error", "ess_share": "ESS share",
    }[metric]  # fmt: skip


def _cell(key: Key, ours: Figures, theirs: Figures, odd: set[Key], poor: set[Key]) -> str:
    mine = ours.get(key)
    if mine is None:
        return ""
    paper = theirs.get(key)
    if paper is None:
        return mine.text
    value, reach = gain(key, mine, paper), 2 * joint_error(mine, paper)
    text = f"**{mine.text}**" if value > 0 else mine.text
    mark = " +" if value > reach else " −" if value < -reach else ""
    doubt = " (u)" if key in odd else " (k)" if key in poor else ""
    return f"{text} / {paper.text}{mark}{doubt}"


def _table(
    dataset: str, metric: str, ours: Figures, theirs: Figures, peers: Sequence[str], odd: set[Key]
) -> list[str]:
    poor = below_constant(theirs)
    columns = [g for g in GENERATORS if (dataset, g, "none", metric) in ours]
    blank = [""] * (len(columns) - 1)
    lines = head([f"{metric_name(dataset, metric)}: weights", *(GENERATORS[g] for g in columns)])
    for kind in (*PAPER_KINDS, *EXTRA_KINDS):
        cells = [_cell((dataset, g, kind, metric), ours, theirs, odd, poor) for g in columns]
        if any(cells):
            lines.append(row([LABELS[kind], *cells]))
    floor = ours.get((dataset, REAL, "none", metric))
    if floor is not None:
        lines.append(
            row(["the confidential rows themselves", floor.text, *[""] * len(columns[1:])])
        )
    for peer in peers:
        figure = ours.get((dataset, peer, "none", metric))
        if figure is not None:
            text = f"{figure.text} ({figure.runs} runs)"
            lines.append(row([f"peer: {peer_label(peer)}, no weights", text, *blank]))
    return lines


def counts(ours: Figures, theirs: Figures) -> list[str]:
    """Cells won, by table, metric and weights."""
    both, odd = pairs(ours, theirs), unreachable(ours, theirs)
    poor = below_constant(theirs)
    plausible = {key: pair for key, pair in both.items() if key not in odd | poor}
    wide = carried_by_few(ours, theirs)
    groups = dict.fromkeys((key[0], key[1], key[3]) for key in both if key in wide)
    names = "; ".join(f"{d} {GENERATORS[g]} {metric_name(d, m)}" for d, g, m in groups)
    lines = [
        f"- All cells compared: {count(both).text}. Without the {len(odd & set(both))} Wasserstein"
        f" cells out of reach (u) and the {len(poor & set(both))} regressions of the paper's that"
        f" a constant would beat if its unit were ours (k): {count(plausible).text}.",
        "- Not clear by that rule, though every run of ours is on one side of the printed mean:"
        f" {len(same_side(ours, theirs, better=True))} better,"
        f" {len(same_side(ours, theirs, better=False))} worse. Our error is above half our mean in"
        f" {len(wide)} cells{f' ({names})' if names else ''}: a few runs carry it, and such a loss"
        " cannot be clear.",
        "",
        *head(["cells", "compared", "won", "clearly won", "clearly lost"]),
    ]

    def line(name: str, chosen: dict[Key, tuple[Figure, Figure]]) -> None:
        if chosen:
            total = count(chosen)
            lines.append(row([name, total.cells, total.won, total.clearly_won, total.clearly_lost]))

    for dataset in dict.fromkeys(key[0] for key in both):
        for metric in PAPER_METRICS:
            cells = {k: v for k, v in both.items() if k[0] == dataset and k[3] == metric}
            line(f"{dataset}, {metric_name(dataset, metric)}", cells)
    for kind in PAPER_KINDS:
        line(f"weights: {LABELS[kind]}", {k: v for k, v in both.items() if k[2] == kind})
    for generator, name in GENERATORS.items():
        line(f"generator: {name}", {k: v for k, v in both.items() if k[1] == generator})
    line("WST and ROC AUC, without MNIST", {k: v for k, v in both.items() if sure_unit(k)})
    line("all others: unit unknown, or reduced",
         {k: v for k, v in both.items() if not sure_unit(k)})  # fmt: skip
    line("private methods alone", {k: v for k, v in both.items() if k[2] not in NOT_PRIVATE})
    line("without MNIST, which is reduced", {k: v for k, v in both.items() if k[0] != MNIST})
    for kind in EXTRA_KINDS:
        line(f"ours at one total ({LABELS[kind]}) against the paper's BetaDebiased",
             against(ours, theirs, kind))  # fmt: skip
    return lines


def gains(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What weights did to our own releases, by kind and metric."""
    metrics = (*PAPER_METRICS, "beta_relative")
    names = ("beta MSE", "WST", "MLP", "beta, relative error")
    lines = head(["weights", *names])
    for kind in (*PAPER_KINDS[1:], *EXTRA_KINDS):
        tallies = [against_none(records, kind, metric) for metric in metrics]
        cells = [f"{c.won} of {c.cells} (+{c.clearly_won} −{c.clearly_lost})" for c in tallies]
        if tallies[0].cells:
            lines.append(row([LABELS[kind], *cells]))
    return lines


def peer_counts(ours: Figures, peers: Sequence[str]) -> list[str]:
    """Our releases at the peers' total against the peers, by metric."""
    metrics = (*PAPER_METRICS, "beta_relative")
    names = ("beta MSE", "WST", "MLP", "beta, relative error")
    lines = head(["ours", "peer", *names])
    for generator, kind in (
        *((name, "none") for name in ("privbayes", "dpgan", "dpcgan")),
        *(("privbayes", kind) for kind in EXTRA_KINDS),
    ):
        for peer in peers:
            tallies = [against_peer(ours, peer, generator, kind, metric) for metric in metrics]
            cells = [f"{c.won} of {c.cells} (+{c.clearly_won} −{c.clearly_lost})" for c in tallies]
            if tallies[0].cells:
                name = f"{GENERATORS[generator]}, {LABELS[kind]}"
                lines.append(row([name, peer_label(peer), *cells]))
    return lines if len(lines) > 2 else ["Not run."]


def against(ours: Figures, theirs: Figures, kind: str) -> dict[Key, tuple[Figure, Figure]]:
    """Our extra column beside the paper's debiased one, which spent a budget for each stage."""
    cells = {}
    for key, paper in theirs.items():
        mine = ours.get((*key[:2], kind, key[3]))
        if key[2] == "beta_debiased" and mine is not None:
            cells[key] = (mine, paper)
    return cells


def losses(ours: Figures, theirs: Figures) -> list[str]:
    """Every cell clearly lost, with what is known against the printed figure."""
    odd = unreachable(ours, theirs)
    lines = head(["data, generator, weights", "metric", "ours", "paper's", "of the paper's figure"])
    for key, (mine, paper) in pairs(ours, theirs).items():
        if gain(key, mine, paper) >= -2 * joint_error(mine, paper):
            continue
        flaw = paper_flaw(*key[:3])
        if key in odd:
            flaw = f"(u) {flaw}".strip()
        name = f"{key[0]}, {GENERATORS.get(key[1], key[1])}, {LABELS[key[2]]}"
        cells = [name, metric_name(key[0], key[3]), mine.text, paper.text, flaw]
        lines.append(row(cells))
    return lines if len(lines) > 2 else ["None."]


def tables(ours: Figures, theirs: Figures, peers: Sequence[str]) -> list[str]:
    """One section per data set."""
    odd = unreachable(ours, theirs)
    lines: list[str] = []
    for dataset in dict.fromkeys(key[0] for key in ours):
        if dataset not in SETS:
            continue
        title = dataset.upper() if dataset == "tgfb" else dataset.capitalize()
        lines += ["", f"## {title}", "", *_about(dataset, ours, theirs)]
        for metric in (*PAPER_METRICS, "beta_relative", "ess_share"):
            lines += ["", *_table(dataset, metric, ours, theirs, peers, odd)]
    return lines


def mnist_table(ours: Figures, theirs: Figures) -> list[str]:
    """Table 3: weights by metric."""
    metrics = ("beta_mse", "mlp", "ess_share")
    lines = head(["weights", *(metric_name(MNIST, m) for m in metrics), "runs"])
    for kind in (*PAPER_KINDS, *EXTRA_KINDS):
        key = (MNIST, "dpcgan", kind)
        cells = [_cell((*key, metric), ours, theirs, set(), set()) for metric in metrics]
        if any(cells):
            lines.append(row([LABELS[kind], *cells, ours[*key, "ess_share"].runs]))
    floor = [ours.get((MNIST, REAL, "none", metric)) for metric in metrics]
    texts = ["" if figure is None else figure.text for figure in floor]
    return [*lines, row(["the confidential digits themselves", *texts, 1])]


def _lost_in_sd(key: Key, ours: Figures, theirs: Figures) -> bool:
    """Whether ours is worse if the printed square is in units of the target's variance."""
    return ours[key].mean / CONSTANT_MSE[key[0]] > theirs[key].mean


def _about(dataset: str, ours: Figures, theirs: Figures) -> list[str]:
    facts = SETS[dataset]
    note = {
        "iris": " The paper's text at hand has no table of it. Target: virginica or not.",
        "tgfb": f" The paper's text at hand has no table of it. The target and the first"
                f" {TGFB_COLUMNS} of 1,000 probe sets: no method has a chance with more columns"
                " than rows at this epsilon, and PrivBayes would look at half a million pairs.",
        "banknote": " Beta MSE with a penalty fixed in total says little: the confidential rows"
                    " themselves may score worse than synthetic ones. The relative error below it"
                    " is the fair form (docs/method.md).",
    }.get(dataset, "")  # fmt: skip
    least = ours.get((dataset, REAL, "none", "wst_least"))
    reach = "" if least is None else (
        f" Least WST that any weights of the confidential rows could reach: {least.text}."
    )  # fmt: skip
    above = better_than_real(ours, {k: v for k, v in theirs.items() if k[0] == dataset})
    by_metric = [(m, sum(key[3] == m for key in above)) for m in PAPER_METRICS]
    cells = ", ".join(f"{n} of {metric_name(dataset, m)}" for m, n in by_metric if n)
    odd = "" if not cells else (
        f" Printed cells that clearly beat the confidential rows themselves under our reading of"
        f" the metric: {cells}; there the paper's unit or set-up is not ours, and little is"
        " compared."
    )  # fmt: skip
    if dataset in CONSTANT_MSE:
        mlp = [k for k in ours if k[0] == dataset and k[3] == "mlp" and k in theirs]
        good = sum(ours[k].mean < CONSTANT_MSE[dataset] for k in mlp)
        odd += (
            f" Predicting the mean has an MSE of {CONSTANT_MSE[dataset]:.2g} in our unit: {good} of"
            f" our {len(mlp)} cells are below it, {len(mlp) - len(below_constant(theirs))} of the"
            " paper's; were its unit the standard deviation,"
            f" {sum(_lost_in_sd(k, ours, theirs) for k in mlp)} of them would be lost."
        )
    still = [key for key in too_steady(ours, theirs) if key[0] == dataset]
    if still:
        odd += (
            f" Printed WST cells with less than half the error that splits alone give the"
            f" confidential rows: {len(still)}; they are hardly of this distance, either."
        )
    return [f"{facts.nominal_rows} rows published, as many confidential; delta {facts.delta:.2g}."
            f"{note}{reach}{odd}"]  # fmt: skip


def budget_table(spent: Mapping[tuple[str, str, str], float]) -> list[str]:
    """What each column spends in total, by data set and generator."""
    datasets = list(dict.fromkeys(key[0] for key in spent))
    lines = head(["generator, weights", *datasets])
    for generator, kind in dict.fromkeys((key[1], key[2]) for key in spent):
        values = [spent.get((d, generator, kind)) for d in datasets]
        cells = ["" if v is None else "not private" if v == float("inf") else f"{v:.2f}"
                 for v in values]  # fmt: skip
        lines.append(row([f"{GENERATORS[generator]}, {LABELS[kind]}", *cells]))
    return lines


def runs_line(ours: Figures) -> str:
    """How many runs the cells hold."""
    by_runs: dict[int, int] = {}
    for key, figure in ours.items():
        if key[3] == "ess_share":
            by_runs[figure.runs] = by_runs.get(figure.runs, 0) + 1
    text = ", ".join(f"{n} with {runs}" for runs, n in sorted(by_runs.items(), reverse=True))
    return f"Releases per cell (runs): {text} cells."


def missing(ours: Figures, datasets: Sequence[str]) -> list[str]:
    """Cells of the plan without a single run."""
    return [
        f"{dataset} {generator}"
        for dataset in datasets
        for generator in GENERATORS
        if not kinds_in(ours, dataset, generator)
        and not (generator in ("dpcgan", "cgan") and SETS[dataset].regression)
    ]
