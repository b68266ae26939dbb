"""What the sensitivity searches share: neighbouring pairs, a tally of them, and planted faults.

Half of the pairs of regressions are adversarial (docs/method.md section 3, "Tightness"): a public
pile of rows with one feature vector x0 pushes the coefficients to -t x0/|x0|^2, so that private
rows with x.x0 > 0 have the whole slope and no curvature; then such rows come, go or change.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from dpiw.data.schema.schema import Column, ColumnKind, PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable, SyntheticTable
from dpiw.methods.weights.paper import regression as fitting
from dpiw.methods.weights.paper.beta import BetaDebiased
from dpiw.privacy import mechanisms
from dpiw.privacy.units import PrivacyUnit
from tests.support.draws import Still
from tests.support.worlds import ADD, REPLACE, levels, mixed, numbers, uniform_rows

Array = NDArray[np.float64]


@dataclass
class Tally:
    """Pairs met, those that moved further than claimed, and the largest move by its claim."""

    pairs: int = 0
    above: int = 0
    worst: float = 0.0

    def met(self, share: float) -> None:
        assert np.isfinite(share)
        self.pairs += 1
        self.above += share > 1
        self.worst = max(self.worst, float(share))

    def check(self, *, least: float = 0.75) -> None:
        """None above the claim, and the search is known to bite: one pair comes near it."""
        assert self.above == 0
        assert self.worst >= least

    def __str__(self) -> str:
        return f"{self.pairs:,} pairs, {self.above} above the claim, worst {self.worst:.3f} of it"


def check_all(tallies: dict[Any, Tally], prove: Any, what: str, *, least: float = 0.75) -> None:
    """Check and tell a tally of each relation."""
    for relation, tally in tallies.items():
        tally.check(least=least)
        prove(f"P1: {what}, {relation.value}", str(tally))


class Asked(Still):
    """No noise, and a list of the scales that were asked for, times a lattice step."""

    def __init__(self, step: float, scales: list[float]) -> None:
        super().__init__()
        self._step, self._scales = step, scales

    def discrete_gaussian(self, *, scale: float, size: int) -> NDArray[np.int64]:
        self._scales.append(scale * self._step)
        return np.zeros(size, dtype=np.int64)

    discrete_laplace = discrete_gaussian

    def spherical_laplace(self, *, scale: float, dimension: int) -> NDArray[np.int64]:
        return self.discrete_gaussian(scale=scale, size=dimension)


@contextmanager
def drawn_scales() -> Iterator[list[float]]:
    """The scales that a noise source is asked for, in units of what is released; draws are zero.

    What a mechanism states in its facts may be another number.
    """
    scales: list[float] = []
    real = mechanisms._draw

    def draw(law, *, step, noise):
        return real(law, step=step, noise=Asked(step, scales))

    with mock.patch.object(mechanisms, "_draw", draw):
        yield scales


def released(
    estimator: Any, schema: PublicSchema, tables: Any, public: SyntheticTable, name: str
) -> tuple[Array, Array, float]:
    """What `measure` releases of two tables, noise aside, and the scale it asks for both times."""
    with drawn_scales() as scales:
        first, second = (
            estimator.measure(PrivateTable(schema=schema, scaled=table), public, noise=Still())
            for table in tables
        )
    assert scales == [first.facts["scale"]] * 2  # one draw each, of the stated scale
    return first.arrays[name], second.arrays[name], scales[0]


@dataclass(frozen=True)
class Pair:
    """One neighbouring pair of problems: feature rows before and after, beside the same pile."""

    before: Array
    after: Array
    synthetic: Array
    nominal_rows: int

    def solved(self, estimator: BetaDebiased) -> Array:
        """The two fits that `measure` makes."""
        weight = self.nominal_rows / len(self.synthetic)
        return np.array([
            estimator.solution(
                fitting.Regression(
                    private=rows, synthetic=self.synthetic, synthetic_weight=weight,
                    penalty=estimator.calibrated.penalty,
                )
            )
            for rows in (self.before, self.after)
        ])  # fmt: skip


def extreme_rows(schema: PublicSchema, count: int, rng: np.random.Generator) -> ScaledTable:
    """Random rows, corners of the box with some coordinates on one side, and the middle."""
    table = uniform_rows(schema, count, rng, power=float(rng.choice([0.2, 1.0, 5.0])))
    columns = {}
    share = rng.random(count)
    for name, values in table.columns.items():
        if values.dtype.kind == "f":
            corner = (rng.random(count) < share).astype(float)
            values = np.where(rng.random(count) < 0.7, corner, values)
            values[:3] = [0.0, 1.0, 0.5][:count]
        columns[name] = values
    return ScaledTable(columns, count)


def moved(unit: PrivacyUnit, rows: Array, rng: np.random.Generator, far: Array) -> Array:
    """A neighbour of `rows`: up to max_rows rows come, go, or become rows of `far`."""
    k = int(rng.integers(1, unit.max_rows + 1))
    chosen = far[rng.integers(0, len(far), k)]
    if unit.relation is REPLACE:
        k = min(k, len(rows))
        return np.vstack([chosen[:k], rows[k:]])
    if len(rows) >= k and rng.random() < 0.5:
        return rows[k:]
    return np.vstack([rows, chosen])


def random_pair(unit: PrivacyUnit, pool: Array, rng: np.random.Generator) -> Pair:
    rows = pool[rng.integers(0, len(pool), rng.integers(1, 9))]
    return Pair(
        before=rows,
        after=moved(unit, rows, rng, pool),
        synthetic=pool[rng.integers(0, len(pool), rng.integers(1, 20))],
        nominal_rows=int(10 ** rng.uniform(0, 5)),
    )


def adversarial_pair(
    unit: PrivacyUnit, pool: Array, rng: np.random.Generator, *, penalty: float, order: int
) -> Pair | None:
    """See the module; `order` is the norm that the canaries are to move most."""
    origin = pool[2] if rng.random() < 0.5 else pool[rng.integers(len(pool))]
    square = origin @ origin
    share = pool @ origin / square
    far = pool[(share > 0.25) & (share < 1.5)]
    if square == 0 or len(far) < 2:
        return None
    far = far[rng.integers(0, len(far), 40)]
    if unit.relation is REPLACE:
        gaps = np.linalg.norm(far[:, None] - far[None], ord=order, axis=2)
        first, second = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    else:
        clear = far - np.outer(far @ origin / square, origin)  # what the pile leaves of them
        first = second = int(np.argmax(np.linalg.norm(clear, ord=order, axis=1)))
    canaries = np.array([far[first]] * unit.max_rows), np.array([far[second]] * unit.max_rows)
    before = canaries[0] if unit.relation is REPLACE else canaries[0][:0]
    after = canaries[1]
    reach = min(float(origin @ row) / square for row in (*before, *after))
    back = unit.max_rows * float(max(row @ row for row in after)) / penalty
    push = min((5 + back) / reach, 27.0)  # a heavier pile leaves doubles no curvature
    if unit.relation is ADD and rng.random() < 0.5:
        before, after = after, before
    nominal = penalty * push * (1 + math.exp(push)) / square
    return Pair(before=before, after=after, synthetic=origin[None], nominal_rows=math.ceil(nominal))


def pairs_of(
    unit: PrivacyUnit, pool: Array, rng: np.random.Generator, *, penalty: float, order: int
) -> Iterator[Pair]:
    """Random and adversarial ones in turn."""
    while True:
        yield random_pair(unit, pool, rng)
        if (pair := adversarial_pair(unit, pool, rng, penalty=penalty, order=order)) is not None:
            yield pair


def constant_table(schema: PublicSchema, value: float, count: int) -> ScaledTable:
    """`count` equal rows."""
    columns = {column.name: np.full(count, value) for column in schema.released}
    return ScaledTable(columns, count)


def neighbouring_tables(
    unit: PrivacyUnit, schema: PublicSchema, rng: np.random.Generator, *, adversarial: bool
) -> tuple[ScaledTable, ScaledTable]:
    """Two tables: canaries at opposite corners, or random and extreme rows."""
    k = unit.max_rows
    if adversarial:
        top, bottom = (constant_table(schema, value, k) for value in (1.0, 0.0))
        before = bottom if unit.relation is REPLACE else top.take(np.arange(0))
        return before, top
    rows = extreme_rows(schema, k + 5, rng)
    fewer = rows.take(np.arange(k, k + 5))
    if unit.relation is ADD:
        return rows, fewer
    return rows, ScaledTable.concatenate([extreme_rows(schema, k + 3, rng).take(range(k)), fewer])


def papers_fits(d: int) -> Array:
    """Fits without and with one row at the corner of [0,1]^d: constant 1, sum objective, Lam = d.

    The premises of arXiv 2108.10934.
    """
    pile, weight = np.append(np.zeros(d), 1.0)[None], d * 20 * (1 + math.exp(20))
    fits = [
        fitting.solve(
            fitting.Regression(
                private=rows, synthetic=pile, synthetic_weight=weight, penalty=float(d)
            ),
            tolerance=1e-7,
        )
        for rows in (np.empty((0, d + 1)), np.ones((1, d + 1)))
    ]
    return np.array(fits)


# Planted faults
Plant = Callable[[pytest.MonkeyPatch], None]


def silent(*_: Any, **__: Any) -> None:
    """In place of `prove`."""


def instead(owner: Any, name: str, change: Callable[..., Any]) -> Plant:
    """In place of a function of ours, `change`, which is given the real one and its arguments."""

    def plant(patch):
        real = getattr(owner, name)
        patch.setattr(owner, name, lambda *given, **named: change(real, *given, **named))

    return plant


def scaled(module: Any, name: str, factor: Callable[..., float]) -> Plant:
    """The function's result times a factor of its arguments."""
    return instead(module, name, lambda real, *a, **k: factor(*a) * real(*a, **k))


def _both_reaches(patch):
    for name in ("l2_reach", "l1_reach"):
        scaled(fitting, name, lambda *_: 0.9)(patch)


REACHES: dict[str, Plant] = {
    "reach 10% too small": _both_reaches,
    "max_rows forgotten": scaled(fitting, "l2_reach", lambda bounds, unit: 1 / unit.max_rows),
}
"""Bounds of a regression that are too small, for the searches that solve one."""


def check_found(search: Callable[[], None], *plants: Plant, patch: pytest.MonkeyPatch) -> None:
    """The search passes on the code as it is, and fails with each plant."""
    search()
    for plant in plants:
        with patch.context() as planted:
            plant(planted)
            with pytest.raises(AssertionError):
                search()


# Tables of measured weights
Tables = tuple[ScaledTable, ScaledTable]


def some_levels(rng: np.random.Generator) -> PublicSchema:
    of, count = int(rng.choice([2, 3, 7])), int(rng.choice([2, 3]))
    return levels(count, of, target=0, nullable=True)


def wide_schema() -> PublicSchema:
    """Every geometry of `mixed`, and 24 numbers: every part has features."""
    pixels = tuple(
        Column(name=f"p{i}", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=1.0) for i in range(24)
    )
    return PublicSchema(name="wide", columns=(*mixed().columns, *pixels))


SCHEMAS: tuple[Callable[[np.random.Generator], PublicSchema], ...] = (
    lambda rng: numbers(int(rng.choice([1, 2, 4, 8, 32]))),
    lambda rng: numbers(int(rng.choice([2, 3, 8])), target=True),
    lambda rng: numbers(int(rng.choice([1, 2, 5])), nullable=True),
    lambda rng: some_levels(rng),
    lambda rng: mixed(),
    lambda rng: numbers(int(rng.choice([26, 37])), target=True),
    lambda rng: wide_schema(),
)


def random_tables(unit: PrivacyUnit, pool: ScaledTable, rng: np.random.Generator) -> Tables:
    """Up to max_rows rows of a small table come, go or become others."""
    k = int(rng.integers(1, unit.max_rows + 1))
    rest = rng.integers(0, pool.rows, int(rng.integers(0, 40)))
    old, fresh = rng.integers(0, pool.rows, (2, k))
    if unit.relation is REPLACE:
        return pool.take(np.r_[old, rest]), pool.take(np.r_[fresh, rest])
    pair = pool.take(rest), pool.take(np.r_[rest, fresh])
    return pair if rng.random() < 0.5 else pair[::-1]


def narrow_rows(schema: PublicSchema, rng: np.random.Generator) -> SyntheticTable:
    """Public rows of which half of the numbers lie in a small part of their bounds."""
    rows = uniform_rows(schema, 50, rng)
    columns = {
        name: rng.random() + rng.choice([0.0, 0.01, 0.1]) * (values - 0.5)
        if values.dtype.kind == "f" and rng.random() < 0.5 else values
        for name, values in rows.columns.items()
    }  # fmt: skip
    return SyntheticTable(schema=schema, scaled=ScaledTable(columns, 50))
