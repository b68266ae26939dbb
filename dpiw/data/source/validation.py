"""Great Expectations inside the confidential stage: structure, scaled ranges, expectations.

Only truth values and counts come out. Structure fails and names declared columns only. Values never
abort, as aborting is an output; verdicts and counts stay in the confidential workspace.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.cells.counts import CellCounts, value_reader
from dpiw.data.cells.plain import cell_texts, word_form
from dpiw.data.cells.reading import UNREADABLE
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.source.headers import free_check
from dpiw.errors import SourceError, StageFailedError

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_REALS = ("halffloat", "float", "double")
_DECIMALS = ("decimal32", "decimal64", "decimal128", "decimal256")
_NUMBERS = (*_INTEGERS, *_REALS, *_DECIMALS)
_TYPED = {
    ColumnKind.BOOLEAN: ("bool", *_NUMBERS),
    ColumnKind.DATE: ("date32", "date64", "timestamp"),
    ColumnKind.DATETIME: ("date32", "date64", "timestamp"),
}
_SUMS = {
    ("text",): "text",
    ("text", *_NUMBERS): "text or numbers",
    ("text", "bool", *_NUMBERS): "text, truth values or numbers",
    ("text", "date32", "date64", "timestamp"): "text, dates or moments",
}
"""`admissible_types` in few words."""

_WORDS = {
    "nested": "lists, structures or maps", "extension": "an extension type",
    "unzoned": "timestamps of an unknown time zone",
}  # fmt: skip

Results = dict[str, bool]
"""Verdicts by check: `COLUMN: EXPECTATION`, or `EXPECTATION` for the whole table."""


def admissible_types(column: Column, *, file_format: str) -> tuple[str, ...]:
    """Return physical types of a column: `text`, or an Arrow type without its parameters.

    In Parquet, any type that the column's values may take: a writer's choice depends on cells (a
    gap turns whole numbers into floats), and whether a run ends must not.
    """
    if file_format == "csv":
        return ("text",)
    if column.role is ColumnRole.IDENTIFIER or column.kind not in _TYPED:
        return ("text", *_NUMBERS)
    return ("text", *_TYPED[column.kind])


def validate_structure(
    types: Mapping[str, str], schema: PublicSchema, *, file_format: str
) -> Results:
    """Raise SourceError, which names columns, unless all are of admissible type."""
    import great_expectations.expectations as expect

    plain = {name: _plain_name(kind) for name, kind in types.items()}
    names = [column.name for column in schema.columns]
    checks = [expect.ExpectTableColumnsToMatchSet(column_set=names, exact_match=True)]
    for column in schema.columns:
        admissible = list(admissible_types(column, file_format=file_format))
        checks.append(expect.ExpectColumnValuesToBeInSet(column=column.name, value_set=admissible))
    results = run_checks(pd.DataFrame([plain], dtype="str"), checks)
    if not all(results.values()):
        faults = types_fault(types, schema.columns, file_format=file_format)
        raise SourceError(faults, next=[free_check(None)])
    return results


def types_fault(types: Mapping[str, str], columns: Sequence[Column], *, file_format: str) -> str:
    """Name every column whose stored type is not admissible; empty if there is none."""
    faults = []
    for column in columns:
        admissible = admissible_types(column, file_format=file_format)
        stored = _plain_name(types[column.name])
        if stored not in admissible:
            kind = column.role if column.role is ColumnRole.IDENTIFIER else column.kind
            faults.append(
                f"column {column.name}: not stored as {kind.value} but as"
                f" {_WORDS.get(stored, stored)} (expected {_SUMS[admissible]})"
            )
    return "; ".join(faults)


def _plain_name(kind: str) -> str:
    return kind.split("[")[0].split("(")[0].split("<")[0]


def validate_values(counts: Mapping[str, CellCounts], schema: PublicSchema) -> Results:
    """Check raw values before clamping, by the counts of cells. Never raises on a value.

    Privacy: the verdicts depend on exact rows: confidential workspace only.
    """
    results: Results = {}
    for column in schema.released:
        found, name = counts[column.name], f"{column.name}: expect_column_values_to"
        number = column.kind in (ColumnKind.CONTINUOUS, ColumnKind.INTEGER)
        if number:
            results[f"{name}_be_between"] = not found.outside
        elif column.levels:
            results[f"{name}_be_in_set"] = not found.unknown
        if not column.nullable:
            results[f"{name}_not_be_null"] = not (found.missing or (number and found.unreadable))
    return results


def scaled_limits(column: Column) -> tuple[float, float]:
    """Return the least and largest scaled value; zeros for unseen levels."""
    if column.unseen:
        return 0.0, 0.0
    if column.is_numeric:
        return 0.0, 1.0
    return -float(column.nullable), float(column.cardinality - 1)


def validate_scaled(frame: pd.DataFrame, schema: PublicSchema) -> Results:
    """Raise StageFailedError (our bug) unless scaled values are in the limits."""
    import great_expectations.expectations as expect

    between = expect.ExpectColumnValuesToBeBetween
    checks: list[Any] = [expect.ExpectTableColumnCountToEqual(value=len(schema.released))]
    for column in schema.released:
        low, high = scaled_limits(column)
        checks.append(between(column=column.name, min_value=low, max_value=high))
        checks.append(expect.ExpectColumnValuesToNotBeNull(column=column.name))
    results = run_checks(frame, checks)
    if not all(results.values()):
        raise StageFailedError("ingest", StageFailedError.exit_code)
    return results


class ScaledFacts:
    """Facts on a scaled table, from its batches. Privacy: exact: confidential workspace only."""

    def __init__(self, schema: PublicSchema) -> None:
        """Have `scaled_extremes` without columns before the first batch."""
        self._schema = schema
        self.extremes = pd.DataFrame()
        self._broken: set[str] | None = set()

    def add(self, scaled: ScaledTable) -> None:
        """Add one more batch. Constraints decide nothing: that they cannot be judged ends none."""
        one, two = self.extremes, scaled_extremes(scaled, self._schema)
        self.extremes = two
        if not one.empty:  # NaN stays
            ends = [np.minimum(one.loc[0], two.loc[0]), np.maximum(one.loc[1], two.loc[1])]
            self.extremes = pd.DataFrame(ends, index=[0, 1])
        broken, self._broken = self._broken, None
        with contextlib.suppress(Exception):
            masks = {} if self._schema.rules is None else self._schema.rules.broken(scaled)
            if broken is not None:
                self._broken = broken | {name for name, mask in masks.items() if mask.any()}

    def constraints(self) -> Results:
        """Whether all rows satisfy each constraint; ValueError if a batch could not be judged."""
        if self._broken is None:
            raise ValueError("a batch could not be judged")
        names = [constraint.name for constraint in self._schema.constraints]
        return {f"constraint {name}": name not in self._broken for name in names}


def scaled_extremes(scaled: ScaledTable, schema: PublicSchema) -> pd.DataFrame:
    """Return scaled minima and maxima, as two rows; zeros without values. Privacy: exact."""
    extremes = {}
    for column in schema.released:
        values = scaled.columns[column.name]
        if column.unseen:  # texts, which have no least one
            values = values[:0]
        if column.is_numeric and column.nullable:
            values = values[~np.isnan(values)]
        extremes[column.name] = [values.min(), values.max()] if values.size else [0.0, 0.0]
    return pd.DataFrame(extremes, dtype=np.float64)


def judge_expectations(column: Column, cells: pd.Series[Any]) -> NDArray[np.int64]:
    """Count cells before clamping, shape (expectations, 3): judged, failed, cannot be judged.

    A cell cannot be judged if it is not of the column's kind, and none can if Great Expectations
    fails. Never raises. Privacy: the counts are exact: for the custodian's statement alone.
    """
    counts = np.tile([0, 0, len(cells)], (len(column.expectations), 1))
    for place, expectation in enumerate(column.expectations):
        with contextlib.suppress(Exception):  # no cell may end a run, or show in an error
            import great_expectations.expectations as expect

            values = pd.Series([*_values(column, cells)], dtype=object)
            check = getattr(expect, expectation["type"].title().replace("_", ""))
            checks = [check(column="cells", **column.expected(expectation))]
            (outcome,) = _outcomes(values.to_frame("cells"), checks, "BASIC")
            found = outcome.result  # empty after an exception, whose text may hold cells
            judged = found["element_count"] - found.get("missing_count", 0)
            counts[place] = judged, found["unexpected_count"], len(cells) - len(values)
    return counts


def _values(column: Column, cells: pd.Series[Any]) -> Iterator[Any]:
    """Yield values in own units, None for missing cells; leave out what is not of the kind."""
    own_kind = None if column.role is ColumnRole.IDENTIFIER else column.kind
    read = value_reader(column) if own_kind and column.is_numeric else column.normalised
    words = {word_form(text) for text in column.true_values + column.false_values}
    typed = not isinstance(cells.dtype, pd.StringDtype)
    for text in cell_texts(cells).to_pylist():
        missing = text is None or not (typed or text.strip())
        value = None if missing or UNREADABLE in text else read(text)
        if own_kind is ColumnKind.BOOLEAN and not missing and word_form(text) not in words:
            value = None
        if missing or value is not None:
            yield value


def run_checks(frame: pd.DataFrame, checks: Sequence[Any]) -> Results:
    """Run expectations on a frame and return the verdicts only.

    Privacy: the verdicts depend on the frame's exact rows: confidential workspace only.
    """
    results: Results = {}
    for result in _outcomes(frame, checks, "BOOLEAN_ONLY"):  # not in suite order
        config = result.expectation_config
        column = config.kwargs.get("column")
        name = config.type if column is None else f"{column}: {config.type}"
        results[name] = bool(result.success)
    return dict(sorted(results.items()))


def _outcomes(frame: pd.DataFrame, checks: Sequence[Any], result_format: str) -> Any:
    """Return GX's results, to be dropped: they hold a hash of the data, and tracebacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own deprecations
        import great_expectations as gx

        context = gx.get_context(mode="ephemeral")
        context.variables.analytics_enabled = False
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_pandas("memory").add_dataframe_asset("table")
        batch = asset.add_batch_definition_whole_dataframe("rows")
        suite = context.suites.add(gx.ExpectationSuite(name="suite", expectations=list(checks)))
        definition = context.validation_definitions.add(
            gx.ValidationDefinition(name="validation", data=batch, suite=suite)
        )
        form = {"result_format": result_format, "partial_unexpected_count": 0}  # lists no cell
        return definition.run(batch_parameters={"dataframe": frame}, result_format=form).results
