"""P1: exact sensitivity search for the paper's weights: coefficients, and published log weights.

What moves between two exact fits is compared with the sensitivity that the mechanism itself states:
the theorems of docs/method.md, sections 3 and 12.
"""

import math

import numpy as np
import pytest

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.paper import regression as calibration
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.methods.weights.paper.output import OutputNoised
from dpiw.privacy.mechanisms import lattice_step
from dpiw.privacy.units import NoiseKind, PrivacyUnit
from tests.proof.figures import tiers
from tests.proof.neighbours import (
    REACHES,
    Array,
    Tally,
    check_all,
    check_found,
    constant_table,
    extreme_rows,
    instead,
    neighbouring_tables,
    pairs_of,
    papers_fits,
    released,
    silent,
)
from tests.support.worlds import ADD, REPLACE, UNITS, mixed, numbers, uniform_rows

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)


def regressions(
    unit: PrivacyUnit, penalty: float, rng: np.random.Generator
) -> tuple[BetaDebiased, BetaDebiased, Array]:
    """With L2 and with L1 noise, on mixed columns or up to 128 numbers; and feature rows."""
    schema = mixed() if rng.random() < 0.2 else numbers(2 ** int(rng.integers(8)))
    plain, laplace = (
        BetaDebiased(noise=noise, penalty=penalty).calibrate(
            rho=0.5, schema=schema, unit=unit, nominal_rows=100
        )
        for noise in (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE)
    )
    return plain, laplace, calibration.LinearMap(schema).matrix(extreme_rows(schema, 200, rng))


@tiers("pairs", fast=120, full=10_000)
@pytest.mark.slow
def test_the_coefficients_move_by_at_most_their_sensitivity(pairs, rng, prove):
    """L2 (Gaussian, spherical) and L1 (Laplace) on the same fits; both relations, 1 and 3 rows."""
    tallies = {norm: {ADD: Tally(), REPLACE: Tally()} for norm in (2, 1)}
    while sum(tally.pairs for tally in tallies[2].values()) < pairs:
        unit = UNITS[rng.integers(len(UNITS))]
        penalty = PENALTIES[rng.integers(len(PENALTIES))]
        plain, laplace, pool = regressions(unit, penalty, rng)
        order = int(rng.choice([1, 2]))
        candidates = pairs_of(unit, pool, rng, penalty=penalty, order=order)
        for _, pair in zip(range(20), candidates, strict=False):
            before, after = pair.solved(plain)
            for norm, estimator in ((2, plain), (1, laplace)):
                share = np.linalg.norm(before - after, ord=norm) / estimator.calibrated.sensitivity
                tallies[norm][unit.relation].met(share)
    for norm, both in tallies.items():
        check_all(both, prove, f"beta regression, linear features, L{norm}")


@pytest.mark.parametrize("noise", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
@tiers("pairs", fast=20, full=2_000)
def test_measure_releases_these_coefficients(pairs, noise, rng):
    """What the search solves is what `measure` draws its noise on, and with the stated scale.

    The scale is the one the noise source is asked for; lattice and slack are included.
    """
    schema, tally = mixed(), Tally()
    norm = 1 if noise is NoiseKind.LAPLACE else 2
    for number in range(pairs):
        unit = UNITS[2 * (number % 2)]
        estimator = BetaDebiased(noise=noise, penalty=5.0).calibrate(
            rho=50, schema=schema, unit=unit, nominal_rows=100
        )
        rows, synthetic = extreme_rows(schema, 9, rng), uniform_rows(schema, 5, rng)
        changed = rows.take(np.arange(9) != 4)
        if unit.relation is REPLACE:
            changed = ScaledTable.concatenate([changed, rows.take([0])])
        public = SyntheticTable(schema=schema, scaled=synthetic)
        first, second, scale = released(estimator, schema, (rows, changed), public, "coefficients")
        private = PrivateTable(schema=schema, scaled=rows)
        solution = estimator.solution(estimator.regression(private, public))
        assert np.abs(first - solution).max() <= lattice_step(scale) / 2
        # The scale is the multiplier times all that two neighbours may differ by.
        gap = np.linalg.norm(first - second, ord=norm)
        tally.met(gap * estimator.calibrated.multiplier / scale)
    assert tally.above == 0
    assert tally.worst > 0.05


@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.SPHERICAL])
@tiers("pairs", fast=30, full=10_000)
@pytest.mark.slow
def test_published_log_weights_move_by_at_most_their_sensitivity(pairs, kind, rng, prove):
    """The vector over the published rows, by `measure` without noise: sigma_max(X) Delta2."""
    tallies = {ADD: Tally(), REPLACE: Tally()}
    for number in range(pairs):
        unit, adversarial = UNITS[number % 4], number % 8 >= 4
        schema, count = numbers(int(rng.choice([2, 4, 8, 32]))), int(rng.choice([1, 3]))
        penalty, nominal = float(10 ** rng.uniform(0, 3)), 50
        published, pile = uniform_rows(schema, count, rng), uniform_rows(schema, 6, rng)
        if adversarial:
            penalty = 4.0 * len(schema.released)
            nominal = math.ceil(penalty * 60 * math.exp(15))
            published, pile = constant_table(schema, 1.0, count), constant_table(schema, 0.5, 1)
        # Large noise would make the spherical moments infinite; the sensitivity has no part in it.
        estimator = OutputNoised(rows=count, noise=kind, penalty=penalty).calibrate(
            rho=1e6, schema=schema, unit=unit, nominal_rows=nominal
        )
        estimator = estimator.for_rows(SyntheticTable(schema=schema, scaled=published))
        public = SyntheticTable(schema=schema, scaled=pile)
        pair = neighbouring_tables(unit, schema, rng, adversarial=adversarial)
        first, second, scale = released(estimator, schema, pair, public, "log_ratio")
        gap = np.linalg.norm(first - second)
        tallies[unit.relation].met(gap * estimator.calibrated.multiplier / scale)
    check_all(tallies, prove, f"output_noised, {kind.value}")


@tiers("sizes", fast=(4, 6, 16), full=(1, 2, 4, 6, 8, 12, 16, 32, 64, 128))
def test_the_published_formula_breaks_its_epsilon(sizes, prove):
    """arXiv 2108.10934: iid Laplace of scale 2 sqrt(d)/(N_D lambda)/epsilon, N_D lambda = Lam.

    Its loss on two neighbouring tables is norm(Delta b)_1 / scale, which passes the claimed epsilon
    for d >= 6 (docs/method.md section 4); our L1 scale (d+1)/Lam keeps it. Its corollary 1
    gives one log weight at the corner the same scale; the loss is |x.Delta b| / scale.
    """
    losses = {}
    for d in sizes:
        moved = np.diff(papers_fits(d), axis=0)[0]
        scale, our_scale = 2 * math.sqrt(d) / d, (d + 1) / d
        losses[d] = np.abs(moved).sum() / scale, abs(moved @ np.ones(d + 1)) / scale
        assert np.abs(moved).sum() <= our_scale
        assert min(losses[d]) == pytest.approx(math.sqrt(d) / 2, rel=0.05)
    broken = [d for d in sizes if min(losses[d]) > 1.02]
    assert broken == [d for d in sizes if d >= 6]
    prove(
        "P1: published formula, coefficients and corollary 1 (must fail)",
        f"true epsilon {losses[broken[0]][0]:.2f} to {losses[broken[-1]][0]:.2f} at a claimed 1",
    )


# Controls: with a bound planted too small a search fails, even its slice
def coefficients():
    test_the_coefficients_move_by_at_most_their_sensitivity(240, np.random.default_rng(5), silent)


def outputs():
    test_published_log_weights_move_by_at_most_their_sensitivity(
        60, NoiseKind.GAUSSIAN, np.random.default_rng(5), silent
    )


PLANTS = REACHES | {
    "replace-one charged as add or remove": instead(
        calibration, "l2_reach", lambda _, bounds, unit: unit.max_rows * bounds.norm
    )
}


@pytest.mark.proof
@pytest.mark.parametrize("search", [coefficients, outputs])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_bound_that_is_too_small_is_found(plant, search, monkeypatch):
    check_found(search, PLANTS[plant], patch=monkeypatch)
