"""Relaxed DP-SGD of a classifier of private against synthetic rows, whose logit is a log ratio.

B public rows weigh L/B each, L = q n0: the logit's stationary point is log(p_real/p_synthetic) +
log(N_D/n0) (docs/method.md section 2), and `ClipRule.OUTPUT` keeps it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.neural.backend import CPU, Array, Backend, computing
from dpiw.methods.neural.checkpoints import TrainingState
from dpiw.methods.neural.clipping import Balanced, Logistic, RowLoss, clipped_sum
from dpiw.methods.neural.dp_sgd import PrivateLots, PrivateTraining, PublicGradient
from dpiw.methods.neural.networks import Architecture, Network
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.resumption import UNWATCHED, TrainingWatch

Matrix = NDArray[np.float64]

MOST_STAND_INS = 20_000
"""Largest number of rows that replace the private table in a simulation."""

LOSSES: Mapping[str, Callable[..., RowLoss]] = {"logistic": Logistic, "balanced": Balanced}


@dataclass(frozen=True, kw_only=True)
class RatioTraining:
    """A network of one output, a private training, a loss, and B synthetic rows per step."""

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

    def _public_gradient(self, synthetic: Matrix, backend: Backend) -> PublicGradient:
        order = np.random.default_rng([self._public_number, 1]).permutation(len(synthetic))
        size = min(self.batch, len(synthetic))
        # Laid out twice, so that every cyclic minibatch is a slice.
        rows = synthetic[np.concatenate([order, order[:size]])]
        weight = self.private.divisor / 2 / size
        loss = LOSSES[self.loss](label=0)

        def gradient(network: Network, step: int) -> Array:
            first = step * size % len(synthetic)
            batch = backend.array(rows[first : first + size])
            clip, rule = self.private.clip, self.private.rule
            return weight * clipped_sum(network, batch, loss, clip=clip, rule=rule)

        return gradient

    @computing()
    def fit(
        self,
        private: Matrix,
        synthetic: Matrix,
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
    def logits(self, parameters: Matrix, rows: Matrix) -> Matrix:
        """The classifier's logits, shape (n,)."""
        network = self.architecture.network(parameters)
        return CPU.to_numpy(network.outputs(CPU.array(rows))[:, 0])


def replay(
    training: RatioTraining, rows: Matrix, *, nominal_rows: int, noise: NoiseSource, number: int
) -> TrainingState:
    """The training on public rows alone, at least two: noise and sampling on a ratio of one.

    Half of the rows are the synthetic table; min(n0, 20,000) stand-ins for private rows are drawn
    from the other half, at the rate that keeps lot sizes. `number` fixes the halves and the draw.
    """
    rng = np.random.default_rng([training._public_number, 2, number])
    pool, rest = np.array_split(rng.permutation(len(rows)), 2)
    size = min(nominal_rows, MOST_STAND_INS)
    # Where there are enough, no row need stand in twice.
    stand_in = pool[:size] if size <= len(pool) else rng.choice(pool, size)
    rate = min(1.0, training.private.divisor / 2 / size)
    smaller = replace(training, private=replace(training.private, sampling_rate=rate))
    return smaller.fit(rows[stand_in], rows[rest], noise=noise)
