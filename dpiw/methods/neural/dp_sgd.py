"""DP-SGD, once for everything neural: Poisson lots, clipped rows, one Gaussian draw per lot.

Abadi et al. (2016), corrected (docs/method.md section 12). Synthetic rows' gradients depend on
private rows only through released parameters: no noise, no budget. All constants are public and
fixed before data is read; a run takes exactly the accounted steps, whatever it finds.

A unit of k = `max_rows` rows, sampled each by itself, meets a lot with probability q' = 1 - (1-q)^k
and moves its sum by at most k C. By joint convexity over which rows are drawn, in both directions,
such a step is dominated by the Poisson-sampled Gaussian of rate q' and noise `noise_multiplier` k
C. Replace-one needs a pair that the accountant does not hold: it is refused.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError, SpecError, UncalibratedError, setting_error
from dpiw.methods.neural.backend import CPU, Array, Backend
from dpiw.methods.neural.checkpoints import OTHER_SETTINGS, Adam, TrainingState, check_resumable
from dpiw.methods.neural.clipping import LEAST_CLIP, ClipRule, RowLoss, clipped_sum
from dpiw.methods.neural.networks import Layered, Network
from dpiw.privacy.events import PoissonSampledGaussianEvent
from dpiw.privacy.measurement import ReleasedNoise
from dpiw.privacy.mechanisms import noisy_sum
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.resumption import UNWATCHED, TrainingWatch, interval
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, PrivacyUnit

PublicGradient = Callable[[Network, int], Array]
"""Gradient of public rows at a network and a step (from 0), shape (p,): not noised."""

ASSUMPTION = (
    "DP-SGD draws its lots and its Gaussian noise in double precision from ChaCha20 keystreams"
    " under fresh keys of the operating system, and rounds each noisy sum to a lattice of at most"
    " 2^-10 noise scales. The doubles' errors are taken to stay below the accountant's margin of"
    " 1e-4 of the scale; this is argued, not proved."
)
"""For the certificate of every release with a network."""

IMAGE_ASSUMPTION = (
    "The norms by which the rows' gradients of convolutional networks are clipped are found by"
    " Opacus and torch in double precision; they were tried on public rows, layer by layer in"
    " tests, and are taken to be right on every row."
)
"""For the certificate of every release with convolutions."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateLots:
    """The private rows, shape (n, inputs), n >= 0, and the network and loss of lots (hot).

    `backend` computes one lot at a time; rows, parameters and optimiser stay on the CPU.
    """

    architecture: Layered
    rows: NDArray[np.float64]
    loss: RowLoss
    backend: Backend = CPU


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """Every public constant of one run of DP-SGD; the settings' own checks come first.

    Attributes:
        sampling_rate: q, of each private row; from the public nominal_rows, never from the data.
        steps: T, number of lots, each with one draw of noise.
        clip: C, bound on one row's part of the sum.
        divisor: L, by which noisy and public sums are divided.
        noise_multiplier: noise standard deviation over max_rows C; None: not calibrated.
        averaged: released parameters are the mean over this last share of steps, in [0, 1).
        resumes: most resumes from a checkpoint; each may repeat an interval, accounted.

    Raises:
        SpecError: a rate outside (0, 1], a clip below `LEAST_CLIP`, or replace-one.
        UncalibratedError: a noise multiplier that is no finite number > 0.
    """

    sampling_rate: float
    steps: int
    clip: float
    divisor: float
    unit: PrivacyUnit
    noise_multiplier: float | None = None
    rule: ClipRule = ClipRule.LOSS
    optimiser: Adam = field(default_factory=Adam)
    averaged: float = 0.0
    resumes: int = 0

    def __post_init__(self) -> None:
        if self.unit.relation is not NeighbouringRelation.ADD_OR_REMOVE_ONE:
            raise SpecError(
                "trains no networks", field="relation=replace_one", allowed="add_or_remove_one"
            )
        if not 0 < self.sampling_rate <= 1:
            raise setting_error(self, "training.sampling_rate", "a number in (0, 1]")
        if not LEAST_CLIP <= self.clip < math.inf:
            raise setting_error(self, "training.clip", f"a finite number >= {LEAST_CLIP:g}")
        multiplier = self.noise_multiplier
        if multiplier is not None and not (math.isfinite(multiplier) and multiplier > 0):
            raise UncalibratedError(
                f"{multiplier}", field="training.noise_multiplier", allowed="a finite number > 0"
            )

    @property
    def drawn(self) -> int:
        """T + R K: accounted steps, those that resumes may repeat included."""
        return self.steps + self.resumes * interval(self.steps)

    @property
    def scale(self) -> float:
        """Standard deviation of the noise in each coordinate of the sum; UncalibratedError."""
        return self._multiplier * self.unit.max_rows * self.clip

    @property
    def _multiplier(self) -> float:
        if self.noise_multiplier is None:
            raise UncalibratedError(
                "no noise multiplier yet; call `calibrate` first", field="training"
            )
        return self.noise_multiplier

    @property
    def unit_rate(self) -> float:
        """q': probability that a lot holds a row of a unit, rounded up."""
        if self.unit.max_rows == 1 or self.sampling_rate == 1:
            return self.sampling_rate
        rate = -math.expm1(self.unit.max_rows * math.log1p(-self.sampling_rate))
        return min(1.0, rate * (1 + 1e-12))

    def multiplier_for(self, rho: float) -> float:
        """The noise multiplier for about `rho` of zCDP, decreasing, continuous; shares effort only.

        T steps are about Gaussian of parameter q' sqrt(T (exp(1/s^2) - 1)) (Bu et al. 2020).
        """
        if not (math.isfinite(rho) and rho > 0):
            raise SpecError(
                f"found rho={rho:g}", field="training", allowed="a finite zCDP effort rho > 0"
            )
        return 1 / math.sqrt(math.log1p(2 * rho / (self.unit_rate**2 * self.drawn)))

    def events(self) -> tuple[PoissonSampledGaussianEvent, ...]:
        """The event of a run, with what resumes may repeat; raises UncalibratedError."""
        return (
            PoissonSampledGaussianEvent(
                sampling_probability=self.unit_rate,
                noise_multiplier=self._multiplier,
                count=self.drawn,
            ),
        )

    def released_noise(self, *, event: int) -> ReleasedNoise:
        """Noise of every lot's sum, which the event at index `event` accounts for."""
        return ReleasedNoise(
            values="gradient",
            law=NoiseKind.GAUSSIAN,
            scale=self.scale,
            sensitivity=self.unit.max_rows * self.clip,
            event=event,
        )

    def parameters(self) -> dict[str, Any]:
        """Every public constant, JSON values."""
        return {
            "sampling_rate": self.sampling_rate,
            "steps": self.steps,
            "resumes": self.resumes,
            "steps_accounted": self.drawn,
            "clip": self.clip,
            "clip_rule": self.rule.value,
            "divisor": self.divisor,
            "noise_multiplier": self.noise_multiplier,
            "relation": self.unit.relation.value,
            "max_rows": self.unit.max_rows,
            "optimiser": self.optimiser.parameters(),
            "averaged": self.averaged,
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the constants: a checkpoint with other constants is refused."""
        text = json.dumps(self.parameters(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(b"dpiw-dp-sgd-v1\n" + text.encode()).hexdigest()

    def start(self, initial: NDArray[np.float64], *, publishable: bool) -> TrainingState:
        """The state before the first step, from public parameters of shape (p,)."""
        return TrainingState(
            step=0,
            parameters=np.asarray(initial, dtype=np.float64),
            moments=self.optimiser.start(initial.size),
            average=np.zeros(initial.size),
            settings=self.digest,
            publishable=publishable,
        )

    def private_step(
        self,
        state: TrainingState,
        lots: PrivateLots,
        *,
        noise: NoiseSource,
        public: PublicGradient | None = None,
    ) -> TrainingState:
        """One lot: sample, clip, add noise once, add the `public` gradient, divide by L, update.

        Privacy:
            Unit: `unit`, under add/remove. L2 of the sum: max_rows C. Event: one of the `steps` of
            `events`: noise is drawn for empty lots too, and only the noisy sum reaches the state.
            PrivacyError if no accounted step is left, or for a state of other settings.
        """
        self._check(state, noise)
        backend = lots.backend
        network = lots.architecture.network(backend.array(state.parameters))
        lot = noise.poisson_sample(rows=lots.rows.shape[0], probability=self.sampling_rate)
        lot_rows = backend.array(lots.rows.take(lot, axis=0))
        exact = clipped_sum(network, lot_rows, lots.loss, clip=self.clip, rule=self.rule)
        total = noisy_sum(backend.to_numpy(exact), scale=self.scale, noise=noise)
        if public is not None:
            total += backend.to_numpy(public(network, state.step))
        total *= 1.0 / self.divisor
        return self._updated(state, total)

    def _check(self, state: TrainingState, noise: NoiseSource) -> None:
        self.check_settings(state)
        if state.step >= self.steps:
            raise PrivacyError(
                f"every accounted step was taken, {self.steps} in all; for more steps, call"
                " `calibrate` on a training with a larger `steps`",
                field="training",
            )
        if state.publishable and not noise.publishable:
            raise PrivacyError(
                "publishable state, seeded noise; use a publishable noise source", field="training"
            )

    def _updated(self, state: TrainingState, gradient: NDArray[np.float64]) -> TrainingState:
        step = state.step + 1
        parameters, moments = self.optimiser.update(state.parameters, gradient, state.moments, step)
        tail = max(1, math.floor(self.averaged * self.steps))
        average, averaged = state.average, step - (self.steps - tail)
        if averaged > 0:
            average = average + (parameters - average) / averaged
        return replace(state, step=step, parameters=parameters, moments=moments, average=average)

    def train(
        self,
        state: TrainingState,
        lots: PrivateLots,
        *,
        noise: NoiseSource,
        public: PublicGradient | None = None,
        watch: TrainingWatch = UNWATCHED,
    ) -> TrainingState:
        """All steps that are left; `watch` gets states, and a checkpoint it holds replaces `state`.

        Privacy:
            Unit and event: as `private_step`, once per step. A resumed training repeats the steps
            after its checkpoint; PrivacyError if none is reserved, or for other settings.
        """
        checkpoint = watch.resumed()
        if checkpoint is not None:
            check_resumable(self.resumes)
            state = TrainingState.from_bytes(checkpoint)
            self.check_settings(state)  # also where no step is left to take
        else:
            watch.at(state.step, self.steps, state.to_bytes)
        while state.step < self.steps:
            state = self.private_step(state, lots, noise=noise, public=public)
            if state.step % interval(self.steps) == 0 or state.step == self.steps:
                watch.at(state.step, self.steps, state.to_bytes)
        return state

    def check_settings(self, state: TrainingState) -> None:
        """Raise PrivacyError unless a state is of this training."""
        if state.settings != self.digest:
            raise PrivacyError(OTHER_SETTINGS, field="training")
