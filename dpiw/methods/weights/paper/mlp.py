"""`dp_mlp`: a network classifies private against synthetic rows; its logit is the log weight.

The paper's Algorithm 1, corrected. Its noise has no closed law: replays judge the signal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, WeightError
from dpiw.methods.base import calibrated_for, check_effort, real, whole
from dpiw.methods.neural.backend import (
    CPU,
    DEVICES,
    Backend,
    check_installed,
    computing,
    make_backend,
)
from dpiw.methods.neural.backend import Array as Tensor
from dpiw.methods.neural.checkpoints import Adam, TrainingState
from dpiw.methods.neural.clipping import (
    Balanced,
    ClipRule,
    Logistic,
    RowLoss,
    check_computes,
    clipped_sum,
)
from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining, PublicGradient
from dpiw.methods.neural.networks import ACTIVATIONS, Architecture, Network
from dpiw.methods.weights.base import check_measurement
from dpiw.methods.weights.paper.ratio import DensityRatio, RatioEstimator, clamped, public_number
from dpiw.methods.weights.paper.steps import Scored
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.randomness import NoiseSource, SeededNoise
from dpiw.privacy.resumption import UNWATCHED, Resumption, TrainingWatch
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit

MEASUREMENT_KIND = "dp_mlp"

Array = NDArray[np.float64]

SETTINGS = "weights.settings"

INPUT_SCALE = 2.0
"""Network inputs are twice the centred row: numbers run over [-1, 1]."""


def inputs(schema: PublicSchema, scaled: ScaledTable) -> Array:
    """Network inputs, shape (rows, d): twice the centred coordinates."""
    return np.asarray(INPUT_SCALE * schema.centred(scaled))


MOST_STAND_INS = 20_000
"""Largest number of rows that replace the private table in a simulation."""

LOSSES: Mapping[str, Callable[..., RowLoss]] = {"logistic": Logistic, "balanced": Balanced}


@dataclass(frozen=True, kw_only=True)
class RatioTraining:
    """Relaxed DP-SGD of a network of one output, with B synthetic rows per step.

    The rows weigh L/B each, L = q n0: the logit's stationary point is log(p_real/p_synthetic) +
    log(N_D/n0) (docs/method.md section 2), and `ClipRule.OUTPUT` keeps it there.
    """

    architecture: Architecture
    private: PrivateTraining
    loss: str
    batch: int

    def parameters(self) -> dict[str, Any]:
        """Every public constant, JSON values."""
        return self.private.parameters() | {
            "widths": list(self.architecture.widths),
            "activation": self.architecture.activation,
            "loss": self.loss,
            "batch": self.batch,
        }

    @cached_property
    def _public_number(self) -> int:
        """Seed of initial parameters and of the order of synthetic rows, from the settings."""
        return int(self.private.digest[:16], 16)

    def _public_gradient(self, synthetic: Array, backend: Backend) -> PublicGradient:
        order = np.random.default_rng([self._public_number, 1]).permutation(len(synthetic))
        size = min(self.batch, len(synthetic))
        # Laid out twice, so that every cyclic minibatch is a slice.
        rows = synthetic[np.concatenate([order, order[:size]])]
        weight = self.private.divisor / 2 / size
        loss = LOSSES[self.loss](label=0)

        def gradient(network: Network, step: int) -> Tensor:
            first = step * size % len(synthetic)
            batch = backend.array(rows[first : first + size])
            clip, rule = self.private.clip, self.private.rule
            return weight * clipped_sum(network, batch, loss, clip=clip, rule=rule)

        return gradient

    @computing()
    def fit(
        self,
        private: Array,
        synthetic: Array,
        *,
        noise: NoiseSource,
        backend: Backend = CPU,
        watch: TrainingWatch = UNWATCHED,
    ) -> TrainingState:
        """Train on rows of shape (n, widths[0]); the parameters are the state's `average`.

        Privacy:
            Unit, events and errors: those of `PrivateTraining.train`.
        """
        initial = self.architecture.initial(np.random.default_rng([self._public_number, 0]))
        start = self.private.start(initial, publishable=noise.publishable)
        lots = PrivateLots(
            architecture=self.architecture,
            rows=private,
            loss=LOSSES[self.loss](label=1),
            backend=backend,
        )
        return self.private.train(
            start,
            lots,
            noise=noise,
            public=self._public_gradient(synthetic, backend),
            watch=watch,
        )

    @computing()
    def logits(self, parameters: Array, rows: Array) -> Array:
        """The classifier's logits, shape (n,)."""
        network = self.architecture.network(parameters)
        return CPU.to_numpy(network.outputs(CPU.array(rows))[:, 0])

    def replay(self, rows: Array, *, nominal_rows: int, noise: NoiseSource, number: int) -> Array:
        """Parameters of a training on public rows alone, two at least: a ratio of one, with noise.

        Half of the rows are the synthetic table; min(n0, 20,000) stand-ins for private rows are
        drawn from the other half, at the rate that keeps lot sizes. `number` fixes halves and draw.
        """
        rng = np.random.default_rng([self._public_number, 2, number])
        pool, rest = np.array_split(rng.permutation(len(rows)), 2)
        size = min(nominal_rows, MOST_STAND_INS)
        # Where there are enough, no row need stand in twice.
        stand_in = pool[:size] if size <= len(pool) else rng.choice(pool, size)
        rate = min(1.0, self.private.divisor / 2 / size)
        smaller = replace(self, private=replace(self.private, sampling_rate=rate))
        return smaller.fit(rows[stand_in], rows[rest], noise=noise).average


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkRatio(DensityRatio):
    """The released network, noisy parameters of shape (p,), as a log ratio bounded by `limit`.

    `replays` is R, the number of trainings on synthetic rows alone; `nominal_rows` is n0.
    """

    training: RatioTraining
    parameters: Array
    limit: float
    nominal_rows: int
    replays: int
    _played: dict[str, Array] = field(default_factory=dict, repr=False)

    def log_ratio(self, synthetic: SyntheticTable) -> Array:
        """The clamped logit, shape (rows,): log(p_real/p_synthetic) + log(N_D/n0), noisy."""
        rows = inputs(synthetic.schema, synthetic.scaled)
        return clamped(self.training.logits(self.parameters, rows), self.limit)

    def replayed(self, synthetic: SyntheticTable) -> Array:
        """Centred log ratios of R trainings on synthetic rows, shape (rows, R); free, simulated."""
        rows = inputs(synthetic.schema, synthetic.scaled)
        key = hashlib.sha256(rows.tobytes()).hexdigest()
        if key not in self._played:
            if self.replays and len(rows) < 2:
                raise WeightError(field="weights", allowed="at least two synthetic rows")
            log_ratios = np.empty((len(rows), self.replays))
            for i in range(self.replays):
                noise = SeededNoise(public_number(self.parameters) + i)
                played = self.training.replay(
                    rows, nominal_rows=self.nominal_rows, noise=noise, number=i
                )
                log_ratios[:, i] = clamped(self.training.logits(played, rows), self.limit)
            self._played[key] = log_ratios - log_ratios.mean(axis=0)
        return self._played[key]

    def scored(self, synthetic: SyntheticTable) -> Scored:
        """The log ratio; its noise, sampling error included, is the spread of replays."""
        replays = self.replayed(synthetic)
        count = replays.shape[1]
        return Scored(
            log_ratio=self.log_ratio(synthetic),
            features=replays / max(1, count - 1) ** 0.5,
            law=NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=1.0, dimension=count) if count else None,
            factor=None,
        )

    def chance(self, synthetic: SyntheticTable) -> Array | None:
        """The replays' variances, shape (R,); None without replays."""
        return self.replayed(synthetic).var(axis=0) if self.replays else None


@dataclass(frozen=True, kw_only=True)
class NetworkCalibration:
    """A training with its noise, and what it is calibrated for."""

    training: RatioTraining
    nominal_rows: int
    schema: str


_COUNTS = (("steps", 1, 10**5), ("lot", 1, 10**6), ("replays", 0, 999), ("resumes", 0, 20))
_NUMBERS = (
    ("clip", 0, 1e6), ("learning_rate", 0, 10), ("limit", 0, 20), ("averaged", -1e-9, 0.99)
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DensityNetwork(RatioEstimator):
    """Settings of the network; frozen and public.

    Attributes:
        loss: `balanced`, or `logistic`, which learns more slowly from noisy steps.
        steps: T, fixed before data is read.
        lot: expected number of private rows in a lot, and number of synthetic rows beside it.
        clip: bound on the norm of the gradient of one row's logit.
        averaged: the released network is the mean over this last share of the steps.
        limit: public bound of the log weight, in (0, 20].
        replays: trainings on synthetic rows alone: 0, or 39 to 999 (fewer cannot reach p = 0.03).
        resumes: how often a killed training may resume; each costs a twentieth of the steps.
    """

    hidden: tuple[int, ...] = (32,)
    activation: str = "tanh"
    loss: str = "balanced"
    steps: int = 500
    lot: int = 256
    clip: float = 1.0
    learning_rate: float = 0.01
    averaged: float = 0.5
    limit: float = 5.0
    replays: int = 39
    resumes: int = 1
    device: str = "cpu"
    calibrated: NetworkCalibration | None = None

    method: ClassVar[str] = "dp_mlp"
    private: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = (
        "Weights are those of a network trained with noise in every step. That noise has no"
        " known law: weights are not debiased, the stated noise is how replays on synthetic"
        " rows vary, and no interval includes it. The signal test compares with those replays.",
    )
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    """Distributions that its guarantee rests on."""

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, list | tuple) or not 1 <= len(self.hidden) <= 3:
            raise SpecError(field=f"{SETTINGS}.hidden", allowed="a list of 1 to 3 widths")
        for width in self.hidden:
            whole(f"{SETTINGS}.hidden", width, low=1, high=512)
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for name, choices in (("activation", ACTIVATIONS), ("loss", LOSSES), ("device", DEVICES)):
            if getattr(self, name) not in choices:
                raise SpecError(field=f"{SETTINGS}.{name}", allowed=f"one of {', '.join(choices)}")
        for name, low, high in _COUNTS:
            whole(f"{SETTINGS}.{name}", getattr(self, name), low=low, high=high)
        if 0 < self.replays < 39:
            raise SpecError(field=f"{SETTINGS}.replays", allowed="0, or 39 to 999")
        for name, above, most in _NUMBERS:
            value = real(f"{SETTINGS}.{name}", getattr(self, name), above=above, at_most=most)
            object.__setattr__(self, name, value)

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Set the noise multiplier for effort `rho`; SpecError under replace-one."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows, width=schema.width)
        check_installed(f"weights.method={self.method}")
        rate = min(1.0, self.lot / nominal_rows)
        private = PrivateTraining(
            sampling_rate=rate,
            steps=self.steps,
            clip=self.clip,
            divisor=2 * rate * nominal_rows,
            unit=unit,
            rule=ClipRule.OUTPUT,
            optimiser=Adam(learning_rate=self.learning_rate),
            averaged=self.averaged,
            resumes=self.resumes,
        )
        widths = (schema.width, *self.hidden, 1)
        training = RatioTraining(
            architecture=Architecture(widths=widths, activation=self.activation),
            private=replace(private, noise_multiplier=private.multiplier_for(rho)),
            loss=self.loss,
            batch=self.lot,
        )
        calibrated = NetworkCalibration(
            training=training, nominal_rows=nominal_rows, schema=schema.name
        )
        return replace(self, calibrated=calibrated)

    def check_fits(self) -> None:
        """Clip one public row, to see that torch works."""
        check_computes("fit_weights", lambda: self._ready().training.architecture)

    @property
    def resumption(self) -> Resumption | None:
        """The terms of resuming a killed training; None: a killed training is lost."""
        return Resumption.of(steps=self.steps, resumes=self.resumes)

    def _ready(self) -> NetworkCalibration:
        return calibrated_for(self.calibrated, method=self.method)

    def _ready_for(self, schema: PublicSchema) -> NetworkCalibration:
        ready = self._ready()
        same = (ready.schema, ready.training.architecture.widths[0]) == (schema.name, schema.width)
        return calibrated_for(ready, same, method=self.method)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """The steps of one training; UncalibratedError for another unit or schema."""
        ready = self._ready_for(schema)
        private = ready.training.private
        calibrated_for(ready, private.unit == unit, method=self.method)
        return private.events()

    def released_noise(
        self, *, schema: PublicSchema, unit: PrivacyUnit
    ) -> tuple[ReleasedNoise, ...]:
        """The noise of every step's sum of gradients."""
        return (self._ready_for(schema).training.private.released_noise(event=0),)

    def warnings(self, *, schema: PublicSchema, nominal_rows: int) -> tuple[str, ...]:
        """Facts for the curator."""
        texts: tuple[str, ...] = (
            "dp_mlp: nothing forecasts its weights, and their noise has no known law: they are not"
            " debiased and no interval includes it; the verdict is at best `use with care`",
        )
        if nominal_rows < self.lot:
            texts += (f"dp_mlp: lot={self.lot} is above nominal_rows: every row is in every lot",)
        return texts

    def parameters(self) -> dict[str, Any]:
        """Public settings and, once calibrated, every constant of the training; JSON values."""
        parameters: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("activation", "loss", "steps", "lot", "clip", "learning_rate", "averaged",
                         "limit", "replays", "resumes", "debias")
        }  # fmt: skip
        parameters["hidden"] = list(self.hidden)
        if self.calibrated is not None:
            parameters |= self.calibrated.training.parameters()
            parameters["nominal_rows"] = self.calibrated.nominal_rows
        return parameters

    def measure(
        self,
        table: PrivateTable,
        synthetic: SyntheticTable,
        *,
        noise: NoiseSource,
        watch: TrainingWatch = UNWATCHED,
    ) -> Measurement:
        """Train, or resume from `watch`'s checkpoint; UncalibratedError or WeightError.

        Privacy:
            Unit: `max_rows` rows, add/remove. Sensitivity of each lot's sum: max_rows times clip.
            Event: `PoissonSampledGaussianEvent`, one step per lot, also for empty lots, with the
            steps that resumes may repeat. The synthetic table may depend on the private one only
            through measurements that were paid for.
        """
        schema = table.schema
        ready = self._ready_for(schema)
        calibrated_for(ready, synthetic.schema == schema, method=self.method)
        if synthetic.rows == 0:
            raise WeightError(field="weights", allowed="at least one synthetic row")
        state = ready.training.fit(
            inputs(schema, table.confidential()),
            inputs(schema, synthetic.scaled),
            noise=noise,
            backend=make_backend(self.device),
            watch=watch,
        )
        return Measurement(
            kind=MEASUREMENT_KIND,
            arrays={"parameters": state.average},
            facts={
                **self.parameters(),
                "schema": schema.name,
                "synthetic_rows": synthetic.rows,
            },
            publishable=state.publishable,
            noise=self.released_noise(schema=schema, unit=ready.training.private.unit),
        )

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> NetworkRatio:
        """The density ratio of a measurement; WeightError if it does not fit these settings."""
        ready = self._ready_for(schema)
        settings = self.parameters()
        check_measurement(measurement, kind=MEASUREMENT_KIND, own=settings, method=self.method)
        parameters = np.asarray(measurement.arrays["parameters"], dtype=np.float64)
        if parameters.shape != (ready.training.architecture.size,):
            raise WeightError("the measurement does not fit this schema", field=self.method)
        return NetworkRatio(
            training=ready.training,
            parameters=parameters,
            limit=self.limit,
            nominal_rows=ready.nominal_rows,
            replays=self.replays,
        )
