"""One pass of unbiased gradients over local reports: excess risk against their number.

    python benchmarks/local_iwp.py --data FOLDER [--out benchmarks/results]

Exponential loss, penalty 5, replace-one, delta 1e-5. For each size, people are drawn anew, each
reports once, and `dpiw.local.learn.fit_margin` learns from the reports. Excess risk is
of the people's own risk, before any noise, over its least value. `naive` believes the reports: it
minimises the same risk of what was told. Synthetic people lie on a sphere; American Community
Survey: rows of acs_ma2019.csv drawn with replacement, so that the file is the population; epsilon 2
is the paper's. There the logistic loss is learnt as well, by its surrogate. Told by the laws of a
client, in floats (a client's own draws are a thousand times slower).
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from provenance import RESULTS, stamp
from scipy.optimize import minimize
from study import table, write

from dpiw.local import Feature, LocalParameters, calibrated, told_numbers
from dpiw.local.estimate import LocalSample
from dpiw.local.learn import EXPONENTIAL, CorrectedRisk, Loss, fit_margin, logistic_surrogate

PENALTY, DELTA = 5.0, Decimal("1e-5")
ORDERS = (0, 1, 2, 3)
"""Terms of the logistic loss's inverse beyond the first."""

RUNS = {1000: 100, 10_000: 40, 100_000: 20, 1_000_000: 8}
SIZES = (*RUNS,)

Array = NDArray[np.float64]
People = tuple[Array, NDArray[np.int64]]
"""Features in [-1, 1], shape (n, p), and labels 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Who is asked, and what it costs them.

    `radius`: of the features' ball; None: that of all records. `guess`: at the norm of the
    parameters, for the split; twice it is their ball, where the noise allows so much.
    """

    name: str
    features: tuple[Feature, ...]
    radius: float | None
    guess: float
    draw: Callable[[int, np.random.Generator], People]
    population: People


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One size of one setting: means over runs; `covered` over those that have an interval.

    `log_loss` and `accuracy`: of the fits, on the people before any noise.
    """

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
    loss: str = EXPONENTIAL.name
    log_loss: float = float("nan")
    accuracy: float = float("nan")


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


def clean_risk(people: People, loss: Loss) -> CorrectedRisk:
    x, y = people
    return CorrectedRisk(
        matrix=np.column_stack([np.ones(len(x)), x]), indicator=y.astype(float),
        variances=np.zeros(x.shape[1] + 1), loss=loss,
    )  # fmt: skip


def margins(people: People, b: Array) -> Array:
    """Of the people before any noise, y w.b with y +1 or -1, shape (n,)."""
    x, y = people
    return np.asarray((2 * y - 1) * (b[0] + x @ b[1:]))


def logistic_cut(t: Array, variance: float, order: int) -> Array:
    """Sum over k <= order of (-variance / 2)^k / k! E phi^(2k)(t + noise), shape (n,).

    The mean of the paper's estimate of the logistic loss phi, by quadrature over the noise.
    """
    nodes, shares = np.polynomial.hermite_e.hermegauss(40)
    points = t[:, None] + np.sqrt(variance) * nodes
    p, inner = 1 / (1 + np.exp(-points)), Polynomial([0, 1, -1])  # dp/dt = p - p^2
    total, slope = np.logaddexp(0, -points), Polynomial([-1, 1])
    for k in range(1, order + 1):
        curve = slope.deriv() * inner
        total = total + (-variance / 2) ** k / math.factorial(k) * curve(p)
        slope = curve.deriv() * inner
    return np.asarray(total @ shares / shares.sum())


def truncation(people: People, stddev: float) -> list[dict[str, Any]]:
    """The minimiser of the logistic loss cut at each of `ORDERS`, and of the loss itself.

    Its excess risk of the loss itself, penalty included; log loss and accuracy.
    """

    def least(order: int, noise: float) -> Array:
        def risk(b: Array) -> float:
            cut = logistic_cut(margins(people, b), noise**2 * float(b[1:] @ b[1:]), order)
            return float(cut.mean() + PENALTY / 2 * b @ b)

        return np.asarray(minimize(risk, np.zeros(people[0].shape[1] + 1), tol=1e-9).x)

    ends = {str(order): least(order, stddev) for order in ORDERS} | {"none": least(0, 0.0)}
    found = [{"order": name, **quality(people, b)} for name, b in ends.items()]
    risks = [
        own["log_loss"] + PENALTY / 2 * b @ b for own, b in zip(found, ends.values(), strict=True)
    ]
    return [own | {"excess": float(r - risks[-1])} for own, r in zip(found, risks, strict=True)]


def quality(people: People, b: Array) -> dict[str, Any]:
    """Log loss and accuracy of a model."""
    t = margins(people, b)
    return {"log_loss": float(np.logaddexp(0, -t).mean()), "accuracy": float((t > 0).mean())}


def minimum(risk: CorrectedRisk) -> Array:
    """Of a risk without noise, or of one that believes what was told: convex, so anywhere."""
    return np.asarray(minimize(
        lambda b: risk.values(b).mean() + PENALTY / 2 * b @ b, np.zeros(risk.matrix.shape[1]),
        jac=lambda b: risk.gradients(b).mean(axis=0) + PENALTY * b, tol=1e-10,
    ).x)  # fmt: skip


def parameters_of(setting: Setting, epsilon: str) -> LocalParameters:
    return calibrated(
        collection="study", features=setting.features, label="y", levels=("no", "yes"),
        epsilon=Decimal(epsilon), delta=DELTA, radius=setting.radius, parameter_norm=setting.guess,
    )  # fmt: skip


def study(setting: Setting, epsilon: str, *, logistic: bool = False) -> list[Cell]:
    """Every size of a setting; `logistic`: by the surrogate of that loss."""
    parameters = parameters_of(setting, epsilon)
    norm = min(parameters.largest_norm, 2 * setting.guess)
    reach = norm * math.sqrt(1 + len(setting.features))
    loss = logistic_surrogate(reach) if logistic else EXPONENTIAL
    risk = clean_risk(setting.population, loss)
    best = minimum(risk)
    curvature = risk.hessian(best) + PENALTY * np.eye(best.size)
    print(f"{setting.name}, epsilon {epsilon}: stddev {parameters.stddev:.3g}, keep"
          f" {parameters.response.keep:.3f}, ball {norm:.3g}, minimiser"
          f" {np.linalg.norm(best):.3g}", flush=True)  # fmt: skip

    def excess(b: Array) -> float:
        """Exact where the risk is a parabola; its third order is below 1% here."""
        return float((b - best) @ curvature @ (b - best)) / 2

    cells = []
    for size, runs in RUNS.items():
        started, losses, naive, covered, ends = time.process_time(), [], [], [], []
        for run in range(runs):
            rng = np.random.default_rng([size, run])
            sample = told(parameters, setting.draw(size, rng), rng)
            fit = fit_margin(sample, "yes", loss=loss, norm=norm, penalty=PENALTY, rng=rng)
            losses.append(excess(fit.values))
            ends.append(quality(setting.population, fit.values))
            interval = fit.interval()
            if fit.verdict != "do not use":
                covered.append(np.mean((interval.lower < best) & (best < interval.upper)))
            if run < (3 if size < 100_000 else 1):
                naive.append(excess(minimum(clean_risk((sample.features, sample.labels), loss))))
        cells.append(Cell(
            name=setting.name, epsilon=epsilon, size=size, runs=runs,
            excess=float(np.mean(losses)), error=float(np.std(losses) / np.sqrt(runs)),
            naive=float(np.mean(naive)), given=len(covered) / runs,
            covered=float(np.mean(covered)) if covered else float("nan"),
            seconds=(time.process_time() - started) / runs, loss=loss.name.split()[0],
            **{name: float(np.mean([end[name] for end in ends])) for name in ends[0]},
        ))  # fmt: skip
        print(cells[-1], flush=True)
    return cells


def slope(cells: list[Cell], least: int) -> float:
    """Of log excess risk against log size, weighted equally, from a size on."""
    tail = [cell for cell in cells if cell.size >= least]
    return float(np.polyfit(np.log([c.size for c in tail]), np.log([c.excess for c in tail]), 1)[0])


def crossing(cells: list[Cell]) -> float:
    """Reports at which the excess risk falls below that of believing them; infinite: never here."""
    for few, many in itertools.pairwise(cells):
        if many.excess < many.naive:
            above, below = np.log([few.excess / few.naive, many.excess / many.naive])
            share = max(0.0, above / (above - below))
            return float(few.size * (many.size / few.size) ** share)
    return math.inf


def _paper(record: dict[str, Any], cells: list[Cell]) -> list[str]:
    """The paper's setting: both losses, and what cutting the logistic one costs."""
    own = [cell for cell in cells if cell.log_loss == cell.log_loss]
    rows = [["loss", "reports", "excess risk", "log loss", "accuracy"]]
    rows += [[c.loss, f"{c.size:,}", f"{c.excess:.2e}", f"{c.log_loss:.4f}", f"{c.accuracy:.3f}"]
             for c in own if (c.name, c.epsilon) == ("American Community Survey", "2")]  # fmt: skip
    cut = [["terms", "excess risk", "log loss", "accuracy"]]
    cut += [[f"up to {r['order']}" if r["order"] != "none" else "the loss itself",
             f"{r['excess']:.2e}", f"{r['log_loss']:.4f}", f"{r['accuracy']:.3f}"]
            for r in record["truncation"]]  # fmt: skip
    return [
        "", "## The paper's setting: the survey at epsilon 2", "",
        "Log loss and accuracy of the fits on the people before any noise. `logistic`: by a"
        " polynomial that is learnt without bias; its excess risk is of the polynomial.", "",
        *table(rows), "",
        "The paper cuts the series of the logistic loss's inverse. Its minimiser with any number of"
        " reports, against that of the loss itself: this bias no number of reports takes away.",
        "", *table(cut),
    ]  # fmt: skip


def page(record: dict[str, Any]) -> list[str]:
    """The page of a record."""
    cells = [Cell(**cell) for cell in record["cells"]]
    figures = [["people", "epsilon", "loss", "reports", "runs", "excess risk", "+-", "naive",
                "given", "covered", "seconds"]]  # fmt: skip
    figures += [
        [c.name, c.epsilon, c.loss, f"{c.size:,}", str(c.runs), f"{c.excess:.2e}", f"{c.error:.0e}",
         f"{c.naive:.2e}", f"{c.given:.2f}", f"{c.covered:.2f}", f"{c.seconds:.2f}"]
        for c in cells
    ]  # fmt: skip
    slopes = [["people", "epsilon", "loss", "from 1,000", "from 10,000", "better from"]]
    for key in dict.fromkeys((cell.name, cell.epsilon, cell.loss) for cell in cells):
        own = [cell for cell in cells if (cell.name, cell.epsilon, cell.loss) == key]
        if len(own) == len(SIZES):
            values = [f"{slope(own, least):.2f}" for least in SIZES[:2]]
            slopes.append([*key, *values, f"{crossing(own):,.0f} reports"])
    return [
        "# Learning from local reports (IWP-SGD)", "",
        f"Made by `{record['command']}`; its docstring says how. `naive` believes the reports."
        " `given`: share of the runs that have an interval, `use` or `use with care`; `covered`:"
        " how often these, of 95%, held the minimiser's coordinates. CPU seconds are of"
        f" one run.{record.get('note', '')}", "", *table(figures), "",
        "Slope of the excess risk on logarithmic scales; -1 is that of 1/n. Better from: reports"
        " at which it falls below that of believing them, by a straight line; 1,000: at any size.",
        "", *table(slopes), *(_paper(record, cells) if "truncation" in record else []),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of acs_ma2019.csv")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    stamped = stamp("python benchmarks/local_iwp.py --data FOLDER")
    two, ten, acs = synthetic(2, 0.1), synthetic(10, 0.1), survey(arguments.data)
    studies = [study(two, "2"), study(two, "8"), study(ten, "5"), study(acs, "2"),
               study(acs, "4"), study(acs, "10"), study(acs, "2", logistic=True)]  # fmt: skip
    cells = [asdict(cell) for part in studies for cell in part]
    cut = truncation(acs.population, parameters_of(acs, "2").stddev)
    write(arguments.out, "local", {**stamped, "cells": cells, "truncation": cut}, page)


if __name__ == "__main__":
    main()
