"""AIM: its rounds cost what was declared, whatever they draw, and a killed run goes on."""

import math
from dataclasses import replace
from itertools import combinations
from math import pi, prod, sqrt

import numpy as np
import pytest

from dpiw.data.schema.schema import Column, ColumnKind
from dpiw.errors import PrivacyError, SpecError
from dpiw.methods.generators.bayesian_network import score_sensitivity
from dpiw.methods.generators.estimation import NoisyMarginal, pooled
from dpiw.methods.generators.pgm import aim, aim_rounds
from dpiw.methods.generators.pgm.aim import AIM, MOST_COLUMNS
from dpiw.methods.generators.pgm.aim_rounds import MOST_MEMBERS, Round, Workload, score
from dpiw.methods.generators.pgm.pairs import UNIT as SCORE_UNIT
from dpiw.privacy import mechanisms
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SeededNoise
from tests.support.around import around
from tests.support.fits import fitted_at_once
from tests.support.training_watch import KilledError, Recorder
from tests.support.worlds import UNITS, levels, repeated

ADD, _, REPLACE, THREE_ROWS = UNITS


@pytest.fixture(autouse=True)
def _at_once():
    with fitted_at_once():
        yield


SCHEMA = levels(3)
ROWS = np.random.default_rng(0).integers(0, 3, (200, 1)).repeat(3, axis=1).astype(np.int32)
TABLE = repeated(SCHEMA, *ROWS[:, 0])


def ready(*, unit=ADD, rho=1.0, **settings):
    uncalibrated = AIM(**settings)
    return uncalibrated.calibrate(rho=rho, schema=SCHEMA, unit=unit, nominal_rows=200)


WEIGHT = 4
"""The largest of three columns: {a, b} shares 2, 1 and 1 columns with the pairs of them."""


class Spending:
    """Remembers what the mechanisms were asked, as 1/multiplier^2 of Gaussian mechanisms.

    What a unit moves is written out here: rows of one unit, and a replaced row is two.
    """

    def __init__(self, patch, unit):
        self.measured, self.selected = [], []
        rows = unit.max_rows * (1 if unit.relation is ADD.relation else 2)
        reach = rows if unit.relation is ADD.relation else rows / sqrt(2)

        def noisy_counts(_, *, law, **__):
            self.measured.append((reach / law.scale) ** 2)

        def select(_, *, epsilon, sensitivity, **__):
            self.selected.append((epsilon * rows * WEIGHT / sensitivity) ** 2 * pi / 8)

        for watched in (noisy_counts, select):
            around(mechanisms, watched.__name__, before=watched, replace=patch.setattr)

    @property
    def total(self):
        return float(sum(self.measured) + sum(self.selected))


def declared(own, unit):
    events = own.events(schema=SCHEMA, unit=unit)
    assert all(isinstance(event, GaussianEvent) for event in events)
    return float(sum(e.count / e.noise_multiplier**2 for e in events))


@pytest.mark.parametrize(
    "unit", [ADD, REPLACE, THREE_ROWS], ids=["add_remove", "replace", "replace_three"]
)
@pytest.mark.parametrize("resumes", [0, 1])
def test_all_draws_together_are_the_events(unit, resumes, monkeypatch):
    """Marginals and selections of whatever rounds spend what is stated, less the reserve."""
    process = ready(unit=unit, resumes=resumes)
    spending = Spending(monkeypatch, unit)
    process.measure(TABLE, noise=SeededNoise(1))
    terms = process.resumption
    reserved = terms.reserve / process.calibrated.part**2 if terms else 0.0
    assert spending.total == pytest.approx(declared(process, unit) - reserved, rel=1e-9)
    assert len(spending.selected) == len(spending.measured) - 3


def test_a_selection_that_is_not_charged_is_found(monkeypatch):
    """The control: the marginal gets the whole price of its round."""
    monkeypatch.setattr(
        Round, "multiplier", property(lambda self: self.part / sqrt(self.parts))
    )  # fmt: skip
    process, spending = ready(), Spending(monkeypatch, ADD)
    process.measure(TABLE, noise=SeededNoise(1))
    assert spending.total > declared(process, ADD) * 1.01


@pytest.mark.parametrize("plant", [
    ("score_sensitivity", lambda unit: score_sensitivity(unit) / 1000),
    ("score_sensitivity", lambda unit: float(unit.max_rows)),
    ("score_sensitivity", lambda unit: 2.0),
    ("max", min),  # of the candidates' weights
], ids=["thousandth", "one_relation", "one_row", "least_weight"])  # fmt: skip
def test_a_selection_of_too_small_a_sensitivity_is_found(plant, monkeypatch):
    """Planted bugs: each spends more than is declared."""
    monkeypatch.setattr(aim_rounds, *plant, raising=False)
    process, spending = ready(unit=THREE_ROWS), Spending(monkeypatch, THREE_ROWS)
    process.measure(TABLE, noise=SeededNoise(1))
    assert spending.total > declared(process, THREE_ROWS) * 1.01


@pytest.mark.parametrize("dies_at", [1, 5])
def test_a_killed_run_goes_on_from_its_last_round(dies_at, monkeypatch):
    """What was drawn stays, the rest is drawn, and both together cost at most the events."""
    process, spending = ready(resumes=1), Spending(monkeypatch, ADD)
    terms = process.resumption
    first = Recorder()
    process.measure(TABLE, noise=SeededNoise(1), watch=first)
    steps = [step for step, _ in first.steps]
    assert steps[0] == 0
    assert steps[-1] == terms.steps
    assert max(np.diff(steps)) <= terms.every
    dies_at = next(step for step in steps if step >= dies_at)
    spending.measured.clear()
    spending.selected.clear()
    killed = Recorder(dies_at=dies_at)
    with pytest.raises(KilledError):
        process.measure(TABLE, noise=SeededNoise(2), watch=killed)
    dead = max(killed.saved)
    again = Recorder(resumed=killed.saved[dead])
    measurement = process.measure(TABLE, noise=SeededNoise(3), watch=again)
    saved = Measurement.from_bytes(killed.saved[dead])
    assert measurement.facts["network"][: len(saved.facts["network"])] == saved.facts["network"]
    assert np.array_equal(
        measurement.arrays["rounds"][: saved.arrays["rounds"].size], saved.arrays["rounds"]
    )
    assert all(step > dead for step, _ in again.steps)
    assert spending.total <= declared(process, ADD) * (1 + 1e-9)
    events = [{"count": event.count} for event in process.events(schema=SCHEMA, unit=ADD)]
    assert terms.is_paid_by(events)


def test_a_checkpoint_without_a_reserve_is_refused():
    watch = Recorder()
    ready(resumes=1).measure(TABLE, noise=SeededNoise(1), watch=watch)
    with pytest.raises(PrivacyError):
        ready().measure(TABLE, noise=SeededNoise(1), watch=Recorder(resumed=watch.saved[0]))


class Telling:
    """What mechanisms released, and what each fit was told."""

    def __init__(self, patch):
        self.released = []
        self.told = []

        def noisy_counts(values, *_, law, **__):
            self.released.append((values.copy(), law.scale))

        def fit(marginals, *_, total):
            self.told.append((list(marginals), total))

        around(mechanisms, "noisy_counts", after=noisy_counts, replace=patch.setattr)
        around(aim_rounds, "fit", before=fit, replace=patch.setattr)

    def check(self, measured):
        """Every number told is a pooled released one: all arrays, their variances, the total."""
        chosen = (tuple(marginal) for marginal, _, _ in measured.facts["network"])
        columns = [(0,), (1,), (2,), *chosen]
        assert len(columns) == len(self.released)
        for number, (marginals, total) in enumerate(self.told):
            known = self._pooled(columns[: 3 + number])
            assert {marginal.columns for marginal in marginals} == set(known)
            assert len(marginals) == len(known)
            for marginal in marginals:
                values, variance = known[marginal.columns]
                assert marginal.values == pytest.approx(values, rel=1e-9)
                assert marginal.variance == pytest.approx(variance, rel=1e-9)
            sums = [(v.sum(), 1 / (v.size * variance)) for v, variance in known.values()]
            mean = sum(s * weight for s, weight in sums) / sum(weight for _, weight in sums)
            assert total == pytest.approx(max(mean, 1.0), rel=1e-9)

    def _pooled(self, columns):
        same = {}
        for marginal, (values, scale) in zip(columns, self.released, strict=False):
            same.setdefault(marginal, []).append((values, 1 / scale**2))
        return {
            marginal: (
                sum(v * w for v, w in draws) / sum(w for _, w in draws),
                1 / sum(w for _, w in draws),
            )
            for marginal, draws in same.items()
        }


def test_a_fit_is_told_noisy_counts_alone(monkeypatch):
    """Every number of it was drawn by a mechanism, or is a public scale."""
    telling = Telling(monkeypatch)
    measured = ready().measure(TABLE, noise=SeededNoise(1))
    assert len(telling.told) > 3
    telling.check(measured)


EXACT = {(a, b): np.diag(np.bincount(ROWS[:, 0], minlength=3)) for a, b in [(0, 1), (0, 2), (1, 2)]}


@pytest.mark.parametrize("plant", ["counts", "more_counts", "total"])
def test_exact_numbers_told_to_a_fit_are_found(plant, monkeypatch):
    """Planted bugs: exact counts of pairs, beside or in place of noisy ones; the exact total."""

    def fitted(drawn):
        marginals = pooled(aim_rounds.drawn_marginals(drawn))
        total = aim_rounds.rows_of(aim_rounds.drawn_marginals(drawn))
        if plant == "counts":
            marginals = [
                replace(marginal, values=EXACT.get(marginal.columns, marginal.values) * 1.0)
                for marginal in marginals
            ]
        if plant == "more_counts":
            exact = [NoisyMarginal(columns=c, values=v, variance=1e-6) for c, v in EXACT.items()]
            marginals = marginals + exact
        total = len(ROWS) if plant == "total" else total
        return aim_rounds.fit(marginals, drawn.facts["sizes"], total=total)

    monkeypatch.setattr(aim, "fitted", fitted)
    telling = Telling(monkeypatch)
    measured = ready().measure(TABLE, noise=SeededNoise(1))
    with pytest.raises(AssertionError):
        telling.check(measured)


def test_scores_move_by_their_weight():
    """One row: at most the weight, attained; the stated sensitivity is the largest weight."""
    rng, reached = np.random.default_rng(1), 0.0
    for _ in range(300):
        counts = rng.integers(0, 4, (3, 3))
        model, weight = rng.random((3, 3)) * 3, int(rng.integers(1, 6))
        neighbour = counts.copy()
        neighbour[tuple(rng.integers(0, 3, 2))] += 1
        before, after = (score(c, model, weight=weight, stddev=1.3) for c in (counts, neighbour))
        assert abs(before - after) <= weight
        reached = max(reached, abs(before - after) / weight)
    assert reached == 1
    penalty = math.floor(sqrt(2 / pi) * 1.3 * 9 * SCORE_UNIT) / SCORE_UNIT
    assert score(np.ones((3, 3), dtype=int), np.zeros((3, 3)), weight=2, stddev=1.3) == 2 * (
        9 - penalty
    )


def test_candidates_and_weights_are_those_of_all_pairs():
    workload = Workload(sizes=(2, 3, 4), max_cells=8, max_model_cells=10_000)
    assert workload.weights() == {(0,): 2, (1,): 1, (2,): 1, (0, 1): 3, (0, 2): 3}
    every = Workload(sizes=(2, 3, 4, 5), max_cells=20, max_model_cells=10_000).weights()
    for a, b in combinations(range(4), 2):  # |r and s| summed over all pairs s
        shared = sum(len({a, b} & set(pair)) for pair in combinations(range(4), 2))
        assert every[a, b] == shared


def test_models_stay_within_their_size():
    """Pairs that would make the junction tree too large are no candidates; others stay."""
    sizes, chain = (9, 9, 9, 9), [(0, 1), (1, 2), (2, 3), (0,)]
    large = Workload(sizes=sizes, max_cells=100, max_model_cells=10_000)
    small = Workload(sizes=sizes, max_cells=100, max_model_cells=700)
    assert set(large.affordable(chain, share=1.0)) == set(large.weights())
    allowed = set(small.affordable(chain, share=1.0))
    assert (0, 3) not in allowed  # closes a cycle: two tables of 729 cells
    assert {(0,), (3,), (0, 1), (1, 2), (2, 3)} <= allowed
    assert prod(sizes[:3]) > 700


def test_tables_have_no_more_axes_than_arrays():
    """Columns of one level take no cells, and an axis each."""
    cliques = list(combinations(range(MOST_MEMBERS), 2))
    workload = Workload(sizes=(1,) * (MOST_MEMBERS + 1), max_cells=4, max_model_cells=10_000)
    refused = set(workload.weights()) - set(workload.affordable(cliques, share=1.0))
    assert refused == {(0, MOST_MEMBERS)}  # joined with the first to be eliminated


def test_what_is_too_large_is_refused_from_public_figures():
    facts = {"rho": 1.0, "unit": ADD, "nominal_rows": 100}
    with pytest.raises(SpecError, match=f"at most {MOST_COLUMNS}"):
        AIM().calibrate(schema=levels(65), **facts)
    with pytest.raises(SpecError, match="max_model_cells"):
        AIM(max_model_cells=100).calibrate(schema=SCHEMA, **facts)
    many = tuple(f"l{j}" for j in range(4000))
    zips = Column(name="zip", kind=ColumnKind.CATEGORICAL, levels=many)
    wide = replace(levels(20), columns=(zips, *levels(20).columns))
    streets = replace(zips, name="street", levels=many[:250])
    two_zips = replace(wide, columns=(*wide.columns, streets))
    AIM(max_cells=12_000).calibrate(schema=wide, **facts)
    for settings in ({"max_cells": 1 << 20}, {"max_model_cells": 1 << 27}):
        too_many = two_zips if "max_cells" in settings else levels(64)
        with pytest.raises(SpecError):
            AIM(**settings).calibrate(schema=too_many, **facts)
