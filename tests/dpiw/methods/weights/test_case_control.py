"""Some rows that stand for many: every rare one is there, and sums over them are those of all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpiw.data.scaled import ScaledTable
from dpiw.methods.weights.measured.many_rows import drawn

ROWS = 40_000
SHARES = np.array([0.6, 0.3, 0.09, 0.009, 9e-4, 1e-4])


def table(rows=ROWS, *, seed=1):
    """A number of each row, its place, and a level."""
    rng = np.random.default_rng(seed)
    levels = rng.choice(SHARES.size, rows, p=SHARES / SHARES.sum()).astype(np.int32)
    return ScaledTable(
        {"x": rng.random(rows), "place": np.arange(rows, dtype=float), "level": levels}, rows
    )


def codes(rows):
    return rows.columns["level"].astype(np.intp)[None]


def none(rows):
    return np.zeros((0, rows.rows), dtype=np.intp)


def some_of(of, rows, *, coded=codes, block=999):
    def placed():
        start = 0
        for batch in of.batches(block):
            yield slice(start, start + batch.rows), batch
            start += batch.rows

    return drawn(placed, coded, rows=rows, of=of.rows)


def test_rare_rows_are_all_there_and_others_as_many_as_asked_for():
    whole = table()
    some = some_of(whole, 3000)
    counts, there = (np.bincount(codes(each)[0], minlength=6) for each in (whole, some.rows))
    wanted = 0.5 * 3000 / 7  # of six levels, and of what is not met
    assert counts[-1] < counts[-2] < wanted < counts[-3]
    assert np.array_equal(there[-2:], counts[-2:])
    assert there[-3] == pytest.approx(wanted, rel=0.6)  # its share is that of the first 3000
    assert there[:3] / counts[:3] == pytest.approx(3000 / ROWS, rel=0.2)
    assert 3000 < there.sum() < 4500


def test_what_was_drawn_is_told():
    whole = table()
    some = some_of(whole, 3000)
    assert np.array_equal(some.indices, some.rows.columns["place"])
    assert np.all(np.diff(some.indices) > 0)
    assert some.rows.equals(whole.take(some.indices))
    of_level = [some.log_weights[codes(some.rows)[0] == level] for level in range(6)]
    assert all(np.ptp(logs) < 1e-12 for logs in of_level)  # one weight each
    assert [logs[0] for logs in of_level[:3]] == pytest.approx([np.log(ROWS / 3000)] * 3)
    assert [logs[0] for logs in of_level[4:]] == [0, 0]


def test_weighted_sums_are_those_of_all_rows():
    """Of 200 tables, each sum within chance, and on average (5 standard errors)."""
    off = []
    for seed in range(200):
        whole = table(4000, seed=seed)
        some = some_of(whole, 500)
        weights = np.exp(some.log_weights)
        assert weights.sum() == pytest.approx(4000, rel=0.05)
        level = codes(some.rows)[0]
        sums = [weights @ some.rows.columns["x"], *np.bincount(level, weights, minlength=6)]
        truth = [whole.columns["x"].sum(), *np.bincount(codes(whole)[0], minlength=6)]
        off.append(np.subtract(sums, truth))
    errors = np.std(off, axis=0) / np.sqrt(len(off))
    assert np.all(np.abs(np.mean(off, axis=0)) <= 5 * errors + 1e-9)
    plain = np.sqrt(4000 * SHARES * (8 - 1))  # of as many rows drawn alike
    assert np.std(off, axis=0)[4] < plain[3] / 2  # and of a rare level much nearer


def test_without_codes_they_are_evenly_spaced():
    some = some_of(table(), 400, coded=none)
    assert some.indices.size == 400
    assert set(np.diff(some.indices)) <= {99, 100, 101}  # but for rounding
    assert some.log_weights == pytest.approx(np.full(400, np.log(100)))


def test_a_level_that_the_first_rows_lack_is_all_there():
    """Few as they may be: there may be as many as one of the first rows stands for."""
    whole = table()
    whole.columns["level"][whole.columns["level"] == 5] = 0
    whole.columns["level"][[30_000, 35_000]] = 7
    assert np.count_nonzero(codes(some_of(whole, 1000).rows) == 7) == 2


@pytest.mark.parametrize(("asked", "levels"), [(6000, 3000), (1000, 400), (1000, 4000)])
def test_columns_of_many_levels_add_no_more_than_half(asked, levels):
    """Each of a few rows, or of none of the first ones: they cannot all be there."""
    whole = table()
    rng = np.random.default_rng(3)
    whole.columns["level"] = rng.integers(levels, size=ROWS).astype(np.int32)
    some = some_of(whole, asked)
    assert asked <= some.rows.rows < asked * 1.55


@settings(deadline=None)
@given(
    rows=st.integers(1, 300), asked=st.integers(1, 400), block=st.integers(1, 50),
    levels=st.integers(1, 9), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_table_in_any_blocks(rows, asked, block, levels, seed):
    rng = np.random.default_rng(seed)
    columns = {"place": np.arange(rows), "level": rng.geometric(0.5, rows).clip(max=levels) - 1}
    some = some_of(ScaledTable(columns, rows), asked, block=block)
    assert np.array_equal(some.indices, some.rows.columns["place"])
    assert some.indices.size >= min(rows, asked) - 1
    assert np.all(some.log_weights >= 0)
    if asked >= rows:
        assert some.indices.size == rows
