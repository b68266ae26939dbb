"""What every estimator returns: values that print with their intervals, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpiw.analysis.intervals import Interval, confidence_interval
from dpiw.analysis.sample import Values
from dpiw.errors import ReleaseError, nearest_first


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Estimate(Values):
    """An estimate from weighted rows, with what its intervals need. Prints with its interval."""

    def __repr__(self) -> str:
        return f"{self._usual!r}\n{self._rows_used()}"

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else repr(self)

    def _repr_html_(self) -> str:
        return f"{self._usual._repr_html_()}{self._rows_used()}"

    def _rows_used(self) -> str:
        used = {f"{rows:,}": None for rows in np.sort(self.groups.sum(axis=0))[[0, -1]]}
        return f"uses {' to '.join(used)} of {self.sample.rows:,} synthetic rows"

    @property
    def value(self) -> float:
        """The only value; raises ReleaseError where there are several."""
        return float(self._single("values", "values")[0])

    @property
    def lower(self) -> float:
        """Lower end of the only value's 95% interval; raises ReleaseError as `value`."""
        return float(self._single("lower", "interval().lower")[0])

    @property
    def upper(self) -> float:
        """Upper end of the only value's 95% interval; raises ReleaseError as `value`."""
        return float(self._single("upper", "interval().upper")[0])

    @property
    def verdict(self) -> str:
        """Verdict of the only value's 95% interval; raises ReleaseError as `value`."""
        return str(self._single("verdicts", "interval().verdicts")[0])

    @cached_property
    def _usual(self) -> Interval:
        return self.interval()

    def _single(self, name: str, plural: str) -> Any:
        """What has one item, of the values or of their usual interval."""
        if self.values.size != 1:
            some = ", ".join(self.names[:3]) + ", ..." * (len(self.names) > 3)
            raise ReleaseError(
                f"estimate: it has several values ({some}); use `{plural}`, in the order of"
                " `names`, or `interval().frame()`"
            )
        return self.values if name == "values" else getattr(self._usual, name)

    def interval(self, level: float = 0.95, **settings: Any) -> Interval:
        """`dpiw.analysis.confidence_interval` of this estimate."""
        return confidence_interval(self, level=level, **settings)

    def __getitem__(self, name: str) -> float:
        """A value by its name, or by its level alone where that names one of them."""
        return float(self.values[place_of(name, self.names)])


def place_of(name: str, names: Sequence[str]) -> int:
    """Where a value stands by its name, or by the level that ends one name alone.

    Raises:
        ReleaseError: there is none of that name, or several end so.
    """
    ends = [k for k, full_name in enumerate(names) if full_name == name]
    if not ends:
        ends = [k for k, full_name in enumerate(names) if full_name.endswith(f"={name}")]
        shortest = min((names[k] for k in ends), key=len, default="")
        stem = shortest.removesuffix(name)
        if all(names[k].startswith(stem) for k in ends):  # the others' levels only end so
            ends = [k for k in ends if names[k] == shortest]
    if len(ends) != 1:
        word = "no value" if not ends else "several values"
        choices = names if ends else [_level_of(full_name) for full_name in names]
        raise ReleaseError(
            f"estimate: {word} {name!r}; its values, {nearest_first(str(name), choices)}"
        )
    return ends[0]


def _level_of(name: str) -> str:
    """`south` of `mean(age) | region=south`, else the whole name."""
    return name.rpartition(" | ")[2].partition("=")[2] or name
