"""N1: with every noisy value replaced by a public one, nothing depends on the table.

All that is left of a release is what went past the mechanisms, and it must be the same, byte for
byte, for **arbitrary** pairs of tables: empty ones, other numbers of rows, values of any kind. So
no column, shape, noise scale or number of draws follows from the rows (P2). Neighbours under real
noise: tests/hostile/leaks/test_non_interference.py. Digests are masked, for runs have own tokens.
"""

import numpy as np
import pytest

from dpiw.methods.weights import registry
from dpiw.methods.weights.measured import weighing
from dpiw.methods.weights.measured.law import MeansLaw
from tests.hostile.leaks import neighbours as leaks
from tests.proof import blind
from tests.proof.figures import tiers

FULL = 200


def test_every_method_that_draws_is_compared():
    """`none` and `discriminator` draw nothing."""
    drawing = {method for method, _ in blind.WEIGHTS.values()}
    assert drawing | {"discriminator"} == set(registry.WEIGHTS)


@pytest.mark.parametrize("name", blind.METHODS)
@tiers("pairs", fast=3, full=FULL)
def test_a_blind_measurement_is_the_same_for_any_tables(pairs, name, prove):
    blind.compare_measurements(name, pairs)
    prove(f"N1: measurement of {name}", f"{pairs} arbitrary pairs, 0 differ")


@pytest.mark.nightly_cases("[aim]", "[pategan]", "[dpgan]")
@pytest.mark.parametrize("name", blind.METHODS)
def test_a_measurement_that_sees_is_not_the_same(name):
    """The comparison is of something: with noise of a seed, two tables differ."""
    rng, measure = np.random.default_rng(5), blind.measuring(name)
    tables = [blind.any_table(rng) for _ in range(3)]
    assert len({measure(table) for table in tables}) > 1


@pytest.fixture
def fixed(monkeypatch):
    """One seed for what is sampled afterwards.

    The rows that measured weights choose, and their replicates, follow the measurement's digest,
    hence the run's token.
    """
    leaks.fix_draws(monkeypatch)
    real, replicates = weighing.weigh_measured, MeansLaw.replicates

    def weigh(*given, rng, **rest):
        return real(*given, rng=np.random.default_rng(20_270_131), **rest)

    def replicate(law, count, rng):
        return replicates(law, count, np.random.default_rng(20_270_131))

    monkeypatch.setattr(weighing, "weigh_measured", weigh)
    monkeypatch.setattr(MeansLaw, "replicates", replicate)


RELEASES = {
    "two stages": {},
    "two stages, measured weights": {"weights": blind.MEASURED, "dictionary": blind.CONSTRAINTS},
}
"""How often constraints bind is counted on synthetic rows."""


@pytest.mark.nightly_cases("[two stages-fast]")
@pytest.mark.usefixtures("fixed")
@tiers("pairs", fast=1, full=100)
@pytest.mark.parametrize("kind", RELEASES)
@pytest.mark.slow
def test_a_blind_release_is_the_same_for_any_tables(kind, pairs, tmp_path_factory, prove):
    """A leak that one pair in ten shows is missed by all 100 with 0.9^100 = 3e-5."""
    blind.compare_releases(tmp_path_factory, pairs, **RELEASES[kind])
    prove(f"N1: whole release, {kind}", f"{pairs} arbitrary pairs, 0 differ")


@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize(
    "name", ["in a fact", *(pytest.param(n, marks=pytest.mark.proof) for n in [*blind.LEAKS][1:])]
)
@pytest.mark.slow
def test_a_planted_leak_is_seen(name, tmp_path_factory, monkeypatch):
    blind.check_seen(name, tmp_path_factory, monkeypatch)
