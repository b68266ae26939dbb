"""Means, shares, covariance and least squares from local reports (docs/method.md section 17).

Each report is a person's record plus noise of a public law; estimates undo it on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.errors.intervals import Interval
from dpiw.errors import ReleaseError, WeightError, one_of
from dpiw.local.certificate import REPORTS, LocalCertificate, verify_local
from dpiw.local.parameters import LocalParameters
from dpiw.methods.weights.diagnostics import Objection, Verdict, objection, worst

Array = NDArray[np.float64]

INTERCEPT = "(intercept)"

USE_BIAS, CARE_BIAS = 0.25, 0.5
"""Largest bias, in standard errors: 95% intervals then cover 94% and 92% (simulated)."""

USE_SPREAD, CARE_SPREAD = 4.0, 2.0
"""Least spread of the features, net of the noise, in standard errors (simulated)."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalSample:
    """Reports, and the law of their noise; without `certificate`, a simulation.

    `features` in [-1, 1] with noise, shape (n, p); `labels` as indices, shape (n,), or (0,).
    """

    parameters: LocalParameters
    features: Array
    labels: NDArray[np.int64]
    certificate: LocalCertificate | None = None

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        params = self.parameters
        return (
            f"LocalSample({params.collection!r}, {len(self)} reports of {', '.join(params.names)},"
            f" epsilon={params.epsilon}, delta={params.delta} each)"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(feature.name for feature in self.parameters.features)

    @property
    def indicators(self) -> Array:
        """Unbiased indicators of the levels, shape (n, levels); some lie outside [0, 1]."""
        if self.parameters.response is None:
            raise ReleaseError("this collection asked for no label", field="label")
        return np.asarray(self.parameters.response.inverse()[:, self.labels].T)

    def indicator(self, level: str) -> Array:
        """Return the unbiased indicator of one level, shape (n,); ReleaseError for none."""
        indicators = self.indicators
        if level not in self.parameters.levels:
            raise ReleaseError(field="level", allowed=one_of(level, self.parameters.levels))
        return np.asarray(indicators[:, self.parameters.levels.index(level)])

    def chosen(self, names: Sequence[str] | None) -> list[int]:
        """Return the indices of features (None: all), or raise ReleaseError."""
        for name in names or ():
            if name not in self.names:
                raise ReleaseError(field="feature", allowed=one_of(name, self.names))
        return [self.names.index(name) for name in (self.names if names is None else names)]

    def units(self, places: Sequence[int]) -> tuple[Array, Array]:
        """Return half and middle, shape (p,): own units are half * reported + middle."""
        features = [self.parameters.features[place] for place in places]
        half = np.array([(feature.high - feature.low) / 2 for feature in features])
        return half, np.array([feature.low for feature in features]) + half


def load_local(folder: str | Path, public_key: str | Path | None = None) -> LocalSample:
    """Verify a folder of reports and read it; `public_key`: the collector's, from another channel.

    Raises as `dpiw.local.certificate.verify_local`.
    """
    key = None if public_key is None else Path(public_key)
    verified = verify_local(Path(folder), public_key=key, rows=True)
    parameters, table = verified.parameters, verified.table
    columns = [table.column(feature.name).to_numpy() for feature in parameters.features]
    labels = np.empty(0, dtype=np.int64)
    if parameters.label is not None:
        levels = pd.Index(parameters.levels)
        labels = np.asarray(levels.get_indexer(table.column(parameters.label).to_pylist()))
        if (labels < 0).any():
            raise ReleaseError("a label is none of the parameters' levels", field=REPORTS)
    features = np.array(columns, dtype=np.float64).reshape(len(columns), table.num_rows).T
    return LocalSample(
        parameters=parameters, features=features, labels=labels.astype(np.int64),
        certificate=verified.certificate,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalEstimate:
    """Estimates of p values from reports, with their errors.

    Attributes:
        covariance: shape (p, p), of sampling and privacy noise together; NaN if unknown.
        verdict: of the intervals: `use`, `use with care`, or `do not use` (no intervals).
    """

    names: tuple[str, ...]
    values: Array
    covariance: Array
    verdict: str = "use"
    reasons: tuple[str, ...] = ()

    @classmethod
    def judged(
        cls, names: tuple[str, ...], values: Array, covariance: Array, doubts: Sequence[Objection]
    ) -> LocalEstimate:
        """Return estimates with the worst verdict of `doubts`."""
        verdict = worst(doubts)
        if verdict is Verdict.DO_NOT_USE:
            covariance = np.full_like(covariance, np.nan)
        return cls(
            names=names, values=values, covariance=covariance, verdict=verdict.value,
            reasons=tuple(doubt.reason for doubt in doubts),
        )  # fmt: skip

    def interval(self, level: float = 0.95) -> Interval:
        """Return normal intervals of coverage `level`, in (0, 1), or raise ReleaseError."""
        if not 0 < level < 1:
            raise ReleaseError(field="level", allowed="a number between 0 and 1")
        reach = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(np.diag(self.covariance))
        return Interval(
            names=self.names, values=self.values, lower=self.values - reach,
            upper=self.values + reach, level=level, method="sandwich",
            support=np.full(self.values.size, np.nan), verdicts=(self.verdict,) * len(self.names),
            reasons=(self.reasons,) * len(self.names),
        )  # fmt: skip


def means(sample: LocalSample, names: Sequence[str] | None = None) -> LocalEstimate:
    """Return means of features in their own units; ReleaseError for an unknown one."""
    places = sample.chosen(names)
    told = _mean(tuple(sample.names[place] for place in places), sample.features[:, places])
    half, middle = sample.units(places)
    covariance = told.covariance * np.outer(half, half)
    return replace(told, values=told.values * half + middle, covariance=covariance)


def frequencies(sample: LocalSample) -> LocalEstimate:
    """Return shares of the label's levels, which add up to one; ReleaseError without a label."""
    return _mean(sample.parameters.levels, sample.indicators)


def _mean(names: tuple[str, ...], rows: Array) -> LocalEstimate:
    covariance = np.atleast_2d(np.cov(rows, rowvar=False)) / len(rows)
    return LocalEstimate(names=names, values=rows.mean(axis=0), covariance=covariance)


def covariance(
    sample: LocalSample, names: Sequence[str] | None = None, *, repair: bool = True
) -> pd.DataFrame:
    """Return the covariance of features in their own units, less the noise's.

    `repair` sets negative eigenvalues (on the scale of the reports) to zero; unbiased without.
    Raises ReleaseError for an unknown feature.
    """
    places = sample.chosen(names)
    variances = sample.parameters.variances[list(places)]
    told = np.atleast_2d(np.cov(sample.features[:, places], rowvar=False))
    corrected = told - np.diag(variances)
    if repair:
        values, vectors = np.linalg.eigh(corrected)
        corrected = (vectors * np.maximum(values, 0)) @ vectors.T
    half, _ = sample.units(places)
    corrected = corrected * np.outer(half, half)
    chosen = [sample.names[place] for place in places]
    return pd.DataFrame(corrected, index=chosen, columns=chosen)


def least_squares(
    sample: LocalSample,
    target: str,
    features: Sequence[str] | None = None,
    *,
    level: str | None = None,
) -> LocalEstimate:
    """Fit least squares with an intercept, in own units, by corrected second moments.

    Minimises the mean of (v - w.b)^2 / 2 - b' S b / 2, S the noise's variances, which is unbiased
    for the loss without noise. Covariance: A^-1 B A^-1 / n, A the corrected mean of w w', B the
    mean square of w (v - w.b) + S b. Verdict: see `net_spread`. A label is 1 at `level`, else 0.
    Raises ReleaseError for an unknown feature or level; WeightError if the corrected moments are
    not positive definite, as the noise outweighs what so few reports tell.
    """
    is_label = target == sample.parameters.label
    if is_label is (level is None):
        allowed = f"one of {', '.join(sample.parameters.levels)}" if is_label else "no level"
        raise ReleaseError(field="level", allowed=f"{allowed} for the target {target!r}")
    others = [name for name in sample.names if name != target]
    places = sample.chosen(others if features is None else features)
    if not is_label and target in (features or ()):
        raise ReleaseError(field="features", allowed=f"names other than the target {target!r}")
    told, noise = sample.features[:, places], sample.parameters.variances[list(places)]
    half, middle = sample.units(places)
    response, unit, origin = sample.indicator(str(level)) if is_label else None, 1.0, 0.0
    if response is None:
        (place,) = sample.chosen([target])
        (unit,), (origin,) = sample.units([place])
        response = sample.features[:, place]
    matrix = np.column_stack([np.ones(len(sample)), told])
    variances = np.array([0.0, *noise])
    moments = matrix.T @ matrix / len(sample) - np.diag(variances)
    net, ratio = net_spread(told, noise)
    if net <= 1e-10:
        raise WeightError(
            "the noise outweighs the features' spread: name fewer features, or get more reports",
            field="least squares",
        )
    values = np.asarray(np.linalg.solve(moments, matrix.T @ response / len(sample)), np.float64)
    scores = matrix * (response - matrix @ values)[:, None] + variances * values
    back = np.diag(unit / np.array([1.0, *half]))  # from the scale of the reports
    back[0, 1:] = -middle / half * unit
    values = back @ values + np.eye(values.size)[0] * origin
    covariance = back @ sandwich(moments, scores) @ back.T
    names = (INTERCEPT, *(sample.names[place] for place in places))
    return LocalEstimate.judged(names, values, covariance, spread_objection(ratio))


def sandwich(hessian: Array, scores: Array) -> Array:
    """H^-1 S H^-1 / n of an estimate at which the mean of `scores`, shape (n, p), is zero."""
    rows = len(scores)
    influence = np.linalg.solve(hessian, (scores - scores.mean(axis=0)).T)
    return np.asarray(influence @ influence.T / rows**2)


# --- what keeps an estimate from `use` ----------------------------------------------------------


def bias_objection(bias: Array, covariance: Array) -> list[Objection]:
    """Object to a bias, shape (d,), that is large beside the standard errors."""
    ratio = float((np.abs(bias) / np.sqrt(np.diag(covariance))).max())
    text = f"start and ball moved the end by {ratio:.2f} standard errors (expected <= {USE_BIAS:g})"
    text += ": more reports, a smaller mu, or a larger ball"
    return objection(not ratio <= USE_BIAS, not ratio <= CARE_BIAS, text)


def net_spread(told: Array, variances: Array) -> tuple[float, float]:
    """Return the least spread of features net of the noise, and its least ratio to standard errors.

    Features, shape (n, p), are centred and scaled to unit variance. Along each eigenvector v of
    their covariance less the noise's, the net spread is the mean of (v'w)^2 - v'S v. Below a ratio
    of 2 the matrix may be positive by luck. Infinite without features.
    """
    if not told.shape[1]:
        return np.inf, np.inf
    centred = told - told.mean(axis=0)
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    scaled = centred / scale
    net, axes = np.linalg.eigh(scaled.T @ scaled / len(told) - np.diag(variances / scale**2))
    error = ((scaled @ axes) ** 2).std(axis=0) / np.sqrt(len(told))
    return float(net.min()), float((net / np.maximum(error, 1e-300)).min())


def spread_objection(ratio: float) -> list[Objection]:
    """Object to a net spread that is too few standard errors above zero."""
    text = f"features' spread net of the noise {ratio:.1f} standard errors"
    text += f" (expected >= {USE_SPREAD:g}): fewer features, or more reports"
    return objection(not ratio >= USE_SPREAD, not ratio >= CARE_SPREAD, text)
