"""MST: what it declares is what it does, and its selections have their law."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.estimation import NoisyMarginal
from dpiw.methods.generators.marginal_noise import noise_scale
from dpiw.methods.generators.pgm import mst
from dpiw.methods.generators.pgm.mst import MST
from dpiw.methods.generators.pgm.pairs import UNIT as SCORE_UNIT
from dpiw.methods.generators.pgm.pairs import (
    Merging,
    admissible_pairs,
    distance,
    spanning_pairs,
    spread,
    unmerged_votes,
)
from dpiw.privacy.events import ExponentialMechanismEvent
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.support.fits import fitted_at_once
from tests.support.worlds import UNITS, coded, levels

ADD, _, REPLACE, _ = UNITS


def ready(own, *, unit=ADD, rho=1.0, **settings):
    return MST(**settings).calibrate(rho=rho, schema=own, unit=unit, nominal_rows=100)


class Replaying:
    """A source that chooses what it is told, and multiplies the exact chances of that."""

    publishable = False

    def __init__(self, chosen):
        self._chosen, self.chance = iter(chosen), 1.0

    def noisy_argmax(self, scores, *, scale):
        powers = np.exp((scores - scores.max()) / scale)
        index = next(self._chosen)
        if index >= len(powers):
            self.chance = 0.0
            return 0
        self.chance *= float(powers[index] / powers.sum())
        return index


ROWS = ["aaa", "aab", "aab", "bbb", "bba", "bbb", "aba", "baa"]
ONE_WAY = [np.array([5.0, 4.0]), np.array([3.0, 6.0]), np.array([4.5, 4.5])]


EVERY_CODE = Merging(codes=np.arange(2, dtype=np.int32))


def chances(own, cells):
    """Of every selection of two pairs among three columns, given released one-way marginals."""
    codes = np.array([["ab".index(x) for x in row] for row in cells], dtype=np.int32)
    known = [NoisyMarginal(columns=(j,), values=v, variance=1.0) for j, v in enumerate(ONE_WAY)]
    merging, probabilities = [EVERY_CODE] * 3, {}
    for chosen in product(range(3), range(2)):
        source = Replaying(chosen)
        counter = ContingencyCounter(lambda: [codes], [2, 2, 2])
        pairs = own._select(counter, known, merging, own.calibrated, source)
        probabilities[tuple(pairs)] = probabilities.get(tuple(pairs), 0.0) + source.chance
    return probabilities


def test_selections_have_their_exact_law():
    """Every tree of three columns, against the exponential mechanism written out."""
    generator = ready(levels(3, 2), rho=0.5)
    probabilities = chances(generator, ROWS)
    assert sum(probabilities.values()) == pytest.approx(1)
    epsilon, score = generator.calibrated.selection, {}
    for a, b in ((0, 1), (0, 2), (1, 2)):
        counts = {(x, y): sum(r[a] == x and r[b] == y for r in ROWS) for x in "ab" for y in "ab"}
        score[a, b] = sum(
            abs(counts[x, y] - ONE_WAY[a]["ab".index(x)] * ONE_WAY[b]["ab".index(y)] / 9)
            for x in "ab"
            for y in "ab"
        )
    for (first, second), chance in probabilities.items():
        powers = {pair: np.exp(epsilon * value / 2) for pair, value in score.items()}
        rest = {pair: p for pair, p in powers.items() if pair != first}
        wanted = powers[first] / sum(powers.values()) * rest[second] / sum(rest.values())
        assert chance == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("unit", [ADD, REPLACE], ids=["add_remove", "replace"])
def test_selections_of_neighbours_differ_by_at_most_their_epsilon(unit):
    """Exact enumeration: each log ratio within both epsilons; and a wrong relation is found."""
    assert worst_loss(unit) <= 1
    if unit is REPLACE:  # the control: the sensitivity of add/remove under replace-one
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mst, "score_sensitivity", lambda unit: 1.0)
            assert worst_loss(unit) > 1


def worst_loss(unit):
    """The largest log ratio of a first selection over neighbours, as a share of its epsilon."""
    generator, worst = ready(levels(3, 2), rho=8.0, unit=unit), 0.0
    (event,) = [
        e for e in generator.events(schema=levels(3, 2), unit=unit)
        if isinstance(e, ExponentialMechanismEvent)
    ]  # fmt: skip
    for rows in (ROWS, ["aaa"] * 5 + ["bbb"] * 4, ["aab"] * 5 + ["bba"] * 4):
        base = first_chances(generator, rows)
        for row in ("aab", "aba", "abb", "bab", "bbb"):
            for rest in (rows[:-1], rows[1:]) if unit is REPLACE else (rows,):
                near = first_chances(generator, [row, *rest])
                worst = max([worst, *(abs(np.log(base[k] / near[k])) for k in base)])
    return worst / event.epsilon


def first_chances(own, cells):
    probabilities = {}
    for (first, _), chance in chances(own, cells).items():
        probabilities[first] = probabilities.get(first, 0.0) + chance
    return probabilities


def test_score_sensitivity_by_exhaustion():
    """Every 2 x 2 table of cells 0 to 2, a few models: 1 for a row, attained, 2 for two."""
    reached = 0.0
    for cells in product(range(3), repeat=4):
        counts = np.array(cells).reshape(2, 2)
        for model in (np.zeros((2, 2)), np.full((2, 2), 0.7), np.array([[3.0, 0.2], [0.1, 1e12]])):
            for cell in np.ndindex(2, 2):
                neighbour = counts.copy()
                neighbour[cell] += 1
                gap = (distance(neighbour, model) - distance(counts, model)) / SCORE_UNIT
                reached = max(reached, abs(gap))
    assert reached == 1


def test_the_number_of_pairs_is_public():
    """A spanning forest of the admissible pairs, whatever is chosen."""
    assert spanning_pairs([2, 2, 2], 4) == 2
    assert spanning_pairs([2, 2, 50, 50], 100) == 3
    assert spanning_pairs([2, 2, 51], 100) == 1  # the third column stays alone
    assert spanning_pairs([9], 100) == 0
    assert list(admissible_pairs([2, 3, 4], 8)) == [(0, 1), (0, 2)]
    generator = ready(levels(1, 2), rho=0.5)
    (event,) = generator.events(schema=levels(1, 2), unit=ADD)
    assert event.count / event.noise_multiplier**2 / 2 == pytest.approx(0.5)


def noisy(counts):
    return NoisyMarginal(columns=(0,), values=np.array(counts), variance=16.0)


def test_merged_levels_are_dealt_evenly_and_vote_only_where_they_stay():
    merging = Merging.of(noisy([50.0, 1.0, 40.0, -2.0]))
    assert merging.codes.tolist() == [0, 2, 1, 2]
    assert merging.members.tolist() == [1, 1, 2]
    assert merging.summed(np.array([50.0, 1.0, 40.0, -2.0])).tolist() == [50, 40, -1]
    assert spread(np.array([0.5, 0.3, 0.2]), [merging]).tolist() == [0.5, 0.1, 0.3, 0.1]
    assert not Merging.of(noisy([50.0, 1.0])).changes  # one common level: all stay
    pair = NoisyMarginal(columns=(0, 1), values=np.ones((3, 2)), variance=2.0)
    (vote,) = unmerged_votes([pair], [merging, EVERY_CODE])
    assert (vote.columns, vote.values.tolist(), vote.variance) == ((1,), [3, 3], 6)


def test_rare_levels_enter_the_fit_with_their_summed_noise():
    own = levels(2, 6)
    rows = [[0, 0]] * 60 + [[1, 1]] * 60
    generator = ready(own, rho=2.0)
    with fitted_at_once():
        measurement = generator.measure(coded(own, rows), noise=SeededNoise(4))
        model = generator.model(measurement, schema=own)
    first, pair = model.marginals[0], model.marginals[2]
    assert [merging.size for merging in model.merging] == [3, 3]
    scale = noise_scale(NoiseKind.GAUSSIAN, multiplier=generator.calibrated.one_way, unit=ADD)
    assert first.stddev == pytest.approx(scale * np.sqrt([1, 1, 4]))
    assert pair.values.shape == (3, 3)
    assert Merging.of(replace(first, merged=1.0)).size <= 3
