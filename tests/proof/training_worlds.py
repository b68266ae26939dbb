"""Everything that learns by DP-SGD on an empty table and on one with a single row, the canary.

The attacker sees what the event counts: the noisy sum of every step, and the public parameters at
which it was taken (white box). The score is the exact likelihood ratio of the steps, over whether
the canary was in the lot. Where clipping binds and the loss has its greatest slope at the canary,
nothing is lost but chance. `discriminator` weights are a function of the networks attacked here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from dpiw.data.tables import SyntheticTable
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.neural import dp_sgd
from dpiw.methods.neural.backend import CPU
from dpiw.methods.weights.paper.mlp import DensityNetwork, inputs
from dpiw.privacy import mechanisms
from dpiw.privacy.units import NoiseKind
from tests.proof.attacks import World, claim_of, log_likelihood_ratio
from tests.support.worlds import UNIT, flags, repeated

SCHEMA = flags("x", "y", target="y")
TABLES = repeated(SCHEMA), repeated(SCHEMA, 1)
"""Nobody, and the canary."""
CANARY = TABLES[1].confidential()
ROWS, EFFORT = 100, 2.0


class Transcript:
    """All noisy values of one run."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, Any, float]] = []
        """The noisy sum, the canary's part of it if drawn, and the scale."""
        self.counts: list[tuple[Any, float]] = []

    def score(self, rate: float) -> float:
        """Log likelihood ratio of the canary in the table to nobody."""
        total = 0.0
        for noisy, canary, scale in self.steps:
            ratio = log_likelihood_ratio(NoiseKind.GAUSSIAN, scale, noisy, 0 * canary, canary)
            if rate < 1:
                ratio = float(np.logaddexp(np.log1p(-rate), np.log(rate) + ratio))
            total += ratio
        for noisy, scale in self.counts:  # of the label's levels: the canary has the last one
            exact = np.eye(noisy.size)[-1]
            total += log_likelihood_ratio(NoiseKind.GAUSSIAN, scale, noisy, 0 * exact, exact)
        return total


@contextmanager
def watched(canary: Any) -> Iterator[Transcript]:
    """Everything that leaves the mechanisms, as an attacker would write it down."""
    transcript, parts = Transcript(), []
    clipped, noised, counted = dp_sgd.clipped_sum, dp_sgd.noisy_sum, mechanisms.noisy_counts

    def clipping(network, rows, loss, **rest):
        parts.append(CPU.to_numpy(clipped(network, CPU.array(canary), loss, **rest)))
        return clipped(network, rows, loss, **rest)

    def noising(total, *, scale, noise):
        noisy = noised(total, scale=scale, noise=noise)
        transcript.steps.append((noisy.copy(), parts.pop(), scale))
        return noisy

    def counting(counts, *, law, noise):
        noisy = counted(counts, law=law, noise=noise)
        transcript.counts.append((noisy, law.scale))
        return noisy

    with (
        mock.patch.object(dp_sgd, "clipped_sum", clipping),
        mock.patch.object(dp_sgd, "noisy_sum", noising),
        mock.patch.object(mechanisms, "noisy_counts", counting),
    ):
        yield transcript


def white_box(ready: Any, canary: Any, run: Callable[[bool, Any], Any], **facts: Any) -> World:
    events = ready.events(schema=SCHEMA, unit=UNIT)
    rate = events[-1].sampling_probability

    def attack(within, noise):
        with watched(canary) as transcript:
            run(within, noise)
        assert len(transcript.steps) == events[-1].count  # nothing is reserved for resuming
        return transcript.score(rate)

    return World(attack=attack, claim=claim_of(events), few=0.3, **facts)


def dp_mlp(*, lot: int, rho: float = EFFORT, **facts: Any) -> World:
    method = DensityNetwork(hidden=(2,), steps=4, lot=lot, clip=0.05, learning_rate=0.5, resumes=0)
    ready = method.calibrate(rho=rho, schema=SCHEMA, unit=UNIT, nominal_rows=ROWS)
    synthetic = SyntheticTable(schema=SCHEMA, scaled=CANARY)
    return white_box(
        ready, inputs(SCHEMA, CANARY),
        lambda within, noise: ready.measure(TABLES[within], synthetic, noise=noise), **facts,
    )  # fmt: skip


GAME = {
    "steps": 4, "lot": ROWS, "batch": 4, "latent": 1, "generator": (1,), "discriminator": (2,),
    "clip": 0.05, "discriminator_rate": 0.9, "penalty": 0.0, "resumes": 0,
    "marginals_share": 0.0,
}  # fmt: skip


def dpgan(kind: type[DPGAN], *, tight: float, rho: float = EFFORT, **settings: Any) -> World:
    ready = kind(**GAME | settings).calibrate(rho=rho, schema=SCHEMA, unit=UNIT, nominal_rows=ROWS)
    return white_box(
        ready, ready.design(SCHEMA).encode(CANARY),
        lambda within, noise: ready.measure(TABLES[within], noise=noise), tight=tight, faint=0.3,
    )  # fmt: skip


WORLDS: dict[str, Callable[[], World]] = {
    "dp_mlp, every row in every lot": lambda: dp_mlp(lot=ROWS, tight=0.4, faint=0.5),
    "dp_mlp, half of the rows": lambda: dp_mlp(lot=ROWS // 2, rho=8.0, tight=0.1, faint=0.3),
    "dpgan": lambda: dpgan(DPGAN, tight=0.25),
    "dpgan wasserstein": lambda: dpgan(DPGAN, loss="wasserstein", tight=0.4),
    "dpgan, half of the rows": lambda: dpgan(
        DPGAN, lot=ROWS // 2, rho=8.0, loss="wasserstein", tight=0.12
    ),
    "dpcgan": lambda: dpgan(DPCGAN, loss="wasserstein", proportions_share=0.3, tight=0.45),
}
