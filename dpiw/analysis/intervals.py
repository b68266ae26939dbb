"""Confidence intervals for population parameters, from weighted synthetic rows.

The error of an estimate has five parts, each with a variance that follows from released values:

- rows: the synthetic rows are a sample (sandwich);
- noise: the privacy noise z in the coefficients, of published law;
- fitting: the synthetic rows the weights were fitted on are another sample;
- private: the confidential rows are themselves a sample, of about n0 people;
- shrinkage: the penalty keeps the coefficients short of the truth; taken as random, with the
  spread that the released coefficients show.

What no interval holds is a misfit of the generator that the weights' features do not see. `support`
is the share of the estimate they do see; `verdicts` say whether that is enough, whether
shrinkage, the one part that is a guess, is small, and whether the weights are stable enough for
linearisation. On simulated populations the noise-aware interval covers where they say `use`, and
can fail badly below (benchmarks/coverage.py). The thresholds are our choice, made after looking
at such simulations.

The release's own verdict answers another question: whether weights gain anything on the unweighted
rows. Weights that are noise alone gain nothing, and their noise-aware interval is still right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
import pandas as pd

from dpiw.analysis.noise import Spectrum, WeightLaw, spread, tilt
from dpiw.analysis.sample import Array, Estimate, Source, WeightedSample, weighted_sample
from dpiw.diagnostics import Verdict, diagnose
from dpiw.errors import ReleaseError

NOISE_AWARE = ("noise_aware", "noise_aware_bootstrap")
METHODS = (*NOISE_AWARE, "sandwich", "bootstrap")

SUPPORT_USE, SUPPORT_CARE = 0.9, 0.5
"""Least support for the verdicts `use` and `use with care`."""

SHRINKAGE_USE = 0.25
"""Most that shrinkage may be of an interval's variance for the verdict `use`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Interval:
    """Intervals of an estimate's values.

    Attributes:
        names: length p.
        values: the estimates, shape (p,).
        lower, upper: bounds, shape (p,).
        level: nominal coverage of each.
        method: how they were made.
        parts: variance by source, each shape (p,); empty for the bootstraps.
        support: share of each estimate that the weights can correct, shape (p,), NaN if unknown.
        verdicts: of each noise-aware interval: `use`, `use with care` or `do not use`; the others
            are `not assessed`.
    """

    names: tuple[str, ...]
    values: Array
    lower: Array
    upper: Array
    level: float
    method: str
    parts: Mapping[str, Array] = field(default_factory=dict)
    support: Array
    verdicts: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """One row per value."""
        return pd.DataFrame(
            {
                "estimate": self.values,
                "lower": self.lower,
                "upper": self.upper,
                "support": self.support,
                "verdict": self.verdicts,
            },
            index=list(self.names),
        )


def unshrunk(source: Source) -> WeightedSample:
    """The sample under weights whose shrinkage is undone as far as the noise allows.

    The weights follow the posterior mode of the coefficients instead of the released ones
    (`dpiw.analysis.noise.tilt`): less noise where there is nothing to correct, less bias where
    there is much. Estimators take the result as any other source.

    Raises:
        ReleaseError: the source's weights have no known law.
    """
    sample = weighted_sample(source)
    found = tilt(sample.known_law, sample.weights)
    return replace(sample, weights=found.weights, tilt=found, original=sample, totals=None)


def variance_parts(estimate: Estimate) -> dict[str, Array]:
    """Variance of each value by source, shape (p,) each; see the module's text.

    Raises:
        ReleaseError: the weights have no known law.
    """
    sample, g = estimate.sample, estimate.influence
    law, w = sample.known_law, sample.weights[:, None]
    # By the chain rule a shift of the coefficients moves the values by mean(w g phi').
    # mean(w g) is zero for ratios; for totals it is the weights' scale, which z moves as well.
    slope = (w * g).T @ law.features / len(g)
    found = {
        "rows": np.diag(estimate.covariance()),
        "private": (w * g**2).mean(axis=0) / law.nominal_rows,
    }
    if sample.tilt is not None:
        return found | {"coefficients": ((slope @ sample.tilt.factor) ** 2).sum(axis=1)}
    base = sample.spectrum
    squares = (slope @ base.directions) ** 2
    return found | {
        "noise": squares.sum(axis=1) * base.noise,
        "fitting": squares @ base.fitting,
        "shrinkage": squares @ (1 - base.shrinkage) ** 2 * spread(base),
    }


def _verdicts(sample: WeightedSample, share: Array, parts: Mapping[str, Array]) -> tuple[str, ...]:
    if not parts:
        return ("not assessed",) * share.size
    order = (Verdict.USE, Verdict.CARE, Verdict.DO_NOT_USE)
    guessed = parts.get("shrinkage", np.zeros(share.size))
    guessed = guessed / np.maximum(sum(parts.values()), 1e-300)
    # Effective sample size and k-hat alone: noise, shrinkage and signal are in the interval.
    stable = order.index(diagnose(np.log(np.maximum(sample.weights, 1e-300))).verdict)
    own = np.where(share >= SUPPORT_USE, 0, np.where(share >= SUPPORT_CARE, 1, 2))
    own = np.maximum(np.maximum(own, guessed > SHRINKAGE_USE), stable)
    return tuple(order[int(value)].value for value in own)


def confidence_interval(
    estimate: Estimate,
    *,
    level: float = 0.95,
    method: str | None = None,
    replicates: int = 400,
    rng: np.random.Generator | None = None,
) -> Interval:
    """Interval for each of an estimate's values.

    Args:
        estimate: of this package.
        level: nominal coverage, in (0, 1).
        method: `noise_aware` (the default where the weights' law is known): all five parts, by
            linearisation. `noise_aware_bootstrap`: the same errors drawn and the estimator
            recomputed: slower, for estimates that are far from linear. `sandwich`: the synthetic
            rows alone. `bootstrap`: the same by resampling rows. The last two ignore the privacy
            noise and are too narrow for the population; they are the default for a pair
            (table, weights), of which nothing more is known.
        replicates: of the bootstraps.
        rng: of the bootstraps.

    Raises:
        ReleaseError: unknown method, a law that is needed and not known, or no `rng`.
    """
    if not 0 < level < 1:
        raise ReleaseError("level: expected a number between 0 and 1")
    chosen = method or ("sandwich" if estimate.sample.law is None else "noise_aware")
    if chosen not in METHODS:
        raise ReleaseError(f"method: expected one of {', '.join(METHODS)}")
    known = {} if estimate.sample.law is None else variance_parts(estimate)
    parts: dict[str, Array] = {}
    if chosen in ("sandwich", "noise_aware"):
        alone = {"rows": np.diag(estimate.covariance())}
        parts = alone if chosen == "sandwich" else known or variance_parts(estimate)
        reach = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(sum(parts.values()))
        low, high = estimate.values - reach, estimate.values + reach
    else:
        if rng is None:
            raise ReleaseError(f"method {chosen}: expected rng=numpy.random.default_rng(a seed)")
        drawn = _draws(estimate, replicates, rng, noisy=chosen != "bootstrap")
        low, high = 2 * estimate.values - np.quantile(
            drawn, [(1 + level) / 2, (1 - level) / 2], axis=0
        )
    share = _support(estimate)
    return Interval(
        names=estimate.names, values=estimate.values, lower=low, upper=high, level=level,
        method=chosen, parts=parts, support=share,
        verdicts=_verdicts(estimate.sample, share, known if chosen in NOISE_AWARE else {}),
    )  # fmt: skip


def _support(estimate: Estimate) -> Array:
    sample = estimate.sample
    if sample.law is None:
        return np.full(estimate.values.size, np.nan)
    return sample.sight.support(estimate.influence)


def _draws(estimate: Estimate, replicates: int, rng: np.random.Generator, *, noisy: bool) -> Array:
    """Estimates under drawn errors, shape (replicates, p).

    Rows get random multipliers of mean one and variance 1 (the synthetic sample) plus
    n/(n0 w) (the confidential sample, whose rows are the weighted ones).
    """
    sample = estimate.sample
    w = sample.weights
    if not noisy:
        return np.array(
            [estimate.refit(w * rng.exponential(size=w.size)) for _ in range(replicates)]
        )
    law = sample.known_law
    if not estimate.facts.get("normalised", True):
        raise ReleaseError("method: bootstraps hold no scale; totals take `noise_aware`")
    spread_of_rows = 1 + w.size / (law.nominal_rows * np.maximum(w, 1e-12))
    base = sample.spectrum
    prior = spread(base)
    found = []
    for _ in range(replicates):
        moved = _shifted(sample, law, base, prior, rng)
        multipliers = rng.gamma(1 / spread_of_rows, spread_of_rows)
        found.append(estimate.refit(moved * multipliers))
    return np.array(found)


def _shifted(
    sample: WeightedSample,
    law: WeightLaw,
    base: Spectrum,
    prior: float,
    rng: np.random.Generator,
) -> Array:
    """Weights under one drawn error of the coefficients."""
    if sample.tilt is not None:
        shift = sample.tilt.factor @ rng.standard_normal(sample.tilt.factor.shape[1])
        moved = sample.weights * np.exp(law.features @ shift)
        return np.asarray(moved / moved.mean())
    other = np.sqrt(base.fitting + (1 - base.shrinkage) ** 2 * prior)
    return law.reweighted(
        law.draw(rng) + base.directions @ (other * rng.standard_normal(other.size))
    )
