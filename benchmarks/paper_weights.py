"""The paper's kinds of weights of some rows, for its tables, its toy and MNIST.

`beta_noised`, `beta_debiased` and `dp_mlp` spend (epsilon, delta) by themselves. `discriminator` is
the generator's own, `logreg`, `mlp` and `beta_exact` (`beta_noised` without its noise) are fitted
on exact rows and are not private.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from metrics import Array, Perceptron
from sklearn.linear_model import LogisticRegression
from weights_cells import calibrated

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.base import SampledRows, Weighing
from dpiw.methods.weights.paper.discriminator import DiscriminatorWeights
from dpiw.methods.weights.paper.mlp import inputs
from dpiw.methods.weights.paper.regression import LinearMap
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.methods.weights.registry import make_weights
from dpiw.privacy.randomness import SeededNoise

PAPER_KINDS = (
    "none", "beta_noised", "beta_debiased", "dp_mlp", "discriminator", "logreg", "mlp",
)  # fmt: skip
NOT_PRIVATE = frozenset({"logreg", "mlp"})
STEPS: Mapping[str, Mapping[str, Any]] = {
    "beta_calibrate": {"rows": "unused", "declared": "rows of the file that nothing else reads"},
    "pareto_smooth": {},
}
"""Settings of the steps of post-processing that the paper tries."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {"measured": {"omega_seed": 1}}
SMALLEST = 1e-12
"""Probabilities of the non-private network are kept this far from 0 and 1, and no farther."""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Confidential rows, synthetic rows to fit weights on, those to weigh, and public real rows."""

    private: PrivateTable
    fitting: SyntheticTable
    rows: SyntheticTable
    public: SyntheticTable | None = None


def estimator_of(kind: str) -> Any:
    """An estimator before its calibration."""
    estimator = make_weights(kind, SETTINGS.get(kind, {}))
    assert estimator is not None
    return estimator


@lru_cache(maxsize=256)
def alone(kind: str, schema: PublicSchema, rows: int, epsilon: float, delta: float) -> Any:
    """An estimator that spends (epsilon, delta) by itself."""
    return calibrated([(estimator_of(kind), 1.0)], schema, rows, epsilon, delta)[0]


def log_weights(estimator: Any, tables: Tables, seed: int, steps: Sequence[str] = ()) -> Array:
    """Of the rows, by an estimator that is ready and after `STEPS`; shape (n,)."""
    measured = estimator.measure(tables.private, tables.fitting, noise=SeededNoise(seed))
    weighing = Weighing(
        rows=tables.rows.rows,
        post_processing=parse_post_processing([{"step": name, **STEPS[name]} for name in steps]),
        public=tables.public,
    )
    rows = SampledRows(weighed=tables.rows, fitting=tables.fitting)
    rng = np.random.default_rng(seed)
    return np.asarray(estimator.weigh(measured, rows, weighing, rng=rng).log_weights)


def regression_log_odds(tables: Tables, penalty: float = 1.0) -> Array:
    """The paper's LogReg: of the regression that `beta_*` weights draw noise on; not private.

    The constant is an appended, penalised feature, and rows of both classes weigh the same in
    total, as in `dpiw.methods.weights.paper.beta`. Shape (n,).
    """
    features = LinearMap(tables.rows.schema)
    real = features.matrix(tables.private.confidential())
    drawn = features.matrix(tables.fitting.scaled)
    model = LogisticRegression(
        C=1 / penalty, fit_intercept=False, solver="newton-cholesky", tol=1e-10
    )
    sizes = [len(real), len(drawn)]
    w = np.repeat([1.0, len(real) / len(drawn)], sizes)
    model.fit(np.vstack([real, drawn]), np.repeat([1, 0], sizes), sample_weight=w)
    return np.asarray(features.matrix(tables.rows.scaled) @ model.coef_[0])


def network_log_odds(tables: Tables, seed: int) -> Array:
    """The paper's MLP: log odds of a network on the exact rows; not private. Shape (n,)."""
    schema = tables.rows.schema
    real = inputs(schema, tables.private.confidential())
    drawn = inputs(schema, tables.fitting.scaled)
    x, y = np.vstack([real, drawn]), np.repeat([1.0, 0.0], [len(real), len(drawn)])
    w = np.where(y > 0, len(drawn) / len(real), 1.0)
    order = np.random.default_rng(seed).permutation(len(x))
    p = Perceptron(rows=len(x)).score(
        x[order], y[order], w[order], inputs(schema, tables.rows.scaled),
        regression=False, seed=seed,
    )  # fmt: skip
    assert p is not None
    p = np.clip(p, SMALLEST, 1 - SMALLEST)
    return np.asarray(np.log(p) - np.log1p(-p))


def weights_of(
    kind: str,
    tables: Tables,
    *,
    model: Any = None,
    ready: Any = None,
    seed: int,
    run: int,
    steps: Sequence[str] = (),
) -> Array:
    """Weights of the rows, of any positive scale, shape (n,).

    `model` is for `discriminator`, `ready` (calibrated) for private kinds and `beta_exact`; `seed`
    is that of the noise, `run` that of the network without privacy.
    """
    if kind == "none":
        return np.ones(tables.rows.rows)
    if kind == "mlp":
        logits = network_log_odds(tables, run)
    elif kind == "logreg":
        logits = regression_log_odds(tables)
    elif kind == "beta_exact":
        logits = regression_log_odds(tables, penalty=ready.calibrated.penalty)
    elif kind == "discriminator":
        logits = log_weights(DiscriminatorWeights().informed(model), tables, seed, steps)
    else:
        logits = log_weights(ready, tables, seed, steps)
    return np.exp(logits - logits.max())
