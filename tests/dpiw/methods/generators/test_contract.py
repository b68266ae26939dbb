"""What every registered generator promises (dpiw/methods/generators/base.py)."""

import functools
import json
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.generators import histogram
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.registry import GENERATORS, make_generator
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.privacy import mechanisms
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent, LaplaceEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw
from tests.dpiw.methods.generators.neural_world import settle_on_few_rows
from tests.support.draws import PROVED_ELSEWHERE, Still, check_draws
from tests.support.fits import fitted_at_once
from tests.support.made_elsewhere import settings
from tests.support.named_tests import TESTS
from tests.support.small import SMALL
from tests.support.worlds import REPLACE, UNIT, UNITS, declared, unit_of

SCHEMA = declared(
    {"name": "id", "role": "identifier"},
    {"name": "size", "kind": "continuous", "lower": 0, "upper": 10, "nullable": True},
    {"name": "age", "kind": "integer", "lower": 0, "upper": 99},
    {"name": "job", "kind": "categorical", "levels": ["a", "b", "c"], "nullable": True},
    {"name": "day", "kind": "date", "lower": "2020-01-01", "upper": "2021-12-31"},
    {"name": "sick", "kind": "boolean", "role": "target"},
    name="mixed",
)
OTHER = PublicSchema(name="other", columns=SCHEMA.columns[:3])
UNSEEN = declared(
    {"name": "job", "kind": "categorical", "unseen": True},
    {"name": "town", "kind": "categorical", "unseen": True, "nullable": True},
    name="unseen",
)
"""For the generator whose levels nobody knows."""
MARGINAL = ["histogram", "mst", "privbayes"]
METHODS = sorted(GENERATORS.keys() - {"external", "levels"})
"""Those of any schema; rows of a file and found levels have tests of their own: `test_external.py`
and `test_unseen_levels.py`."""
methods = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    settle_on_few_rows(monkeypatch)
    with fitted_at_once():
        yield


def _frame(rows, seed=0, *, is_whole=False):
    """Rows with missing cells and a level that nobody declared, or without."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(5, 2, rows),
            "age": rng.integers(0, 99, rows),
            "job": rng.choice(["c"] if seed == 1 else ["a", "b"], rows),
            "day": rng.choice(["2020-02-29", "2021-07-01"], rows),
            "sick": rng.random(rows) < 0.3,
        }
    )
    if not is_whole:
        frame.loc[rng.random(rows) < 0.1, "size"] = np.nan
        frame.loc[rng.random(rows) < 0.3, "job"] = "unknown"
    return frame


def _table(frame, schema=SCHEMA):
    return PrivateTable(schema=schema, scaled=schema.scale(frame))


def _ready(method, *, noise="", rho=0.5, **facts):
    own = SMALL.get(method, {}) | ({"noise": noise} if noise else {})
    generator = make_generator(method, own, pure=False)
    return generator.calibrate(
        rho=rho, **{"schema": SCHEMA, "unit": UNIT, "nominal_rows": 500} | facts
    )


@functools.cache
def _measured(method, rows=300):
    return _ready(method).measure(_table(_frame(rows)), noise=SeededNoise(1))


@pytest.mark.parametrize(
    ("method", "pure", "own"),
    [*((name, pure, {}) for name in (*MARGINAL, "bayes", "pategan") for pure in (False, True)),
     ("aim", False, {}), ("bayes", False, {"weights": "two_stage", "draws": 3}),
     ("bayes", True, {"weights": "two_stage", "draws": 3}),
     ("pategan", True, {"marginals_share": 0.4})],
)  # fmt: skip
@pytest.mark.parametrize("rho", [1e-4, 30.0])
def test_effort_adds_up(method, pure, own, rho):
    """Gaussian: 1/(2 m^2), and eps^2/8 a selection; at delta 0 all epsilons are sqrt(2 rho)."""
    plain = make_generator(method, SMALL.get(method, {}) | own, pure=pure)
    ready = plain.calibrate(rho=rho, schema=SCHEMA, unit=UNIT, nominal_rows=500)
    spent = 0.0
    for event in ready.events(schema=SCHEMA, unit=UNIT):
        if isinstance(event, ExponentialMechanismEvent):
            spent += event.count * (event.epsilon if pure else event.epsilon**2 / 8)
        else:
            multiplier = event.noise_multiplier
            spent += event.count * (1 / multiplier if pure else 1 / (2 * multiplier**2))
    assert spent == pytest.approx(np.sqrt(2 * rho) if pure else rho, rel=1e-12)


def _neighbours(schema, unit):
    """Two tables that differ by all rows of one person, which are equal."""

    def frame(rows, seed):
        if schema is not UNSEEN:
            return _frame(rows, seed, is_whole=True)
        return pd.DataFrame({"job": ["smith"] * rows, "town": ["bath" if seed else ""] * rows})

    base, person, other = (
        pd.concat([frame(rows, seed)] * times)
        for rows, seed, times in ((300, 0, 1), (1, 1, unit.max_rows), (1, 2, unit.max_rows))
    )
    replaced = unit.relation is NeighbouringRelation.REPLACE_ONE
    frames = (pd.concat([base, other]) if replaced else base, pd.concat([base, person]))
    return [_table(frame.reset_index(drop=True), schema) for frame in frames]


def _check_draws(generator, unit):
    schema = UNSEEN if generator.method == "levels" else SCHEMA
    ready = generator.calibrate(rho=0.5, schema=schema, unit=unit, nominal_rows=300)
    one, two = (
        lambda noise, table=table: ready.measure(table, noise=noise)
        for table in _neighbours(schema, unit)
    )
    check_draws(ready, schema=schema, unit=unit, neighbours=(one, two))


def _made(method, *, pure=False):
    if method == "external":
        own = settings(Path("r.parquet"), "0" * 64) | {"rows_per_unit": 1}
        return make_generator(method, own, pure=pure)
    generator = make_generator(method, SMALL.get(method, {}), pure=pure)
    return generator.within(Decimal("1e-6")) if method == "levels" else generator


@pytest.mark.parametrize("method", sorted(GENERATORS.keys() - PROVED_ELSEWHERE.keys()))
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.relation.value}-{unit.max_rows}")
@pytest.mark.parametrize("pure", [False, True], ids=["gaussian", "pure"])
def test_draws_are_the_events(method, unit, pure):
    """Every registered generator, but for those that another test is named for."""
    if pure and method == "levels":
        return  # needs a delta
    _check_draws(_made(method, pure=pure), unit)


class ThirdOfTheNoise(Histogram):
    def measure(self, table, *, noise):
        low = replace(self.calibrated, one_way=self.calibrated.one_way / 3)
        return Histogram.measure(replace(self, calibrated=low), table, noise=noise)


class ThirdOfTheSensitivity(ThirdOfTheNoise):
    """A toy whose statements agree with each other, and not with its counts."""

    def released_noise(self, *, schema, unit):
        (law,) = super().released_noise(schema=schema, unit=unit)
        sensitivity = (law.sensitivity or 0.0) / 3
        scale = self.calibrated.one_way * sensitivity * (1 + 1e-15)
        return (replace(law, scale=scale, sensitivity=sensitivity),)

    def measure(self, table, *, noise):
        (law,) = self.released_noise(schema=table.schema, unit=UNIT)
        return replace(super().measure(table, noise=noise), noise=(law,))


class OneEventForAllDraws(Histogram):
    def events(self, *, schema, unit):
        (event,) = super().events(schema=schema, unit=unit)
        return (replace(event, count=1),)


class NoiseOfItsOwn(Histogram):
    def measure(self, table, *, noise):
        rng = np.random.default_rng(1)

        def noisy(counts, *, scale, **_):
            return counts + rng.normal(scale=scale, size=counts.shape)

        with mock.patch.object(histogram, "noisy_marginal", noisy):
            return super().measure(table, noise=noise)


class NothingStated(Histogram):
    def measure(self, table, *, noise):
        return replace(super().measure(table, noise=noise), noise=())


class AnotherLaw(Histogram):
    def measure(self, table, *, noise):
        others = {NoiseKind.GAUSSIAN: NoiseKind.LAPLACE, NoiseKind.LAPLACE: NoiseKind.GAUSSIAN}
        honest = super().measure(table, noise=noise)
        other = replace(self, noise=others[self.noise])
        other = replace(other, calibrated=self.calibrated)
        return replace(Histogram.measure(other, table, noise=noise), noise=honest.noise)


class AnotherEvent(Histogram):
    def events(self, *, schema, unit):
        (event,) = super().events(schema=schema, unit=unit)
        other = LaplaceEvent if isinstance(event, GaussianEvent) else GaussianEvent
        return (other(noise_multiplier=event.noise_multiplier, count=event.count),)


class OneDrawForAllColumns(OneEventForAllDraws):
    """A toy: one draw and one event for all columns' counts, and the sensitivity of one column."""

    def measure(self, table, *, noise):
        honest = super().measure(table, noise=Still())
        (law,) = honest.noise
        sizes = [counts.size for counts in honest.arrays.values()]
        drawn = mechanisms.noisy_vector(
            np.concatenate(list(honest.arrays.values())).astype(float),
            law=NoiseLaw(kind=law.law, scale=law.scale, dimension=sum(sizes)),
            noise=noise,
        )
        pieces = np.split(drawn, np.cumsum(sizes)[:-1])
        return replace(honest, arrays=dict(zip(honest.arrays, pieces, strict=True)))


class CountInFacts(Histogram):
    def measure(self, table, *, noise):
        honest = super().measure(table, noise=noise)
        return replace(honest, facts={**honest.facts, "rows": exact_rows(table)})


class LessNoiseForSomeTables(ThirdOfTheNoise):
    def measure(self, table, *, noise):
        odd = exact_rows(table) % 2
        return (super() if odd else super(ThirdOfTheNoise, self)).measure(table, noise=noise)


def exact_rows(table):
    domain = histogram.Domain.from_schema(table.schema, bins=4)
    return int(next(iter(histogram.ContingencyCounter.of(table, domain).one_way())).sum())


class ExactBesideNoise(Histogram):
    def measure(self, table, *, noise):
        honest, exact = super().measure(table, noise=noise), super().measure(table, noise=Still())
        last = list(exact.arrays.values())[-1]
        return replace(honest, arrays={**honest.arrays, "tail": last[-1:]})


class ExactForOneColumn(Histogram):
    def measure(self, table, *, noise):
        honest, exact = super().measure(table, noise=noise), super().measure(table, noise=Still())
        return replace(honest, arrays={**honest.arrays, "one_way_0": exact.arrays["one_way_0"]})


class NoiseInTheModel(Histogram):
    def measure(self, table, *, noise):
        return super().measure(table, noise=Still())


TOYS = [
    ThirdOfTheNoise, ThirdOfTheSensitivity, OneEventForAllDraws, NoiseOfItsOwn, NothingStated,
    AnotherLaw, AnotherEvent, OneDrawForAllColumns, ExactBesideNoise, ExactForOneColumn,
    NoiseInTheModel, CountInFacts, LessNoiseForSomeTables,
]  # fmt: skip


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
def test_a_generator_that_draws_otherwise_is_found(toy, kind):
    with pytest.raises(AssertionError):
        _check_draws(toy(noise=kind), UNIT)


@pytest.mark.parametrize("method", PROVED_ELSEWHERE)
def test_what_is_proved_elsewhere_is(method):
    file, test = PROVED_ELSEWHERE[method].test.split("::")
    assert f"\ndef {test}(" in (TESTS / file).read_text()
    assert PROVED_ELSEWHERE[method].reason
    assert method in GENERATORS.keys() | WEIGHTS.keys()


@methods
def test_a_measurement_is_repeatable_stored_whole_and_states_its_noise(method):
    """Also where draws are proved elsewhere: what the certificate needs is typed, and is kept."""
    ready, table, measurement = _ready(method), _table(_frame(300)), _measured(method)
    same, other = (ready.measure(table, noise=SeededNoise(seed)) for seed in (1, 5))
    assert measurement.to_bytes() == same.to_bytes() != other.to_bytes()
    assert pickle.loads(pickle.dumps(measurement)).digest == measurement.digest
    assert ready.measure(table, noise=SecureNoise()).publishable
    assert not measurement.publishable
    assert measurement.noise == ready.released_noise(schema=SCHEMA, unit=UNIT)
    assert Measurement.from_bytes(measurement.to_bytes()).noise == measurement.noise
    events = ready.events(schema=SCHEMA, unit=UNIT)
    stated = {events[law.event] for law in measurement.noise if law.event is not None}
    assert {event for event in events if hasattr(event, "noise_multiplier")} == stated
    for law in measurement.noise:
        assert law.scale >= events[law.event].noise_multiplier * law.sensitivity * (1 - 1e-12)


@methods
def test_what_is_uncalibrated_or_does_not_fit_is_refused(method):
    plain, ready, own = make_generator(method, {}, pure=False), _ready(method), _table(_frame(10))
    foreign = _table(pd.DataFrame({"size": [1.0], "age": [2]}), OTHER)
    for refused in (
        lambda: plain.events(schema=SCHEMA, unit=UNIT),
        lambda: plain.measure(own, noise=SeededNoise(1)),
        lambda: ready.events(schema=SCHEMA, unit=unit_of(REPLACE)),
        lambda: ready.events(schema=OTHER, unit=UNIT),
        lambda: ready.measure(foreign, noise=SeededNoise(1)),
    ):
        with pytest.raises(UncalibratedError):
            refused()
    beta = Measurement(kind="beta", arrays={}, facts={}, publishable=False)
    for measurement, schema in ((_measured(method), OTHER), (beta, SCHEMA)):
        with pytest.raises(SpecError):
            ready.model(measurement, schema=schema)
    for rho, rows in ((0.0, 10), (-1.0, 10), (float("nan"), 10), (1.0, 0)):
        with pytest.raises(SpecError):
            _ready(method, rho=rho, nominal_rows=rows)


@methods
def test_the_model_needs_nothing_but_the_file(method):
    """And draws the same rows of the same randomness."""
    measurement = _measured(method)
    stored = Measurement.from_bytes(measurement.to_bytes())
    fresh = make_generator(method, {}, pure=False)  # uncalibrated: nothing private is left in it
    models = [_ready(method).model(measurement, schema=SCHEMA), fresh.model(stored, schema=SCHEMA)]
    one, two, other = (
        model.sample(200, rng=np.random.default_rng(seed)).scaled
        for model, seed in zip((*models, models[0]), (9, 9, 2), strict=True)
    )
    assert one.equals(two)
    assert not one.equals(other)
    assert models[0].sample(0, rng=np.random.default_rng(1)).rows == 0


@methods
@pytest.mark.parametrize(("rho", "rows"), [(1e-8, 0), (1e-8, 300), (0.5, 1), (1e4, 0), (1e4, 300)])
def test_samples_conform_to_the_schema(method, rho, rows):
    """At any noise and for any table, the empty one included."""
    ready = _ready(method, rho=rho)
    measurement = ready.measure(_table(_frame(rows)), noise=SeededNoise(rows + 1))
    model = ready.model(measurement, schema=SCHEMA)
    frame = model.sample(400, rng=np.random.default_rng(0)).frame()
    assert list(frame.columns) == ["size", "age", "job", "day", "sick"]
    assert frame["size"].dropna().between(0, 10).all()
    assert frame["age"].between(0, 99).all()
    assert frame["age"].dtype == np.int64
    assert set(frame["job"].dropna()) <= {"a", "b", "c"}
    assert frame["day"].between("2020-01-01", "2021-12-31").all()
    assert frame["sick"].dtype == bool
    assert len(frame[["age", "day", "sick"]].dropna()) == 400


@methods
def test_facts_hold_no_row_count(method):
    """Shapes, names and facts other than what was selected are those of the empty table."""
    full, empty = (_measured(method, rows) for rows in (300, 0))
    assert set(full.arrays) == set(empty.arrays)
    assert {**full.facts, "network": 0} == {**empty.facts, "network": 0}


@methods
def test_parameters_are_public_json(method):
    plain = make_generator(method, {}, pure=False)
    assert plain.method == method
    assert plain.private
    for one in (plain, _ready(method)):
        json.dumps(dict(one.parameters()), allow_nan=False)


@pytest.mark.parametrize("method", [*MARGINAL, "pategan"])
def test_where_delta_is_0_noise_is_laplace(method):
    assert make_generator(method, {}, pure=True).parameters()["noise"] == "laplace"
    with pytest.raises(SpecError, match="noise"):
        make_generator(method, {"noise": "gaussian"}, pure=True)


COUNTS = [("bins", 1), ("bins", 4.5), ("bins", True), ("noise", "round"), ("noise", 3),
          ("noise", NoiseKind.SPHERICAL)]  # fmt: skip
NETWORKS = [
    ("start", -1), ("start", 2**63), ("start", 1.0), ("start", True), ("start", "0"),
    ("marginals_share", -0.1), ("marginals_share", 0.96), ("marginals_share", True),
    ("marginals_share", float("nan")), ("generator", 8), ("penalty", -1),
    ("temperature", 0.5), ("batch", 2.5),
]  # fmt: skip
WRONG = {
    "histogram": COUNTS,
    "mst": [*COUNTS, ("max_cells", 3), ("max_cells", 1 << 21)],
    "privbayes": [
        *COUNTS, ("degree", 0), ("degree", 5), ("max_cells", 3), ("max_cells", 1 << 21),
        ("usefulness", 0.0), ("usefulness", float("inf")), ("noise_penalty", -0.1),
        ("one_way_share", 0.0), ("one_way_share", 0.9),
    ],
    "aim": [("resumes", 21), ("bins", 1), ("max_cells", 1), ("max_model_cells", 0)],
    "bayes": [
        ("sampler", "nuts"), ("prior", 0), ("prior", float("nan")), ("smallest", 0.5),
        ("draws", 0), ("bins", 1), ("weights", "from_data"), ("numeric", 3), ("given", "job"),
        ("pure", True),
    ],
    "dpgan": [
        *NETWORKS, ("loss", "hinge"), ("steps", 0), ("lot", True), ("discriminator", [0]),
        ("settle", 0.95), ("clip", 0), ("device", "abacus"), ("weight_bound", float("nan")),
        ("generator_steps", 2),
    ],
    "dpcgan": [
        *NETWORKS, ("proportions", (1.0,)), ("proportions", (0.0, 0.0)),
        ("proportions", (1.0, -1.0)), ("proportions", (1.0, float("inf"))), ("proportions", "half"),
    ],
    "pategan": [
        *NETWORKS, ("teachers", 1), ("rounds", 0), ("queries", 1.5), ("teacher", [8]),
        ("student", 8), ("student_rate", 0), ("noise", "spherical"),
    ],
}  # fmt: skip


@methods
def test_what_no_spec_may_ask_for_is_refused_by_name(method):
    facts = {"rho": 1.0, "schema": SCHEMA, "unit": UNIT, "nominal_rows": 40}
    for name, wrong in (*WRONG[method], ("unheard", None), ("calibrated", None)):
        with pytest.raises(SpecError, match=rf"{name}\b"):
            make_generator(method, {name: wrong}, pure=False).calibrate(**facts)


def test_what_a_method_cannot_do_is_refused():
    with pytest.raises(SpecError, match=r"generator\.method"):
        make_generator("magic", {}, pure=False)
    for method in ("aim", "dpgan", "dpcgan", "levels"):
        with pytest.raises(SpecError):
            make_generator(method, {}, pure=True)
    for method in ("dpgan", "dpcgan"):
        with pytest.raises(SpecError, match="add_or_remove_one"):
            _ready(method, unit=unit_of(REPLACE))
