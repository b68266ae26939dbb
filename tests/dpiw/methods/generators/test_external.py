"""Rows made elsewhere as a generator: its settings, its declared cost, its rows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.data.tables import PrivateTable
from dpiw.errors import NotPublishableError, SpecError, UncalibratedError
from dpiw.methods.generators.base import MadeElsewhere
from dpiw.methods.generators.registry import make_generator, public_settings
from dpiw.privacy.events import DeclaredEvent
from dpiw.privacy.measurement import Measurement
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from tests.support.made_elsewhere import ROWS, rows_of_town, settings, written
from tests.support.worlds import UNIT, UNITS, declared

SCHEMA = declared(
    {"name": "age", "kind": "integer", "lower": 0, "upper": 100},
    {"name": "income", "kind": "continuous", "lower": 0, "upper": 1e3, "nullable": True},
    {"name": "region", "kind": "categorical", "levels": ["north", "south", "other"]},
    {"name": "ill", "kind": "boolean", "role": "target"},
    name="town",
)


@pytest.fixture
def given(tmp_path):
    path = tmp_path / "made.parquet"
    return settings(path, written(path, rows_of_town()))


def made(given, **changes):
    return make_generator("external", given | changes, pure=False)


def ready(given, unit=UNIT, **changes):
    return made(given, **changes).calibrate(rho=1.0, schema=SCHEMA, unit=unit, nominal_rows=400)


def table(rows):
    frame = rows_of_town(rows, seed=rows)
    return PrivateTable(schema=SCHEMA, scaled=SCHEMA.scale(frame))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sha256", "0" * 63), ("sha256", "A" * 64), ("sha256", None), ("tool", ""),
        ("tool", "x" * 501), ("version", 1.2), ("declared_by", " "), ("evidence", "a\0b"),
        ("rows", ""), ("epsilon", 0), ("epsilon", -1), ("epsilon", True), ("epsilon", "much"),
        ("epsilon", float("nan")), ("delta", 1), ("delta", "-1e-6"), ("delta", None),
        ("relation", "bounded"), ("rows_per_unit", 0), ("rows_per_unit", 1.0),
        ("rows_per_unit", True), ("rows_per_unit", 1001), ("counted_by", "abc"),
    ],
)  # fmt: skip
def test_inadmissible_settings_are_refused_by_name(given, name, value):
    with pytest.raises(SpecError, match=rf"generator\.settings\.{name}: (found .*; )?expected"):
        made(given, **{name: value})


def test_what_is_missing_or_unknown_is_named(given):
    for name in given:
        with pytest.raises(SpecError, match=name):
            make_generator("external", {k: v for k, v in given.items() if k != name}, pure=False)
    with pytest.raises(SpecError, match="seed"):
        made(given, seed=1)


def test_it_costs_what_was_declared_whatever_the_effort(given):
    assert isinstance(made(given), MadeElsewhere)
    costs = {
        made(given)
        .calibrate(rho=rho, schema=SCHEMA, unit=UNIT, nominal_rows=9)
        .events(schema=SCHEMA, unit=UNIT)
        for rho in (1e-6, 1.0, 1e6)
    }
    assert costs == {(DeclaredEvent(epsilon=0.5, delta=1e-7),)}
    for text in ("0.5", "5e-1"):
        assert ready(given, epsilon=text).declared(UNIT).epsilon == 0.5


@pytest.mark.parametrize("epsilon", ["unknown", float("inf")])
def test_rows_without_an_epsilon_are_for_benchmarks_alone(given, epsilon):
    plain = ready(given, epsilon=epsilon)
    assert not plain.private
    with pytest.raises(NotPublishableError):
        plain.events(schema=SCHEMA, unit=UNIT)
    drawn = plain.model(plain.measure(table(5), noise=SeededNoise(1)), schema=SCHEMA)
    assert drawn.sample(7, rng=np.random.default_rng(1)).rows == 7


def test_a_person_of_several_rows_must_be_spoken_of(given):
    unit = UNITS[1]
    with pytest.raises(SpecError):
        made(given).declared(unit)
    assert made(given, rows_per_unit=1).declared(unit).epsilon == 0.5
    assert made(given, rows_per_unit=4).declared(unit).epsilon == 2.0


def test_uncalibrated_or_for_another_unit_it_does_nothing(given):
    for generator in (made(given), ready(given, UNITS[1])):
        with pytest.raises(UncalibratedError):
            generator.events(schema=SCHEMA, unit=UNIT)
    with pytest.raises(UncalibratedError):
        made(given).measure(table(5), noise=SeededNoise(1))
    with pytest.raises(SpecError):
        made(given).calibrate(rho=0.0, schema=SCHEMA, unit=UNIT, nominal_rows=400)


def test_no_table_bears_on_it(given):
    measured = {
        ready(given).measure(table(rows), noise=SeededNoise(rows)).to_bytes() for rows in (0, 1, 90)
    }
    assert len(measured) == 1
    assert ready(given).measure(table(9), noise=SecureNoise()).publishable
    assert not ready(given).measure(table(9), noise=SeededNoise(1)).publishable


def test_each_row_of_the_file_is_taken_once_at_most(given):
    own = ready(given)
    stored = Measurement.from_bytes(own.measure(table(9), noise=SeededNoise(1)).to_bytes())
    model = made(given).model(stored, schema=SCHEMA)  # uncalibrated: nothing else is needed
    drawn = model.sample(ROWS, rng=np.random.default_rng(1)).frame()
    columns = ["age", "income", "region", "ill"]
    whole = SCHEMA.unscale(SCHEMA.scale(rows_of_town()))
    pd.testing.assert_frame_equal(
        drawn.sort_values(columns).reset_index(drop=True),
        whole.sort_values(columns).reset_index(drop=True),
    )
    one, two, other = (
        model.sample(50, rng=np.random.default_rng(seed)).scaled for seed in (1, 1, 2)
    )
    assert one.equals(two)
    assert not one.equals(other)
    for rows in (-1, ROWS + 1):
        with pytest.raises(SpecError):
            model.sample(rows, rng=np.random.default_rng(1))


def test_rows_that_repeat_are_counted(tmp_path):
    path = tmp_path / "made.parquet"
    twice = pd.concat([rows_of_town(30), rows_of_town(30).iloc[:10]])
    generator = made(settings(path, written(path, twice)))
    assert generator.kept(SCHEMA) == {"rows": 40, "distinct_rows": 30}


def test_a_file_that_changed_or_another_measurement_makes_no_model(given):
    own = ready(given)
    measurement = own.measure(table(9), noise=SeededNoise(1))
    foreign = Measurement(kind="beta", arrays={}, facts={}, publishable=False)
    with pytest.raises(SpecError):
        own.model(foreign, schema=SCHEMA)
    with pytest.raises(SpecError):
        made(given, sha256="0" * 64).model(measurement, schema=SCHEMA)
    written(Path(given["rows"]), rows_of_town(50))
    with pytest.raises(SpecError):
        own.model(measurement, schema=SCHEMA)


def test_parameters_are_public_json_and_name_no_place(given):
    for generator in (made(given), ready(given)):
        told = json.loads(json.dumps(dict(generator.parameters()), allow_nan=False))
        assert told.keys() == given.keys() - {"rows"} | {"rows_per_unit", "counted_by"}
    assert public_settings("external", given).keys() == given.keys() - {"rows"}
    assert public_settings("histogram", {"bins": 3}) == {"bins": 3}
