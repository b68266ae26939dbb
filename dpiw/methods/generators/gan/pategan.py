"""PATE-GAN: a student discriminator learns from noisy votes of teachers on disjoint rows.

Only noisy counts leave the stage: planned votes and, unless `marginals_share` is 0, a histogram
drawn first (docs/method.md section 20). Teachers and exact votes stay. Source: Jordon et al. (2019)
with the following deal, sensitivity and accounting.

Deal: each row's teacher is an independent uniform draw. Dealing by position fails under add/remove,
because a removed row moves all later rows. Neighbours share the deal of common rows, and
hockey-stick divergence is jointly convex, so a bound for every deal holds for the mixture.

Sensitivity: a unit's rows reach at most max_rows teachers. A teacher depends on its own rows and
earlier releases, so at most min(max_rows, k) votes change, by one each (L1 and L2); votes for
`synthetic` are not drawn. Replace-one: one row keeps its teacher; with more rows, twice as many
teachers may change.

Resuming deals rows again and trains new teachers: adaptive steps, charged in advance. Every query
is one event: data-dependent bounds (Papernot et al. 2018) depend on private votes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import setting_error
from dpiw.methods.base import CriticKind, Running, StatedNoise, check_effort, whole
from dpiw.methods.generators.base import ready_for
from dpiw.methods.generators.gan.design import Design
from dpiw.methods.generators.gan.marginals import plan_marginals, with_distributions
from dpiw.methods.generators.gan.model import game_measurement
from dpiw.methods.generators.gan.settings import GameNoise, GameSettings
from dpiw.methods.generators.gan.teachers import PATEState, Student, Teachers, deal
from dpiw.methods.generators.gan.training import LEVELLING_EVERY, Array, PublicRandom, make_batch
from dpiw.methods.generators.marginal_noise import (
    COUNT_NOISES,
    marginal_multiplier,
    marginals_event,
    with_noise,
)
from dpiw.methods.neural.backend import check_installed, computing
from dpiw.methods.neural.checkpoints import check_resumable
from dpiw.privacy import mechanisms
from dpiw.privacy.events import PrivacyEvent
from dpiw.privacy.measurement import Measurement, ReleasedNoise
from dpiw.privacy.randomness import NoiseSource
from dpiw.privacy.resumption import UNWATCHED, Resumption, TrainingWatch, interval
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit

ROWS_PER_TEACHER = 5
"""Few: noise is one vote's for any k; signal grows with k squared (docs/method.md section 20)."""

MOST_TEACHERS = 1000
"""Above this, teachers cost only time."""


def vote_sensitivity(unit: PrivacyUnit, teachers: int) -> int:
    """Most votes of a query that one unit can move (module docstring)."""
    reach = unit.max_rows
    if unit.relation is NeighbouringRelation.REPLACE_ONE and unit.max_rows > 1:
        reach *= 2
    return min(reach, teachers)


@dataclass(frozen=True, kw_only=True)
class VoteNoise(GameNoise):
    """Calibrated multiplier: scale of a count over its sensitivity."""

    teachers: int
    multiplier: float

    @property
    def scale(self) -> float:
        """Noise scale of one count, in votes; rounded up, against ourselves."""
        sensitivity = vote_sensitivity(self.unit, self.teachers)
        return self.multiplier * sensitivity * (1 + 1e-15)


@dataclass(frozen=True, kw_only=True)
class PATEGAN(GameSettings):
    """PATE-GAN before it has seen data.

    Attributes:
        noise: of votes and histogram: `gaussian`, or `laplace` if delta is 0.
        teachers: k; None (default): one per `ROWS_PER_TEACHER` rows of the public nominal size,
            from 2 to `MOST_TEACHERS`.
        rounds: turns of teachers, student and generator.
        queries: labelled synthetic rows per round; rounds times queries counts are charged.
        memory: rounds whose labelled rows the student still learns from; free.
        teacher_steps, student_steps, generator_steps: gradient steps of each in a round.
        teacher_lot: own rows in one gradient step of a teacher.
        student: widths of the hidden layers.
        teacher: width of a teacher's hidden layer.
        student_rate, teacher_rate: of their Adams.
        resumes: checkpoints to resume from; each is charged a twentieth of the rounds in advance.
    """

    noise: NoiseKind = NoiseKind.GAUSSIAN
    teachers: int | None = None
    rounds: int = 100
    queries: int = 5
    memory: int = 20
    teacher_steps: int = 2
    student_steps: int = 3
    generator_steps: int = 2
    teacher_lot: int = 5
    batch: int = 128
    student: tuple[int, ...] = (32,)
    teacher: int = 8
    student_rate: float = 1e-2
    teacher_rate: float = 2e-2
    penalty: float = 0.5
    resumes: int = 1
    calibrated: VoteNoise | None = None

    method: ClassVar[str] = "pategan"
    private: ClassVar[bool] = True
    critic: ClassVar[CriticKind] = CriticKind.NONE
    """The student's; it is no log ratio."""

    from_one = GameSettings.from_one | {
        "rounds": 10**5, "queries": 10**5, "memory": 10**5, "teacher_steps": 1000,
        "student_steps": 1000, "generator_steps": 1000, "teacher_lot": 10**5, "teacher": 4096,
    }  # fmt: skip
    above_zero = GameSettings.above_zero | {"student_rate": 1.0, "teacher_rate": 1.0}
    widths = ("generator", "student")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], *, pure: bool) -> Self:
        """As `Synthesizer.from_settings`; noise is Laplace where delta is 0."""
        return cls(**with_noise(settings, pure=pure))

    def __post_init__(self) -> None:
        penalty = self.penalty
        super().__post_init__()
        object.__setattr__(self, "penalty", penalty)  # 1 stays 1: runs follow from its spelling
        if self.noise not in COUNT_NOISES.values():
            raise setting_error(self, "generator.settings.noise", "gaussian or laplace")
        if self.teachers is not None:
            whole("generator.settings.teachers", self.teachers, low=2, high=10**5)
        whole("generator.settings.resumes", self.resumes, low=0, high=20)

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
        )

    def parameters(self) -> Mapping[str, Any]:
        """Public settings and, once calibrated, the noise; JSON values."""
        facts = {"noise": self.noise.value, "method": self.method, "private": self.private}
        parameters = self.stated(PATEGAN) | facts
        if (ready := self.calibrated) is not None:
            parameters |= {
                "teachers": ready.teachers,
                "queries_accounted": self.counts,
                "noise_multiplier": ready.multiplier,
                "vote_sensitivity": vote_sensitivity(ready.unit, ready.teachers),
                "relation": ready.unit.relation.value,
                "max_rows": ready.unit.max_rows,
                **ready.marginals_parameters(),
            }
        return parameters

    def calibrate(
        self, *, rho: float, schema: PublicSchema, unit: PrivacyUnit, nominal_rows: int
    ) -> Self:
        """Split the effort that the histogram leaves evenly over the queries; set the teachers."""
        check_effort(self.method, rho=rho, nominal_rows=nominal_rows, width=schema.width)
        check_installed(f"generator.method={self.method}")
        rule = max(2, min(nominal_rows // ROWS_PER_TEACHER, MOST_TEACHERS))
        marginals, rest = plan_marginals(
            self.marginals_share, noise=self.noise, rho=rho, schema=schema, unit=unit,
            nominal_rows=nominal_rows,
        )  # fmt: skip
        noise = VoteNoise(
            schema=schema,
            unit=unit,
            teachers=rule if self.teachers is None else self.teachers,
            multiplier=marginal_multiplier(self.noise, rho=rho, share=rest, count=self.counts),
            marginals=marginals,
        )
        return replace(self, calibrated=noise)

    def events(self, *, schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivacyEvent, ...]:
        """A histogram of every column, and one noisy count per query, all of them."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        votes = marginals_event(self.noise, ready.multiplier, count=self.counts)
        return (*ready.marginals_events(), votes)

    def released_noise(self, *, schema: PublicSchema, unit: PrivacyUnit) -> StatedNoise:
        """Of the histogram that is drawn first, and of every count of votes."""
        ready = ready_for(self.calibrated, schema, unit, method=self.method)
        votes = ReleasedNoise(
            values="votes",
            law=self.noise,
            scale=ready.scale,
            sensitivity=float(vote_sensitivity(unit, ready.teachers)),
            event=len(self.events(schema=schema, unit=unit)) - 1,
        )
        return (*ready.marginals_noise(), votes)

    def running(self, *, schema: PublicSchema, nominal_rows: int, published: int) -> Running:
        """As of `Method`: all teachers see own and synthetic rows at every step."""
        ready = ready_for(self.calibrated, schema, method=self.method)
        width, hidden = self.design(schema).made.width, ready.teachers * self.teacher
        steps = self.rounds * (self.teacher_steps + self.student_steps + self.generator_steps)
        seen = self.rounds * self.teacher_steps * (self.teacher_lot + self.batch)
        made = width * (self.rounds * self.generator_steps * self.batch + 2 * nominal_rows)
        own = self.forecast(
            width, steps=steps, products=seen * width * hidden, numbers=made,
            nominal_rows=nominal_rows,
        )  # fmt: skip
        teachers = 32 * width * hidden + 16 * hidden * self.batch
        return replace(own, held_bytes=own.held_bytes + teachers)

    @computing()
    def measure(
        self, table: PrivateTable, *, noise: NoiseSource, watch: TrainingWatch = UNWATCHED
    ) -> Measurement:
        """Draw the noisy votes of every round, and train student and generator on them.

        Privacy:
            Unit: `calibrated.unit`. L1 = L2 = `vote_sensitivity` per query; histograms as
                `Histogram.measure`.
            Event: `events`: one count per query, and the histogram, drawn before teachers learn and
                not repeated in a resumed run. Teachers and exact votes stay here. Ranks of a
                private row depend on that row and noisy counts, and only its teacher sees them.

        Raises:
            PrivacyError: a checkpoint of other settings, or `resumes` is 0.
        """
        ready = ready_for(self.calibrated, table.schema, method=self.method)
        design, chance = self.design(table.schema), self._chance(table.schema)
        checkpoint = watch.resumed()
        if checkpoint is None:
            first = ready.marginals
            marginals = None if first is None else first.measure(table, noise=noise)
            state = self._first(design, chance, marginals, noise.publishable)
            watch.at(0, self.rounds * self.queries, state.to_bytes)
        else:
            state = self.resumed_state(checkpoint, schema=table.schema)
            state = replace(state, publishable=state.publishable and noise.publishable)
        design = with_distributions(design, state.marginals)
        rows = design.encode(table.confidential())
        teachers = Teachers.start(
            rows,
            deal(len(rows), ready.teachers, noise=noise),
            count=ready.teachers, hidden=self.teacher, rate=self.teacher_rate, chance=chance,
        )  # fmt: skip
        law = NoiseLaw(kind=self.noise, scale=ready.scale, dimension=self.queries)
        for batch in state.student.rows:  # of a resumed run; none at the beginning
            teachers = teachers.taught(batch, steps=self.teacher_steps, lot=self.teacher_lot)

        def ask(synthetic: Array, queries: Array) -> Array:
            nonlocal teachers
            teachers = teachers.taught(synthetic, steps=self.teacher_steps, lot=self.teacher_lot)
            return mechanisms.noisy_counts(teachers.votes(queries), law=law, noise=noise)

        state = self._play(design, chance, ask, ready.teachers, state=state, watch=watch)
        none = np.zeros(0)
        settled = self.generator_training(design, chance).levelled(state.player.average, none)
        return game_measurement(
            settled.design,
            (state.player.average, state.student.parameters, none),
            marginals=state.marginals,
            kind=self.method,
            facts={
                "ratio": False,
                "teachers": ready.teachers,
                "queries": self.rounds * self.queries,
                "noise": self.noise.value,
                "votes_scale": law.scale,
            },
            publishable=state.publishable,
            noise=self.released_noise(schema=table.schema, unit=ready.unit),
        )

    def _chance(self, schema: PublicSchema) -> PublicRandom:
        return PublicRandom.of({"own": self.parameters(), "schema": schema.published_mapping()})

    def resumed_state(self, data: bytes, *, schema: PublicSchema) -> PATEState:
        """Read the checkpoint's state; PrivacyError if it may not be resumed."""
        ready = ready_for(self.calibrated, schema, method=self.method)
        check_resumable(self.resumes)
        start = self._first(self.design(schema), self._chance(schema), None, True)
        return PATEState.from_bytes(data, start=start, marginals=ready.marginals is not None)

    def _first(
        self, design: Design, chance: PublicRandom, marginals: Measurement | None, publishable: bool
    ) -> PATEState:
        full_design = with_distributions(design, marginals)
        return PATEState(
            turn=0,
            student=Student.start(full_design, rate=self.student_rate, chance=chance),
            player=self.generator_training(full_design, chance).start(),
            marginals=marginals,
            settings=chance.facts,
            publishable=publishable,
        )

    def _play(
        self,
        design: Design,
        chance: PublicRandom,
        ask: Any,
        teachers: int,
        *,
        state: PATEState,
        watch: TrainingWatch,
    ) -> PATEState:
        """Train student and generator on noisy counts only: post-processing of `ask`."""
        training, none = self.generator_training(design, chance), np.zeros(0)
        student, player = state.student, state.player
        often = max(1, LEVELLING_EVERY // self.generator_steps)
        for turn in range(state.turn, self.rounds):
            if turn % often == 0 or turn % interval(self.rounds) == 0:  # so at a resumed beginning
                training = training.levelled(player.parameters, none, turn)
            full_design = training.design
            synthetic, queries = (
                make_batch(full_design, player.parameters, none, rows, chance.rng(name, turn)).rows
                for name, rows in (("taught", self.batch), ("asked", self.queries))
            )
            labels = ask(synthetic, queries) / teachers
            student = student.told(queries, labels, memory=self.memory)
            student = student.learnt(steps=self.student_steps, penalty=self.penalty)
            for _ in range(self.generator_steps):
                player = training.update(player, student.network, none)
            state = replace(state, turn=turn + 1, student=student, player=player)
            if state.turn % interval(self.rounds) == 0 or state.turn == self.rounds:
                watch.at(state.turn * self.queries, self.rounds * self.queries, state.to_bytes)
        return state
