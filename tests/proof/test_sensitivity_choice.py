"""P1: exact sensitivity search for the scores by which measured weights choose blocks.

The scores of two neighbouring tables, as the selection reads them, are compared with the
sensitivity that it gets. Tables of two columns and bundles; columns of every kind, values
outside the box; units of 1 and 3 rows.
"""

from unittest import mock

import numpy as np
import pytest

from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.measured import choice
from dpiw.methods.weights.measured.choice import Chosen
from dpiw.methods.weights.measured.ranges import Ranges
from dpiw.privacy import mechanisms
from dpiw.privacy.units import PrivacyUnit
from tests.proof.figures import tiers
from tests.proof.neighbours import (
    SCHEMAS,
    Array,
    Tables,
    Tally,
    check_all,
    check_found,
    extreme_rows,
    narrow_rows,
    random_tables,
    scaled,
    silent,
)
from tests.support.draws import Still
from tests.support.worlds import ADD, REPLACE, UNITS, uniform_rows


def scores_of(
    table: ScaledTable, public: SyntheticTable, unit: PrivacyUnit, seed: int
) -> tuple[Array, float]:
    """The scores of all candidates, and the sensitivity that the selection gets."""
    with mock.patch.object(mechanisms, "select", return_value=0) as select:
        choice.chosen_blocks(
            Chosen.candidates(public.schema), PrivateTable(schema=public.schema, scaled=table),
            public, ranges=Ranges.of(public), omega_seed=seed, count=1, epsilon=0.1, scale=3.0,
            unit=unit, noise=Still(),
        )  # fmt: skip
    return select.call_args.args[0], select.call_args.kwargs["sensitivity"]


def outside(pool: ScaledTable, rng: np.random.Generator) -> ScaledTable:
    """Some numbers are what no ingest lets through."""
    odd = rng.choice([np.inf, -np.inf, np.nan, -3.0, 1e300], pool.rows)
    kept = rng.random(pool.rows) < 0.9
    columns = {
        name: np.where(kept, cells, odd) if cells.dtype.kind == "f" else cells
        for name, cells in pool.columns.items()
    }
    return ScaledTable(columns, pool.rows)


def far_tables(unit: PrivacyUnit, pool: ScaledTable, rng: np.random.Generator) -> Tables:
    """A crowd of equal rows, which all of the unit's rows join; or they were others before."""
    like, other = rng.integers(0, pool.rows, 2)
    crowd, k = [like] * 60, unit.max_rows
    before = [other] * k if unit.relation is REPLACE else []
    return pool.take(np.r_[before, crowd].astype(np.intp)), pool.take([*crowd, *[like] * k])


@pytest.mark.nightly_cases("full")
@tiers("pairs", fast=80, full=3_000)
@pytest.mark.slow
def test_a_score_moves_by_at_most_its_sensitivity(pairs, rng, prove):
    """Half of the pairs random, half adversarial, beside public rows of any kind."""
    tallies = {ADD: Tally(), REPLACE: Tally()}
    while sum(tally.pairs for tally in tallies.values()) < pairs:
        schema: PublicSchema = SCHEMAS[int(rng.integers(5))](rng)  # of at most 32 columns
        unit, seed = UNITS[int(rng.integers(len(UNITS)))], int(rng.integers(2**32))
        pool = outside(extreme_rows(schema, 100, rng), rng)
        public = narrow_rows(schema, rng)
        if rng.random() < 0.5:
            public = SyntheticTable(schema=schema, scaled=uniform_rows(schema, 400, rng))
        for make in (random_tables, far_tables):
            (first, told), (second, again) = (
                scores_of(table, public, unit, seed) for table in make(unit, pool, rng)
            )
            assert told == again
            rows = unit.max_rows * (2 if unit.relation is REPLACE else 1)
            moved = float(np.abs(first - second).max())
            assert moved <= rows * (1 + 2.0**-18)  # the features' rounding, and no more
            tallies[unit.relation].met(moved / told)
    check_all(tallies, prove, "scores of a choice", least=0.9)


def of_one_row(unit: PrivacyUnit) -> float:
    return 1 / unit.max_rows


def as_added(unit: PrivacyUnit) -> float:
    return 0.5 if unit.relation is REPLACE else 1


@pytest.mark.proof
def test_a_sensitivity_of_scores_that_is_too_small_is_found(monkeypatch):
    def search():
        test_a_score_moves_by_at_most_its_sensitivity(80, np.random.default_rng(5), silent)

    plants = (scaled(choice, "score_sensitivity", factor) for factor in (of_one_row, as_added))
    check_found(search, *plants, patch=monkeypatch)
