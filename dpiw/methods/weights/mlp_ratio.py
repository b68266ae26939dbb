"""A density ratio given by a trained network, and what chance alone would have made of it.

A network's noise has no closed law: it went through every step of the training. So nothing is
debiased, no interval may be read off the weights, and the signal test has no formula. An honest
substitute is free: play the same training where there is nothing to find, synthetic against
synthetic rows, and look at what comes out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.tables import SyntheticTable
from dpiw.errors import WeightError
from dpiw.methods.neural.ratio_training import RatioTraining, log_ratio_of, replay
from dpiw.methods.weights.density_ratio import RatioWithoutLaw
from dpiw.methods.weights.signal import public_number
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, NoiseLaw

Array = NDArray[np.float64]

INPUT_SCALE = 2.0
"""Network inputs are twice the centred row: numbers run over [-1, 1]."""


def inputs(schema: PublicSchema, scaled: ScaledTable) -> Array:
    """Network inputs, shape (rows, d): twice the centred coordinates."""
    return np.asarray(INPUT_SCALE * schema.centred(scaled))


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkRatio(RatioWithoutLaw):
    """The released network as a log ratio.

    Attributes:
        training: of which the network is the result; public.
        parameters: of the network, shape (p,), noisy.
        limit: public bound of the log ratio.
        nominal_rows: n0.
        replays: R, how often the training is played on synthetic rows alone; 0 for never.
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
        return self._log_ratio(self.parameters, rows)

    def _log_ratio(self, parameters: Array, rows: Array) -> Array:
        return log_ratio_of(self.training.logits(parameters, rows), limit=self.limit)

    def replayed(self, synthetic: SyntheticTable) -> Array:
        """Log ratios of R trainings without a difference to find, shape (rows, R), centred.

        Free: synthetic rows and public settings alone. Fixed by the released parameters, so that
        it can be repeated; the noise is simulated, never released.
        """
        rows = inputs(synthetic.schema, synthetic.scaled)
        key = hashlib.sha256(rows.tobytes()).hexdigest()
        if key not in self._played:
            if self.replays and len(rows) < 2:
                raise WeightError("weights: expected at least two synthetic rows")
            log_ratios = np.empty((len(rows), self.replays))
            for i in range(self.replays):
                state = replay(
                    self.training, rows, nominal_rows=self.nominal_rows, number=i,
                    noise=SeededNoise(public_number(self.parameters) + i),
                )  # fmt: skip
                log_ratios[:, i] = self._log_ratio(state.average, rows)
            self._played[key] = log_ratios - log_ratios.mean(axis=0)
        return self._played[key]

    def noise_parts(self, synthetic: SyntheticTable) -> list[tuple[NoiseLaw, Array]]:
        """As the replays vary, sampling error included."""
        replays = self.replayed(synthetic)
        law = NoiseLaw(kind=NoiseKind.GAUSSIAN, scale=1.0, dimension=replays.shape[1])
        return [(law, replays / max(1, replays.shape[1] - 1) ** 0.5)]

    def chance(self, synthetic: SyntheticTable) -> Array | None:
        """Of the replays, shape (R,); None without any.

        As far as replays vary no less than a real training without signal.
        """
        return self.replayed(synthetic).var(axis=0) if self.replays else None
