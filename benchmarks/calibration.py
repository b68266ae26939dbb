"""Does a private beta calibration pay for its budget? At equal total epsilon, on known truth.

    python benchmarks/calibration.py [--releases 20] [--cells FILE] [--out benchmarks/results]

The mechanisms are those of a release, in memory. For each population, generator and feature map the
same confidential tables are released with the whole budget for generator and weights, and with a
share of it for a beta calibration. Free rivals: a calibration on as many public rows, and the
analyst's own `dpiw.analysis.unshrunk`. Error: root mean square over releases of each estimand's
miss; told is its ratio to the error without a calibration, geometric mean over estimands, with a
standard error by resampling releases; apart for single columns and for regressions, which most
weights are for. Noise is seeded per release. Cells are kept in FILE and not played again. About
four minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from coverage_populations import POPULATIONS, Population, truth

from dpiw import analysis
from dpiw.analysis.rehearsal import weighted_rows
from dpiw.plan import Plan, compile_plan
from dpiw.randomness import SeededNoise
from dpiw.spec import parse_spec
from dpiw.tables import PrivateTable, SyntheticTable
from dpiw.weighting import Normalisation, starting_ratio, weigh
from dpiw.weights.beta_calibration import PublicRows, calibrate_on_public_rows
from dpiw.weights.post_processing import PostProcessing, parse_post_processing

ROOT = Path(__file__).resolve().parents[1]
SEED = 20270131
PRIVATE = {"step": "beta_calibrate", "source": "private"}
CANDIDATES: dict[str, tuple[float, dict[str, Any]]] = {
    "none": (0.0, {}),
    "share 0.1": (0.1, PRIVATE),
    "share 0.4": (0.4, PRIVATE),
    "public rows": (0.0, {}),
}
"""By name: the calibration's share, beside 0.5 and 0.5, and its step."""

FOURIER = {"features": "fourier", "omega_seed": 1, "frequencies": 60}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "histogram, linear": ("histogram", {"features": "linear"}),
    "histogram, fourier": ("histogram", FOURIER),
    "privbayes, fourier": ("privbayes", FOURIER),
}
"""Generator and weights. A histogram keeps no dependence, which linear features cannot see and
Fourier features can: there the weights have most to do."""

CELLS = list(product(METHODS, ("tilt", "correlated", "mixture", "interaction"), (1000, 10_000)))


def plan_for(population: Population, cell: Any, share: float, step: dict[str, Any]) -> Plan:
    name, _, rows = cell
    generator, settings = METHODS[name]
    spec = parse_spec(
        {
            "format": 1, "name": "calibration", "population": "calibration", "schema": "unused",
            "source": {"path": "unused", "format": "csv"}, "epsilon": "1", "delta": "1e-6",
            "nominal_rows": rows, "synthetic_rows": min(rows, 4000),
            "generator": {"method": generator},
            "weights": {"method": "beta_debiased", "when_infeasible": "keep",
                        "settings": settings, "post_processing": [step] if step else []},
            "shares": {"calibration": share} if step else {},
            "state": "unused", "signing_key": "unused", "publish_to": "unused",
        }
    )  # fmt: skip
    return compile_plan(spec, population.schema)


KINDS = ("single columns", "regressions")
FREE = ("unshrunk", "no weights")
"""Other uses of the release without a calibration."""

NAMES = [name for name in (*CANDIDATES, *FREE) if name != "none"]


def released(plan: Plan, population: Population, seed: int, *, name: str) -> dict[str, Any]:
    """One release by its uses; the same confidential table for every candidate."""
    schema, rng = population.schema, np.random.default_rng([SEED, seed])
    rows = plan.spec.nominal_rows
    table = PrivateTable(schema=schema, scaled=schema.scale(population.draw(rows, rng)))
    known = SyntheticTable(schema=schema, scaled=schema.scale(population.draw(rows, rng)))
    noise = SeededNoise(int(rng.integers(2**62)))
    model = plan.generator.model(plan.generator.measure(table, noise=noise), schema=schema)
    synthetic, fitting = (model.sample(plan.spec.synthetic_rows, rng=rng) for _ in range(2))
    weights: Any = plan.weights
    measured = weights.measure(table, fitting, noise=noise)
    if name == "none":
        sample = weighted_rows(weights, measured, synthetic, nominal_rows=rows)
        unweighted = (sample.table, None)
        return {"none": sample, "unshrunk": analysis.unshrunk(sample), "no weights": unweighted}
    ratio: Any = starting_ratio(
        weights.ratio(measured, schema=schema), fitting,
        debias=True, normalisation=Normalisation.SELF,
    )  # fmt: skip
    steps = parse_post_processing(plan.spec.weights.post_processing)
    if plan.calibration is not None:
        drawn = plan.calibration.measure(table, fitting, ratio=ratio, noise=noise)
        ratio = plan.calibration.apply(ratio, drawn)
    else:
        own = PublicRows(table=known, declared="the same law")
        steps = PostProcessing(steps=(calibrate_on_public_rows(ratio, own, fitting),))
    logs = weigh(ratio, synthetic, debias=True, post_processing=steps).log_weights
    return {name: (synthetic.frame(), np.exp(logs))}


@cache
def known_truth(name: str) -> dict[str, float]:
    return truth(next(p for p in POPULATIONS if p.name == name))


def run_cell(cell: Any, releases: int) -> dict[str, dict[str, tuple[float, float]]]:
    """By kind and candidate, and for no weights: error relative to no calibration, its error."""
    population = next(p for p in POPULATIONS if p.name == cell[1])
    told = known_truth(cell[1])
    found: dict[str, dict[str, list[float]]] = {}
    for name, (share, step) in CANDIDATES.items():
        plan = plan_for(population, cell, share, step)
        for seed in range(releases):
            for used, source in released(plan, population, seed, name=name).items():
                for key, value in _values(population, source).items():
                    place = found.setdefault(used, {}).setdefault(key, [])
                    place.append((value - told[key]) ** 2)
    return {kind: {name: ratio_to_none(found, name, kind) for name in NAMES} for kind in KINDS}


def _values(population: Population, source: Any) -> dict[str, float]:
    found = {}
    for name, estimand in population.estimands.items():
        told = estimand(source)
        for label, value in zip(told.names, told.values, strict=True):
            if label != "intercept":
                key = name if len(told.names) == 1 else f"{name}.{label}"
                found[key] = float(value)
    return found


def ratio_to_none(errors: dict[str, Any], name: str, kind: str) -> tuple[float, float]:
    """Geometric mean over estimands of the error ratio, and the standard error of its log."""
    regression = ("linear", "logistic")
    keys = [k for k in sorted(errors["none"]) if k.startswith(regression) is (kind == KINDS[1])]
    own, base = (np.array([errors[which][key] for key in keys]) for which in (name, "none"))

    def log_ratio(chosen: Any) -> float:
        means = own[:, chosen].mean(axis=1), base[:, chosen].mean(axis=1)
        return float(np.log(means[0] / means[1]).mean() / 2)

    rng, size = np.random.default_rng(SEED), own.shape[1]
    draws = [log_ratio(rng.integers(0, size, size)) for _ in range(200)]
    return float(np.exp(log_ratio(np.arange(size)))), float(np.std(draws))


def report(found: dict[str, Any], releases: int) -> list[str]:
    lines = [
        "# Private beta calibration at equal total epsilon",
        "",
        f"`python benchmarks/calibration.py --releases {releases}`: epsilon 1, delta 1e-6,"
        f" add/remove; {releases} releases a cell. Error relative to the same total without a"
        " calibration (below 1: better), geometric mean over estimands, +- standard error."
        " `public rows` costs nothing: what one could bring. `unshrunk` and `no weights`: free, the"
        " release without a calibration.",
    ]
    for kind in KINDS:
        lines += [
            "",
            f"## {kind.capitalize()}",
            "",
            f"| generator, features | population | n0 | {' | '.join(NAMES)} |",
            "|---|---|---|" + "---|" * len(NAMES),
        ]
        for cell in CELLS:
            one = found[key_of(cell)][kind]
            shown = [f"{one[name][0]:.2f} +- {one[name][0] * one[name][1]:.2f}" for name in NAMES]
            lines.append(f"| {' | '.join(map(str, cell))} | {' | '.join(shown)} |")
        for group in METHODS:
            cells = [found[key_of(cell)][kind] for cell in CELLS if cell[0] == group]
            means = [np.exp(np.mean([np.log(one[name][0]) for one in cells])) for name in NAMES]
            better = [sum(one[name][0] < 1 for one in cells) for name in NAMES]
            shown = [f"{m:.2f} ({n} better)" for m, n in zip(means, better, strict=True)]
            lines.append(f"| {group} | {len(cells)} cells | | {' | '.join(shown)} |")
    return lines


def key_of(cell: Any) -> str:
    return "; ".join(map(str, cell))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--cells", type=Path, default=ROOT / ".dpiw" / "calibration-cells.json")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    chosen.cells.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(chosen.cells.read_text()) if chosen.cells.exists() else {}
    for cell in CELLS:
        if key_of(cell) not in found:
            found[key_of(cell)] = run_cell(cell, chosen.releases)
            chosen.cells.write_text(json.dumps(found))
            print(key_of(cell), flush=True)
    lines = report(found, chosen.releases)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "calibration.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
