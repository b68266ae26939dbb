"""What an analyst hands over with one value for each row: by pandas' labels, or by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.errors import DPIWError, ReleaseError, WeightError

ONE_EACH = "expected one number or truth value per row"

_WEIGHTS = "weights: expected one finite number >= 0 per row, not all zero"


def row_weights(table: pd.DataFrame, weights: Any) -> NDArray[np.float64]:
    """Weights as numbers, shape (n,), in the order of the rows; all one where none are given.

    Raises:
        WeightError: not one finite weight >= 0 per row, no row with weight, or the index of a
            Series is not the table's.
    """
    if not isinstance(table, pd.DataFrame):
        found = type(table).__name__
        raise WeightError(f"source: expected a pair (pandas table, weights); found ({found}, ...)")
    if weights is None:
        return np.ones(len(table))
    if np.ndim(weights) > 1:
        raise WeightError(f"{_WEIGHTS}; found {_columns_of(weights)}: name one of them")
    try:
        values = np.asarray(in_row_order(weights, table), dtype=np.float64)
    except (TypeError, ValueError):
        raise WeightError(f"{_WEIGHTS}; found {type(weights).__name__}") from None
    if values.shape != (len(table),):
        raise WeightError(f"{_WEIGHTS}; found {_count(weights, values, table)}")
    bad = int((~(np.isfinite(values) & (values >= 0))).sum())
    if bad or not values.sum() > 0:
        raise WeightError(f"{_WEIGHTS}; found {f'{bad:,} others' if bad else 'zeros alone'}")
    return values


def in_row_order(weights: Any, table: pd.DataFrame) -> NDArray[np.float64]:
    """Weights that are right, as an array in the order of the rows.

    Raises:
        WeightError: the index of a Series is not the table's.
    """
    return np.asarray(by_label(weights, table, _WEIGHTS, WeightError))


def row_values(given: Any, table: pd.DataFrame) -> pd.Series:
    """Numbers or truth values with the table's index, in the order of its rows.

    Raises:
        ReleaseError: not one for each row, or the index of a Series is not the table's.
    """
    if np.ndim(given) > 1:
        raise ReleaseError(
            f"{ONE_EACH}; found {_columns_of(given)}: name one, as in lambda table: table['age']"
        )
    values = pd.Series(given)
    if len(values) != len(table):
        raise ReleaseError(f"{ONE_EACH}; found {_count(given, values, table)}")
    if isinstance(given, pd.Series):
        values = by_label(values, table, ONE_EACH, ReleaseError)
    values = values.set_axis(table.index)
    if values.dtype == object and pd.api.types.infer_dtype(values, skipna=True) == "boolean":
        return values.astype("boolean")  # as .reindex leaves truth values, with some missing
    return values


def by_label(values: Any, table: pd.DataFrame, expected: str, error: type[DPIWError]) -> Any:
    """A Series in the order of the table's rows; everything else as it is, by position.

    A Series of another length is returned as it is: whoever takes it refuses it.

    Args:
        values: a Series with the table's index, in any order; or anything else.
        table: the rows.
        expected: what values are expected, for messages.
        error: to be raised.

    Raises:
        error: the index is not the table's; or it is in another order, and has a label twice.
    """
    if not isinstance(values, pd.Series) or len(values) != len(table):
        return values
    theirs, ours = values.index, table.index
    if theirs is ours or theirs.equals(ours):
        return values
    found = f"{expected}; found a Series whose index is not the table's"
    by_position = ".to_numpy() takes its values by position, where they stand in the table's order"
    if not (theirs.is_unique and ours.is_unique):
        whose = "it" if ours.is_unique else "the table's"
        raise error(
            f"{found}, and {whose} has labels twice, so that none finds a row; {by_position}"
        )
    places = theirs.get_indexer(ours)
    strange = int(np.count_nonzero(places < 0))
    if strange:
        raise error(
            f"{found}: it lacks {strange:,} of the {len(table):,} rows; allowed are the same"
            " labels, in any order; .reindex(table.index) leaves rows that it lacks missing;"
            f" {by_position}"
        )
    return values.iloc[places]


def _columns_of(values: Any) -> str:
    return f"a table of {np.shape(values)[1]} columns"


def _count(given: Any, values: Any, table: pd.DataFrame) -> str:
    """How many values for how many rows; of a Series also how it gets one for each."""
    hint = ": write .reindex(table.index)" if isinstance(given, pd.Series) else ""
    return f"{values.size:,} for {len(table):,} rows{hint}"
