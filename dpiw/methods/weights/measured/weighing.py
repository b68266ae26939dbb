"""From a measurement of means to weighted rows and their verdict: post-processing, free."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpiw.data.row_weights import ReplicateWeights
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import SyntheticTable
from dpiw.methods.one_way import OneWayMarginals
from dpiw.methods.weights.diagnostics import Diagnostics, Stability, diagnose, objection
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.methods.weights.measured.choice import Chosen
from dpiw.methods.weights.measured.constants import GAIN_USE, MOST_FITTED, P_VALUE_CARE, P_VALUE_USE
from dpiw.methods.weights.measured.credit import Reweighted, reweight
from dpiw.methods.weights.measured.features import ROOM, Stack
from dpiw.methods.weights.measured.law import MeansLaw
from dpiw.methods.weights.measured.many_rows import StreamedRows, corrected
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.measured.scoring import Scoring
from dpiw.methods.weights.measured.sums import SumNoise
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.thinning import calibrated
from dpiw.methods.weights.measured.verdict import base_objections
from dpiw.methods.weights.weigh import Weights, normalised
from dpiw.privacy.measurement import Measurement

Array = NDArray[np.float64]

_WRITTEN = 2**24
"""Most entries of a stored feature matrix: 128 MiB."""

_ROUGH = 4.0
"""Squared distance at which a fit to some rows ends that goes on with all, as a share of theirs."""

_TOLD = 5000
"""Least rows whose noise is reported: their mean square is within about 2% of that of all."""

RULE = (
    "use: evidence test p <= 0.001, expected gain >= 20%, effective base rows >= 500, k-hat of the"
    " base weights < 0.7, and of the published rows at least 25, effective ones >= 30% and k-hat <"
    " min(1 - 1/log10(rows), 0.7). use with care: p <= 0.05, effective base rows >= 50, k-hat < 1,"
    " effective published rows >= 5% and >= 50, also where steps over more than 100,000 rows ended"
    " further from the fit than allowed. do not use: otherwise."
    " Evidence test: whether the noisy means are further from the generator's than"
    " privacy noise and sampling error bring about, by the ratio of the evidences, simulated;"
    " a generator that is right on the features is called wrong with probability p. Expected"
    " gain: Stein's estimate of the share of the means' squared error that the weights remove."
    " Effective rows: Kish's; the base: the rows that the published ones were chosen from. k-hat:"
    " shape of a generalised Pareto law fitted to the largest weights; none, which passes, when"
    " they are all equal, or when it is too large and the five largest exceed the others by less"
    " than a quarter of the sum of squared weights. Intervals ask the same of both kinds of rows."
)
"""The verdict's rule, with the numbers of `constants`."""


class Fitted(Protocol):
    """The settings of `measured` weights, as the fit reads them."""

    @property
    def calibrated(self) -> SumNoise | None:
        """The noise of the sum; None before `calibrate`."""

    @property
    def credit(self) -> str | float:
        """`EVIDENCE`, or alpha itself."""

    @property
    def design_effect(self) -> float:
        """Largest design effect of the published weights."""

    def stack(self, schema: PublicSchema, ranges: Ranges | None = None) -> Stack:
        """The public feature map."""

    def targets(
        self, measurement: Measurement, *, about: Array, known: OneWayMarginals | None = None
    ) -> Targets:
        """Noisy means and the covariance of their noise."""


def weigh_measured(
    estimator: Fitted,
    measurement: Measurement,
    base: SyntheticTable,
    *,
    rows: int,
    rng: np.random.Generator,
    known: OneWayMarginals | None = None,
) -> Weights:
    """Weight a base, and choose from it the rows to publish, of mean weight one.

    A base of more than `MOST_FITTED` rows is judged on its first rows. The weights keep to the
    `known` distributions as far as their noise allows. The same `rng` state gives the same rows.

    Raises:
        WeightError: the measurement does not fit, or the tilting cannot be solved.
    """
    ranges = Ranges.from_json(measurement.facts, base.schema)
    stack = estimator.stack(base.schema, ranges)
    measured = Chosen.from_json(measurement.facts, base.schema)
    if ROOM in stack.shares:
        stack = stack.with_chosen(measured)
    law = None if known is None else known.law
    dimension = stack.dimension + (0 if law is None else law.dimension)
    scoring = Scoring(stack=stack, known=law)
    streamed = partial(StreamedRows, scoring=scoring)

    def taken(chosen: NDArray[np.int64], log_weights: np.ndarray | None = None) -> BaseRows:
        if chosen.size > MOST_FITTED:
            return streamed(chosen.size, partial(base.taken, chosen), log_weights=log_weights)
        held = base.chosen(chosen).scaled
        if chosen.size > _WRITTEN // dimension:
            return streamed(chosen.size, lambda: (held,), log_weights=log_weights)
        return BaseRows(scoring.features(held), log_weights=log_weights)

    all_rows = streamed(base.rows, base.batches)
    is_large = base.rows > MOST_FITTED
    base_rows = all_rows.some(MOST_FITTED) if is_large else taken(np.arange(base.rows))
    targets = estimator.targets(measurement, about=base_rows.untilted[0], known=known)
    if is_large:
        targets = targets.with_error(base_rows.untilted[1], base_rows.rows, share=_ROUGH)
    noise_of_sum = estimator.calibrated
    pairs = None if noise_of_sum is None or noise_of_sum.is_loud else stack.pairs
    reweighted = reweight(
        base_rows, targets, credit=estimator.credit, rng=rng, pairs=pairs, asked=stack.asked
    )
    targets = reweighted.targets
    credit, pairs_credit = reweighted.tilt.credit, reweighted.pairs_credit
    credits = f"credit {credit:.4g}"
    if pairs_credit != credit:
        credits += f", of products {pairs_credit:.4g}"
    if reweighted.forced.size:
        credits += f", of {reweighted.forced.size} asked for {reweighted.forced_credit:.4g}"
    steps = [f"tilt {base.rows} base rows to noisy means ({credits})"]
    if is_large:
        reweighted = replace(reweighted, tilt=corrected(reweighted.tilt, all_rows, targets))
        steps.append(f"tilt fitted to {MOST_FITTED} of them, corrected to all")
    logs = normalised(reweighted.tilt.log_weights)
    del base_rows  # the features of the chosen rows replace its own
    aims = replace(targets, means=reweighted.tilt.means, relative=None)
    if is_large:
        aims = aims.with_error(reweighted.tilt.covariance, rows)
    choice = calibrated(
        logs,
        rows,
        aims,
        taken=taken,
        design_effect=estimator.design_effect,
        law=reweighted.tilt,
        rng=rng,
    )
    tau = choice.exponent
    steps.append(f"choose {rows} rows with probability in proportion to weight^{tau:.4g}")
    if np.isfinite(choice.credit):
        steps.append("calibrate their means to the base's")
    steps.append("self-normalise")
    chosen = choice.chosen
    subset = slice(None, None, max(1, rows // _TOLD))
    noise = reweighted.log_weight_noise(taken(chosen[subset]))
    return Weights(
        log_weights=choice.log_weights,
        steps=tuple(steps),
        noise=noise,
        diagnostics=_judged(reweighted, choice.log_weights, logs, noise, subset),
        chosen=chosen,
        facts={
            "measured": reweighted.to_json()
            | {"base_rows": base.rows}
            | ranges.to_json()
            | measured.to_json()
            | {"exponent": tau, "distinct_rows": choice.distinct}
            | ({} if law is None else {"one_way": law.to_json()})
            | ({"calibration": choice.credit} if np.isfinite(choice.credit) else {}),
        },
    )


def _judged(
    reweighted: Reweighted,
    published: np.ndarray,
    base: np.ndarray,
    noise: np.ndarray,
    subset: slice,
) -> Diagnostics:
    """Diagnostics of the published weights by `RULE`; `noise` is that of the rows in `subset`."""
    shares = np.exp(published[subset] - published.max())
    stable, of_base = diagnose(published), Stability.of(base)
    diagnostics = replace(
        stable,
        noise=math.sqrt(np.average(noise**2, weights=shares)),
        k_hat=of_base.k_hat,
        rule=RULE,
    )
    p, gain = reweighted.p_value, reweighted.gain
    findings = [
        *base_objections(
            stable.effective_sample_size, of_base.effective_sample_size, of_base.k_hat
        ),
        *objection(
            not p <= P_VALUE_USE,
            not p <= P_VALUE_CARE,
            f"evidence test p {p:.2g} (expected <= {P_VALUE_USE:g})",
        ),
        *objection(
            not gain >= GAIN_USE,
            not gain >= -1,
            f"expected gain {gain:.3g} (expected >= {GAIN_USE:g})",
        ),
        *objection(
            (distance := reweighted.tilt.distance) > 1,
            False,
            f"steps ended {math.sqrt(distance):.2g} times as far from the fit as allowed",
        ),
    ]
    return diagnostics.judged_with(findings, rule="")


def replicate_measured(law: MeansLaw, measurement: Measurement, *, count: int) -> ReplicateWeights:
    """Return replicate weights of published rows, with chance from the measurement's digest."""
    seed = np.random.SeedSequence(int(measurement.digest[:32], 16), spawn_key=(1,))
    return law.replicates(count, np.random.default_rng(seed))
