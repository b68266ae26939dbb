"""Rows drawn independently from a fitted graphical model; numpy alone.

mbi 1.1.0's own `synthetic_data` is not used for it. Its default, `round`, hands out each level by
the rank of a row within its parents' group, and the children of one parent share the ranks: two
columns independent given a third come out with a correlation near one. Its `sample` draws each
column on its neighbours in the measured margins alone, and so leaves out what a model with a cycle
needs besides (a-b-c-d-a: b depends on d given c). Here a column is drawn given its neighbours in
the triangulated graph, of which the model is a product.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

Margin = Callable[[tuple[str, ...]], np.ndarray]
"""Of some columns: their joint weights >= 0 of any scale, one axis a column in the order asked."""


def parents_of(
    order: Sequence[str], cliques: Collection[Collection[str]]
) -> dict[str, tuple[str, ...]]:
    """What each column is drawn given: its neighbours that come before it in the order.

    The order's reverse eliminates the columns; cliques: of the graph triangulated by that.
    """
    found = {}
    for place, column in enumerate(order):
        near = {other for clique in cliques if column in clique for other in clique}
        found[column] = tuple(other for other in order[:place] if other in near)
    return found


def independent_rows(
    parents: Mapping[str, Sequence[str]], margin: Margin, rows: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Codes of every column, each shape (rows,): every row and every column by a draw of its own.

    Columns are drawn in the order of `parents`, each after its own; `margin`: of both together.
    """
    found: dict[str, np.ndarray] = {}
    for column, given in parents.items():
        weights = np.maximum(np.asarray(margin((*given, column)), dtype=float), 0)
        shape, size = weights.shape[:-1], weights.shape[-1]
        weights = weights.reshape(-1, size)
        empty = weights.sum(axis=1) <= 0  # by rounding alone: such parents are hardly drawn
        weights[empty] = weights.sum(axis=0)
        chances = weights.cumsum(axis=1)
        chances /= chances[:, -1:]
        group = np.zeros(rows, dtype=np.int64)
        if given:
            group = np.ravel_multi_index([found[name] for name in given], shape)
        found[column] = (chances[group] <= rng.random((rows, 1))).sum(axis=1)
    return found
