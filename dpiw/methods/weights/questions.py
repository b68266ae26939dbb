"""Declared questions: what a release must answer, stated in public, and the features that see it.

A question is compiled into *terms*: a column, a number's square, a product of two columns, or
in which parts of the people a number is. Its answers are functions of the terms' means, so that
their intervals hold the noise of these means and hardly a guess. Source: docs/method.md section 14.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.discretisation import FEW_VALUES, value_points
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError, nearest, one_of
from dpiw.methods.base import real

OWN, HALVES, VALUES, BINS = "own", "halves", "values", "bins"
"""What a factor of a term is: a column's centred coordinates; in which half a number is, then in
which half of that, and so on; or indicators of the values of a number that has few
(`value_points`), or of a number's bins (`table_bins`). No question has bins."""

_COMPLETE = "complete"

MOST_QUESTIONS = 200


@dataclass(frozen=True, kw_only=True, order=True)
class Term:
    """Features of one or two columns: coordinates, or all products of two columns' coordinates.

    Attributes:
        factors: one or two pairs of a column and what is taken of it, one of the four above;
            a number twice is its square. None with `complete`: whether a row is.
        complete: columns in the schema's order that may be missing; in a row where one is, all
            coordinates of the factors are zero.
    """

    factors: tuple[tuple[str, str], ...]
    complete: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name among the parts of a feature map, as in certificates: a JSON list."""
        stated: list[Any] = [name if form == OWN else {form: name} for name, form in self.factors]
        stated += [{_COMPLETE: [*self.complete]}] if self.complete else []
        return json.dumps(stated, ensure_ascii=False)

    @property
    def is_square(self) -> bool:
        """Whether it is the square of a number."""
        return len(self.factors) != len({*self.factors})

    @classmethod
    def read(cls, key: str, schema: PublicSchema) -> Self | None:
        """The term of a key; None if it is none, or not of this schema's columns."""
        try:
            *stated, last = json.loads(key)
            columns = {column.name: column for column in schema.released}
            complete = () if isinstance(last, str) else last.get(_COMPLETE, ())
            stated += [] if complete else [last]
            pairs = [(f, OWN) if isinstance(f, str) else (*f.values(), *f) for f in stated]
            term = cls(
                factors=tuple((name, form) for name, form in pairs),
                complete=tuple(name for name in columns if name in complete),
            )
            forms = [form in _forms(columns[name], complete) for name, form in term.factors]
            squared = term.is_square and not columns[term.factors[0][0]].is_numeric
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError):
            return None
        names = {name for name, _ in term.factors}
        twice = len(names) < len(term.factors) and (not term.is_square or term.factors[0][1] != OWN)
        good = (len(forms) in (1, 2) or (complete and not forms)) and all(forms)
        gaps = {name for name in columns if columns[name].nullable}
        good = good and (not complete or names & gaps <= {*term.complete} <= gaps)
        return term if good and not squared and not twice and term.key == key else None


def _forms(column: Column, complete: Any) -> tuple[str, ...]:
    if complete or not column.is_numeric:
        return (OWN,)
    return (OWN, HALVES, BINS, *(VALUES,) * bool(value_points(column).size))


@dataclass(frozen=True, kw_only=True)
class Question:
    """One declared question.

    Attributes:
        kind: one of `KINDS`.
        target: the column that it is about, or the first one.
        others: the column of the groups, the second column, or the regressors.
        weight: importance beside the other questions, > 0.
        spread: the public guess at the standard deviation of the target, in its own unit, for the
            forecast alone; None: a sixth of its range.
    """

    kind: str
    target: str
    others: tuple[str, ...] = ()
    weight: float = 1.0
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.asked}"

    @property
    def asked(self) -> str:
        """The question as its kind is written, in one form."""
        if self.kind in (CORRELATION, TABLE):
            return ", ".join([self.target, *self.others])
        if self.kind == REGRESSION:
            return f"{_quoted(self.target)} ~ {' + '.join(map(_quoted, self.others))}"
        return " by ".join([self.target, *self.others])

    def to_json(self) -> dict[str, Any]:
        """JSON values, as a spec states them."""
        listed = self.kind in (CORRELATION, TABLE)
        stated: dict[str, Any] = {self.kind: [self.target, *self.others] if listed else self.asked}
        stated |= {} if self.weight == 1 else {"weight": self.weight}
        return stated if self.spread is None else stated | {"spread": self.spread}

    @property
    def levels(self) -> tuple[str, ...]:
        """The columns whose levels, or few values, the answer tells apart."""
        if self.kind in (SHARE, TABLE):
            return (self.target, *self.others)
        return self.others if self.kind == MEAN else ()

    def terms(self, schema: PublicSchema) -> list[Term]:
        """The terms whose means give the answer."""
        columns = {column.name: column for column in schema.released}
        order, names = [*columns], (self.target, *self.others)
        factors = sorted(
            (
                (name, VALUES if name in self.levels and columns[name].is_numeric else OWN)
                for name in names
            ),
            key=lambda factor: order.index(factor[0]),
        )
        groups: list[tuple[tuple[str, str], ...]] = [(factor,) for factor in factors]
        groups += itertools.combinations(factors, 2)
        if self.kind in (CORRELATION, REGRESSION):
            response = () if self.kind == CORRELATION else (self.target,)
            numbers = [f for f in factors if columns[f[0]].is_numeric and f[0] not in response]
            groups += [(factor, factor) for factor in numbers]
        if self.kind == QUANTILES:
            groups.append(((self.target, HALVES),))
        complete = tuple(name for name in order if name in {*names} and columns[name].nullable)
        if complete and self.kind in (CORRELATION, REGRESSION):  # which leave other rows out
            return [Term(factors=group, complete=complete) for group in ((), *groups)]
        return [Term(factors=group) for group in groups]


MEAN, SHARE, CORRELATION, REGRESSION, QUANTILES, TABLE = KINDS = (
    "mean", "share", "correlation", "regression", "quantiles", "table"
)  # fmt: skip


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def importance(questions: Sequence[Question], schema: PublicSchema) -> dict[str, float]:
    """Each term's importance by its key: the sum of that of the questions which need it."""
    found: dict[str, float] = {}
    for question in questions:
        for term in dict.fromkeys(question.terms(schema)):
            found[term.key] = found.get(term.key, 0.0) + question.weight
    return dict(sorted(found.items()))


# From a spec's words


def parse_questions(stated: Sequence[Any], schema: PublicSchema) -> tuple[Question, ...]:
    """Read a spec's `questions`; SpecError names the entry and what is allowed. Public."""
    if len(stated) > MOST_QUESTIONS:
        raise SpecError(
            f"{len(stated)} questions", field="questions", allowed=f"at most {MOST_QUESTIONS}"
        )
    return tuple(
        _Reader(field=f"questions[{place}]", schema=schema).question(entry)
        for place, entry in enumerate(stated, 1)
    )


@dataclass(frozen=True)
class _Reader:
    """Reads one entry."""

    field: str
    schema: PublicSchema

    def question(self, entry: Any) -> Question:
        given = entry if isinstance(entry, Mapping) else {}
        kinds = [key for key in given if key not in ("weight", "spread")]
        if len(kinds) > 1 and len(unknown := [key for key in kinds if key not in KINDS]) == 1:
            allowed = one_of(str(unknown[0]), ("weight", "spread"))
            raise SpecError(field=f"{self.field}.{unknown[0]}", allowed=allowed)
        if len(kinds) != 1:
            allowed = f"one question, such as `mean: COLUMN by COLUMN`; {', '.join(KINDS)}"
            raise SpecError(field=self.field, allowed=allowed)
        kind = str(kinds[0])
        if kind not in KINDS:
            raise SpecError(field=f"{self.field}.{kind}", allowed=one_of(kind, KINDS))
        field = f"{self.field}.{kind}"
        target, others = self._columns(kind, entry[kind], field)
        if len({target, *others}) != 1 + len(others):
            raise SpecError("names a column twice", field=field)
        weight = real(f"{self.field}.weight", entry.get("weight", 1), above=0, at_most=1e3)
        if (spread := entry.get("spread")) is not None:
            if not self._by_name[target].is_numeric:
                raise SpecError(f"column {target} holds levels", field=f"{self.field}.spread")
            column = self._by_name[target]
            span = column.upper_number - column.lower_number
            spread = real(f"{self.field}.spread", spread, above=span / 1e6, at_most=span)
        return Question(kind=kind, target=target, others=others, weight=weight, spread=spread)

    def _columns(self, kind: str, value: Any, field: str) -> tuple[str, tuple[str, ...]]:
        if kind in (CORRELATION, TABLE):
            numeric = kind == CORRELATION
            if not isinstance(value, list | tuple) or len(value) != 2:
                raise SpecError(field=field, allowed="a list of two columns, as [a, b]")
            first, second = (self._column(str(name), field, numeric=numeric) for name in value)
            return first, (second,)
        if not isinstance(value, str):
            raise SpecError(field=field, allowed=f"text, as `{_EXAMPLES[kind]}`")
        if kind == REGRESSION:
            return self._formula(value, field)
        return self._groups(kind, value, field)

    def _groups(self, kind: str, value: str, field: str) -> tuple[str, tuple[str, ...]]:
        """`COLUMN`, or `COLUMN by COLUMN`."""
        numeric = kind != SHARE  # of the target; a group has levels
        text = value.strip()
        if text in self._by_name or " by " not in text:
            return self._column(text, field, numeric=numeric), ()
        if kind == QUANTILES:
            raise SpecError("has `by`", field=field, allowed="one column of numbers")
        pieces = text.split(" by ")  # a column's name may hold the word
        splits = [
            (" by ".join(pieces[:k]).strip(), " by ".join(pieces[k:]).strip())
            for k in range(1, len(pieces))
        ]
        known = (pair for pair in splits if {*pair} <= self._by_name.keys())
        target, group = next(known, splits[0])
        return (
            self._column(target, field, numeric=numeric),
            (self._column(group, field, numeric=False),),
        )

    def _formula(self, value: str, field: str) -> tuple[str, tuple[str, ...]]:
        """Main effects alone: `target ~ a + b + C(c)`; names that are not plain in backticks."""
        sides = [_outside_quotes(side, "+") for side in _outside_quotes(value, "~")]
        words = [[_word(piece) for piece in side] for side in sides]
        named = all(name for side in words for name, _ in side)
        if len(words) != 2 or len(words[0]) != 1 or not named:
            allowed = f"columns and `+` alone, as `{_EXAMPLES[REGRESSION]}`; no products or powers"
            raise SpecError(field=field, allowed=allowed)
        (response, _), *_ = words[0]
        for name, levelled in words[1]:
            if levelled and name in self._by_name and self._by_name[name].is_numeric:
                allowed = f"{name} alone; to answer by its values, declare it with levels"
                raise SpecError(f"C({name}) is of numbers", field=field, allowed=allowed)
        return (
            self._column(response, field, numeric=True),
            tuple(self._column(name, field) for name, _ in words[1]),
        )

    @property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.schema.released}

    def _column(self, name: str, field: str, *, numeric: bool | None = None) -> str:
        column = self._by_name.get(name)
        if column is None:
            allowed = f"a released column of the data dictionary{nearest(name, self._by_name)}"
            raise SpecError(f"no column {name!r:.60}", field=field, allowed=allowed)
        if not column.is_numeric and column.cardinality + column.nullable < 2:
            raise SpecError(f"column {name} has one level", field=field, allowed="two or more")
        dated = column.kind in (ColumnKind.DATE, ColumnKind.DATETIME)
        few = not numeric and value_points(column).size > 0
        if numeric is not None and (column.is_numeric != numeric or dated) and not few:
            levels = (
                f"a column of levels, of listed `values`, or of at most {FEW_VALUES} whole numbers"
            )
            allowed = f"a column of numbers; of levels ask `share: {name}`" if numeric else levels
            raise SpecError(f"column {name} is {column.kind.value}", field=field, allowed=allowed)
        return name


_EXAMPLES = {
    MEAN: "visits by coinsurance", SHARE: "affair by religious", QUANTILES: "income",
    REGRESSION: "visits ~ coinsurance + age + C(site)",
}  # fmt: skip


def _outside_quotes(text: str, mark: str) -> list[str]:
    """Split at a mark that stands in no backticks."""
    pieces, quoted = [""], False
    for letter in text:
        quoted ^= letter == "`"
        if letter == mark and not quoted:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces


def _word(piece: str) -> tuple[str, bool]:
    """A column's name, and whether it stands in `C()`; empty for anything else."""
    word = piece.strip()
    levelled = word.startswith("C(") and word.endswith(")")
    word = word[2:-1].strip() if levelled else word
    quoted = len(word) > 2 and word[0] == word[-1] == "`"
    name = word[1:-1] if quoted else word
    odd = "`" if quoted else " `()*:^|-/"
    return ("" if any(letter in odd for letter in name) else name), levelled


# Shares of the norm

MOST_ASKED = 4.0
"""Largest squared norm of all terms, in that of the general features: their noise then about
doubles. Chosen by hand, without a study."""


def shares_of(
    questions: Sequence[Question], schema: PublicSchema, *, norm: float
) -> dict[str, float]:
    """Share of the norm by term: one for each, or less of each where they are many.

    Squares are in proportion to the root of `importance`: this minimises the sum of importance
    times noise variance, each in a row's own units. `norm`: that of the general features.
    """
    roots = {key: math.sqrt(value) for key, value in importance(questions, schema).items()}
    total = min(len(roots), MOST_ASKED * norm**2) / math.fsum(roots.values()) if roots else 0.0
    return {key: math.sqrt(total * root) for key, root in roots.items()}
