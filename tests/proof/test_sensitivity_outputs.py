"""P1: exact sensitivity search for what is released besides the coefficients of the weights.

Log weights of published rows (`output_noised`), the beta calibration, and the private score by
which `selected` chooses. Pairs are those of `adversary.py`.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dpiw.privacy import NoiseKind, NoiseLaw, PrivacyUnit
from dpiw.schema import PublicSchema, ScaledTable
from dpiw.tables import PrivateTable, SyntheticTable
from dpiw.weights.beta import BetaRatio
from dpiw.weights.beta_calibration import BetaCalibration
from dpiw.weights.calibration import Calibration
from dpiw.weights.features import LinearMap
from dpiw.weights.output import OutputNoised
from dpiw.weights.selection_score import score_sensitivity, scores
from dpiw.weights.solver import Regression
from tests.dpiw.weights.conftest import uniform_rows
from tests.proof.adversary import extreme_rows
from tests.proof.figures import tiers
from tests.proof.neighbours import (
    ADD,
    REPLACE,
    UNITS,
    Array,
    Tally,
    Zeros,
    drawn_scales,
    numeric_schema,
)

LIMIT = "a search; that no other pair moves further is METHOD section {}'s theorem"


def constant_table(schema: PublicSchema, value: float, count: int) -> ScaledTable:
    """`count` equal rows."""
    columns = {column.name: np.full(count, value) for column in schema.released}
    return ScaledTable(columns, count)


def neighbours(
    unit: PrivacyUnit, schema: PublicSchema, rng: np.random.Generator, *, adversarial: bool
) -> tuple[ScaledTable, ScaledTable]:
    """Two tables: canaries at opposite corners, or random and extreme rows."""
    k = unit.max_rows
    if adversarial:
        top, bottom = (constant_table(schema, value, k) for value in (1.0, 0.0))
        before = bottom if unit.relation is REPLACE else top.take(np.arange(0))
        return before, top
    rows = extreme_rows(schema, k + 5, rng)
    fewer = rows.take(np.arange(k, k + 5))
    if unit.relation is ADD:
        return rows, fewer
    return rows, ScaledTable.concatenate([extreme_rows(schema, k + 3, rng).take(range(k)), fewer])


@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.SPHERICAL])
@tiers("pairs", fast=60, full=10_000)
def test_published_log_weights_move_by_at_most_their_sensitivity(pairs, kind, rng, prove):
    """The vector over the published rows, by `measure` without noise: sigma_max(X) Delta2."""
    tallies = {ADD: Tally(), REPLACE: Tally()}
    for number in range(pairs):
        unit, adversarial = UNITS[number % 4], number % 8 >= 4
        schema = numeric_schema(int(rng.choice([2, 4, 8, 32])))
        d, count = len(schema.released), int(rng.choice([1, 3]))
        penalty = 4.0 * d if adversarial else float(10 ** rng.uniform(0, 3))
        # Large noise would make the spherical moments infinite; the sensitivity has no part in it.
        own = OutputNoised(rows=count, noise=kind, penalty=penalty).calibrate(
            rho=1e6, schema=schema, unit=unit,
            nominal_rows=math.ceil(penalty * 60 * math.exp(15)) if adversarial else 50,
        )  # fmt: skip
        published = constant_table(schema, 1.0, count)
        if not adversarial:
            published = uniform_rows(schema, count, rng)
        pile = constant_table(schema, 0.5, 1) if adversarial else uniform_rows(schema, 6, rng)
        own = own.for_rows(SyntheticTable(schema=schema, scaled=published))
        with drawn_scales() as scales:
            one, two = (
                own.measure(
                    PrivateTable(schema=schema, scaled=table),
                    SyntheticTable(schema=schema, scaled=pile),
                    noise=Zeros(),
                )
                for table in neighbours(unit, schema, rng, adversarial=adversarial)
            )
        assert scales == [one.facts["scale"]] * 2
        gap = np.linalg.norm(one.arrays["log_ratio"] - two.arrays["log_ratio"])
        tallies[unit.relation].met(gap * own.calibrated.multiplier / scales[0])
    for relation, tally in tallies.items():
        tally.check()
        prove(
            "P1", f"output_noised, {kind.value}, {relation.value}",
            power=f"a claim below {tally.worst:.2f} of ours is refuted by these pairs; so is the"
            " paper's corollary 1: test_the_published_formula_breaks_its_epsilon",
            reached=str(tally), limit=LIMIT.format("3"),
        )  # fmt: skip


@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
@tiers("pairs", fast=120, full=10_000)
def test_the_calibration_moves_by_at_most_its_sensitivity(pairs, kind, rng, prove):
    """Three coefficients, by `measure` without noise; ratios steep enough to reach every clip."""
    schema, norm = numeric_schema(1), 1 if kind is NoiseKind.LAPLACE else 2
    tallies = {ADD: Tally(), REPLACE: Tally()}
    for number in range(pairs):
        unit, adversarial = UNITS[number % 4], number % 8 >= 4
        limit = float(rng.choice([0.1, 2.0, 10.0]))
        own = BetaCalibration(noise=kind, limit=limit).calibrate(
            rho=float(10 ** rng.uniform(-2, 2)), schema=schema, unit=unit,
            nominal_rows=int(10 ** rng.uniform(1, 3)),
        )  # fmt: skip
        slope = np.array([1e3 if adversarial else rng.normal(scale=20), 0.0])
        law = NoiseLaw(kind=kind, scale=0.0, dimension=2)
        ratio = BetaRatio(law=law, coefficients=slope, map=LinearMap(schema))
        if adversarial:  # the pile's weight is free: it is n0/N_G, and n0 is public
            own = dataclasses.replace(own, calibrated=heavy(own, limit))
            pile = constant_table(schema, 0.5, 1)
        else:
            pile = extreme_rows(schema, 12, rng)
        with drawn_scales() as scales:
            one, two = (
                own.measure(
                    PrivateTable(schema=schema, scaled=table),
                    SyntheticTable(schema=schema, scaled=pile),
                    ratio=ratio, noise=Zeros(),
                )
                for table in neighbours(unit, schema, rng, adversarial=adversarial)
            )  # fmt: skip
        assert scales == [own.calibrated.law.scale] * 2
        gap = one.arrays["coefficients"] - two.arrays["coefficients"]
        share = np.linalg.norm(gap, ord=norm) * own.calibrated.multiplier
        tallies[unit.relation].met(share / scales[0])
    for relation, tally in tallies.items():
        tally.check()
        prove(
            "P1", f"beta calibration, {kind.value}, {relation.value}",
            power=f"a claim below {tally.worst:.2f} of ours is refuted by these pairs",
            reached=str(tally), limit=LIMIT.format("1"),
        )  # fmt: skip


def heavy(own: BetaCalibration, limit: float) -> Calibration:
    """The numbers with a pile so heavy that canaries at the clip have no curvature."""
    ready = own.calibrated
    assert ready is not None
    push = 12 + limit + ready.unit.max_rows / ready.penalty
    nominal = ready.penalty * 4 * push * (1 + math.exp(min(push, 26.0)))
    return dataclasses.replace(ready, nominal_rows=math.ceil(nominal))


def exact_scores(private: Array, coefficients: Array, synthetic: Array, clip: float) -> Array:
    problem = Regression(private=private, synthetic=synthetic, synthetic_weight=2.0, penalty=3.0)
    return scores(problem, coefficients, clip=clip)


@tiers("pairs", fast=500, full=10_000)
def test_a_score_moves_by_at_most_its_sensitivity(pairs, rng, prove):
    """Five candidates at once, the same coefficients in both worlds: a score is paid given them."""
    tallies = {ADD: Tally(), REPLACE: Tally()}
    features = LinearMap(numeric_schema(3))
    pool = features.matrix(extreme_rows(features.schema, 400, rng))
    for number in range(pairs):
        unit, clip = UNITS[number % 4], float(rng.choice([0.1, 2.0, 20.0]))
        coefficients = rng.normal(scale=10 ** rng.uniform(-1, 3), size=(5, 4))
        synthetic = pool[rng.integers(400, size=30)]
        rows = pool[rng.integers(400, size=unit.max_rows + 40)]
        changed = rows[unit.max_rows :]
        if unit.relation is REPLACE:
            changed = np.vstack([pool[rng.integers(400, size=unit.max_rows)], changed])
        one, two = (exact_scores(r, coefficients, synthetic, clip) for r in (rows, changed))
        tallies[unit.relation].met(np.abs(one - two).max() / score_sensitivity(clip, unit))
    for relation, tally in tallies.items():
        tally.check()
        prove(
            "P1", f"score of `selected`, {relation.value}",
            power=f"a claim below {tally.worst:.2f} of ours is refuted by these pairs",
            reached=str(tally), limit="a search; the bound is a sum of clipped terms",
        )  # fmt: skip
