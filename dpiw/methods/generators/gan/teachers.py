"""The parties of PATE: teachers on disjoint private rows, and a student with its state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpiw.errors import PrivacyError
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.game import packed, unpacked
from dpiw.methods.generators.gan.training import Array, PublicRandom, gradient_penalty
from dpiw.methods.neural.backend import CPU, library
from dpiw.methods.neural.backend import Array as Tensor
from dpiw.methods.neural.checkpoints import OTHER_SETTINGS, Adam, NetworkState, read_checkpoint
from dpiw.methods.neural.clipping import Logistic
from dpiw.methods.neural.networks import Architecture, Network
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.mechanisms import draw_below
from dpiw.privacy.randomness import NoiseSource


def deal(rows: int, teachers: int, *, noise: NoiseSource) -> NDArray[np.int64]:
    """Draw each row's teacher, shape (rows,), independently and uniformly.

    Must not depend on rows or their order (see `pategan`).
    """
    return np.array([draw_below(teachers, noise=noise) for _ in range(rows)], dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Teachers:
    """All teachers (hot): k networks with one hidden layer, trained side by side.

    Arrays are stacked along the teachers and have public shapes. No operation may run across the
    stack: a teacher is then a function of its own rows, bit for bit, and of public values.

    Attributes:
        rows: private rows, shape (n, width).
        order: row numbers, teacher by teacher, shape (n,).
        starts, sizes: start and length of each teacher's part of `order`, shape (k,).
        parameters: shape (k, p).
        moments: of the optimiser, shape (2, k p).
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
        """Create untrained teachers with public parameters; `dealt` is each row's teacher."""
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

    def _outputs(self, parameters: Tensor, rows: Tensor) -> Tensor:
        """Every teacher's logits, shape (k, m, 1), of rows (k or 1, m, width) or (m, width)."""
        width, hidden = self.rows.shape[1], self.hidden
        first, bias, second, last = parameters.split([width * hidden, hidden, hidden, 1], 1)
        active = (rows @ first.view(-1, width, hidden) + bias[:, None, :]).tanh()
        return active @ second[:, :, None] + last[:, None, :]

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
        parameters = CPU.array(self.parameters).requires_grad_()
        outputs = self._outputs(parameters, CPU.array(rows))
        slopes = Logistic(label=label).slopes(outputs.detach()) * CPU.array(weights)
        return CPU.to_numpy(library().autograd.grad(outputs, parameters, slopes)[0])

    def taught(self, made: Array, *, steps: int, lot: int) -> Teachers:
        """Train each teacher on its own rows, `lot` per step, against public rows `made`."""
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
        """Number of teachers that call each row real, shape (n,): exact, so confidential."""
        outputs = CPU.to_numpy(self._outputs(CPU.array(self.parameters), CPU.array(asked)))
        return np.asarray((outputs[:, :, 0] > 0).sum(axis=0), dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Student:
    """The student (cold): a function of synthetic rows and of noisy labels.

    Attributes:
        rows: remembered synthetic rows, by round.
        labels: noisy shares of the teachers (may leave [0, 1]), by round.
    """

    network: Network
    moments: Array
    optimiser: Adam
    rows: tuple[Array, ...] = ()
    labels: tuple[Array, ...] = ()
    step: int = 0

    @classmethod
    def start(cls, design: Design, *, rate: float, chance: PublicRandom) -> Self:
        """An untrained student."""
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
        return CPU.to_numpy(self.network.parameters)

    def told(self, rows: Array, labels: Array, *, memory: int) -> Student:
        """Add a round's rows and labels, and keep the last `memory` rounds."""
        return replace(
            self, rows=(*self.rows, rows)[-memory:], labels=(*self.labels, labels)[-memory:]
        )

    def learnt(self, *, steps: int, penalty: float) -> Student:
        """Train on everything remembered, kept flat by `gradient_penalty`."""
        rows = CPU.array(np.concatenate(self.rows))
        labels = CPU.array(np.concatenate(self.labels))
        network, moments, step = self.network, self.moments, self.step
        for step in range(self.step + 1, self.step + steps + 1):
            learning = network.learning()
            outputs = learning.outputs(rows)
            slopes = outputs.detach().sigmoid() - labels[:, None]
            (gradient,) = library().autograd.grad(outputs, learning.parameters, slopes / len(rows))
            if penalty:
                gradient = gradient + penalty * gradient_penalty(network, rows)
            parameters, moments = self.optimiser.update(
                CPU.to_numpy(network.parameters), CPU.to_numpy(gradient), moments, step
            )
            network = network.architecture.network(parameters)
        return replace(self, network=network, moments=moments, step=step)


_KIND = "pate_state"


@dataclass(frozen=True, kw_only=True, eq=False)
class PATEState:
    """State after `turn` rounds: a function of noisy votes and public values.

    Attributes:
        marginals: the histogram drawn before the first round, or None.
        settings: digest of the run's public facts; states of other facts are refused.
        publishable: whether all noise came from a publishable source.
    """

    turn: int
    student: Student
    player: NetworkState
    marginals: Measurement | None
    settings: str
    publishable: bool

    def to_bytes(self) -> bytes:
        """The same bytes for the same state, for a checkpoint in the confidential workspace."""
        student = self.student
        width = student.network.architecture.inputs
        return Measurement(
            kind=_KIND,
            arrays={
                "student": student.parameters,
                "student_moments": student.moments,
                "rows": np.concatenate([np.zeros((0, width)), *student.rows]),
                "labels": np.concatenate([np.zeros(0), *student.labels]),
                **self.player.arrays,
                **packed(self.marginals),
            },
            facts={
                "turn": self.turn,
                "remembered": len(student.rows),
                "student_step": student.step,
                "step": self.player.step,
                "settings": self.settings,
            },
            publishable=self.publishable,
        ).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, *, start: PATEState, marginals: bool) -> PATEState:
        """Read a checkpoint into `start`'s settings; PrivacyError for other bytes or settings."""
        stored = read_checkpoint(data, kind=_KIND)
        arrays, facts = stored.arrays, stored.facts
        if facts["settings"] != start.settings or ("marginals" in arrays) != marginals:
            raise PrivacyError(OTHER_SETTINGS, field="training")
        rounds = facts["remembered"]
        network = start.student.network.architecture.network(arrays["student"])
        student = replace(
            start.student,
            network=network,
            moments=arrays["student_moments"],
            rows=tuple(np.split(arrays["rows"], rounds)) if rounds else (),
            labels=tuple(np.split(arrays["labels"], rounds)) if rounds else (),
            step=facts["student_step"],
        )
        return cls(
            turn=facts["turn"],
            student=student,
            player=NetworkState.stored(stored),
            marginals=unpacked(arrays),
            settings=start.settings,
            publishable=start.publishable and stored.publishable,
        )
