"""Declared questions: what a release must answer, stated in public, and the features that see it.

A question is compiled into *terms*: a column, a number's square, a product of two columns, or the
shares below public cuts. The answers are functions of the terms' means, so that an interval holds
the noise of these means and no guess. Source: docs/method.md section 14.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dpiw.data.schema.columns import Column
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import SpecError, nearest, one_of
from dpiw.methods.base import real

COLUMN, SQUARE, PRODUCT, CUTS = "column", "square", "product", "cuts"

_SHAPES = {COLUMN: 1, SQUARE: 1, PRODUCT: 2, CUTS: 1}
"""Number of columns of each kind of term."""

MOST_QUESTIONS = 200


@dataclass(frozen=True, kw_only=True, order=True)
class Term:
    """Features of one or two columns: centred coordinates, or products of two.

    `column`: of a number or of levels; `square`: of a number; `product`: of the coordinates of two
    columns; `cuts`: one indicator for each part of a number's range.
    """

    kind: str
    columns: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its name among the parts of a feature map, as in certificates."""
        return f"{self.kind}:{json.dumps([*self.columns], ensure_ascii=False)}"

    @classmethod
    def read(cls, key: str, schema: PublicSchema) -> Self | None:
        """The term of a key; None if it is none, or of other columns than the schema's."""
        kind, _, listed = key.partition(":")
        try:
            columns = tuple(json.loads(listed))
        except (TypeError, ValueError):
            return None
        of_numbers = kind in (SQUARE, CUTS)
        fitting = [c.name for c in schema.released if c.is_numeric or not of_numbers]
        known = all(isinstance(name, str) and name in fitting for name in columns)
        if not known or _SHAPES.get(kind) != len({*columns}):
            return None
        term = cls(kind=kind, columns=columns)
        return term if term.key == key else None


@dataclass(frozen=True, kw_only=True)
class Question:
    """One declared question.

    Attributes:
        kind: one of `KINDS`.
        target: the column that it is about, or the first one.
        others: the column of the groups, the second column, or the regressors.
        weight: importance beside the other questions, > 0.
        spread: the public guess at the standard deviation of the target, in its own unit, for the
            forecast alone; None: that of numbers spread evenly over the bounds.
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

    def terms(self, schema: PublicSchema) -> list[Term]:
        """The terms whose means give the answer."""
        names = [self.target, *self.others]
        numbers = {column.name for column in schema.released if column.is_numeric}
        terms = [Term(kind=COLUMN, columns=(name,)) for name in names]
        terms += [Term(kind=PRODUCT, columns=pair) for pair in itertools.combinations(names, 2)]
        squared = {CORRELATION: names, REGRESSION: [*self.others]}.get(self.kind, [])
        terms += [Term(kind=SQUARE, columns=(name,)) for name in squared if name in numbers]
        terms += [Term(kind=CUTS, columns=(name,)) for name in names if self.kind == QUANTILES]
        order = [column.name for column in schema.released]
        return [
            Term(kind=term.kind, columns=tuple(sorted(term.columns, key=order.index)))
            for term in terms
        ]


MEAN, SHARE, CORRELATION, REGRESSION, QUANTILES, TABLE = KINDS = (
    "mean", "share", "correlation", "regression", "quantiles", "table"
)  # fmt: skip


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"


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
            spread = real(f"{self.field}.spread", spread, above=0, at_most=1e300)
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
        numeric = kind != SHARE
        text = value.strip()
        if text in self._by_name or " by " not in text:
            return self._column(text, field, numeric=numeric), ()
        if kind == QUANTILES:
            raise SpecError("has `by`", field=field, allowed="one column of numbers")
        pieces = re.split(r"\s+by\s+", text)  # a column's name may hold the word
        splits = [(" by ".join(pieces[:k]), " by ".join(pieces[k:])) for k in range(1, len(pieces))]
        target, group = next((pair for pair in splits if pair[0] in self._by_name), splits[0])
        return (
            self._column(target, field, numeric=numeric),
            (self._column(group, field, numeric=False),),
        )

    def _formula(self, value: str, field: str) -> tuple[str, tuple[str, ...]]:
        """Main effects alone: `target ~ a + b + C(c)`."""
        target, tilde, right = value.partition("~")
        terms = re.fullmatch(rf"\s*{_NAME}\s*(?:\+\s*{_NAME}\s*)*", right)
        if not tilde or terms is None or not re.fullmatch(rf"\s*{_NAME}\s*", target):
            allowed = f"columns and `+` alone, as `{_EXAMPLES[REGRESSION]}`; no products or powers"
            raise SpecError(field=field, allowed=allowed)
        parts = [found for found in re.findall(_NAMES, right) if any(found)]
        for name in (levelled[0] or levelled[1] for levelled in parts):
            if name in self._by_name and self._by_name[name].is_numeric:
                allowed = f"{name} alone; to answer by its values, declare it with levels"
                raise SpecError(f"C({name}) is of numbers", field=field, allowed=allowed)
        names = [next(filter(None, found)) for found in parts]
        response = next(filter(None, re.findall(_NAMES, target)[0]))
        return (
            self._column(response, field, numeric=True),
            tuple(self._column(name, field) for name in names),
        )

    @property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.schema.released}

    def _column(self, name: str, field: str, *, numeric: bool | None = None) -> str:
        column = self._by_name.get(name)
        if column is None:
            allowed = f"a released column of the data dictionary{nearest(name, self._by_name)}"
            raise SpecError(f"no column {name!r:.60}", field=field, allowed=allowed)
        if numeric is not None and column.is_numeric != numeric:
            allowed = "a column of numbers or dates" if numeric else "a column of levels"
            raise SpecError(f"column {name} is {column.kind.value}", field=field, allowed=allowed)
        return name


_EXAMPLES = {
    MEAN: "visits by coinsurance", SHARE: "affair by religious", QUANTILES: "income",
    REGRESSION: "visits ~ coinsurance + age + C(site)",
}  # fmt: skip

_NAMES = r"C\(\s*(?:`([^`]+)`|([^\s()`+*:^~]+))\s*\)|`([^`]+)`|([^\s()`+*:^~]+)"
_NAME = f"(?:{_NAMES.replace('([^', '(?:[^')})"


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
