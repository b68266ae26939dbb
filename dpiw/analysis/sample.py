"""The input of every estimator, and its result.

An estimate's `influence`, how much each row moves the value, gives every standard error: of
synthetic rows, of the weights' noise (`MeansLaw`) and of sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import DPIWError, ReleaseError, WeightError
from dpiw.methods.admission import forced_rows

if TYPE_CHECKING:
    from dpiw.data.row_weights import ReplicateWeights
    from dpiw.methods.weights.measured.law import MeansLaw
    from dpiw.release.certificate import Certificate


ONE_EACH = "expected one number or truth value per row"

_WEIGHTS = "weights: expected one finite number >= 0 per row, not all zero"


def row_weights(table: pd.DataFrame, weights: Any) -> NDArray[np.float64]:
    """Return weights as floats, shape (n,), in row order; ones if None; WeightError if invalid."""
    if not isinstance(table, pd.DataFrame):
        found = type(table).__name__
        raise WeightError(
            field="source", allowed=f"a pair (pandas table, weights); found ({found}, ...)"
        )
    if weights is None:
        return np.ones(len(table))
    if np.ndim(weights) > 1:
        raise WeightError(f"{_WEIGHTS}; found {_columns_of(weights)}; choose one column")
    try:
        ordered = by_label(weights, table, _WEIGHTS, WeightError)
        values = np.asarray(ordered, dtype=np.float64)
    except (TypeError, ValueError):
        raise WeightError(f"{_WEIGHTS}; found {type(weights).__name__}") from None
    if values.shape != (len(table),):
        raise WeightError(f"{_WEIGHTS}; found {_count(weights, values, table)}")
    bad = int((~(np.isfinite(values) & (values >= 0))).sum())
    if bad or not values.sum() > 0:
        raise WeightError(f"{_WEIGHTS}; found {f'{bad:,} others' if bad else 'zeros alone'}")
    return values


def row_values(given: Any, table: pd.DataFrame) -> pd.Series:
    """Return numbers or truth values in row order; ReleaseError unless one per row."""
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
    """Put a Series in the order of the table's rows; anything else is taken by position.

    A Series of another length is returned unchanged; another index raises `error`.
    """
    if not isinstance(values, pd.Series) or len(values) != len(table):
        return values
    theirs, ours = values.index, table.index
    if theirs is ours or theirs.equals(ours):
        return values
    found = f"{expected}; found a Series whose index is not the table's"
    by_position = "if its values are in the table's order, pass values.to_numpy()"
    if not (theirs.is_unique and ours.is_unique):
        whose = "its index" if ours.is_unique else "the table's"
        raise error(
            f"{found}, and {whose} has a label twice, so rows cannot be found; {by_position}"
        )
    places = theirs.get_indexer(ours)
    strange = int(np.count_nonzero(places < 0))
    if strange:
        raise error(
            f"{found}: it lacks {strange:,} of the {len(table):,} labels; {by_position}; else pass"
            " values.reindex(table.index), where other rows have missing values",
        )
    return values.iloc[places]


def _columns_of(values: Any) -> str:
    return f"a table of {np.shape(values)[1]} columns"


def _count(given: Any, values: Any, table: pd.DataFrame) -> str:
    hint = ": write .reindex(table.index)" if isinstance(given, pd.Series) else ""
    return f"{values.size:,} for {len(table):,} rows{hint}"


Array = NDArray[np.float64]

_EAGER = int(pd.__version__.partition(".")[0]) < 3
"""Whether `copy` must be deep: from pandas 3 on, copies are made on write."""


def copied(table: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of a table that a caller may change."""
    return table.copy(deep=_EAGER)


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """Rows, weights and certificate of a release, published or about to be.

    Attributes:
        weights: shape (rows,), mean one; as estimated if the certificate says `unnormalised`.
        log_weights: shape (rows,), natural logs as estimated, not normalised.
        certificate: the guarantee, its cost, and the quality of the weights.
        schema: the public data dictionary, JSON values.
    """

    _table: pd.DataFrame
    weights: Array
    log_weights: Array
    certificate: Certificate
    schema: Mapping[str, Any]

    @property
    def table(self) -> pd.DataFrame:
        """The synthetic rows in declared types, without weights; a copy."""
        return copied(self._table)

    @property
    def replicate_weights(self) -> ReplicateWeights | None:
        """None: not published."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedSample:
    """Rows and weights.

    Attributes:
        frame: the rows, not to be changed; `table` is a copy of them.
        weights: shape (n,), >= 0, mean one; `scale` is the mean before scaling, for totals.
        law: law of the weights' noise; None: no noise, or unknown.
        totals: unnormalised weights, of mean one with `scale`.
        schema: of rows made in memory; otherwise the release's.
    """

    frame: pd.DataFrame = field(repr=False)
    weights: Array
    scale: float = 1.0
    law: MeansLaw | None = None
    totals: Array | None = field(default=None, repr=False)
    release: Published | None = field(default=None, repr=False)
    schema: PublicSchema | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        ordered = by_label(self.weights, self.frame, _WEIGHTS, WeightError)
        object.__setattr__(self, "weights", np.asarray(ordered))

    @property
    def table(self) -> pd.DataFrame:
        """A copy of the rows, so that changes to it affect no estimate."""
        return copied(self.frame)

    @property
    def rows(self) -> int:
        """Number of synthetic rows."""
        return len(self.frame)

    @property
    def max_rows(self) -> int:
        """Most confidential rows of one person; 1 if unknown."""
        if self.release is not None:
            return self.release.certificate.unit.max_rows
        return 1 if self.law is None else self.law.max_rows

    @property
    def effective_rows(self) -> float:
        """Kish's effective sample size (sum w)^2 / sum w^2."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())

    @property
    def known_law(self) -> MeansLaw:
        """The weights' law; raises ReleaseError if unknown."""
        if self.law is None:
            diagnostics = {} if self.release is None else self.release.certificate.diagnostics
            raise ReleaseError(
                "the effect of the privacy noise on these weights is not known",
                field="noise-aware",
                allowed=f"a release with weights.method: measured{forced_rows(diagnostics)};"
                " method='sandwich' leaves the privacy noise out",
            )
        return self.law

    @cached_property
    def declared(self) -> Mapping[str, Column]:
        """Public declarations of the released columns by name; empty without a schema."""
        schema = self.schema
        if schema is None and self.release is not None:
            schema = PublicSchema.from_mapping(self.release.schema)
        return {} if schema is None else {c.name: c for c in schema.released}


Source = Any
"""A `Release`, a `WeightedSample`, or a pair (table, weights)."""


def weighted_sample(source: Source) -> WeightedSample:
    """Return rows and weights of a release, or of a pair (table, weights).

    Args:
        source: a `Release`; a pair of a pandas table and one weight >= 0 per row (None: all one);
            or a `WeightedSample`, which is returned unchanged.
    """
    if isinstance(source, WeightedSample):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return sample_of(*source)
    if hasattr(source, "log_weights") and hasattr(source, "certificate"):
        sample: WeightedSample = source.sample
        return sample
    allowed = f"a release, or a pair (table, weights); found {type(source).__name__}"
    raise WeightError(field="source", allowed=allowed)


def sample_of(table: pd.DataFrame, given: Any, *, factor: float = 1.0, **of: Any) -> WeightedSample:
    """Return a sample of mean one; later changes to the table do not affect it."""
    mass = row_weights(table, given)
    mean = float(mass.mean())
    weights = mass / mean
    weights.setflags(write=False)
    return WeightedSample(frame=table.copy(deep=False), weights=weights, scale=mean * factor, **of)


def effective_rows(mass: Array, influence: Array) -> Array:
    """Return how many rows of equal weight are as precise, without privacy noise, shape (p,).

    (sum w)(sum w g^2)/sum w^2 g^2, with g = H^-1 score the influence: n tr(V_0)/tr(V_IW) of each
    value by itself, as units differ. Kish's number where all g^2 are equal; at least 1; above n if
    g is largest in light rows. `mass`: w, zero in rows that do not take part, shape (n, p) as of g.
    Source: Ghalebikesabi et al. (2022), eq. 16, corrected (docs/method.md section 12).
    """
    pull = np.where(mass > 0, influence, 0.0)
    largest = np.abs(pull).max(axis=0)
    squares = np.divide(pull, largest, out=np.ones_like(pull), where=largest > 0) ** 2
    pushed = np.maximum((mass**2 * squares).sum(axis=0), 1e-300)
    return np.asarray(mass.sum(axis=0) * (mass * squares).sum(axis=0) / pushed)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Values:
    """Values from n weighted rows, with what their intervals need; `values` have shape (p,).

    Attributes:
        influence: shape (n, p), zero in rows that do not take part. A change dw of weights of mean
            one changes the values by mean(dw * influence).
        group: rows that each value rests on, shape (n, p) or (n, 1); None: all.
        sides: two groups that each value compares, shape (2, n, p); None: none.
        level: rows that a share counts, shape (n, p); None: no shares.
        limits: possible range of each value, shape (2, p) or (2, 1); None: unknown.
        ends: from half widths by linearisation, (p,), to interval ends, (2, p); None: symmetric.
    """

    names: tuple[str, ...]
    values: Array
    influence: Array
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
        """`limits` with a column for each value, shape (2, p); infinite if unknown."""
        limits = [[-np.inf], [np.inf]] if self.limits is None else self.limits
        return np.broadcast_to(limits, (2, self.values.size))

    def covariance(self) -> Array:
        """Sandwich covariance mean((w g)(w g)') / n, g the influence and w fixed, shape (p, p)."""
        pushed = self.sample.weights[:, None] * self.influence
        pushed = pushed - pushed.mean(axis=0)
        return np.asarray(pushed.T @ pushed / len(pushed) ** 2)

    @property
    def effective_rows(self) -> Array:
        """`effective_rows` of each value, shape (p,), among its group's rows."""
        return effective_rows(self.sample.weights[:, None] * self.groups, self.influence)

    def reached(self, reach: Array) -> Array:
        """Interval ends, shape (2, p), from half widths by linearisation, shape (p,)."""
        if self.ends is not None:
            return self.ends(reach)
        return np.stack([self.values - reach, self.values + reach])


def check_estimate(value: object, function: str) -> None:
    """Raise ReleaseError unless `value` is an estimate of this package."""
    if isinstance(value, Values):
        return
    found = type(value).__name__
    if isinstance(value, list | tuple) and value and isinstance(value[0], Values):
        found += f" of estimates: write {function}(first, second), or {function}(*estimates)"
    raise ReleaseError(
        field=function, allowed=f"an estimate, such as mean(release, 'age'); found {found}"
    )
