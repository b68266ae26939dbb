"""`dp_mlp`: a network classifies private against synthetic rows; its logit is the log weight.

The paper's Algorithm 1, corrected. Its noise has no closed law, and is not assessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, WeightError
from dpiw.methods.base import StatedNoise, calibrated_for, check_effort, real, whole
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
from dpiw.methods.neural.clipping import Balanced, ClipRule, check_computes, clipped_sum
from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining, PublicGradient
from dpiw.methods.neural.networks import Architecture, Network
from dpiw.methods.weights.paper.ratio import LIMIT, ClassifierRatio, RatioEstimator
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.resumption import UNWATCHED, Resumption, TrainingWatch
from dpiw.privacy.units import PrivacyUnit

Array = NDArray[np.float64]

SETTINGS = "weights.settings"

INPUT_SCALE = 2.0
"""Network inputs are twice the centred row: numbers run over [-1, 1]."""


def inputs(schema: PublicSchema, scaled: ScaledTable) -> Array:
    """Network inputs, shape (rows, d): twice the centred coordinates."""
    return np.asarray(INPUT_SCALE * schema.centred(scaled))


AVERAGED = 0.5
"""The released network is the mean over this last share of the steps."""

REPLAYS = 39
"""Trainings on synthetic rows that an earlier version compared; stated, as it names a draw."""


@dataclass(frozen=True, kw_only=True)
class RatioTraining:
    """Relaxed DP-SGD of a network of one output, with B synthetic rows per step.

    The rows weigh L/B each, L = q n0: the logit's stationary point is log(p_real/p_synthetic) +
    log(N_D/n0) (docs/method.md section 2), and `ClipRule.OUTPUT` keeps it there.
    """

    architecture: Architecture
    private: PrivateTraining
    batch: int
    nominal_rows: int
    schema: str

    def parameters(self) -> dict[str, Any]:
        """Every public constant, JSON values."""
        return self.private.parameters() | {
            "widths": list(self.architecture.widths),
            "activation": self.architecture.activation,
            "loss": "balanced",
            "batch": self.batch,
            "nominal_rows": self.nominal_rows,
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
        loss = Balanced(label=0)

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
        backend: Backend,
        watch: TrainingWatch,
    ) -> TrainingState:
        """Train on rows of shape (n, widths[0]); the parameters are the state's `average`.

        Privacy:
            Unit, events and errors: those of `PrivateTraining.train`.
        """
        initial = self.architecture.initial(np.random.default_rng([self._public_number, 0]))
        start = self.private.start(initial, publishable=noise.publishable)
        lots = PrivateLots(
            architecture=self.architecture, rows=private, loss=Balanced(label=1), backend=backend
        )
        public = self._public_gradient(synthetic, backend)
        return self.private.train(start, lots, noise=noise, public=public, watch=watch)

    @computing()
    def logits(self, parameters: Array, rows: Array) -> Array:
        """The classifier's logits, shape (n,)."""
        network = self.architecture.network(parameters)
        return CPU.to_numpy(network.outputs(CPU.array(rows))[:, 0])


@dataclass(frozen=True, kw_only=True)
class DensityNetwork(RatioEstimator):
    """Settings of the network; frozen and public.

    Attributes:
        steps: T, fixed before data is read.
        lot: expected number of private rows in a lot, and number of synthetic rows beside it.
        clip: bound on the norm of the gradient of one row's logit.
        resumes: how often a killed training may resume; each costs a twentieth of the steps.
    """

    hidden: tuple[int, ...] = (32,)
    steps: int = 500
    lot: int = 256
    clip: float = 1.0
    learning_rate: float = 0.01
    resumes: int = 1
    device: str = "cpu"
    calibrated: RatioTraining | None = None

    method: ClassVar[str] = "dp_mlp"
    kind: ClassVar[str] = "dp_mlp"
    private: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = (
        "Weights are those of a network trained with noise in every step. That noise has no"
        " known law: weights are not debiased, no noise is stated for them, and no interval"
        " includes it.",
    )
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "activation": ("tanh",), "loss": ("balanced",), "averaged": (AVERAGED,), "limit": (LIMIT,),
        "replays": (REPLAYS,),
    }  # fmt: skip

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, list | tuple) or not 1 <= len(self.hidden) <= 3:
            raise SpecError(field=f"{SETTINGS}.hidden", allowed="a list of 1 to 3 widths")
        for width in self.hidden:
            whole(f"{SETTINGS}.hidden", width, low=1, high=512)
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if self.device not in DEVICES:
            raise SpecError(field=f"{SETTINGS}.device", allowed=f"one of {', '.join(DEVICES)}")
        for name, low, high in (("steps", 1, 10**5), ("lot", 1, 10**6), ("resumes", 0, 20)):
            whole(f"{SETTINGS}.{name}", getattr(self, name), low=low, high=high)
        for name, most in (("clip", 1e6), ("learning_rate", 10)):
            value = real(f"{SETTINGS}.{name}", getattr(self, name), above=0, at_most=most)
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
            averaged=AVERAGED,
            resumes=self.resumes,
        )
        widths = (schema.width, *self.hidden, 1)
        calibrated = RatioTraining(
            architecture=Architecture(widths=widths, activation="tanh"),
            private=replace(private, noise_multiplier=private.multiplier_for(rho)),
            batch=self.lot,
            nominal_rows=nominal_rows,
            schema=schema.name,
        )
        return replace(self, calibrated=calibrated)

    def check_fits(self) -> None:
        """Clip one public row, to see that torch works."""
        ready = calibrated_for(self.calibrated, method=self.method)
        check_computes("fit_weights", lambda: ready.architecture)

    @property
    def resumption(self) -> Resumption | None:
        """The terms of resuming a killed training; None: a killed training is lost."""
        return Resumption.of(steps=self.steps, resumes=self.resumes)

    def _ready_for(self, schema: PublicSchema) -> RatioTraining:
        ready = calibrated_for(self.calibrated, method=self.method)
        same = (ready.schema, ready.architecture.widths[0]) == (schema.name, schema.width)
        return calibrated_for(ready, same, method=self.method)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """The steps of one training; UncalibratedError for another unit or schema."""
        private = self._ready_for(schema).private
        return calibrated_for(private, private.unit == unit, method=self.method).events()

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """The noise of every step's sum of gradients."""
        return (self._ready_for(schema).private.released_noise(event=0),)

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
        names = ("steps", "lot", "clip", "learning_rate", "resumes", "debias")
        parameters: dict[str, Any] = {name: getattr(self, name) for name in names}
        parameters |= {"hidden": list(self.hidden), "limit": LIMIT, "averaged": AVERAGED}
        parameters |= {"replays": REPLAYS}  # a drawn run is known by its settings
        return parameters if self.calibrated is None else parameters | self.calibrated.parameters()

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
        state = ready.fit(
            inputs(schema, table.confidential()),
            inputs(schema, synthetic.scaled),
            noise=noise,
            backend=make_backend(self.device),
            watch=watch,
        )
        return Measurement(
            kind=self.kind,
            arrays={"parameters": state.average},
            facts={**self._facts(), "schema": schema.name, "synthetic_rows": synthetic.rows},
            publishable=state.publishable,
            noise=self.released_noise(schema=schema, unit=ready.private.unit),
        )

    def ratio(self, measurement: Measurement, *, schema: PublicSchema) -> ClassifierRatio:
        """log(p_real/p_synthetic) + log(N_D/n0), or WeightError for a measurement of others."""
        training = self._ready_for(schema)
        parameters = self.released(measurement, "parameters", training.architecture.size)
        return ClassifierRatio(
            logits=lambda rows: training.logits(parameters, inputs(schema, rows.scaled))
        )
