"""N1, stronger: with every noisy value replaced by a public one, nothing depends on the table.

Here the mechanisms are blind: what they return has the law's dimension and shape, and no data in
it. All that is left of a release is then what went past them, and it must be the same, byte for
byte, for **arbitrary** pairs of tables: empty ones, other numbers of rows, values of any kind. That
is more than neighbours (tests/hostile/leaks/test_non_interference.py, which keeps the noise and
compares what was not drawn).

Compared: the measurement of every method; and of whole releases the report, rows, weights,
certificate, manifest, data dictionary, ledger, what the workspace keeps outside its private folder,
and how every step ended. Digests are masked, for every run has its own tokens.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from dpiw.methods.weights import registry
from dpiw.methods.weights.measured import weighing
from tests.hostile.leaks import neighbours as leaks
from tests.proof.blind import (
    CONSTRAINTS,
    MEASURED,
    METHODS,
    PLANTS,
    WEIGHTS,
    any_table,
    check_seen,
    compare_measurements,
    compare_releases,
    in_a_fact,
    measuring,
)

FULL, SLICE = 200, 3


def test_every_method_that_draws_is_compared():
    """`none` and `discriminator` draw nothing."""
    drawing = {method for method, _ in WEIGHTS.values()}
    assert drawing | {"discriminator"} == set(registry.WEIGHTS)


@pytest.mark.parametrize("name", METHODS)
def test_a_blind_measurement_is_the_same_for_any_tables(name):
    compare_measurements(name, SLICE)


@pytest.mark.proof
@pytest.mark.parametrize("name", METHODS)
def test_blind_measurements_of_many_tables(name, prove):
    compare_measurements(name, FULL)
    prove(f"N1: measurement of {name}", f"{FULL} arbitrary pairs, 0 differ")


@pytest.mark.nightly_cases("[aim]", "[pategan]", "[dpgan]")
@pytest.mark.parametrize("name", METHODS)
def test_a_measurement_that_sees_is_not_the_same(name):
    """The comparison is of something: with noise of a seed, two tables differ."""
    rng, measure = np.random.default_rng(5), measuring(name)
    tables = [any_table(rng) for _ in range(3)]
    assert len({measure(table) for table in tables}) > 1


@pytest.fixture
def fixed(monkeypatch):
    """One seed for what is sampled afterwards.

    The rows that measured weights choose, and their replicates, follow the measurement's digest,
    hence the run's token.
    """
    leaks.fix_draws(monkeypatch)
    real = weighing.weigh_measured

    def weigh(*given, rng, **rest):
        return real(*given, rng=np.random.default_rng(20_270_131), **rest)

    def replicate(law, measurement, *, count):
        return law.replicates(count, np.random.default_rng(20_270_131))

    monkeypatch.setattr(weighing, "weigh_measured", weigh)
    monkeypatch.setattr(weighing, "replicate_measured", replicate)


@pytest.mark.nightly
@pytest.mark.usefixtures("fixed")
def test_a_blind_release_is_the_same_for_any_tables(tmp_path_factory):
    compare_releases(tmp_path_factory, 1)


@pytest.mark.usefixtures("fixed")
def test_a_blind_measured_release_is_the_same_for_any_tables(tmp_path_factory):
    """Constraints included: how often they bind is counted on synthetic rows."""
    compare_releases(tmp_path_factory, 1, weights=MEASURED, dictionary=CONSTRAINTS)


@pytest.mark.proof
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("kind", ["two stages", "two stages, measured weights"])
def test_blind_releases_of_many_tables(tmp_path_factory, kind, prove):
    started = time.monotonic()
    changes = {"weights": MEASURED} if kind.endswith("measured weights") else {}
    compare_releases(tmp_path_factory, FULL, **changes)
    seconds = round(time.monotonic() - started)
    prove(f"N1: whole release, {kind}", f"{FULL} arbitrary pairs, 0 differ ({seconds} s)")


IN_THE_SLICE = (in_a_fact,)


@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("plant", IN_THE_SLICE)
def test_a_planted_leak_is_seen(plant, tmp_path_factory, monkeypatch):
    check_seen(plant, tmp_path_factory, monkeypatch)


@pytest.mark.proof
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("plant", [plant for plant in PLANTS if plant not in IN_THE_SLICE])
def test_every_planted_leak_is_seen(plant, tmp_path_factory, monkeypatch):
    check_seen(plant, tmp_path_factory, monkeypatch)
