"""Known ratios: the toy figure, and log weights against the truth. Simulated rows, no data file.

Toy: confidential rows uniform on the triangle below the diagonal, synthetic ones on the square; the
true weight is 2 below and 0 above. Log weights: real rows of density proportional to exp(b.x) on
[0, 1]^d with norm(b) = 2, synthetic ones uniform, so that the log ratio is b.x up to a constant.

`paper_printed` is what the paper prints (iid Laplace of scale 2 sqrt(d)/(N_D lambda epsilon) at
lambda = 0.1): it is not epsilon-DP (docs/method.md section 4) and is here for comparison alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from metrics import Array, Perceptron
from paper_weights import Tables, alone, log_weights, network_log_odds, regression_log_odds
from sklearn.linear_model import LogisticRegression

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.weigh import normalised

NORM = 2.0
LAMBDA = 0.1
EPSILON = 1.0
SIZES = ((2, 1000), (2, 10_000), (10, 1000), (10, 10_000), (30, 1000), (30, 10_000))
"""Columns and confidential rows."""

PRINTED = "paper_printed"
METHODS = (
    "none", "logreg, lambda 0.1", "logreg", "mlp", "beta_noised", "beta_debiased",
    "beta_debiased, spherical", "beta_debiased, laplace", "dp_mlp", PRINTED,
)  # fmt: skip
TOY_METHODS = ("none", "beta_noised", "beta_debiased", "dp_mlp", "logreg", "mlp")
TOY_ROWS, TOY_SHOWN = 1000, 700
"""Confidential rows of the toy, and points of a panel."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """Rows of a known problem, every column in [0, 1], shapes (n, d)."""

    real: Array
    fitting: Array
    published: Array

    @property
    def tables(self) -> Tables:
        """Rows as the package holds them."""
        names = [f"x{j}" for j in range(self.real.shape[1])]
        kind = ColumnKind.CONTINUOUS
        columns = [Column(name=name, kind=kind, lower=0, upper=1) for name in names]
        schema = PublicSchema(name="known", columns=tuple(columns))
        scaled = [
            ScaledTable(dict(zip(names, rows.T.copy(), strict=True)), len(rows))
            for rows in (self.real, self.fitting, self.published)
        ]
        return Tables(
            private=PrivateTable(schema=schema, scaled=scaled[0]),
            fitting=SyntheticTable(schema=schema, scaled=scaled[1]),
            rows=SyntheticTable(schema=schema, scaled=scaled[2]),
        )


def log_linear(d: int, rows: int, rng: np.random.Generator) -> tuple[Known, Array]:
    """A problem with log ratio b.x, and b, shape (d,): independent truncated exponentials."""
    b = rng.standard_normal(d)
    b *= NORM / np.linalg.norm(b)
    u = rng.random((rows, d))
    real = np.log1p(u * np.expm1(b)) / b
    return Known(real=real, fitting=rng.random((rows, d)), published=rng.random((2000, d))), b


def triangle(rows: int, rng: np.random.Generator) -> Known:
    """Real rows below the diagonal of the unit square, synthetic ones anywhere in it."""
    corner = np.sort(rng.random((rows, 2)), axis=1)[:, ::-1]
    return Known(real=corner, fitting=rng.random((4000, 2)), published=rng.random((2000, 2)))


def _printed(known: Known, rng: np.random.Generator, *, noise: bool) -> Array:
    """Mean objective over both classes with penalty 0.1, constant appended; the paper's noise."""
    n, d = known.real.shape
    x = np.vstack([known.real, known.fitting])
    x = np.hstack([x, np.ones((len(x), 1))])
    y = np.repeat([1, 0], [n, len(known.fitting)])
    model = LogisticRegression(C=1 / (LAMBDA * len(x)), fit_intercept=False, max_iter=5000)
    b = model.fit(x, y).coef_[0]
    if noise:
        b = b + rng.laplace(scale=2 * np.sqrt(d) / (n * LAMBDA * EPSILON), size=b.shape)
    return np.asarray(known.published @ b[:-1])


def log_weights_of(method: str, known: Known, seed: int) -> Array:
    """Of the published rows, mean weight one, shape (m,)."""
    if method == "none":
        return np.zeros(len(known.published))
    if method in (PRINTED, "logreg, lambda 0.1"):
        rng = np.random.default_rng([seed, 7])
        return normalised(_printed(known, rng, noise=method == PRINTED))
    tables, rows = known.tables, len(known.real)
    if method == "mlp":
        network = Perceptron(rows=rows + len(known.fitting))
        return normalised(network_log_odds(tables, network, seed))
    if method == "logreg":
        return normalised(regression_log_odds(tables))
    kind, _, noise = method.partition(", ")
    delta = 0.0 if noise else 1e-6 / rows
    ready = alone(kind, tables.rows.schema, rows, EPSILON, delta, noise)
    return log_weights(ready, tables, 100 + seed)


def error(method: str, d: int, rows: int, run: int) -> float:
    """Mean squared error of log weights, of one method on one draw."""
    known, b = log_linear(d, rows, np.random.default_rng([run, d, rows]))
    difference = log_weights_of(method, known, run) - normalised(known.published @ b)
    return float((difference**2).mean())


def mass_outside(known: Known, w: Array) -> float:
    """Share of the weight above the diagonal, where there is nothing: 0 if right, 1/2 without."""
    above = known.published[:, 1] > known.published[:, 0]
    return float(w[above].sum() / w.sum())


def toy(path: Path, seed: int = 0) -> None:
    """Plot rows drawn in proportion to their weights, against the triangle they should fill."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    known = triangle(TOY_ROWS, np.random.default_rng(seed))
    figure, axes = pyplot.subplots(2, 4, figsize=(10, 5.2), sharex=True, sharey=True)
    rng = np.random.default_rng(0)
    panels = [("confidential rows", known.real[:TOY_SHOWN])]
    for method in TOY_METHODS:
        w = np.exp(log_weights_of(method, known, seed))
        chosen = rng.choice(len(w), TOY_SHOWN, p=w / w.sum())
        panels.append((f"{method}: {mass_outside(known, w):.0%} above", known.published[chosen]))
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (title, rows) in zip(axes.flat, panels, strict=False):
        axis.scatter(rows[:, 0], rows[:, 1], s=3, alpha=0.5, linewidths=0)
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.7)
        axis.set_title(title, fontsize=9)
        axis.set(aspect="equal", xticks=[0, 1], yticks=[0, 1])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", dpi=75)
    pyplot.close(figure)
