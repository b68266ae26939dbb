"""What a report shows of the rows, gathered while they pass to the files: they are read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.row_weights import mean_one_weights
from dpiw.data.schema import PublicSchema
from dpiw.release.report.marginals import sums_of


class RowsShown:
    """The first synthetic rows, their weights, and every column's shares.

    Args:
        schema: the public schema.
        log_weights: shape (rows,), natural log.
        keeps_first: whether the first frame is kept, for statistics whose truth is public.
    """

    def __init__(
        self, schema: PublicSchema, log_weights: NDArray[np.float64], *, keeps_first: bool = False
    ) -> None:
        self.weights = mean_one_weights(log_weights)
        self.first: pd.DataFrame | None = None
        self._schema, self._keeps_first, self._seen = schema, keeps_first, 0
        names = [column.name for column in schema.released]
        self._sums = [dict.fromkeys(names, np.zeros(1)) for _ in range(2)]

    def passing(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """The same frames, each counted when the next is asked for: when it was found in order."""
        for frame in frames:
            yield frame
            self._count(frame)

    def _count(self, frame: pd.DataFrame) -> None:
        if self._keeps_first and self.first is None:
            self.first = frame
        rows = slice(self._seen, self._seen + len(frame))
        parts = sums_of(frame, np.ones(len(frame)), self.weights[rows], schema=self._schema)
        for total, part in zip(self._sums, parts, strict=True):
            total |= {name: total[name] + cells for name, cells in part.items()}
        self._seen += len(frame)

    def shares(self, *, weighted: bool) -> dict[str, NDArray[np.float64]]:
        """Every released column's shares, shape (cells,), of the rows that have passed."""
        mass = self.weights.sum() if weighted else self._seen
        return {name: cells / mass for name, cells in self._sums[weighted].items()}
