"""Bayesian synthesis: the order of utility that its sources report, the product beside the others.

    python benchmarks/bayes.py [--runs 20] [--out benchmarks/results]

Three tables, all on simulated data. One column, with a Beta law as synthesizer: the pseudo
posterior whose guarantee is asymptotic, censoring in several forms, perturbed histograms,
Dirichlet-multinomial rows. A small table with a class: generators of the product at one total. A
Markov chain on a grid of 99 points, whose law after every number of steps is known: what it really
costs. About five minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import gammaln, logsumexp

from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.pseudo_posterior import (
    Window,
    contributions,
    pilot_weights,
    posterior_scores,
    public_weights,
)
from dpiw.methods.generators.registry import make_generator
from dpiw.privacy.calibration import calibrate
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit

Array = np.ndarray[Any, np.dtype[np.float64]]
ROOT = Path(__file__).resolve().parents[1]
ADD = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
BINS, ROWS = 200, 2000
LEVELS = tuple("abcdefgh")


# One column: a Beta law on a lattice
class Column200:
    """Beta laws on 200 bins of [0, 1]: a public grid of 49 means by 25 sizes."""

    def __init__(self) -> None:
        edges = np.linspace(0, 1, BINS + 1)
        means = np.linspace(0.02, 0.98, 49)
        sizes = np.geomspace(2, 100, 25)
        a, b = (np.outer(m, sizes).ravel() for m in (means, 1 - means))
        masses = np.diff(stats.beta.cdf(edges, a[:, None], b[:, None]), axis=1)
        self.log_pmf = np.log(np.maximum(masses, 1e-12))
        self.flat = np.full(len(a), -np.log(len(a)))

    def density(self) -> Array:
        """Log densities on [0, 1]: the papers' scale, on which windows depend on units."""
        return self.log_pmf + np.log(BINS)


def drawn(log_law: Array, rng: np.random.Generator) -> int:
    return int(np.argmax(log_law + rng.gumbel(size=log_law.size)))


def strict(
    column: Column200, counts: Array, weights: Array, window: Window, noise: SeededNoise
) -> int:
    """One draw as the product makes it."""
    entries = contributions(column.log_pmf, weights, units=window.units, per_nat=window.per_nat)
    scores = posterior_scores(counts, entries, column.flat, per_nat=window.per_nat)
    return window.draw(scores, noise=noise)


def posteriors(column: Column200, counts: Array, epsilon: float, seed: int) -> dict[str, Array]:
    """Probabilities of bins, by method; each is one draw at this epsilon (add/remove)."""
    rng, noise = np.random.default_rng(seed), SeededNoise(seed)
    density, half = column.density(), epsilon / 2
    exact = density @ counts
    plain = [drawn(exact, rng) for _ in range(50)]
    # Weak: bounds over the posterior's own draws; holds asymptotically at best.
    reach = np.maximum(np.abs(density[plain]).max(axis=0), 1e-9)
    swing = np.ptp(density, axis=0)
    embedded = np.minimum(1.0, 0.3 * np.median(swing) / swing)
    window = Window(epsilon=epsilon, unit=ADD)
    stage = Window(epsilon=half, unit=ADD)
    pilot = strict(column, counts, public_weights(column.log_pmf, width=half), stage, noise)
    second = pilot_weights(column.log_pmf, pilot, width=half)
    points = {
        "no privacy": plain[0],
        "pseudo posterior (weak)": drawn((density * np.minimum(1.0, half / reach)) @ counts, rng),
        "censored, symmetric": drawn(np.clip(density, -half, half) @ counts, rng),
        "weights, then censored": drawn(np.clip(embedded * density, -half, half) @ counts, rng),
        "window a value": strict(column, counts, np.ones(BINS), window, noise),
        "window, public weights": strict(
            column, counts, public_weights(column.log_pmf, width=epsilon), window, noise
        ),
        "window, two stages": strict(column, counts, second, stage, noise),
    }
    laws = {name: np.exp(column.log_pmf[point]) for name, point in points.items()}
    for bins in (50, 200):
        noisy = counts.reshape(bins, -1).sum(axis=1) + rng.laplace(scale=1 / epsilon, size=bins)
        laws[f"perturbed histogram, {bins}"] = np.repeat(np.maximum(noisy, 0), BINS // bins)
    laws["Dirichlet-multinomial, 50 rows"] = predictive_rows(
        counts.reshape(10, -1).sum(axis=1), epsilon, rng
    ).repeat(BINS // 10)
    return {name: law / law.sum() for name, law in laws.items()}


def predictive_rows(counts: Array, epsilon: float, rng: np.random.Generator) -> Array:
    """Counts of 50 rows of the posterior predictive, at the least admissible prior."""
    alpha = dirichlet_prior(50, epsilon)
    return rng.multinomial(50, rng.dirichlet(counts + alpha)).astype(float)


def dirichlet_prior(rows: int, epsilon: float) -> float:
    """Least pseudo-count a bin for which `rows` predictive rows are epsilon-DP (replace-one)."""
    return rows / float(np.expm1(epsilon))


def log_dirichlet_multinomial(drawn_counts: Array, counts: Array, alpha: float) -> float:
    """Log probability of predictive counts, shape (bins,), given the data's."""
    a, m = counts + alpha, drawn_counts.sum()
    ways = gammaln(m + 1) - gammaln(drawn_counts + 1).sum()
    whole = gammaln(a.sum()) - gammaln(a.sum() + m)
    return float(ways + whole + (gammaln(a + drawn_counts) - gammaln(a)).sum())


def one_column(runs: int) -> pd.DataFrame:
    """Mean Kolmogorov-Smirnov distance to the data, methods by epsilon."""
    column, records = Column200(), []
    for seed in range(runs):
        data = np.random.default_rng([seed, 1]).beta(2.0, 8.0, ROWS)
        counts = np.bincount((data * BINS).astype(int), minlength=BINS)
        cumulative = np.cumsum(counts) / ROWS
        for epsilon in EPSILONS:
            for name, law in posteriors(column, counts, epsilon, seed).items():
                distance = np.abs(np.cumsum(law) - cumulative).max()
                records.append({"method": name, "epsilon": epsilon, "distance": distance})
    frame = pd.DataFrame(records)
    table = frame.pivot_table(index="method", columns="epsilon", values="distance")
    return table.reindex(frame.method.unique())


# A small table: the product's generators
SCHEMA = PublicSchema(
    name="small",
    columns=(
        Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=10.0),
        Column(name="job", kind=ColumnKind.CATEGORICAL, levels=LEVELS),
        Column(name="y", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET),
    ),
)
GENERATORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "histogram": ("histogram", {}),
    "privbayes": ("privbayes", {}),
    "bayes": ("bayes", {}),
    "bayes, splits": ("bayes", {"numeric": "splits"}),
    "bayes, two stages": ("bayes", {"weights": "two_stage"}),
}

SIZES = ((500, 0.3), (500, 1.0), (5000, 1.0), (50_000, 1.0))


def people(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 2])
    y = rng.random(rows) < 0.2
    x = np.where(y, rng.normal(7, 1, rows), rng.normal(4, 1.5, rows)).clip(0, 10)
    shares = np.array([40, 20, 10, 10, 10, 6, 3, 1]) / 100
    return pd.DataFrame({"x": x, "job": rng.choice(LEVELS, rows, p=shares), "y": y})


def small_table(runs: int) -> pd.DataFrame:
    """Distances between data and 20,000 rows, mean over runs, at (epsilon, 1e-6)."""
    records = []
    for rows, epsilon in SIZES:
        for name, (method, settings) in GENERATORS.items():
            plain = make_generator(method, settings, pure=False)

            def ready(rho: float, plain: Any = plain, rows: int = rows) -> Any:
                return plain.calibrate(rho=rho, schema=SCHEMA, unit=ADD, nominal_rows=rows)

            rho = calibrate(
                lambda rho, ready=ready: ready(rho).events(schema=SCHEMA, unit=ADD),
                epsilon=epsilon,
                delta=1e-6,
            )
            generator = ready(rho)
            for seed in range(runs):
                data = people(rows, seed)
                table = PrivateTable(schema=SCHEMA, scaled=SCHEMA.scale(data))
                model = generator.model(
                    generator.measure(table, noise=SeededNoise(seed)), schema=SCHEMA
                )
                draws = model.sample(20_000, rng=np.random.default_rng(seed)).frame()
                records.append(
                    {"rows": rows, "epsilon": epsilon, "generator": name} | distances(data, draws)
                )
    frame = pd.DataFrame(records)
    means = frame.groupby(["rows", "epsilon", "generator"], sort=False).mean()
    return means.reset_index()


def distances(data: pd.DataFrame, made: pd.DataFrame) -> dict[str, float]:
    shares = [f.job.value_counts(normalize=True).reindex(LEVELS).fillna(0) for f in (data, made)]
    gaps = [f.x[f.y].mean() - f.x[~f.y].mean() for f in (data, made)]
    return {
        "KS of x": float(stats.ks_2samp(data.x, made.x).statistic),
        "variation of job": float(np.abs(shares[0] - shares[1]).sum() / 2),
        "error of y's share": abs(float(data.y.mean() - made.y.mean())),
        "error of x's gap by y": abs(float(gaps[0] - gaps[1])),
    }


# A Markov chain instead of exact draws
def chain_costs(steps: tuple[int, ...], *, epsilon: float = 1.0) -> pd.DataFrame:
    """Realised epsilon, and delta at the nominal epsilon, of random-walk Metropolis.

    Target: the censored posterior of a Bernoulli law on 99 points, 15 of 20 records against 16 of
    21. It starts, as optimisers make samplers start, at the data's own most likely point.
    """
    theta = np.linspace(0.01, 0.99, 99)
    below = np.stack([np.log(theta), np.log1p(-theta)])
    censored = np.maximum(below - below.max(axis=1, keepdims=True), -epsilon)
    laws = {}
    for ones, rows in ((15, 20), (16, 21)):
        score = ones * censored[0] + (rows - ones) * censored[1]
        start = np.zeros(99)
        start[int(np.argmax(ones * below[0] + (rows - ones) * below[1]))] = 1.0
        move = metropolis(score)
        laws[ones] = {k: start @ np.linalg.matrix_power(move, k) for k in steps}
        laws[ones][0] = np.exp(score - logsumexp(score))
    rows_told = [costs(laws[15][k], laws[16][k], epsilon) for k in (*steps, 0)]
    return pd.DataFrame(rows_told, index=[*map(str, steps), "exact draw"])


def metropolis(score: Array) -> Array:
    """Transition matrix; proposals one point away."""
    size = len(score)
    move = np.zeros((size, size))
    for step in (-1, 1):
        for place in range(max(0, -step), min(size, size - step)):
            move[place, place + step] = min(1.0, np.exp(score[place + step] - score[place])) / 2
    return move + np.diag(1 - move.sum(axis=1))


def costs(p: Array, q: Array, epsilon: float) -> dict[str, float]:
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.abs(np.log(p) - np.log(q))
    delta = max(np.maximum(a - np.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))
    return {"epsilon": float(loss[(p > 0) | (q > 0)].max()), "delta": float(delta)}


# The page
def markdown(frame: pd.DataFrame, form: Callable[[float], str]) -> list[str]:
    texts = frame.map(lambda value: form(value) if isinstance(value, float) else str(value))
    lines = ["| " + " | ".join(map(str, texts.columns)) + " |", "|---" * texts.shape[1] + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in texts.itertuples(index=False))]


def page(runs: int) -> str:
    chain = chain_costs((2, 20, 100, 1000, 10_000)).reset_index(names="steps")
    return "\n".join(
        [
            "# Bayesian synthesis",
            "",
            f"`python benchmarks/bayes.py --runs {runs}`; simulated data, means over {runs} runs."
            " What it does: [method](../../docs/method.md#16-bayesian-synthesis).",
            "",
            "**One column.** 2,000 values of Beta(2, 8), the synthesizer a Beta law on a public"
            " grid of 1,225 points, one draw. Kolmogorov-Smirnov distance to the data by epsilon of"
            " add/remove. *Weak*: the bound holds for this database at best, and its weights are"
            " of the data. *Symmetric*, *weights, then censored*: the papers' window on densities,"
            " the latter with weights that are public. *Window*: ours, on probabilities.",
            "",
            *markdown(one_column(runs).reset_index(), "{:.3f}".format),
            "",
            "**A small table** with a class, generators alone, delta 1e-6, 20,000 rows.",
            "",
            *markdown(small_table(runs), "{:.3f}".format),
            "",
            "**A chain instead of exact draws.** Random-walk Metropolis on 99 points, nominal"
            " epsilon 1, started at the data's most likely point; its exact law after so many"
            " steps, for 20 records and 21.",
            "",
            *markdown(chain, lambda value: f"{value:.3g}"),
            "",
        ]
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    (chosen.out / "bayes.md").write_text(page(chosen.runs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
