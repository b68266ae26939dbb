"""More base rows than are fitted: some that stand for all, corrections to all, batches."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.optimize import minimize

from dpiw.data.scaled import ScaledTable
from dpiw.errors import WeightError
from dpiw.methods.weights.measured import many_rows as streaming
from dpiw.methods.weights.measured.base_rows import BaseRows, Tilted
from dpiw.methods.weights.measured.credit import reweight
from dpiw.methods.weights.measured.many_rows import StreamedRows, by_weight, corrected, drawn
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import tilt
from tests.dpiw.methods.weights.measuring import above
from tests.support.around import around

ROWS, FITTED = 30_000, 2000


def features(table):
    return np.column_stack([table.columns[name] for name in "abcd"])


def table(rows=ROWS):
    rng = np.random.default_rng(5)
    return ScaledTable({name: rng.uniform(-0.5, 0.5, rows) for name in "abcd"}, rows)


def codes(table):
    """Whether the last is what few rows have."""
    return (table.columns["d"] == 1.0).astype(np.intp)[None]


class Plain:
    """What `Scoring` is to features that need no map."""

    rows = 16_384

    def __init__(self, features=features, codes=codes):
        self.features, self.codes = features, codes

    def __call__(self, theta):
        return lambda rows, logs: Tilted.of(self.features(rows), theta, logs)


def streamed(rows):
    return StreamedRows(rows.rows, lambda: rows.batches(999), Plain())


CLOSE = 1.5 * 0.025 * 4 / ROWS
"""Where steps end, by a covariance that is right to 1.5 and faint noise."""


@pytest.mark.parametrize(("rows", "batch"), [(1, 9), (7, 3), (100, 6), (100, 30)])
def test_blocks_are_the_rows_in_order(rows, batch, monkeypatch):
    monkeypatch.setattr(streaming, "_BLOCK", 7)
    scaled = table(rows)
    base = StreamedRows(rows, lambda: scaled.batches(batch), Plain())
    blocks = [*base.mapped(lambda at, block: (at, block))]
    assert np.array_equal(np.vstack([block for _, block in blocks]), features(scaled))
    assert [at.start for at, _ in blocks] == [
        sum(len(b) for _, b in blocks[:i]) for i in range(len(blocks))
    ]
    assert max(len(block) for _, block in blocks) <= 7
    with pytest.raises(WeightError):
        [*StreamedRows(rows + 1, lambda: scaled.batches(9), Plain()).mapped(lambda at, _: at)]


def test_a_tilting_of_some_rows_is_corrected_to_all():
    rows = table()
    targets = Targets(
        means=np.array([0.05, -0.04, 0.0, 0.02]), covariance=1e-8 * np.eye(4), rows=1e6
    )
    some = tilt(BaseRows(features(rows)[:FITTED]), targets, credit=10.0)
    whole = tilt(BaseRows(features(rows)), targets, credit=10.0)
    tilting = corrected(some, streamed(rows), targets)
    assert tilting.log_weights.shape == (ROWS,)
    assert np.exp(tilting.log_weights).sum() == pytest.approx(1)
    off, before = (above(whole, solved, targets) for solved in (tilting, some))
    assert off < CLOSE < before / 10
    assert np.linalg.norm(tilting.means - targets.means) < 2e-3  # chance makes 3e-3 of it
    fit = reweight(BaseRows(features(rows)[:FITTED]), targets, rng=np.random.default_rng(1))
    residual = replace(fit, tilt=tilting).residual  # the law's: alpha S theta, to the last bit
    assert residual == pytest.approx(10 * targets.covariance @ tilting.theta, rel=1e-12)


def counted_passes(monkeypatch):
    passes, counted = [], lambda base, _: passes.append(base.rows)
    around(BaseRows, "tilted", before=counted, replace=monkeypatch.setattr)
    return passes


@pytest.mark.parametrize("fitted", [700, FITTED])
def test_few_passes_over_all_rows_are_left_after_those_over_some(fitted, monkeypatch):
    """A pass over all rows costs as much as a fit to some: the solver alone would ask for more."""
    rows, solved = table(), functools.partial(tilt, credit=10.0)
    targets = Targets(means=np.array([0.3, -0.3, 0.25, 0.3]), covariance=1e-5 * np.eye(4), rows=1e6)
    monkeypatch.setattr(streaming, "MOST_FITTED", 2 * fitted)
    passes = counted_passes(monkeypatch)
    least = solved(BaseRows(features(rows)), targets)
    alone = passes.count(ROWS)
    some = solved(BaseRows(features(rows)[:fitted]), targets)
    passes.clear()
    tilting = corrected(some, streamed(rows), targets)
    assert passes.count(ROWS) == tilting.steps + 1 <= 4 < alone
    assert max(size for size in passes if size < ROWS) < 3 * fitted
    assert above(least, tilting, targets) < CLOSE
    assert tilting.gap >= above(least, tilting, targets)


FAR = Targets(means=np.array([0.3, -0.3, 0.25, 0.3]), covariance=1e-8 * np.eye(4), rows=1e6)


@functools.cache
def minimum():
    """Of all rows, by the solver; another method, which has its weights alone, finds no other."""
    base, ridge = BaseRows(features(table())), 10 * FAR.covariance
    solved = tilt(base, FAR, credit=10.0)

    def objective(theta):
        _, log_sum, means = base.tilted(theta)
        value = log_sum - theta @ FAR.means + theta @ ridge @ theta / 2
        return float(value), means - FAR.means + ridge @ theta

    optimum = minimize(
        objective, 0.9 * solved.theta, jac=True, method="BFGS", options={"gtol": 1e-7}
    )
    assert solved.theta == pytest.approx(np.asarray(optimum.x), abs=2e-3)
    return solved


@pytest.mark.parametrize(
    ("fitted", "wrong"),
    [(FITTED, 1.0), (FITTED, 0.0), (FITTED, 0.3), (FITTED, 3.0), (FITTED, -20.0), (40, 1.0)],
)
@pytest.mark.parametrize("few", [FITTED, 700])
def test_the_minimum_over_all_rows_is_reached_from_anywhere(fitted, wrong, few, monkeypatch):
    """From a theta far too short or long, or of few rows, where a row or two have all weight."""
    monkeypatch.setattr(streaming, "MOST_FITTED", 2 * few)
    rows = table()
    some = tilt(BaseRows(features(rows)[:fitted]), FAR, credit=10.0)
    base = streamed(rows)
    tilting = corrected(replace(some, theta=wrong * some.theta), base, FAR)
    assert above(minimum(), tilting, FAR) < min(CLOSE, 1.01 * tilting.gap)
    weights = np.exp(tilting.log_weights)
    assert weights.sum() == pytest.approx(1)
    ridge = 10 * FAR.covariance
    exact = base.covariance(weights, tilting.means) + ridge
    shares = eigh(tilting.covariance + ridge, exact, eigvals_only=True)
    # Of rows drawn at the first theta: from a far one, it serves steps alone.
    low, high = (0.8, 1.25) if (fitted, few, wrong) == (FITTED, FITTED, 1.0) else (0.4, 2.5)
    assert low < shares.min() <= shares.max() < high


@pytest.mark.parametrize("shown", [0, 1])
def test_what_the_fitted_rows_hardly_show_is_learnt_of_all(shown, monkeypatch):
    """A level that 8 rows of 30,000 hold, and none or one of the fitted ones; noise hides nothing.

    Of the theta that is solved without it those rows would have all the weight. No Hessian of all
    rows is asked for, which costs as much as several passes.
    """
    monkeypatch.setattr(streaming, "MOST_FITTED", FITTED)
    scaled = table()
    scaled.columns["d"] = np.zeros(ROWS)
    scaled.columns["d"][[*range(shown), *range(-8 + shown, 0)]] = 1.0
    targets = Targets(
        means=np.array([0.05, -0.04, 0.0, 6e-4]), covariance=1e-10 * np.eye(4), rows=1e6
    )
    held = features(scaled)
    some = tilt(BaseRows(held[:FITTED]), targets, credit=10.0)
    whole = tilt(BaseRows(held), targets, credit=10.0)
    base = streamed(scaled)
    asked, counted = [], lambda base, *_: asked.append(base.rows)
    around(BaseRows, "covariance", before=counted, replace=monkeypatch.setattr)
    passes = counted_passes(monkeypatch)
    tilting = corrected(some, base, targets)
    assert len(asked) > 0
    assert max(asked) < 2 * FITTED
    assert passes.count(ROWS) <= 5
    assert above(whole, tilting, targets) < CLOSE
    assert tilting.means[3] == pytest.approx(whole.means[3], rel=0.01)  # of the level


@pytest.mark.nightly
def test_rare_levels_cost_few_passes_over_all_rows(monkeypatch):
    """60 levels, of 60,000 to 20 rows, and noise of one: plain rows say nothing of the last."""
    rows, levels, rng = 200_000, 60, np.random.default_rng(0)
    monkeypatch.setattr(streaming, "MOST_FITTED", 5000)
    shares = np.geomspace(0.3, 1e-4, levels)
    held = rng.random((rows, levels)) < shares
    scaled = ScaledTable({str(j): held[:, j] for j in range(levels)}, rows)
    means = shares * np.exp(rng.normal(scale=0.3, size=levels))
    targets = Targets(means=means, covariance=rows**-2 * np.eye(levels), rows=rows)
    passes = counted_passes(monkeypatch)

    def matrix(table):
        return np.column_stack([column.astype(float) for column in table.columns.values()])

    def passes_with(codes):
        passes.clear()
        base = StreamedRows(rows, lambda: scaled.batches(9999), Plain(matrix, codes))
        some = tilt(base.some(5000), targets, credit=rows / 5)
        solved.append(corrected(some, base, targets))
        return passes.count(rows)

    def codes(table):
        return matrix(table).T.astype(np.intp) + 2 * np.arange(levels)[:, None]

    solved = []
    assert passes_with(codes) <= 5
    with pytest.raises(WeightError):  # the control: ten passes are not enough
        passes_with(lambda table: np.zeros((0, table.rows), dtype=np.intp))
    assert passes.count(rows) == 10
    least = tilt(BaseRows(held.astype(float)), targets, credit=rows / 5)
    assert above(least, solved[0], targets) < 1.5 * 0.025 * levels / rows


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("rows", [1, 50, 999])
def test_rows_are_drawn_in_proportion_to_weight_but_none_twice(spread, rows):
    """Where a few weights exceed all others by e^100, they are certain, and others still drawn."""
    logs = spread * np.random.default_rng(1).normal(size=1000)
    chances = by_weight(logs, rows)
    assert chances.sum() == pytest.approx(rows)
    assert chances.max() <= 1
    certain = chances == 1
    ratios = np.log(chances[~certain]) - logs[~certain]
    assert np.ptp(ratios) < 1e-6  # the least are subnormal
    assert np.all(logs[certain] + ratios.max() >= -1e-6)


def test_where_steps_over_some_rows_fail_they_start_from_zero(monkeypatch):
    some = tilt(BaseRows(features(table())[:700]), FAR, credit=10.0)
    monkeypatch.setattr(streaming, "MOST_FITTED", 2000)
    monkeypatch.setattr(streaming, "reached", lambda *_, **__: None)
    assert above(minimum(), corrected(some, streamed(table()), FAR), FAR) < CLOSE


def test_a_limit_of_passes_ends_in_a_stated_distance_or_an_error(monkeypatch):
    some = tilt(BaseRows(features(table())[:700]), FAR, credit=10.0)
    monkeypatch.setattr(streaming, "MOST_FITTED", 2000)
    monkeypatch.setattr(streaming, "_PASSES", 1)
    passes = counted_passes(monkeypatch)
    with pytest.raises(WeightError, match="not reached"):
        corrected(some, streamed(table()), FAR)
    assert passes.count(ROWS) == 1
    monkeypatch.setattr(streaming, "_FARTHEST", 1e9)
    tilting = corrected(some, streamed(table()), FAR)
    assert tilting.theta == pytest.approx(some.theta)
    off = tilting.means - FAR.means + 10 * FAR.covariance @ tilting.theta
    error = FAR.covariance + some.covariance * (1e-6 + 1 / ROWS)
    average, worst = off @ np.linalg.solve(error, off) / 4, max(off**2 / np.diag(error))
    assert tilting.distance == pytest.approx(max(average / 0.05, worst / 0.25))
    assert tilting.distance > 1


WHOLE = 40_000
SHARES = np.array([0.6, 0.3, 0.09, 0.009, 9e-4, 1e-4])


def levelled(rows=WHOLE, *, seed=1):
    rng = np.random.default_rng(seed)
    levels = rng.choice(SHARES.size, rows, p=SHARES / SHARES.sum()).astype(np.int32)
    return ScaledTable(
        {"x": rng.random(rows), "place": np.arange(rows, dtype=float), "level": levels}, rows
    )


def levels_of(rows):
    return rows.columns["level"].astype(np.intp)[None]


def some_of(of, rows, *, coded=levels_of, block=999):
    def placed():
        start = 0
        for batch in of.batches(block):
            yield slice(start, start + batch.rows), batch
            start += batch.rows

    return drawn(placed, coded, rows=rows, of=of.rows)


def test_rare_rows_are_all_there_and_others_as_many_as_asked_for():
    whole = levelled()
    some = some_of(whole, 3000)
    counts, there = (np.bincount(levels_of(each)[0], minlength=6) for each in (whole, some.rows))
    wanted = 0.5 * 3000 / 7  # of six levels, and of what is not met
    assert counts[-1] < counts[-2] < wanted < counts[-3]
    assert np.array_equal(there[-2:], counts[-2:])
    assert there[-3] == pytest.approx(wanted, rel=0.6)  # its share is that of the first 3000
    assert there[:3] / counts[:3] == pytest.approx(3000 / WHOLE, rel=0.2)
    assert 3000 < there.sum() < 4500


def test_what_was_drawn_is_told():
    whole = levelled()
    some = some_of(whole, 3000)
    assert np.array_equal(some.indices, some.rows.columns["place"])
    assert np.all(np.diff(some.indices) > 0)
    assert some.rows.equals(whole.take(some.indices))
    of_level = [some.log_weights[levels_of(some.rows)[0] == level] for level in range(6)]
    assert all(np.ptp(logs) < 1e-12 for logs in of_level)  # one weight each
    assert [logs[0] for logs in of_level[:3]] == pytest.approx([np.log(WHOLE / 3000)] * 3)
    assert [logs[0] for logs in of_level[4:]] == [0, 0]


@pytest.mark.slow
def test_weighted_sums_are_those_of_all_rows():
    """Of 200 tables, each sum within chance, and on average (5 standard errors)."""
    off = []
    for seed in range(200):
        whole = levelled(4000, seed=seed)
        some = some_of(whole, 500)
        weights = np.exp(some.log_weights)
        assert weights.sum() == pytest.approx(4000, rel=0.05)
        level = levels_of(some.rows)[0]
        sums = [weights @ some.rows.columns["x"], *np.bincount(level, weights, minlength=6)]
        truth = [whole.columns["x"].sum(), *np.bincount(levels_of(whole)[0], minlength=6)]
        off.append(np.subtract(sums, truth))
    errors = np.std(off, axis=0) / np.sqrt(len(off))
    assert np.all(np.abs(np.mean(off, axis=0)) <= 5 * errors + 1e-9)
    plain = np.sqrt(4000 * SHARES * (8 - 1))  # of as many rows drawn alike
    assert np.std(off, axis=0)[4] < plain[3] / 2  # and of a rare level much nearer


def test_without_codes_they_are_evenly_spaced():
    some = some_of(levelled(), 400, coded=lambda rows: np.zeros((0, rows.rows), dtype=np.intp))
    assert some.indices.size == 400
    assert set(np.diff(some.indices)) <= {99, 100, 101}  # but for rounding
    assert some.log_weights == pytest.approx(np.full(400, np.log(100)))


def test_a_level_that_the_first_rows_lack_is_all_there():
    """Few as they may be: there may be as many as one of the first rows stands for."""
    whole = levelled()
    whole.columns["level"][whole.columns["level"] == 5] = 0
    whole.columns["level"][[30_000, 35_000]] = 7
    assert np.count_nonzero(levels_of(some_of(whole, 1000).rows) == 7) == 2


@pytest.mark.parametrize(("asked", "levels"), [(6000, 3000), (1000, 400), (1000, 4000)])
def test_columns_of_many_levels_add_no_more_than_half(asked, levels):
    """Each of a few rows, or of none of the first ones: they cannot all be there."""
    whole = levelled()
    rng = np.random.default_rng(3)
    whole.columns["level"] = rng.integers(levels, size=WHOLE).astype(np.int32)
    some = some_of(whole, asked)
    assert asked <= some.rows.rows < asked * 1.55


@settings(deadline=None)
@given(
    rows=st.integers(1, 300), asked=st.integers(1, 400), block=st.integers(1, 50),
    levels=st.integers(1, 9), seed=st.integers(0, 99),
)  # fmt: skip
@pytest.mark.slow
def test_any_table_in_any_blocks(rows, asked, block, levels, seed):
    rng = np.random.default_rng(seed)
    columns = {"place": np.arange(rows), "level": rng.geometric(0.5, rows).clip(max=levels) - 1}
    some = some_of(ScaledTable(columns, rows), asked, block=block)
    assert np.array_equal(some.indices, some.rows.columns["place"])
    assert some.indices.size >= min(rows, asked) - 1
    assert np.all(some.log_weights >= 0)
    if asked >= rows:
        assert some.indices.size == rows
