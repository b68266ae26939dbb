"""Public truth of a simulated population, and what the weights repaired against it.

Only for examples whose law is known because it was written down. Nothing here is ever computed
from confidential rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.scaled import ScaledTable
from dpiw.data.schema import PublicSchema
from dpiw.errors import SpecError
from dpiw.release.report.marginals import axis
from dpiw.release.report.statistics import evaluate, label


@dataclass(frozen=True, kw_only=True)
class Repair:
    """One statistic: its public truth, and its estimates without and with weights."""

    name: str
    truth: float
    unweighted: float
    weighted: float

    @property
    def change(self) -> float:
        """Absolute error with weights over that without; below 1 means repaired."""
        before = abs(self.unweighted - self.truth)
        return abs(self.weighted - self.truth) / before if before > 0 else float("inf")


@dataclass(frozen=True, kw_only=True)
class PublicTruth:
    """Shares of every column's public bins, and named statistics with their values.

    Attributes:
        marginals: column to shares, in the form of `dpiw.release.report.marginals.marginals`.
        statistics: mappings of `dpiw.release.report.statistics`, each with its `value`.
    """

    marginals: Mapping[str, NDArray[np.float64]]
    statistics: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, path: Path) -> PublicTruth:
        """Read a JSON file with `margins` and `statistics`.

        Raises:
            SpecError: it cannot be read, or is not of this form.
        """
        try:
            truth = json.loads(path.read_bytes())
            marginals = {name: np.array(shares, float) for name, shares in truth["margins"].items()}
            statistics = tuple(truth["statistics"])
            values = [float(item["value"]) for item in statistics]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise SpecError(
                "public_truth: expected a JSON file with margins and statistics"
            ) from None
        if not np.isfinite(values).all():
            raise SpecError("public_truth: expected finite values")
        return cls(marginals=marginals, statistics=statistics)

    def check(self, schema: PublicSchema) -> None:
        """Refuse a truth that a report on this schema cannot show, before there are rows.

        Levels that a release finds are not known yet: of such a schema nothing is refused here.

        Raises:
            SpecError: a column has another number of shares than cells, or a statistic is none of
                the schema's rows.
        """
        if any(column.unseen for column in schema.released):
            return
        for column in schema.released:
            shares, cells = self.marginals.get(column.name), axis(column).cells
            if shares is not None and (shares.shape != (cells,) or not np.isfinite(shares).all()):
                raise SpecError(
                    f"public_truth: margins: column {column.name}: expected {cells} finite shares"
                )
        least = {c.name: np.zeros(1, float if c.is_numeric else int) for c in schema.released}
        frame = schema.unscale(ScaledTable(least, 1))
        for place, item in enumerate(self.statistics, start=1):
            try:
                label(item)
                evaluate(item, frame, None)
            except (SpecError, LookupError, TypeError, ValueError, AttributeError):
                raise SpecError(
                    f"public_truth: statistics: number {place}: expected a mean or a correlation of"
                    " released columns that hold numbers, or a level's share"
                ) from None

    def repairs(self, frame: pd.DataFrame, weights: NDArray[np.float64]) -> tuple[Repair, ...]:
        """Compare every statistic of the synthetic rows, without and with weights, to the truth."""
        return tuple(
            Repair(
                name=label(item),
                truth=float(item["value"]),
                unweighted=evaluate(item, frame, None),
                weighted=evaluate(item, frame, weights),
            )
            for item in self.statistics
        )
