"""What every estimator takes: a release, or a table with weights; and what it returns.

An estimator is smooth in the weighted rows. `influence`, how much each row moves it, gives every
standard error: of synthetic rows, of the weights' noise (`MeansLaw`) and of sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.given import in_row_order, row_weights
from dpiw.analysis.rows import HandedOut
from dpiw.data.columns import Column
from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError, WeightError
from dpiw.methods.admission import forced_rows

if TYPE_CHECKING:
    from dpiw.analysis.intervals import Interval
    from dpiw.analysis.release import Release
    from dpiw.methods.weights.means_law import MeansLaw

Array = NDArray[np.float64]


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

    table: HandedOut = HandedOut()  # noqa: RUF009 - no default, but where the rows are kept
    weights: Array
    scale: float = 1.0
    law: MeansLaw | None = None
    totals: Array | None = field(default=None, repr=False)
    release: Release | None = field(default=None, repr=False)
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
        return _sample(*source)
    if hasattr(source, "log_weights") and hasattr(source, "certificate"):
        sample: WeightedSample = source.sample
        return sample
    raise WeightError("source: expected a release, or a pair (table, weights)")


def sample_of_release(release: Release) -> WeightedSample:
    """Rows, weights and the weights' law; seconds for Fourier features. `Release.sample` keeps it.

    Unnormalised weights are debiased for totals, and for no ratio (docs/method.md section 5).

    Raises:
        ReleaseError: the weights are not what certificate and rows say.
    """
    from dpiw.analysis.weight_distribution import law_of_release

    logs = np.asarray(release.log_weights, dtype=np.float64)
    top, law = float(logs.max()), law_of_release(release)
    scaled_weights, factor = np.exp(logs - top), np.exp(top)
    sample = _sample(release.table, scaled_weights, factor=factor, law=law, release=release)
    if release.certificate.self_normalised:
        return sample
    return replace(sample, totals=sample.weights)


def _sample(table: pd.DataFrame, given: Any, *, factor: float = 1.0, **of: Any) -> WeightedSample:
    """A sample of mean one; what is done to the table's columns later is not done to it."""
    mass = row_weights(table, given)
    mean = float(mass.mean())
    weights = mass / mean
    weights.setflags(write=False)
    return WeightedSample(table=table.copy(deep=False), weights=weights, scale=mean * factor, **of)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Estimate:
    """An estimate from weighted rows, with what its intervals need. Prints with its interval.

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
    def groups(self) -> NDArray[np.bool_]:
        """`group` with a column for each value, shape (n, p)."""
        return np.broadcast_to(True if self.group is None else self.group, self.influence.shape)

    @property
    def least_and_most(self) -> Array:
        """`limits` with a column for each value, shape (2, p), infinite where nothing is known."""
        limits = [[-np.inf], [np.inf]] if self.limits is None else self.limits
        return np.broadcast_to(limits, (2, self.values.size))

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

    def covariance(self) -> Array:
        """Sandwich covariance over the synthetic rows alone, shape (p, p).

        mean((w g)(w g)') / n with g the influence, weights held fixed (docs/method.md section 12).
        """
        pushed = self.sample.weights[:, None] * self.influence
        pushed = pushed - pushed.mean(axis=0)
        return np.asarray(pushed.T @ pushed / len(pushed) ** 2)

    def interval(self, level: float = 0.95, **settings: Any) -> Interval:
        """`dpiw.analysis.confidence_interval` of this estimate."""
        from dpiw.analysis.intervals import confidence_interval

        return confidence_interval(self, level=level, **settings)

    def __getitem__(self, name: str) -> float:
        """A value by its name, or by its level alone where that names one of them."""
        from dpiw.analysis.groups import place_of

        return float(self.values[place_of(name, self.names)])
