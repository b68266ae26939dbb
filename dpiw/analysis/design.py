"""A regression's matrix: from columns by name, or from a formula through the library formulaic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.formula_faults import (
    as_in_r,
    check_left,
    check_powers,
    check_right,
    uncomputed,
)
from dpiw.analysis.names import checked_column, known_name, private_formula, restored
from dpiw.analysis.optional import optional
from dpiw.analysis.sample import Array
from dpiw.errors import ReleaseError, one_of

INTERCEPT = "intercept"


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """A regression's matrix.

    Attributes:
        names: of the columns, `intercept` first where there is one.
        matrix: shape (n, p); zero in rows with a missing value.
        outcome: shape (n,); zero in rows with a missing value.
        present: shape (n,), whether nothing is missing.
        undefined: shape (n,), whether nothing is missing, and a number is not finite.
        terms: of which term each column is, length p; a term of text has several.
    """

    names: tuple[str, ...]
    matrix: Array
    outcome: Array
    present: NDArray[np.bool_]
    undefined: NDArray[np.bool_]
    terms: tuple[int, ...]

    def kept(self, rows: NDArray[np.bool_]) -> Design:
        """The design of some rows, shape (n,).

        Raises:
            ReleaseError: a number of one of them is not finite.
        """
        bad = int((self.undefined & rows).sum())
        if bad:
            raise ReleaseError(
                f"regression: a term or the target is not a finite number in {bad:,} of"
                f" {int(rows.sum()):,} synthetic rows, though nothing is missing there, such as the"
                " logarithm of zero; change it, or say for whom the model is meant: `where`"
            )
        return replace(self, present=self.present & rows)


def design(table: pd.DataFrame, target: str, features: Sequence[str] | None) -> Design:
    """Design matrix: an intercept, numbers as they are, text as indicators of its levels.

    Dates are days since the earliest of the table. `a:b` is the product of two features.

    Args:
        table: the rows.
        target: numeric or boolean column; or, with `features` None, a formula such as
            `ill ~ age * smoker` (`formula_design`).
        features: columns, and products of two; a name alone is one column.

    Raises:
        ReleaseError: no such column, a target that is neither a number nor a truth value, or as
            `formula_design`.
    """
    if not isinstance(target, str):
        raise ReleaseError(
            "regression: expected the target's name, then its features, such as 'income', ['age']"
        )
    if features is None:
        return formula_design(table, target)
    parts: list[tuple[str, Array]] = []
    terms = [0]
    target = known_name(table, target)
    features = [features] if isinstance(features, str) else features
    names = [known_name(table, name) for name in features]
    for name in names:
        if name == target or names.count(name) > 1:
            fault = "the target stands" if name == target else "a feature stands twice"
            raise ReleaseError(f"column {name!r}: {fault} among the features")
    for feature in names:
        if feature in table.columns or ":" not in feature:
            parts += _columns(table, feature)
        else:
            first, second = (_columns(table, part) for part in feature.split(":", 1))
            parts += [(f"{a}:{b}", x * y) for a, x in first for b, y in second]
        terms += [terms[-1] + 1] * (len(parts) + 1 - len(terms))
    outcome = _columns(table, target)
    if len(outcome) != 1 or outcome[0][0] != target:
        raise ReleaseError(
            f"column {target!r}: expected a number or a truth value as target, found text; one"
            " level of it is a truth value of a table of yours: (table, weights)"
        )
    matrix = np.column_stack([np.ones(len(table)), *[values for _, values in parts]])
    numbers = outcome[0][1]
    complete = ~np.isnan(matrix).any(axis=1) & ~np.isnan(numbers)
    return _design((INTERCEPT, *[name for name, _ in parts]), matrix, numbers, complete, terms)


def formula_design(table: pd.DataFrame, formula: str) -> Design:
    """Design matrix of a formula in Wilkinson's notation, as R and formulaic have it.

    Truth values are 0 and 1, dates days since the earliest of the table, text has one indicator
    for each level but the first in alphabetical order, `region[T.south]`. Formulaic's functions
    may stand in it (`log`, `poly`, `bs`, `C`); what they compute from a column (a centre, knots)
    they compute from the unweighted rows, and intervals hold it fixed.

    Raises:
        ReleaseError: formulaic is not installed, no such column, not a formula of one target,
            arithmetic on the left side or a power outside `I(...)`, or a target among the features.
    """
    library = optional("formulaic", extra="formula")
    check_left(formula)
    check_powers(formula)
    coded, own_names = private_formula(table, formula)
    try:
        parsed = library.Formula(coded)
        column_names = sorted(str(name) for name in parsed.required_variables)
    except Exception:  # also what Python says of the code inside a formula
        raise ReleaseError(
            f"formula {formula!r}: not in formulaic's notation; expected such as"
            " 'income ~ age + smoker'; a name that is not one plain word stands in backticks"
            f"{as_in_r(formula)}"
        ) from None
    if not hasattr(parsed, "lhs") or isinstance(parsed.rhs, tuple):
        raise ReleaseError(
            f"formula {formula!r}: expected a target, `~` and features, such as"
            " 'income ~ age + smoker'; or give the features as a list of columns"
        )
    check_right(formula, parsed, own_names)
    for name in column_names:
        if name not in table.columns and re.search(rf"(?<!\w){re.escape(name)}\(", formula):
            functions = sorted(library.transforms.TRANSFORMS)
            allowed = f"{one_of(name, functions)}{as_in_r(formula)}"
            raise ReleaseError(f"formula {formula!r}: function {name!r}: {allowed}")
    raw_columns = {
        name: _plain(checked_column(table, own_names.get(name, name)))
        for name in dict.fromkeys([*own_names, *column_names])
    }
    frame = pd.DataFrame(raw_columns, index=table.index)
    complete = frame.notna().all(axis=1).to_numpy()
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused, by `Design.kept`
            matrices = parsed.get_model_matrix(frame[complete], context={}, na_action="ignore")
    except Exception as reason:  # formulaic runs what the analyst wrote: anything can be raised
        raise uncomputed(formula, parsed, frame[complete], reason, own_names) from None
    if matrices.lhs.shape[1] != 1:
        raise ReleaseError(f"formula {formula!r}: expected one number or truth value as target")
    matrix = np.full((len(table), matrices.rhs.shape[1]), np.nan)
    outcome = np.full(len(table), np.nan)
    matrix[complete] = matrices.rhs.to_numpy(dtype=np.float64)
    outcome[complete] = matrices.lhs.to_numpy(dtype=np.float64)[:, 0]
    terms = (str(name) for name in matrices.rhs.columns)
    names = tuple(INTERCEPT if t == "Intercept" else restored(t, own_names) for t in terms)
    counts = [len(columns) for columns in matrices.rhs.model_spec.term_indices.values()]
    return _design(names, matrix, outcome, complete, np.repeat(np.arange(len(counts)), counts))


def _design(
    names: tuple[str, ...],
    matrix: Array,
    outcome: Array,
    complete: NDArray[np.bool_],
    terms: Iterable[int],
) -> Design:
    present = np.isfinite(matrix).all(axis=1) & np.isfinite(outcome)
    return Design(
        names=names,
        matrix=np.where(present[:, None], matrix, 0.0),
        outcome=np.where(present, outcome, 0.0),
        present=present,
        undefined=complete & ~present,
        terms=tuple(map(int, terms)),
    )


def dependent(parts: Design, weights: Array) -> str:
    """The first column that the ones before it give, in words; nothing where there is none."""
    x = parts.matrix * np.sqrt(weights * parts.present)[:, None]
    left = np.zeros(x.shape[1])  # of each column, without what those before it give
    triangle = np.abs(np.diag(np.linalg.qr(x, mode="r")))
    left[: triangle.size] = triangle
    for place, name in enumerate(parts.names):
        if left[place] <= 1e-7 * float(np.linalg.norm(x[:, place])):
            alone = place == 1 and parts.names[0] == INTERCEPT
            rest = "" if alone else f", or a combination of {', '.join(parts.names[:place])}"
            return f"{name!r} is the same in every row that counts{rest}; leave it out"
    return ""


def _plain(values: pd.Series) -> pd.Series:
    """Numbers, truth values and dates as floats, NaN where missing; text as it is."""
    if pd.api.types.is_numeric_dtype(values.dtype):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return pd.Series(numbers, index=values.index)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        days: pd.Series = (values - values.min()) / pd.Timedelta(days=1)
        return days
    return values.astype(object)


def _columns(table: pd.DataFrame, name: str) -> list[tuple[str, Array]]:
    """Numbers of one column: itself, or an indicator per level but the first in sorted order."""
    values = _plain(checked_column(table, name))
    if values.dtype != object:
        return [(name, values.to_numpy(dtype=np.float64))]
    missing = values.isna().to_numpy()
    columns = []
    for level in sorted(values.dropna().unique(), key=str)[1:]:
        flag = (values == level).to_numpy(dtype=np.float64, na_value=0.0)
        columns.append((f"{name}={level}", np.where(missing, np.nan, flag)))
    return columns
