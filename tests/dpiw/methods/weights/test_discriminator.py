"""A generator's discriminator as free weights, and as a feature of the private regression."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpiw.data.schema import ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.neural.networks import Architecture, Network
from dpiw.methods.weights.beta import BetaDebiased, BetaNoised
from dpiw.methods.weights.critic_features import REACH, CriticMap, JudgeScale
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.discriminator import DiscriminatorWeights
from dpiw.methods.weights.features import LinearMap, feature_map
from dpiw.methods.weights.registry import make_weights
from dpiw.methods.weights.weigh import weigh
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.randomness import SeededNoise

TILT = 1.5


@dataclasses.dataclass(frozen=True)
class Tilted:
    """Synthetic rows are uniform; the critic is factor * (TILT x0 + shift) on [0, 1]."""

    schema: object
    factor: float = 1.0
    shift: float = 0.0
    ratio: bool = True

    def sample(self, rows, *, rng):
        columns = {c.name: rng.random(rows) for c in self.schema.released}
        return SyntheticTable(schema=self.schema, scaled=ScaledTable(columns, rows))

    def critic(self, scaled):
        return self.factor * (TILT * scaled.columns["x0"] + self.shift)


@pytest.fixture
def schema(numeric):
    return numeric(3)


def real_rows(schema, rows, seed=0):
    """First column of density TILT exp(TILT x)/(exp(TILT) - 1), by its inverse; others uniform."""
    rng = np.random.default_rng(seed)
    columns = {c.name: rng.random(rows) for c in schema.released}
    columns["x0"] = np.log1p(rng.random(rows) * np.expm1(TILT)) / TILT
    return PrivateTable(schema=schema, scaled=ScaledTable(columns, rows))


def ready(schema, unit, kind=BetaDebiased, *, rho=0.5, judge=None, **settings):
    estimator = kind(features="critic", **settings).calibrate(
        rho=rho, schema=schema, unit=unit, nominal_rows=4000
    )
    return (
        estimator if judge is None else dataclasses.replace(estimator, critic=JudgeScale.of(judge))
    )


def test_the_free_ratio_is_the_clamped_logit(schema):
    rows = Tilted(schema).sample(50, rng=np.random.default_rng(1))
    free = DiscriminatorWeights(limit=1.0).informed(Tilted(schema))
    ratio = free.ratio(None, schema=schema)
    wanted = np.minimum(TILT * rows.scaled.columns["x0"], 1.0)
    np.testing.assert_allclose(ratio.log_ratio(rows), wanted)
    assert (wanted == 1.0).any()
    broken = dataclasses.replace(free, judge=Tilted(schema, factor=np.nan))
    assert (broken.ratio(None, schema=schema).log_ratio(rows) == 0).all()


def test_free_weights_of_the_true_ratio_correct_the_mean(schema):
    """E[x0] is 0.620 under the real law, 0.5 under the synthetic one; standard error 0.006."""
    judge = Tilted(schema)
    rows = judge.sample(4000, rng=np.random.default_rng(2))
    ratio = DiscriminatorWeights().informed(judge).ratio(None, schema=schema)
    weights = weigh(ratio, rows, debias=False)
    value = np.average(rows.scaled.columns["x0"], weights=np.exp(weights.log_weights))
    assert value == pytest.approx(1 / -np.expm1(-TILT) - 1 / TILT, abs=0.03)
    assert weights.law is None
    assert (weights.noise == 0).all()
    assert weights.diagnostics.verdict is Verdict.CARE
    assert "neither signal nor noise was assessed" in weights.diagnostics.reasons


def test_a_critic_that_is_no_ratio_is_refused(schema):
    with pytest.raises(SpecError, match="critic is no log ratio"):
        DiscriminatorWeights().informed(Tilted(schema, ratio=False))
    with pytest.raises(UncalibratedError, match="expected a fitted generator"):
        DiscriminatorWeights().ratio(None, schema=schema)


@pytest.mark.parametrize("limit", [0, -1, 21, "wide", True])
def test_limits_out_of_range_are_refused(limit):
    with pytest.raises(SpecError, match=r"settings\.limit"):
        DiscriminatorWeights(limit=limit)


@pytest.mark.parametrize(
    ("method", "name"), [("discriminator", "judge"), ("beta_debiased", "critic")]
)
def test_no_spec_brings_a_critic_of_its_own(method, name):
    with pytest.raises(SpecError, match=rf"settings\.{name}: unknown"):
        make_weights(method, {name: None})


def test_the_map_s_bounds_hold_and_are_known_before_the_critic(schema, numeric):
    """Whatever the critic says, infinities and NaN included; those of one centred column."""
    features = CriticMap(schema, JudgeScale.of(Tilted(schema, factor=40.0)))
    rows = features.matrix(Tilted(schema).sample(500, rng=np.random.default_rng(3)).scaled)
    bounds = features.bounds
    assert bounds == CriticMap(schema).bounds == LinearMap(numeric(1)).bounds
    assert features == CriticMap(schema)
    for factor in (1e9, -1e9, np.inf, np.nan):
        wild = dataclasses.replace(features.critic, judge=Tilted(schema, factor=factor))
        matrix = CriticMap(schema, wild).matrix(real_rows(schema, 100).confidential())
        rows = np.vstack([rows, matrix])
    assert rows.shape[1] == bounds.dimension == 2
    assert np.abs(rows).max() <= bounds.coordinate
    assert np.linalg.norm(rows, axis=1).max() <= bounds.norm * (1 + 1e-12)
    assert np.abs(rows).sum(axis=1).max() <= bounds.l1_norm + 1e-12
    assert np.ptp(rows[:, 0]) == pytest.approx(bounds.diameter)
    np.testing.assert_allclose(
        features.reference_eigenvalues(), LinearMap(numeric(1)).reference_eigenvalues()
    )


def test_the_critic_s_scale_does_not_matter(schema):
    rows = real_rows(schema, 200).confidential()
    plain, rescaled = (
        JudgeScale.of(Tilted(schema, factor=factor, shift=shift)).values(rows)
        for factor, shift in ((1.0, 0.0), (37.0, -2.0))
    )
    np.testing.assert_allclose(plain, rescaled, atol=1e-12)
    uniform = JudgeScale.of(Tilted(schema)).values(
        Tilted(schema).sample(20_000, rng=np.random.default_rng(4)).scaled
    )
    assert 2 * REACH * uniform.std() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_a_collapsed_generator_does_not_make_rounding_seen(schema, size):
    """A judge that breaks its word: its last bits depend on a row's place in its table."""

    class Collapsed(Tilted):
        def critic(self, scaled):
            place = np.arange(scaled.rows) % 3 - 1
            return size * (1 + place * 2**-50)

    critic = JudgeScale.of(Collapsed(schema=schema))
    rows = [ScaledTable({c.name: np.zeros(n) for c in schema.released}, n) for n in (3000, 2999)]
    larger, smaller = (critic.values(table) for table in rows)
    assert np.abs(larger[1:] - smaller).max() < 1e-8
    # The planted bug: an absolute least spread.
    bare = dataclasses.replace(critic, spread=1e-12 if size == 1 else size * 2**-50)
    larger, smaller = (bare.values(table) for table in rows)
    assert np.abs(larger[1:] - smaller).max() > 1e-4


@dataclasses.dataclass(frozen=True)
class Networked(Tilted):
    """The judge of a release: a network, asked as `GANModel` asks it."""

    layers: tuple[tuple[object, object], ...] = ()

    def critic(self, scaled):
        rows = np.column_stack([scaled.columns[c.name] for c in self.schema.released])
        widths = (rows.shape[1], *(len(biases) for _, biases in self.layers))
        network = Network(
            architecture=Architecture(widths=widths, activation="tanh"),
            parameters=np.concatenate([np.ravel(part) for pair in self.layers for part in pair]),
        )
        return network.row_outputs(rows)[:, 0]


def planted(schema, *, tilt, size, shift=0.0, units=64):
    """A critic of huge weights that cancel: tilt * x0 + shift, and rounding errors of size/2^53."""
    rng = np.random.default_rng(11)
    first = np.zeros((3, units))
    first[0] = tilt
    biases = rng.normal(size=units)
    last = size * rng.normal(size=units)
    last[-1] -= (last * np.tanh(biases)).sum() / np.tanh(biases[-1])
    layers = ((first, biases), (last[:, None], np.array([shift])))
    return Networked(schema=schema, layers=layers)


FLAT = {
    "zero": {"tilt": 0.0, "size": 0.0},
    "1e-300": {"tilt": 1e-300, "size": 1.0},
    "1e-17": {"tilt": 1e-17, "size": 1.0},
    "offset 1e16": {"tilt": 1e-17, "size": 1e12, "shift": 1e16},
    "weights 1e12": {"tilt": 0.0, "size": 1e12},
    "weights 1e300": {"tilt": 1e-17, "size": 1e300},
}


def by_products(network, rows):
    """What a matrix product of a whole table may do: add up in an order that the table's size says.

    With OpenBLAS 0.3 on x86-64 the code before gave up to three rows other bits when one more came.
    """
    order = slice(None, None, 1 if len(rows) % 2 else -1)
    width, hidden, _ = network.architecture.widths
    parts = np.split(network.parameters.numpy(), np.cumsum([width * hidden, hidden, hidden]))
    first, biases, last, shift = (
        parts[0].reshape(width, hidden), parts[1], parts[2][:, None], parts[3],
    )  # fmt: skip
    hidden = np.tanh(rows @ first + biases)
    return sum((hidden[:, [k]] * last[k] for k in range(len(last))[order]), np.zeros(1)) + shift


def moves(judge, schema, unit):
    """How far exact solutions of 30 neighbours move, the bound, and all feature rows."""
    estimator = ready(schema, unit, judge=judge, rho=5.0)
    synthetic = judge.sample(300, rng=np.random.default_rng(5))
    table = real_rows(schema, 30)
    whole = estimator.regression(table, synthetic)
    distances, rows = [], [whole.private]
    for row in range(30):
        neighbour = table.confidential().take(np.delete(np.arange(30), row))
        problem = estimator.regression(PrivateTable(schema=schema, scaled=neighbour), synthetic)
        distances.append(np.linalg.norm(estimator.solution(whole) - estimator.solution(problem)))
        rows.append(problem.private)
    return np.array(distances), estimator.calibrated.sensitivity, rows


@pytest.mark.parametrize("kind", FLAT)
def test_a_flat_critic_keeps_bound_and_sensitivity(schema, unit, kind):
    judge = planted(schema, **FLAT[kind])
    distances, bound, rows = moves(judge, schema, unit)
    assert distances.max() <= bound
    for row, fewer in enumerate(rows[1:]):  # neighbours have the same features, to the last bit
        assert (fewer == np.delete(rows[0], row, axis=0)).all()
    every = np.vstack(rows)
    assert np.abs(every).max() <= 0.5
    assert (every[:, 1] == 0.5).all()


def test_matrix_products_would_break_the_sensitivity(schema, unit, monkeypatch):
    """The control: by the code before, one row more moves the features of all the others."""
    monkeypatch.setattr(Network, "row_outputs", by_products)
    distances, bound, rows = moves(planted(schema, **FLAT["weights 1e12"]), schema, unit)
    assert np.abs(rows[1] - np.delete(rows[0], 0, axis=0)).max() > 0.1
    assert distances.max() > bound


def test_the_plan_does_not_need_the_critic(schema, unit):
    """Events, noise and forecast are the same before and after; measuring needs it."""
    before, after = ready(schema, unit), ready(schema, unit, judge=Tilted(schema))
    assert before == after
    assert before.parameters() == after.parameters()
    assert before.parameters()["features"] == "critic"
    (event,) = before.events(schema=schema, unit=unit)
    assert isinstance(event, GaussianEvent)
    with pytest.raises(UncalibratedError, match="features=critic"):
        before.measure(
            real_rows(schema, 20), Tilted(schema).sample(9, rng=np.random.default_rng(6)),
            noise=SeededNoise(0),
        )  # fmt: skip


@pytest.mark.parametrize("kind", [BetaDebiased, BetaNoised])
def test_a_critic_on_any_scale_becomes_a_ratio(schema, unit, kind):
    """A critic of seven times the log ratio: its exponential is no weight, the regression's is.

    Root mean square error of the log ratio over the rows, against 0.43 without weights and 2.6
    with the critic itself; seeds 0 to 4.
    """
    judge = Tilted(schema, factor=7.0, shift=3.0)
    beta = ready(schema, unit, kind, judge=judge, rho=0.1)
    rows = judge.sample(4000, rng=np.random.default_rng(7))
    truth = TILT * rows.scaled.columns["x0"]
    for seed in range(5):
        measured = beta.measure(real_rows(schema, 4000, seed), rows, noise=SeededNoise(seed))
        log_ratio = beta.ratio(measured, schema=schema).log_ratio(rows)
        assert (log_ratio - truth).std() < 0.15
    assert (judge.critic(rows.scaled) - truth).std() > 2
    assert truth.std() > 0.4
    assert weigh(beta.ratio(measured, schema=schema), rows, debias=beta.debias).law is not None


def test_estimators_that_ask_no_generator_refuse_the_map(schema):
    with pytest.raises(SpecError, match="expected a method that asks a generator"):
        feature_map("critic", schema, frequencies=3, frequency_scale=None, omega_seed=None)
