"""Weights of a base from a measurement: which rows are read, held, fitted and told of."""

from functools import partial

import numpy as np
import pytest

from dpiw.data.tables import SyntheticTable
from dpiw.errors import WeightError
from dpiw.methods.weights.measured import many_rows as streaming
from dpiw.methods.weights.measured import thinning
from dpiw.methods.weights.measured import weighing as weigh_measured
from dpiw.methods.weights.measured.base_rows import BaseRows
from dpiw.privacy.randomness import SeededNoise
from tests.dpiw.methods.weights.measuring import base_of, calibrated, nothing, private
from tests.support.worlds import mixed

SCHEMA = mixed()
MADE = partial(base_of, SCHEMA)


def drawn(unit, people=500, **changes):
    """Settings, and what they measured of so many people."""
    ready = calibrated(SCHEMA, unit, **changes)
    return ready, ready.measure(private(SCHEMA, people), nothing(SCHEMA), noise=SeededNoise(1))


def weighed(ready, sums, base, rows):
    rng = np.random.default_rng(3)
    return weigh_measured.weigh_measured(ready, sums, base, rows=rows, rng=rng)


@pytest.fixture
def few_fitted(monkeypatch):
    for module in (weigh_measured, thinning):
        monkeypatch.setattr(module, "MOST_FITTED", 1500)
    monkeypatch.setattr(weigh_measured, "_TOLD", 1500)


@pytest.mark.usefixtures("few_fitted")
def test_what_is_not_reached_is_not_published(unit, monkeypatch):
    """The fit says so; of a calibration the rows stay as they were chosen."""
    given = drawn(unit, 4000)

    def unreached(*_, **__):
        raise WeightError("tilting: the minimum was not reached")

    monkeypatch.setattr(thinning, "corrected", unreached)
    assert "calibration" not in weighed(*given, MADE(9000), 4000).facts["measured"]
    monkeypatch.setattr(streaming, "reached", lambda *_, **__: None)
    monkeypatch.setattr(streaming, "tilt", unreached)
    with pytest.raises(WeightError, match="not reached"):
        weighed(*given, MADE(9000), 1000)


@pytest.mark.parametrize(("base", "rows"), [(9000, 1000), (9000, 4000), (9000, 9000)])
@pytest.mark.usefixtures("few_fitted")
def test_weights_of_many_rows_come_as_close_to_the_targets(unit, base, rows):
    ready, sums = drawn(unit, 4000)
    base_table = MADE(base)
    weights = weighed(ready, sums, base_table, rows)
    assert "tilt fitted to 1500 of them, corrected to all" in weights.steps
    assert weights.log_weights.shape == weights.chosen.shape == (rows,)
    assert weights.noise.size == -(-rows // max(1, rows // 1500))
    facts = weights.facts["measured"]
    assert facts["base_rows"] == base
    assert ("calibration" in facts) is (rows < base)
    matrix = ready.stack(SCHEMA).matrix(base_table.scaled)
    targets = ready.targets(sums, about=matrix.mean(axis=0))
    fitted = targets.means - np.array(facts["residual"])
    means = np.exp(weights.log_weights) @ matrix[weights.chosen] / rows
    chance = np.linalg.norm(matrix.std(axis=0)) / np.sqrt(rows)
    assert np.linalg.norm(means - fitted) < (0.5 if rows < base else 0.2) * chance


def test_the_noise_of_some_weights_tells_that_of_all(unit, monkeypatch):
    given = drawn(unit, 4000)

    def noise_of(told):
        monkeypatch.setattr(weigh_measured, "_TOLD", told)
        weights = weighed(*given, MADE(6000), 3000)
        return weights.noise, weights.diagnostics.noise

    (every, of_all), (some, of_some) = noise_of(3000), noise_of(600)
    assert some == pytest.approx(every[::5])
    assert of_some == pytest.approx(of_all, rel=0.05)


@pytest.mark.usefixtures("few_fitted")
def test_a_base_is_read_in_any_batches(unit):
    given = drawn(unit)
    whole = MADE(4000)
    parts = SyntheticTable.chosen(whole, np.arange(4000))
    object.__setattr__(parts, "batches", lambda: whole.scaled.batches(333))
    at_once, batched = (weighed(*given, base, 2000) for base in (whole, parts))
    assert np.array_equal(at_once.chosen, batched.chosen)
    assert batched.log_weights == pytest.approx(at_once.log_weights, abs=1e-9)


@pytest.fixture
def held(monkeypatch):
    """How many rows each base has, of which features are written down."""
    rows_held = []
    real = BaseRows.__init__

    def watching(self, features, **options):
        rows_held.append(len(features))
        real(self, features, **options)

    monkeypatch.setattr(BaseRows, "__init__", watching)
    return rows_held


@pytest.mark.parametrize("rows", [1000, 3000])
def test_weights_are_the_same_with_features_written_down_and_without(unit, rows, held, monkeypatch):
    """Fitted, calibrated and told of; without, no more than one row's features are held."""
    given = drawn(unit, 4000)
    written = weighed(*given, MADE(3000), rows)
    assert max(held) == 3000
    held.clear()
    monkeypatch.setattr(weigh_measured, "_WRITTEN", 0)
    without = weighed(*given, MADE(3000), rows)
    assert max(held) == 1
    assert np.array_equal(without.chosen, written.chosen)
    assert without.log_weights == pytest.approx(written.log_weights, abs=1e-8)
    assert without.noise == pytest.approx(written.noise, rel=1e-6)
    of, of_written = (each.facts["measured"]["calibration"] for each in (without, written))
    assert of == pytest.approx(of_written)
