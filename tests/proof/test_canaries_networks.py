"""E3: what attacks prove of the epsilon of everything that learns by DP-SGD.

Neighbours: an empty table and one with a single row, the canary. The attacker sees what the event
counts: the noisy sum of every step, and the public parameters at which it was taken (white box).
The canary's clipped gradient at these is then known, and the score is the exact likelihood ratio of
the steps, over whether the canary was in the lot. Where clipping binds and the loss has its
greatest slope at the canary, nothing is lost but chance. `discriminator` weights are a function of
the networks attacked here; by themselves they gave no attack that refutes a tenth of the noise.

Each bound is wrong with probability 1e-8 (`attacks.ERROR`). Fixed seeds in the slice, noise of the
operating system in the full figures (marker `proof`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpiw.data.schema import ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.generators.gan.dpgan import DPCGAN, DPGAN
from dpiw.methods.neural import dp_sgd
from dpiw.methods.neural.backend import CPU
from dpiw.methods.weights.paper.mlp import DensityNetwork, inputs
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.proof.attacks import (
    Scaled,
    World,
    assault,
    at_length,
    claim_of,
    enough,
    log_likelihood_ratio,
)
from tests.support.worlds import UNIT, flags

SCHEMA = flags("x", "y", target="y")
ROWS = 100
EFFORT = 2.0
FULL = 3000


def scaled(rows: int) -> ScaledTable:
    """The canary, or nobody."""
    return ScaledTable({name: np.ones(rows, dtype=np.int32) for name in ("x", "y")}, rows)


TABLES = [PrivateTable(schema=SCHEMA, scaled=scaled(rows)) for rows in (0, 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """What an attacker sees of one step: the noisy sum, and the canary's part of it if drawn."""

    noisy: Any
    canary: Any
    scale: float


class Transcript:
    """All noisy values of one run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.counts: list[tuple[Any, float]] = []

    def score(self, rate: float) -> float:
        """Log likelihood ratio of the canary in the table to nobody."""
        total = 0.0
        for step in self.steps:
            ratio = log_likelihood_ratio(
                NoiseKind.GAUSSIAN, step.scale, step.noisy, np.zeros_like(step.canary), step.canary
            )
            total += (
                float(np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)) if rate < 1 else ratio
            )
        for noisy, scale in self.counts:  # of the label's levels: the canary has the last one
            exact = np.eye(noisy.size)[-1]
            total += log_likelihood_ratio(NoiseKind.GAUSSIAN, scale, noisy, 0 * exact, exact)
        return total


@contextmanager
def watched(canary: Any) -> Iterator[Transcript]:
    """Everything that leaves the mechanisms, as an attacker would write it down."""
    transcript, parts = Transcript(), []
    clipped, noised, counted = dp_sgd.clipped_sum, dp_sgd.noisy_sum, mechanisms.noisy_counts

    def clipping(network: Any, rows: Any, loss: Any, **rest: Any) -> Any:
        parts.append(CPU.to_numpy(clipped(network, CPU.array(canary), loss, **rest)))
        return clipped(network, rows, loss, **rest)

    def noising(total: Any, *, scale: float, noise: Any) -> Any:
        noisy = noised(total, scale=scale, noise=noise)
        transcript.steps.append(Step(noisy=noisy.copy(), canary=parts.pop(), scale=scale))
        return noisy

    def counting(counts: Any, *, law: Any, noise: Any) -> Any:
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

    def attack(within: bool, noise: Any) -> float:
        with watched(canary) as transcript:
            run(within, noise)
        assert len(transcript.steps) == events[-1].count  # nothing is reserved for resuming
        return transcript.score(rate)

    return World(attack=attack, claim=claim_of(events), **facts)


def dp_mlp(*, lot: int, rho: float = EFFORT, **facts: Any) -> World:
    method = DensityNetwork(
        hidden=(2,), steps=4, lot=lot, clip=0.05, learning_rate=0.5, replays=0, resumes=0
    )
    ready = method.calibrate(rho=rho, schema=SCHEMA, unit=UNIT, nominal_rows=ROWS)
    synthetic = SyntheticTable(schema=SCHEMA, scaled=scaled(1))
    return white_box(
        ready,
        inputs(SCHEMA, scaled(1)),
        lambda within, noise: ready.measure(TABLES[within], synthetic, noise=noise),
        **facts,
    )


GAME = {
    "steps": 4, "lot": ROWS, "batch": 4, "latent": 1, "generator": (1,), "discriminator": (2,),
    "clip": 0.05, "discriminator_rate": 0.9, "penalty": 0.0, "resumes": 0,
    "marginals_share": 0.0,
}  # fmt: skip


def gan(kind: type[DPGAN], *, rho: float = EFFORT, **settings: Any) -> Any:
    return kind(**GAME | settings).calibrate(  # type: ignore[arg-type]
        rho=rho, schema=SCHEMA, unit=UNIT, nominal_rows=ROWS
    )


def dpgan(kind: type[DPGAN], *, tight: float, **settings: Any) -> World:
    ready = gan(kind, **settings)
    return white_box(
        ready,
        ready.design(SCHEMA).encode(scaled(1)),
        lambda within, noise: ready.measure(TABLES[within], noise=noise),
        tight=tight,
        faint=0.3,
    )


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

DETECTED = ("dp_mlp, every row in every lot", "dpgan wasserstein")
"""Trainings whose planted bug (0.3 of the noise) few runs find."""


def test_a_small_claim_holds_and_a_twentieth_of_its_noise_is_refuted() -> None:
    """The slice: a claim so small that few runs can refute it."""
    world = dp_mlp(lot=ROWS, rho=0.125, tight=0.4)
    honest = assault(world, runs=enough(world), noise=SeededNoise(20_240_301))
    planted = assault(world, runs=enough(world), noise=Scaled(20_240_302, 0.05))
    assert honest.lower <= honest.claimed
    assert planted.lower > planted.claimed


@pytest.mark.nightly
@pytest.mark.parametrize("name", WORLDS)
def test_no_attack_proves_more_than_a_training_claims(name: str) -> None:
    world = WORLDS[name]()
    bound = assault(world, runs=enough(world), noise=SeededNoise(20_240_301))
    assert bound.lower <= bound.claimed


@pytest.mark.nightly
@pytest.mark.parametrize("name", DETECTED)
def test_a_training_with_too_little_noise_is_refuted(name: str) -> None:
    world = WORLDS[name]()
    bound = assault(world, runs=enough(world), noise=Scaled(20_240_302, 0.3))
    assert bound.lower > bound.claimed


@pytest.mark.proof
@pytest.mark.parametrize("name", WORLDS)
def test_the_trainings_bounds_at_length(name: str, prove: Callable[..., None]) -> None:
    at_length(WORLDS[name](), name, promise="E3", runs=FULL, prove=prove)
