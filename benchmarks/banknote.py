"""Weights against no weights on Banknote, at equal total epsilon.

    make bench-banknote DATA=folder-with-banknote.csv
    python benchmarks/banknote.py --data FOLDER [--runs 10] [--out benchmarks/results]

Every cell spends the same total (epsilon, delta = 1e-6): without weights the generator gets it
all, with weights the plan splits the effort. 80% of the rows play the confidential table, 20% are
held out. Noise is seeded per run, so the table can be made again to the digit.

Relative coefficient error: squared distance of the logistic coefficients fitted on weighted
synthetic rows from those fitted on the held-out rows, over the latter's squared norm. Both fits
use the same penalty *per row*: with a penalty fixed in total the comparison measures table sizes
(docs/method.md section 8). The row `real` is the same number for the confidential rows themselves:
the floor no synthetic table can be expected to pass.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from metrics import (
    auc,
    coefficient_errors,
    design,
    ess_share,
    exact_wasserstein,
    linear_fit,
    wasserstein_1d_sum,
)

from dpiw import __version__
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.play import play
from dpiw.plan.plan import compile_plan
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

ROOT = Path(__file__).resolve().parents[1]
SYNTHETIC_ROWS = 4000
TRANSPORT_ROWS = 1000
METRICS = ("relative_coefficient_error", "linear_auc", "wasserstein_1d_sum", "wasserstein_exact",
           "ess_share")  # fmt: skip
WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "none": {"method": "none"},
    "linear": {"method": "beta_debiased", "settings": {"features": "linear"}},
    "fourier": {"method": "beta_debiased", "settings": {"features": "fourier", "omega_seed": 1}},
}


def evaluate(
    schema: PublicSchema, rows: ScaledTable, w: np.ndarray, test: ScaledTable, seed: int
) -> dict[str, float]:
    """The metrics of one weighted table against the held-out rows."""
    x, y = design(schema, rows)
    tx, ty = design(schema, test)
    truth = linear_fit(tx, ty, np.ones(len(tx)), regression=False, solver="lbfgs")
    assert truth is not None
    fit = linear_fit(x, y, w, regression=False, solver="lbfgs")
    _, error = coefficient_errors(None if fit is None else fit.coefficients, truth.coefficients)
    full, t_full = np.column_stack([x, y]), np.column_stack([tx, ty])
    chosen = np.random.default_rng(seed).permutation(len(full))[:TRANSPORT_ROWS]
    return {
        "relative_coefficient_error": error,
        "linear_auc": auc(ty, None if fit is None else fit.score(tx)),
        "wasserstein_1d_sum": wasserstein_1d_sum(schema, rows, w, test),
        "wasserstein_exact": exact_wasserstein(full[chosen], w[chosen], t_full),
        "ess_share": ess_share(w),
    }


def spec_for(epsilon: str, weights: Mapping[str, Any], nominal_rows: int) -> Any:
    return parse_spec(
        {
            "format": 1, "name": "banknote", "population": "banknote",
            "source": {"path": "unused", "format": "csv"}, "schema": "unused",
            "epsilon": epsilon, "delta": "1e-6", "nominal_rows": nominal_rows,
            "generator": {"method": "privbayes", "settings": {"bins": 16, "degree": 2}},
            "weights": {**weights, "when_infeasible": "keep"},
            "synthetic_rows": SYNTHETIC_ROWS, "state": "unused", "signing_key": "unused",
            "publish_to": "unused",
        }
    )  # fmt: skip


def one_run(schema: PublicSchema, frame: pd.DataFrame, plans: Mapping[str, Any], run: int):
    order = np.random.default_rng(run).permutation(len(frame))
    cut = int(0.8 * len(frame))
    train, test = (schema.scale(frame.iloc[part].reset_index(drop=True))
                   for part in (order[:cut], order[cut:]))  # fmt: skip
    yield "real", "-", evaluate(schema, train, np.ones(train.rows), test, run), {}
    for (epsilon, name), plan in plans.items():
        private = PrivateTable(schema=schema, scaled=train)
        noise, rng = SeededNoise(1000 * run + 1), np.random.default_rng(run)
        played = play(plan.recipe, private, noise=noise, rng=rng)
        rows, weights = played.rows, played.weights
        verdict = "none" if played.estimator is None else weights.diagnostics.verdict.value
        w = np.exp(weights.log_weights)
        yield (
            epsilon,
            name,
            evaluate(schema, rows.scaled, w / w.mean(), test, run),
            {"verdict": verdict},
        )


def summary(records: list[dict[str, Any]]) -> list[str]:
    lines = ["| total epsilon | weights | " + " | ".join(METRICS) + " | verdicts |",
             "|---|---|" + "---|" * (len(METRICS) + 1)]  # fmt: skip
    frame = pd.DataFrame(records)
    for (epsilon, name), part in frame.groupby(["epsilon", "weights"], sort=False):
        cells = [f"{part[m].mean():.3f} ± {part[m].sem():.3f}" for m in METRICS]
        verdicts = part["verdict"].dropna().value_counts().to_dict() if "verdict" in part else {}
        counts = ", ".join(f"{k}: {v}" for k, v in verdicts.items())
        lines.append(f"| {epsilon} | {name} | " + " | ".join(cells) + f" | {counts} |")
    return lines


def differences(records: list[dict[str, Any]]) -> list[str]:
    """What weighting changed against no weights, run by run: mean and standard error."""
    frame = pd.DataFrame(records)
    lines = [
        "| total epsilon | weights | " + " | ".join(METRICS[:-1]) + " |",
        "|---|---|" + "---|" * (len(METRICS) - 1),
    ]
    for (epsilon, name), part in frame.groupby(["epsilon", "weights"], sort=False):
        if name in ("-", "none"):
            continue
        base = frame[(frame.epsilon == epsilon) & (frame.weights == "none")].set_index("run")
        change = part.set_index("run")[list(METRICS[:-1])] - base[list(METRICS[:-1])]
        cells = [f"{change[m].mean():+.3f} ± {change[m].sem():.3f}" for m in METRICS[:-1]]
        lines.append(f"| {epsilon} | {name} | " + " | ".join(cells) + " |")
    return lines


def _forecast(name: str, facts: Mapping[str, Any]) -> str:
    verdict = "feasible" if facts["feasible"] else "not feasible: the plan publishes none"
    return f"- {name}: resolution {facts['resolution']:.2f}, tau {facts['tau']:.2f}, {verdict}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilons", nargs="+", default=["1", "3"])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    schema = PublicSchema.from_yaml(ROOT / "examples" / "banknote" / "schema.yaml")
    frame = pd.read_csv(chosen.data / "banknote.csv", dtype=str)
    nominal = 1100  # public: about 80% of the published 1,372 rows
    plans = {
        (epsilon, name): compile_plan(spec_for(epsilon, weights, nominal), schema)
        for epsilon in chosen.epsilons
        for name, weights in WEIGHTS.items()
    }
    started, records = time.monotonic(), []
    for run in range(chosen.runs):
        for epsilon, name, metrics, facts in one_run(schema, frame, plans, run):
            records.append({"run": run, "epsilon": epsilon, "weights": name, **metrics, **facts})
        print(f"run {run + 1} of {chosen.runs}, {time.monotonic() - started:.0f} s", flush=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    forecasts = {f"epsilon {e}, {n}": vars(p.forecast) for (e, n), p in plans.items() if p.forecast}
    command = "python benchmarks/banknote.py --data FOLDER " + f"--runs {chosen.runs}"
    record = {"command": command, "dpiw": __version__, "python": platform.python_version(),
              "forecasts": forecasts, "records": records}  # fmt: skip
    (chosen.out / "banknote.json").write_text(json.dumps(record, indent=1) + "\n")
    table = summary(records)
    text = [
        "# Banknote at equal total epsilon",
        "",
        f"`{command}`, dpiw {__version__}, {chosen.runs} runs, mean ± standard error, PrivBayes"
        f" (degree 2, 16 bins), delta = 1e-6, {SYNTHETIC_ROWS} synthetic rows.",
        "",
        "`real` scores the confidential rows themselves: the floor. Lower is better except for",
        "linear_auc and ess_share. The verdict is what the certificate would say.",
        "",
        *table,
        "",
        "Weighted minus unweighted, paired by run (the unweighted plan has the whole budget):",
        "",
        *differences(records),
        "",
        "Public forecasts of the plans (resolution: share of the log ratio's variance that",
        "survives shrinkage; tau: sd of the log-weight noise):",
        "",
        *[_forecast(name, forecast) for name, forecast in forecasts.items()],
    ]
    (chosen.out / "banknote.md").write_text("\n".join(text) + "\n")
    print("\n".join(table))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
