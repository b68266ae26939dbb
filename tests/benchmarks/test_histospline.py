"""The page about places inside bins, on tables whose answer is known; no data folder."""

from __future__ import annotations

import numpy as np
import pytest

from dpiw.data.discretisation import Bins
from dpiw.methods.generators.histospline import Histospline
from tests.benchmarks.scripts import load

script = load("histospline")
BINS = Bins(edges=np.linspace(0.0, 1.0, 5), values=4, span=0, nullable=False)


def known(people):
    counts = np.bincount(np.minimum((people * 4).astype(int), 3), minlength=4) / len(people)
    return np.sort(people), counts


def test_people_that_lie_evenly_have_neither_distance_nor_error() -> None:
    people, counts = known((np.arange(40_000) + 0.5) / 40_000)
    rows = script.rows_of(None, BINS, counts)
    assert script.distance(people, rows) == pytest.approx(0, abs=1e-3)
    assert np.abs(script.share_errors(people, rows, BINS, counts)).max() < 0.02


def test_people_on_one_side_of_a_bin_are_as_far_as_arithmetic_says() -> None:
    """All in the lower half of each bin: evenly spread rows are an eighth of a bin's width off, and
    of the share t of a bin's rows below a point, 2 t of its people are, at most all."""
    middles = (np.arange(10_000) + 0.5) / 10_000
    people, counts = known(np.concatenate([(j + middles / 2) / 4 for j in range(4)]))
    rows = script.rows_of(None, BINS, counts)
    assert script.distance(people, rows) == pytest.approx(1 / 16, rel=0.01)
    t = np.mod(script.PROBABILITIES * 4, 1)
    t = t[(t > 0.02) & (t < 0.98)]
    wanted = (np.minimum(2 * t, 1) - t) / np.sqrt(t * (1 - t))
    assert script.share_errors(people, rows, BINS, counts) == pytest.approx(wanted, abs=0.03)


def test_a_spline_that_knows_the_law_is_nearer() -> None:
    people, counts = known(np.random.default_rng(4).beta(2, 5, 40_000))
    spline = Histospline.through(counts, BINS, variance=0)
    apart = [script.distance(people, script.rows_of(s, BINS, counts)) for s in (None, spline)]
    assert apart[1] < 0.75 * apart[0]
