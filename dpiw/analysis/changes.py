"""Change over time: the difference of an estimate between two releases, for any overlap of people.

Let V_a and V_b be the variances of the two estimates (`variance_parts`). Noise, generator and
synthetic rows are drawn for each release by itself, so these errors are independent. People are
not: the same person may be in both tables, with values that go together or against each other. The
sampling error of an estimate of influence g has at most the variance s^2 = k mean(w g^2)/N, for N
confidential rows and up to k of them a person, whether it comes by the noisy means or by the
generator. By the Cauchy-Schwarz inequality, for every overlap and every correlation in time,

    Var(b - a) <= V_a + V_b + 2 s_a s_b:

the people's errors add up linearly, all others in quadrature. It is an equality if all people are
in both, their values are opposed and g is measured. If no person is in both, the last term is zero.
What no feature sees (`prior`) counts as independent: generators that err alike narrow a change.

Ends are as of the two intervals (MOVER; Zou and Donner, Statistics in Medicine 27, 2008), with
r = s_a s_b / sqrt(V_a V_b), at most 1, as correlation of the errors of a and -b:

    lower = b - a - sqrt(p^2 + q^2 + 2 r p q), p = b - lower_b, q = upper_a - a,

and the upper end has the other two ends. For symmetric intervals this is 1.96 standard errors. For
quantiles and shares near zero it keeps their own shape, and it never leaves the possible range.
Post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.analysis.errors.intervals import Interval
from dpiw.analysis.estimators.estimates import Answer, Estimate
from dpiw.analysis.questions import answer
from dpiw.analysis.release import Release
from dpiw.analysis.sample import Array, WeightedSample, check_estimate
from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ReleaseError
from dpiw.methods.admission import forced_rows
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.questions import CORRELATION, TABLE, Question, parse_questions

Asked = Question | Mapping[str, Any] | str | Callable[[WeightedSample], Estimate]
"""A declared question, one as a spec states it, its text, or a function that estimates."""

SHARED = "shared"
"""The part of the variance that the same people in both releases may add, at most."""

_ANY_MEANING = {"role", "cuts", "bins", "provenance", "null_is_own_person"}
"""Fields of a column that do not change what its cells are."""

_ORDER = [verdict.value for verdict in Verdict]
_WORST = Verdict.DO_NOT_USE.value


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Change(Answer):
    """The change of an estimate between two releases. Prints with its interval.

    Attributes:
        values: b - a, shape (p,); NaN where either release says `do not use`.
        a, b: the two estimates.
        same_people: whether the same people may be in both releases.
    """

    a: Estimate
    b: Estimate
    same_people: bool

    @property
    def footnote(self) -> str:
        """Whether the same people may be in both, and what the interval makes of it."""
        if self.same_people:
            return (
                "b - a. The same people may be in both releases: the intervals are valid for every"
                " overlap, and wider than for different people"
            )
        return "b - a. No person is in both releases: the curator registered two populations"

    def interval(self, level: float = 0.95) -> Interval:
        """Return an interval for each change, of that nominal coverage.

        `parts` are the sums of both releases', and `shared` if the same people may be in both;
        `support` is the lesser; a verdict is the worse, with the reasons of both.
        """
        first, last = self.a.interval(level), self.b.interval(level)
        parts = {name: first.parts[name] + last.parts[name] for name in first.parts}
        together = np.zeros(self.values.size)
        if self.same_people:
            most = _sampling_error(self.a) * _sampling_error(self.b)
            variances = [np.asarray(sum(one.parts.values())) for one in (first, last)]
            errors = np.sqrt(variances[0] * variances[1])
            together = np.divide(most, errors, out=np.ones_like(most), where=most < errors)
            parts[SHARED] = 2 * together * errors
        usable = ~np.isnan(self.values)
        down = _reach(last.values - last.lower, first.upper - first.values, together, usable)
        up = _reach(last.upper - last.values, first.values - first.lower, together, usable)
        pairs = list(zip(first.verdicts, last.verdicts, strict=True))
        return replace(
            last, values=self.values, lower=self.values - down, upper=self.values + up,
            parts=parts, support=np.minimum(first.support, last.support),
            verdicts=tuple(max(pair, key=_ORDER.index) for pair in pairs),
            reasons=_reasons(first, last),
            cut=first.cut or last.cut,
        )  # fmt: skip


def _reasons(a: Interval, b: Interval) -> tuple[tuple[str, ...], ...]:
    """Why each value's verdict is not `use`, in either release."""
    return tuple(
        (*(f"in a: {why}" for why in of_a), *(f"in b: {why}" for why in of_b))
        for of_a, of_b in zip(a.reasons, b.reasons, strict=True)
    )


def _sampling_error(estimate: Estimate) -> Array:
    """Most that the sampling of people may add to each value's standard error, shape (p,)."""
    law, share = estimate.sample.known_law, estimate.sample.weights / estimate.sample.rows
    return np.asarray(np.sqrt(law.max_rows / law.rows * (share @ estimate.influence**2)))


def _reach(p: Array, q: Array, together: Array, usable: NDArray[np.bool_]) -> Array:
    """Combined distance to an end, shape (p,); NaN where the change is unknown."""
    p, q = np.where(usable, p, np.nan), np.where(usable, q, np.nan)
    return np.asarray(np.sqrt(p**2 + q**2 + 2 * together * p * q))


def change(a: Release, b: Release, question: Asked) -> Change:
    """Return the change b - a of an estimate between two releases, with its interval.

    The same people may be in both if both are of one population, or if two keys signed them, since
    then nothing says that one ledger registered both populations. A person is in one population of
    a ledger alone (docs/privacy.md, assumption 4).

    Args:
        a: the release before, from `dpiw.load_release`; with `measured` weights.
        b: the release after.
        question: what to estimate in both: a question as a spec declares it, such as
            `mean: income by region` or `{"mean": "income by region"}`; or a function of a
            `WeightedSample`, such as `lambda s: analysis.mean(s, "income", where="age > 40")`.

    Raises:
        ReleaseError: both have the same draws; weights without a noise-aware interval; columns of
            other definitions, or another number of rows a person; estimates of other things; all
            values are `do not use` in either release.
    """
    for name, release in (("a", a), ("b", b)):
        if not isinstance(release, Release):
            raise ReleaseError(field=f"change: {name}", allowed="a release, from dpiw.load_release")
    if _draws(a) == _draws(b):
        fault = "both releases have the same draws, which show no change"
        raise ReleaseError(fault, field="change", allowed="two releases with draws of their own")
    rows = [release.certificate.unit.max_rows for release in (a, b)]
    if rows[0] != rows[1]:
        fault = f"a person has up to {rows[0]} rows in a and up to {rows[1]} in b"
        raise ReleaseError(fault, field="change", allowed="as many rows a person in both")
    estimates = _estimates(a, b, question)
    signers = {release.verified.key_id for release in (a, b)}
    same_population = a.certificate.population == b.certificate.population
    return difference(*estimates, same_people=same_population or len(signers) > 1)


def difference(a: Estimate, b: Estimate, *, same_people: bool) -> Change:
    """Return the change b - a of two estimates with noise-aware intervals; errors as `change`."""
    for name, estimate in (("a", a), ("b", b)):
        check_estimate(estimate, "change")
        if estimate.sample.law is None:
            release = estimate.sample.release
            diagnostics = {} if release is None else release.certificate.diagnostics
            raise ReleaseError(
                f"release {name} has no noise-aware interval", field="change",
                allowed=f"releases with weights.method: measured{forced_rows(diagnostics)}",
            )  # fmt: skip
    if a.names != b.names or a.facts.get("smooth", True) != b.facts.get("smooth", True):
        fault = f"a estimates {_some(a.names)}, and b {_some(b.names)}"
        raise ReleaseError(fault, field="change", allowed="the same estimates in both")
    first, last = a.interval(), b.interval()
    pairs = zip(first.verdicts, last.verdicts, strict=True)
    usable = np.array([_WORST not in pair for pair in pairs])
    if not usable.any():
        why = "; ".join(_reasons(first, last)[0])
        fault = f"the verdict of {_some(a.names)} is `{_WORST}` ({why})"
        raise ReleaseError(fault, field="change", allowed="a question that both releases answer")
    values = np.where(usable, b.values - a.values, np.nan)
    return Change(names=a.names, values=values, a=a, b=b, same_people=same_people)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + ", ..." * (len(names) > 3)


def _draws(release: Release) -> str:
    """The release whose draws these are: its own, or the one that it has more rows of."""
    first = release.certificate.more_rows_of or {}
    return str(first.get("release_id", release.certificate.release_id))


def _estimates(a: Release, b: Release, question: Asked) -> list[Estimate]:
    """Both releases' estimates, from columns of one definition; ReleaseError for others."""
    schemas = [PublicSchema.from_mapping(release.schema) for release in (a, b)]
    odd = _odd(*schemas)
    if not callable(question):
        stated = _entry(question) if isinstance(question, str) else question
        [asked] = parse_questions([getattr(stated, "to_json", lambda: stated)()], schemas[0])
        for name in (asked.target, *asked.others):
            _check_same(f"column {name!r}", odd)
        return [answer(release, asked) for release in (a, b)]
    frames = [release.sample.frame.drop(columns=[*odd], errors="ignore") for release in (a, b)]
    samples = zip((a.sample, b.sample), frames, strict=True)
    try:
        return [question(replace(sample, frame=frame)) for sample, frame in samples]
    except ReleaseError as error:
        _check_same(error.field, odd)
        raise
    except AttributeError as error:
        if not isinstance(error.obj, WeightedSample):
            raise
        allowed = 'a function of a sample, such as lambda s: analysis.mean(s, "age")'
        raise ReleaseError(field="change: question", allowed=allowed) from None


def _entry(text: str) -> dict[str, Any]:
    """A spec's entry of a question's text, such as `correlation: age, income`."""
    kind, _, asked = (part.strip() for part in text.partition(":"))
    if kind in (CORRELATION, TABLE):
        return {kind: [name.strip() for name in asked.strip("[]").split(",")]}
    return {kind: asked}


def _odd(first: PublicSchema, last: PublicSchema) -> dict[str, str]:
    """Why a column is not the same in both releases, by its name."""
    found = {}
    before, after = ({column.name: column for column in s.released} for s in (first, last))
    compared = [f.name for f in fields(Column) if f.compare and f.name not in _ANY_MEANING]
    for name in {**before, **after}:
        if name not in before or name not in after:
            found[name] = "it is in one release alone"
            continue
        pairs = [(key, getattr(before[name], key), getattr(after[name], key)) for key in compared]
        if differ := [key for key, one, other in pairs if one != other]:
            found[name] = f"the data dictionaries differ in its {', '.join(differ)}"
    return found


def _check_same(column: str, odd: Mapping[str, str]) -> None:
    """Refuse a column, as an error's field names it, whose definitions differ."""
    for name, why in odd.items():
        if column == f"column {name!r}":
            allowed = "columns of one definition in both releases"
            raise ReleaseError(why, field=f"change: {column}", allowed=allowed) from None
