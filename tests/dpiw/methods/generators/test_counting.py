"""Counts against a naive twin; noise bookkeeping against closed forms."""

import itertools
from collections import Counter

import numpy as np
import pytest

from dpiw.methods.generators import counting
from dpiw.methods.generators.counting import ContingencyCounter
from dpiw.methods.generators.marginal_noise import (
    marginal_sensitivity,
    noise_scale,
    noise_size,
    noise_variance,
)
from dpiw.privacy.units import NeighbouringRelation, NoiseKind
from tests.support.worlds import unit_of

SIZES = (3, 1, 4, 2, 5)


def _codes(rows, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, size, rows) for size in SIZES]).astype(np.int32)


def _naive(codes, columns):
    found = Counter(tuple(row[list(columns)]) for row in codes)
    table = np.zeros([SIZES[j] for j in columns], dtype=np.int64)
    for cell, count in found.items():
        table[cell] = count
    return table


@pytest.mark.parametrize("rows", [0, 1, 137])
def test_counts_equal_the_naive_twin(rows):
    codes = _codes(rows)
    counter = ContingencyCounter(lambda: [codes], SIZES)
    # Every order, so that the kept prefix is used, replaced and used again.
    for length in (1, 2, 3, 4):
        for columns in itertools.permutations(range(5), length):
            table = counter.count(columns)
            assert table.dtype == np.int64
            assert np.array_equal(table, _naive(codes, columns))


@pytest.mark.parametrize("rows", [0, 1, 137])
def test_any_split_into_batches_and_passes_counts_the_same(rows, monkeypatch):
    codes, passes = _codes(rows), []
    marginals = [c for n in (1, 2, 3) for c in itertools.combinations(range(5), n)]
    whole = [*ContingencyCounter(lambda: [codes], SIZES).each(marginals)]
    # A table whose codes are too many to be kept, and cells for a few marginals a pass.
    monkeypatch.setattr(counting, "HELD_BYTES", 100)
    monkeypatch.setattr(counting, "_HELD_CELLS", 50)

    def batches():
        passes.append(1)
        return (codes[start : start + 20] for start in range(0, max(1, rows), 20))

    counter = ContingencyCounter(batches, SIZES)
    for _ in range(2):
        counted = [*counter.each(marginals)]
        assert all(np.array_equal(a, b) for a, b in zip(counted, whole, strict=True))
    assert len(passes) == 1 if rows < 2 else len(passes) > 4
    assert [*counter.each([])] == []


@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
@pytest.mark.parametrize("relation", list(NeighbouringRelation))
@pytest.mark.parametrize("rows", [1, 3])
def test_marginal_sensitivity_bounds_every_move_and_is_attained(kind, relation, rows):
    bound = marginal_sensitivity(unit_of(relation, rows), kind)
    order = 1 if kind is NoiseKind.LAPLACE else 2
    moves = []
    steps = [np.eye(3)[j] for j in range(3)]
    if relation is NeighbouringRelation.REPLACE_ONE:
        steps = [new - old for new in steps for old in steps]
    for chosen in itertools.product(steps, repeat=rows):
        moves.append(np.linalg.norm(np.sum(chosen, axis=0), order))
    assert max(moves) <= bound * (1 + 1e-12)
    assert max(moves) >= bound * (1 - 1e-12)


def test_noise_scale_is_never_below_the_declared_multiplier():
    for multiplier in np.random.default_rng(1).uniform(0.01, 100, 200):
        for relation in NeighbouringRelation:
            unit = unit_of(relation, 3)
            scale = noise_scale(NoiseKind.LAPLACE, multiplier=float(multiplier), unit=unit)
            assert scale / marginal_sensitivity(unit, NoiseKind.LAPLACE) >= multiplier
            assert scale <= multiplier * marginal_sensitivity(unit, NoiseKind.LAPLACE) * 1.0001


@pytest.mark.parametrize("kind", [NoiseKind.GAUSSIAN, NoiseKind.LAPLACE])
def test_noise_size_and_variance_are_the_laws_moments(kind):
    rng = np.random.default_rng(2)
    draws = (rng.laplace if kind is NoiseKind.LAPLACE else rng.normal)(0, 7.0, 400_000)
    # Standard errors below 0.3%; five of them.
    assert noise_size(kind, 7.0) == pytest.approx(np.abs(draws).mean(), rel=0.015)
    assert noise_variance(kind, 7.0) == pytest.approx(draws.var(), rel=0.02)
