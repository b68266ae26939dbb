"""Estimates: values that print with their intervals, by group and joined."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.columns import Column, crossed, numbers
from dpiw.analysis.conditions import chosen
from dpiw.analysis.errors.intervals import Interval, confidence_interval
from dpiw.analysis.names import nearest_first
from dpiw.analysis.sample import Array, Values, WeightedSample, check_estimate
from dpiw.data.cells.plain import one_form
from dpiw.errors import ReleaseError


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Answer(ABC):
    """Named values, shape (p,), that print with their intervals."""

    names: tuple[str, ...]
    values: Array

    def __repr__(self) -> str:
        return f"{self._usual!r}\n{self.footnote}"

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else repr(self)

    def _repr_html_(self) -> str:
        return f"{self._usual._repr_html_()}{self.footnote}"

    @property
    @abstractmethod
    def footnote(self) -> str:
        """A line below the printed intervals."""

    @property
    def value(self) -> float:
        """The only value; raises ReleaseError if there are several."""
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
        if self.values.size != 1:
            some = ", ".join(self.names[:3]) + ", ..." * (len(self.names) > 3)
            raise ReleaseError(
                f"this estimate has several values ({some}); use `{plural}`, which has the order"
                " of `names`, or `interval().frame()`",
                field="estimate",
            )
        return self.values if name == "values" else getattr(self._usual, name)

    @abstractmethod
    def interval(self, level: float = 0.95) -> Interval:
        """Return an interval for each value, of that nominal coverage."""

    def __getitem__(self, name: str) -> float:
        """Return a value by its name, or by its level if only one name ends with it."""
        return float(self.values[place_of(name, self.names)])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Estimate(Answer, Values):
    """An estimate from weighted rows. Prints with its interval."""

    @property
    def footnote(self) -> str:
        """The rows used, and how many of equal weight they are worth."""
        used, worth = (
            " to ".join({f"{rows:,.0f}": None for rows in (counts.min(), counts.max())})
            for counts in (self.groups.sum(axis=0), self.effective_rows)
        )
        return f"uses {used} of {self.sample.rows:,} synthetic rows, worth {worth} of equal weight"

    def interval(self, level: float = 0.95, **settings: Any) -> Interval:
        """Return `dpiw.analysis.confidence_interval` of this estimate."""
        return confidence_interval(self, level=level, **settings)


def place_of(name: str, names: Sequence[str]) -> int:
    """Return the index of a value by its name, or by the level that ends one name alone.

    A name that none ends with is looked up in Unicode form NFC.
    """
    name = str(name)
    if not any(full_name.endswith(name) for full_name in names):
        name, names = one_form(name), [one_form(full_name) for full_name in names]
    ends = [k for k, full_name in enumerate(names) if full_name == name]
    if not ends:
        ends = [k for k, full_name in enumerate(names) if full_name.endswith(f"={name}")]
        shortest = min((names[k] for k in ends), key=len, default="")
        stem = shortest.removesuffix(name)
        if all(names[k].startswith(stem) for k in ends):  # the others' levels only end so
            ends = [k for k in ends if names[k] == shortest]
    if len(ends) != 1:
        word = "has several values" if ends else "has no value"
        # `south` of `mean(age) | region=south`, or the whole name
        levels_of = [full.rpartition(" | ")[2].partition("=")[2] or full for full in names]
        choices = names if ends else levels_of
        raise ReleaseError(
            f"{word} {name!r}; its values, {nearest_first(str(name), choices)}", field="estimate"
        )
    return ends[0]


By = str | Sequence[str] | None
"""A column whose levels are groups, or several whose combinations are."""

Estimator = Callable[[WeightedSample, Array, str], Estimate]
"""From one number per row, NaN where it does not count, and a name."""


def present_rows(values: Array, what: str, sample: WeightedSample) -> NDArray[np.bool_]:
    """Return which rows have a number, shape (n,); ReleaseError if none has weight."""
    present = ~np.isnan(values)
    if not sample.weights[present].sum() > 0:
        raise ReleaseError("every value is missing in the rows that count", field=what)
    return present


def label_of(column: Column) -> str:
    """A column's name in the name of an estimate."""
    return column if isinstance(column, str) else "value"


def asked(what: str, where: Column | None) -> str:
    """An estimate's name, with its condition as typed."""
    if where is None:
        return what
    given = "<function>" if callable(where) else "<mask>"
    return f"{what} where {where if isinstance(where, str) else given}"


def grouped(
    sample: WeightedSample,
    column: Column,
    where: Column | None,
    by: By,
    name: str,
    estimator: Estimator,
) -> Estimate:
    """Return one estimate, or one value for each group of `by`; NaN for a group without weight.

    `estimator` maps numbers, NaN where a row does not count, to an estimate.
    """
    values = np.where(chosen(sample, where), numbers(sample, column), np.nan)
    if by is None:
        return estimator(sample, values, name)
    groups, counts = crossed(sample, by), sample.weights * ~np.isnan(values)
    names = [f"{name} | {label}" for label in groups.labels]
    present_codes = [k for k in range(len(names)) if counts[groups.codes == k].sum() > 0]
    if not present_codes:
        present_rows(values, name, sample)
    estimates = {
        k: estimator(sample, np.where(groups.codes == k, values, np.nan), names[k])
        for k in present_codes
    }
    other = estimates[present_codes[0]]
    shown = range(len(names)) if groups.declared else present_codes
    return joint(
        *(estimates[k] if k in estimates else nobody(sample, names[k], other) for k in shown)
    )


def nobody(sample: WeightedSample, name: str, other: Estimate) -> Estimate:
    """Estimate of a group without rows, like `other`: NaN, the whole possible range as interval."""
    unknown = {"inside": np.array([np.nan])} if "inside" in other.facts else {}
    return Estimate(
        names=(name,), values=np.array([np.nan]), influence=np.zeros((sample.rows, 1)),
        sample=sample, group=np.zeros((sample.rows, 1), dtype=bool), limits=other.limits,
        facts={"smooth": other.facts.get("smooth", True), **unknown},
    )  # fmt: skip


def both_sides(estimate: Estimate) -> NDArray[np.bool_]:
    """`sides`, shape (2, n, p); a value that compares no groups has its group twice."""
    shape = (2, *estimate.groups.shape)
    return np.broadcast_to(estimate.groups if estimate.sides is None else estimate.sides, shape)


def picked(estimate: Estimate, places: Sequence[int]) -> Estimate:
    """Return the values of an estimate at some places."""
    indices = list(places)

    def ends(reach: Array) -> Array:
        full_reach = np.zeros(estimate.values.size)
        full_reach[indices] = reach
        return estimate.reached(full_reach)[:, indices]

    sides, level, facts = estimate.sides, estimate.level, dict(estimate.facts)
    if "inside" in facts:
        facts["inside"] = facts["inside"][indices]
    return replace(
        estimate, names=tuple(estimate.names[k] for k in indices), values=estimate.values[indices],
        influence=estimate.influence[:, indices], group=estimate.groups[:, indices],
        sides=None if sides is None else sides[:, :, indices],
        level=None if level is None else level[:, indices],
        limits=estimate.least_and_most[:, indices], ends=ends, facts=facts,
    )  # fmt: skip


def joint(*estimates: Estimate) -> Estimate:
    """Join estimates of the same rows and weights into one, for their joint covariance."""
    for estimate in estimates:
        check_estimate(estimate, "joint")
    if not estimates or any(
        not np.array_equal(estimate.sample.weights, estimates[0].sample.weights)
        for estimate in estimates
    ):
        raise ReleaseError(
            field="joint",
            allowed="at least one estimate, and all from the same sample; compute each"
            " estimate from `release.sample`",
        )

    smooth = {bool(estimate.facts.get("smooth", True)) for estimate in estimates}
    if len(smooth) > 1:
        fault = "quantiles have errors of another kind; join them only with quantiles"
        raise ReleaseError(fault, field="joint")

    inside = [estimate.facts["inside"] for estimate in estimates if "inside" in estimate.facts]

    def given(name: str) -> bool:
        return any(getattr(estimate, name) is not None for estimate in estimates)

    def ends(reach: Array) -> Array:
        places = np.cumsum([estimate.values.size for estimate in estimates])[:-1]
        parts = zip(estimates, np.split(reach, places), strict=True)
        return np.hstack([estimate.reached(part) for estimate, part in parts])

    return Estimate(
        names=tuple(name for estimate in estimates for name in estimate.names),
        values=np.concatenate([estimate.values for estimate in estimates]),
        influence=np.hstack([estimate.influence for estimate in estimates]),
        sample=estimates[0].sample,
        group=np.hstack([estimate.groups for estimate in estimates]),
        sides=np.concatenate([both_sides(e) for e in estimates], axis=2)
        if given("sides")
        else None,
        level=np.hstack([e.groups if e.level is None else e.level for e in estimates])
        if given("level")
        else None,
        limits=np.hstack([estimate.least_and_most for estimate in estimates]),
        ends=ends if given("ends") else None,
        facts={
            "smooth": smooth.pop(),
            "normalised": all(estimate.facts.get("normalised", True) for estimate in estimates),
        }
        | ({"inside": np.concatenate(inside)} if inside else {}),
    )
