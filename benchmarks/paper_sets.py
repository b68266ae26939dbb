"""The paper's data sets and metrics: files, public schemas, splits, and weighted rows judged.

Releases are made on public bounds (`dpiw.data.schema.schema`). The paper scales every column by the
minimum and maximum of the confidential rows, which is not private (docs/privacy.md section 5); here
that scale is for the metrics alone, so that they are in its units: it touches no release.

- `wst`: exact Wasserstein-1, Euclidean, every column with the target on [0, 1] by minimum and
  maximum. Identified in the data's README: it reproduces the paper's rows without weights.
- `beta_mse`: mean squared difference of slopes; scikit-learn's default penalty (C = 1) for a
  logistic model, least squares for a number, fitted on the weighted rows and on the test rows.
- `mlp`: area under the ROC curve of a perceptron on the test rows, or its mean squared error.
- `wst_least`: the mean distance from a test row to its nearest row: the least Wasserstein distance
  that any weights of these rows can reach, for each test row's mass must come at least from there.
- `beta_relative`: the fair form of `beta_mse` (docs/method.md section 8): one penalty per row on
  both sides, squared distance over squared norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from metrics import (
    Array,
    Perceptron,
    auc,
    coefficient_errors,
    ess_share,
    exact_wasserstein,
    linear_fit,
    squared_error,
)
from scipy.spatial.distance import cdist
from sklearn.linear_model import LinearRegression, LogisticRegression
from study import ROOT

from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.schema import PublicSchema, ScaledTable

TEST_SHARE = 0.2
TGFB_COLUMNS = 20
"""Of the 1,000 probe sets the first so many in the file's order: 209 rows cannot carry more."""


@dataclass(frozen=True)
class PaperSet:
    """A data set and the public facts its releases use.

    Without `schema` it is made here; nominal rows: 80% of the published size, which is public;
    `regression`: whether the target is a number; `published`: its name in the paper's tables.
    """

    file: str
    schema: str
    nominal_rows: int
    published: str = ""
    regression: bool = False

    @property
    def delta(self) -> float:
        """The paper's: 10^-6 / N_D."""
        return 1e-6 / self.nominal_rows


SETS: Mapping[str, PaperSet] = {
    "breast": PaperSet("breast.csv", "examples/breast-cancer-all/schema.yaml", 455, "Breast"),
    "banknote": PaperSet("banknote.csv", "examples/banknote/schema.yaml", 1097, "Banknote"),
    "boston": PaperSet(
        "boston.csv", "benchmarks/schemas/boston.yaml", 404, "Boston", regression=True
    ),
    "iris": PaperSet("iris.csv", "", 120),
    "tgfb": PaperSet("tgfb.csv.gz", "", 209, regression=True),
}


def _number(name: str, lower: float, upper: float, role: ColumnRole = ColumnRole.FEATURE) -> Column:
    return Column(name=name, kind=ColumnKind.CONTINUOUS, lower=lower, upper=upper, role=role)


def _own_schema(name: str, frame: pd.DataFrame) -> PublicSchema:
    """Iris: what lengths of petals can be, in cm. TGFB: standardised columns, within 5."""
    if name == "iris":
        bounds = {"sepal_length": 10, "sepal_width": 6, "petal_length": 8, "petal_width": 4}
        columns = [_number(column, 0, upper) for column, upper in bounds.items()]
        target = Column(name="virginica", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET)
        return PublicSchema(name=name, columns=(*columns, target))
    columns = [_number(column, -5, 5) for column in frame.columns[1:]]
    return PublicSchema(name=name, columns=(*columns, _number("y", -5, 5, ColumnRole.TARGET)))


def _read(name: str, data: Path) -> pd.DataFrame:
    frame = pd.read_csv(data / SETS[name].file, dtype=str, keep_default_na=False)
    if name == "iris":  # one kind against the two others: the methods want two levels
        frame["virginica"] = (frame.pop("class") == "Iris-virginica").astype(str)
    return frame.iloc[:, : TGFB_COLUMNS + 1] if name == "tgfb" else frame


@dataclass(frozen=True, kw_only=True)
class Ruler:
    """The scale of the metrics: every column to [0, 1] by the file's minimum and maximum."""

    schema: PublicSchema
    lower: Array
    span: Array

    def _raw(self, scaled: ScaledTable) -> Array:
        frame = self.schema.unscale(scaled)
        return np.asarray(frame[[c.name for c in self.schema.released]].to_numpy(dtype=float))

    @classmethod
    def of(cls, schema: PublicSchema, every: ScaledTable) -> Ruler:
        """From all rows."""
        blank = cls(schema=schema, lower=np.zeros(0), span=np.ones(0))
        raw = blank._raw(every)
        lower = raw.min(axis=0)
        return cls(schema=schema, lower=lower, span=np.maximum(raw.max(axis=0) - lower, 1e-12))

    def rows(self, scaled: ScaledTable) -> Array:
        """Rows with the target, shape (rows, columns)."""
        return (self._raw(scaled) - self.lower) / self.span

    def parts(self, rows: Array) -> tuple[Array, Array]:
        """Features, shape (rows, columns - 1), and target, shape (rows,), of `rows`' result."""
        names = [c.name for c in self.schema.released]
        target = self.schema.target
        assert target is not None
        place = names.index(target.name)
        return np.delete(rows, place, axis=1), rows[:, place]


@lru_cache(maxsize=len(SETS))
def table(name: str, data: Path) -> tuple[PublicSchema, ScaledTable, Ruler]:
    """Schema, all rows on the public scale, and the metrics' scale."""
    facts, frame = SETS[name], _read(name, data)
    own = facts.schema
    schema = PublicSchema.from_yaml(ROOT / own) if own else _own_schema(name, frame)
    every = schema.scale(frame)
    return schema, every, Ruler.of(schema, every)


@dataclass(frozen=True, kw_only=True)
class Halves:
    """One random split: 80% confidential, 20% to test on; of the former some may be public."""

    name: str
    schema: PublicSchema
    train: ScaledTable
    public: ScaledTable
    test: Array
    ruler: Ruler

    @property
    def regression(self) -> bool:
        """Whether the target is a number."""
        return SETS[self.name].regression


@lru_cache(maxsize=4)
def split(name: str, run: int, data: Path, public: float = 0.0) -> Halves:
    """The split of a run; a share of its confidential rows is public instead."""
    schema, every, ruler = table(name, data)
    order = np.random.default_rng(run).permutation(every.rows)
    cut = int((1 - TEST_SHARE) * every.rows)
    kept = cut - int(public * cut)
    return Halves(
        name=name,
        schema=schema,
        train=every.take(order[:kept]),
        public=every.take(order[kept:cut]),
        test=ruler.rows(every.take(order[cut:])),
        ruler=ruler,
    )


# Metrics

METRICS = ("beta_mse", "wst", "mlp", "wst_least", "beta_relative", "ess_share")
PAPER_METRICS = ("beta_mse", "wst", "mlp")
PERCEPTRON = Perceptron()


def higher_is_better(dataset: str, metric: str) -> bool:
    """Of the metrics only the area under the curve, and the effective sample size."""
    regression = dataset in SETS and SETS[dataset].regression
    return metric == "ess_share" or (metric == "mlp" and not regression)


def slopes(x: Array, y: Array, w: Array, *, regression: bool) -> Array | None:
    """Slopes as the paper most likely fits them: default penalty; None if a class is missing."""
    w = w / w.mean()
    if regression:
        return np.asarray(LinearRegression().fit(x, y, sample_weight=w).coef_)
    if len(np.unique(y)) < 2:
        return None
    model = LogisticRegression(max_iter=5000).fit(x, y, sample_weight=w)
    return np.asarray(model.coef_[0])


@lru_cache(maxsize=4)
def _truths(name: str, run: int, data: Path) -> tuple[Array, Array]:
    halves = split(name, run, data)
    x, y = halves.ruler.parts(halves.test)
    ones, regression = np.ones(len(x)), halves.regression
    printed = slopes(x, y, ones, regression=regression)
    fair = linear_fit(x, y, ones, regression=regression)
    assert printed is not None
    assert fair is not None
    return printed, fair.coefficients


def measure(halves: Halves, rows: Array, w: Array, *, run: int, data: Path) -> dict[str, float]:
    """Every metric of weighted rows, with the target, on the metrics' scale."""
    x, y = halves.ruler.parts(rows)
    tx, ty = halves.ruler.parts(halves.test)
    regression = halves.regression
    printed, fair = _truths(halves.name, run, data)
    fit = linear_fit(x, y, w, regression=regression)
    deep = PERCEPTRON.score(x, y, w, tx, regression=regression, seed=run)
    if regression:
        assert deep is not None
    return {
        "beta_mse": coefficient_errors(slopes(x, y, w, regression=regression), printed)[0],
        "wst": exact_wasserstein(rows, w, halves.test),
        "wst_least": float(cdist(halves.test, rows).min(axis=1).mean()),
        "mlp": squared_error(ty, deep) if regression and deep is not None else auc(ty, deep),
        "beta_relative": coefficient_errors(None if fit is None else fit.coefficients, fair)[1],
        "ess_share": ess_share(w),
    }
