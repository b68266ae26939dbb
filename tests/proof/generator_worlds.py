"""Generators on neighbouring tables, for attacks to tell apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from scipy.special import logsumexp

from dpiw.data.discretisation import Domain
from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.generators.adversarial import PublicRandom
from dpiw.methods.generators.bayes import Bayes
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.marginal_noise import useful_bins
from dpiw.methods.generators.pategan import PATEGAN
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.generators.teachers import Teachers
from dpiw.privacy import mechanisms
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, PrivacyUnit
from tests.proof.attacks import Silent, World, claim_of, log_likelihood_ratio

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
REPLACE = PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE)


def schema(columns: int) -> PublicSchema:
    roles = [ColumnRole.FEATURE] * (columns - 1) + [ColumnRole.TARGET]
    return PublicSchema(
        name="canary",
        columns=tuple(
            Column(name=f"c{j}", kind=ColumnKind.CATEGORICAL, levels=("a", "b", "c"), role=role)
            for j, role in enumerate(roles)
        ),
    )


def table(own: PublicSchema, *levels: int) -> PrivateTable:
    """Rows that have the same level in every column."""
    values = np.array(levels, dtype=np.int32)
    return PrivateTable(
        schema=own, scaled=ScaledTable({c.name: values for c in own.columns}, len(levels))
    )


def neighbours(own: PublicSchema, unit: PrivacyUnit) -> tuple[PrivateTable, PrivateTable]:
    if unit.relation is NeighbouringRelation.REPLACE_ONE:
        return table(own, 0, 0, 0, 0, 1), table(own, 0, 0, 0, 0, 2)
    return table(own, 0, 0, 0, 0), table(own, 0, 0, 0, 0, 1)


def histogram(noise: str, *, columns: int, tight: float, unit: PrivacyUnit = UNIT) -> World:
    own = schema(columns)
    tables = neighbours(own, unit)
    ready = Histogram(noise=NoiseKind(noise)).calibrate(
        rho=2.0, schema=own, unit=unit, nominal_rows=100
    )
    exact = [ready.measure(one, noise=Silent()).arrays for one in tables]

    def attack(within: bool, noise: Any) -> float:
        released = ready.measure(tables[within], noise=noise)
        kind, scale = ready.noise, released.facts["scale"]
        return sum(
            log_likelihood_ratio(kind, scale, values, exact[0][name], exact[1][name])
            for name, values in released.arrays.items()
        )

    return World(attack=attack, claim=claim_of(ready.events(schema=own, unit=unit)), tight=tight)


class Recording:
    """A source that remembers which candidates were chosen: the released network says as much."""

    def __init__(self, noise: Any) -> None:
        self._noise, self.chosen = noise, []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        self.chosen.append(self._noise.noisy_argmax(scores, scale=scale))
        return int(self.chosen[-1])


class Replaying:
    """A source that chooses what was chosen, and says how likely that was."""

    publishable = False

    def __init__(self, chosen: list[int]) -> None:
        self._chosen, self.log_probability = iter(chosen), 0.0

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        found = next(self._chosen)
        self.log_probability += float(scores[found] / scale - logsumexp(scores / scale))
        return found


class Asked:
    """A source that chooses the first, and remembers the log law of every choice."""

    publishable = False

    def __init__(self) -> None:
        self.laws: list[Any] = []

    def noisy_argmax(self, scores: Any, *, scale: float) -> int:
        self.laws.append(scores / scale - logsumexp(scores / scale))
        return 0


def privbayes(noise: str, *, columns: int, tight: float, **settings: Any) -> World:
    own = schema(columns)
    tables = neighbours(own, UNIT)
    ready = PrivBayes(noise=NoiseKind(noise), **settings).calibrate(
        rho=1.0, schema=own, unit=UNIT, nominal_rows=10**4
    )
    domain = Domain.from_schema(own, bins=useful_bins(ready.bins, 10**4))
    counters = [ContingencyCounter(domain.codes(t.confidential()), domain.sizes) for t in tables]
    noises = ready.calibrated
    assert noises is not None

    def attack(within: bool, noise: Any) -> float:
        source = Recording(noise)
        released = ready.measure(tables[within], noise=source)
        arrays, facts = released.arrays, released.facts
        score = 0.0
        for members, name, scale in (
            *(((j,), f"one_way_{j}", facts["one_way_scale"]) for j in range(columns)),
            *(((*p, c), f"family_{c}", facts["family_scale"]) for c, p in facts["network"][1:]),
        ):
            exact = [counter.count(members) for counter in counters]
            score += log_likelihood_ratio(ready.noise, scale, arrays[name], *exact)
        replays = [Replaying(source.chosen) for _ in tables]
        for counter, replay in zip(counters, replays, strict=True):
            ready._network(counter, domain, arrays, noises, replay)
        return score + replays[1].log_probability - replays[0].log_probability

    claim = claim_of(ready.events(schema=own, unit=UNIT))
    return World(attack=attack, claim=claim, tight=tight, few=0.4, faint=0.4)


def bayes(*, tight: float, unit: PrivacyUnit = UNIT) -> World:
    """No record or one, or one replaced: more records would hide each other's parameters.

    The laws of a column's choices do not depend on each other: each table is asked for them once.
    """
    own = PublicSchema(name="canary", columns=(Column(name="c0", kind=ColumnKind.BOOLEAN),))
    replaced = unit.relation is NeighbouringRelation.REPLACE_ONE
    tables = table(own, *[0] * replaced), table(own, 1)
    ready = Bayes(prior=0.01).calibrate(rho=0.125, schema=own, unit=unit, nominal_rows=100)
    laws = []
    for one in tables:
        asked = Asked()
        ready.measure(one, noise=asked)
        laws.append(asked.laws)

    def attack(within: bool, noise: Any) -> float:
        source = Recording(noise)
        ready.measure(tables[within], noise=source)
        places = enumerate(source.chosen)
        return sum(float(laws[1][k][one] - laws[0][k][one]) for k, one in places)

    claim = claim_of(ready.events(schema=own, unit=unit))
    return World(attack=attack, claim=claim, tight=tight, faint=0.2)


PATE = {
    "teachers": 2, "rounds": 2, "queries": 12, "memory": 2, "teacher_steps": 6, "student_steps": 1,
    "generator_steps": 1, "teacher_lot": 1, "batch": 6, "latent": 1, "generator": (1,),
    "student": (1,), "teacher": 4, "teacher_rate": 0.5, "resumes": 0,
    "start": 5,
}  # fmt: skip
"""Settings are the attacker's choice: of twelve starts the one whose votes differ most."""


def pategan(noise: str, *, tight: float) -> World:
    """No rows or one: the votes of one teacher differ, the canary's own."""
    own = PublicSchema(
        name="canary", columns=(Column(name="c0", kind=ColumnKind.BOOLEAN),)
    )  # fmt: skip
    tables = table(own), table(own, 1)
    ready = PATEGAN(noise=NoiseKind(noise), **PATE).calibrate(
        rho=1.0, schema=own, unit=UNIT, nominal_rows=100
    )
    design, count = ready.design(own), ready.calibrated.teachers
    chance = PublicRandom.of({"own": ready.parameters(), "schema": own.to_mapping()})
    rows = design.encode(tables[1].confidential())
    counted, taught, voted = mechanisms.noisy_counts, Teachers.taught, Teachers.votes

    def school(dealt: list[int]) -> Teachers:
        return Teachers.start(
            rows[: len(dealt)], np.array(dealt, dtype=np.int64), count=count, hidden=ready.teacher,
            rate=ready.teacher_rate, chance=chance,
        )  # fmt: skip

    schools = [school([]), *(school([teacher]) for teacher in range(count))]

    def attack(within: bool, noise: Any) -> float:
        lessons: list[dict[str, Any]] = []

        def teaching(self: Any, made: Any, **rest: Any) -> Any:
            lessons.append({"made": made, **rest})
            return taught(self, made, **rest)

        def voting(self: Any, asked: Any) -> Any:
            lessons[-1]["asked"] = asked
            return voted(self, asked)

        def counting(counts: Any, *, law: Any, noise: Any) -> Any:
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

    def score(lessons: list[dict[str, Any]]) -> float:
        """What was asked is public; so what teachers of either table would have said is known."""
        found, ratios = list(schools), np.zeros(count)
        for told in lessons:
            found = [
                one.taught(told["made"], steps=told["steps"], lot=told["lot"]) for one in found
            ]
            votes = [one.votes(told["asked"]) for one in found]
            for teacher in range(count):
                ratios[teacher] += log_likelihood_ratio(
                    ready.noise, told["scale"], told["noisy"], votes[0], votes[1 + teacher]
                )
        return float(logsumexp(ratios) - np.log(count))

    return World(
        attack=attack,
        claim=claim_of(ready.events(schema=own, unit=UNIT)),
        tight=tight,
        few=0.2,
        faint=0.3,
    )


WORLDS: dict[str, Callable[[], World]] = {
    "histogram gaussian": lambda: histogram("gaussian", columns=3, tight=0.75),
    "histogram gaussian, replace-one": lambda: histogram(
        "gaussian", columns=3, tight=0.75, unit=REPLACE
    ),
    "histogram laplace": lambda: histogram("laplace", columns=1, tight=0.7),
    "histogram laplace, replace-one": lambda: histogram(
        "laplace", columns=1, tight=0.6, unit=REPLACE
    ),
    "privbayes gaussian": lambda: privbayes("gaussian", columns=3, tight=0.35),
    "privbayes laplace": lambda: privbayes("laplace", columns=2, tight=0.35),
    "bayes": lambda: bayes(tight=0.1),
    "bayes, replace-one": lambda: bayes(tight=0.05, unit=REPLACE),
    "pategan gaussian": lambda: pategan("gaussian", tight=0.2),
}
