"""Importance-weighted Bayesian posteriors, in closed form or by Laplace's approximation.

Weights sum to the evidence: Kish's effective size, and at most n0/k (n0 rows described, k the most
of one person); at nominal size posteriors are too narrow. They include neither the privacy noise
nor the shrinkage: compare their width with `dpiw.analysis.confidence_interval`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dpiw.analysis.conditions import chosen
from dpiw.analysis.estimators.design import design, standardised
from dpiw.analysis.estimators.models import fit_glm, logistic_design
from dpiw.analysis.names import column_name
from dpiw.analysis.sample import Array, Source, WeightedSample, weighted_sample
from dpiw.errors import ReleaseError, WeightError

_NOISE = 0.01
"""Shape and rate of the inverse gamma prior of a residual variance: almost nothing is known."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalPosterior:
    """A normal posterior (logistic), or the t posterior of a linear regression, of p coefficients.

    Attributes:
        root: shape (p, p); `root` @ `root`' is the covariance.
        size: sum of the weights.
        degrees: of freedom of the t law; infinite for a normal law.
    """

    names: tuple[str, ...]
    mean: Array
    root: Array = field(repr=False)
    size: float
    degrees: float = np.inf

    @property
    def covariance(self) -> Array:
        """Shape (p, p)."""
        return np.asarray(self.root @ self.root.T)

    @property
    def standard_deviation(self) -> Array:
        """Shape (p,)."""
        return np.asarray(np.linalg.norm(self.root, axis=1))

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws, shape (count, p)."""
        normal = rng.standard_normal((count, len(self.mean)))
        if np.isfinite(self.degrees):
            normal *= np.sqrt((self.degrees - 2) / rng.chisquare(self.degrees, (count, 1)))
        return np.asarray(self.mean + normal @ self.root.T)


@dataclass(frozen=True, kw_only=True, eq=False)
class DirichletPosterior:
    """Posterior of L level shares; `size` is the sum of the weights.

    `concentration`, shape (L,), is the prior plus weighted counts.
    """

    levels: tuple[str, ...]
    concentration: Array
    size: float

    @property
    def mean(self) -> Array:
        """Shape (L,)."""
        return np.asarray(self.concentration / self.concentration.sum())

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws, shape (count, L)."""
        return rng.dirichlet(self.concentration, count)


def scaled_weights(source: Source, *, weighted: bool = True) -> tuple[WeightedSample, Array]:
    """Return a sample and its weights scaled to the evidence; all one if not `weighted`."""
    sample = weighted_sample(source)
    if not weighted:
        return sample, np.ones(sample.rows)
    size = sample.effective_rows
    if sample.law is not None:
        size = min(size, float(sample.law.rows) / sample.max_rows)
    elif sample.release is not None:
        size = min(size, sample.release.certificate.nominal_rows / sample.max_rows)
    return sample, sample.weights * size / sample.rows


def linear_posterior(
    source: Source,
    target: str,
    features: Sequence[str],
    *,
    prior_scale: float = 100.0,
    weighted: bool = True,
) -> NormalPosterior:
    """Conjugate posterior of a linear regression with normal errors, in the columns' own units.

    Prior: coefficients | v ~ N(0, prior_scale^2 v I), v ~ inverse gamma(0.01, 0.01),
    both of the standardised model: coefficients in the target's weighted standard deviations by a
    column's, the intercept at the columns' weighted means less the target's, v as a share of the
    target's weighted variance. Rows with a missing value are left out.
    """
    _check_positive("prior_scale", prior_scale)
    sample, weights = scaled_weights(source, weighted=weighted)
    parts = design(sample.frame, target, features).kept(chosen(sample, None))
    columns, w = standardised(parts, weights), weights * parts.present
    x, unit = columns.matrix, np.sqrt(w @ columns.response**2 / w.sum()) or 1.0
    y = columns.response / unit
    precision = (x * w[:, None]).T @ x + np.eye(x.shape[1]) / prior_scale**2
    mean = np.asarray(np.linalg.solve(precision, x.T @ (w * y)), dtype=np.float64)
    shape = _NOISE + w.sum() / 2
    rate = _NOISE + float(w @ (y - x @ mean) ** 2 + mean @ mean / prior_scale**2) / 2
    degrees = 2 * shape
    if degrees <= 2:
        fault = "the complete rows are worth two people or fewer; use features with fewer missing"
        raise WeightError(fault, field="posterior")
    root = _root(precision) * np.sqrt(rate / shape * degrees / (degrees - 2))
    return NormalPosterior(
        names=parts.names,
        mean=columns.back @ (unit * mean) + columns.level,
        root=columns.back @ (unit * root),
        size=float(w.sum()),
        degrees=degrees,
    )


def _root(precision: Array) -> Array:
    return np.asarray(np.linalg.inv(np.linalg.cholesky(precision)).T)


def logistic_posterior(
    source: Source,
    target: str,
    features: Sequence[str],
    *,
    prior_scale: float = 10.0,
    weighted: bool = True,
) -> NormalPosterior:
    """Laplace approximation of a logistic regression's posterior, in the columns' own units.

    Prior: N(0, prior_scale^2) on the log odds by one weighted standard deviation of a column, and
    on the intercept at the columns' weighted means. A target of text has the multinomial model of
    `dpiw.analysis.logistic_regression`; the prior is that of each two levels' log odds.
    """
    _check_positive("prior_scale", prior_scale)
    sample, weights = scaled_weights(source, weighted=weighted)
    rows = chosen(sample, None)
    parts, family = logistic_design(sample.frame, rows, weights, target, features)
    columns, w = standardised(parts, weights), weights * parts.present
    x, y = columns.matrix, parts.outcome
    if not np.all(family.takes(y)):
        allowed = f"truth values, 0 and 1, or text in the target {target!r}"
        raise WeightError(field="logistic posterior", allowed=allowed)
    k = max(len(family.levels) - 1, 1)
    alike = 2 * (np.eye(k) - 1 / (k + 1))  # inverse of variances 1 and covariances 1/2
    prior = np.kron(alike, np.eye(x.shape[1])) / prior_scale**2
    b = fit_glm(x, y, w / w.sum(), family, prior / w.sum())
    back = np.kron(np.eye(k), columns.back)
    return NormalPosterior(
        names=family.names(parts.names),
        mean=back @ b,
        root=back @ _root(family.information(x, y, w, b) + prior),
        size=float(w.sum()),
    )


def dirichlet_posterior(
    source: Source, column: str, *, prior: float = 1.0, weighted: bool = True
) -> DirichletPosterior:
    """Dirichlet posterior of a column's level shares, `prior` added to every level.

    Levels are those in the rows and, for a release, all that its schema declares. Missing values
    are left out.
    """
    _check_positive("prior", prior)
    sample, weights = scaled_weights(source, weighted=weighted)
    column = column_name(sample.frame, column)
    values = sample.frame[column]
    present = values.notna().to_numpy()
    text = values[present].astype(str)
    if pd.api.types.is_bool_dtype(values.dtype):
        text = text.str.lower()
    names = list(text)
    declared = sample.declared.get(column)
    levels = () if declared is None else declared.level_names
    levels = levels or tuple(sorted(set(names)))
    place = {level: index for index, level in enumerate(levels)}
    codes = np.array([place[name] for name in names], dtype=np.int64)
    counts = np.bincount(codes, weights=weights[present], minlength=len(levels))
    return DirichletPosterior(
        levels=levels,
        concentration=np.asarray(prior + counts, dtype=np.float64),
        size=float(counts.sum()),
    )


def _check_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ReleaseError(f"found {value}", field=name, allowed="a finite number > 0")
