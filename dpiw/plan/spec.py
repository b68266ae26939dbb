"""The release spec: everything that is decided before data is read.

A spec is a YAML file that a curator writes. Nothing in it may be derived from the confidential
table. Unknown keys are refused, numbers of the promise are exact decimals, and every default is
public and fixed here. Relative paths are resolved against the spec file's own folder.
"""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpiw.data.cell_formats import source_fault
from dpiw.data.cell_reading import settled_formats
from dpiw.data.confidential import is_same_file
from dpiw.data.dictionary import refuse_open
from dpiw.data.schema import PublicSchema
from dpiw.data.yaml import load_file, told_in
from dpiw.errors import SchemaError, SourceError, SpecError
from dpiw.methods.weights.paper.steps import BetaCalibrate, parse_post_processing
from dpiw.methods.weights.registry import check_known_everywhere
from dpiw.plan.sections import Places, Promise, SourceSpec
from dpiw.plan.spec_faults import told
from dpiw.plan.spec_paths import confidential, located_spec
from dpiw.plan.spec_types import is_plain
from dpiw.privacy.units import (
    DELTA_UNIT,
    EPSILON_UNIT,
    NeighbouringRelation,
    PrivacyCost,
    PrivacyUnit,
)

MAX_EPSILON = Decimal(10)
"""Policy maximum of a single release; more says little about privacy."""


class ReleaseSpec(Places, Promise):
    """Everything a release promises and needs; see docs/spec.md for a worked example."""

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """Unit and relation of every cost of this spec."""
        return PrivacyUnit(
            relation=NeighbouringRelation(self.relation),
            max_rows=self.unit.max_rows,
            id_column=self.unit.id_column,
        )

    @property
    def cost(self) -> PrivacyCost:
        """What one complete run of this spec promises to spend at most."""
        return PrivacyCost.of(self.epsilon, self.delta, self.privacy_unit.relation)


def _check_weights(spec: ReleaseSpec) -> None:
    steps = parse_post_processing(spec.weights.post_processing)
    steps.check(self_normalised=spec.weights.normalisation == "self")
    if steps.calibrate is not None:
        _check_calibration(spec, steps.calibrate)


def _check_calibration(spec: ReleaseSpec, step: BetaCalibrate) -> None:
    check_known_everywhere(spec.weights.method)
    for name, text in (("declared", step.declared), ("rows", step.rows or "")):
        if len(text) > 4096 or not is_plain(text):
            raise SpecError(
                f"weights.post_processing: beta_calibrate.{name}: expected at most 4096 plain"
                " characters and no password"
            )
    if step.a is not None:
        raise SpecError(
            "weights.post_processing: beta_calibrate.a, b, c: the released ratio they belong to"
            " does not exist yet; expected `rows`, a file"
        )


def _check_formats(spec: ReleaseSpec) -> None:
    if fault := source_fault(spec.source.written, file_format=spec.source.format):
        raise SpecError(f"source.{fault[0]}: {fault[1]}")


def _check_promise(spec: ReleaseSpec) -> None:
    if spec.epsilon < EPSILON_UNIT:
        raise SpecError(f"epsilon: expected a decimal > 0 (at least {EPSILON_UNIT:E})")
    if spec.epsilon > MAX_EPSILON:
        raise SpecError(f"epsilon={spec.epsilon}: expected at most {MAX_EPSILON}")
    if spec.delta != 0 and spec.delta < DELTA_UNIT:
        raise SpecError(f"delta: expected 0, or a decimal of at least {DELTA_UNIT:E}")
    if spec.delta >= 1 or spec.delta * spec.nominal_rows > 1:
        raise SpecError(
            f"delta={spec.delta}: expected at most 1/nominal_rows = {1 / spec.nominal_rows:.3g}"
        )
    if spec.relation == "replace_one" and spec.unit.max_rows > 1:
        raise SpecError(
            "unit.max_rows: expected 1 under replace_one; replacing a person by one with another"
            " number of rows would change the public number of rows"
        )
    if spec.shares.generator <= 0:
        raise SpecError("shares.generator: expected a number > 0")
    if spec.weights.wanted and spec.shares.weights <= 0:
        raise SpecError("shares.weights: expected a number > 0, or weights.method: none")


def parse_spec(mapping: dict[str, Any]) -> ReleaseSpec:
    """Check a mapping of settings and return the spec.

    Raises:
        SpecError: names the field, what was expected, and the allowed range.
    """
    faults = ""
    try:
        spec = ReleaseSpec.model_validate(mapping)
    except ValidationError as error:
        faults = told(error, ReleaseSpec)
    if faults:  # raised outside the handler: pydantic's error holds the inputs, a password perhaps
        raise SpecError(faults)
    _check_formats(spec)
    _check_promise(spec)
    _check_weights(spec)
    return spec


def load_spec(path: Path) -> ReleaseSpec:
    """Read a spec file; relative paths in it become absolute, from the file's own folder."""
    name = path.name or str(path)
    mapping = load_file(path, what=name, exact=True)
    if not isinstance(mapping, dict):
        raise SpecError(f"{name}: no release spec; expected a mapping of settings, `key: value`")
    if "columns" in mapping and "source" not in mapping:
        raise SpecError(
            f"{name}: a data dictionary; expected the release spec that names it{_beside(path)}"
        )
    refuse_open(mapping, what=name, error=SpecError, also=_dictionary(mapping, path.parent))
    with told_in(path, SpecError):
        return located_spec(parse_spec(mapping), path.resolve().parent)


def _beside(path: Path) -> str:
    """The spec that `dpiw init` drafts beside a data dictionary, where it is there."""
    draft = path.parent / "release.yaml"
    return f": {draft}" if os.path.isfile(draft) else ""


def _dictionary(mapping: dict[str, Any], base: Path) -> Path | None:
    """The data dictionary that a spec with open fields names; None where it may be the source."""
    schema_path, source = mapping.get("schema"), mapping.get("source")
    place = source.get("path", "") if isinstance(source, dict) else ""
    if not all(isinstance(value, str) and is_plain(value) for value in (schema_path, place)):
        return None
    path = base / str(schema_path)
    is_source = is_same_file(path, base / str(place))
    return None if is_source or path.suffix not in (".yaml", ".yml") else path


def load_schema(spec: ReleaseSpec) -> PublicSchema:
    """Read the public data dictionary a spec refers to, and check that they fit."""
    zone = confidential(spec)
    zone.refuse(Path(spec.schema_path), field="schema")
    schema = PublicSchema.from_yaml(Path(spec.schema_path), confidential=zone)
    with told_in(Path(spec.schema_path), SchemaError):
        check_fit(spec, schema)
    return schema


def check_fit(spec: ReleaseSpec, schema: PublicSchema) -> None:
    """Refuse a spec and a schema that do not fit: who the person is, how cells are written.

    Raises:
        SpecError, SchemaError: they do not.
    """
    column, person = spec.unit.id_column, schema.identifier
    if column is not None and (person is None or person.name != column):
        identifier = (
            f"the dictionary's column of role identifier ({person.name if person else 'none'})"
        )
        raise SpecError(f"unit.id_column={column}: expected {identifier}")
    settled_formats(schema, spec.source.written, file_format=spec.source.format)


def check_header(text: str, source: SourceSpec, schema: PublicSchema) -> str:
    """Refuse a line of names, or a Parquet file's columns, that are not as declared.

    Args:
        text: a CSV file's first line as somebody typed it, or the path of a Parquet file.
        source: of the spec.
        schema: the public schema.

    Returns:
        That they are as declared, for people.

    Privacy:
        Of a Parquet file the names and types in its footer are used: no row, no statistic and no
        number of rows. Which types a writer chose may depend on cells, so none that a column's
        values may take is refused or named.

    Raises:
        SchemaError, SourceError: as `typed_line`, `header_cells`, `check_names`; or types of which
            no cell is read, of all columns at once.
    """
    from dpiw.data.headers import check_names, header_cells, typed_line
    from dpiw.data.sources import is_parquet, parquet_types
    from dpiw.data.validation import types_fault

    names = [column.name for column in schema.columns]
    agrees = f"header: its {len(names)} names are those of the data dictionary"
    if not is_parquet(Path(text)):
        cells = header_cells(typed_line(text, encoding=source.encoding), names, source.delimiter)
        check_names(
            cells, names, max_columns=source.max_columns, encoding=source.encoding, typed=True
        )
        return agrees
    if source.format != "parquet":
        raise SourceError(f"header: {text} is a Parquet file; expected source.format: parquet")
    types = parquet_types(Path(text))
    check_names([name for name, _ in types], names, max_columns=source.max_columns, typed=True)
    if fault := types_fault(dict(types), schema.columns, file_format="parquet"):
        raise SourceError(f"header: {fault}")
    return (
        f"header: its {len(names)} names are those of the data dictionary, and its types are read"
    )
