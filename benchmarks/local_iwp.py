"""One pass of unbiased gradients over local reports: excess risk against their number.

    python benchmarks/local_iwp.py --data FOLDER [--out benchmarks/results] [--quick]

Exponential loss, penalty 5, replace-one, delta 1e-5. For each size, people are drawn anew, each
reports once, and `dpiw.local.learn.fit_margin` learns from the reports. Excess risk is
of the people's own risk, before any noise, over its least value. `naive` believes the reports: it
minimises the same risk of what was told. Synthetic people lie on a sphere; American Community
Survey: rows of acs_ma2019.csv drawn with replacement, so that the file is the population.
Told by the laws of a client, in floats (a client's own draws are a thousand times slower). About
15 minutes on one core.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from provenance import RESULTS, stamp
from scipy.optimize import minimize
from study import table, write

from dpiw.local import Feature, LocalParameters, calibrated, told_numbers
from dpiw.local.estimate import LocalSample
from dpiw.local.learn import EXPONENTIAL, CorrectedRisk, fit_margin

PENALTY, DELTA = 5.0, Decimal("1e-5")
SIZES = (1000, 10_000, 100_000, 1_000_000)
RUNS = {1000: 100, 10_000: 40, 100_000: 20, 1_000_000: 8}

Array = NDArray[np.float64]
People = tuple[Array, NDArray[np.int64]]
"""Features in [-1, 1], shape (n, p), and labels 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Whom is asked, and what it costs them.

    Attributes:
        name: of the people.
        features: that they tell.
        radius: of the ball; None: that of all records.
        guess: at the norm of the parameters, for the split; twice it is the ball, where the noise
            allows so much.
        draw: people of some number.
        population: so many that their risk stands for everybody's.
    """

    name: str
    features: tuple[Feature, ...]
    radius: float | None
    guess: float
    draw: Callable[[int, np.random.Generator], People]
    population: People


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One size of one setting: means over runs; `covered` over those that have an interval."""

    name: str
    epsilon: str
    size: int
    runs: int
    excess: float
    error: float
    naive: float
    given: float
    covered: float
    seconds: float


def sphere(dimension: int) -> Callable[[int, np.random.Generator], People]:
    def draw(count: int, rng: np.random.Generator) -> People:
        x = rng.normal(size=(count, dimension))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        likely = 1 / (1 + np.exp(-4 * np.sqrt(dimension) * x[:, 0]))
        return x, (rng.random(count) < likely).astype(np.int64)

    return draw


def synthetic(dimension: int, guess: float) -> Setting:
    draw = sphere(dimension)
    features = tuple(Feature(name=f"x{j}", low=-1, high=1) for j in range(dimension))
    return Setting(
        name=f"synthetic, {dimension} features", features=features, radius=1.0, guess=guess,
        draw=draw, population=draw(1_000_000, np.random.default_rng(2602)),
    )  # fmt: skip


ACS = {"AGEP": (16, 99), "EDU": (1, 12), "SEX": (1, 2), "OWN_RENT": (0, 2)}


def survey(folder: Path) -> Setting:
    table = pd.read_csv(folder / "acs_ma2019.csv", dtype=str, keep_default_na=False)
    table = table[(table["PINCP"] != "N") & (table["EDU"] != "N")]
    features = tuple(Feature(name=name, low=low, high=high) for name, (low, high) in ACS.items())
    numbers = table[list(ACS)].astype(float).to_numpy()
    labels = (table["PINCP"].astype(float) > 50_000).astype(np.int64).to_numpy()
    x = told_numbers(numbers, bare(features))

    def draw(count: int, rng: np.random.Generator) -> People:
        chosen = rng.integers(len(x), size=count)
        return x[chosen], labels[chosen]

    return Setting(
        name="American Community Survey", features=features, radius=None, guess=0.1, draw=draw,
        population=(x, labels),
    )  # fmt: skip


def bare(features: tuple[Feature, ...]) -> LocalParameters:
    """Parameters for the bounds alone."""
    return calibrated(collection="bounds", features=features, epsilon=Decimal(1), delta=DELTA)


def told(parameters: LocalParameters, people: People, rng: np.random.Generator) -> LocalSample:
    """Reports by the laws of a client, in floats."""
    x, y = people
    response = parameters.response
    assert response is not None
    moved = rng.random(y.size) >= response.keep
    return LocalSample(
        parameters=parameters, features=x + parameters.stddev * rng.normal(size=x.shape),
        labels=np.where(moved, 1 - y, y),
    )  # fmt: skip


def clean_risk(people: People) -> CorrectedRisk:
    x, y = people
    return CorrectedRisk(
        matrix=np.column_stack([np.ones(len(x)), x]), indicator=y.astype(float),
        variances=np.zeros(x.shape[1] + 1), loss=EXPONENTIAL,
    )  # fmt: skip


def minimum(risk: CorrectedRisk) -> Array:
    """Of a risk without noise, or of one that believes what was told: convex, so anywhere."""
    return np.asarray(minimize(
        lambda b: risk.values(b).mean() + PENALTY / 2 * b @ b, np.zeros(risk.matrix.shape[1]),
        jac=lambda b: risk.gradients(b).mean(axis=0) + PENALTY * b, tol=1e-10,
    ).x)  # fmt: skip


def study(setting: Setting, epsilon: str, *, quick: bool) -> list[Cell]:
    parameters = calibrated(
        collection="study", features=setting.features, label="y", levels=("no", "yes"),
        epsilon=Decimal(epsilon), delta=DELTA, radius=setting.radius, parameter_norm=setting.guess,
    )  # fmt: skip
    risk = clean_risk(setting.population)
    best = minimum(risk)
    curvature = risk.hessian(best) + PENALTY * np.eye(best.size)
    norm = min(parameters.largest_norm, 2 * setting.guess)
    print(f"{setting.name}, epsilon {epsilon}: stddev {parameters.stddev:.3g}, keep"
          f" {parameters.response.keep:.3f}, ball {norm:.3g}, minimiser"
          f" {np.linalg.norm(best):.3g}", flush=True)  # fmt: skip

    def excess(b: Array) -> float:
        """Exact where the risk is a parabola; its third order is below 1% here."""
        return float((b - best) @ curvature @ (b - best)) / 2

    cells = []
    for size in SIZES[: 2 if quick else None]:
        runs = 4 if quick else RUNS[size]
        started, losses, naive, covered = time.monotonic(), [], [], []
        for run in range(runs):
            rng = np.random.default_rng([size, run])
            sample = told(parameters, setting.draw(size, rng), rng)
            fit = fit_margin(sample, "yes", norm=norm, penalty=PENALTY, rng=rng)
            losses.append(excess(fit.values))
            interval = fit.interval()
            if fit.verdict != "do not use":
                covered.append(np.mean((interval.lower < best) & (best < interval.upper)))
            if run < (3 if size < 100_000 else 1):
                naive.append(excess(minimum(clean_risk((sample.features, sample.labels)))))
        cells.append(Cell(
            name=setting.name, epsilon=epsilon, size=size, runs=runs,
            excess=float(np.mean(losses)), error=float(np.std(losses) / np.sqrt(runs)),
            naive=float(np.mean(naive)), given=len(covered) / runs,
            covered=float(np.mean(covered)) if covered else float("nan"),
            seconds=(time.monotonic() - started) / runs,
        ))  # fmt: skip
        print(cells[-1], flush=True)
    return cells


def slope(cells: list[Cell], least: int) -> float:
    """Of log excess risk against log size, weighted equally, from a size on."""
    tail = [cell for cell in cells if cell.size >= least]
    return float(np.polyfit(np.log([c.size for c in tail]), np.log([c.excess for c in tail]), 1)[0])


def page(record: dict[str, Any]) -> list[str]:
    """The page of a record."""
    cells = [Cell(**cell) for cell in record["cells"]]
    figures = [["people", "epsilon", "reports", "runs", "excess risk", "+-", "naive", "given",
                "covered", "seconds"]]  # fmt: skip
    figures += [
        [c.name, c.epsilon, f"{c.size:,}", str(c.runs), f"{c.excess:.2e}", f"{c.error:.0e}",
         f"{c.naive:.2e}", f"{c.given:.2f}", f"{c.covered:.2f}", f"{c.seconds:.2f}"]
        for c in cells
    ]  # fmt: skip
    slopes = [["people", "epsilon", "from 1,000", "from 10,000"]]
    for name, epsilon in dict.fromkeys((cell.name, cell.epsilon) for cell in cells):
        own = [cell for cell in cells if (cell.name, cell.epsilon) == (name, epsilon)]
        if len(own) == len(SIZES):
            slopes.append([name, epsilon, *(f"{slope(own, least):.2f}" for least in SIZES[:2])])
    return [
        "# Learning from local reports (IWP-SGD)", "",
        f"Made by `{record['command']}`; its docstring says how. `naive` believes the reports."
        " `given`: share of the runs that have an interval, `use` or `use with care`; `covered`:"
        " how often these, of 95%, held the minimiser's coordinates. Seconds are of one"
        f" run.{record.get('note', '')}", "", *table(figures), "",
        "Slope of the excess risk on logarithmic scales; -1 is that of 1/n:", "", *table(slopes),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of acs_ma2019.csv")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="two sizes, four runs")
    arguments = parser.parse_args()
    stamped = stamp("python benchmarks/local_iwp.py --data FOLDER")
    run = functools.partial(study, quick=arguments.quick)
    two, ten, acs = synthetic(2, 0.1), synthetic(10, 0.1), survey(arguments.data)
    studies = [run(two, "2"), run(two, "8"), run(ten, "5"), run(acs, "4"), run(acs, "10")]
    cells = [asdict(cell) for part in studies for cell in part]
    write(arguments.out, "local", {**stamped, "cells": cells}, page)


if __name__ == "__main__":
    main()
