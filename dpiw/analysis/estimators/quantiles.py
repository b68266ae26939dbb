"""Weighted quantiles; their influence divides by the density."""

from dataclasses import replace
from functools import partial
from numbers import Real

import numpy as np

from dpiw.analysis.columns import Column, bounds, cells, declared_as
from dpiw.analysis.estimators.estimates import By, Estimate, asked, grouped, label_of, present_rows
from dpiw.analysis.names import known_name
from dpiw.analysis.sample import Array, Source, WeightedSample, weighted_sample
from dpiw.errors import ReleaseError

INSIDE = 1 / 3
"""Standard deviation, over sqrt(t (1 - t)), of the share of a bin's people below a point, with t
the share of its rows: as of a Beta law with a + b = 8. A generator guesses positions inside a
bin, and no feature of `measured` weights sees them. Covers 94% of the quantiles of six real data
sets (docs/method.md section 14).
"""


def weighted_quantile(values: Array, weights: Array, probabilities: Array) -> Array:
    """Smallest values whose weighted share of rows at or below them reaches the probabilities."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, probabilities * reached[-1] * (1 - 1e-12), side="left")
    return np.asarray(values[order][np.minimum(place, values.size - 1)])


def quantile(
    source: Source,
    column: Column,
    probability: float = 0.5,
    *,
    where: Column | None = None,
    by: By = None,
    name: str | None = None,
) -> Estimate:
    """Return the weighted quantile: the smallest value that a share of the weight reaches.

    Its interval runs between the quantiles at the ends of the share's interval (Woodruff 1952), so
    it spans gaps and ties. The position in its bin is uncertain (`INSIDE`): declared cuts near the
    quantile make the interval narrower. `probability` is inside (0, 1); `where` and `by` as in
    `mean`.
    """
    if not isinstance(probability, Real) or not 0 < probability < 1:
        raise ReleaseError(
            field="quantile",
            allowed=f"a probability between 0 and 1, found {probability!r:.60}; for several write"
            " joint(*(quantile(release, 'age', p) for p in (0.25, 0.75)))",
        )
    label = name or asked(f"quantile({label_of(column)}, {probability:g})", where)

    sample = weighted_sample(source)
    values = cells(sample, column)
    bins_by_column = {} if sample.law is None else sample.law.bins
    known = isinstance(column, str)
    bins = bins_by_column.get(known_name(sample.frame, str(column))) if known else None

    estimator = partial(_quantile, probability=probability, bins=bins)
    estimate = grouped(sample, values, where, by, label, estimator)
    return replace(estimate, limits=bounds(values, declared_as(sample, column)))


def median(
    source: Source, column: Column, *, where: Column | None = None, by: By = None
) -> Estimate:
    """Return the weighted median. Arguments and errors as `mean`."""
    label = asked(f"median({label_of(column)})", where)
    return quantile(source, column, 0.5, where=where, by=by, name=label)


def _quantile(
    sample: WeightedSample, values: Array, name: str, probability: float, bins: np.ndarray | None
) -> Estimate:
    present = present_rows(values, name, sample)
    observed, mass = values[present], sample.weights[present]
    estimate = weighted_quantile(observed, mass, np.array([probability]))
    density = _density(observed, mass, probability)
    share = float((sample.weights * present).mean())
    # Among ties use the nearer share: at or below the quantile, or below it if anybody is.
    reached, under = (
        float(mass @ rows / mass.sum())
        for rows in (observed <= estimate[0], observed < estimate[0])
    )
    nearer = abs(under - probability) < abs(reached - probability)
    tied = under > 0 and (nearer or reached >= 1 - 1e-12)
    below = np.where(present, values < estimate[0] if tied else values <= estimate[0], probability)
    reached = under if tied else reached
    pull = np.where(present, (reached - below) / (density * share), 0.0)

    inside = np.nan if bins is None else _inside(observed, mass, bins[present], estimate[0], tied)

    def ends(reach: Array) -> Array:
        apart = float(reach[0]) * density if np.isfinite(density) else 0.0
        sides = np.array([probability - apart, probability + apart])
        quantiles = weighted_quantile(observed, mass, np.clip(sides, 0, 1))
        low, high = estimate[0] - float(reach[0]), estimate[0] + float(reach[0])
        if sides[0] <= 0:  # beyond all rows: only the density is known
            quantiles[0] = min(quantiles[0], low)
        if sides[1] >= 1:
            quantiles[1] = max(quantiles[1], high)
        return np.asarray(quantiles[:, None])

    return Estimate(
        names=(name,), values=estimate, influence=pull[:, None], sample=sample,
        group=present[:, None], ends=ends,
        facts={"density": density, "smooth": False, "inside": np.array([inside / density])},
    )  # fmt: skip


def _inside(values: Array, weights: Array, bins: np.ndarray, value: float, below: bool) -> float:
    """Standard deviation of the share below `value`, from positions in its bin."""
    same_bin = bins == bins[int(np.argmax(values == value))]
    bin_weight = float(weights[same_bin].sum())
    under = float(weights[same_bin & (values < value if below else values <= value)].sum())
    return INSIDE * float(np.sqrt(under * (bin_weight - under))) / float(weights.sum())


def _density(values: Array, weights: Array, probability: float) -> float:
    size = float(weights.sum() ** 2 / (weights**2).sum())
    half = min(size ** (-1 / 3) * 0.5, probability / 2, (1 - probability) / 2)
    for _ in range(8):  # a column with ties needs a wider step
        low, high = weighted_quantile(
            values, weights, np.array([probability - half, probability + half])
        )
        if high > low:
            return float(2 * half / (high - low))
        half = min(2 * half, 0.999 * min(probability, 1 - probability))
    spread = float(np.ptp(values))  # a heap on both sides: any slope gives the share's interval
    return 1 / spread if spread > 0 else np.inf
