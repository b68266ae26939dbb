"""The law of the errors of `measured` weights: a Gaussian model, by the noise and the credit alpha.

The true density is w_j (1 + e_j), e_j independent. What no feature reaches keeps the prior's
variance: `support` decides. Post-processing. Source: docs/method.md section 14; coverage:
benchmarks/results/coverage_measured.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.row_weights import ReplicateWeights, mean_one_weights
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import ReleaseError
from dpiw.methods.one_way import OneWayLaw
from dpiw.methods.weights.diagnostics import Objection
from dpiw.methods.weights.measured.choice import Chosen
from dpiw.methods.weights.measured.constants import (
    FAR,
    MOST_CREDIT,
    MOVED,
    PULL,
    PULLED,
    STEP,
)
from dpiw.methods.weights.measured.features import ROOM, Stack, all_features
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.measured.sums import SumNoise
from dpiw.methods.weights.measured.targets import loudest, means_noise, ridge_of
from dpiw.methods.weights.measured.verdict import Linearised, base_objections, objections

Array = NDArray[np.float64]

_BLOCK = 8192

_DRAWN = 16
"""Replicates drawn at once."""

_LEAST = 0.01
"""Least weight in the prior's jitter: steps for tiny weights would be tiny."""

_FORCED_CREDIT = 1e-6
"""Credit over alpha of what was asked, in a forecast."""

_POSITIVE = 0.9
"""Largest move of a replicate's weight, as a share of the full weight."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MeansLaw:
    """The law of `measured` weights.

    Attributes:
        features: phi of the rows, shape (n, d).
        weights: of the rows, > 0, of mean one, shape (n,).
        covariance: S of the noise of the means, shape (d, d), positive definite.
        rows: N, private rows: noisy, or public.
        credit: alpha > 0, that the weights were fitted with.
        doubt: factor on the prior's variance, >= 1: alpha over the least credible alpha.
        base_rows: effective rows of the base; chosen rows repeat where these are few.
        calibration: credit with which the rows' means were calibrated; infinite if they were not.
        relative: credit of each feature's part over alpha (`Targets.relative`); None: all one.
        bins: each row's bin, shape (n,), by numeric column whose bins' shares are known: by a known
            marginal, or measured for a question.
        max_rows: most rows of one person among the private ones.
        base_k_hat: k-hat of the base's weights; None: they have no tail, or it is not known.
        count_noise: standard deviation of the generator's noisy counts; 0 where not known.
        published: number of published rows, where these rows are a forecast's; None: these rows.
        residual: noisy means less the fitted ones, shape (d,); None: all zero.
        theta: the fit's tilting, shape (d,); None, as in older certificates: by the residual.
    """

    features: Array = field(repr=False)
    weights: Array = field(repr=False)
    covariance: Array = field(repr=False)
    rows: float
    credit: float
    doubt: float = 1.0
    base_rows: float = np.inf
    calibration: float = np.inf
    relative: Array | None = field(default=None, repr=False)
    residual: Array | None = field(default=None, repr=False)
    theta: Array | None = field(default=None, repr=False)
    bins: Mapping[str, NDArray[np.int32]] = field(default_factory=dict, repr=False)
    max_rows: int = 1
    base_k_hat: float | None = None
    count_noise: float = 0.0
    published: int | None = None

    @cached_property
    def means(self) -> Array:
        """Means of the features under the weights, shape (d,)."""
        return np.asarray(self.weights @ self.features / len(self.weights))

    @cached_property
    def spread(self) -> Array:
        """C, the covariance of the features under the weights, shape (d, d)."""
        total = np.zeros((self.means.size, self.means.size))
        for start in range(0, len(self.weights), _BLOCK):
            part = slice(start, start + _BLOCK)
            centred = self.features[part] - self.means
            total += (centred * self.weights[part, None]).T @ centred
        return total / len(self.weights)

    @cached_property
    def error(self) -> Array:
        """S + C/N: the noise, and the sampling error of the private rows."""
        return self.covariance + self.spread / self.rows

    @cached_property
    def _shared_axes(self) -> tuple[Array, Array]:
        """Variances over the ridge's along common axes, (d,), and B, (d, d), for a stable inverse.

        B B' = R^-1 and B'C B is diagonal.
        """
        root = np.linalg.cholesky(ridge_of(self.covariance, self.relative))
        inverse = np.linalg.inv(root)
        scaled = inverse @ self.spread @ inverse.T
        spreads, axes = np.linalg.eigh((scaled + scaled.T) / 2)
        return np.maximum(spreads, 0.0), np.asarray(inverse.T @ axes)

    @cached_property
    def fit(self) -> Array:
        """A with A'A = (C + alpha R)^-1, the fit's inverse Hessian, shape (d, d)."""
        spreads, axes = self._shared_axes
        return np.asarray((axes / np.sqrt(spreads + self.credit)).T)

    @cached_property
    def _calibrator(self) -> Array:
        """(C + n S)^-1 with n the calibration's credit, shape (d, d); zero without one."""
        return np.asarray(np.linalg.inv(self.spread + self.calibration * self.covariance))

    @cached_property
    def base_error(self) -> Array:
        """E with E E' = (K - G) C (K - G)/M, K the calibrator, G = A'A, shape (d, d)."""
        if not np.isfinite(self.calibration):
            return np.zeros_like(self.covariance)
        spreads, axes = np.linalg.eigh(self.spread)
        root = axes * np.sqrt(np.maximum(spreads, 0.0) / self.base_rows)
        return np.asarray((self._calibrator - self.fit.T @ self.fit) @ root)

    @cached_property
    def pull(self) -> Array:
        """Theta's move at credit alpha/u, u = `PULL`, times the root of `PULLED`, shape (d,).

        (C + alpha R/u)^-1 r (1 - 1/u), to first order, r the residual alpha R theta.
        """
        left = self.residual
        if self.theta is not None:  # by this law's R: that of the fit is about other means
            left = self.credit * (ridge_of(self.covariance, self.relative) @ self.theta)
        if left is None:
            return np.zeros_like(self.means)
        spreads, axes = self._shared_axes
        reach = PULLED**0.5 * (1 - 1 / PULL) / (spreads + self.credit / PULL)
        return np.asarray(axes @ (reach * (axes.T @ left)))

    @cached_property
    def _tilt(self) -> Array:
        """The fit's theta, stated or from the residual alpha R theta; zero where it is unknown.

        Where the credit of asked means is tiny, a rounded residual does not determine theta.
        """
        if self.theta is not None:
            return self.theta
        if self.residual is None:
            return np.zeros_like(self.means)
        _, axes = self._shared_axes
        return np.asarray(axes @ (axes.T @ self.residual) / self.credit)

    @cached_property
    def prior(self) -> Array:
        """V of each row, shape (n,), more where the log ratio is large: e_j has v_j n/w_j."""
        log_ratio = (self.features - self.means) @ self._tilt
        found_wrong = np.asarray(MOVED * np.clip(log_ratio, -FAR, FAR) ** 2)
        return np.asarray(self.doubt / self.credit + found_wrong)

    def _weighted(self, influence: Array) -> Array:
        """Centred influence values times weights over n, shape (n, p)."""
        share = self.weights / len(self.weights)
        return np.asarray(share[:, None] * (influence - share @ influence))

    def calibrated(self, influence: Array) -> Array:
        """Influence values less what calibration removes of the rows' sampling error, (n, p)."""
        if not np.isfinite(self.calibration):
            return influence
        centred = influence - self.weights @ influence / len(self.weights)
        slope = self._calibrator @ (self.features.T @ self._weighted(influence))
        return np.asarray(centred - (self.features - self.means) @ slope)

    def _seen(self, influence: Array) -> tuple[Array, Array]:
        """K_gg, shape (p,), and A K_Fg, shape (d, p), of influence values."""
        w, n = self.weights, len(self.weights)
        g = influence - w @ influence / n
        cross = self.features.T @ (w[:, None] * g) / n
        return np.asarray(w @ g**2 / n), self.fit @ cross

    def variances(self, influence: Array, *, step: float | Array = 1.0) -> tuple[Array, Array]:
        """Variances of weighted estimates, (p,) each: of known law, and guessed.

        With P = (C + alpha R)^-1 K_Fg and Q = (C + n S)^-1 K_Fg: P'(S + C/N) P + (Q - P)'C (Q -
        P)/M is known; mean(w v (g - P'phi)^2) and the squared pull are guessed, v the `prior` over
        `step`, of all or of each, shape (p,). The rows' own sampling error is not included.
        """
        _, half = self._seen(influence)
        slope = self.fit.T @ half
        share = self.weights / len(self.weights)
        missed = influence - share @ influence - (self.features - self.means) @ slope
        unexplained = (share * self.prior) @ missed**2 / step
        seen = (slope * (self.error @ slope)).sum(axis=0)
        cross = self.features.T @ self._weighted(influence)
        seen += ((self.base_error.T @ cross) ** 2).sum(axis=0)
        return np.asarray(seen), np.asarray(unexplained + (self.pull @ cross) ** 2)

    @property
    def effective_rows(self) -> float:
        """Kish's effective number of the published rows."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())

    @property
    def repeats(self) -> float:
        """Factor on the rows' sampling variance, for repeated rows and for `published`."""
        size = len(self.weights) / (self.published or len(self.weights))
        return size * max(1.0, self.effective_rows / self.base_rows)

    def parts(self, estimate: Linearised) -> dict[str, Array]:
        """Variance of each value by source, shape (p,) each: `rows`, `means` and `prior`.

        `people` is added for k > 1 rows a person: (k - 1) mean(w g^2)/N, as all k may be alike.
        """
        pushed = self.weights[:, None] * self.calibrated(estimate.influence)
        pushed -= pushed.mean(axis=0)
        rows = (pushed**2).sum(axis=0) / len(pushed) ** 2
        step, inside = np.ones(len(rows)), np.zeros(len(rows))
        if not estimate.facts.get("smooth", True):
            is_known = np.isfinite(estimate.facts["inside"])
            step = np.where(is_known, STEP, 1.0)
            inside = np.where(is_known, estimate.facts["inside"], 0.0)
        means, prior = self.variances(estimate.influence, step=step)
        parts = {"rows": self.repeats * rows, "means": means, "prior": prior + inside**2}
        if self.max_rows > 1:
            share = self.weights / len(self.weights)
            parts["people"] = (self.max_rows - 1) / self.rows * (share @ estimate.influence**2)
        return parts

    def support(self, estimate: Linearised) -> Array:
        """Share of the prior's variance that the measured means remove, shape (p,)."""
        total, half = self._seen(estimate.influence)
        seen = (half**2).sum(axis=0)
        share = np.divide(seen, total, out=np.zeros_like(total), where=total > 0)
        return np.asarray(np.clip(share, 0.0, 1.0))

    def objections(self, estimate: Linearised, parts: dict[str, Array]) -> list[list[Objection]]:
        """What keeps each value from `use`: `verdict.objections`."""
        base = base_objections(self.effective_rows, self.base_rows, self.base_k_hat)
        return objections(estimate, self.support(estimate), parts, base=base)

    def replicates(self, count: int, rng: np.random.Generator) -> ReplicateWeights:
        """Replicate weights whose spread over any smooth estimate is its error.

        Each is w (1 + step e), where `step` keeps every weight positive. `rng` draws no privacy
        noise.
        """
        n, w = len(self.weights), self.weights
        spread = np.sqrt(n * self.prior / np.maximum(w, _LEAST))
        root = np.linalg.cholesky(self.error)
        chance = np.sqrt(self.repeats)
        people = np.sqrt((self.max_rows - 1) / self.rows * n / np.maximum(w, _LEAST))[:, None]
        replicates = np.empty((n, count))
        for start in range(0, count, _DRAWN):
            size = min(_DRAWN, count - start)
            jitter = spread[:, None] * _signs(rng, n, size)
            shift = self.features.T @ (w[:, None] * jitter) / n
            shift -= np.outer(self.means, w @ jitter / n)
            error = root @ rng.standard_normal((len(root), size)) - shift
            theta = self.fit.T @ (self.fit @ error)
            sampling = chance * self.calibrated(_signs(rng, n, size))
            theta += self.base_error @ rng.standard_normal(theta.shape)
            theta += np.outer(self.pull, rng.standard_normal(size))
            moved = jitter + self.features @ theta + sampling
            if self.max_rows > 1:
                moved += people * _signs(rng, n, size)
            replicates[:, start : start + size] = moved - w @ moved / n
        step = _POSITIVE / max(float(replicates.max()), -float(replicates.min()))
        replicates *= step
        replicates += 1
        replicates *= w[:, None]
        return ReplicateWeights(weights=replicates, scale=1 / (count * step**2))


def _signs(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Random signs, shape (rows, columns)."""
    return np.asarray(rng.integers(0, 2, (rows, columns)) * 2.0 - 1.0, dtype=np.float64)


def law_of_means(
    parameters: Mapping[str, Any],
    schema: PublicSchema,
    rows: ScaledTable,
    log_weights: Array,
    *,
    facts: Mapping[str, Any],
) -> MeansLaw:
    """The law of published rows' weights, from public facts; KeyError if one is missing.

    `parameters` are those of the calibrated method, `facts` what its weights state, as in the
    certificate; `log_weights`: shape (n,). ReleaseError if they fit no law.
    """
    ranges = Ranges.from_json(facts, schema)
    stack = Stack(
        schema=schema,
        shares={str(part): float(share) for part, share in parameters["features"].items()},
        scales=tuple(float(scale) for scale in parameters["scales"]),
        frequencies=int(parameters["frequencies"]),
        omega_seed=int(parameters["omega_seed"] or 0),
        ranges=ranges,
    )
    if ROOM in stack.shares:
        stack = stack.with_chosen(Chosen.from_json(facts, schema))
    one_way = OneWayLaw.from_json(facts["one_way"], schema) if "one_way" in facts else None
    scale = float(parameters["scale"])
    weights, features = mean_one_weights(log_weights), all_features(stack, one_way, rows)
    credit, rows_told = float(facts["credit"]), float(facts["rows"])
    least = float(facts.get("least_credit", credit))
    residual = _of_features(facts, "residual", features.shape[1])
    theta = _of_features(facts, "theta", features.shape[1]) if "theta" in facts else None
    if stack.halved - ranges.cuts.keys():
        raise ReleaseError(field="cuts", allowed="those of every number that is halved")
    if not np.isin(facts.get("forced", ()), stack.asked).all():
        raise ReleaseError(field="certificate", allowed="`forced` features that questions declared")
    if not (0 < least <= credit < np.inf and 0 < rows_told < np.inf):
        allowed = "`rows`, `credit`, and `least_credit` of at most `credit`, finite and > 0"
        raise ReleaseError(field="certificate", allowed=allowed)
    noise = means_noise(
        scale=scale,
        rows=rows_told,
        constant=float(parameters["constant"]),
        about=weights @ features / len(features),
        known=one_way,
    )
    counts = () if one_way is None else one_way.variances
    law = MeansLaw(
        count_noise=math.sqrt(max(counts, default=0.0)),
        bins=_bins(
            stack,
            {} if one_way is None else one_way.bins_of(rows),
            rows,
            off=_off(facts, residual, noise=scale / rows_told),
        ),
        features=features,
        weights=weights,
        covariance=noise,
        rows=rows_told,
        credit=credit,
        doubt=credit / least,
        base_rows=float(facts["effective_base_rows"]),
        calibration=float(facts.get("calibration", np.inf)),
        residual=residual,
        theta=theta,
        relative=_relative(facts, credit, stack, size=features.shape[1]),
        max_rows=int(parameters.get("max_rows", 1)),
    )
    positive = (law.base_rows, scale, min(law.calibration, 1.0), *np.diag(noise))
    if not all(0 < number < np.inf for number in positive):
        allowed = "finite numbers > 0 for the noise, scale and base rows of measured weights"
        raise ReleaseError(field="certificate", allowed=allowed)
    return law


def _of_features(facts: Mapping[str, Any], name: str, size: int) -> Array:
    values = np.asarray(facts[name], dtype=np.float64)
    if values.shape != (size,) or not np.isfinite(values).all():
        raise ReleaseError(field="certificate", allowed=f"a finite `{name}` for each feature")
    return values


def _off(facts: Mapping[str, Any], residual: Array, *, noise: float) -> Array:
    """By how many deviations each feature's weighted mean is off its noisy one; NaN: not forced."""
    forced = np.asarray(facts.get("forced", ()), dtype=np.int64)
    off = np.full(len(residual), np.nan)
    off[forced] = residual[forced] / noise
    return off


def _bins(
    stack: Stack,
    known: Mapping[str, NDArray[np.int32]],
    rows: ScaledTable,
    *,
    off: Array,
) -> dict[str, NDArray[np.int32]]:
    """Each row's bin, of whichever has fewer rows: the generator's, or the smallest half.

    Halves are those that a question measured (`Stack.halves_of`).
    """
    bins = dict(known)
    for name, halves in stack.halves_of(rows, off):
        if name in known:
            is_smaller = (halves > 1) & (_alike(halves) <= _alike(known[name]))
            bins[name] = np.where(is_smaller, halves, -1 - known[name])
        elif halves.min() > 1:
            bins[name] = halves
    return bins


def _alike(bins: NDArray[np.int32]) -> NDArray[np.intp]:
    """How many rows have each row's bin."""
    _, places, counts = np.unique(bins, return_inverse=True, return_counts=True)
    return np.asarray(counts[places])


def expected_law(
    stack: Stack,
    rows: SyntheticTable,
    *,
    noise: SumNoise,
    credit: float | None,
    published: int,
) -> MeansLaw:
    """The law that `measured` weights are expected to have, on public rows of equal weight.

    It scales the rows' sampling error to `published` rows. With a `credit` of the generator, means
    that were asked for are kept to unless they are too loud, as in `credit.reweight`. Without, the
    credit is the largest and all means are kept to, whatever their noise: an upper bound. `noise`
    is that of the calibrated sum.
    """
    features, nominal_rows = all_features(stack, None, rows.scaled), noise.nominal_rows
    covariance = means_noise(
        scale=noise.law.scale, rows=nominal_rows, constant=noise.constant,
        about=features.mean(axis=0),
    )  # fmt: skip
    most = np.inf if credit is None else loudest(credit) * features.var(axis=0)
    is_kept = np.diag(covariance) <= most
    relative = np.ones(stack.dimension)
    relative[stack.asked[is_kept[stack.asked]]] = _FORCED_CREDIT
    off = np.where(relative < 1, 0.0, np.nan)
    return MeansLaw(
        features=features, weights=np.ones(rows.rows), covariance=covariance, rows=nominal_rows,
        credit=MOST_CREDIT * nominal_rows if credit is None else credit, relative=relative,
        calibration=rows.rows, max_rows=noise.unit.max_rows, published=published,
        bins=_bins(stack, {}, rows.scaled, off=off),
    )  # fmt: skip


def _relative(facts: Mapping[str, Any], credit: float, stack: Stack, *, size: int) -> Array | None:
    """`Targets.relative`, from the credits that the facts state; ReleaseError if they are none."""
    told = {name: float(facts.get(name, credit)) for name in ("pairs_credit", "forced_credit")}
    if wrong := [name for name, value in told.items() if not 0 < value <= credit]:
        allowed = f"`{wrong[0]}` above 0, at most `credit`"
        raise ReleaseError(field="certificate", allowed=allowed)
    forced = np.asarray(facts.get("forced", ()), dtype=np.int64)
    if set(told.values()) == {credit}:
        return None
    relative = np.ones(size)
    relative[stack.pairs] = told["pairs_credit"] / credit
    relative[forced] = told["forced_credit"] / credit
    return relative
