"""Generators on neighbouring tables, for attacks to tell apart."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from scipy.special import logsumexp

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.bayes import Bayes
from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.gan.teachers import Teachers
from dpiw.methods.generators.gan.training import GeneratorTraining, PublicRandom
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.pgm.aim import AIM
from dpiw.methods.generators.pgm.mst import MST
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.weights.measured import method as measured
from dpiw.privacy import mechanisms
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind, PrivacyUnit
from tests.proof.attacks import World, additive, claim_of, log_likelihood_ratio
from tests.support.draws import Still
from tests.support.fits import fitted_at_once
from tests.support.worlds import REPLACE, UNIT, coded, flags, levels, repeated, unit_of

REPLACED = unit_of(REPLACE)


def schema(columns: int) -> PublicSchema:
    return levels(columns, target=columns - 1)


def neighbours(public_schema: PublicSchema, unit: PrivacyUnit) -> tuple[PrivateTable, PrivateTable]:
    if unit.relation is REPLACE:
        return repeated(public_schema, 0, 0, 0, 0, 1), repeated(public_schema, 0, 0, 0, 0, 2)
    return repeated(public_schema, 0, 0, 0, 0), repeated(public_schema, 0, 0, 0, 0, 1)


def histogram(noise: str, *, columns: int, tight: float, unit: PrivacyUnit = UNIT) -> World:
    public_schema = schema(columns)
    tables = neighbours(public_schema, unit)
    ready = Histogram(noise=NoiseKind(noise)).calibrate(
        rho=2.0, schema=public_schema, unit=unit, nominal_rows=100
    )
    return additive(
        ready.events(schema=public_schema, unit=unit), ready.noise,
        lambda within, noise: ready.measure(tables[within], noise=noise), tight=tight,
    )  # fmt: skip


def known_marginals(*, tight: float) -> World:
    """The histogram of a neural generator, which has nearly all of its effort."""
    public_schema = flags("c0", "c1", "c2")
    tables = repeated(public_schema), repeated(public_schema, 1)
    few = {"rounds": 1, "queries": 1, "resumes": 0, "marginals_share": 0.95}
    ready = PATEGAN(**PATE | few).calibrate(
        rho=2.0, schema=public_schema, unit=UNIT, nominal_rows=100
    )
    marginals = ready.calibrated.marginals

    def run(within, noise):
        # What public draws find of what was released is dear, and tells the attacker nothing.
        with mock.patch.object(GeneratorTraining, "levelled", lambda self, *_: self):
            return ready.measure(tables[within], noise=noise)

    names = marginals.measure(tables[0], noise=Still()).arrays
    return additive(
        ready.events(schema=public_schema, unit=UNIT), ready.noise, run, names=[*names],
        scale="marginals_scale", tight=tight,
    )  # fmt: skip


class Recording:
    """A source that remembers which candidates were chosen: the released network says as much."""

    def __init__(self, noise: Any) -> None:
        self._noise, self.chosen = noise, []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        self.chosen.append(self._noise.noisy_argmax(scores, scale=scale))
        return int(self.chosen[-1])


class Laws:
    """Remembers the exact log law of every selection, and chooses as it is told."""

    publishable = False

    def __init__(self, choose: Callable[[int], int] = lambda place: 0) -> None:
        self.laws: list[Any] = []
        self._choose = choose

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        self.laws.append(scores / scale - logsumexp(scores / scale))
        return self._choose(len(self.laws) - 1) % len(scores)


class Unpaid(SeededNoise):
    """Selections without noise, which nobody charges: the planted bug."""

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        return int(np.argmax(scores))


class Transcript:
    """All that the mechanisms of a measurement say, and how likely each of two tables makes it.

    The measurement is drawn on one table and made again on the other with the same answers, so
    that what it computes of them is the same; where it is not, a strict zip says so.
    `sharp`: how much surer of a selection the attacker is than its law; for planted bugs.
    """

    def __init__(self, sharp: float) -> None:
        self._sharp = sharp
        self._said: list[Any] = []
        self._laws: list[list[Callable[[Any], float]]] = [[], []]

    def ratio(self, ready: Any, tables: Sequence[PrivateTable], within: bool, noise: Any) -> float:
        """The log likelihood ratio of what is drawn on one of the tables."""
        with self._heard(within, self._draw):
            ready.measure(tables[within], noise=noise)
        answers = iter(self._said)
        with self._heard(not within, lambda *_, **__: next(answers)):
            ready.measure(tables[not within], noise=noise)
        triples = zip(self._said, *self._laws, strict=True)
        return sum(present(answer) - absent(answer) for answer, absent, present in triples)

    def _draw(self, mechanism: Callable[..., Any], exact: Any, **rest: Any) -> Any:
        self._said.append(mechanism(exact, **rest))
        return self._said[-1]

    @contextmanager
    def _heard(self, table: bool, answer: Callable[..., Any]) -> Iterator[None]:
        counted, chosen, laws = mechanisms.noisy_counts, mechanisms.select, self._laws[table]
        summed = mechanisms.noisy_vector

        def noisy(mechanism, exact, *, law, noise):
            laws.append(
                lambda released: log_likelihood_ratio(
                    law.kind, law.scale, released, released, exact
                )
            )
            return answer(mechanism, exact, law=law, noise=noise)

        def select(scores, **rest):
            odds = self._sharp * rest["epsilon"] / (2 * rest["sensitivity"]) * scores
            laws.append(lambda released: float(odds[released] - logsumexp(odds)))
            return answer(chosen, scores, **rest)

        with (
            mock.patch.multiple(mechanisms, noisy_counts=partial(noisy, counted), select=select),
            mock.patch.object(measured, "noisy_vector", partial(noisy, summed)),
        ):
            yield


def chosen_marginals(
    method: Any,
    tables: tuple[PrivateTable, PrivateTable],
    *,
    rho: float = 1.0,
    sharp: float = 1.0,
    **limits: float,
) -> World:
    """A generator that draws marginals and chooses among them.

    The models of MST and AIM are post-processing, whatever they are: here of `fitted_at_once`.
    """
    public_schema = tables[0].schema
    ready = method.calibrate(rho=rho, schema=public_schema, unit=UNIT, nominal_rows=10**4)

    def attack(within, noise):
        with fitted_at_once():
            return Transcript(sharp).ratio(ready, tables, within, noise)

    return World(
        attack=attack,
        claim=claim_of(ready.events(schema=public_schema, unit=UNIT)),
        **{"few": 0.4, "faint": 0.4} | limits,
    )


def privbayes(noise: str, *, columns: int, tight: float) -> World:
    return chosen_marginals(
        PrivBayes(noise=NoiseKind(noise)), neighbours(schema(columns), UNIT), tight=tight
    )


def rare(columns: int) -> tuple[PrivateTable, PrivateTable]:
    """A canary whose first pair of columns nobody else has, and whose other levels many have."""
    canary = [1, 1] + [0] * (columns - 2)
    codes = np.vstack([np.zeros((100, columns), dtype=np.int32), canary])
    return coded(schema(columns), codes[:-1]), coded(schema(columns), codes)


def bayes(*, tight: float, unit: PrivacyUnit = UNIT) -> World:
    """No record or one, or one replaced: more records would hide each other's parameters.

    The laws of a column's choices do not depend on each other: each table is asked for them once.
    """
    public_schema = flags("c0")
    replaced = unit.relation is REPLACE
    tables = repeated(public_schema, *[0] * replaced), repeated(public_schema, 1)
    ready = Bayes(prior=0.01).calibrate(
        rho=0.125, schema=public_schema, unit=unit, nominal_rows=100
    )
    laws = []
    for private_table in tables:
        recorder = Laws()
        ready.measure(private_table, noise=recorder)
        laws.append(recorder.laws)

    def attack(within, noise):
        source = Recording(noise)
        ready.measure(tables[within], noise=source)
        places = enumerate(source.chosen)
        return sum(float(laws[1][k][choice] - laws[0][k][choice]) for k, choice in places)

    claim = claim_of(ready.events(schema=public_schema, unit=unit))
    return World(attack=attack, claim=claim, tight=tight, faint=0.2)


PATE = {
    "teachers": 2, "rounds": 2, "queries": 12, "memory": 2, "teacher_steps": 6, "student_steps": 1,
    "generator_steps": 1, "teacher_lot": 1, "batch": 6, "latent": 1, "generator": (1,),
    "student": (1,), "teacher": 4, "teacher_rate": 0.5, "resumes": 0,
    "start": 5, "marginals_share": 0.0,
}  # fmt: skip
"""Settings are the attacker's choice: of twelve starts the one whose votes differ most."""


def pategan(noise: str, *, tight: float) -> World:
    """No rows or one: the votes of one teacher differ, the canary's own."""
    public_schema = flags("c0")
    tables = repeated(public_schema), repeated(public_schema, 1)
    ready = PATEGAN(noise=NoiseKind(noise), **PATE).calibrate(
        rho=1.0, schema=public_schema, unit=UNIT, nominal_rows=100
    )
    design, count = ready.design(public_schema), ready.calibrated.teachers
    chance = PublicRandom.of({"own": ready.parameters(), "schema": public_schema.to_mapping()})
    rows = design.encode(tables[1].confidential())
    counted, taught, voted = mechanisms.noisy_counts, Teachers.taught, Teachers.votes

    def school(dealt):
        return Teachers.start(
            rows[: len(dealt)], np.array(dealt, dtype=np.int64), count=count, hidden=ready.teacher,
            rate=ready.teacher_rate, chance=chance,
        )  # fmt: skip

    schools = [school([]), *(school([teacher]) for teacher in range(count))]

    def attack(within, noise):
        lessons: list[dict[str, Any]] = []

        def teaching(self, made, **rest):
            lessons.append({"made": made, **rest})
            return taught(self, made, **rest)

        def voting(self, asked):
            lessons[-1]["asked"] = asked
            return voted(self, asked)

        def counting(counts, *, law, noise):
            lessons[-1]["noisy"] = counted(counts, law=law, noise=noise)
            lessons[-1]["scale"] = law.scale
            return lessons[-1]["noisy"]

        with (
            mock.patch.object(Teachers, "taught", teaching),
            mock.patch.object(Teachers, "votes", voting),
            mock.patch.object(mechanisms, "noisy_counts", counting),
        ):
            ready.measure(tables[within], noise=noise)
        return score(lessons)

    def score(lessons):
        """What was asked is public; so what teachers of either table would have said is known."""
        taught_schools, ratios = list(schools), np.zeros(count)
        for lesson in lessons:
            taught_schools = [
                teachers.taught(lesson["made"], steps=lesson["steps"], lot=lesson["lot"])
                for teachers in taught_schools
            ]
            votes = [teachers.votes(lesson["asked"]) for teachers in taught_schools]
            for teacher in range(count):
                ratios[teacher] += log_likelihood_ratio(
                    ready.noise, lesson["scale"], lesson["noisy"], votes[0], votes[1 + teacher]
                )
        return float(logsumexp(ratios) - np.log(count))

    return World(
        attack=attack, claim=claim_of(ready.events(schema=public_schema, unit=UNIT)), tight=tight,
        few=0.2, faint=0.3,
    )  # fmt: skip


UNPAID: dict[str, Callable[[], World]] = {
    "mst laplace": lambda: chosen_marginals(
        MST(noise=NoiseKind.LAPLACE), rare(3), sharp=1e3, tight=0.0, few=1.0
    ),
    "aim gaussian": lambda: chosen_marginals(
        AIM(), rare(3), rho=0.1, sharp=1e3, tight=0.0, few=0.2
    ),
}
"""For an attacker who takes it that selections have no noise; pure and Gaussian claims alone."""

WORLDS: dict[str, Callable[[], World]] = {
    "histogram gaussian": lambda: histogram("gaussian", columns=3, tight=0.75),
    "histogram gaussian, replace-one": lambda: histogram(
        "gaussian", columns=3, tight=0.75, unit=REPLACED
    ),
    "histogram laplace": lambda: histogram("laplace", columns=1, tight=0.7),
    "histogram laplace, replace-one": lambda: histogram(
        "laplace", columns=1, tight=0.6, unit=REPLACED
    ),
    "privbayes gaussian": lambda: privbayes("gaussian", columns=3, tight=0.25),
    "privbayes laplace": lambda: privbayes("laplace", columns=2, tight=0.35),
    "mst gaussian": lambda: chosen_marginals(MST(), rare(3), tight=0.15),
    "mst laplace": lambda: chosen_marginals(
        MST(noise=NoiseKind.LAPLACE), rare(2), tight=0.1, few=0.8, faint=0.3
    ),
    "aim gaussian": lambda: chosen_marginals(AIM(), rare(3), tight=0.5, few=0.3, faint=0.6),
    "bayes": lambda: bayes(tight=0.1),
    "bayes, replace-one": lambda: bayes(tight=0.05, unit=REPLACED),
    "pategan gaussian": lambda: pategan("gaussian", tight=0.2),
    "known marginals of pategan": lambda: known_marginals(tight=0.7),
}
