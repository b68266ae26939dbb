"""A sample's rows: a copy for everybody who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import pandas as pd

if TYPE_CHECKING:
    from dpiw.analysis.sample import WeightedSample

_EAGER = int(pd.__version__.partition(".")[0]) < 3
"""Whether a copy is one from the start: from pandas 3 on it becomes one where it is changed."""


def copied(table: pd.DataFrame) -> pd.DataFrame:
    """A table that is somebody else's to change."""
    return table.copy(deep=_EAGER)


class HandedOut:
    """A sample's `table`: a copy for everybody who asks; its own rows are never handed out."""

    @overload
    def __get__(self, sample: None, owner: type) -> HandedOut: ...

    @overload
    def __get__(self, sample: WeightedSample, owner: type) -> pd.DataFrame: ...

    def __get__(self, sample: WeightedSample | None, owner: type) -> HandedOut | pd.DataFrame:
        if sample is None:  # a dataclass asks for its field's default: there is none
            raise AttributeError("table")
        return copied(sample._frame)

    def __set__(self, sample: WeightedSample, table: pd.DataFrame) -> None:
        object.__setattr__(sample, "_frame", table)
