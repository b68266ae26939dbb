"""The base class of weight estimators, with its defaults."""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import SpecError, WeightError
from dpiw.methods.base import CriticKind, Judge, Method, StatedNoise, own_settings
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from dpiw.data.row_weights import ReplicateWeights
    from dpiw.data.schema.schema import PublicSchema
    from dpiw.data.tables import PrivateTable, SyntheticTable
    from dpiw.methods.admission import Admission
    from dpiw.methods.one_way import OneWayMarginals
    from dpiw.methods.weights.measured.law import MeansLaw
    from dpiw.methods.weights.paper.steps import PostProcessing
    from dpiw.methods.weights.questions import Question
    from dpiw.methods.weights.weigh import Weights
    from dpiw.privacy.randomness import NoiseSource


Array = NDArray[np.float64]


class Normalisation(enum.Enum):
    """`SELF`: mean weight one, bias of second order. `UNNORMALISED`: unbiased if debiased."""

    SELF = "self"
    UNNORMALISED = "unnormalised"


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """Public choices of how a measurement becomes weights.

    Attributes:
        public: rows of the real distribution for a beta calibration; never a private table.
    """

    rows: int
    post_processing: PostProcessing
    normalisation: Normalisation = Normalisation.SELF
    public: SyntheticTable | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledRows:
    """Rows of a fitted generator; public.

    Attributes:
        weighed: rows that get weights, or from which the published ones are chosen.
        fitting: others of the same law, on which weights are fitted; may have no row.
        admission: how often constraints bound all of them; None where there are none.
    """

    weighed: SyntheticTable
    fitting: SyntheticTable
    one_way: OneWayMarginals | None = field(default=None, repr=False)
    admission: Admission | None = None


def one_draw(values: str, law: NoiseLaw, *, sensitivity: float) -> StatedNoise:
    """The noise of a method whose only event is one draw."""
    kind, scale = law.kind, law.scale
    return (ReleasedNoise(values=values, law=kind, scale=scale, sensitivity=sensitivity, event=0),)


class WeightEstimator(Method, abc.ABC):
    """A density-ratio estimator before it has seen data: frozen public settings.

    The synthetic table may depend on the private one only through measurements that were paid for.
    """

    method: ClassVar[str]
    private: ClassVar[bool]
    kind: ClassVar[str]
    """Of its measurements."""
    effort: ClassVar[float] = 0.5
    """Share of the effort where a spec names none."""
    draws: ClassVar[bool] = True
    """Whether it reads the private table; if not, its weights are post-processing, and free."""
    pure_noise: ClassVar[str | None] = None
    """Noise that promises delta = 0, and is the default there; None: there is none."""
    bound_to_rows: ClassVar[bool] = False
    """Whether its noise depends on which rows are published (`for_rows`), and on how many."""
    known_everywhere: ClassVar[bool] = False
    """Whether the released ratio is known at every row, as a beta calibration needs."""
    keeps_one_way: ClassVar[bool] = False
    """Whether it fits the one-way distributions that the generator knows."""
    needs_critic: ClassVar[bool] = False
    """Whether it reads the generator's discriminator."""
    caveats: ClassVar[tuple[str, ...]] = ()
    """Sentences about the weights, for the certificate."""
    set_later: ClassVar[frozenset[str]] = frozenset({"calibrated"})
    """Fields that no spec may hold."""
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Settings that went, with their values that change nothing: a run begun so goes on."""

    measures_questions: ClassVar[bool] = False
    """Whether it measures declared questions."""
    questions: tuple[Question, ...] = ()
    """Those that it measures."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool, rows: int | None) -> Self:
        """Build it, uncalibrated, or raise SpecError; `pure`: the release promises delta = 0."""
        ordered = dict(sorted(settings.items()))
        own = own_settings(cls, ordered, field="weights.settings", name=cls.method)
        if pure and cls.private and cls.draws and cls.pure_noise is None:
            raise SpecError(
                "its noise is Gaussian", field=f"weights.method={cls.method}", allowed="a delta > 0"
            )
        return cls(**cls._completed(own, pure=pure, rows=rows))

    @classmethod
    def _completed(
        cls, settings: dict[str, Any], *, pure: bool, rows: int | None
    ) -> dict[str, Any]:
        """Settings with the defaults that depend on the release."""
        if pure and cls.pure_noise is not None:
            noise = settings.setdefault("noise", cls.pure_noise)
            if noise in (NoiseKind.GAUSSIAN, NoiseKind.GAUSSIAN.value):
                raise SpecError(
                    field="weights.settings.noise=gaussian",
                    allowed="spherical or laplace at delta 0",
                )
        return settings

    def check_critic(self, critic: CriticKind) -> None:
        """Raise SpecError for a generator whose discriminator does not fit. Public."""

    def declared(self, questions: tuple[Question, ...], *, seed: int) -> Self:
        """With a release's questions and its public seed; SpecError if it measures no question."""
        if questions:
            raise SpecError(
                f"weights.method={self.method} measures none",
                field="questions",
                allowed="weights.method: measured, or no questions",
            )
        return self

    def expected_law(
        self,
        rows: SyntheticTable,
        question: Question,
        *,
        published: int,
        made: SyntheticTable | None = None,
        credit: float | None = None,
    ) -> MeansLaw | None:
        """Law of calibrated weights for one question; None: unknown. Free.

        `rows` are public and like the people, `made` like the generator's; the law scales the
        rows' sampling error to `published` rows. `credit`: the least that the generator may get,
        over people; None: unknown, for an upper bound.
        """
        return None

    def informed(self, judge: Judge | None) -> Self:
        """With the fitted generator, where this needs it; free and deterministic."""
        return self

    def check_release(self, weighing: Weighing, schema: PublicSchema) -> None:
        """Raise SpecError, before planning, for what a release cannot do with these weights."""
        step = weighing.post_processing.calibrate
        if step is not None and step.sha256 is None:
            raise SpecError(
                "beta_calibrate.rows: the file cannot be read, and `sha256` is missing; restore the"
                " file, or write its SHA-256",
                field="weights.post_processing",
            )

    def forecast(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[float, float] | None:
        """Public forecast of calibrated weights; None: unknown.

        tau, standard deviation of the noise of a reference row's log weight; resolution, share of
        the log ratio's variance left by shrinkage, in [0, 1].
        """
        return None

    def sampled(self, published: int) -> tuple[int, int]:
        """Rows to sample for `published` ones: to weigh, and to fit on."""
        return published, published

    def for_rows(self, published: SyntheticTable) -> Self:
        """These settings for the rows that will be published."""
        return self

    @abc.abstractmethod
    def measure(
        self, table: PrivateTable, synthetic: SyntheticTable, *, noise: NoiseSource
    ) -> Measurement:
        """Fit on private against synthetic rows and return noisy values."""

    @abc.abstractmethod
    def weigh(
        self,
        measurement: Measurement,
        rows: SampledRows,
        weighing: Weighing,
        *,
        rng: np.random.Generator,
    ) -> Weights:
        """Turn a measurement into weights; free and deterministic. May raise WeightError."""

    def replicates_of(
        self,
        measurement: Measurement,
        rows: SyntheticTable,
        log_weights: Array,
        facts: Mapping[str, Any],
    ) -> ReplicateWeights | None:
        """Replicate weights of the published rows, or None if the settings ask for none; free."""
        return None

    def _facts(self) -> Mapping[str, Any]:
        """The settings that a measurement depends on."""
        return self.parameters()

    def released(self, measurement: Measurement, name: str, size: int) -> Array:
        """Return released values, shape (size,); WeightError for other settings or schemas."""
        facts, own = measurement.facts, self._facts()
        if measurement.kind != self.kind or any(facts.get(key) != own[key] for key in own):
            raise WeightError("the measurement was drawn with other settings", field=self.method)
        values = np.asarray(measurement.arrays[name], dtype=np.float64)
        if values.shape != (size,):
            raise WeightError("the measurement was drawn for another schema", field=self.method)
        return values
