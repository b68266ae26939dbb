"""PrivBayes: what it declares is what it does, and it learns what is there to learn."""

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.schema.schema import ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.errors import SpecError, UncalibratedError
from dpiw.methods.generators.bayesian_network import _new_families
from dpiw.methods.generators.histogram import Histogram
from dpiw.methods.generators.privbayes import PrivBayes
from dpiw.privacy.events import GaussianEvent
from dpiw.privacy.randomness import SeededNoise
from dpiw.privacy.units import NoiseKind
from tests.support.worlds import UNIT, coded, declared, flags, levels, numbers


def ready(schema, kind=PrivBayes, *, rho=1.0, rows=2000, unit=UNIT, **settings):
    return kind(**settings).calibrate(rho=rho, schema=schema, unit=unit, nominal_rows=rows)


def measured(schema, codes, **settings):
    return ready(schema, **settings).measure(coded(schema, codes), noise=SeededNoise(1))


def sampled(schema, codes, **settings):
    generator = ready(schema, **settings)
    drawn = generator.measure(coded(schema, codes), noise=SeededNoise(1))
    made = generator.model(drawn, schema=schema).sample(4000, rng=np.random.default_rng(1)).scaled
    return np.column_stack([made.columns[column.name] for column in schema.released])


def chain(rows, columns, seed=0):
    """Codes: each column repeats the one before with probability 0.9."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (rows, columns))
    for j in range(1, columns):
        codes[:, j] = np.where(rng.random(rows) < 0.9, codes[:, j - 1], codes[:, j])
    return codes


def two_way_distance(one, two):
    """Mean total variation over all pairs of columns."""
    found = []
    for pair in combinations(range(one.shape[1]), 2):
        tables = [
            np.bincount(codes[:, pair] @ [4, 1], minlength=16) / len(codes) for codes in (one, two)
        ]
        found.append(np.abs(tables[0] - tables[1]).sum() / 2)
    return np.mean(found)


@pytest.mark.parametrize(("target", "root"), [(2, 2), (None, 0)])
def test_the_root_is_the_target_and_costs_nothing(target, root):
    drawn = measured(levels(4, 4, target=target), chain(100, 4))
    assert drawn.facts["network"][0] == [root, []]


def test_caps_follow_from_noise_and_nominal_size():
    """theta-usefulness: cells <= n0 / (theta * expected noise), and never more than max_cells."""
    schema, large = levels(3, 4), {"rho": 1e6, "rows": 10**9}
    generator = ready(schema, rho=0.1, rows=1000)
    family = generator.events(schema=schema, unit=UNIT)[2]
    assert isinstance(family, GaussianEvent)
    expected = 1000 / (2.0 * np.sqrt(2 / np.pi) * family.noise_multiplier)
    assert generator.cell_cap() == int(expected)
    assert ready(schema, **large, max_cells=64).cell_cap() == 64
    with pytest.raises(UncalibratedError):
        PrivBayes().cell_cap()
    drawn = measured(schema, chain(500, 3), **large, max_cells=16)
    assert all(drawn.arrays[f"family_{j}"].size <= 16 for j in (1, 2))


WIDE = re.compile(r"too few for (\d+) of (\d+) columns with column (\w+),")


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(2, 12), min_size=1, max_size=7),
    target=st.integers(0, 6) | st.none(), rho=st.floats(1e-3, 1), rows=st.integers(10, 3000),
)  # fmt: skip
def test_what_no_family_can_hold_is_warned_of(sizes, target, rho, rows):
    """As many columns as are never a child of the target, or of the narrowest column."""
    target = None if target is None else target % len(sizes)
    schema = declared(
        *({"name": f"c{j}", "kind": "categorical", "levels": [f"v{k}" for k in range(size)]}
          | ({"role": "target"} if j == target else {}) for j, size in enumerate(sizes))
    )  # fmt: skip
    generator = ready(schema, rho=rho, rows=rows)
    partner = sizes.index(min(sizes)) if target is None else target
    others = [j for j in range(len(sizes)) if j != partner]
    held = {f.child for f in _new_families([partner], others, sizes, 2, generator.cell_cap())}
    found = [
        WIDE.search(text).groups() for text in generator.warnings(schema=schema, nominal_rows=rows)
    ]
    wide = len(others) - len(held)
    assert found == ([(str(wide), str(len(others)), f"c{partner}")] if wide else [])
    if wide == len(others) > 0 and target is not None:
        codes = np.random.default_rng(rows).integers(0, 2, (50, len(sizes)))
        drawn = generator.measure(coded(schema, codes), noise=SeededNoise(1))
        assert all(target not in parents for _, parents in drawn.facts["network"])


@pytest.mark.parametrize(("rows", "bins"), [(125, 5), (10**6, 16)])
def test_small_nominal_sizes_get_fewer_bins(rows, bins):
    schema = numbers(1)
    table = PrivateTable(schema=schema, scaled=ScaledTable({"x0": np.array([0.5])}, 1))
    drawn = ready(schema, rows=rows).measure(table, noise=SeededNoise(1))
    assert drawn.facts["bins"] == bins
    assert drawn.arrays["one_way_0"].shape == (bins,)


def test_a_column_without_parents_is_measured_again():
    """Independent columns under much noise: as many marginals as declared, and both are used."""
    codes = np.random.default_rng(0).integers(0, 4, (500, 4))
    drawn = measured(levels(4, 4), codes, rho=1e-4)
    assert [parents for _, parents in drawn.facts["network"]] == [[], [], [], []]
    families, one_way = {"family_1", "family_2", "family_3"}, {f"one_way_{j}" for j in range(4)}
    assert set(drawn.arrays) == families | one_way
    assert drawn.arrays["family_1"].shape == (4,)
    assert not np.array_equal(drawn.arrays["family_1"], drawn.arrays["one_way_1"])


@pytest.mark.parametrize("noise", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
def test_strong_dependence_is_learnt_at_low_noise(noise):
    """Independence, which the histogram has, is at about 0.4; the error of 16 cells about 0.01."""
    schema, codes = levels(6, 4), chain(5000, 6)
    facts = {"rho": 2000.0, "rows": 5000, "noise": noise}

    def distance(kind):
        generator = ready(schema, kind, **facts)
        drawn = generator.measure(coded(schema, codes), noise=SeededNoise(1))
        model = generator.model(drawn, schema=schema)
        made = model.sample(50_000, rng=np.random.default_rng(1)).scaled.columns
        return two_way_distance(codes, np.column_stack([*made.values()]))

    assert distance(PrivBayes) < 0.02
    assert distance(Histogram) > 0.3


def test_three_way_dependence_needs_two_parents():
    """c = a xor b: every pair is independent, only a family of degree 2 can say it."""
    bits = np.random.default_rng(0).integers(0, 2, (4000, 2))
    codes = np.column_stack([bits, bits.sum(axis=1) % 2])
    for degree, share in ((1, 0.5), (2, 1.0)):
        made = sampled(flags(*"abc"), codes, rho=2000.0, rows=4000, degree=degree)
        agreement = np.mean((made[:, 0] + made[:, 1]) % 2 == made[:, 2])
        assert agreement == pytest.approx(share, abs=0.05 if degree == 1 else 0.01)


@pytest.mark.parametrize("columns", [1, 2])
def test_narrow_schemas(columns):
    schema, codes = levels(columns, 4), np.repeat([[0], [2]], columns, axis=1).repeat(500, axis=0)
    events = ready(schema, rho=100.0, rows=1000).events(schema=schema, unit=UNIT)
    assert [event.count for event in events] == ([1] if columns == 1 else [2, 1, 1])
    made = sampled(schema, codes, rho=100.0, rows=1000)
    assert np.mean(made[:, 0] == 0) == pytest.approx(0.5, abs=0.05)
    assert np.mean(made[:, 0] == made[:, -1]) > 0.98


def test_too_wide_schemas_are_refused_before_data():
    with pytest.raises(SpecError, match="degree"):
        ready(levels(120, 4), degree=2)
    assert ready(levels(120, 4), degree=1).calibrated
