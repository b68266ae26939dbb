"""P1 of Bayesian synthesis, by enumeration: the exact law of a draw on neighbouring tables.

No sampling: a noise source that records what it is asked gives the whole law of every draw, for all
data sets of at most five records over five values and 99 parameters, and for all tables of at most
three rows through the method itself. The wrong mechanisms at the end must be found.
"""

from collections.abc import Callable
from decimal import Decimal
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from dpiw.methods.generators import bayes, pseudo_posterior
from dpiw.methods.generators.bayes import Bayes
from dpiw.methods.generators.pseudo_posterior import (
    Window,
    contributions,
    pilot_weights,
    posterior_scores,
    public_weights,
)
from dpiw.privacy.events import ExponentialMechanismEvent
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.proof.generator_worlds import Laws
from tests.proof.neighbours import scaled
from tests.support.worlds import UNITS, coded, declared, unit_of

Array = NDArray[np.float64]
Table = tuple[tuple[int, int], ...]
ADD, REPLACE, TWO_ROWS = UNITS[0], UNITS[2], unit_of(UNITS[0].relation, 2)
SCHEMA = declared(
    {"name": "x", "kind": "categorical", "levels": ["a", "b", "c"]},
    {"name": "y", "kind": "boolean", "role": "target"},
)
VALUES, MOST = 5, 5
THETA = np.linspace(0.01, 0.99, 99)
BINOMIAL = stats.binom.logpmf(np.arange(VALUES), VALUES - 1, THETA[:, None])
"""log p(x|theta), shape (99, 5)."""
FLAT = np.full(len(THETA), -np.log(len(THETA)))
SLACK = 1 + 1e-6
"""What `select` draws more carefully than it must, and the errors of this file's doubles."""

Law = Callable[[NDArray[np.int64]], Array]


def released(window: Window, weights: Array) -> Law:
    """The log law of one draw as our code draws it, given the records of each value."""
    entries = contributions(BINOMIAL, weights, units=window.units, per_nat=window.per_nat)

    def law(counts):
        noise: Any = Laws()
        window.draw(posterior_scores(counts, entries, FLAT, per_nat=window.per_nat), noise=noise)
        return noise.laws[0]

    return law


def shape_of(records: tuple[int, ...]) -> NDArray[np.int64]:
    return np.bincount(np.array(records, dtype=int), minlength=VALUES)


def losses(law: Law, *, replace: bool) -> Array:
    """log P/Q of every neighbouring pair of data sets, shape (pairs, parameters)."""
    laws = {
        records: law(shape_of(records))
        for size in range(MOST + 1)
        for records in combinations_with_replacement(range(VALUES), size)
    }
    ratios = []
    for records, log_law in laws.items():
        for place in range(len(records)):
            rest = records[:place] + records[place + 1 :]
            others = [tuple(sorted((*rest, value))) for value in range(VALUES)]
            ratios += [log_law - laws[each] for each in (others if replace else [rest])]
    return np.array(ratios)


def check(loss: Array, *, claim: float) -> None:
    """Worst log ratio, and the range of each pair's, within the claim."""
    assert np.abs(loss).max() <= claim * SLACK
    assert np.ptp(loss, axis=1).max() <= claim * SLACK


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("weights", ["public", "two_stage", "censored"])
def test_every_pair_of_small_data_sets_keeps_the_claim(epsilon, weights):
    """Add/remove at most w, replace-one at most 2 w, each pair within a range of the same."""
    window = Window(epsilon=epsilon, unit=ADD)
    alpha = {
        "public": public_weights(BINOMIAL, width=window.width),
        "two_stage": pilot_weights(BINOMIAL, 20, width=window.width),
        "censored": np.ones(VALUES),
    }[weights]
    law = released(window, alpha)
    added, replaced = losses(law, replace=False), losses(law, replace=True)
    check(added, claim=epsilon)
    check(replaced, claim=2 * epsilon)
    if weights == "censored":  # and no claim is idle
        assert np.ptp(added, axis=1).max() > 0.99 * epsilon
        assert np.abs(replaced).max() > 1.1 * epsilon


def test_a_draw_is_concentrated():
    """Renyi divergence at most order w^2/8, both ways: what the event says."""
    law = released(Window(epsilon=1.0, unit=ADD), np.ones(VALUES))
    records = [r for size in range(MOST) for r in combinations_with_replacement(range(5), size)]
    pairs = np.array([
        (law(shape_of(r)), law(shape_of((*r, value)))) for r in records for value in range(5)
    ])  # fmt: skip
    event = ExponentialMechanismEvent(epsilon=1.0)
    for order in (1.5, 4.0, 32.0):
        claim = float(event.renyi_epsilon(Decimal(order)))
        for p, q in (pairs.swapaxes(0, 1), pairs.swapaxes(0, 1)[::-1]):
            reached = logsumexp(order * p + (1 - order) * q, axis=1) / (order - 1)
            assert 0.3 * claim < reached.max() <= claim * SLACK


def test_a_replaced_record_gets_half_of_the_window():
    """The unit's relation is in the window: what is claimed holds for it, and no more is needed."""
    window = Window(epsilon=1.0, unit=REPLACE)
    assert window.width == 0.5
    law = released(window, np.ones(VALUES))
    worst = losses(law, replace=True)
    check(worst, claim=1.0)
    assert np.abs(worst).max() > 0.8


# The method itself
def laws_of(ready: Bayes, rows: Table) -> list[Array]:
    """The log law of every choice, with pilots on fixed points of their own."""
    noise: Any = Laws(lambda place: (3, 64, 120)[place % 3])
    ready.measure(coded(SCHEMA, np.reshape(rows, (-1, 2))), noise=noise)
    return noise.laws


def column_ranges(ready: Bayes, first: list[Array], second: list[Array]) -> Array:
    """Range of the privacy loss of every draw of every column, shape (columns, draws).

    Parts are drawn independently given what was drawn before, so a column's range is their sum.
    """
    ranges = np.array([np.ptp(p - q) for p, q in zip(first, second, strict=True)])
    draws = ready._events
    # x: two splits for each code of y; y: one.
    return np.array([ranges[: 4 * draws].reshape(draws, -1).sum(axis=1), ranges[4 * draws :]])


ROWS = tuple(product(range(3), range(2)))
TABLES = [t for size in range(4) for t in combinations_with_replacement(ROWS, size)]


def neighbours_of(table: Table, unit: PrivacyUnit) -> list[Table]:
    if unit.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        additions = combinations_with_replacement(ROWS, unit.max_rows)
        return [tuple(sorted((*table, *rows))) for rows in additions]
    return [tuple(sorted((*table[1:], row))) for row in ROWS] if table else []


def worst_share(unit: PrivacyUnit, **settings: Any) -> float:
    """Largest range of a draw over all neighbours, in shares of its event's epsilon."""
    ready = Bayes(**settings).calibrate(rho=0.5, schema=SCHEMA, unit=unit, nominal_rows=9)
    (event,) = ready.events(schema=SCHEMA, unit=unit)
    assert isinstance(event, ExponentialMechanismEvent)
    assert event.count == 2 * ready._events
    laws = {table: laws_of(ready, table) for table in TABLES}
    worst = max(
        column_ranges(ready, laws_here, laws[neighbour]).max()
        for table, laws_here in laws.items()
        for neighbour in neighbours_of(table, unit)
        if neighbour in laws
    )
    return float(worst / event.epsilon)


@pytest.mark.parametrize("unit", [ADD, REPLACE, TWO_ROWS], ids=["add", "replace", "two rows"])
@pytest.mark.parametrize(("weights", "draws"), [("public", 2), ("two_stage", 1)])
def test_the_method_keeps_its_events(unit, weights, draws):
    assert 0.9 < worst_share(unit, weights=weights, draws=draws) <= SLACK


# Wrong mechanisms
def test_a_symmetric_window_wastes_half_of_what_it_costs():
    """[-eps/2, eps/2] on probabilities, claimed as eps: ours reaches nine tenths of the claim."""

    def law(counts):
        score = np.clip(BINOMIAL, -0.5, 0.5) @ counts
        return np.asarray(score - logsumexp(score))

    assert np.abs(losses(law, replace=False)).max() <= 0.5 * SLACK


def test_weights_from_the_data_exceed_any_claim():
    """Risks scaled by the data's own least and largest: one record changes everybody's weight."""

    def law(counts):
        risk = np.abs(BINOMIAL).max(axis=0)
        present = risk[counts > 0] if counts.any() else risk
        swing = max(float(np.ptp(present)), 1e-9)
        alpha = np.clip(1 - 0.9 * (risk - present.min()) / swing, 0, 1)
        score = np.clip(alpha * BINOMIAL, -1.0, 0.0) @ counts
        return np.asarray(score - logsumexp(score))

    worst = [
        np.abs(law(np.array([0, n, 1, 0, 0])) - law(np.array([0, n, 1, 0, 1]))).max()
        for n in (5, 10, 20)
    ]
    assert worst[0] > 1.5  # of a claimed 1
    assert all(more > 1.5 * fewer for fewer, more in pairwise(worst))
    with pytest.raises(AssertionError):
        check(losses(law, replace=False), claim=1.0)


def test_replace_one_at_the_price_of_add_remove_is_found(monkeypatch):
    monkeypatch.setattr(Window, "moves", 1)
    assert worst_share(REPLACE) > 1.5


def test_contributions_that_are_not_censored_are_found(monkeypatch):
    monkeypatch.setattr(bayes, "public_weights", lambda pmf, *, width: np.ones(pmf.shape[1]))
    assert worst_share(ADD) <= SLACK  # the window holds whatever the weights are
    monkeypatch.setattr(pseudo_posterior.np, "minimum", lambda values, most: values)
    assert worst_share(ADD) > 2


def test_a_window_for_each_part_is_found(monkeypatch):
    """A record meets two splits of three codes: each may have half of the window."""
    scaled(bayes, "contributions", lambda *_: 2)(monkeypatch)
    assert worst_share(ADD) > 1.5
