"""The paper's toy figure: weights of the square's rows for the triangle. Simulated, no data file.

Confidential rows are uniform on the triangle below the diagonal, synthetic ones on the square; the
true weight is 2 below and 0 above.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from metrics import Array
from paper_weights import NOT_PRIVATE, Tables, alone, weights_of

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable

EPSILON = 1.0
TOY_METHODS = ("none", "beta_noised", "beta_debiased", "dp_mlp", "logreg", "mlp")
TOY_ROWS, TOY_SHOWN = 1000, 700
"""Confidential rows of the toy, and points of a panel."""


def unit_table(values: Array) -> tuple[PublicSchema, ScaledTable]:
    """A schema and rows of numbers in [0, 1], shape (n, d)."""
    names = [f"x{j}" for j in range(values.shape[1])]
    columns = [Column(name=name, kind=ColumnKind.CONTINUOUS, lower=0, upper=1) for name in names]
    schema = PublicSchema(name="numbers", columns=tuple(columns))
    return schema, ScaledTable(dict(zip(names, values.T.copy(), strict=True)), len(values))


@dataclass(frozen=True, kw_only=True)
class Known:
    """Rows whose true weights are known, every column in [0, 1], shapes (n, d)."""

    real: Array
    fitting: Array
    published: Array

    @property
    def tables(self) -> Tables:
        """Rows as the package holds them."""
        (schema, real), (_, fitting), (_, rows) = map(
            unit_table, (self.real, self.fitting, self.published)
        )
        return Tables(
            private=PrivateTable(schema=schema, scaled=real),
            fitting=SyntheticTable(schema=schema, scaled=fitting),
            rows=SyntheticTable(schema=schema, scaled=rows),
        )


def triangle(rows: int, rng: np.random.Generator) -> Known:
    """Real rows below the diagonal of the unit square, synthetic ones anywhere in it."""
    corner = np.sort(rng.random((rows, 2)), axis=1)[:, ::-1]
    return Known(real=corner, fitting=rng.random((4000, 2)), published=rng.random((2000, 2)))


def weights(kind: str, known: Known, seed: int) -> Array:
    """Of the published rows, shape (m,); private ones at epsilon 1, delta 10^-6/N_D."""
    tables, rows, ready = known.tables, len(known.real), None
    if kind not in ("none", *NOT_PRIVATE):
        ready = alone(kind, tables.rows.schema, rows, EPSILON, 1e-6 / rows)
    return weights_of(kind, tables, ready=ready, seed=100 + seed, run=seed)


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
        w = weights(method, known, seed)
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
