"""The generator that finds levels: what it counts, what it shows, and what it says of itself."""

import dataclasses
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.columns import MOST_LETTERS
from dpiw.data.schema.dictionary import read_dictionary
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SchemaError, SpecError, UncalibratedError
from dpiw.methods.generators.registry import make_generator
from dpiw.methods.generators.unseen_levels import UnseenLevels
from dpiw.privacy.events import GaussianEvent, ThresholdEvent
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from tests.support.worlds import UNIT

TRADE = {"name": "trade", "kind": "categorical", "unseen": True}
AGE = {"name": "age", "kind": "integer", "lower": 0, "upper": 9}


def schema(*columns):
    return PublicSchema.from_mapping({"name": "trades", "columns": [AGE, *columns]})


def ready(of, *, delta="1e-6", rho=2.0, **facts):
    facts = {"unit": UNIT, "nominal_rows": 400} | facts
    method = UnseenLevels.from_settings({}, pure=False).within(Decimal(delta))
    return method.calibrate(rho=rho, schema=of, **facts)


def measured(of, noise=None, **cells):
    frame = pd.DataFrame({"age": 1, **cells})
    private = PrivateTable(schema=of, scaled=of.scale(frame))
    return ready(of).measure(private, noise=noise or SeededNoise(5))


def test_levels_of_many_are_shown_by_text_and_a_level_of_one_is_not():
    of = schema({**TRADE, "nullable": True})
    cells = ["smith", " baker "] * 100 + ["the only one"] + ["x" * (MOST_LETTERS + 1)] * 60
    cells += ["two\nlines"] * 60 + [None, " "] * 20
    measurement = measured(of, SecureNoise(), trade=cells)
    assert measurement.facts["levels"] == [["baker", "smith"]]
    assert measurement.arrays["counts_0"] == pytest.approx([100, 100], abs=8)
    assert measurement.arrays["missing_0"] == pytest.approx([40], abs=8)
    assert b"the only one" not in measurement.to_bytes()
    assert measurement.publishable


def test_texts_are_one_level_under_the_declared_normaliser():
    cells = ["Bäcker", "ba\u0308cker", "BÄCKER"] * 20
    folded = measured(schema({**TRADE, "normaliser": "casefold"}), trade=cells)
    assert folded.facts["levels"] == [["bäcker"]]
    assert measured(schema(TRADE), trade=[1.0, 2.0] * 60).facts["levels"] == [["1", "2"]]
    exact = measured(schema(TRADE), trade=cells)  # in one Unicode form, whatever the cells have
    assert exact.facts["levels"] == [["BÄCKER", "Bäcker", "b\u00e4cker"]]


def test_a_table_without_any_text_shows_nothing_and_ends_as_others_do():
    for cells in ([], [None] * 30, ["alone"]):
        measurement = measured(schema(TRADE), trade=pd.Series(cells, dtype=object).tolist())
        assert measurement.facts["levels"] == [[]]
        rows = ready(schema(TRADE)).model(measurement, schema=schema(TRADE))
        drawn = rows.sample(5, rng=np.random.default_rng(1)).frame()
        assert set(drawn["trade"]) == {"other"}


def test_events_are_a_marginal_and_a_threshold_for_each_unseen_column():
    of = schema(TRADE, {**TRADE, "name": "title"})
    method = ready(of, rho=0.5)
    noise, threshold = method.events(schema=of, unit=UNIT)
    assert isinstance(noise, GaussianEvent)
    assert isinstance(threshold, ThresholdEvent)
    assert (noise.count, threshold.count) == (2, 2)
    assert noise.count / (2 * noise.noise_multiplier**2) == pytest.approx(0.5)
    assert threshold.count * threshold.delta == pytest.approx(5e-7)
    parameters = method.parameters()
    assert parameters["columns"] == ["trade", "title"]
    assert parameters["scale"] == pytest.approx(noise.noise_multiplier)
    several = ready(of, unit=dataclasses.replace(UNIT, max_rows=4, id_column="id"), rho=0.5)
    assert several.parameters()["scale"] == pytest.approx(4 * parameters["scale"])
    assert several.parameters()["threshold"] > parameters["threshold"] + 3


def test_what_is_not_ready_does_nothing():
    of = schema(TRADE)
    bare = UnseenLevels()
    assert bare.parameters() == {}
    facts = {"rho": 1.0, "unit": UNIT, "nominal_rows": 10}
    with pytest.raises(UncalibratedError):
        bare.calibrate(schema=of, **facts)
    with pytest.raises(UncalibratedError):
        bare.within(Decimal("1e-6")).calibrate(schema=schema(), **facts)
    with pytest.raises(UncalibratedError):
        bare.events(schema=of, unit=UNIT)
    with pytest.raises(SpecError):
        make_generator("levels", {"delta": "1e-9"}, pure=False)
    foreign = dataclasses.replace(measured(of, trade=["a"]), kind="histogram")
    with pytest.raises(SpecError):
        ready(of).found_schema(foreign, schema=of, provenance="")


def test_what_is_shown_is_a_schema_rows_of_it_and_a_file_that_a_dictionary_reads(tmp_path):
    of = schema({**TRADE, "nullable": True, "other": "rest"}, {**TRADE, "name": "title"})
    cells = ['a "b", c', "=d", "other"] * 50 + [None] * 50
    measurement = measured(of, trade=cells, title=["Dr"] * 200)
    method = ready(of)
    shown = method.found_schema(measurement, schema=of, provenance="earlier release: r")
    assert [column.levels for column in shown.released] == [
        ("=d", 'a "b", c', "other", "rest"), ("Dr", "other"),
    ]  # fmt: skip
    assert {column.provenance for column in shown.released} == {"earlier release: r"}
    rows = method.model(measurement, schema=of).sample(2000, rng=np.random.default_rng(2)).frame()
    shares = rows["trade"].fillna("missing").value_counts(normalize=True)
    assert shares["=d"] == pytest.approx(50 / 400, abs=0.05)
    assert shares["missing"] == pytest.approx(50 / 400, abs=0.05)
    assert shares["rest"] == pytest.approx(200 / 400, abs=0.08)  # of 400 rows that the plan names
    for name, data in method.level_files(measurement).items():
        (tmp_path / name).write_bytes(data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["levels-001.csv", "levels-002.csv"]
    dictionary = tmp_path / "schema.yaml"
    dictionary.write_text(
        "{name: t, columns: [{name: trade, kind: categorical, levels_file: levels-001.csv,"
        " other: rest}, {name: title, kind: categorical, levels_file: levels-002.csv}]}"
    )
    trade, title = PublicSchema.from_mapping(read_dictionary(dictionary)).released
    assert trade.levels == ("=d", 'a "b", c', "other", "rest")
    assert title.levels == ("Dr",)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({**TRADE, "levels": ["a"]}, "unseen: nobody knows the levels"),
        ({**TRADE, "fill": "a"}, "unseen: nobody knows the levels"),
        ({**TRADE, "hash_buckets": 4}, "hash_buckets: every text has a bucket"),
        ({**TRADE, "kind": "ordinal"}, "unseen: has no meaning"),
        ({**TRADE, "kind": "text"}, "free text is not released"),
        ({**TRADE, "unseen": "yes"}, "unseen: expected true or false"),
        ({**TRADE, "other": " x"}, "other: expected printable text of at most"),
        (
            {**TRADE, "other": "X", "normaliser": "casefold"},
            "other: expected printable text in lower case",
        ),
        (
            {"name": "trade", "kind": "categorical"},
            "or `unseen: true` and generator.method: levels",
        ),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(column, said):
    with pytest.raises(SchemaError, match=said):
        schema(column)


def test_a_constraint_on_levels_that_nobody_knows_is_refused():
    never = {"name": "n", "never": {"trade": "smith", "age": 3}}
    with pytest.raises(SchemaError, match="constraint n: column trade has unseen: true"):
        PublicSchema.from_mapping({"name": "t", "columns": [AGE, TRADE], "constraints": [never]})
