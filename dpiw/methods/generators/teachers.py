"""The two parties of PATE: teachers on disjoint private rows, and a student who asks them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.generators.adversarial import Array, PublicRandom, gradient_penalty
from dpiw.methods.generators.design import Design
from dpiw.methods.neural.engine import AnyNetwork
from dpiw.methods.neural.losses import Logistic
from dpiw.methods.neural.mlp import Architecture
from dpiw.methods.neural.optimisers import Adam
from dpiw.privacy.mechanisms import draw_below
from dpiw.privacy.randomness import NoiseSource


def deal(rows: int, teachers: int, *, noise: NoiseSource) -> NDArray[np.int64]:
    """Which teacher each row goes to, shape (rows,): independent and uniform draws.

    Whatever the rows hold, and wherever they stand: see `dpiw.methods.generators.pategan` for why.

    Args:
        rows: how many there are.
        teachers: k; public.
        noise: where the draws come from.
    """
    return np.array([draw_below(teachers, noise=noise) for _ in range(rows)], dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Teachers:
    """All teachers (hot): k networks with one hidden layer, trained side by side.

    Every array is stacked along the teachers and of public shape: a lot has as many rows for a
    teacher of few rows as for one of many, in turn and again. No operation runs across the stack,
    so a teacher is a function of its own rows, bit for bit, and of public values.

    Attributes:
        rows: private rows, shape (n, width).
        order: row numbers, teacher by teacher, shape (n,).
        starts, sizes: where a teacher's part of `order` starts, and its length, shape (k,).
        hidden: width of the hidden layer.
        parameters: shape (k, p).
        moments: of the optimiser, shape (2, k p).
        optimiser: of all.
        step: gradient steps taken.
    """

    rows: Array
    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    hidden: int
    parameters: Array
    moments: Array
    optimiser: Adam
    step: int = 0

    @classmethod
    def start(
        cls,
        rows: Array,
        dealt: NDArray[np.int64],
        *,
        count: int,
        hidden: int,
        rate: float,
        chance: PublicRandom,
    ) -> Self:
        """Teachers who have learnt nothing yet.

        Args:
            rows: private rows, shape (n, width).
            dealt: each row's teacher, shape (n,).
            count: k.
            hidden: width of the hidden layer.
            rate: learning rate.
            chance: initial parameters, public.
        """
        architecture = Architecture(widths=(rows.shape[1], hidden, 1), activation="tanh")
        rng = chance.rng("teachers")
        initial = np.stack([architecture.initial(rng) for _ in range(count)])
        optimiser = Adam(learning_rate=rate, first=0.5, second=0.99)
        sizes = np.bincount(dealt, minlength=count)
        return cls(
            rows=rows,
            order=np.argsort(dealt, kind="stable"),
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            hidden=hidden,
            parameters=initial,
            moments=optimiser.start(initial.size),
            optimiser=optimiser,
        )

    def _layers(self) -> tuple[Array, Array, Array, Array]:
        """Weights (k, width, h), biases (k, 1, h), weights (k, h, 1), biases (k, 1, 1)."""
        count, width, hidden = len(self.parameters), self.rows.shape[1], self.hidden
        ends = np.cumsum([width * hidden, hidden, hidden])
        first, bias, second, last = np.split(self.parameters, ends, axis=1)
        return (
            first.reshape(count, width, hidden),
            bias[:, None, :],
            second[:, :, None],
            last[:, None, :],
        )

    def _lot(self, size: int) -> tuple[Array, Array]:
        """The next rows of every teacher, shape (k, size, width), and 1/size, or 0 without rows."""
        count, width = len(self.sizes), self.rows.shape[1]
        if len(self.rows) == 0:
            return np.zeros((count, size, width)), np.zeros((count, 1, 1))
        turn = (self.step * size + np.arange(size)) % np.maximum(self.sizes, 1)[:, None]
        place = np.minimum(self.starts[:, None] + turn, len(self.rows) - 1)
        has_rows = (self.sizes > 0)[:, None, None]
        # A teacher without rows reads no other's: zero times a row that is not finite is no zero.
        return np.where(has_rows, self.rows[self.order[place]], 0.0), has_rows / size

    def _gradient(self, rows: Array, weights: Array, *, label: int) -> Array:
        """Of the logistic loss, shape (k, p); rows (k or 1, m, width), weights (k or 1, 1, 1)."""
        first, bias, second, last = self._layers()
        active = np.tanh(rows @ first + bias)
        slopes = Logistic(label=label).slopes(active @ second + last) * weights
        deltas = slopes * second.transpose(0, 2, 1) * (1 - active * active)
        parts = (
            rows.transpose(0, 2, 1) @ deltas,
            deltas.sum(axis=1),
            active.transpose(0, 2, 1) @ slopes,
            slopes.sum(axis=1),
        )
        return np.hstack([part.reshape(len(self.parameters), -1) for part in parts])

    def taught(self, made: Array, *, steps: int, lot: int) -> Teachers:
        """After some steps of every teacher on its own rows against the same synthetic ones.

        Both kinds weigh the same, however many rows a teacher has.

        Args:
            made: public rows, shape (m, width).
            steps: gradient steps.
            lot: own rows in a step.
        """
        teachers = self
        for _ in range(steps):
            rows, weights = teachers._lot(lot)
            even = np.full((1, 1, 1), 1 / len(made))
            gradient = teachers._gradient(rows, weights, label=1)
            gradient += teachers._gradient(made[None], even, label=0)
            step = teachers.step + 1
            flat, moments = teachers.optimiser.update(
                teachers.parameters.ravel(), gradient.ravel(), teachers.moments, step
            )
            parameters = flat.reshape(teachers.parameters.shape)
            teachers = replace(teachers, parameters=parameters, moments=moments, step=step)
        return teachers

    def votes(self, asked: Array) -> NDArray[np.int64]:
        """How many teachers call each row real, shape (n,): exact, so confidential."""
        first, bias, second, last = self._layers()
        outputs = np.tanh(asked @ first + bias) @ second + last
        return np.asarray((outputs[:, :, 0] > 0).sum(axis=0), dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Student:
    """The student (cold): a function of synthetic rows and of noisy labels.

    Attributes:
        network: what it believes.
        moments: of its optimiser.
        optimiser: the rule.
        rows: synthetic rows it remembers, round by round.
        labels: their labels, noisy shares of the teachers (below 0 or above 1 at times), by round.
        step: gradient steps taken.
    """

    network: AnyNetwork
    moments: Array
    optimiser: Adam
    rows: tuple[Array, ...] = ()
    labels: tuple[Array, ...] = ()
    step: int = 0

    @classmethod
    def start(cls, design: Design, *, rate: float, chance: PublicRandom) -> Self:
        """A student who was told nothing yet."""
        architecture = design.discriminator_architecture
        optimiser = Adam(learning_rate=rate, first=0.5, second=0.99)
        initial = architecture.initial(chance.rng("discriminator"))
        return cls(
            network=architecture.network(initial),
            moments=optimiser.start(initial.size),
            optimiser=optimiser,
        )

    @property
    def parameters(self) -> Array:
        """Of the network, shape (p,)."""
        return np.asarray(self.network.parameters)

    def told(self, rows: Array, labels: Array, *, memory: int) -> Student:
        """With one more round's rows and labels, and the last `memory` rounds' in mind."""
        return replace(
            self, rows=(*self.rows, rows)[-memory:], labels=(*self.labels, labels)[-memory:]
        )

    def learnt(self, *, steps: int, penalty: float) -> Student:
        """After some gradient steps on everything it remembers, kept flat by `gradient_penalty`."""
        rows, labels = np.concatenate(self.rows), np.concatenate(self.labels)
        network, moments, step = self.network, self.moments, self.step
        for step in range(self.step + 1, self.step + steps + 1):
            forward = network.forward(rows)
            real = Logistic(label=1).slopes(forward.outputs)
            slopes = real + (1.0 - labels[:, None])  # sigmoid - label, row by row
            gradient = forward.backward(slopes).gradient() / len(rows)
            if penalty:
                gradient += penalty * gradient_penalty(network, rows)
            parameters, moments = self.optimiser.update(network.parameters, gradient, moments, step)
            network = network.architecture.network(parameters)
        return replace(self, network=network, moments=moments, step=step)
