"""How far a model is from two-way counts: the score that MST and AIM select by.

    score = || c_ab - N q_ab ||_1

with c exact counts, and N q what the model says, made of what was released before: public.

Sensitivity: a row adds 1 to one cell of c and nothing to the rest, so the score moves by at most 1
per row. Add/remove: max_rows. Replace-one is one removal and one addition: 2 max_rows. The public
counts are kept as whole numbers over 2^20, so that scores are whole over 2^20 and no rounding
enters (`dpiw.methods.generators.bayesian_network.score_sensitivity` has the same bound).

Source: McKenna, Miklau & Sheldon (2021), algorithm 2; McKenna et al. (2022), section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

UNIT = 1 << 20
"""One row, in the whole numbers that scores are made of."""

_MOST = 2.0**41
"""Rows that a model may say; more is cut, publicly."""


def distance(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> int:
    """The score, in rows over `UNIT`.

    Args:
        counts: exact, of any shape.
        expected: the model's, public, of the same shape.

    Privacy:
        Exact, hence confidential; of the module's sensitivity. Only for `mechanisms.select`.
    """
    public = np.rint(np.clip(expected, 0.0, _MOST) * UNIT).astype(np.int64)
    return int(np.abs(counts * UNIT - public).sum())


def admissible_pairs(sizes: Sequence[int], most_cells: int) -> Iterator[tuple[int, int]]:
    """Pairs of columns whose table is small enough; a public matter."""
    for pair in combinations(range(len(sizes)), 2):
        if sizes[pair[0]] * sizes[pair[1]] <= most_cells:
            yield pair


class Forest:
    """Which columns are connected by the pairs taken so far."""

    def __init__(self, columns: int) -> None:
        """Take their number; none is connected."""
        self._tree = list(range(columns))

    def connects(self, pair: tuple[int, int]) -> bool:
        """Whether the pair joins two trees."""
        return self._tree[pair[0]] != self._tree[pair[1]]

    def take(self, pair: tuple[int, int]) -> None:
        """Join the pair's trees."""
        kept_tree, gone_tree = self._tree[pair[0]], self._tree[pair[1]]
        self._tree = [kept_tree if tree == gone_tree else tree for tree in self._tree]


def spanning_pairs(sizes: Sequence[int], most_cells: int) -> int:
    """Pairs of any spanning forest of the admissible ones: how many are selected. Public."""
    forest, count = Forest(len(sizes)), 0
    for pair in admissible_pairs(sizes, most_cells):
        if forest.connects(pair):
            forest.take(pair)
            count += 1
    return count
