"""What every registered generator promises (dpiw/methods/generators/base.py)."""

import copy
import pickle
from dataclasses import replace
from decimal import Decimal
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import PrivacyError, SpecError, UncalibratedError
from dpiw.methods.generators import histogram
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.registry import GENERATORS, make_generator
from dpiw.methods.weights.registry import WEIGHTS
from dpiw.privacy import mechanisms
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent, LaplaceEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.privacy.units import NeighbouringRelation, NoiseKind, NoiseLaw, PrivacyUnit
from tests.support.draws import PROVED_ELSEWHERE, Still, check_draws
from tests.support.fits import fitted_at_once
from tests.support.named_tests import TESTS

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)
REPLACE = PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE)
UNITS = [
    PrivacyUnit(relation=relation, max_rows=rows, id_column="id")
    for relation in NeighbouringRelation
    for rows in (1, 3)
]
SCHEMA = PublicSchema(
    name="mixed",
    columns=(
        Column(name="id", role=ColumnRole.IDENTIFIER),
        Column(name="size", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=10.0, nullable=True),
        Column(name="age", kind=ColumnKind.INTEGER, lower=0, upper=99),
        Column(name="job", kind=ColumnKind.CATEGORICAL, levels=("a", "b", "c"), nullable=True),
        Column(name="day", kind=ColumnKind.DATE, lower="2020-01-01", upper="2021-12-31"),
        Column(name="sick", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET),
    ),
)
UNSEEN = PublicSchema(
    name="unseen",
    columns=(
        Column(name="job", kind=ColumnKind.CATEGORICAL, unseen=True),
        Column(name="town", kind=ColumnKind.CATEGORICAL, unseen=True, nullable=True),
    ),
)
"""For the generator whose levels nobody knows."""
MARGINAL = ["histogram", "mst", "privbayes"]
METHODS = sorted(GENERATORS.keys() - {"external", "levels"})
"""Those of any schema; rows of a file and found levels have tests of their own: `test_external.py`
and `test_unseen_levels.py`."""
_GAME = {"steps": 3, "lot": 16, "batch": 8, "generator": [4], "discriminator": [4]}
_PATE = {"rounds": 3, "batch": 8, "generator": [4], "student": [4], "teacher": 3}
SMALL = {"dpgan": _GAME, "dpcgan": _GAME, "pategan": _PATE}
"""Settings that keep networks small; the marginal methods need none."""


@pytest.fixture(autouse=True)
def _no_process():
    with fitted_at_once():
        yield


def _table(rows, *, seed=0, schema=SCHEMA):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(5, 2, rows)),
            "age": rng.integers(0, 99, rows),
            "job": rng.choice(["a", "b", "unknown"], rows),
            "day": rng.choice(["2020-02-29", "2021-07-01"], rows),
            "sick": rng.random(rows) < 0.3,
        }
    )
    return PrivateTable(schema=schema, scaled=schema.scale(frame))


def _ready(method, *, noise="", rho=0.5, **facts):
    own = SMALL.get(method, {}) | ({"noise": noise} if noise else {})
    generator = make_generator(method, own, pure=False)
    chosen = {"schema": SCHEMA, "unit": UNIT, "nominal_rows": 500} | facts
    return generator.calibrate(rho=rho, **chosen)


@pytest.mark.parametrize("method", MARGINAL)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("unit", [UNIT, REPLACE], ids=["add_remove", "replace"])
def test_events_are_known_before_data(method, noise, unit):
    events = _ready(method, noise=noise, unit=unit).events(schema=SCHEMA, unit=unit)
    law = LaplaceEvent if noise == "laplace" else GaussianEvent
    assert events
    assert all(isinstance(event, law | ExponentialMechanismEvent) for event in events)
    assert sum(event.count for event in events if isinstance(event, law)) >= 5


@pytest.mark.parametrize("method", [*MARGINAL, "aim", "pategan"])
@pytest.mark.parametrize("rho", [1e-4, 0.1, 30.0])
def test_gaussian_effort_adds_up(method, rho):
    """1/(2 m^2) per Gaussian mechanism and eps^2/8 per selection sum to the effort asked for."""
    spent = 0.0
    for event in _ready(method, rho=rho).events(schema=SCHEMA, unit=UNIT):
        if isinstance(event, GaussianEvent):
            spent += event.count / (2 * event.noise_multiplier**2)
        else:
            spent += event.count * event.epsilon**2 / 8
    assert spent == pytest.approx(rho, rel=1e-12)


@pytest.mark.parametrize("method", MARGINAL)
@pytest.mark.parametrize("rho", [1e-4, 0.1, 30.0])
def test_pure_effort_adds_up(method, rho):
    spent = 0.0
    for event in _ready(method, rho=rho, noise="laplace").events(schema=SCHEMA, unit=UNIT):
        per_event = (
            event.epsilon
            if isinstance(event, ExponentialMechanismEvent)
            else 1 / event.noise_multiplier
        )
        spent += event.count * per_event
    assert spent == pytest.approx(np.sqrt(2 * rho), rel=1e-12)


def _neighbours(schema, unit):
    """Two tables that differ by all rows of one person, which are equal."""
    base, added, k = _frame(300, schema), _frame(1, schema, seed=1), unit.max_rows
    person = pd.concat([added] * k)
    other = pd.concat([_frame(1, schema, seed=2)] * k)
    replaced = unit.relation is NeighbouringRelation.REPLACE_ONE
    frames = (pd.concat([base, other]) if replaced else base, pd.concat([base, person]))
    one, two = (
        PrivateTable(schema=schema, scaled=schema.scale(frame.reset_index(drop=True)))
        for frame in frames
    )
    return one, two


def _frame(rows, schema, seed=0):
    if schema is UNSEEN:
        return pd.DataFrame({"job": ["smith"] * rows, "town": ["bath" if seed else ""] * rows})
    rng = np.random.default_rng(seed)
    levels = {"job": ["c"] if seed == 1 else ["a", "b"]}
    return pd.DataFrame(
        {
            "size": rng.normal(5, 2, rows),
            "age": rng.integers(0, 99, rows),
            "job": rng.choice(levels["job"], rows),
            "day": rng.choice(["2020-02-29", "2021-07-01"], rows),
            "sick": rng.random(rows) < 0.3,
        }
    )


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
        own = {"rows": "r.parquet", "sha256": "0" * 64, "tool": "t", "version": "1", "epsilon": 1,
               "delta": 0, "relation": "add_or_remove_one", "declared_by": "d", "evidence": "e",
               "rows_per_unit": 1}  # fmt: skip
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
    """A toy: it draws with a third of the noise that its events declare."""

    def measure(self, table, *, noise):
        assert self.calibrated is not None
        low = replace(self.calibrated, multiplier=self.calibrated.multiplier / 3)
        return Histogram.measure(replace(self, calibrated=low), table, noise=noise)


class ThirdOfTheSensitivity(ThirdOfTheNoise):
    """A toy whose statements agree with each other, and not with its counts."""

    def released_noise(self, *, schema, unit):
        (law,) = super().released_noise(schema=schema, unit=unit)
        assert self.calibrated is not None
        sensitivity = (law.sensitivity or 0.0) / 3
        scale = self.calibrated.multiplier * sensitivity * (1 + 1e-15)
        return (replace(law, scale=scale, sensitivity=sensitivity),)

    def measure(self, table, *, noise):
        (law,) = self.released_noise(schema=table.schema, unit=UNIT)
        return replace(super().measure(table, noise=noise), noise=(law,))


class OneEventForAllDraws(Histogram):
    """A toy: it declares one event for the draws of all columns."""

    def events(self, *, schema, unit):
        (event,) = super().events(schema=schema, unit=unit)
        return (replace(event, count=1),)


class NoiseOfItsOwn(Histogram):
    """A toy: its noise does not pass the mechanisms' door."""

    def measure(self, table, *, noise):
        rng = np.random.default_rng(1)

        def noisy(counts, *, scale, **_):
            return counts + rng.normal(scale=scale, size=counts.shape)

        with mock.patch.object(histogram, "noisy_marginal", noisy):
            return super().measure(table, noise=noise)


class NothingStated(Histogram):
    """A toy: what it measured does not state its noise."""

    def measure(self, table, *, noise):
        return replace(super().measure(table, noise=noise), noise=())


class AnotherLaw(Histogram):
    """A toy: it draws noise of another law, at the scale that its event declares."""

    def measure(self, table, *, noise):
        others = {NoiseKind.GAUSSIAN: NoiseKind.LAPLACE, NoiseKind.LAPLACE: NoiseKind.GAUSSIAN}
        honest = super().measure(table, noise=noise)
        other = replace(self, noise=others[self.noise])
        other = replace(other, calibrated=self.calibrated)
        return replace(Histogram.measure(other, table, noise=noise), noise=honest.noise)


class AnotherEvent(Histogram):
    """A toy: it declares the event of another law."""

    def events(self, *, schema, unit):
        (event,) = super().events(schema=schema, unit=unit)
        other = LaplaceEvent if isinstance(event, GaussianEvent) else GaussianEvent
        return (other(noise_multiplier=event.noise_multiplier, count=event.count),)


class OneDrawForAllColumns(Histogram):
    """A toy: one draw and one event for all columns' counts, and the sensitivity of one column."""

    def events(self, *, schema, unit):
        (event,) = super().events(schema=schema, unit=unit)
        return (replace(event, count=1),)

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


class ExactBesideNoise(Histogram):
    """A toy: an exact count lies beside the noisy ones."""

    def measure(self, table, *, noise):
        honest, exact = super().measure(table, noise=noise), super().measure(table, noise=Still())
        last = list(exact.arrays.values())[-1]
        return replace(honest, arrays={**honest.arrays, "tail": last[-1:]})


class ExactForOneColumn(Histogram):
    """A toy: all is drawn, and the exact counts of one column are kept."""

    def measure(self, table, *, noise):
        honest, exact = super().measure(table, noise=noise), super().measure(table, noise=Still())
        return replace(honest, arrays={**honest.arrays, "one_way_0": exact.arrays["one_way_0"]})


class NoiseInTheModel(Histogram):
    """A toy: it measures exactly, and its noise is added by the model."""

    def measure(self, table, *, noise):
        return super().measure(table, noise=Still())


TOYS = [
    ThirdOfTheNoise, ThirdOfTheSensitivity, OneEventForAllDraws, NoiseOfItsOwn, NothingStated,
    AnotherLaw, AnotherEvent, OneDrawForAllColumns, ExactBesideNoise, ExactForOneColumn,
    NoiseInTheModel,
]  # fmt: skip


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
def test_a_generator_that_draws_otherwise_is_found(toy, kind):
    with pytest.raises(AssertionError):
        _check_draws(toy(noise=kind), UNIT)


@pytest.mark.parametrize("method", PROVED_ELSEWHERE)
def test_what_is_proved_elsewhere_is(method):
    """The test that is named exists, and so does the method."""
    file, test = PROVED_ELSEWHERE[method].test.split("::")
    assert f"\ndef {test}(" in (TESTS / file).read_text()
    assert PROVED_ELSEWHERE[method].reason
    assert method in GENERATORS.keys() | WEIGHTS.keys()


@pytest.mark.parametrize("method", METHODS)
def test_every_measurement_states_its_noise(method):
    """Also where draws are proved elsewhere: what the certificate needs is typed, and is kept."""
    ready = _ready(method)
    measurement = ready.measure(_table(60), noise=SeededNoise(1))
    assert measurement.noise == ready.released_noise(schema=SCHEMA, unit=UNIT)
    assert Measurement.from_bytes(measurement.to_bytes()).noise == measurement.noise
    events = ready.events(schema=SCHEMA, unit=UNIT)
    stated = {events[law.event] for law in measurement.noise if law.event is not None}
    assert {event for event in events if hasattr(event, "noise_multiplier")} == stated
    for law in measurement.noise:
        assert law.scale >= events[law.event].noise_multiplier * law.sensitivity * (1 - 1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_uncalibrated_generators_do_nothing(method):
    generator = make_generator(method, {}, pure=False)
    with pytest.raises(UncalibratedError):
        generator.events(schema=SCHEMA, unit=UNIT)
    with pytest.raises(UncalibratedError):
        generator.measure(_table(10), noise=SeededNoise(1))


@pytest.mark.parametrize("method", METHODS)
def test_calibration_holds_for_its_schema_and_unit_only(method):
    ready = _ready(method)
    other = PublicSchema(name="other", columns=SCHEMA.columns[:3])
    with pytest.raises(UncalibratedError, match="another schema"):
        ready.events(schema=SCHEMA, unit=REPLACE)
    with pytest.raises(UncalibratedError, match="another schema"):
        ready.events(schema=other, unit=UNIT)
    frame = pd.DataFrame({"size": [1.0], "age": [2]})
    with pytest.raises(UncalibratedError, match="another schema"):
        ready.measure(PrivateTable(schema=other, scaled=other.scale(frame)), noise=SeededNoise(1))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seeded_noise_gives_the_same_bytes(method):
    ready = _ready(method)
    one, two, other = (
        ready.measure(_table(300), noise=SeededNoise(seed)).to_bytes() for seed in (4, 4, 5)
    )
    assert one == two
    assert one != other


@pytest.mark.parametrize("method", METHODS)
def test_only_secure_noise_is_publishable(method):
    ready = _ready(method)
    assert ready.measure(_table(50), noise=SecureNoise()).publishable
    assert not ready.measure(_table(50), noise=SeededNoise(1)).publishable


@pytest.mark.parametrize("method", METHODS)
def test_the_model_needs_nothing_but_the_file(method):
    ready = _ready(method)
    measurement = ready.measure(_table(300), noise=SeededNoise(2))
    stored = Measurement.from_bytes(measurement.to_bytes())
    assert stored.digest == measurement.digest
    fresh = make_generator(method, {}, pure=False)  # uncalibrated: nothing private is left in it
    rows = [
        model.sample(200, rng=np.random.default_rng(9)).frame()
        for model in (ready.model(measurement, schema=SCHEMA), fresh.model(stored, schema=SCHEMA))
    ]
    pd.testing.assert_frame_equal(rows[0], rows[1])


@pytest.mark.parametrize("method", METHODS)
def test_the_table_refuses_to_leave(method):
    table = _table(5)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy, len, bool, list):
        with pytest.raises(PrivacyError):
            leave(table)
    measurement = _ready(method).measure(table, noise=SeededNoise(1))
    assert pickle.loads(pickle.dumps(measurement)).digest == measurement.digest


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rho", [1e-8, 0.5, 1e4])
@pytest.mark.parametrize("rows", [0, 1, 300])
def test_samples_conform_to_the_schema(method, rho, rows):
    """At any noise and for any table, the empty one included."""
    ready = _ready(method, rho=rho)
    measurement = ready.measure(_table(rows), noise=SeededNoise(rows + 1))
    frame = (
        ready.model(measurement, schema=SCHEMA).sample(400, rng=np.random.default_rng(0)).frame()
    )
    assert len(frame) == 400
    assert list(frame.columns) == ["size", "age", "job", "day", "sick"]
    assert frame["size"].dropna().between(0, 10).all()
    assert frame["age"].between(0, 99).all()
    assert frame["age"].dtype == np.int64
    assert set(frame["job"].dropna()) <= {"a", "b", "c"}
    assert frame["day"].between("2020-01-01", "2021-12-31").all()
    assert frame["sick"].dtype == bool
    assert not frame[["age", "day", "sick"]].isna().any().any()


@pytest.mark.parametrize("method", METHODS)
def test_facts_hold_no_row_count(method):
    """Shapes, names and facts other than what was selected are those of the empty table."""
    ready = _ready(method)
    full, empty = (ready.measure(_table(rows), noise=SeededNoise(1)) for rows in (300, 0))
    assert set(full.arrays) == set(empty.arrays)
    assert {**full.facts, "network": 0} == {**empty.facts, "network": 0}


@pytest.mark.parametrize("method", METHODS)
def test_sampling_is_repeatable(method):
    model = _ready(method).model(
        _ready(method).measure(_table(300), noise=SeededNoise(1)), schema=SCHEMA
    )
    one, two, other = (
        model.sample(100, rng=np.random.default_rng(seed)).scaled for seed in (1, 1, 2)
    )
    assert one.equals(two)
    assert not one.equals(other)
    assert model.sample(0, rng=np.random.default_rng(1)).rows == 0
    with pytest.raises(SpecError, match="rows="):
        model.sample(-1, rng=np.random.default_rng(1))


@pytest.mark.parametrize("method", METHODS)
def test_foreign_measurements_are_refused(method):
    ready = _ready(method)
    measurement = ready.measure(_table(20), noise=SeededNoise(1))
    other = PublicSchema(name="other", columns=SCHEMA.columns[:3])
    with pytest.raises(SpecError, match="columns or sizes"):
        ready.model(measurement, schema=other)
    foreign = Measurement(kind="beta", arrays={}, facts={}, publishable=False)
    with pytest.raises(SpecError, match="kind"):
        ready.model(foreign, schema=SCHEMA)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rho", "rows"), [(0.0, 10), (-1.0, 10), (float("nan"), 10), (1.0, 0)])
def test_inadmissible_efforts_are_refused(method, rho, rows):
    with pytest.raises(SpecError):
        _ready(method, rho=rho, nominal_rows=rows)


@pytest.mark.parametrize("method", MARGINAL)
def test_parameters_are_public_json(method):
    import json

    plain = make_generator(method, {"bins": 9}, pure=True)
    assert plain.parameters()["bins"] == 9
    assert plain.parameters()["noise"] == "laplace"
    assert json.loads(json.dumps(dict(_ready(method).parameters())))["noise"] == "gaussian"
    assert plain.method == method
    assert plain.private


@pytest.mark.parametrize("method", MARGINAL)
@pytest.mark.parametrize(
    "settings",
    [
        {"bins": 1},
        {"bins": 4.5},
        {"bins": True},
        {"noise": "spherical"},
        {"noise": 3},
        {"calibrated": None},
        {"unheard": 1},
    ],
)
def test_inadmissible_settings_are_refused(method, settings):
    with pytest.raises(SpecError):
        make_generator(method, settings, pure=False)


@pytest.mark.parametrize("method", METHODS)
def test_settings_that_no_method_has_are_refused(method):
    for name in ("unheard", "calibrated"):
        with pytest.raises(SpecError, match=name):
            make_generator(method, {name: None}, pure=False)


@pytest.mark.parametrize("method", METHODS)
def test_calibrated_parameters_are_json(method):
    import json

    plain, ready = make_generator(method, {}, pure=False), _ready(method)
    assert plain.method == method
    assert plain.private
    for one in (plain, ready):
        json.dumps(dict(one.parameters()), allow_nan=False)


@pytest.mark.parametrize("method", MARGINAL)
def test_spherical_noise_has_no_place_in_a_histogram(method):
    with pytest.raises(SpecError, match="noise"):
        GENERATORS[method](noise=NoiseKind.SPHERICAL)


@pytest.mark.parametrize("method", MARGINAL)
def test_delta_zero_needs_laplace(method):
    with pytest.raises(SpecError, match="laplace"):
        make_generator(method, {"noise": "gaussian"}, pure=True)


def test_unknown_methods_are_refused():
    with pytest.raises(SpecError, match=r"generator\.method: expected one of privbayes, histogram"):
        make_generator("magic", {}, pure=False)
