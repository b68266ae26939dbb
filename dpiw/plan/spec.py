"""The release spec: everything that is decided before data is read.

A spec is a YAML file that a curator writes. Nothing in it may be derived from the confidential
table. Unknown keys are refused, numbers of the promise are exact decimals, and every default is
public and fixed here. Relative paths are resolved against the spec file's own folder.
"""

from __future__ import annotations

import contextlib
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from dpiw.data.cell_formats import FORMAT_FIELDS, ISO, CellFormat, settled_formats, source_fault
from dpiw.data.dictionary import is_same_file, refuse_open
from dpiw.data.public_rows import named_file
from dpiw.data.schema import PublicSchema
from dpiw.data.yaml import load_file, told_in
from dpiw.errors import SchemaError, SpecError
from dpiw.ledger.location import absolute_location
from dpiw.methods.weights.post_processing import BetaCalibrate, files_of, parse_post_processing
from dpiw.methods.weights.registry import NONE, check_known_everywhere, usual_effort
from dpiw.plan.spec_faults import told
from dpiw.plan.spec_types import (
    Count,
    Exact,
    Location,
    Name,
    PlainText,
    Section,
    Settings,
    Share,
    is_plain,
)
from dpiw.privacy.units import (
    DELTA_UNIT,
    EPSILON_UNIT,
    NeighbouringRelation,
    PrivacyCost,
    PrivacyUnit,
)

MAX_EPSILON = Decimal(10)
"""Policy maximum of a single release; more says little about privacy."""


class SourceFormat(Section):
    """How the confidential table's bytes are to be read.

    `snapshot` is the curator's public label of this state of the file. It is part of the run's
    identity: the same label, period and plan are the same run, whatever happens to the file.
    How cells are written (`decimal` to `missing`) is for every column that does not say otherwise
    in the data dictionary; see `dpiw.data.cell_formats`.

    So are the limits: a read that fails at one tells about the table, and another limit is another
    run. There is none on the number of rows, and that on memory is large, so that no setting makes
    the size of an ordinary table decide how a run ends.
    """

    format: Literal["csv", "parquet"]
    encoding: Literal["utf-8", "utf-16", "latin-1", "cp1252"] = "utf-8"
    delimiter: Literal[",", ";", "\t", "|"] = ","
    decimal: str = "."
    thousands: str = "none"
    date_format: str = ISO
    datetime_format: str = ISO
    missing: tuple[Any, ...] = ()
    snapshot: Name = "initial"
    max_columns: Annotated[Count, Field(ge=1, le=100_000)] = 1_000
    max_cell_bytes: Annotated[Count, Field(ge=1, le=1 << 24)] = 10_000
    max_memory_bytes: Annotated[Count, Field(ge=1 << 32, le=1 << 42)] = 16 << 30

    @property
    def written(self) -> CellFormat:
        """How the file's cells are written."""
        return CellFormat(**{name: getattr(self, name) for name in FORMAT_FIELDS})


class SourceSpec(SourceFormat):
    """Where the confidential table lies, and how its bytes are to be read."""

    path: PlainText


class UnitSpec(Section):
    """Whose contribution is protected: at most `max_rows` rows that share an `id_column` value."""

    id_column: str | None = None
    max_rows: Annotated[Count, Field(ge=1, le=1000)] = 1


class GeneratorSpec(Section):
    """The SDGP and its public settings (see the method's own docstring)."""

    method: PlainText
    settings: Settings = Field(default_factory=dict)


class WeightsSpec(Section):
    """The weight estimator and its public settings.

    `when_infeasible` decides, from public facts and before data is read, what happens if weights
    are not worth their budget: `none` publishes unweighted rows and gives the whole budget to the
    generator, `refuse` stops the plan, `keep` makes them all the same.
    """

    method: PlainText
    settings: Settings = Field(default_factory=dict)
    normalisation: Literal["self", "unnormalised"] = "self"
    post_processing: list[Settings] = Field(default_factory=list)
    when_infeasible: Literal["none", "refuse", "keep"] = "none"

    @property
    def wanted(self) -> bool:
        """Whether there are to be weights at all."""
        return self.method != NONE


class SharesSpec(Section):
    """Wishes about effort: how much of the joint budget each private stage gets."""

    generator: Share = 0.5
    weights: Share = 0.5

    @classmethod
    def usual(cls, method: str) -> Self:
        """As weights of that method say they are worth it."""
        weights = usual_effort(method)
        return cls(generator=1 - weights, weights=weights)


class CatalogueSpec(Section):
    """What a data catalogue should say about the release's owner and licence."""

    creator: PlainText = "not stated"
    licence: PlainText = "not stated"
    url: PlainText = "not stated"


def _usual_shares(given: dict[str, Any]) -> SharesSpec:
    """Those of a spec that has none; `given` holds the fields above that are admissible."""
    return SharesSpec.usual(given["weights"].method) if "weights" in given else SharesSpec()


class Promise(Section):
    """What a release promises: all of it, and nothing else, makes its digest and its run key."""

    format: Literal[1]
    name: Name
    population: Name
    cadence: Literal["once", "daily", "weekly", "monthly", "quarterly", "yearly"] = "once"
    source: SourceSpec
    unit: UnitSpec = UnitSpec()
    relation: Literal["add_or_remove_one", "replace_one"] = "add_or_remove_one"
    epsilon: Exact
    delta: Exact
    nominal_rows: Annotated[Count, Field(ge=1, le=10**12)]
    generator: GeneratorSpec
    weights: WeightsSpec
    shares: SharesSpec = Field(default_factory=_usual_shares)
    synthetic_rows: Annotated[Count, Field(ge=1, le=10**9)]


class Places(Section):
    """Where a release's files lie, and how it is run: to move or change them changes no promise."""

    schema_path: PlainText = Field(alias="schema")
    max_attempts: Annotated[Count, Field(ge=1, le=10)] = 1
    state: PlainText
    ledger: Location | None = None
    signing_key: PlainText
    publish_to: PlainText
    catalogue: CatalogueSpec = CatalogueSpec()
    public_truth: PlainText | None = None


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
        raise SpecError(f"{name}: a data dictionary; expected the release spec that names it")
    refuse_open(mapping, what=name, error=SpecError)
    with told_in(path, SpecError):
        return _located_spec(parse_spec(mapping), path.resolve().parent)


def _located_spec(spec: ReleaseSpec, base: Path) -> ReleaseSpec:
    """The spec with absolute paths."""

    def absolute(field: str, text: str) -> str:
        return str(located(base, field, text).resolve(strict=False))

    # The source's last component is not resolved: a symbolic link is refused at ingest.
    source = located(base, "source.path", spec.source.path)
    truth = spec.public_truth
    return spec.model_copy(
        update={
            "source": spec.source.model_copy(
                update={"path": str(source.parent.resolve() / source.name)}
            ),
            "weights": spec.weights.model_copy(
                update={"post_processing": _located_steps(spec, base, source)}
            ),
            "schema_path": absolute("schema", spec.schema_path),
            "state": absolute("state", spec.state),
            "signing_key": absolute("signing_key", spec.signing_key),
            "publish_to": absolute("publish_to", spec.publish_to),
            "public_truth": None if truth is None else absolute("public_truth", truth),
            "ledger": None if spec.ledger is None else absolute_location(spec.ledger, base),
        }
    )


def _located_steps(spec: ReleaseSpec, base: Path, source: Path) -> list[dict[str, Any]]:
    """The post-processing steps, with path and SHA-256 of a file of public rows."""

    def settled(step: dict[str, Any]) -> dict[str, Any]:
        if "rows" not in files_of(step) or not step.get("rows"):
            return step
        path = located(base, "weights.post_processing: beta_calibrate.rows", step["rows"])
        return named_file(step, path.resolve(strict=False), source=source)

    return [settled(step) for step in spec.weights.post_processing]


def located(base: Path, field: str, text: str) -> Path:
    """A path of a spec from the spec's own folder, `~` expanded."""
    with contextlib.suppress(RuntimeError, OSError):  # no such user; a loop of links
        path = base / Path(text).expanduser()
        path.resolve(strict=False)
        return path
    raise SpecError(f"{field}: expected a path that can be resolved")


def load_schema(spec: ReleaseSpec) -> PublicSchema:
    """Read the public data dictionary a spec refers to, and check that they fit."""
    if is_same_file(Path(spec.schema_path), Path(spec.source.path)):
        raise SpecError("schema: this is source.path, the confidential table")
    schema = PublicSchema.from_yaml(Path(spec.schema_path), confidential=Path(spec.source.path))
    column, person = spec.unit.id_column, schema.identifier
    if column is not None and (person is None or person.name != column):
        known = f"the dictionary's column of role identifier ({person.name if person else 'none'})"
        raise SpecError(f"unit.id_column={column}: expected {known}")
    with told_in(Path(spec.schema_path), SchemaError):
        settled_formats(schema, spec.source.written, file_format=spec.source.format)
    return schema
