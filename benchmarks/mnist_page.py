"""The page of `mnist.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from study import table

ROWS_OF = {
    "synthetic": "synthetic digits",
    "discriminator": "synthetic digits, `discriminator` weights",
    "dp_mlp": "synthetic digits, `dp_mlp` weights (epsilon 9.64 of their own)",
    "measured: rows": "a generator that left 5% of the effort",
    "measured": "the same, and `measured` weights on patches for the 5%",
    "real": "real training digits, as many: the ceiling",
}
PAPERS = {"synthetic": "none", "discriminator": "discriminator", "dp_mlp": "dp_mlp"}
NUMBERS = {
    "auc": "AUC", "accuracy": "accuracy", "linear_auc": "linear AUC",
    "linear_accuracy": "linear accuracy", "beta_mse": "beta MSE", "variety": "variety",
    "ess_share": "ESS share",
}  # fmt: skip


def _networks(run: Mapping[str, Any]) -> str:
    return "convolutions" if "image" in run["settings"] else "perceptrons"


def _told(figure: Sequence[float] | None) -> str:
    """A mean, and its error where there is one."""
    if figure is None:
        return ""
    mean, error = figure
    return f"{mean:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")


def _classifiers(record: Mapping[str, Any]) -> list[str]:
    rows = [["pixels", "fitted on", *NUMBERS.values(), "paper's AUC, beta MSE"]]
    paper = {(weights, metric): cell for _, _, weights, metric, *cell in record["paper"]}
    for run in record["runs"].values():
        for name, label in ROWS_OF.items():
            if name in run["classifier"]:
                figures = run["classifier"][name]
                kind = PAPERS.get(name) if run["side"] == 28 else None
                theirs = [paper[kind, m] for m in ("mlp", "beta_mse") if (kind, m) in paper]
                rows.append([
                    f"{run['side']} x {run['side']}", label,
                    *(_told(figures.get(key)) for key in NUMBERS), ", ".join(map(_told, theirs)),
                ])  # fmt: skip
    return table(rows)


def _times(record: Mapping[str, Any]) -> list[str]:
    names = {
        "fit_seconds": "fit, s", "fit_cpu_seconds": "fit, CPU s", "load": "load",
        "at_once": "fits at once", "noise_multiplier": "noise multiplier",
        "epsilon_pld": "epsilon",
    }  # fmt: skip
    rows = [["fit", *names.values()]]
    for run in record["runs"].values():
        for label, fit in {"": run, ", beside `measured`": run.get("measured")}.items():
            if fit is not None:
                cells = [str({**run, **fit}.get(name, "")) for name in names]
                rows.append([f"{run['side']} x {run['side']}{label}", *cells])
    return table(rows)


def page(record: Mapping[str, Any]) -> list[str]:
    """The text of mnist.md."""
    lines = ["# MNIST: dpcgan at epsilon 9.64", ""]
    for run in record["runs"].values():
        lines.append(
            f"- {run['side']} x {run['side']} pixels, {_networks(run)}: `{run['command']}`, dpiw"
            f" {run['dpiw']} ({run['commit']}), device {run['device']}; {run['repeats']} fits."
        )
    if "full" not in record["runs"]:
        lines.append(
            "- **Reduced**: without the run at 28 x 28 pixels the figures are not to be compared"
            " with Table 3."
        )
    lines += [
        "", *_classifiers(record), "",
        "- All 60,000 training images are private: add/remove one, epsilon 9.64, delta 10^-6 /"
        " 60,000. `dp_mlp` weights spend as much once more. `measured` weights on patches do not"
        " know the digit.",
        "- Fitted on 10,000 rows, tested on the 10,000 real test images at the same resolution. AUC"
        " and accuracy: perceptron with 64 hidden units, 1500 steps; linear: multinomial logistic"
        " regression with scikit-learn's default penalty. AUC: one digit against the rest, macro."
        " Beta MSE: of that regression's slopes, against those of the test images; real training"
        " digits may score worse than synthetic ones, so it says little here. Variety: standard"
        " deviation of a pixel among images of one digit, mean over pixels and digits, over that of"
        " the test images: 0 where each digit is one image; specks count as variety too.",
        "- The paper's: Table 3, mean and standard error, as printed. Its resolution, networks and"
        " classifier, and the unit of its slopes, are not in the text at hand; we read its epsilon"
        " as that of each stage. Its private weights do not hold what they promise"
        " ([method](../../docs/method.md#12-errata)). Only 28 x 28 pixels are set beside it.",
        "", "## What it took", "", *_times(record), "",
        "One thread for each fit. Machines were shared (load: processes that wanted a core, over"
        " fifteen minutes): CPU seconds tell the work, wall seconds are upper bounds.",
        "", "## Pictures", "", "The first ten images drawn of each digit, 0 in the top row:",
    ]  # fmt: skip
    for size, run in record["runs"].items():
        lines += ["", f"{run['side']} x {run['side']} pixels, {_networks(run)}, settings"
                  f" {run['settings']}:", "", f"![digits](mnist_{size}.png)"]  # fmt: skip
    return lines
