"""Measured weights: one noisy sum of features is paid for; all fitting uses public numbers.

Source: docs/method.md section 14; closest relatives: Balog et al. (2018), Harder et al. (2021,
DP-MERF), Liu et al. (2021, PMW-Pub), McKenna et al. (2019).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.row_weights import MOST_NUMBERS
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, setting_error
from dpiw.methods.base import (
    FEATURE_SECONDS,
    FEWER_LEVELS,
    MOST_FEATURES,
    TILT_SECONDS,
    Running,
    StatedNoise,
    calibrated_for,
    check_effort,
    real,
    whole,
)
from dpiw.methods.one_way import MOST_INDICATORS, OneWayMarginals
from dpiw.methods.weights.base import (
    Normalisation,
    SampledRows,
    Weighing,
    WeightEstimator,
    one_draw,
)
from dpiw.methods.weights.measured.choice import (
    EFFORT,
    MOST_COUNTED,
    Chosen,
    chosen_blocks,
    epsilon_of,
)
from dpiw.methods.weights.measured.constants import MOST_FITTED
from dpiw.methods.weights.measured.features import (
    ROOM,
    Stack,
    asked_ranges,
    public_shares,
    with_first_moments,
    with_questions,
)
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.methods.weights.measured.sums import SumNoise, exact_sum, sum_noise
from dpiw.methods.weights.measured.targets import EVIDENCE, Targets, means_noise
from dpiw.methods.weights.questions import Question
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.mechanisms import noisy_vector
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.units import NoiseKind, PrivacyUnit

if TYPE_CHECKING:
    from dpiw.data.row_weights import ReplicateWeights
    from dpiw.methods.weights.measured.law import MeansLaw
    from dpiw.methods.weights.weigh import Weights

REPLICATES = (20, 1000)
"""Fewest and most: the relative error of a variance from R replicates is about sqrt(2/R)."""

MOST_FEATURES_HELD = 2**30
"""Most rows times features while replicates are made: 8 GiB."""

MOST_ROWS = 2**28
"""Most private rows of norm one, whose sums are far from being clipped."""

MOST_BLOCKS = 64
"""Most blocks that a private choice may name."""

_BESIDE = 0.5
"""Norm of the columns' centred values, where each chosen block has norm one."""

_SETTINGS = "weights.settings"

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Measured(WeightEstimator):
    """Settings of measured weights; frozen and public.

    Attributes:
        features: shares of the norm by part (`features.Stack`); None: by a rule of schema and
            noise.
        scales: of the Fourier frequencies, in public scales; None: by the same rule.
        frequencies: of the Fourier features, two features each.
        omega_seed: public integer that fixes the frequencies; None: the release's own.
        credit: `evidence`, or alpha itself.
        base_rows: number of generator rows that are weighted; None: `base_rows_for`.
        design_effect: largest design effect of the published weights; 1: no weights at all.
        replicates: number of replicate weights to publish; 0: none.
        choose: number of blocks that a private choice names (`choice`), beside `features`; 0: none.
        questions: what the release must answer; they add features of their own.
        ranges: of numeric columns, set by `for_rows`: of all unless the noise is loud, and of those
            that questions ask for; None: bounds.
    """

    features: Mapping[str, float] | None = None
    scales: tuple[float, ...] | None = None
    frequencies: int = 300
    omega_seed: int | None = None
    credit: str | float = EVIDENCE
    base_rows: int | None = None
    design_effect: float = 2.0
    replicates: int = 0
    choose: int = 0
    questions: tuple[Question, ...] = ()
    calibrated: SumNoise | None = None
    selection: float | None = None
    ranges: Ranges | None = None

    set_later: ClassVar[frozenset[str]] = frozenset(
        {"calibrated", "selection", "ranges", "questions"}
    )
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"debias": (False,)}
    method: ClassVar[str] = "measured"
    kind: ClassVar[str] = "measured"
    private: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = (
        "Weights move the generator's rows towards noisy means of public features; what none"
        " reaches keeps its error. dpiw.analysis.confidence_interval includes a guess of it"
        " (most of it: no `use`); ordinary standard errors leave it and the noise out.",
    )
    in_batches: ClassVar[bool] = True
    keeps_one_way: ClassVar[bool] = True
    measures_questions: ClassVar[bool] = True
    effort: ClassVar[float] = 0.3
    """Usual share of the effort: models improve with little of it, single columns hardly at all."""

    def __post_init__(self) -> None:
        if self.features is not None:
            if not isinstance(self.features, Mapping) or not self.features:
                raise setting_error(self, f"{_SETTINGS}.features", "shares, as {linear: 1}")
            shares = {
                str(part): real(f"{_SETTINGS}.features.{part}", share, above=1e-4, at_most=100)
                for part, share in self.features.items()
            }
            object.__setattr__(self, "features", shares)
        whole(f"{_SETTINGS}.choose", self.choose, low=0, high=MOST_BLOCKS)
        if self.choose and "fourier" in (self.features or {}):
            raise setting_error(self, f"{_SETTINGS}.features", "no fourier beside `choose`")
        if ROOM in (self.features or {}) and not self.choose:
            raise setting_error(self, f"{_SETTINGS}.features", "chosen beside `choose` alone")
        if self.scales is not None:
            if not isinstance(self.scales, list | tuple) or not 1 <= len(self.scales) <= 8:
                raise setting_error(self, f"{_SETTINGS}.scales", "a list of 1 to 8 numbers")
            scales = (real(f"{_SETTINGS}.scales", s, above=0, at_most=1e3) for s in self.scales)
            object.__setattr__(self, "scales", tuple(scales))
        whole(f"{_SETTINGS}.frequencies", self.frequencies, low=1, high=2048)
        if self.omega_seed is not None:
            whole(f"{_SETTINGS}.omega_seed", self.omega_seed, low=0, high=2**64 - 1)
        if self.credit != EVIDENCE:
            if isinstance(self.credit, str):
                raise setting_error(self, f"{_SETTINGS}.credit", "evidence or a number > 0")
            credit = real(f"{_SETTINGS}.credit", self.credit, above=0, at_most=1e15)
            object.__setattr__(self, "credit", credit)
        if self.base_rows is not None:
            whole(f"{_SETTINGS}.base_rows", self.base_rows, low=100, high=10**7)
        effect = real(
            f"{_SETTINGS}.design_effect", self.design_effect, above=1 - 1e-12, at_most=1e6
        )
        object.__setattr__(self, "design_effect", max(1.0, effect))
        if self.replicates != 0 or isinstance(self.replicates, bool):
            low, high = REPLICATES
            whole(f"{_SETTINGS}.replicates", self.replicates, low=low, high=high)

    def stack(self, schema: PublicSchema, ranges: Ranges | None = None) -> Stack:
        """The public feature map on this schema, within ranges of public rows."""
        shares, scales = public_shares(schema)
        if self.choose:
            own = {"linear": _BESIDE} if self.features is None else self.features
            shares = {ROOM: math.sqrt(self.choose), **own}
        return Stack(
            schema=schema,
            shares=shares if self.choose or self.features is None else self.features,
            scales=scales if self.scales is None else self.scales,
            frequencies=self.frequencies,
            omega_seed=self.omega_seed or 0,
            ranges=ranges,
        )

    def declared(self, questions: tuple[Question, ...], *, seed: int) -> Self:
        """With questions, whose terms `calibrate` adds; `seed` stands in for no `omega_seed`."""
        drawn = self.choose or self.features is None or "fourier" in self.features
        omega = seed if self.omega_seed is None and drawn else self.omega_seed
        return replace(self, questions=questions, omega_seed=omega)

    def base_rows_for(self, published_rows: int) -> int:
        """Number of base rows: as set, or 5 per published row within [10,000, 10^6]; free."""
        usual = max(10_000, min(5 * published_rows, 10**6))
        return max(self.base_rows or usual, published_rows)

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set the noise for effort `rho`: a multiplier of 1/sqrt(2 rho). May raise SpecError."""
        check_effort("weights", rho=rho, nominal_rows=nominal_rows)
        share = 1 - EFFORT if self.choose else 1.0
        if self.choose and not 0 < sum(_candidates(schema).widths(schema)) <= MOST_COUNTED:
            allowed = "0 for a schema without two columns that vary, or with so many pairs of them"
            raise setting_error(self, f"{_SETTINGS}.choose", allowed)
        stack, multiplier = self.stack(schema), 1 / math.sqrt(2 * share * rho)
        if self.features is None and not self.choose:
            stack = with_first_moments(stack, noise=unit.max_rows * multiplier / nominal_rows)
        stack = with_questions(stack, self.questions)
        if stack.dimension > MOST_FEATURES:
            asked = stack.asked.size
            raise SpecError(
                f"{stack.dimension} features on this schema"
                + f", {asked} of them for questions" * bool(asked),
                field="questions" if 2 * asked > stack.dimension else "weights.settings.features",
                allowed=f"at most {MOST_FEATURES}: {FEWER_LEVELS}"
                + ", ask fewer questions" * bool(asked)
                + ", or name `fourier` features alone",
            )
        if nominal_rows * stack.norm > MOST_ROWS:
            most = int(MOST_ROWS / stack.norm)
            raise SpecError(
                field=f"nominal_rows={nominal_rows}",
                allowed=f"at most {most} for `measured` weights with these features; release by"
                " regions, or set weights.method: none",
            )
        noise = sum_noise(stack, multiplier=multiplier, unit=unit, nominal_rows=nominal_rows)
        ready = replace(self, features=stack.shares, scales=stack.scales, calibrated=noise)
        if not self.choose:
            return ready
        return replace(ready, selection=epsilon_of(rho=EFFORT * rho, count=self.choose))

    def _ready(self) -> SumNoise:
        return calibrated_for(self.calibrated, method=self.method)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One draw of the sum, and the choices; UncalibratedError for another unit or schema."""
        ready, stack = self._ready(), self.stack(schema)
        calibrated_for(ready, ready.unit == unit, ready.is_of(stack), method=self.method)
        drawn = GaussianEvent(noise_multiplier=ready.multiplier)
        if self.selection is None:
            return (drawn,)
        return drawn, ExponentialMechanismEvent(epsilon=self.selection, count=self.choose)

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """The noise of the sum."""
        ready = self._ready()
        return one_draw(self.method, ready.law, sensitivity=ready.sensitivity)

    def forecast(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[float, float]:
        """Noise s of a mean over a row's norm, and l/(l + s^2), l a feature's mean square."""
        ready = self._ready()
        spread = (ready.law.scale / nominal_rows) ** 2
        mean = ready.norm**2 / ready.dimension
        return ready.law.scale / ready.nominal_rows / ready.norm, mean / (mean + spread)

    def expected_law(
        self,
        rows: SyntheticTable,
        question: Question,
        *,
        published: int,
        made: SyntheticTable | None = None,
        credit: float | None = None,
    ) -> MeansLaw:
        """By the question's own features: `law.expected_law`."""
        from dpiw.methods.weights.measured.law import expected_law

        ready, ranges = self._ready(), self.for_rows(made or rows).ranges
        stack = self.stack(rows.schema, ranges)
        own = {term.key: stack.shares[term.key] for term in question.terms(rows.schema)}
        return expected_law(
            replace(stack, shares=own),
            rows,
            noise=ready,
            credit=None if credit is None else credit * ready.nominal_rows,
            published=published,
        )

    def check_release(self, weighing: Weighing, schema: PublicSchema) -> None:
        """Raise SpecError for post-processing, unnormalised weights or too many replicates."""
        if weighing.post_processing.steps:
            raise SpecError(
                field="weights.post_processing", allowed="no steps with weights.method=measured"
            )
        if weighing.normalisation is not Normalisation.SELF:
            raise SpecError(
                field="weights.normalisation", allowed="self with weights.method=measured"
            )
        if not self.replicates:
            return
        if weighing.rows * self.replicates > MOST_NUMBERS:
            raise setting_error(
                self,
                "weights.settings.replicates",
                f"at most {MOST_NUMBERS // weighing.rows}, or fewer synthetic_rows: the release may"
                f" hold {MOST_NUMBERS:,} numbers, synthetic_rows times replicates",
            )
        features = self.stack(schema).dimension + MOST_INDICATORS
        if weighing.rows * features > MOST_FEATURES_HELD:
            raise SpecError(
                field=f"synthetic_rows={weighing.rows}",
                allowed=f"at most {MOST_FEATURES_HELD // features} with replicates, which"
                f" take {features} features a row",
            )

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """Time and memory of summing rows' features, of tilting a base on some rows, of choices."""
        d, base = self._ready().dimension, self.base_rows_for(published)
        fitted = min(base, MOST_FITTED)
        scoring = Running(seconds=0, held_bytes=0)
        if self.choose:
            scoring = _candidates(schema).scoring(schema, rows=nominal_rows + fitted)
        summing = FEATURE_SECONDS * d * (nominal_rows + 2 * base)
        return Running(
            seconds=scoring.seconds + summing + TILT_SECONDS * fitted * d * d,
            held_bytes=scoring.held_bytes + min(24 * fitted * d, 1 << 30) + 80 * d * d,
        )

    def sampled(self, published: int) -> tuple[int, int]:
        """A base, from which the published rows are chosen; no other rows."""
        return self.base_rows_for(published), 0

    def parameters(self) -> dict[str, Any]:
        """Public settings and, once calibrated, every number of the noise; JSON values."""
        parameters: dict[str, Any] = {
            "features": None if self.features is None else dict(self.features),
            "scales": None if self.scales is None else list(self.scales),
            "frequencies": self.frequencies,
            "omega_seed": self.omega_seed,
            "noise": NoiseKind.GAUSSIAN.value,
            "credit": self.credit,
            "base_rows": self.base_rows,
            "design_effect": self.design_effect,
            "debias": False,  # always: it keeps digests as they were
            "replicates": self.replicates,
        }
        if self.choose:
            parameters |= {"choose": self.choose, "selection_epsilon": self.selection}
        if self.questions:
            parameters["questions"] = [question.to_json() for question in self.questions]
        return parameters if self.calibrated is None else parameters | self.calibrated.to_json()

    def _facts(self) -> dict[str, Any]:
        """The facts of a measurement, without later choices."""
        after = ("credit", "base_rows", "design_effect", "debias", "replicates")
        return {name: value for name, value in self.parameters().items() if name not in after}

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Draw the noisy sum of the private rows' features, and of their number.

        Before it, the blocks of features to measure, where `choose` asks for some.

        Privacy:
            Unit: `max_rows` rows, under the relation of `calibrate`. L2 sensitivity: `sum_noise`,
            of any chosen blocks. Choices: `choice.score_sensitivity`. Events: `events`.
            UncalibratedError for another schema.
        """
        ranges = self.ranges or Ranges(bounds={})
        ready, stack = self._ready(), self.stack(table.schema, ranges)
        calibrated_for(ready, ready.is_of(stack), method=self.method)
        chosen = Chosen()
        if self.selection is not None:
            chosen = chosen_blocks(
                _candidates(table.schema), table, synthetic, ranges=ranges,
                omega_seed=stack.omega_seed, count=self.choose, epsilon=self.selection,
                scale=ready.law.scale / stack.shares[ROOM],
                unit=ready.unit, noise=noise,
            )  # fmt: skip
            stack = stack.with_chosen(chosen)
        exact = exact_sum(stack, table.batches(), constant=ready.constant)
        law = replace(ready.law, dimension=exact.size)
        return Measurement(
            kind=self.kind, publishable=noise.publishable,
            arrays={"sum": noisy_vector(exact, law=law, noise=noise)},
            facts={
                **self._facts(), "schema": table.schema.name,
                **ranges.to_json(), **chosen.to_json(),
            },
            noise=self.released_noise(schema=table.schema, unit=ready.unit),
        )  # fmt: skip

    def for_rows(self, published: SyntheticTable) -> Self:
        """With the ranges of the generator's rows, before data is read."""
        ready = self._ready()
        if ready.is_loud and not self.questions:
            return self
        ranges = Ranges(bounds={}) if ready.is_loud else Ranges.of(published)
        noise, stack = ready.law.scale / ready.nominal_rows, self.stack(published.schema)
        ranges = asked_ranges(
            ranges, stack, published, noise=noise, nominal_rows=ready.nominal_rows
        )
        return replace(self, ranges=ranges)

    def weigh(
        self,
        measurement: Measurement,
        rows: SampledRows,
        weighing: Weighing,
        *,
        rng: np.random.Generator,
    ) -> Weights:
        """Fit the weights: `weighing.weigh_measured`."""
        from dpiw.methods.weights.measured.weighing import weigh_measured

        return weigh_measured(
            self, measurement, rows.weighed, rows=weighing.rows, rng=rng, known=rows.one_way
        )

    def replicates_of(
        self,
        measurement: Measurement,
        rows: SyntheticTable,
        log_weights: Array,
        facts: Mapping[str, Any],
    ) -> ReplicateWeights | None:
        """Replicate weights by the law of the published weights; the same every time."""
        from dpiw.methods.weights.measured.law import law_of_means
        from dpiw.methods.weights.measured.weighing import replicate_measured

        if not self.replicates:
            return None
        self._ready()
        law = law_of_means(
            self.parameters(), rows.schema, rows.scaled, log_weights, facts=facts["measured"]
        )
        return replicate_measured(law, measurement, count=self.replicates)

    def targets(
        self, measurement: Measurement, *, about: Array, known: OneWayMarginals | None = None
    ) -> Targets:
        """Noisy means and the covariance of their noise (`means_noise`), or WeightError; free.

        `about`: public means near the true ones, shape (d,): the stack's, then the `known`
        marginals'.
        """
        ready = self._ready()
        fresh = about.size - (0 if known is None else known.law.dimension)
        noisy_sums = self.released(measurement, "sum", fresh + bool(ready.constant))
        rows, sums = float(ready.nominal_rows), noisy_sums
        if ready.constant:  # noise may leave less than a row
            rows, sums = max(1.0, float(noisy_sums[-1]) / ready.constant), noisy_sums[:-1]
        shares, law = (np.zeros(0), None) if known is None else (known.shares, known.law)
        noise = means_noise(
            scale=ready.law.scale, rows=rows, constant=ready.constant, about=about, known=law
        )
        means = np.concatenate([sums / rows, shares])
        return Targets(
            means=means, covariance=noise, rows=rows, fresh=sums.size, max_rows=ready.unit.max_rows
        )


def _candidates(schema: PublicSchema) -> Chosen:
    """What may be chosen: bundles for few columns, mostly numbers (`public_shares`), else tables.

    Frequencies hold every interaction of few columns; in many they see none of them well.
    """
    is_numeric = set(public_shares(schema)[0]) == {"fourier"}
    return Chosen.candidates(schema, tables=not is_numeric, bundles=is_numeric)
