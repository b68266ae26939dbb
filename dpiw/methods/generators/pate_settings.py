"""Public settings of PATE-GAN, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.methods.generators.adversarial import GeneratorTraining, PublicRandom
from dpiw.methods.generators.design import Design
from dpiw.methods.generators.gan_settings import check_real, check_whole, check_widths
from dpiw.methods.generators.marginal_noise import with_noise
from dpiw.methods.generators.marginals_stage import check_share
from dpiw.privacy.resumption import Resumption, interval
from dpiw.privacy.units import NoiseKind

ROWS_PER_TEACHER = 5
"""Few: noise is that of one vote, whatever k, so what all votes say grows with the square of k,
and faster than what a single teacher knows goes down (docs/method.md section 20)."""

MOST_TEACHERS = 1000
"""More are only time."""


@dataclass(frozen=True, kw_only=True)
class PATESettings:
    """Public settings of teachers, student and generator.

    Attributes:
        noise: of votes and histogram, `gaussian`, or `laplace` where delta must be 0.
        marginals_share: share of the effort for a histogram, as of `GANSettings`.
        teachers: k; None (default): one per `ROWS_PER_TEACHER` rows of the public nominal size,
            from 2 to `MOST_TEACHERS`.
        rounds: how often teachers, student and generator take turns.
        queries: labelled synthetic rows per round; rounds times queries counts are charged.
        memory: rounds whose labelled rows the student still learns from; they cost nothing again.
        teacher_steps, student_steps, generator_steps: gradient steps of each in a round.
        teacher_lot: own rows in one gradient step of a teacher.
        batch: synthetic rows in a generator step.
        latent: normal inputs of the generator.
        generator, student: widths of the hidden layers; of the generator as of `GANSettings`.
        teacher: width of a teacher's hidden layer.
        learning_rate, student_rate, teacher_rate: of their Adams.
        penalty: weight of the student's gradient penalty; it costs nothing.
        temperature: of the relaxed draws of levels.
        start: which of the public starts, as of `GANSettings`.
        resumes: how often a killed training may go on from a checkpoint; each costs a twentieth of
            the rounds in advance.
    """

    noise: NoiseKind = NoiseKind.GAUSSIAN
    marginals_share: float | None = None
    teachers: int | None = None
    rounds: int = 100
    queries: int = 5
    memory: int = 20
    teacher_steps: int = 2
    student_steps: int = 3
    generator_steps: int = 2
    teacher_lot: int = 5
    batch: int = 128
    latent: int = 16
    generator: tuple[int, ...] = ()
    student: tuple[int, ...] = (32,)
    teacher: int = 8
    learning_rate: float = 5e-3
    student_rate: float = 1e-2
    teacher_rate: float = 2e-2
    penalty: float = 0.5
    temperature: float = 2 / 3
    start: int = 0
    resumes: int = 1

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
        object.__setattr__(self, "marginals_share", check_share(self.marginals_share))
        check_real("penalty", self.penalty, above=-1e-9, at_most=1e3)
        for name in ("generator", "student"):
            object.__setattr__(self, name, check_widths(name, getattr(self, name)))

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

    def generator_training(self, design: Design, chance: PublicRandom) -> GeneratorTraining:
        """The generator's side of the game."""
        return GeneratorTraining(
            design=design,
            loss="logistic",
            batch=self.batch,
            learning_rate=self.learning_rate,
            chance=chance,
        )
