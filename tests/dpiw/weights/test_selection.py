"""Charged selection among settings: what a run costs, what it scores, what stays hidden."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from dpiw import accounting
from dpiw.errors import SpecError, UncalibratedError, WeightError
from dpiw.measurement import Measurement
from dpiw.mechanisms import draw_index, lattice_step
from dpiw.privacy import (
    NeighbouringRelation,
    NoiseKind,
    PrivacyUnit,
    SelectedGaussianEvent,
    SelectedPureEvent,
)
from dpiw.randomness import SecureNoise, SeededNoise
from dpiw.repeat_and_select import rank_loss
from dpiw.tables import PrivateTable, SyntheticTable
from dpiw.weighting import weigh
from dpiw.weights.beta import BetaNoised
from dpiw.weights.selection import SelectedBeta
from dpiw.weights.selection_score import freedom, score_sensitivity, scores
from dpiw.weights.solver import Regression, solve

MENU = (
    {"settings": {"features": "linear"}},
    {"method": "beta_noised", "settings": {"features": "interactions", "tau": Decimal("0.1")}},
    {"settings": {"features": "fourier", "omega_seed": 3, "frequencies": 10}},
)


def ready(schema, unit, *, rho=0.05, nominal_rows=300, **settings):
    return SelectedBeta(**{"candidates": MENU, **settings}).calibrate(
        rho=rho, schema=schema, unit=unit, nominal_rows=nominal_rows
    )


@pytest.fixture
def tables(mixed, rows):
    rng = np.random.default_rng(8)
    private = PrivateTable(schema=mixed, scaled=rows(mixed, 300, rng, power=3.0))
    return private, SyntheticTable(schema=mixed, scaled=rows(mixed, 250, rng))


# --- what one run costs -------------------------------------------------------------------------


@pytest.mark.parametrize("runs", ["logarithmic", "geometric"])
def test_the_gaussian_event_holds_both_noises(runs, mixed, unit):
    estimator = ready(mixed, unit, runs=runs, score_share=0.3)
    (event,) = estimator.events(schema=mixed, unit=unit)
    assert isinstance(event, SelectedGaussianEvent)
    assert event.noise_multiplier == pytest.approx(1 / math.sqrt(2 * 0.05), rel=1e-12)
    assert event.shape == (1 if runs == "geometric" else 0)
    # From the laws that are drawn, with METHOD's R/Lam for linear features on this schema; the
    # score's scale is larger by what covers its rounding, 1e-4.
    bounds = estimator.candidates[0].feature_map(mixed).bounds
    law = estimator.candidates[0].calibrated.law
    own = law.scale * estimator.candidates[0].calibrated.penalty / bounds.norm
    score = estimator.calibrated.score_law.scale / 2.0
    assert (own**-2 + score**-2) ** -0.5 == pytest.approx(event.noise_multiplier, rel=2e-4)
    assert score**-2 / (own**-2 + score**-2) == pytest.approx(0.3, rel=3e-4)


@pytest.mark.parametrize("noise", ["spherical", "laplace"])
def test_the_pure_event_holds_both_epsilons(noise, mixed, unit):
    estimator = ready(mixed, unit, noise=noise, score_share=0.25, rho=0.5)
    (event,) = estimator.events(schema=mixed, unit=unit)
    assert isinstance(event, SelectedPureEvent)
    assert event.epsilon == pytest.approx(1.0, rel=1e-12)
    laws = [c.calibrated.law for c in estimator.candidates]
    assert {law.kind for law in laws} == {NoiseKind(noise)}
    assert estimator.calibrated.score_law.kind is NoiseKind.LAPLACE
    assert 2.0 / estimator.calibrated.score_law.scale == pytest.approx(0.25, rel=1e-4)
    own = [1 / c.calibrated.multiplier for c in estimator.candidates]
    assert own == pytest.approx([0.75] * 3)
    total = accounting.epsilon([event], delta=0)
    assert total == pytest.approx(1 + float(rank_loss(event)))
    assert 1.5 < total < 2


def test_other_units_and_schemas_are_refused(mixed, numeric, unit, replace_unit, tables):
    estimator = ready(mixed, unit)
    with pytest.raises(UncalibratedError):
        estimator.events(schema=mixed, unit=replace_unit)
    with pytest.raises(UncalibratedError):
        estimator.events(schema=numeric(3), unit=unit)
    blank = SelectedBeta(candidates=MENU)
    for use in (
        lambda: blank.events(schema=mixed, unit=unit),
        lambda: blank.measure(*tables, noise=SeededNoise(1)),
        lambda: blank.ratio(estimator.measure(*tables, noise=SeededNoise(1)), schema=mixed),
    ):
        with pytest.raises(UncalibratedError, match="calibrate"):
            use()
    with pytest.raises(SpecError, match="rho > 0"):
        blank.calibrate(rho=0.0, schema=mixed, unit=unit, nominal_rows=10)


def test_the_worst_candidate_is_forecast(mixed, unit):
    estimator = ready(mixed, unit)
    parts = estimator.candidates
    assert estimator.predicted_log_weight_noise(schema=mixed) == max(
        p.predicted_log_weight_noise(schema=mixed) for p in parts
    )
    shown = [p.resolution(schema=mixed, nominal_rows=300) for p in parts]
    assert estimator.resolution(schema=mixed, nominal_rows=300) == min(shown) < max(shown)
    told = estimator.warnings(schema=mixed, nominal_rows=300)
    assert "not debiased" in told[0]
    assert all(text.startswith("candidate ") for text in told[1:])


# --- the score ----------------------------------------------------------------------------------


def problem(private, synthetic, penalty=5.0):
    return Regression(
        private=private,
        synthetic=synthetic,
        synthetic_weight=len(private) / len(synthetic) if len(private) else 1.0,
        penalty=penalty,
    )


def naive_score(private, synthetic, b, clip):
    centre = math.log(np.mean([math.exp(x @ b) for x in synthetic]))
    return sum(min(max(x @ b - centre, -clip), clip) for x in private)


def test_scores_are_the_printed_sum():
    rng = np.random.default_rng(3)
    private, synthetic = rng.normal(size=(9000, 3)), rng.normal(size=(40, 3))
    b = rng.normal(size=(4, 3))
    own = problem(private, synthetic)
    expected = [naive_score(private, synthetic, row, 0.7) - freedom(own) for row in b]
    np.testing.assert_allclose(scores(own, b, clip=0.7), expected, rtol=1e-10)
    # No weights gain nothing; nobody's rows neither.
    assert scores(own, np.zeros((1, 3)), clip=0.7) + freedom(own) == pytest.approx([0.0], abs=1e-9)
    nobody = problem(np.empty((0, 3)), synthetic)
    assert scores(nobody, b, clip=0.7) + freedom(nobody) == pytest.approx(np.zeros(4))


@pytest.mark.parametrize("relation", list(NeighbouringRelation))
@pytest.mark.parametrize("k", [1, 3])
def test_neighbours_scores_differ_by_at_most_the_sensitivity(relation, k):
    """Search over pairs and coefficients; the bound is reached, and half of it is exceeded.

    The synthetic side, and so the freedom and the centre, are the same for both: public.
    """
    rng = np.random.default_rng(11)
    replace_one = relation is NeighbouringRelation.REPLACE_ONE
    clip, largest = 1.5, 0.0
    bound = score_sensitivity(clip, PrivacyUnit(relation=relation, max_rows=k, id_column="id"))
    for _ in range(200):
        common, synthetic = rng.normal(size=(20, 3)), rng.normal(size=(30, 3))
        b = rng.normal(size=(5, 3)) * 10 ** rng.uniform(-1, 2)
        direction = rng.normal(size=3) if rng.random() < 0.5 else b[0]
        extra = np.outer(rng.choice([1, -1]) * np.ones(k), direction)
        other = -extra if replace_one else extra[:0]
        pairs = [np.vstack([common, rows]) for rows in (extra, other)]
        fits = [
            scores(replace(problem(common, synthetic), private=rows), b, clip=clip)
            for rows in pairs
        ]
        largest = max(largest, float(np.abs(fits[0] - fits[1]).max()))
    assert largest <= bound
    assert largest > 0.999 * bound


def test_rows_with_huge_features_count_no_more(mixed, unit):
    """Whatever the row, its part is clipped after the sum over features."""
    far = np.array([[1e9, -1e9, 3.0]])
    own = problem(np.zeros((1, 3)), np.eye(3))
    b = np.array([[1.0, 2.0, 3.0]])
    moved = scores(replace(own, private=np.vstack([own.private, far])), b, clip=2.0)
    assert abs(moved - scores(own, b, clip=2.0))[0] <= 2.0


def test_freedom_is_the_advantage_of_the_fitted_rows():
    """In-sample less out-of-sample score over 200 tables of 400 rows, both laws equal.

    Accepts within four standard errors (false alarm below 1e-4), rejects none and twice as much.
    """
    rng = np.random.default_rng(5)
    gaps, stated = [], []
    for _ in range(200):
        synthetic = np.c_[rng.random((2000, 4)) - 0.5, np.full(2000, 0.5)]
        fitted, fresh = (np.c_[rng.random((400, 4)) - 0.5, np.full(400, 0.5)] for _ in range(2))
        own = problem(fitted, synthetic, penalty=10.0)
        b = solve(own, tolerance=1e-8)[None]
        gaps.append(
            (scores(own, b, clip=5.0) - scores(replace(own, private=fresh), b, clip=5.0))[0]
        )
        stated.append(freedom(own))
    mean, error = np.mean(gaps), np.std(gaps) / math.sqrt(200)
    assert abs(mean - np.mean(stated)) < 4 * error
    assert min(abs(mean), abs(mean - 2 * np.mean(stated))) > 5 * error


# --- what is released, and what is not ----------------------------------------------------------


class ForcedRuns(SeededNoise):
    """Seeded noise whose K is what a test says; keeps a record of every request."""

    def __init__(self, seed, weights, kept):
        super().__init__(seed)
        self._total, self._below, self.asked = sum(weights), sum(weights[: kept - 1]), []

    def whole_below(self, bound):
        drawn = super().whole_below(bound)
        self.asked.append(("whole", bound))
        return self._below if bound == self._total else drawn

    def discrete_gaussian(self, *, scale, size):
        self.asked.append(("gaussian", scale, size))
        return super().discrete_gaussian(scale=scale, size=size)


def test_the_number_of_runs_leaves_no_trace(mixed, unit, tables):
    """The same requests of the noise source and the same form, whatever K is."""
    estimator = ready(mixed, unit, mean_runs=2, score_share=0.9, rho=5.0)
    most, weights = estimator.calibrated.most_runs, estimator.calibrated.weights
    assert most > 10
    law = estimator.calibrated.score_law
    score_scale = law.scale / lattice_step(law.scale)
    differing = 0
    for seed in range(12):
        noises = [ForcedRuns(seed, weights, kept) for kept in (1, most)]
        found = [estimator.measure(*tables, noise=noise) for noise in noises]
        assert noises[0].asked == noises[1].asked
        drawn = [request[1:] for request in noises[0].asked if request[0] == "gaussian"]
        scored = sum(size for scale, size in drawn if scale == score_scale)
        assert scored == most  # every run is drawn, and scored with the declared noise
        assert sum(scale != score_scale for scale, _ in drawn) == most
        assert set(found[0].arrays) == set(found[1].arrays)
        assert set(found[0].facts) == set(found[1].facts)
        differing += found[0].to_bytes() != found[1].to_bytes()
    assert differing > 3  # so K was in force: the first run is not the best of all


def test_a_measurement_holds_public_facts_and_the_winner_alone(mixed, unit, tables):
    estimator = ready(mixed, unit)
    measured = estimator.measure(*tables, noise=SeededNoise(2))
    assert set(measured.arrays) == {"coefficients", "candidate"}
    public = {**estimator.parameters(), "schema": "mixed", "synthetic_rows": 250}
    number = int(measured.arrays["candidate"][0])
    scale = estimator.candidates[number].calibrated.law.scale
    assert measured.facts == {**public, "one_run_scale": scale}
    assert not measured.publishable
    assert estimator.measure(*tables, noise=SecureNoise()).publishable


def test_more_runs_find_better_fits(mixed, unit, tables):
    """With a loud score the winner of many runs scores above a single run; 40 draws each.

    False alarm below 1e-6 by the normal approximation; equal laws fail with as much certainty.
    """
    estimator = ready(mixed, unit, mean_runs=3, score_share=0.5, rho=0.5)
    weights, most = estimator.calibrated.weights, estimator.calibrated.most_runs

    def exact_score(measured):
        number = int(measured.arrays["candidate"][0])
        own = estimator.candidates[number].regression(*tables)
        return float(scores(own, measured.arrays["coefficients"][None], clip=2.0)[0])

    one, all_runs = (
        [
            exact_score(estimator.measure(*tables, noise=ForcedRuns(seed, weights, kept)))
            for seed in range(40)
        ]
        for kept in (1, most)
    )
    error = math.hypot(np.std(one), np.std(all_runs)) / math.sqrt(40)
    assert np.mean(all_runs) - np.mean(one) > 5 * error


def test_a_single_run_has_the_candidate_s_own_law(mixed, unit, tables):
    """K forced to one: no choice, so plain beta_noised draws around the exact fit."""
    estimator = ready(mixed, unit, mean_runs=1.5)
    weights = estimator.calibrated.weights
    errors = []
    for seed in range(60):
        measured = estimator.measure(*tables, noise=ForcedRuns(seed, weights, 1))
        own = estimator.candidates[int(measured.arrays["candidate"][0])]
        exact = own.solution(own.regression(*tables))
        errors += list((measured.arrays["coefficients"] - exact) / own.calibrated.law.scale)
    # 900 or more standard normals: the variance is within 25% (false alarm below 1e-6).
    assert len(errors) > 900
    assert 0.75 < np.var(errors) < 1.25


def test_the_ratio_is_the_winner_s_and_says_so(mixed, unit, tables):
    estimator = ready(mixed, unit, rho=2.0)
    measured = estimator.measure(*tables, noise=SeededNoise(3))
    stored = Measurement.from_bytes(measured.to_bytes())
    ratio = estimator.ratio(stored, schema=mixed)
    own = estimator.candidates[ratio.candidate]
    assert isinstance(own, BetaNoised)
    assert ratio.mean_runs == pytest.approx(5.0, rel=0.02)
    assert ratio.law == own.calibrated.law
    found = weigh(ratio, tables[1], debias=estimator.debias)
    assert not any("debias" in step for step in found.steps)
    plain = weigh(ratio.base, tables[1], debias=False)
    np.testing.assert_array_equal(found.log_weights, plain.log_weights)
    # An event of one run has at most E K times its probability in the winner.
    chance = plain.diagnostics.signal.p_value
    assert found.diagnostics.signal.p_value == pytest.approx(min(1.0, ratio.mean_runs * chance))
    assert chance > 0


@pytest.mark.parametrize("noise", ["spherical", "laplace"])
def test_pure_selections_are_drawn_with_pure_noise(noise, mixed, unit, tables):
    estimator = ready(mixed, unit, noise=noise, rho=5.0, mean_runs=1.5)

    class PureOnly(SeededNoise):
        def discrete_gaussian(self, *, scale, size):
            raise AssertionError("Gaussian noise in a pure run")

    measured = estimator.measure(*tables, noise=PureOnly(4))
    ratio = estimator.ratio(measured, schema=mixed)
    assert ratio.law.kind is NoiseKind(noise)
    assert measured.facts["one_run_scale"] == ratio.law.scale
    assert weigh(ratio, tables[1], debias=False).rows == 250


def test_other_measurements_are_refused(mixed, unit, tables):
    estimator = ready(mixed, unit)
    measured = estimator.measure(*tables, noise=SeededNoise(3))
    for bad in (
        replace(measured, kind="beta"),
        replace(measured, facts={**measured.facts, "clip": 3.0}),
        replace(measured, arrays={**measured.arrays, "candidate": np.array([7])}),
    ):
        with pytest.raises(WeightError):
            estimator.ratio(bad, schema=mixed)


def test_parameters_are_json_and_tell_the_laws(mixed, unit):
    found = ready(mixed, unit).parameters()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [c["features"] for c in found["candidates"]] == ["linear", "interactions", "fourier"]
    assert all(c["scale"] > 0 for c in found["candidates"])
    assert found["most_runs"] == len(ready(mixed, unit).calibrated.weights)
    assert 4.9 < found["expected_runs"] < 5


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"candidates": MENU[:1]}, "list of 2 to 20"),
        ({"candidates": [{"settings": {"tau": 0.01 * i}} for i in range(1, 22)]}, "2 to 20"),
        ({"candidates": "linear"}, "list of 2 to 20"),
        ({"candidates": [{}, {"settings": {}}]}, "no two alike"),
        ({"candidates": [{}, 3]}, r"candidates\[1\]: expected a mapping"),
        ({"candidates": [{}, {"tau": 0.1}]}, r"candidates\[1\]: expected a mapping"),
        ({"candidates": [{}, {"method": "beta_debiased"}]}, "cannot be debiased"),
        ({"candidates": [{}, {"method": "output_noised"}]}, "expected beta_noised"),
        ({"candidates": [{}, {"settings": {"noise": "laplace"}}]}, "noise is set for all"),
        ({"candidates": [{}, {"settings": {"calibrated": 1}}]}, "noise is set for all"),
        ({"candidates": [{}, {"settings": {"tau": 2}}]}, r"candidates\[1\]: .*tau=2"),
        ({"candidates": [{}, {"settings": {"features": "fourier"}}]}, "omega_seed"),
        ({"noise": "cauchy"}, "settings.noise: expected one of"),
        ({"runs": "poisson"}, "logarithmic, geometric"),
        ({"mean_runs": 1.2}, "at least 1.5"),
        ({"mean_runs": 31}, "at most 30"),
        ({"score_share": 0.0}, "score_share"),
        ({"clip": 21}, "clip"),
    ],
)
def test_settings_out_of_range_are_refused(changes, text):
    with pytest.raises(SpecError, match=text):
        SelectedBeta(**{"candidates": MENU, **changes})


def test_candidates_share_the_noise_and_survive_copies():
    found = SelectedBeta(candidates=MENU, noise="spherical")
    assert {c.noise for c in found.candidates} == {NoiseKind.SPHERICAL}
    assert replace(found) == found
    assert replace(found, noise="laplace").candidates[0].noise is NoiseKind.LAPLACE


@pytest.mark.parametrize("weights", [(), (0, 0), (1, -1, 2)])
def test_hidden_choices_need_chances(weights):
    with pytest.raises(SpecError, match="draw_index"):
        draw_index(weights, noise=SeededNoise(1))


def test_a_hidden_choice_has_its_exact_boundaries():
    class Fixed(SeededNoise):
        def __init__(self, value):
            super().__init__(0)
            self.value = value

        def whole_below(self, bound):
            assert bound == 6
            return self.value

    picked = [draw_index((1, 0, 3, 2), noise=Fixed(value)) for value in range(6)]
    assert picked == [0, 2, 2, 2, 3, 3]
