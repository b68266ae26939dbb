"""What every estimator takes: a release, or a table with weights; and what it makes of them.

An estimator is smooth in the weighted rows. `influence`, how much each row moves it, gives every
standard error: of synthetic rows, of the weights' noise (`MeansLaw`) and of sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.given import in_row_order, row_weights
from dpiw.data.columns import Column
from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError, WeightError
from dpiw.methods.admission import forced_rows

if TYPE_CHECKING:
    from dpiw.data.row_weights import ReplicateWeights
    from dpiw.methods.weights.measured.law import MeansLaw
    from dpiw.release.certificate import Certificate

Array = NDArray[np.float64]

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


class Published(Protocol):
    """A `dpiw.analysis.release.Release`, as what is made of it sees it."""

    @property
    def table(self) -> pd.DataFrame:
        """The synthetic rows."""
        ...

    @property
    def weights(self) -> Array:
        """Shape (rows,)."""
        ...

    @property
    def log_weights(self) -> Array:
        """Shape (rows,)."""
        ...

    @property
    def certificate(self) -> Certificate:
        """What was promised."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """The public data dictionary, JSON values."""
        ...

    @property
    def replicate_weights(self) -> ReplicateWeights | None:
        """None: not published."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedSample:
    """Rows and weights.

    Attributes:
        table: the rows; a copy, as yours to change: no estimate moves with it.
        weights: shape (n,), >= 0, of mean one.
        scale: what `weights` were divided by to have mean one; kept for totals.
        law: of the weights' noise, with the features it acts on; None: no noise, or not known.
        totals: unnormalised weights, of mean one with `scale`.
        release: where the rows come from, if they come from a release.
        schema: of rows that are replayed; else it is the release's.
    """

    table: HandedOut = HandedOut()
    weights: Array
    scale: float = 1.0
    law: MeansLaw | None = None
    totals: Array | None = field(default=None, repr=False)
    release: Published | None = field(default=None, repr=False)
    schema: PublicSchema | None = field(default=None, repr=False)
    _frame: pd.DataFrame = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", in_row_order(self.weights, self._frame))

    @property
    def rows(self) -> int:
        """Number of synthetic rows."""
        return len(self._frame)

    @property
    def max_rows(self) -> int:
        """Most rows of one person among the confidential ones; 1 where nothing says so."""
        if self.release is not None:
            return self.release.certificate.unit.max_rows
        return 1 if self.law is None else self.law.max_rows

    @property
    def effective_rows(self) -> float:
        """Kish's effective sample size (sum w)^2 / sum w^2."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())

    @property
    def known_law(self) -> MeansLaw:
        """The weights' law.

        Raises:
            ReleaseError: it is not known.
        """
        if self.law is None:
            diagnostics = {} if self.release is None else self.release.certificate.diagnostics
            raise ReleaseError(
                "noise-aware: the law of these weights is not known; expected a release with"
                f" weights.method: measured{forced_rows(diagnostics)}"
            )
        return self.law

    @cached_property
    def declared(self) -> Mapping[str, Column]:
        """The released columns' public declarations by name; none where no schema is known."""
        schema = self.schema
        if schema is None and self.release is not None:
            schema = PublicSchema.from_mapping(self.release.schema)
        return {} if schema is None else {c.name: c for c in schema.released}


Source = Any
"""A `Release`, a `WeightedSample`, or a pair (table, weights)."""


def weighted_sample(source: Source) -> WeightedSample:
    """Rows and weights of a release, or of a pair (table, weights).

    Args:
        source: a `Release`; a pair of a pandas table and one weight >= 0 per row (None: all one);
            or a `WeightedSample`, which is returned as it is.

    Raises:
        WeightError: not one finite weight >= 0 per row, or no row with weight.
    """
    if isinstance(source, WeightedSample):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return sample_of(*source)
    if hasattr(source, "log_weights") and hasattr(source, "certificate"):
        sample: WeightedSample = source.sample
        return sample
    raise WeightError("source: expected a release, or a pair (table, weights)")


def sample_of(table: pd.DataFrame, given: Any, *, factor: float = 1.0, **of: Any) -> WeightedSample:
    """A sample of mean one; what is done to the table's columns later is not done to it."""
    mass = row_weights(table, given)
    mean = float(mass.mean())
    weights = mass / mean
    weights.setflags(write=False)
    return WeightedSample(table=table.copy(deep=False), weights=weights, scale=mean * factor, **of)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Values:
    """Values from weighted rows, with what their intervals need.

    Attributes:
        names: what each value is, length p.
        values: shape (p,).
        influence: shape (n, p). With weights w of mean one, moving them by dw moves the values
            by mean(dw * influence). Zero in rows that do not take part.
        refit: the values at other weights, shape (n,) to shape (p,).
        sample: the rows and weights.
        group: which rows each value rests on, shape (n, p) or (n, 1); None: all.
        sides: two groups that each value compares, shape (2, n, p); None: none, `group` counts.
        level: rows that a share counts, shape (n, p); None: no shares.
        limits: between what each value lies by its nature, shape (2, p) or (2, 1); None: unknown.
        ends: from intervals' reach by linearisation, (p,), to their ends, (2, p); None: as far.
        facts: what else the estimator has to say, by name.
    """

    names: tuple[str, ...]
    values: Array
    influence: Array
    refit: Callable[[Array], Array]
    sample: WeightedSample
    group: NDArray[np.bool_] | None = None
    sides: NDArray[np.bool_] | None = None
    level: NDArray[np.bool_] | None = None
    limits: Array | None = None
    ends: Callable[[Array], Array] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def groups(self) -> NDArray[np.bool_]:
        """`group` with a column for each value, shape (n, p)."""
        return np.broadcast_to(True if self.group is None else self.group, self.influence.shape)

    @property
    def least_and_most(self) -> Array:
        """`limits` with a column for each value, shape (2, p), infinite where nothing is known."""
        limits = [[-np.inf], [np.inf]] if self.limits is None else self.limits
        return np.broadcast_to(limits, (2, self.values.size))

    def covariance(self) -> Array:
        """Sandwich covariance over the synthetic rows alone, shape (p, p).

        mean((w g)(w g)') / n with g the influence, weights held fixed (docs/method.md section 12).
        """
        pushed = self.sample.weights[:, None] * self.influence
        pushed = pushed - pushed.mean(axis=0)
        return np.asarray(pushed.T @ pushed / len(pushed) ** 2)

    def reached(self, reach: Array) -> Array:
        """Ends of intervals that reach so far by linearisation, (p,) to (2, p)."""
        if self.ends is not None:
            return self.ends(reach)
        return np.stack([self.values - reach, self.values + reach])


def check_estimate(value: object, function: str) -> None:
    """Refuses what is not an estimate of this package.

    Raises:
        ReleaseError: it is none; says what to write.
    """
    if isinstance(value, Values):
        return
    found = type(value).__name__
    if isinstance(value, list | tuple) and value and isinstance(value[0], Values):
        found += f" of estimates: write {function}(first, second), or {function}(*estimates)"
    raise ReleaseError(
        f"{function}: expected an estimate, such as mean(release, 'age'); found {found}"
    )
