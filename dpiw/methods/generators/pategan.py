"""PATE-GAN: a student discriminator that learns from noisy votes of teachers on disjoint rows.

Every private row goes to one teacher. Teachers learn to tell their rows from synthetic ones, with
no noise, and never leave the stage; nor do their exact votes. The student sees synthetic rows only,
each labelled by a noisy count of the teachers that call it real, and the generator learns from the
student. So the noisy counts are all that is released, and there are as many as was planned.

**Which row goes where** is drawn row by row, independently and uniformly. A deal by place in the
table (row i to teacher i mod k) would not do under add/remove: taking a row out moves every later
one to another teacher. Drawn, the rows that two neighbours share can be given the same teachers in
both; the hockey-stick divergence is jointly convex, so what holds for every deal holds for the
mixture over deals.

**Sensitivity.** Given the deal, a unit's rows lie with at most max_rows teachers. A teacher's
parameters depend on its own rows and on what was released before, so only those teachers' votes
may differ, each by one. Votes for `real` move by at most min(max_rows, k), in L1 and in L2; votes
for `synthetic` are k minus those, and are not drawn. Under replace-one with one row a unit, the
new row keeps the old one's teacher, and one vote moves; with more, up to max_rows rows leave and as
many come.

**Resuming.** Nothing of a teacher is ever kept. A resumed run deals the rows anew and teaches new
teachers on the synthetic rows that the student remembers; its votes are further adaptive steps,
under another deal. The rounds it may repeat are charged in advance.

Every query is one event, whatever the votes: the data-dependent bounds of Papernot et al. (2018)
are functions of the private votes, and would need noise of their own.

Source: Jordon et al. (2019), with the deal, the count and the accounting above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.base import CriticKind, check_effort
from dpiw.methods.generators.adversarial import (
    Array,
    GeneratorTraining,
    PublicRandom,
    make_batch,
)
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.design import Design
from dpiw.methods.generators.gan_model import GANModel, gan_model, model_arrays
from dpiw.methods.generators.gan_settings import check_real, check_whole, check_widths
from dpiw.methods.generators.marginal_noise import marginal_multiplier, with_noise
from dpiw.methods.generators.pate_state import PATEState
from dpiw.methods.generators.teachers import Student, Teachers, deal
from dpiw.methods.generators.vote_noise import VoteNoise, vote_sensitivity
from dpiw.privacy import mechanisms
from dpiw.privacy.events import GaussianEvent, LaplaceEvent, PrivacyEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.resumption import UNWATCHED, Resumption, TrainingWatch, interval
from dpiw.privacy.units import NoiseKind, NoiseLaw, PrivacyUnit

ROWS_PER_TEACHER = 25
MOST_TEACHERS = 1000


@dataclass(frozen=True, kw_only=True)
class PATEGAN:
    """PATE-GAN before it has seen data.

    Attributes:
        noise: of the votes, `gaussian`, or `laplace` where delta must be 0.
        teachers: k; None (default): one per `ROWS_PER_TEACHER` rows of the public nominal size,
            from 2 to `MOST_TEACHERS`.
        rounds: how often teachers, student and generator take turns.
        queries: labelled synthetic rows per round; rounds times queries counts are charged.
        memory: rounds whose labelled rows the student still learns from; they cost nothing again.
        teacher_steps, student_steps, generator_steps: gradient steps of each in a round.
        teacher_lot: own rows in one gradient step of a teacher.
        batch: synthetic rows in a generator step.
        latent: normal inputs of the generator.
        generator, student: widths of the hidden layers.
        teacher: width of a teacher's hidden layer.
        learning_rate, student_rate, teacher_rate: of their Adams.
        penalty: weight of the student's gradient penalty; it costs nothing.
        temperature: of the relaxed draws of levels.
        start: which of the public starts, as of `GANSettings`.
        resumes: how often a killed training may go on from a checkpoint; each costs a twentieth of
            the rounds in advance.
        calibrated: set by `calibrate`.
    """

    noise: NoiseKind = NoiseKind.GAUSSIAN
    teachers: int | None = None
    rounds: int = 200
    queries: int = 5
    memory: int = 20
    teacher_steps: int = 2
    student_steps: int = 3
    generator_steps: int = 2
    teacher_lot: int = 16
    batch: int = 128
    latent: int = 8
    generator: tuple[int, ...] = (64, 64)
    student: tuple[int, ...] = (32,)
    teacher: int = 8
    learning_rate: float = 5e-4
    student_rate: float = 1e-2
    teacher_rate: float = 2e-2
    penalty: float = 0.5
    temperature: float = 2 / 3
    start: int = 0
    resumes: int = 1
    calibrated: VoteNoise | None = None

    method: ClassVar[str] = "pategan"
    private: ClassVar[bool] = True
    critic: ClassVar[CriticKind] = CriticKind.SCORE
    """The student's; it is no log ratio."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`; noise is Laplace where delta is 0."""
        return cls(**with_noise(settings, pure=pure))

    def __post_init__(self) -> None:
        """Raises SpecError: a setting is unknown or out of range."""
        if self.noise not in (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE):
            raise SpecError("generator.settings.noise: expected gaussian or laplace")
        if self.teachers is not None:
            check_whole("teachers", self.teachers, low=2, high=10**5)
        for name, high in (
            ("rounds", 10**5), ("queries", 10**5), ("memory", 10**5), ("teacher_steps", 1000),
            ("student_steps", 1000), ("generator_steps", 1000), ("teacher_lot", 10**5),
            ("batch", 10**5), ("latent", 4096), ("teacher", 4096),
        ):  # fmt: skip
            check_whole(name, getattr(self, name), low=1, high=high)
        for name, most in (
            ("learning_rate", 1.0), ("student_rate", 1.0), ("teacher_rate", 1.0),
            ("temperature", 10.0),
        ):  # fmt: skip
            value = check_real(name, getattr(self, name), above=0, at_most=most)
            object.__setattr__(self, name, value)
        check_whole("resumes", self.resumes, low=0, high=20)
        check_whole("start", self.start, low=0, high=2**63 - 1)
        check_real("penalty", self.penalty, above=-1e-9, at_most=1e3)
        for name in ("generator", "student"):
            object.__setattr__(self, name, check_widths(name, getattr(self, name)))

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and, once calibrated, the noise; JSON values."""
        names = [
            name
            for name in self.__dataclass_fields__
            if name not in ("noise", "calibrated", "critic")
        ]
        parameters: dict[str, Any] = {name: getattr(self, name) for name in names}
        parameters = {k: list(v) if isinstance(v, tuple) else v for k, v in parameters.items()}
        parameters["noise"] = self.noise.value
        if self.calibrated is not None:
            ready = self.calibrated
            parameters |= {
                "teachers": ready.teachers,
                "queries_accounted": self.counts,
                "noise_multiplier": ready.multiplier,
                "vote_sensitivity": vote_sensitivity(ready.unit, ready.teachers),
                "relation": ready.unit.relation.value,
                "max_rows": ready.unit.max_rows,
            }
        return parameters

    @property
    def resumption(self) -> Resumption | None:
        """The terms of resuming, counted in queries; None: a killed training is lost."""
        if not self.resumes:
            return None
        return Resumption(
            steps=self.rounds * self.queries,
            every=interval(self.rounds) * self.queries,
            resumes=self.resumes,
        )

    @property
    def counts(self) -> int:
        """Noisy counts that are charged, those that resumes may repeat included."""
        repeated = self.resumes * interval(self.rounds)
        return (self.rounds + repeated) * self.queries

    def design(self, schema: PublicSchema) -> Design:
        """Shapes of generator and student."""
        return Design(
            schema=schema,
            conditional=False,
            latent=self.latent,
            generator=self.generator,
            discriminator=self.student,
            temperature=self.temperature,
        )

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort evenly over the queries; `nominal_rows` sets the number of teachers.

        Raises:
            SpecError: `rho` or `nominal_rows` is not positive.
        """
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows, width=schema.width)
        rule = max(2, min(nominal_rows // ROWS_PER_TEACHER, MOST_TEACHERS))
        noise = VoteNoise(
            schema=schema,
            unit=unit,
            teachers=rule if self.teachers is None else self.teachers,
            multiplier=marginal_multiplier(self.noise, rho=rho, share=1.0, count=self.counts),
        )
        return replace(self, calibrated=noise)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """One noisy count per query, all of them.

        Raises:
            UncalibratedError: not calibrated, or for another schema or unit.
        """
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        law = LaplaceEvent if self.noise is NoiseKind.LAPLACE else GaussianEvent
        return (law(noise_multiplier=ready.multiplier, count=self.counts),)

    def measure(
        self, table: PrivateTable, *, noise: NoiseSource, watch: TrainingWatch = UNWATCHED
    ) -> Measurement:
        """Draw the noisy votes of every round, and train student and generator on them.

        Args:
            table: private rows.
            noise: draws the deal and the noise of the votes.
            watch: holds the checkpoint to go on from, and is told where the training stands.

        Privacy:
            Unit: `calibrated.unit`. L1 = L2 = `vote_sensitivity` per query.
            Event: `events`, one count per query; teachers and exact votes stay here.

        Raises:
            UncalibratedError: not calibrated, or for another schema.
            PrivacyError: a checkpoint, and no round is reserved to be repeated.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        design = self.design(table.schema)
        chance = PublicRandom.of({"own": self.parameters(), "schema": table.schema.to_mapping()})
        rows = design.encode(table.confidential())
        teachers = Teachers.start(
            rows,
            deal(len(rows), ready.teachers, noise=noise),
            count=ready.teachers,
            hidden=self.teacher,
            rate=self.teacher_rate,
            chance=chance,
        )
        law = NoiseLaw(kind=self.noise, scale=ready.scale, dimension=self.queries)
        state = self._start(design, chance, watch, publishable=noise.publishable)
        for made in state.student.rows:  # of a resumed run; none at the beginning
            teachers = teachers.taught(made, steps=self.teacher_steps, lot=self.teacher_lot)

        def ask(made: Array, asked: Array) -> Array:
            """Noisy counts of the teachers that call each row of `asked` real."""
            nonlocal teachers
            teachers = teachers.taught(made, steps=self.teacher_steps, lot=self.teacher_lot)
            return mechanisms.noisy_counts(teachers.votes(asked), law=law, noise=noise)

        state = self._play(design, chance, ask, ready.teachers, state=state, watch=watch)
        return Measurement(
            kind=self.method,
            arrays=model_arrays(state.player.average, state.student.parameters, np.zeros(0)),
            facts={
                "design": design.to_json(),
                "ratio": False,
                "teachers": ready.teachers,
                "queries": self.rounds * self.queries,
                "noise": self.noise.value,
                "votes_scale": law.scale,
            },
            publishable=state.publishable,
        )

    def _training(self, design: Design, chance: PublicRandom) -> GeneratorTraining:
        return GeneratorTraining(
            design=design,
            loss="logistic",
            batch=self.batch,
            learning_rate=self.learning_rate,
            chance=chance,
        )

    def _start(
        self, design: Design, chance: PublicRandom, watch: TrainingWatch, *, publishable: bool
    ) -> PATEState:
        start = PATEState(
            turn=0,
            student=Student.start(design, rate=self.student_rate, chance=chance),
            player=self._training(design, chance).start(),
            settings=chance.facts,
            publishable=publishable,
        )
        checkpoint = watch.resumed()
        if checkpoint is None:
            watch.at(0, self.rounds * self.queries, start.to_bytes)
            return start
        if self.resumes == 0:
            raise PrivacyError("training: no round is reserved to be repeated from a checkpoint")
        return PATEState.from_bytes(checkpoint, start=start)

    def _play(
        self,
        design: Design,
        chance: PublicRandom,
        ask: Any,
        teachers: int,
        *,
        state: PATEState | None = None,
        watch: TrainingWatch = UNWATCHED,
    ) -> PATEState:
        """Student and generator, from noisy counts alone: post-processing of what `ask` returns."""
        training, none = self._training(design, chance), np.zeros(0)
        state = state or self._start(design, chance, watch, publishable=False)
        student, player = state.student, state.player
        for turn in range(state.turn, self.rounds):
            made, asked = (
                make_batch(design, player.parameters, none, rows, chance.rng(name, turn)).rows
                for name, rows in (("taught", self.batch), ("asked", self.queries))
            )
            labels = (ask(made, asked) > teachers / 2).astype(np.float64)
            student = student.told(asked, labels, memory=self.memory)
            student = student.learnt(steps=self.student_steps, penalty=self.penalty)
            for _ in range(self.generator_steps):
                player = training.update(player, student.network, none)
            state = replace(state, turn=turn + 1, student=student, player=player)
            if state.turn % interval(self.rounds) == 0 or state.turn == self.rounds:
                watch.at(state.turn * self.queries, self.rounds * self.queries, state.to_bytes)
        return state

    def model(self, measurement: Measurement, *, schema: PublicSchema) -> GANModel:
        """The fitted networks, the student as the discriminator; it is no log ratio.

        Raises:
            SpecError: the measurement is of another method or schema.
        """
        return gan_model(measurement, kind=self.method, schema=schema)
