"""PrivBayes: what it declares is what it does, and it learns what is there to learn."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpiw.data.discretisation import Domain
from dpiw.data.schema import Column, ColumnKind, PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.methods.generators.registry import make_generator
from dpiw.privacy import mechanisms
from dpiw.privacy.events import ExponentialMechanismEvent, GaussianEvent
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NeighbouringRelation, NoiseKind
from tests.support.worlds import UNIT, levels, unit_of

LEVELS = ("a", "b", "c", "d")


def _schema(columns, *, target=None):
    return levels(columns, 4, target=target)


def _table(schema, cells):
    names = [column.name for column in schema.released]
    frame = pd.DataFrame(np.asarray(cells, dtype=object).reshape(-1, len(names)), columns=names)
    return PrivateTable(schema=schema, scaled=schema.scale(frame))


def _ready(schema, *, rho=1.0, rows=2000, **settings):
    unit = settings.pop("unit", UNIT)
    return PrivBayes(**settings).calibrate(rho=rho, schema=schema, unit=unit, nominal_rows=rows)


def _chain(rows, columns, seed=0):
    """Each column repeats the one before with probability 0.9."""
    rng = np.random.default_rng(seed)
    codes = np.empty((rows, columns), dtype=int)
    codes[:, 0] = rng.integers(0, 4, rows)
    for j in range(1, columns):
        keep = rng.random(rows) < 0.9
        codes[:, j] = np.where(keep, codes[:, j - 1], rng.integers(0, 4, rows))
    return np.array(LEVELS)[codes]


def _two_way_distance(one, two):
    """Mean total variation over all pairs of columns."""
    names = list(one.columns)
    found = []
    for i, first in enumerate(names):
        for second in names[:i]:
            tables = [
                pd.crosstab(frame[first], frame[second], normalize="all")
                .reindex(index=LEVELS, columns=LEVELS, fill_value=0.0)
                .to_numpy()
                for frame in (one, two)
            ]
            found.append(np.abs(tables[0] - tables[1]).sum() / 2)
    return float(np.mean(found))


# What it declares is what it does


def test_noise_and_selection_are_the_declared_ones(monkeypatch):
    """Residuals of one-way and family marginals; Kolmogorov-Smirnov level 1e-6 per case.

    The declared multipliers are accepted, 2/3 and 3/2 of them rejected; every selection runs with
    the declared epsilon and the unit's sensitivity, as often as declared.
    """
    schema = PublicSchema(
        name="wide",
        columns=tuple(
            Column(
                name=f"c{j}", kind=ColumnKind.CATEGORICAL, levels=tuple(f"v{k}" for k in range(120))
            )
            for j in range(12)
        ),
    )
    rng = np.random.default_rng(0)
    base = rng.integers(0, 120, 4000)
    cells = np.column_stack([(base + rng.integers(0, 2, 4000)) % 120 for _ in range(12)])
    names = [column.name for column in schema.released]
    frame = pd.DataFrame(np.char.add("v", cells.astype(str)), columns=names)
    table = PrivateTable(schema=schema, scaled=schema.scale(frame))
    for noise, relation, rows, norm in (
        (NoiseKind.GAUSSIAN, NeighbouringRelation.ADD_OR_REMOVE_ONE, 1, 1.0),
        (NoiseKind.GAUSSIAN, NeighbouringRelation.REPLACE_ONE, 2, 2 * 2**0.5),
        (NoiseKind.LAPLACE, NeighbouringRelation.ADD_OR_REMOVE_ONE, 2, 2.0),
        (NoiseKind.LAPLACE, NeighbouringRelation.REPLACE_ONE, 1, 2.0),
    ):
        unit = unit_of(relation, rows)
        ready = _ready(schema, rho=50.0, rows=10**7, noise=noise, unit=unit, max_cells=1 << 14)
        one_way, selection, family = ready.events(schema=schema, unit=unit)
        calls = []
        select = mechanisms.select

        def spy(scores, *, epsilon, sensitivity, noise):
            calls.append((epsilon, sensitivity))  # noqa: B023
            return select(scores, epsilon=epsilon, sensitivity=sensitivity, noise=noise)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(mechanisms, "select", spy)
            measurement = ready.measure(table, noise=SeededNoise(3))
        assert isinstance(selection, ExponentialMechanismEvent)
        reach = rows * (2.0 if relation is NeighbouringRelation.REPLACE_ONE else 1.0)
        assert calls == [(selection.epsilon, reach)] * selection.count

        codes = Domain.from_schema(schema, bins=2).codes(table.confidential())
        narrow = [
            measurement.arrays[f"one_way_{j}"] - np.bincount(codes[:, j], minlength=120)
            for j in range(12)
        ]
        wide = []
        for child, parents in measurement.facts["network"][1:]:
            exact = np.zeros(measurement.arrays[f"family_{child}"].shape)
            np.add.at(exact, tuple(codes[:, j] for j in (*parents, child)), 1)
            wide.append((measurement.arrays[f"family_{child}"] - exact).ravel()[:2000])
        law = stats.laplace if noise is NoiseKind.LAPLACE else stats.norm
        for event, residuals in ((one_way, narrow), (family, wide)):
            assert event.count == len(residuals)
            joined = np.concatenate(residuals)
            scale = event.noise_multiplier * norm
            assert stats.kstest(joined, law(scale=scale).cdf).pvalue > 1e-6
            for wrong in (2 / 3, 3 / 2):
                assert stats.kstest(joined, law(scale=wrong * scale).cdf).pvalue < 1e-6


def _neighbours():
    cells = _chain(300, 5)
    yield "one row removed", cells, cells[1:]
    yield "one row added", cells, np.vstack([cells, [["a", "d", "a", "d", "a"]]])
    yield "emptied", cells[:1], cells[:0]
    yield "unheard of level", cells, np.vstack([cells, [["?"] * 5]])


@pytest.mark.parametrize(("name", "one", "two"), list(_neighbours()))
def test_neighbouring_tables_meet_the_same_mechanisms(name, one, two, monkeypatch):
    """Same number, order, size and scale of mechanisms, if the selections come out the same."""
    schema = _schema(5, target=2)
    seen = []
    for cells in (one, two):
        trace = []

        def select(scores, *, trace=trace, **facts):
            trace.append((len(scores), facts["epsilon"], facts["sensitivity"]))
            return len(scores) // 2

        def noisy(counts, *, law, noise, trace=trace):
            trace.append((counts.shape, law))
            return np.zeros(counts.shape)

        with monkeypatch.context() as patch:
            patch.setattr(mechanisms, "select", select)
            patch.setattr(mechanisms, "noisy_counts", noisy)
            measurement = _ready(schema).measure(_table(schema, cells), noise=SeededNoise(1))
        seen.append((trace, dict(measurement.facts), sorted(measurement.arrays)))
    assert seen[0] == seen[1], name


def test_the_root_is_the_target_and_costs_nothing():
    schema = _schema(4, target=2)
    measurement = _ready(schema).measure(_table(schema, _chain(100, 4)), noise=SeededNoise(1))
    assert measurement.facts["network"][0] == [2, []]
    first = _ready(_schema(4)).measure(_table(_schema(4), _chain(100, 4)), noise=SeededNoise(1))
    assert first.facts["network"][0] == [0, []]


def test_caps_follow_from_noise_and_nominal_size():
    """theta-usefulness: cells <= n0 / (theta * expected noise), and never more than max_cells."""
    schema = _schema(3)
    ready = _ready(schema, rho=0.1, rows=1000)
    family = ready.events(schema=schema, unit=UNIT)[2]
    assert isinstance(family, GaussianEvent)
    expected = 1000 / (2.0 * np.sqrt(2 / np.pi) * family.noise_multiplier)
    assert ready.cell_cap() == int(expected)
    assert _ready(schema, rho=1e6, rows=10**9, max_cells=64).cell_cap() == 64
    with pytest.raises(UncalibratedError):
        PrivBayes().cell_cap()
    measurement = _ready(schema, rho=1e6, rows=10**9, max_cells=16).measure(
        _table(schema, _chain(500, 3)), noise=SeededNoise(1)
    )
    assert all(measurement.arrays[f"family_{j}"].size <= 16 for j in (1, 2))


def test_small_nominal_sizes_get_fewer_bins():
    schema = PublicSchema(
        name="number", columns=(Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0),)
    )
    table = PrivateTable(schema=schema, scaled=schema.scale(pd.DataFrame({"x": [0.5]})))
    for rows, bins in ((125, 5), (10**6, 16)):
        measurement = _ready(schema, rows=rows).measure(table, noise=SeededNoise(1))
        assert measurement.facts["bins"] == bins
        assert measurement.arrays["one_way_0"].shape == (bins,)


def test_a_column_without_parents_is_measured_again():
    """Independent columns under much noise: as many marginals as declared, and both are used."""
    schema = _schema(4)
    ready = _ready(schema, rho=1e-4)
    cells = np.random.default_rng(0).choice(list(LEVELS), (500, 4))
    measurement = ready.measure(_table(schema, cells), noise=SeededNoise(1))
    assert [parents for _, parents in measurement.facts["network"]] == [[], [], [], []]
    assert sorted(measurement.arrays) == [
        "family_1", "family_2", "family_3", "one_way_0", "one_way_1", "one_way_2", "one_way_3",
    ]  # fmt: skip
    again = measurement.arrays["family_1"]
    assert again.shape == (4,)
    assert not np.array_equal(again, measurement.arrays["one_way_1"])


# It learns what is there to learn


@pytest.mark.parametrize("noise", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
def test_strong_dependence_is_learnt_at_low_noise(noise):
    schema = _schema(6)
    cells = _chain(5000, 6)
    ready = _ready(schema, rho=2000.0, rows=5000, noise=noise)
    model = ready.model(ready.measure(_table(schema, cells), noise=SeededNoise(1)), schema=schema)
    sampled = model.sample(50_000, rng=np.random.default_rng(1)).frame()
    real = pd.DataFrame(cells, columns=sampled.columns)
    # Independence would give about 0.4; sampling error of 16 cells is about 0.01.
    assert _two_way_distance(real, sampled) < 0.02
    baseline = make_generator("histogram", {}, pure=False).calibrate(
        rho=2000.0, schema=schema, unit=UNIT, nominal_rows=5000
    )
    independent = baseline.model(
        baseline.measure(_table(schema, cells), noise=SeededNoise(1)), schema=schema
    ).sample(50_000, rng=np.random.default_rng(1))
    assert _two_way_distance(real, independent.frame()) > 0.3


def test_three_way_dependence_needs_two_parents():
    """c = a xor b: every pair is independent, only a family of degree 2 can say it."""
    schema = PublicSchema(
        name="xor", columns=tuple(Column(name=name, kind=ColumnKind.BOOLEAN) for name in "abc")
    )
    bits = np.random.default_rng(0).integers(0, 2, (4000, 2)).astype(bool)
    cells = pd.DataFrame({"a": bits[:, 0], "b": bits[:, 1], "c": bits[:, 0] ^ bits[:, 1]})
    table = PrivateTable(schema=schema, scaled=schema.scale(cells))
    agreement = []
    for degree in (1, 2):
        ready = _ready(schema, rho=2000.0, rows=4000, degree=degree)
        model = ready.model(ready.measure(table, noise=SeededNoise(1)), schema=schema)
        frame = model.sample(4000, rng=np.random.default_rng(1)).frame()
        agreement.append(np.mean((frame["a"] ^ frame["b"]) == frame["c"]))
    assert agreement[0] == pytest.approx(0.5, abs=0.05)
    assert agreement[1] > 0.99


# Awkward tables


@pytest.mark.parametrize("columns", [1, 2])
def test_narrow_schemas(columns):
    schema = _schema(columns)
    cells = np.repeat(np.array([["a"], ["c"]]), columns, axis=1).repeat(500, axis=0)
    ready = _ready(schema, rho=100.0, rows=1000)
    events = ready.events(schema=schema, unit=UNIT)
    assert [event.count for event in events] == ([1] if columns == 1 else [2, 1, 1])
    model = ready.model(ready.measure(_table(schema, cells), noise=SeededNoise(1)), schema=schema)
    frame = model.sample(4000, rng=np.random.default_rng(1)).frame()
    assert np.mean(frame["c0"] == "a") == pytest.approx(0.5, abs=0.05)
    if columns == 2:
        assert np.mean(frame["c0"] == frame["c1"]) > 0.98


# Refusals


@pytest.mark.parametrize(
    "settings",
    [
        {"degree": 0},
        {"degree": 5},
        {"bins": 1},
        {"max_cells": 3},
        {"max_cells": 1 << 21},
        {"usefulness": 0.0},
        {"usefulness": float("inf")},
        {"noise_penalty": -0.1},
        {"one_way_share": 0.0},
        {"one_way_share": 0.5, "selection_share": 0.5},
        {"noise": NoiseKind.SPHERICAL},
    ],
)
def test_inadmissible_settings_are_refused(settings):
    with pytest.raises(SpecError, match=r"generator\.settings"):
        PrivBayes(**settings)


def test_too_wide_schemas_are_refused_before_data():
    schema = _schema(120)
    with pytest.raises(SpecError, match="degree"):
        _ready(schema, degree=2)
    assert _ready(schema, degree=1).calibrated is not None
