"""Matrix of a regression, from columns by name or from a formula (library formulaic).

Fits use centred and scaled columns (`standardised`, `orthonormal`), because cross-products of raw
units lose digits. Columns are centred only if some, such as an intercept, add up to one in every
row; otherwise a shift would change the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.analysis.columns import ROUNDINGS, Shifted, product_grain, shifted
from dpiw.analysis.estimators.formulas import (
    as_in_r,
    check_left,
    check_powers,
    check_right,
    uncomputed,
)
from dpiw.analysis.names import checked_column, known_name, private_formula, restored
from dpiw.analysis.sample import Array
from dpiw.errors import ReleaseError, WeightError, one_of, optional

INTERCEPT = "intercept"

_DEPENDENT = 1e-9
"""Share of a column's spread; what the other columns leave is rounding if it is less."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Matrix of a regression: n rows, p columns, `intercept` first if there is one.

    Attributes:
        shifted: columns after subtraction by `shift`, shape (n, p); zero where a value is missing.
        shift: shape (p, p), nilpotent: `matrix` is `shifted` @ (identity + `shift`).
        constant: coefficients of a combination that is one in every row, shape (p,); zeros: none.
        grain: absolute rounding error of each column's cells, shape (p,).
        response: the target less `origin`, shape (n,); zero in rows with a missing value.
        present: shape (n,), whether nothing is missing.
        undefined: shape (n,), whether nothing is missing and a number is not finite.
        terms: index of each column's term, length p; a term of text has several columns.
    """

    names: tuple[str, ...]
    shifted: Array
    shift: Array
    constant: Array
    grain: Array
    response: Array
    origin: float
    present: NDArray[np.bool_]
    undefined: NDArray[np.bool_]
    terms: tuple[int, ...]

    @property
    def matrix(self) -> Array:
        """Columns in their own units, shape (n, p); zero in rows with a missing value."""
        return np.asarray(self.shifted + self.shifted @ self.shift)

    @property
    def outcome(self) -> Array:
        """The target in its own unit, shape (n,); zero in rows with a missing value."""
        return np.where(self.present, self.response + self.origin, 0.0)

    def kept(self, rows: NDArray[np.bool_]) -> Design:
        """Return the design of some rows, shape (n,); ReleaseError if a number is not finite."""
        bad = int((self.undefined & rows).sum())
        if bad:
            raise ReleaseError(
                f"a term or the target is infinite or undefined, such as the logarithm of zero, in"
                f" {bad:,} of {int(rows.sum()):,} synthetic rows without a missing value; change"
                " the term, or leave these rows out with `where`",
                field="regression",
            )
        return replace(self, present=self.present & rows)


def design(table: pd.DataFrame, target: str, features: Sequence[str] | None) -> Design:
    """Design matrix: an intercept, numbers as they are, text as indicators of its levels.

    Dates are days since the earliest in the table. `a:b` is the product of two features. `target`
    is numeric or boolean; without `features` it is a formula (`formula_design`).
    """
    if not (isinstance(target, str) and isinstance(features, Iterable | None)):
        raise ReleaseError(
            field="regression",
            allowed="the target's name, then its features, such as 'income', ['age']",
        )
    if features is None:
        return formula_design(table, target)
    parts = [(INTERCEPT, Shifted(values=np.ones(len(table)), origin=0.0, grain=0.0))]
    terms: list[int] = [0]
    target = known_name(table, target)
    features = [features] if isinstance(features, str) else features
    names = [known_name(table, name) for name in features]
    for name in names:
        if name == target or names.count(name) > 1:
            fault = (
                "it is the target; leave it out of the features"
                if name == target
                else "it is named twice among the features; name it once"
            )
            raise ReleaseError(fault, field=f"column {name!r}")
    for feature in names:
        if feature in table.columns or ":" not in feature:
            parts += _columns(table, feature)
        else:
            first, second = (_columns(table, part) for part in feature.split(":", 1))
            products = [(f"{a}:{b}", x.raw * y.raw) for a, x in first for b, y in second]
            parts += [(pair, shifted(pd.Series(values))) for pair, values in products]
        terms += [terms[-1] + 1] * (len(parts) - len(terms))
    outcome = _columns(table, target)
    if len(outcome) != 1 or outcome[0][0] != target:
        raise ReleaseError(
            "found text",
            field=f"column {target!r}",
            allowed="numbers or truth values as target; for a level write a formula alone, as in"
            " \"I(region == 'south') ~ age\"",
        )
    complete = ~np.any([np.isnan(part.values) for _, part in [*parts, outcome[0]]], axis=0)
    return _design(parts, outcome[0][1], complete, terms)


def formula_design(table: pd.DataFrame, formula: str) -> Design:
    """Design matrix of a formula in Wilkinson's notation, as in R and formulaic.

    Text has one indicator for each level but the first in alphabetical order, `region[T.south]`.
    Centres and knots of formulaic's functions (`poly`, `bs`) come from the unweighted rows, and
    intervals hold them fixed.
    """
    library = optional("formulaic", extra="formula")
    check_left(formula)
    check_powers(formula)
    coded, own_names = private_formula(table, formula)
    try:
        parsed = library.Formula(coded)
        column_names = sorted(str(name) for name in parsed.required_variables)
    except Exception:  # also errors of Python code in a formula
        raise ReleaseError(
            "formulaic cannot read it",
            field=f"formula {formula!r}",
            allowed="a formula such as 'income ~ age + smoker'; write a name that is not one plain"
            f" word in backticks{as_in_r(formula)}",
        ) from None
    if not hasattr(parsed, "lhs") or isinstance(parsed.rhs, tuple):
        raise ReleaseError(
            field=f"formula {formula!r}",
            allowed="a target, `~` and features, such as 'income ~ age + smoker'; or give"
            " the features as a list of columns",
        )
    check_right(formula, parsed, own_names)
    for name in column_names:
        if name not in table.columns and re.search(rf"(?<!\w){re.escape(name)}\(", formula):
            functions = sorted(library.transforms.TRANSFORMS)
            allowed = f"{one_of(name, functions)}{as_in_r(formula)}"
            raise ReleaseError(field=f"formula {formula!r}: function {name!r}", allowed=allowed)
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
        raise ReleaseError(
            field=f"formula {formula!r}",
            allowed="numbers or truth values left of `~`; for a level of text write it as in"
            " \"I(region == 'south') ~ age\"",
        )
    terms = [str(name) for name in matrices.rhs.columns]
    names = tuple(INTERCEPT if t == "Intercept" else restored(t, own_names) for t in terms)
    rows = [_placed(values, complete) for values in matrices.rhs.to_numpy(dtype=np.float64).T]
    columns = [own_names.get(term) for term in terms]
    parts = [
        (name, _evaluated(table, column, row))
        for name, column, row in zip(names, columns, rows, strict=True)
    ]
    left = _placed(matrices.lhs.to_numpy(dtype=np.float64)[:, 0], complete)
    outcome = _evaluated(table, own_names.get(str(matrices.lhs.columns[0])), left)
    counts = [len(columns) for columns in matrices.rhs.model_spec.term_indices.values()]
    return _design(parts, outcome, complete, np.repeat(np.arange(len(counts)), counts))


def _placed(values: Array, complete: NDArray[np.bool_]) -> Array:
    placed = np.full(complete.size, np.nan)
    placed[complete] = values
    return placed


def _evaluated(table: pd.DataFrame, name: str | None, values: Array) -> Shifted:
    """Values that formulaic computed; of whole numbers the exact cells, which may exceed 2^53."""
    column = None if name is None else table[name]
    if column is None or not pd.api.types.is_integer_dtype(column.dtype):
        return shifted(pd.Series(values))
    whole = shifted(column)
    return replace(whole, values=np.where(np.isnan(values), np.nan, whole.values))


def _design(
    parts: Sequence[tuple[str, Shifted]],
    outcome: Shifted,
    complete: NDArray[np.bool_],
    terms: Iterable[int],
) -> Design:
    names, columns = tuple(name for name, _ in parts), [part for _, part in parts]
    matrix = np.column_stack([column.raw for column in columns])
    target, places = outcome.raw, tuple(map(int, terms))
    present = np.isfinite(matrix).all(axis=1) & np.isfinite(target)
    matrix = np.where(present[:, None], matrix, 0.0)
    constant = _constant(names, matrix[present], np.array(places))
    origin, shift = 0.0, np.zeros((len(names), len(names)))
    grain = np.array([column.grain for column in columns])
    if constant.any():
        origins = np.array([float(column.origin) for column in columns]) * (constant == 0)
        products = _products(names, matrix)
        target, origin, shift = outcome.values, float(outcome.origin), np.outer(constant, origins)
        for k in np.flatnonzero(origins):
            matrix[:, k] = np.where(present, columns[k].values, 0.0)
        for place, pair in products.items():
            matrix[:, place] = matrix[:, pair[0]] * matrix[:, pair[1]]
            shift[:, place] = constant * np.prod(origins[list(pair)])
            for one, other in (pair, pair[::-1]):  # for `a:a` the same twice
                shift[one, place] += origins[other]
            grain[place] = product_grain(*(replace(columns[k], values=matrix[:, k]) for k in pair))
    return Design(
        names=names,
        shifted=matrix,
        shift=shift,
        constant=constant,
        grain=grain,
        response=np.where(present, target, 0.0),
        origin=origin,
        present=present,
        undefined=complete & ~present,
        terms=places,
    )


def _constant(names: Sequence[str], matrix: Array, terms: NDArray[np.int_]) -> Array:
    """Coefficients of columns that add up to one in every row, shape (p,); zeros if none do."""
    if INTERCEPT in names:
        return np.asarray(np.eye(len(names))[names.index(INTERCEPT)])
    for term in np.unique(terms):
        block = matrix[:, terms == term]
        if np.isin(block, (0.0, 1.0)).all() and np.all(block.sum(axis=1) == 1):
            return np.asarray((terms == term) * 1.0)
    return np.zeros(len(names))


def _products(names: Sequence[str], matrix: Array) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for place, name in enumerate(names):
        for cut in (match.start() for match in re.finditer(":", name)):
            if name[:cut] in names and name[cut + 1 :] in names:
                a, b = names.index(name[:cut]), names.index(name[cut + 1 :])
                is_main = place not in (a, b) and not {a, b} & found.keys()
                if is_main and np.allclose(matrix[:, a] * matrix[:, b], matrix[:, place], 1e-12, 0):
                    found[place] = (a, b)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Standard:
    """A design's columns, centred and scaled over the rows that count.

    Attributes:
        matrix: shape (n, p); zero in rows that do not count.
        scale: divisors of the columns, shape (p,); 1 for those of the constant.
        back: shape (p, p): coefficients in own units are `back` @ those of `matrix`.
        response: the target less its weighted mean if columns are centred, shape (n,).
        level: shape (p,): added to a linear model's coefficients for that mean.
    """

    matrix: Array
    scale: Array
    back: Array
    response: Array
    level: Array


def standardised(parts: Design, weights: Array) -> Standard:
    """Columns less their weighted mean, over their weighted standard deviation.

    Without a constant nothing is centred, and columns are divided by their root mean square.
    """
    present, constant = parts.present, parts.constant
    share = weights * present / (weights * present).sum()
    mean, middle = np.zeros(constant.size), 0.0
    if constant.any():
        mean, middle = (share @ parts.shifted) * (constant == 0), float(share @ parts.response)
    matrix = (parts.shifted - mean) * present[:, None]
    scale = np.where(constant == 0, np.sqrt(share @ matrix**2), 1.0)
    scale[scale == 0] = 1.0
    size = np.eye(constant.size)
    unshifted = size - parts.shift + parts.shift @ parts.shift
    return Standard(
        matrix=matrix / scale,
        scale=scale,
        back=unshifted @ (size - np.outer(constant, mean)) / scale,
        response=(parts.response - middle) * present,
        level=constant * (parts.origin + middle),
    )


def orthonormal(parts: Design, weights: Array) -> Standard:
    """`standardised` columns made orthonormal under the weights, each by those before it.

    Raises WeightError if a column is constant in the rows that count, or a combination of others.
    """
    standard = standardised(parts, weights)
    root = np.sqrt(weights * parts.present / (weights * parts.present).sum())[:, None]
    triangle = _triangle(root * standard.matrix)
    _check_rank(parts, standard, triangle)
    turned = np.linalg.inv(triangle)
    turned = turned @ np.linalg.inv(
        _triangle(root * (standard.matrix @ turned))
    )  # twice: one pass leaves rounding
    return replace(standard, matrix=standard.matrix @ turned, back=standard.back @ turned)


def _triangle(matrix: Array) -> Array:
    """The upper triangle of a QR decomposition, shape (p, p), also with fewer rows than columns."""
    triangle = np.zeros((matrix.shape[1], matrix.shape[1]))
    found = np.linalg.qr(matrix, mode="r")
    triangle[: len(found)] = found
    return triangle


def _check_rank(parts: Design, standard: Standard, triangle: Array) -> None:
    norms = np.linalg.norm(triangle, axis=0)
    grains = parts.grain / standard.scale
    for place, name in enumerate(parts.names):
        before, left = triangle[:place, :place], abs(triangle[place, place])
        if norms[place] <= ROUNDINGS * grains[place]:
            raise WeightError(
                f"{name!r} has one value in every row that counts; leave it out", field="regression"
            )
        if left > 1e-5 * norms[place]:
            continue
        given = np.abs(np.linalg.solve(before, triangle[:place, place]))
        noise = ROUNDINGS * (grains[place] + given @ grains[:place])
        if left <= _DEPENDENT * norms[place] + noise:
            counted = (given * norms[:place] > 1e-6 * norms[place]) & (parts.constant[:place] == 0)
            others = [parts.names[k] for k in np.flatnonzero(counted)] or parts.names[:place]
            raise WeightError(
                f"{name!r} is a combination of {', '.join(others)} in the rows that count;"
                " leave one of them out",
                field="regression",
            )


def _plain(values: pd.Series) -> pd.Series:
    if pd.api.types.is_numeric_dtype(values.dtype):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return pd.Series(numbers, index=values.index)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        days: pd.Series = (values - values.min()) / pd.Timedelta(days=1)
        return days
    return values.astype(object)


def _columns(table: pd.DataFrame, name: str) -> list[tuple[str, Shifted]]:
    column = checked_column(table, name)
    if pd.api.types.is_integer_dtype(column.dtype):
        return [(name, shifted(column))]
    values = _plain(column)
    if values.dtype != object:
        return [(name, shifted(values))]
    missing = values.isna().to_numpy()
    columns = []
    for level in sorted(values.dropna().unique(), key=str)[1:]:
        flag = (values == level).to_numpy(dtype=np.float64, na_value=0.0)
        indicator = Shifted(values=np.where(missing, np.nan, flag), origin=0.0, grain=0.0)
        columns.append((f"{name}={level}", indicator))
    return columns
