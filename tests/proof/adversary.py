"""Neighbouring pairs of regressions: half of them random, half adversarial.

The adversarial ones (docs/method.md section 3, "Tightness"): a public pile of synthetic rows with
one feature vector x0 pushes the coefficients to -t x0/|x0|^2, so that private rows with x.x0 > 0
have the whole slope and no curvature; then such rows come, go or change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.privacy.units import PrivacyUnit
from tests.proof.neighbours import Array
from tests.support.worlds import ADD, REPLACE, uniform_rows


@dataclass(frozen=True)
class Pair:
    """One neighbouring pair of problems: feature rows before and after, beside the same pile."""

    before: Array
    after: Array
    synthetic: Array
    nominal_rows: int


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
