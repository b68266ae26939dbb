"""The page of `mnist.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    "linear_accuracy": "linear accuracy", "beta_mse": "beta MSE", "ess_share": "ESS share",
}  # fmt: skip

CHOICES = """CHOICES"""


def _networks(run: Mapping[str, Any]) -> str:
    return "convolutions" if "image" in run["settings"] else "perceptrons"


def _told(facts: Mapping[str, Any]) -> list[str]:
    """What each run is, and where it was made."""
    lines = []
    for run in facts["runs"].values():
        where = f"`{run['command']}`, dpiw {run['dpiw']} ({run['commit']}), device"
        own = f"{run['side']} x {run['side']} pixels, {_networks(run)}"
        lines.append(f"- {own}: {where} {run['device']}, {run['python']}.")
    if "full" not in facts["runs"]:
        lines.append(
            "- **Reduced**: without the run at 28 x 28 pixels, which needs torch and Opacus, the"
            " figures are not to be compared with Table 3."
        )
    return lines


def _classifiers(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"| pixels | fitted on | {' | '.join(NUMBERS.values())} | paper's AUC, beta MSE |",
             f"|---|---|{'---|' * len(NUMBERS)}---|"]  # fmt: skip
    for size, run in facts["runs"].items():
        for name, label in ROWS_OF.items():
            if name not in run["classifier"]:
                continue
            own = run["classifier"][name]
            cells = [f"{own[key]:.3f}" if key in own else "" for key in NUMBERS]
            theirs = facts["paper"].get(PAPERS.get(name, ""), {}) if size == "full" else {}
            told = ", ".join(
                f"{theirs[metric][0]:.3f} ± {theirs[metric][1]:.3f}"
                for metric in ("mlp", "beta_mse")
                if metric in theirs
            )
            lines.append(
                f"| {run['side']} x {run['side']} | {label} | {' | '.join(cells)} | {told} |"
            )
    return lines


def _times(facts: Mapping[str, Any]) -> list[str]:
    names = {"fit_seconds": "fit, s", "fit_cpu_seconds": "fit, CPU s", "steps_per_second": "steps/s",
             "steps_per_cpu_second": "steps/CPU s", "load": "load"}  # fmt: skip
    lines = [f"| fit | {' | '.join(names.values())} | noise multiplier | epsilon |",
             f"|---|{'---|' * len(names)}---|---|"]  # fmt: skip
    for run in facts["runs"].values():
        fits = {"": run, ", beside `measured`": run.get("measured")}
        for label, own in fits.items():
            if own is not None:
                cells = " | ".join(str(own.get(name, "")) for name in names)
                lines.append(
                    f"| {run['side']} x {run['side']}{label} | {cells} |"
                    f" {own['noise_multiplier']:.3f} | {own['epsilon_pld']:.3f} |"
                )
    return lines


def _stages(run: Mapping[str, Any]) -> list[str]:
    lines = ["| steps | AUC | accuracy |", "|---|---|---|"]
    for own in run["stages"]:
        lines.append(f"| {own['step']} | {own['auc']:.3f} | {own['accuracy']:.3f} |")
    return lines


def page(facts: Mapping[str, Any]) -> list[str]:
    """The text of mnist.md."""
    lines = [
        "# MNIST: dpcgan at epsilon 9.64", "", *_told(facts), "",
        f"One fit each, seeded noise: no figure has an error. Total epsilon {facts['epsilon']}, delta"
        f" {facts['delta']} (10^-6 / 60,000), add/remove one image, all 60,000 training images; the"
        " digits' shares are a noisy histogram, charged within. `discriminator` weights are free."
        " `measured` weights and their generator spend one total together.", "",
        "## What classifiers learn", "", *_classifiers(facts), "",
        "- Fitted on 10,000 rows, tested on the 10,000 real test images at the same resolution. AUC"
        " and accuracy: perceptron with 64 hidden units, 1500 steps; linear: multinomial logistic"
        " regression with scikit-learn's default penalty. AUC: one digit against the rest, macro;"
        " knowing nothing has 0.5, and an accuracy of 0.1. Beta MSE: of that regression's slopes,"
        " against those of the test images; less is better.",
        "- The paper's: Table 3, mean and standard error, as printed. Its resolution, networks and"
        " classifier, and the unit of its slopes, are not in the text at hand; its epsilon we read as"
        " that of each stage, so that its `dp_mlp`, like ours here, spends 9.64 for the generator and"
        " 9.64 for the weights. Its private weights do not hold what they promise"
        " ([method](../../docs/method.md#12-errata)). Only 28 x 28 pixels are set beside it.",
        "", "## What it took", "", *_times(facts), "",
        "One thread. The machine was shared (load: processes that wanted one of two cores, over"
        " fifteen minutes): CPU seconds tell the work, wall seconds are upper bounds.",
    ]  # fmt: skip
    full = facts["runs"].get("full")
    if full is not None:
        lines += ["", CHOICES, "", "## Figures against steps", "",
                  "Of the generator without weights on its way, 28 x 28 pixels; the noise is that of"
                  " the whole run, so a plan of fewer steps would have had less of it.", "",
                  *_stages(full)]  # fmt: skip
    lines += ["", "## Pictures", "", "The first ten images drawn of each digit, 0 in the top row:"]
    for size, run in facts["runs"].items():
        lines += ["", f"{run['side']} x {run['side']} pixels, {_networks(run)}, settings"
                  f" {dict(run['settings'])}:", "", f"![digits](mnist_{size}.png)"]  # fmt: skip
    return lines
