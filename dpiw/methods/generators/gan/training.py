"""The generator's side of an adversarial game: public throughout.

Generators learn from discriminators only, so they post-process accounted outputs. All randomness
follows from public facts (`PublicRandom`), so a resumed run repeats it; `start` is chosen before
data are read, and no privacy noise follows from it.
Source: Goodfellow et al. (2014); Arjovsky et al. (2017); conditional: Mirza & Osindero (2014).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.heads import Heads
from dpiw.methods.neural.backend import CPU, library
from dpiw.methods.neural.backend import Array as AnyArray
from dpiw.methods.neural.checkpoints import Adam, NetworkState
from dpiw.methods.neural.clipping import Critic, Logistic, RowLoss
from dpiw.methods.neural.networks import Network

Array = NDArray[np.float64]

LOSSES = ("logistic", "wasserstein")

LEVELLING_ROWS, SETTLING_ROWS = 1024, 65536
"""Public rows that marginals are levelled on, during training and at the end."""

LEVELLING_EVERY = 10
"""Approximate generator steps between two levellings."""

SHRINKAGE = 1.0
"""Decay of a generator with known marginals towards independence, per step and unit of its rate."""


def loss_of(name: str, *, real: bool) -> RowLoss:
    """Return the loss of a row; `real` for private rows and for the generator."""
    if name == "logistic":
        return Logistic(label=int(real))
    return Critic(sign=-1 if real else 1)


@dataclass(frozen=True, kw_only=True)
class PublicRandom:
    """Random generators that anyone can repeat from public facts (SHA-256, hexadecimal)."""

    facts: str

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """From JSON values, none of which may depend on private data."""
        text = json.dumps(facts, sort_keys=True, allow_nan=False)
        return cls(facts=hashlib.sha256(b"dpiw-public-random-v1\n" + text.encode()).hexdigest())

    def rng(self, purpose: str, *numbers: int) -> np.random.Generator:
        """Generator of one purpose and place."""
        words = hashlib.sha256(purpose.encode()).digest()[:8]
        return np.random.default_rng([int(self.facts, 16), int.from_bytes(words), *numbers])


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows that a generator makes of `inputs` and `noise`.

    `inputs`: latents and labels, shape (n, latent + given). `labels` are scaled as
    the discriminator sees them.
    """

    network: Network
    heads: Heads
    inputs: Array
    outputs: Array
    noise: Array
    labels: Array

    @property
    def rows(self) -> Array:
        """Input of a discriminator, shape (n, width)."""
        return np.hstack([self.heads.draw(self.outputs, self.noise), self.labels])

    def gradient(self, slopes: Array) -> Array:
        """Derivative by the generator's parameters, (p,), from slopes by the rows, (n, width)."""
        network = self.network.learning()
        outputs = network.outputs(CPU.array(self.inputs))
        relaxed = self.heads.relaxed(outputs, CPU.array(self.noise))
        by = CPU.array(slopes[:, : self.heads.width])
        (gradient,) = library().autograd.grad(relaxed, network.parameters, by)
        return CPU.to_numpy(gradient)


def make_batch(
    design: Design, parameters: Array, proportions: Array, rows: int, rng: np.random.Generator
) -> Batch:
    """Rows of a generator at `parameters`; the same `rng` state gives the same rows."""
    labels = design.labels(rows, proportions, rng)
    inputs = np.hstack([rng.standard_normal((rows, design.latent)), labels])
    noise = design.made.draw_noise(rows, rng)
    network = design.generator_architecture.network(parameters)
    outputs = CPU.to_numpy(network.outputs(CPU.array(inputs)))
    return Batch(
        network=network, heads=design.made, inputs=inputs, outputs=outputs, noise=noise,
        labels=design.label_scale * labels,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GeneratorTraining:
    """Public settings of training a generator against a discriminator.

    Its states' average is a running mean: an update replaces max(0.01, 10/(step + 10)) of it.
    """

    design: Design
    loss: str
    batch: int
    learning_rate: float
    chance: PublicRandom

    @cached_property
    def _optimiser(self) -> Adam:
        return Adam(learning_rate=self.learning_rate, first=0.5, second=0.99)

    def levelled(self, parameters: Array, proportions: Array, *place: int) -> GeneratorTraining:
        """With marginals, if known, levelled for a generator at `parameters` and a public place.

        Without a place: for the final generator, on more rows.
        """
        distributions = self.design.distributions
        if distributions is None:
            return self
        purpose, rows = ("levelling", LEVELLING_ROWS) if place else ("settling", SETTLING_ROWS)
        rng = self.chance.rng(purpose, *place)
        batch = make_batch(self.design, parameters, proportions, rows, rng)
        distributions = distributions.levelled(batch.heads, batch.outputs, batch.noise)
        return replace(self, design=replace(self.design, distributions=distributions))

    def start(self) -> NetworkState:
        """State before the first update; where marginals are known, without any dependence."""
        design = self.design
        initial = design.generator_architecture.initial(self.chance.rng("generator"))
        if design.distributions is not None:
            inputs = (design.latent + design.given.width, *design.generator)[-1]
            initial[-(inputs + 1) * design.made.width :] = 0.0
        return NetworkState(
            step=0, parameters=initial, moments=self._optimiser.start(initial.size), average=initial
        )

    def rows(self, parameters: Array, proportions: Array, *place: int) -> Array:
        """Rows for the discriminator at a public place in the run, shape (batch, width)."""
        rng = self.chance.rng("discriminator rows", *place)
        return make_batch(self.design, parameters, proportions, self.batch, rng).rows

    def update(
        self, state: NetworkState, discriminator: Network, proportions: Array
    ) -> NetworkState:
        """One step against a discriminator with public parameters."""
        rng = self.chance.rng("generator rows", state.step)
        batch = make_batch(self.design, state.parameters, proportions, self.batch, rng)
        slopes = row_slopes(discriminator, batch.rows, loss_of(self.loss, real=True))
        gradient = batch.gradient(slopes) / self.batch
        step = state.step + 1
        parameters, moments = self._optimiser.update(
            state.parameters, gradient, state.moments, step
        )
        if self.design.distributions is not None:
            parameters = parameters * (1 - SHRINKAGE * self.learning_rate)
        share = max(0.01, 10 / (step + 10))
        return replace(
            state,
            step=step,
            parameters=parameters,
            moments=moments,
            average=state.average + share * (parameters - state.average),
        )


def row_slopes(discriminator: Network, rows: Array, loss: RowLoss) -> Array:
    """Derivative of each row's loss by the row itself, shape (n, width); public rows."""
    backend = discriminator.backend
    seen = backend.array(rows).requires_grad_()
    outputs = discriminator.outputs(seen)
    (slopes,) = library().autograd.grad(outputs, seen, loss.slopes(outputs.detach()))
    return backend.to_numpy(slopes)


def gradient_penalty(discriminator: Network, rows: AnyArray) -> AnyArray:
    """Derivative by the parameters, (p,), of the mean of |d output/d row|^2 / 2 at synthetic rows.

    Reads no private row: public and free. Keeps the discriminator flat near the generator (the R2
    penalty of Mescheder et al. 2018).
    """
    grad, network = library().autograd.grad, discriminator.learning()
    seen = rows.detach().clone().requires_grad_()
    (slopes,) = grad(network.outputs(seen).sum(), seen, create_graph=True)
    return grad((slopes * slopes).sum() / (2 * max(1, len(rows))), network.parameters)[0]
