"""Partition selection: its threshold, and all outputs of small neighbours, by their exact laws."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from dpiw.data.schema.schema import Column, ColumnKind, PublicSchema
from dpiw.errors import PrivacyError, UncalibratedError
from dpiw.methods.generators.unseen_levels import LevelNoise, UnseenLevels
from dpiw.privacy import accounting
from dpiw.privacy.events import GaussianEvent, ThresholdEvent, check_event, level_threshold
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.support.ledger import ADD, REPLACE

EPSILON, DELTA = 1.0, 1e-3

Law = tuple[NDArray[np.float64], NDArray[np.float64]]
"""What is shown of one level: probabilities of its outcomes under either neighbour."""


@functools.cache
def calibrated(rows: int, columns: int, relation: NeighbouringRelation) -> LevelNoise:
    """As a plan does, for (EPSILON, DELTA)."""
    unit = PrivacyUnit(relation=relation, max_rows=rows, id_column="id" if rows > 1 else None)
    schema = PublicSchema(
        name="trades",
        columns=tuple(
            Column(name=f"c{place}", kind=ColumnKind.CATEGORICAL, unseen=True)
            for place in range(columns)
        ),
    )
    method = UnseenLevels().within(Decimal(repr(DELTA)))

    def ready(rho: float) -> UnseenLevels:
        return method.calibrate(rho=rho, schema=schema, unit=unit, nominal_rows=500)

    rho = accounting.calibrate(
        lambda rho: ready(rho).events(schema=schema, unit=unit), epsilon=EPSILON, delta=DELTA
    )
    return ready(rho).calibrated


def shown(ready: LevelNoise, one: int, other: int) -> Law:
    """Of a level that has `one` row under one neighbour and `other` under the other."""
    scale, threshold = ready.scale, ready.threshold
    far = max(one, other, threshold) + 9 * scale
    edges = np.concatenate([[-np.inf], np.linspace(threshold, far, 700), [np.inf]])

    def law(count: int) -> NDArray[np.float64]:
        if count == 0:  # it does not occur, so it gets no noise
            return np.eye(1, len(edges) - 1)[0]
        return np.diff(norm.cdf((edges - count) / scale))

    return law(one), law(other)


def own(ready: LevelNoise, one: int, other: int) -> Law:
    """Shown or not: of a unit's own level, which value says no more."""
    first, second = (np.array([law[0], law[1:].sum()]) for law in shown(ready, one, other))
    return first, second


def together(laws: Sequence[Law]) -> Law:
    """Of independent levels."""
    sides = zip(*laws, strict=True)
    first, second = (functools.reduce(lambda a, b: np.outer(a, b).ravel(), side) for side in sides)
    return first, second


def spent(laws: Sequence[Law], epsilon: float = EPSILON) -> float:
    """The hockey-stick divergence, the larger of both directions."""
    p, q = together(laws)
    factor = np.exp(epsilon)
    return float(max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum()))


COMMON = (15, 60)
"""Rows of others on a level that the unit's rows join: near the threshold, and far above."""


def added(ready: LevelNoise, *, rows: int) -> list[list[Law]]:
    """Every way in which a unit's rows lie on one column's levels: its own, or one of others'."""
    worlds = []
    for alone_rows in range(rows + 1):
        for parts in partitions(alone_rows):
            alone = [own(ready, count, 0) for count in parts]
            joined = rows - alone_rows
            if joined == 0:
                worlds.append(alone)
            worlds += [[*alone, shown(ready, n + joined, n)] for n in COMMON if joined]
    return worlds


def partitions(total: int, most: int | None = None) -> list[tuple[int, ...]]:
    if total == 0:
        return [()]
    top = min(total, most or total)
    return [(n, *rest) for n in range(top, 0, -1) for rest in partitions(total - n, n)]


def replaced(ready: LevelNoise) -> list[list[Law]]:
    """Every way in which one row's level is replaced by another, of its own or of others."""
    away = [own(ready, 1, 0), *(shown(ready, n + 1, n) for n in COMMON)]
    here = [own(ready, 0, 1), *(shown(ready, n, n + 1) for n in COMMON)]
    return [[gone, come] for gone, come in itertools.product(away, here)]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_no_pair_of_neighbours_spends_more_than_was_promised(rows):
    ready = calibrated(rows, 1, ADD)
    worst = max(spent(world) for world in added(ready, rows=rows))
    assert DELTA / 4 < worst <= DELTA


def test_no_pair_spends_more_when_a_row_is_replaced():
    """Two levels change, and the thresholds still cost what one of them does."""
    ready = calibrated(1, 1, REPLACE)
    worst = max(spent(world) for world in replaced(ready))
    assert DELTA / 4 < worst <= DELTA
    pairs = [own(ready, 1, 0), own(ready, 0, 1)]
    assert spent(pairs) <= ready.delta


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_no_pair_spends_more_in_two_columns(relation):
    """Any way in one column with its own level, and others' far above the threshold, in two."""
    ready = calibrated(1, 2, relation)
    if relation is ADD:
        ways = [[own(ready, 1, 0)], [shown(ready, 61, 60)]]
    else:
        ways = [[own(ready, 1, 0), own(ready, 0, 1)], [own(ready, 1, 0), shown(ready, 60, 61)]]
    worst = max(spent([*first, *second]) for first, second in itertools.product(ways, ways))
    assert ready.delta < worst <= DELTA


@pytest.mark.parametrize(
    ("change", "beyond"),
    [(lambda ready: {"threshold": 1.0}, 100), (lambda ready: {"scale": ready.scale * 2 / 3}, 1)],
    ids=["no threshold", "two thirds of the noise"],
)
def test_a_missing_threshold_and_too_little_noise_are_found(change, beyond):
    ready = calibrated(1, 1, ADD)
    worlds = added(dataclasses.replace(ready, **change(ready)), rows=1)
    assert max(spent(world) for world in worlds) > beyond * DELTA


def test_a_forgotten_bound_on_rows_is_found_in_noise_and_in_the_threshold():
    ready, single = calibrated(3, 1, ADD), calibrated(1, 1, ADD)
    assert max(spent(world) for world in added(single, rows=3)) > DELTA
    low = level_threshold(scale=ready.scale, rows=1, delta=ready.delta)
    worlds = added(dataclasses.replace(ready, threshold=low), rows=3)
    assert max(spent(world) for world in worlds) > ready.delta * 1.2
    assert max(spent(w) for w in added(ready, rows=3) if len(w[-1][0]) == 2) <= ready.delta


def test_a_delta_that_each_column_takes_whole_is_found():
    ready = calibrated(1, 2, ADD)
    low = level_threshold(scale=ready.scale, rows=1, delta=DELTA)
    pair = own(dataclasses.replace(ready, threshold=low), 1, 0)
    assert spent([pair, pair]) > 1.9 * DELTA


def test_a_forgotten_delta_is_found_by_the_accountant():
    """No pair needs both deltas in full, so only the sum tells."""
    ready = calibrated(1, 1, ADD)
    noise = GaussianEvent(noise_multiplier=ready.multiplier)
    both = [noise, ThresholdEvent(delta=ready.delta)]
    total = accounting.epsilon(both, delta=DELTA)
    assert total == pytest.approx(EPSILON, rel=1e-3)
    assert accounting.epsilon([noise], delta=DELTA) < total
    assert accounting.epsilon_rdp(both, delta=DELTA) > total
    with pytest.raises(PrivacyError, match="at least the sum of the events' own deltas"):
        accounting.epsilon(both, delta=ready.delta / 2)


@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_no_way_to_lie_on_own_levels_is_shown_more_often(scale, rows, delta):
    """The naive twin: every partition of a unit's rows, by the sum of its levels' chances."""
    threshold = level_threshold(scale=scale, rows=rows, delta=delta)
    chances = [
        sum(norm.sf((threshold - count) / scale) for count in parts) for parts in partitions(rows)
    ]
    assert max(chances) <= delta
    assert max(chances) > delta * (1 - 1e-3)


def test_an_event_is_written_and_read_and_nothing_but_a_delta():
    for scale, rows, delta in (
        (0.0, 1, 1e-6), (np.inf, 1, 1e-6), (1.0, 0, 1e-6), (1.0, 1, 0.0), (1.0, 1, 0.5),
    ):  # fmt: skip
        with pytest.raises(UncalibratedError):  # no threshold
            level_threshold(scale=scale, rows=rows, delta=delta)
    event = ThresholdEvent(delta=2.5e-7, count=3)
    record = accounting.event_to_json(event)
    assert record == {"type": "threshold", "delta": 2.5e-7, "count": 3}
    assert accounting.stored_event({**record, "delta": "2.5e-07"}) == event
    assert type(accounting.to_dp_event(event)).__name__ == "SelfComposedDpEvent"
    assert event.privacy_loss(1e-3).get_epsilon_for_delta(0.0) == 0
    assert min(accounting.renyi_vector([event])) == 10**16  # no vector pays for it
    for delta in (0.0, 1.0, float("nan")):
        with pytest.raises(PrivacyError):
            check_event(ThresholdEvent(delta=delta))
