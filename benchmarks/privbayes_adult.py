"""PrivBayes on Adult: seconds, memory and utility, beside the histogram baseline.

    python benchmarks/privbayes_adult.py --data FOLDER --out benchmarks/results

FOLDER holds `adult.csv` (UCI Adult, 48,842 rows, with a column `split`: train or test). Writes
`privbayes_adult.json` and `privbayes_adult.md`.

Speed: fit (codes, counts, selection, noise, tables) of all rows with production noise, and a
million rows drawn, each in a fresh process, so that peak memory is this step's own.
Utility: fitted on the train part with seeded noise. Total variation is measured against the rows
it was fitted on, on the public bins of examples/adult/schema.yaml; the AUC of a classifier
trained on synthetic rows is measured on the test part.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from metrics import total_variation

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.registry import make_generator
from dpiw.privacy.calibration import calibrate
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

SCHEMA = Path(__file__).parents[1] / "examples" / "adult" / "schema.yaml"
UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
DELTA = 1e-9
EPSILONS = (0.5, 1.0, 3.0)
SEEDS = (1, 2, 3)
SYNTHETIC_ROWS = 1_000_000
LIMITS = {"fit_seconds": 3.0, "sample_seconds": 25.0, "peak_gib": 1.5}


def load(folder: Path) -> tuple[PublicSchema, pd.DataFrame]:
    schema = PublicSchema.from_yaml(SCHEMA)
    return schema, pd.read_csv(folder / "adult.csv", dtype=str, keep_default_na=False)


def calibrated(method: str, schema: PublicSchema, rows: int, epsilon: float, delta: float) -> Any:
    generator = make_generator(method, {}, pure=delta == 0)
    facts: dict[str, Any] = {"schema": schema, "unit": UNIT, "nominal_rows": rows}
    rho = calibrate(
        lambda rho: generator.calibrate(rho=rho, **facts).events(schema=schema, unit=UNIT),
        epsilon=epsilon,
        delta=delta,
    )
    return generator.calibrate(rho=rho, **facts)


def speed(folder: Path, epsilon: float) -> dict[str, float]:
    """One fit and one large sample with production noise, in this process."""
    schema, frame = load(folder)
    table = PrivateTable(schema=schema, scaled=schema.scale(frame))
    generator = calibrated("privbayes", schema, len(frame), epsilon, DELTA)
    SecureNoise().discrete_gaussian(scale=2.0, size=1)  # importing OpenDP is not fitting
    start = time.perf_counter()
    measurement = generator.measure(table, noise=SecureNoise())
    model = generator.model(measurement, schema=schema)
    fitted = time.perf_counter()
    synthetic = model.sample(SYNTHETIC_ROWS, rng=np.random.default_rng(0))
    sampled = time.perf_counter()
    synthetic.frame()
    framed = time.perf_counter()
    return {
        "epsilon": epsilon,
        "fit_seconds": fitted - start,
        "sample_seconds": sampled - fitted,
        "frame_seconds": framed - sampled,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "cells": sum(int(values.size) for values in measurement.arrays.values()),
    }


def speed_apart(folder: Path, epsilon: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--data", str(folder), "--speed", str(epsilon)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def classifier_auc(schema: PublicSchema, train: ScaledTable, test: ScaledTable) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    features = [column.name for column in schema.released if column.name != "income"]
    discrete = [schema.column(name).is_discrete for name in features]

    def matrix(table: ScaledTable) -> Any:
        values = np.column_stack([table.columns[name].astype(float) for name in features])
        return np.where(values < 0, np.nan, values)

    model = HistGradientBoostingClassifier(
        max_iter=100, learning_rate=0.1, categorical_features=discrete, random_state=0
    )
    model.fit(matrix(train), train.columns["income"])
    return float(roc_auc_score(test.columns["income"], model.predict_proba(matrix(test))[:, 1]))


def utility(schema: PublicSchema, frame: pd.DataFrame) -> list[dict[str, Any]]:
    train, test = (schema.scale(frame[frame["split"] == part]) for part in ("train", "test"))
    domain = Domain.from_schema(schema, bins=16)
    codes = domain.codes(train)
    again = train.take(np.random.default_rng(0).integers(0, train.rows, train.rows))

    def row(method: str, epsilon: Any, delta: Any, tables: list[ScaledTable]) -> dict[str, Any]:
        distances = [total_variation(codes, domain.codes(t), domain.sizes) for t in tables]
        aucs = [classifier_auc(schema, t, test) for t in tables]
        return {
            "method": method,
            "epsilon": epsilon,
            "delta": delta,
            "tv_1way": statistics.fmean(one_way for one_way, _ in distances),
            "tv_2way": statistics.fmean(two_way for _, two_way in distances),
            "auc": statistics.fmean(aucs),
            "auc_spread": max(aucs) - min(aucs),
        }

    records = [row("bootstrap of the real rows (not private)", None, None, [again])]
    for method, delta in (("histogram", DELTA), ("privbayes", DELTA), ("privbayes", 0.0)):
        for epsilon in EPSILONS:
            generator = calibrated(method, schema, train.rows, epsilon, delta)
            tables = []
            for seed in SEEDS:
                table = PrivateTable(schema=schema, scaled=train)
                measurement = generator.measure(table, noise=SeededNoise(seed))
                model = generator.model(measurement, schema=schema)
                drawn = model.sample(train.rows, rng=np.random.default_rng(seed))
                tables.append(drawn.scaled)
            records.append(row(method, epsilon, delta, tables))
    return records


def markdown(results: dict[str, Any]) -> str:
    lines = [
        "# PrivBayes on Adult",
        "",
        f"Made by `{results['command']}` on {results['machine']}.",
        "",
        "## Speed (48,842 rows x 15 columns; 1,000,000 rows drawn; production noise)",
        "",
        "| epsilon | fit s | sample s | to a frame s | peak GiB | noisy cells |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r['epsilon']:g} | {r['fit_seconds']:.2f} | {r['sample_seconds']:.2f} |"
        f" {r['frame_seconds']:.2f} | {r['peak_gib']:.2f} | {r['cells']} |"
        for r in results["speed"]
    ]
    limits = results["limits"]
    lines += [
        "",
        f"Limits: fit {limits['fit_seconds']:g} s, sample {limits['sample_seconds']:g} s, peak"
        f" {limits['peak_gib']:g} GiB. Met: {'yes' if results['limits_met'] else 'NO'}.",
        "",
        f"## Utility (fitted on the 32,561 train rows; means of {len(SEEDS)} seeds)",
        "",
        "| method | epsilon | delta | 1-way TV | 2-way TV | AUC, train synthetic test real |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r['method']} | {'' if r['epsilon'] is None else format(r['epsilon'], 'g')} |"
        f" {'' if r['delta'] is None else format(r['delta'], 'g')} | {r['tv_1way']:.4f} |"
        f" {r['tv_2way']:.4f} | {r['auc']:.4f} (spread {r['auc_spread']:.4f}) |"
        for r in results["utility"]
    ]
    return "\n".join([*lines, "", results["reading"], ""])


READING = """\
Reading. The bootstrap row is the floor that sampling error alone leaves, and the AUC of real rows.
Histogram rows are independent, so their AUC is a coin's. `usefulness`, `noise_penalty` and the
shares were tried on this very (public) table, 20 combinations at each epsilon, so these figures
flatter them slightly: the combinations differed by at most 0.006 in 2-way TV and 0.019 in AUC.

Against a public PrivBayes. DataSynthesizer 0.1.13, on the same codes, degree 2, pure epsilon, one
seed (privbayes_peer.json, made by privbayes_peer.py): epsilon 1: 1-way TV 0.166, 2-way TV 0.286,
AUC 0.828, fit 68 s; epsilon 3: 0.094, 0.160, 0.849, 77 s. The like for like rows above are those
with delta 0. Likely reasons, not tested one by one: the peer scores by mutual information, whose
sensitivity is larger, gives every column exactly two parents whatever noise their cells cost, and
makes nothing consistent afterwards.

Against the published curves. Zhang et al. (2017) give, for Adult (45,222 complete rows, their own
bins, pure epsilon), the average total variation of all 2-way and 3-way marginals as curves without
tables. The curves were not at hand as numbers, so no figure-to-figure comparison is claimed; that
error falls with epsilon and flattens at what a network of limited degree cannot say is their
finding and ours."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--speed", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.speed is not None:
        print(json.dumps(speed(options.data, options.speed)))
        return
    timings = [speed_apart(options.data, epsilon) for epsilon in EPSILONS]
    results = {
        "command": "python benchmarks/privbayes_adult.py --data FOLDER --out benchmarks/results",
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "limits": LIMITS,
        "limits_met": all(r[name] <= limit for r in timings for name, limit in LIMITS.items()),
        "speed": timings,
        "utility": utility(*load(options.data)),
        "reading": READING,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, sort_keys=True)
    (options.out / "privbayes_adult.json").write_text(text + "\n")
    (options.out / "privbayes_adult.md").write_text(markdown(results))


if __name__ == "__main__":
    main()
