"""P1: exact sensitivity search for the log weights of published rows (`output_noised`).

Pairs are those of `adversary.py`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.paper.output import OutputNoised
from dpiw.privacy.units import NoiseKind
from tests.proof.figures import tiers
from tests.proof.neighbours import (
    REACHES,
    Tally,
    constant_table,
    drawn_scales,
    neighbouring_tables,
    silent,
)
from tests.support.draws import Still
from tests.support.worlds import ADD, REPLACE, UNITS, numbers, uniform_rows

LIMIT = "a search; that no other pair moves further is the theorem of docs/method.md section 12"


@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.SPHERICAL])
@tiers("pairs", fast=30, full=10_000)
def test_published_log_weights_move_by_at_most_their_sensitivity(pairs, kind, rng, prove):
    """The vector over the published rows, by `measure` without noise: sigma_max(X) Delta2."""
    tallies = {ADD: Tally(), REPLACE: Tally()}
    for number in range(pairs):
        unit, adversarial = UNITS[number % 4], number % 8 >= 4
        schema = numbers(int(rng.choice([2, 4, 8, 32])))
        d, count = len(schema.released), int(rng.choice([1, 3]))
        penalty = 4.0 * d if adversarial else float(10 ** rng.uniform(0, 3))
        # Large noise would make the spherical moments infinite; the sensitivity has no part in it.
        estimator = OutputNoised(rows=count, noise=kind, penalty=penalty).calibrate(
            rho=1e6, schema=schema, unit=unit,
            nominal_rows=math.ceil(penalty * 60 * math.exp(15)) if adversarial else 50,
        )  # fmt: skip
        published = constant_table(schema, 1.0, count)
        if not adversarial:
            published = uniform_rows(schema, count, rng)
        pile = constant_table(schema, 0.5, 1) if adversarial else uniform_rows(schema, 6, rng)
        estimator = estimator.for_rows(SyntheticTable(schema=schema, scaled=published))
        with drawn_scales() as scales:
            first, second = (
                estimator.measure(
                    PrivateTable(schema=schema, scaled=table),
                    SyntheticTable(schema=schema, scaled=pile),
                    noise=Still(),
                )
                for table in neighbouring_tables(unit, schema, rng, adversarial=adversarial)
            )
        assert scales == [first.facts["scale"]] * 2
        gap = np.linalg.norm(first.arrays["log_ratio"] - second.arrays["log_ratio"])
        tallies[unit.relation].met(gap * estimator.calibrated.multiplier / scales[0])
    for relation, tally in tallies.items():
        tally.check()
        prove(f"P1: output_noised, {kind.value}, {relation.value}", str(tally))


@pytest.mark.proof
@pytest.mark.parametrize("plant", REACHES)
def test_a_bound_that_is_too_small_is_found(plant, monkeypatch):
    """Test of the test, on its slice."""

    def search():
        test_published_log_weights_move_by_at_most_their_sensitivity(
            60, NoiseKind.GAUSSIAN, np.random.default_rng(5), silent
        )

    search()
    REACHES[plant](monkeypatch)
    with pytest.raises(AssertionError):
        search()
