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
from dpiw.methods.weights.measured.many_rows import StreamedRows, corrected, drawn, led
from dpiw.methods.weights.measured.targets import Targets
from dpiw.methods.weights.measured.tilting import reached, rough_covariance, tilt
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
"""Where steps end: by a Hessian that is right to 1.5."""


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


def test_few_passes_over_all_rows_are_left_after_those_over_some(monkeypatch):
    """Ten times as many rows as were fitted, which lead to all."""
    rows = table()
    targets = Targets(means=np.array([0.3, -0.3, 0.25, 0.3]), covariance=1e-5 * np.eye(4), rows=1e6)
    some = tilt(BaseRows(features(rows)[:700]), targets, credit=10.0)
    passes = counted_passes(monkeypatch)
    straight = corrected(some, streamed(rows), targets)
    alone = passes.count(ROWS)
    assert set(passes) == {ROWS}
    passes.clear()
    monkeypatch.setattr(streaming, "MOST_FITTED", 700)
    tilting = corrected(some, streamed(rows), targets)
    assert set(passes) == {7000, ROWS}
    assert passes.count(ROWS) < alone
    least = tilt(BaseRows(features(rows)), targets, credit=10.0)
    for solved in (tilting, straight):
        assert above(least, solved, targets) < CLOSE
        assert solved.gap >= above(least, solved, targets)


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
    ("fitted", "wrong"), [(FITTED, 1e-3), (FITTED, 0.3), (FITTED, 10.0), (FITTED, 1e3), (40, 1.0)]
)
@pytest.mark.parametrize("has_levels", [False, True])
def test_the_minimum_over_all_rows_is_reached_from_anywhere(fitted, wrong, has_levels, monkeypatch):
    """With a Hessian far too small every full step overshoots; few rows give a theta far off."""
    if has_levels:
        monkeypatch.setattr(streaming, "MOST_FITTED", 700)
    rows = table()
    some = tilt(BaseRows(features(rows)[:fitted]), FAR, credit=10.0)
    base = streamed(rows)
    tilting = corrected(replace(some, covariance=wrong * some.covariance), base, FAR)
    assert above(minimum(), tilting, FAR) < min(CLOSE, 1.01 * tilting.gap)
    weights = np.exp(tilting.log_weights)
    assert weights.sum() == pytest.approx(1)
    ridge = 10 * FAR.covariance
    exact = base.covariance(weights, tilting.means) + ridge
    rough = rough_covariance(base, tilting.theta)
    shares = eigh(rough + ridge, exact, eigvals_only=True)
    low, high = (0.6, 1.6) if has_levels else (0.8, 1.25)  # a tenth of 700 rows have all the weight
    assert low < shares.min() <= shares.max() < high


def test_some_rows_lead_to_the_minimum_over_all(monkeypatch):
    """A step over all costs one pass; rows of another law lead nowhere, and that is said."""
    size, credit, rng = 12, 50.0, np.random.default_rng(3)
    matrix = np.tanh(rng.exponential(size=(20_000, size)) @ rng.normal(size=(size, size)) / 5)
    means = matrix.mean(axis=0) + 0.03 * np.random.default_rng(4).normal(size=size)
    targets = Targets(means=means, covariance=1e-7 * np.eye(size), rows=1e6)
    base, some = BaseRows(matrix), BaseRows(matrix[:2000])
    least, solved = (tilt(rows, targets, credit=credit) for rows in (base, some))
    passes, gap = counted_passes(monkeypatch), 0.01 * size / 20_000
    solution = led(some, solved, base, targets, gap=gap)
    assert passes.count(20_000) == solution.steps + 1 <= 3
    assert above(least, solution, targets) < 1.5 * gap < above(least, solved, targets) / 5
    assert solution.gap >= above(least, solution, targets)
    logs, _, means = base.tilted(solution.theta)
    assert solution.log_weights == pytest.approx(logs)
    assert solution.means == pytest.approx(means)
    along = np.linalg.eigvals(np.linalg.solve(least.covariance, solution.covariance)).real
    assert 0.6 < along.min() <= along.max() < 1.5
    other = BaseRows(matrix[-2000:] * np.linspace(0.05, 3.0, size))
    near = replace(targets, means=other.even[0])
    assert led(other, tilt(other, near, credit=credit), base, targets, gap=1e-9) is None


@pytest.mark.parametrize(("shown", "is_enough"), [(0, False), (1, True)])
def test_what_the_fitted_rows_hardly_show_is_learnt_of_all(shown, is_enough, monkeypatch):
    """A level that 8 rows of 30,000 hold, and none or one of the fitted ones; noise hides nothing.

    Of the theta that is solved without it those rows would have all the weight. No Hessian of all
    rows is asked for, which costs as much as several passes.
    """
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
    near = reached(base, targets, 10.0, some.theta, covariance=some.covariance)
    assert (near is not None) is is_enough  # the control: as if all were like the fitted ones

    asked, counted = [], lambda base, *_: asked.append(base.rows)
    around(BaseRows, "covariance", before=counted, replace=monkeypatch.setattr)
    tilting = corrected(some, base, targets)
    assert asked == []
    ridge = 10 * targets.covariance
    rough = rough_covariance(base, tilting.theta)
    shares = eigh(rough + ridge, whole.covariance + ridge, eigvals_only=True)
    assert 0.8 < shares.min() <= shares.max() < 1.25  # along every axis
    assert above(whole, tilting, targets) < CLOSE
    assert tilting.means[3] == pytest.approx(whole.means[3], rel=0.01)  # of the level


@pytest.mark.nightly
def test_rare_levels_cost_no_passes_over_all_rows(monkeypatch):
    """60 levels, of 60,000 to 20 rows, and noise of one: plain rows say nothing of the last."""
    rows, levels, rng = 200_000, 60, np.random.default_rng(0)
    monkeypatch.setattr(streaming, "MOST_FITTED", 5000)
    shares = np.geomspace(0.3, 1e-4, levels)
    held = rng.random((rows, levels)) < shares
    scaled = ScaledTable({str(j): held[:, j] for j in range(levels)}, rows)
    means = shares * np.exp(rng.normal(scale=0.3, size=levels))
    targets = Targets(means=means, covariance=rows**-2 * np.eye(levels), rows=rows)
    some = tilt(BaseRows(held[:5000].astype(float)), targets, credit=rows / 5)
    passes = counted_passes(monkeypatch)

    def matrix(table):
        return np.column_stack([column.astype(float) for column in table.columns.values()])

    def passes_with(codes):
        passes.clear()
        base = StreamedRows(rows, lambda: scaled.batches(9999), Plain(matrix, codes))
        solved.append(corrected(some, base, targets))
        return passes.count(rows)

    def codes(table):
        return matrix(table).T.astype(np.intp) + 2 * np.arange(levels)[:, None]

    solved = []
    assert passes_with(codes) <= 3
    assert passes_with(lambda table: np.zeros((0, table.rows), dtype=np.intp)) > 6  # the control
    least = tilt(BaseRows(held.astype(float)), targets, credit=rows / 5)
    for each in solved:
        assert above(least, each, targets) < 1.5 * 0.025 * levels / rows


def test_where_what_leads_fails_all_rows_are_stepped_over(monkeypatch):
    rows = table()
    targets = Targets(means=np.array([0.3, -0.3, 0.25, 0.3]), covariance=1e-5 * np.eye(4), rows=1e6)
    some = tilt(BaseRows(features(rows)[:700]), targets, credit=10.0)
    least = tilt(BaseRows(features(rows)), targets, credit=10.0)
    monkeypatch.setattr(streaming, "MOST_FITTED", 700)
    seen = []

    def indefinite(*arguments, **_):
        seen.append(arguments[2].rows)
        raise WeightError("targets: expected a positive definite covariance")

    for failing in (lambda *_, **__: None, indefinite):
        monkeypatch.setattr(streaming, "led", failing)
        tilting = corrected(some, streamed(rows), targets)
        assert above(least, tilting, targets) < CLOSE
    assert seen == [ROWS]


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
def test_any_table_in_any_blocks(rows, asked, block, levels, seed):
    rng = np.random.default_rng(seed)
    columns = {"place": np.arange(rows), "level": rng.geometric(0.5, rows).clip(max=levels) - 1}
    some = some_of(ScaledTable(columns, rows), asked, block=block)
    assert np.array_equal(some.indices, some.rows.columns["place"])
    assert some.indices.size >= min(rows, asked) - 1
    assert np.all(some.log_weights >= 0)
    if asked >= rows:
        assert some.indices.size == rows
