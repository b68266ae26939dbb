"""`selected`: charged private selection among several settings of the noisy regression.

A hidden number K of runs takes place. Each picks a candidate uniformly, draws its noisy
coefficients, and scores them on the private rows with noise of its own. The coefficients of the
best run and the candidate they belong to are released; K, the losers and every score are not. The
cost follows from `dpiw.repeat_and_select`: less than twice (logarithmic K) or three times
(geometric K) that of one run, whatever the number of candidates and of runs.

Two things are lost. The winner's noise was looked at, so it has no known law: weights are not
debiased and no noise-aware interval exists. And the score and the repetition take budget from the
coefficients. Choosing the settings on public stand-ins costs nothing and should be tried first.

Source: METHOD sections 9 and 11; Liu & Talwar (2019); Papernot & Steinke (2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.measurement import Measurement
from dpiw.mechanisms import calibrated_law, draw_index, noisy_vector
from dpiw.privacy import (
    NoiseKind,
    NoiseLaw,
    PrivacyEvent,
    PrivacyUnit,
    SelectedGaussianEvent,
    SelectedPureEvent,
)
from dpiw.randomness import NoiseSource
from dpiw.repeat_and_select import mean_of_weights, run_weights, stopping_of
from dpiw.schema import PublicSchema
from dpiw.tables import PrivateTable, SyntheticTable
from dpiw.weights.beta import BetaNoised
from dpiw.weights.selected_ratio import SelectedRatio
from dpiw.weights.selection_score import score_sensitivity, scores
from dpiw.weights.settings import real

MEASUREMENT_KIND = "selected"

SHAPES = {"logarithmic": 0, "geometric": 1}
"""Laws of the number of runs, by the shape of `dpiw.repeat_and_select`."""

MOST_CANDIDATES = 20

_SET_HERE = {"noise", "calibrated"}


def _candidate(number: int, given: object, noise: NoiseKind) -> BetaNoised:
    where = f"weights.settings.candidates[{number}]"
    if isinstance(given, BetaNoised):
        return replace(given, noise=noise)
    if not isinstance(given, Mapping) or not set(given) <= {"method", "settings"}:
        raise SpecError(f"{where}: expected a mapping with `settings`, and `method` if you like")
    if given.get("method", BetaNoised.method) != BetaNoised.method:
        raise SpecError(
            f"{where}.method: expected beta_noised; the noise of a winner has no known law, so its"
            " weights cannot be debiased"
        )
    settings = given.get("settings", {})
    allowed = {field.name for field in fields(BetaNoised)} - _SET_HERE
    if not isinstance(settings, Mapping) or not set(settings) <= allowed:
        known = ", ".join(sorted(allowed))
        raise SpecError(f"{where}.settings: expected a mapping of {known}; noise is set for all")
    try:
        return BetaNoised(**{**settings, "noise": noise})
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class SelectionCalibration:
    """Every public number of a calibrated selection; the candidates hold their own.

    Attributes:
        unit: the unit and relation.
        multiplier: noise scale over sensitivity of one run's coefficients, whichever candidate.
        score_multiplier: the same of its score.
        score_law: of the noise in a score.
        stopping: of the law of K.
        weights: P(K = k) in whole numbers, k = 1, 2, ...; as many runs always take place.
    """

    unit: PrivacyUnit
    multiplier: float
    score_multiplier: float
    score_law: NoiseLaw
    stopping: float
    weights: tuple[int, ...]

    @property
    def most_runs(self) -> int:
        """Runs that take place whatever K is."""
        return len(self.weights)

    @property
    def mean_runs(self) -> float:
        """E K."""
        return mean_of_weights(self.weights)

    def to_json(self) -> dict[str, Any]:
        """Public numbers for the certificate."""
        return {
            "stopping": self.stopping,
            "expected_runs": self.mean_runs,
            "most_runs": self.most_runs,
            "noise_multiplier": self.multiplier,
            "score_noise_multiplier": self.score_multiplier,
            "score_noise": self.score_law.scale,
        }


@dataclass(frozen=True, kw_only=True)
class SelectedBeta:
    """Settings of the selection; frozen, public and fixed before data is read.

    Attributes:
        candidates: 2 to 20 settings of `beta_noised`, without `noise`, as mappings
            {settings: {...}}; all different.
        noise: of every candidate's coefficients: `gaussian` (default), whose scores get Gaussian
            noise; or `spherical` or `laplace`, whose scores get Laplace noise.
        runs: law of the hidden number of runs, `logarithmic` (default) or `geometric`.
        mean_runs: mean of that law before its limit, in [1.5, 30].
        score_share: share of a run's effort (of its epsilon, for the pure laws) that its score
            gets, in (0, 1).
        clip: L, the largest log weight that a score counts, in (0, 20].
        calibrated: what `calibrate` found.
    """

    candidates: tuple[BetaNoised, ...] = ()
    noise: NoiseKind = NoiseKind.GAUSSIAN
    runs: str = "logarithmic"
    mean_runs: float = 5.0
    score_share: float = 0.2
    clip: float = 2.0
    calibrated: SelectionCalibration | None = None

    method: ClassVar[str] = "selected"
    private: ClassVar[bool] = True
    debias: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        kinds = [kind.value for kind in NoiseKind]
        if not isinstance(self.noise, NoiseKind) and self.noise not in kinds:
            raise SpecError(f"weights.settings.noise: expected one of {', '.join(kinds)}")
        object.__setattr__(self, "noise", NoiseKind(self.noise))
        if self.runs not in SHAPES:
            raise SpecError(f"weights.settings.runs: expected one of {', '.join(SHAPES)}")
        mean = real("mean_runs", self.mean_runs, above=1, at_most=30)
        if mean < 1.5:
            raise SpecError(f"weights.settings.mean_runs={mean:g}: expected at least 1.5")
        share = real("score_share", self.score_share, above=0, at_most=0.99)
        object.__setattr__(self, "mean_runs", mean)
        object.__setattr__(self, "score_share", share)
        object.__setattr__(self, "clip", real("clip", self.clip, above=0, at_most=20))
        object.__setattr__(self, "candidates", self._read(self.candidates))

    def _read(self, given: object) -> tuple[BetaNoised, ...]:
        listed = list(given) if isinstance(given, list | tuple) else []
        if not 2 <= len(listed) <= MOST_CANDIDATES:
            raise SpecError(f"weights.settings.candidates: expected a list of 2 to"
                            f" {MOST_CANDIDATES} settings")  # fmt: skip
        found = tuple(_candidate(i, item, self.noise) for i, item in enumerate(listed))
        plain = [replace(candidate, calibrated=None) for candidate in found]
        if any(one in plain[:i] for i, one in enumerate(plain)):
            raise SpecError("weights.settings.candidates: expected no two alike")
        return found

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set every candidate's penalty and noise so that **one run** spends effort `rho`.

        What the repetition adds is found by the plan, which composes `events`.

        Raises:
            SpecError: `rho` or `nominal_rows` is not positive.
        """
        if not (math.isfinite(rho) and rho > 0):
            raise SpecError("weights: expected an effort rho > 0")
        pure = self.noise is not NoiseKind.GAUSSIAN
        # Gaussian efforts add; of pure noise the epsilons sqrt(2 rho) do.
        power = 2 if pure else 1
        score_rho = self.score_share**power * rho
        multiplier = 1 / math.sqrt(2 * score_rho)
        stopping = stopping_of(SHAPES[self.runs], self.mean_runs)
        candidates = tuple(
            candidate.calibrate(
                rho=(1 - self.score_share) ** power * rho,
                schema=schema,
                unit=unit,
                nominal_rows=nominal_rows,
            )
            for candidate in self.candidates
        )
        (ready, *_) = [c.calibrated for c in candidates]
        assert ready is not None
        found = SelectionCalibration(
            unit=unit,
            multiplier=ready.multiplier,
            score_multiplier=multiplier,
            score_law=calibrated_law(
                kind=NoiseKind.LAPLACE if pure else NoiseKind.GAUSSIAN,
                noise_multiplier=multiplier,
                sensitivity=score_sensitivity(self.clip, unit),
                dimension=1,
            ),
            stopping=stopping,
            weights=run_weights(SHAPES[self.runs], stopping),
        )
        return replace(self, candidates=candidates, calibrated=found)

    def _ready(self) -> SelectionCalibration:
        if self.calibrated is None:
            raise UncalibratedError(f"{self.method}: calibrate before use")
        return self.calibrated

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One selection.

        Raises:
            UncalibratedError: before `calibrate`, or calibrated for another unit or schema.
        """
        ready = self._ready()
        for candidate in self.candidates:
            candidate.events(schema=schema, unit=unit)
        shape, stopping = float(SHAPES[self.runs]), ready.stopping
        parts = (ready.multiplier, ready.score_multiplier)
        if self.noise is NoiseKind.GAUSSIAN:
            joint = math.fsum(1 / part**2 for part in parts) ** -0.5 * (1 - 1e-15)
            return (SelectedGaussianEvent(noise_multiplier=joint, shape=shape, stopping=stopping),)
        total = math.fsum(1 / part for part in parts) * (1 + 1e-15)
        return (SelectedPureEvent(epsilon=total, shape=shape, stopping=stopping),)

    def predicted_log_weight_noise(self, *, schema: PublicSchema) -> float:
        """That of the noisiest candidate.

        Raises:
            UncalibratedError, SpecError: as `BetaRegression.predicted_log_weight_noise`.
        """
        return max(one.predicted_log_weight_noise(schema=schema) for one in self.candidates)

    def resolution(self, *, schema: PublicSchema, nominal_rows: int) -> float:
        """That of the candidate that shows least."""
        return min(
            one.resolution(schema=schema, nominal_rows=nominal_rows) for one in self.candidates
        )

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """What choosing loses, then the candidates' own."""
        found = [
            "weights: chosen by a private score, so the law of their noise is not known: they are"
            " not debiased, and no interval includes their noise"
        ]
        for number, one in enumerate(self.candidates):
            told = one.warnings(schema=schema, nominal_rows=nominal_rows)
            found += [f"candidate {number}: {text}" for text in told]
        return tuple(found)

    def parameters(self) -> dict[str, Any]:
        """Public settings and, once calibrated, every number of the noise; JSON values."""
        found: dict[str, Any] = {
            "candidates": [candidate.parameters() for candidate in self.candidates],
            "noise": self.noise.value,
            "runs": self.runs,
            "mean_runs": self.mean_runs,
            "score_share": self.score_share,
            "clip": self.clip,
            "debias": self.debias,
        }
        return found if self.calibrated is None else found | self.calibrated.to_json()

    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Fit every candidate, run as often as the law of K allows, keep the best of the first K.

        As many runs take place as K can be at most, and every one is scored, so K shows neither
        in time nor in what is written. Of equal scores the first run wins.

        Privacy:
            Unit: `max_rows` rows, under the relation of `calibrate`. One run draws coefficients
            (`BetaRegression.measure`) and a score of sensitivity `score_sensitivity`, plus its
            lattice slack, given them. Which candidate a run tries, and K, depend on no data.
            Event: `SelectedGaussianEvent` of both noises, or `SelectedPureEvent` of both
            epsilons. The winner's score is not released.

        Raises:
            UncalibratedError, SpecError, WeightError: as `BetaRegression.measure`.
        """
        ready = self._ready()
        even = (1,) * len(self.candidates)
        tried = [draw_index(even, noise=noise) for _ in range(ready.most_runs)]
        kept = 1 + draw_index(ready.weights, noise=noise)
        drawn: dict[int, NDArray[np.float64]] = {}
        found = np.empty(ready.most_runs)
        # Runs are independent, so they may be drawn candidate by candidate: one fit each.
        for number, candidate in enumerate(self.candidates):
            places = [place for place, choice in enumerate(tried) if choice == number]
            own, told = self._runs(candidate, len(places), table, synthetic, noise)
            drawn |= dict(zip(places, own, strict=True))
            found[places] = told
        best = int(np.argmax(np.where(np.arange(ready.most_runs) < kept, found, -np.inf)))
        return self._released(tried[best], drawn[best], synthetic, noise.publishable)

    def _runs(
        self,
        candidate: BetaNoised,
        count: int,
        table: PrivateTable,
        synthetic: SyntheticTable,
        noise: NoiseSource,
    ) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
        """Noisy coefficients and noisy scores of `count` runs of one candidate.

        Privacy:
            Stays inside `measure`.
        """
        ready, calibrated = self._ready(), candidate.calibrated
        assert calibrated is not None
        problem = candidate.regression(table, synthetic)
        exact = candidate.solution(problem)
        if count == 0:
            return [], np.empty(0)
        own = [noisy_vector(exact, law=calibrated.law, noise=noise) for _ in range(count)]
        told = scores(problem, np.array(own), clip=self.clip)
        return own, noisy_vector(told, law=replace(ready.score_law, dimension=count), noise=noise)

    def _released(
        self,
        number: int,
        coefficients: NDArray[np.float64],
        synthetic: SyntheticTable,
        publishable: bool,
    ) -> Measurement:
        calibrated = self.candidates[number].calibrated
        assert calibrated is not None
        return Measurement(
            kind=MEASUREMENT_KIND,
            arrays={"coefficients": coefficients, "candidate": np.array([number])},
            facts={
                **self.parameters(),
                "one_run_scale": calibrated.law.scale,
                "schema": synthetic.schema.name,
                "synthetic_rows": synthetic.rows,
            },
            publishable=publishable,
        )

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> SelectedRatio:
        """The winner's density ratio; free.

        Raises:
            UncalibratedError: before `calibrate`.
            WeightError: the measurement is of another kind, or does not fit schema and settings.
        """
        facts, own, ready = measurement.facts, self.parameters(), self._ready()
        if measurement.kind != MEASUREMENT_KIND or any(facts.get(k) != own[k] for k in own):
            raise WeightError(f"{self.method}: not a measurement with these settings")
        number = int(measurement.arrays["candidate"][0])
        if not 0 <= number < len(self.candidates):
            raise WeightError(f"{self.method}: the measurement does not fit these settings")
        winner = self.candidates[number]
        plain = winner.measurement(
            measurement.arrays["coefficients"],
            schema=facts["schema"],
            synthetic_rows=facts["synthetic_rows"],
            publishable=measurement.publishable,
        )
        base = winner.ratio(plain, schema=schema)
        return SelectedRatio(base=base, mean_runs=ready.mean_runs, candidate=number)
