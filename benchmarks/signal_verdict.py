"""Does the verdict know whether weights help? Known log ratios, by strength of the tilt.

    python benchmarks/signal_verdict.py [--repeats 40] [--out benchmarks/results] [--cells FILE]

Real rows: uniform ones tilted by exp(beta.x), beta of a given norm and random direction; norm 0 is
a ratio of one. Synthetic rows: uniform. For each verdict: how often it fell; the weighted error of
the columns' means over the unweighted one; the squared error of the log ratio over that of no
weights (below 1: weights help). Cells are kept in FILE; a run that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from penalty import ROOT, rows, schema

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.beta import BetaDebiased
from dpiw.methods.weights.weigh import weigh
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

NORMS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
SETTINGS = ((1000, 4.2247), (1000, 1.5439), (20_000, 4.2247))
"""Nominal and true rows, noise multiplier: epsilon 1, 3 and 1 at delta = 1e-6."""

SYNTHETIC_ROWS = 2000
UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)


def tilted(rng: np.random.Generator, n: int, beta: np.ndarray) -> np.ndarray:
    """Rows with density proportional to exp(beta.x) on the unit box, by inversion."""
    b = np.where(np.abs(beta) < 1e-9, 1e-9, beta)
    return np.log1p(rng.random((n, beta.size)) * np.expm1(b)) / b


def cell(
    features: str, d: int, n0: int, multiplier: float, norm: float, repeats: int
) -> list[dict[str, Any]]:
    layout, rng = schema(d), np.random.default_rng(2)
    estimator = BetaDebiased(features=features, omega_seed=3, frequencies=60).calibrate(
        rho=1 / (2 * multiplier**2), schema=layout, unit=UNIT, nominal_rows=n0
    )
    resolution = estimator.resolution(schema=layout, nominal_rows=n0)
    records = []
    for seed in range(repeats):
        beta = rng.standard_normal(d)
        beta *= norm / np.linalg.norm(beta)
        private = PrivateTable(schema=layout, scaled=rows(layout, tilted(rng, n0, beta)))
        fitting, published = (
            SyntheticTable(schema=layout, scaled=rows(layout, rng.random((SYNTHETIC_ROWS, d))))
            for _ in range(2)
        )
        measured = estimator.measure(private, fitting, noise=SeededNoise(1000 + seed))
        weights = weigh(
            estimator.ratio(measured, schema=layout), published, debias=True, resolution=resolution
        )
        x = np.column_stack([published.scaled.columns[c.name] for c in layout.released])
        true = (x - 0.5) @ beta
        error = weights.log_weights - true
        b = np.where(np.abs(beta) < 1e-6, 1e-6, beta)
        mean = 1 / -np.expm1(-b) - 1 / b
        w = np.exp(weights.log_weights)
        signal = weights.diagnostics.signal
        assert signal is not None
        records.append(
            {
                "verdict": weights.diagnostics.verdict.value,
                "p": signal.p_value,
                "to_noise": signal.to_noise,
                "log": float(error.var()),
                "log_none": float(true.var()),
                "mean": float(((w @ x / w.sum() - mean) ** 2).sum()),
                "mean_none": float(((x.mean(axis=0) - mean) ** 2).sum()),
            }
        )
    return records


def report(found: dict[str, Any], repeats: int) -> list[str]:
    frame = pd.DataFrame(
        [{"features": key.split("|")[0], "norm": float(key.split("|")[4]), **record}
         for key, records in found.items() for record in records]
    )  # fmt: skip
    lines = [
        "# Verdict and benefit",
        "",
        f"`python benchmarks/signal_verdict.py --repeats {repeats}`, {len(frame)} simulated"
        " releases.",
        "Errors are weighted over unweighted, root of the mean squares: below 1, weights help.",
        "",
        "| features | tilt | verdict | share | error of means | error of log ratio |",
        "|---|---|---|---|---|---|",
    ]
    for (features, norm), part in frame.groupby(["features", "norm"]):
        for verdict, cases in part.groupby("verdict"):
            means = np.sqrt(cases["mean"].sum() / cases["mean_none"].sum())
            logs = np.sqrt(cases["log"].sum() / cases["log_none"].sum()) if norm > 0 else np.inf
            lines.append(f"| {features} | {norm:g} | {verdict} | {len(cases) / len(part):.0%} |"
                         f" {means:.2f} | {logs:.2f} |")  # fmt: skip
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--cells", type=Path, default=ROOT / ".dpiw" / "verdict-cells.json")
    chosen = parser.parse_args(arguments)
    chosen.cells.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(chosen.cells.read_text()) if chosen.cells.exists() else {}
    for features, d, (n0, multiplier), norm in product(
        ("linear", "fourier"), (2, 5), SETTINGS, NORMS
    ):
        key = f"{features}|{d}|{n0}|{multiplier}|{norm}|{chosen.repeats}"
        if key not in results:
            results[key] = cell(features, d, n0, multiplier, norm, chosen.repeats)
            chosen.cells.write_text(json.dumps(results))
            print(key, flush=True)
    lines = report(results, chosen.repeats)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "signal_verdict.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
