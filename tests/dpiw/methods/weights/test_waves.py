"""Fourier features with exact phases: any order, any block, close to the cosines they stand for."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpiw.data.schema import Column, ColumnKind, PublicSchema, ScaledTable
from dpiw.methods.weights.features import FourierMap
from dpiw.methods.weights.waves import STEPS, Waves
from tests.dpiw.methods.weights.conftest import mixed_schema, numeric_schema, uniform_rows

SCHEMAS = {"mixed": mixed_schema(), "numeric": numeric_schema(3), "wide": numeric_schema(60)}
SCALES = {"usual": (1.0, 3.0), "huge": (1e3,), "tiny": (1e-9,)}


def waves_of(schema: PublicSchema, scales: tuple[float, ...] = (1.0,)) -> Waves:
    return Waves(schema=schema, frequencies=7, scales=scales, omega_seed=5)


def phases_of(waves: Waves, rows: ScaledTable) -> list[Fraction]:
    """Of each row and frequency, in rational numbers, of the same cells and tables."""
    cells, codes = waves._cells(rows), waves._codes(rows)
    found = []
    for i, j in product(range(rows.rows), range(waves.frequencies)):
        numbers = zip(cells[i], waves._numbers[:, j], strict=True)
        levels = zip(codes, waves._levels, strict=True)
        phase = sum((Fraction(cell) * Fraction(step) for cell, step in numbers), Fraction(0))
        found.append(sum((Fraction(table[own[i], j]) for own, table in levels), phase))
    return found


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("name", SCHEMAS)
def test_phases_are_exact_in_every_order(name: str, scales: str) -> None:
    waves, rng = waves_of(SCHEMAS[name], SCALES[scales]), np.random.default_rng(1)
    rows = uniform_rows(SCHEMAS[name], 6, rng)
    exact = phases_of(waves, rows)
    rounded = np.array([float(one) for one in exact])
    assert list(map(Fraction, rounded)) == exact
    rounded = rounded.reshape(rows.rows, -1)
    cells, numbers = waves._cells(rows), waves._numbers
    for order in (np.arange(len(numbers)), rng.permutation(len(numbers))):
        phases = np.zeros_like(rounded)
        for j in order:
            phases += cells[:, j, None] * numbers[j]
        for own, table in zip(waves._codes(rows), waves._levels, strict=True):
            phases += table[own]
        assert np.array_equal(phases, rounded)
    assert rounded.min() > 0  # so that cutting down is rounding down
    place = rounded.astype(np.int64) % STEPS
    read = np.hstack([waves._circle[place], waves._circle[place + STEPS]])
    assert np.array_equal(waves.matrix(rows), read)


@pytest.mark.parametrize("name", SCHEMAS)
def test_they_are_the_cosines_and_sines_to_one_step(name: str) -> None:
    schema, rng = SCHEMAS[name], np.random.default_rng(2)
    rows = uniform_rows(schema, 300, rng)
    waves = waves_of(schema, (2.0,))
    angle = schema.centred(rows) @ (2.0 * FourierMap(schema, 7, None, 5).omega)
    expected = np.hstack([np.cos(angle), np.sin(angle)]) / np.sqrt(7)
    assert np.abs(waves.matrix(rows) - expected).max() <= np.pi / STEPS / np.sqrt(7) * 1.01


def test_no_row_is_longer_than_one() -> None:
    """Cells that no schema's box holds are moved into it; unknown levels are the missing one."""
    schema = PublicSchema(
        name="odd",
        columns=(
            Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0, nullable=True),
            Column(name="k", kind=ColumnKind.CATEGORICAL, levels=("a", "b")),
        ),
    )
    cells = {
        "x": np.array([np.nan, np.inf, -np.inf, 1e300, -3.0, 0.5]),
        "k": np.array([0, 1, -1, 7, 2, 1]),
    }
    found = waves_of(schema).matrix(ScaledTable(cells, 6))
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(6), abs=1e-12)


def test_many_rows_are_their_blocks() -> None:
    schema = SCHEMAS["mixed"]
    rows = uniform_rows(schema, 301, np.random.default_rng(3))
    whole = waves_of(schema).matrix(rows)
    parts = [waves_of(schema).matrix(part) for part in rows.batches(77)]
    assert np.array_equal(whole, np.vstack(parts))
    assert waves_of(schema).matrix(rows.take(np.arange(0))).shape == (0, 14)
