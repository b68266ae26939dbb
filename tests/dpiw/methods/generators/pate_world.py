"""Teachers of pategan: how they are taught, whose rows they meet, what they answer."""

import dataclasses
import itertools

import numpy as np

from dpiw.methods.generators.gan.pategan import PATEGAN
from dpiw.methods.generators.gan.teachers import Teachers
from dpiw.methods.generators.gan.training import PublicRandom
from tests.dpiw.methods.generators.neural_world import UNIT, with_marginals

RANDOM = PublicRandom.of({"test": 1})


def ready(*, rho=0.5, unit=UNIT, **settings):
    own = {"rounds": 4, "teacher": 3, "teacher_lot": 4, "marginals_share": 0.0} | settings
    return with_marginals(PATEGAN, rho=rho, unit=unit, **own)


def school(rows, dealt, count):
    return Teachers.start(rows, dealt, count=count, hidden=2, rate=0.5, chance=RANDOM)


MADE = np.random.default_rng(1).normal(size=(6, 2))
ASKED = np.random.default_rng(2).normal(size=(7, 2))
ROWS = 2 * np.random.default_rng(3).normal(size=(5, 2))


def votes(rows, dealt, count=3):
    """Of two rounds, the second after the first, shape (2, queries)."""
    first = school(rows, dealt, count).taught(MADE, steps=2, lot=3)
    second = first.taught(-MADE, steps=2, lot=3)
    return np.array([first.votes(ASKED), second.votes(ASKED)])


def largest_move(persons, rule, count=3):
    """Most that a query moves when one person leaves, over every deal of the whole table.

    `rule` says how the smaller table is dealt, given the deal of the whole one and who is left.
    """
    persons, worst = np.asarray(persons), 0
    rows = ROWS[: len(persons)]
    for dealt in itertools.product(range(count), repeat=len(persons)):
        whole = votes(rows, np.array(dealt), count)
        for person in set(persons):
            kept = np.flatnonzero(persons != person)
            smaller = votes(rows[kept], rule(np.array(dealt), kept), count)
            worst = max(worst, int(np.abs(whole - smaller).max()))
    return worst


def coupled(dealt, kept):
    """The rows that both tables have go to the same teachers in both."""
    return dealt[kept]


def numbered(count, dealt):
    rows = np.column_stack([np.arange(len(dealt)), np.zeros(len(dealt))]).astype(float)
    return school(rows, dealt, count)


def check_teachers_are_disjoint(school, dealt):
    """Every teacher meets all of its rows and no other's."""
    met = [set() for _ in range(len(school.sizes))]
    for step in range(30):
        rows, weights = dataclasses.replace(school, step=step)._lot(4)
        for number, (own, weight) in enumerate(zip(rows, weights, strict=True)):
            if weight > 0:
                met[number] |= set(own[:, 0].tolist())
    for number, found in enumerate(met):
        assert found == set(np.flatnonzero(dealt == number).astype(float).tolist())
