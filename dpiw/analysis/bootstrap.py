"""The whole release played again on released rows: an interval that holds the generator's errors.

The weighted synthetic population stands in for the truth. Tables of n0 rows are drawn from it (of k
rows alike for each person, where a person may have k), and each goes through generator, noise and
weights with the release's own settings; how the estimates miss the value that is then known is how
the release may have missed. Free post-processing.

It repeats the errors that the stand-in population can show. Dependence that neither generator nor
weights kept is not in it, so a rehearsal does not warn of its loss: in a small study (12 releases a
cell) such estimands were covered 0 to 75% of the time, no better than by the closed form. Judge
them by `support`.

Source: Ferrando, Wang & Sheldon (2022), parametric bootstrap for DP releases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpiw.analysis.optional import optional
from dpiw.analysis.sample import Array, Estimate, Source, WeightedSample, weighted_sample
from dpiw.errors import ReleaseError, SpecError, WeightError

if TYPE_CHECKING:
    from dpiw.analysis.release import Release
    from dpiw.methods.play import Played
    from dpiw.methods.recipe import Recipe

MIN_REPLICATES = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Rehearsal:
    """What the mechanism did to a population like the released one.

    Attributes:
        names: of the values, length p.
        values: the release's estimate, shape (p,).
        truth: the estimate on the stand-in population, shape (p,).
        replays: estimates of the replayed releases, shape (replicates, p).
        failed: replays in which the estimator could not be computed.
    """

    names: tuple[str, ...]
    values: Array
    truth: Array
    replays: Array = field(repr=False)
    failed: int

    @property
    def bias(self) -> Array:
        """Mean error of a replay, shape (p,)."""
        return np.asarray(self.replays.mean(axis=0) - self.truth)

    @property
    def spread(self) -> Array:
        """Standard deviation of the replays, shape (p,)."""
        return np.asarray(self.replays.std(axis=0, ddof=1))

    def interval(self, *, level: float = 0.95) -> tuple[Array, Array]:
        """Bounds: the estimate less the bias, plus and minus a t quantile times the spread."""
        from statistics import NormalDist

        z = NormalDist().inv_cdf((1 + level) / 2)
        degrees = len(self.replays) - 1
        # Cornish-Fisher expansion of the t quantile; the mean's own error enters as 1/replicates.
        reach = z + (z**3 + z) / (4 * degrees)
        width = reach * self.spread * np.sqrt(1 + 1 / len(self.replays))
        return self.values - self.bias - width, self.values - self.bias + width


@dataclass(frozen=True, kw_only=True, eq=False)
class Mechanism:
    """A release's generator and weights, calibrated as its certificate says.

    Attributes:
        recipe: what the release is made with.
        nominal_rows: n0, the size of a stand-in table.
    """

    recipe: Recipe
    nominal_rows: int

    def release(self, truth: Any, rng: np.random.Generator) -> WeightedSample:
        """Publish the scaled rows `truth` (public stand-ins) once more, in memory."""
        from dpiw.data.tables import PrivateTable
        from dpiw.methods.play import play
        from dpiw.privacy.randomness import SeededNoise

        table = PrivateTable(schema=self.recipe.schema, scaled=truth)
        noise = SeededNoise(int(rng.integers(2**62)))
        return played_sample(
            play(self.recipe, table, noise=noise, rng=rng), nominal_rows=self.nominal_rows
        )


def played_sample(played: Played, *, nominal_rows: int) -> WeightedSample:
    """Rows of a release made in memory, with their weights and the weights' law.

    Args:
        played: the release.
        nominal_rows: n0.
    """
    from dpiw.analysis.weight_distribution import PublishedWeights, law_of_weights

    rows, weights, estimator = played.rows, played.weights, played.estimator
    if estimator is None:
        return replace(weighted_sample((rows.frame(), None)), schema=rows.schema)
    published = PublishedWeights(
        schema=rows.schema,
        rows=rows.scaled,
        log_weights=weights.log_weights,
        steps=weights.steps,
        nominal_rows=nominal_rows,
        diagnostics=weights.diagnostics.to_json() | dict(weights.facts),
    )
    law = law_of_weights(estimator.method, estimator.parameters(), published)
    exponentials = np.exp(weights.log_weights - weights.log_weights.max())
    weights_of_mean_one = exponentials / exponentials.mean()
    return WeightedSample(
        table=rows.frame(), weights=weights_of_mean_one, law=law, schema=rows.schema
    )  # fmt: skip


def mechanism_of(release: Release) -> Mechanism:
    """Rebuild generator and weights from a certificate.

    The certificate holds settings and noise, but not the effort each stage was calibrated with;
    that follows from its noise multiplier, or an epsilon where it has none, by bisection on the
    stage's own `calibrate`.

    Raises:
        ReleaseError: the mechanism cannot be rebuilt from this certificate.
    """
    from dpiw.data.schema import PublicSchema
    from dpiw.methods.generators.registry import make_generator
    from dpiw.methods.late_levels import FindsLevels
    from dpiw.methods.recipe import Recipe
    from dpiw.methods.weights.base import Weighing
    from dpiw.methods.weights.paper.steps import PostProcessing
    from dpiw.methods.weights.registry import make_weights

    event_to_json = optional("dpiw.privacy.accounting", extra="pipeline").event_to_json
    certificate = release.certificate
    schema = PublicSchema.from_mapping(release.schema)
    facts = {"schema": schema, "unit": certificate.unit, "nominal_rows": certificate.nominal_rows}
    pure = float(certificate.delta) == 0

    def calibrated(method: Any, stage: str) -> Any:
        record = next((s for s in certificate.stages if s.stage == stage), None)
        if record is None:
            raise ReleaseError(f"rehearsal: the certificate has no stage {stage}")
        certified_events = [dict(event) for event in record.events]
        return _calibrate(
            method, certified_events, facts,
            lambda m: [event_to_json(e) for e in m.events(schema=schema, unit=certificate.unit)],
        )  # fmt: skip

    generator, weighting = certificate.generator, certificate.weights
    if certificate.declared is not None:
        raise ReleaseError("rehearsal: rows that another tool made cannot be made again")
    uncalibrated = make_generator(generator["method"], generator["settings"], pure=pure)
    if isinstance(uncalibrated, FindsLevels):
        raise ReleaseError("rehearsal: levels that were found cannot be found again")
    weights = None
    if weighting.get("published", False):
        if weighting.get("post_processing", ()):
            raise ReleaseError("rehearsal: post-processed weights cannot be replayed")
        rows = len(release.table)
        try:
            weights = make_weights(weighting["method"], weighting["settings"], pure=pure, rows=rows)
        except SpecError as error:  # settings of an older version
            raise ReleaseError(f"rehearsal: this version has no such weights: {error}") from None
        if weights is not None and weights.needs_critic:
            raise ReleaseError("rehearsal: weights that ask the generator cannot be replayed")
        weights = calibrated(weights, weighting["stage"])
    recipe = Recipe(
        schema=schema,
        generator=calibrated(uncalibrated, "fit_generator"),
        weights=weights,
        weighing=Weighing(rows=len(release.table), post_processing=PostProcessing()),
    )
    return Mechanism(recipe=recipe, nominal_rows=certificate.nominal_rows)


def _calibrate(
    method: Any,
    certified_events: list[dict[str, Any]],
    facts: dict[str, Any],
    events_of: Callable[[Any], Any],
) -> Any:
    """The method at the effort whose events are `certified_events`.

    Raises:
        ReleaseError: no event tells the effort, or none of this version's efforts gives the events.
    """
    tells = ("noise_multiplier", "epsilon")  # the first falls as the effort grows, the second grows
    place, key = next(
        ((i, key) for key in tells for i, event in enumerate(certified_events) if key in event),
        (0, ""),
    )
    if not key:
        raise ReleaseError("rehearsal: the certificate states no noise that tells the effort")
    sign = -1 if key == "epsilon" else 1
    low, high, calibrated = -40.0, 40.0, None  # log effort
    for _ in range(100):
        middle = (low + high) / 2
        try:
            candidate = method.calibrate(rho=float(np.exp(middle)), **facts)
        except SpecError:  # too small an effort for the method
            low = middle
            continue
        calibrated = candidate
        if sign * events_of(calibrated)[place][key] > sign * certified_events[place][key]:
            low = middle
        else:
            high = middle
    if calibrated is None:
        raise ReleaseError("rehearsal: this version cannot rebuild the release's mechanism")
    events = events_of(calibrated)
    for ours, theirs in zip(events, certified_events, strict=True):
        numbers = [k for k, v in theirs.items() if isinstance(v, float)]
        if any(abs(ours[k] / theirs[k] - 1) > 1e-6 for k in numbers):
            raise ReleaseError("rehearsal: this version cannot rebuild the release's mechanism")
    return calibrated


def rehearse(
    source: Source,
    estimator: Callable[[Any], Estimate],
    *,
    rng: np.random.Generator,
    replicates: int = 100,
    mechanism: Mechanism | None = None,
) -> Rehearsal:
    """Replay the release and read off the estimator's error.

    Needs `dpiw[pipeline]`, and about the time of a release's fits per replicate.

    Args:
        source: the release.
        estimator: from a source to an `Estimate`, such as
            `lambda s: analysis.linear_regression(s, "income", ["age"])`.
        rng: the analyst's generator.
        replicates: replays, at least 20.
        mechanism: for a source that is not a `Release`; else rebuilt from the certificate.

    Raises:
        ReleaseError: too few replicates, or the mechanism cannot be rebuilt.
    """
    if replicates < MIN_REPLICATES:
        raise ReleaseError(f"replicates: expected at least {MIN_REPLICATES}")
    sample = weighted_sample(source)
    if mechanism is None:
        if sample.release is None:
            raise ReleaseError("rehearsal: expected a release, or its mechanism")
        mechanism = mechanism_of(sample.release)
    estimate = estimator(sample)
    shares = sample.weights / sample.weights.sum()
    scaled = mechanism.recipe.schema.scale(sample._frame)
    replays, failed = [], 0
    for _ in range(replicates):
        people = -(-mechanism.nominal_rows // sample.max_rows)
        people_drawn = rng.choice(len(shares), size=people, p=shares)
        chosen = np.repeat(people_drawn, sample.max_rows)[: mechanism.nominal_rows]
        replay = mechanism.release(scaled.take(chosen), rng)
        try:
            replays.append(estimator(replay).values)
        except (ReleaseError, WeightError):  # as where nobody is left in a group
            failed += 1
    if len(replays) < MIN_REPLICATES:
        raise ReleaseError("rehearsal: the estimator failed in most replays")
    return Rehearsal(
        names=estimate.names,
        values=estimate.values,
        truth=estimate.values,
        replays=np.array(replays),
        failed=failed,
    )
