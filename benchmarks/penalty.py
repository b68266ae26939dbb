"""The penalty of Fourier features: `balanced_penalty` against Lam = K/tau and the best Lam.

    python benchmarks/penalty.py [--out benchmarks/results] [--cells FILE]

For known log ratios on uniform synthetic rows the noise-free fit is solved on a grid of Lam; the
privacy noise enters by its closed form, so one solution serves every epsilon. Error: root mean
square over synthetic rows of (released - true) log ratio, both centred. Cells are kept in FILE and
not solved again: a run that was cut short goes on. About 12 minutes on one core from nothing.
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

from dpiw.data.columns import Column, ColumnKind
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.methods.weights.features import FourierMap
from dpiw.methods.weights.penalty import balanced_penalty
from dpiw.methods.weights.solver import Regression, solve

ROOT = Path(__file__).resolve().parents[1]
GRID = np.geomspace(1, 4000, 13)
MULTIPLIERS = {0.3: 12.9924, 1: 4.2247, 3: 1.5439}
"""Gaussian noise multiplier at epsilon, delta = 1e-6 (docs/method.md section 10)."""

SIZES = (1000, 10_000, 100_000)
KINDS = ("linear", "inter", "bump", "wave")
SCALES = (0.3, 0.6, 1.2)
"""Standard deviation of the true log ratio."""


def schema(columns: int) -> PublicSchema:
    return PublicSchema(
        name="n",
        columns=tuple(
            Column(name=f"x{i}", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0)
            for i in range(columns)
        ),
    )


def rows(own: PublicSchema, x: np.ndarray) -> ScaledTable:
    return ScaledTable({c.name: x[:, i].copy() for i, c in enumerate(own.released)}, len(x))


def truth(kind: str, x: np.ndarray, scale: float) -> np.ndarray:
    """Log ratio up to a constant, standard deviation about `scale` on uniform rows."""
    z = x - 0.5
    if kind == "linear":
        return scale * 3.46 * z.sum(axis=1) / np.sqrt(z.shape[1])
    if kind == "inter":
        return scale * 12 * z[:, 0] * z[:, 1]
    if kind == "bump":
        return scale * 13.4 * (z[:, 0] ** 2 - 1 / 12)
    return scale * np.sqrt(2) * np.sin(2 * np.pi * x[:, 0])


def sample(kind: str, scale: float, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """`n` rows of the real law, by rejection from uniform rows."""
    x = rng.random((8 * n, d))
    t = truth(kind, x, scale)
    top = t.max()
    accepted = [x[rng.random(len(x)) < np.exp(t - top)]]
    while sum(map(len, accepted)) < n:
        x = rng.random((8 * n, d))
        share = np.minimum(1, np.exp(truth(kind, x, scale) - top))
        accepted.append(x[rng.random(len(x)) < share])
    return np.vstack(accepted)[:n]


def cell(n0: int, d: int, kind: str, scale: float) -> dict[str, Any]:
    """Squared error of the noise-free fit along `GRID`, and what the rules need."""
    rng, layout = np.random.default_rng(7), schema(d)
    features = FourierMap(layout, 100 if n0 < 100_000 else 60, None, 3)
    private = features.matrix(rows(layout, sample(kind, scale, n0, d, rng)))
    count = max(4000, min(n0, 20_000))
    fitting = features.matrix(rows(layout, rng.random((count, d))))
    x = rng.random((4000, d))
    published = features.matrix(rows(layout, x))
    true = truth(kind, x, scale)
    true = true - true.mean()
    centred = published - published.mean(axis=0)
    errors = []
    for penalty in GRID:
        problem = Regression(
            private=private, synthetic=fitting, synthetic_weight=n0 / count, penalty=penalty
        )
        b = solve(problem, tolerance=1e-4)
        errors.append(float(((centred @ b - true) ** 2).mean()))
    return {
        "err": errors,
        "tr": float((centred**2).sum(axis=1).mean()),
        "var": float((true**2).mean()),
        "eig": features.reference_eigenvalues().tolist(),
    }


def cells() -> list[tuple[int, int, str, float]]:
    """Every setting; the largest tables with fewer columns and shapes, for time."""
    return [
        (n0, d, kind, scale)
        for n0, d, kind, scale in product(SIZES, (2, 5, 13), KINDS, SCALES)
        if n0 < 100_000 or (d < 13 and kind != "wave")
    ]


def compare(found: dict[str, Any]) -> pd.DataFrame:
    """One row per cell and epsilon: error of both rules over the best, and of no weights."""
    records = []
    for n0, d, kind, scale in cells():
        record = found[f"{n0}-{d}-{kind}-{scale}"]
        eigenvalues = np.array(record["eig"])
        for epsilon, level in MULTIPLIERS.items():

            def error(penalty: float, record: Any = record, level: float = level) -> float:
                fit = np.exp(np.interp(np.log(penalty), np.log(GRID), np.log(record["err"])))
                return float(np.sqrt(fit + record["tr"] * (level / penalty) ** 2))

            best = min(error(p) for p in np.geomspace(1, 4000, 200))
            rule = balanced_penalty(level, eigenvalues, nominal_rows=n0, tau=0.2)
            records.append(
                {
                    "n0": n0,
                    "columns": d,
                    "kind": kind,
                    "scale": scale,
                    "epsilon": epsilon,
                    "penalty": rule,
                    "capped": level / 0.2,
                    "rule / best": error(rule) / best,
                    "K/tau / best": error(level / 0.2) / best,
                    "rule / K/tau": error(rule) / error(level / 0.2),
                    "rule / none": error(rule) / np.sqrt(record["var"]),
                }
            )
    return pd.DataFrame(records)


def report(frame: pd.DataFrame) -> list[str]:
    lines = [
        "# Penalty of Fourier features",
        "",
        f"`python benchmarks/penalty.py`, {len(frame)} settings. Error: root mean square of the"
        " log ratio.",
        "",
        "| n0 | settings | rule/best: median, worst | K/tau/best: median, worst |"
        " rule/(K/tau): least, worst | rule worse than no weights |",
        "|---|---|---|---|---|---|",
    ]
    groups = [*frame.groupby("n0"), ("all", frame)]
    for name, part in groups:
        rule, capped, both = part["rule / best"], part["K/tau / best"], part["rule / K/tau"]
        lines.append(
            f"| {name} | {len(part)} | {rule.median():.2f}, {rule.max():.2f} |"
            f" {capped.median():.2f}, {capped.max():.2f} | {both.min():.2f}, {both.max():.2f} |"
            f" {(part['rule / none'] > 1).sum()} |"
        )
    both = frame["rule / K/tau"]
    lines += ["", f"Better by over 5% in {(both < 0.95).sum()}, worse by over 5% in"
              f" {(both > 1.05).sum()} of {len(frame)}."]  # fmt: skip
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--cells", type=Path, default=ROOT / ".dpiw" / "penalty-cells.json")
    chosen = parser.parse_args(arguments)
    chosen.cells.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(chosen.cells.read_text()) if chosen.cells.exists() else {}
    for setting in cells():
        key = "-".join(map(str, setting))
        if key not in results:
            results[key] = cell(*setting)
            chosen.cells.write_text(json.dumps(results))
            print(key, flush=True)
    lines = report(compare(results))
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "penalty.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
