"""The release spec: one typed value that is read once, before any data.

Nothing in it may be derived from the confidential table. Unknown keys are refused, and numbers of
the promise are exact decimals.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from dpiw import __version__
from dpiw.data.cells.formats import source_fault, without_defaults
from dpiw.data.cells.reading import settled_formats
from dpiw.data.schema.confidential import PERIOD, Confidential, is_source
from dpiw.data.schema.dictionary import refuse_open
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.source.public_rows import FIELD, named_file
from dpiw.data.yaml import load_file, marked
from dpiw.errors import SchemaError, SourceError, SpecError
from dpiw.ledger.location import absolute_location
from dpiw.methods.generators.registry import AUTO, public_settings
from dpiw.methods.weights.paper.steps import BetaCalibrate, files_of, parse_post_processing
from dpiw.methods.weights.registry import check_known_everywhere
from dpiw.plan.calendar import first_day, nearest_period
from dpiw.plan.sections import GeneratorSpec, Places, Promise, SourceFormat, SourceSpec
from dpiw.plan.spec_types import is_plain, validated
from dpiw.privacy.units import (
    DELTA_UNIT,
    EPSILON_UNIT,
    NeighbouringRelation,
    PrivacyCost,
    PrivacyUnit,
)

MAX_EPSILON = Decimal(10)
"""Policy maximum of a single release; more says little about privacy."""

_Public = Callable[[str, str], str]
"""Returns the absolute path of a field's public file; refuses a confidential one."""

_FOLDER = "releases or state/releases"
"""Examples of `publish_to` in messages."""


def compact_json(value: object) -> str:
    """Return one text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=str)


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

    @property
    def retention(self) -> int:
        """How many periods back from the current one may be published without a question."""
        return 1 if self.series is None else self.series.retention

    def of_period(self, label: str) -> Self:
        """Return the spec with the label for `{period}` in `source.path`, which is absolute."""
        if PERIOD not in self.source.path:
            return self
        path = Path(self.source.path.replace(PERIOD, label))
        place = {"path": str(path.parent.resolve() / path.name)}
        return self.model_copy(update={"source": self.source.model_copy(update=place)})

    @property
    def confidential(self) -> Confidential:
        """Where no public file may lie; the paths are absolute."""
        return Confidential(
            source=Path(self.source.path), state=Path(self.state), releases=Path(self.publish_to)
        )

    @property
    def public_steps(self) -> list[dict[str, Any]]:
        """Return post-processing with files' SHA-256 instead of their paths."""
        return [
            {name: value for name, value in step.items() if name not in files_of(step)}
            for step in self.model_dump(mode="json")["weights"]["post_processing"]
        ]

    @property
    def public_generator(self) -> dict[str, Any]:
        """Return the generator without the paths of files."""
        facts: dict[str, Any] = self.generator.model_dump(mode="json")
        return facts | {"settings": public_settings(facts["method"], facts["settings"])}

    def with_generator(self, method: str) -> Self:
        """Return the spec with a generator by name."""
        return self.model_copy(update={"generator": GeneratorSpec(method=method)})

    def digest(self, schema: PublicSchema) -> str:
        """Return the SHA-256 of what a release promises; independent of paths."""
        places: dict[str, Any] = dict.fromkeys(Places.model_fields, True)
        places["source"] = set(SourceSpec.model_fields) - set(SourceFormat.model_fields)
        decisions = self.model_dump(mode="json", exclude=places)
        decisions["source"] = without_defaults(decisions["source"])
        if not self.questions:  # a later field: keys stay what they were
            del decisions["questions"]
        decisions["public_truth"] = False  # a field of earlier specs: keys stay what they were
        decisions["generator"] = self.public_generator
        decisions["weights"]["post_processing"] = self.public_steps
        body = {"spec": decisions, "schema": schema.to_mapping(), "dpiw": __version__}
        return hashlib.sha256(b"dpiw-plan-v1\n" + compact_json(body).encode()).hexdigest()

    def run_key(self, schema: PublicSchema, period: str) -> str:
        """Return the idempotency key of a run: population, promise, input snapshot and period."""
        parts = {
            "population": self.population,
            "plan": self.digest(schema),
            "snapshot": self.source.snapshot,
            "period": period,
        }
        return hashlib.sha256(b"dpiw-run-v1\n" + compact_json(parts).encode()).hexdigest()

    def check_publish_to(self) -> None:
        """Raise SpecError if `publish_to` (absolute) is a file or has confidential files in it.

        Verification refuses every release beside a file that it cannot read.
        """
        releases, state = Path(self.publish_to), Path(self.state)
        source = Path(self.source.path)
        fault = ""
        if os.path.exists(releases) and not os.path.isdir(releases):  # False where nobody may look
            fault = "is a file"
        elif source.parent == releases:
            fault = "is the folder of source.path, the confidential table"
        elif releases == state:
            fault = "is the state folder, in which the ledger and the confidential workspace lie"
        elif releases.is_relative_to(state / "workspace"):
            fault = "lies in the confidential workspace of the state folder"
        elif any(place.is_relative_to(releases) for place in (source, state)):
            fault = "holds the folder of source.path, or the state folder"
        if fault:
            raise SpecError(
                fault,
                field="publish_to",
                allowed=f"a folder of releases alone, such as {_FOLDER}, which is made if"
                " it is not there",
            )


def _check_calibration(spec: ReleaseSpec, step: BetaCalibrate) -> None:
    check_known_everywhere(spec.weights.method)
    for name, text in (("declared", step.declared), ("rows", step.rows)):
        if len(text) > 4096 or not is_plain(text):
            raise SpecError(
                f"beta_calibrate.{name}: expected at most 4096 printable characters, and"
                " no URL that holds a password",
                field="weights.post_processing",
            )


def _check_promise(spec: ReleaseSpec) -> None:
    if spec.epsilon < EPSILON_UNIT:
        raise SpecError(f"found {spec.epsilon}", field="epsilon", allowed=f">= {EPSILON_UNIT:E}")
    if spec.epsilon > MAX_EPSILON:
        raise SpecError(field=f"epsilon={spec.epsilon}", allowed=f"at most {MAX_EPSILON}")
    if spec.delta != 0 and spec.delta < DELTA_UNIT:
        raise SpecError(f"found {spec.delta}", field="delta", allowed=f"0, or >= {DELTA_UNIT:E}")
    if spec.delta >= 1 or spec.delta * spec.nominal_rows > 1:
        raise SpecError(
            field=f"delta={spec.delta}",
            allowed=f"at most 1/nominal_rows = {1 / spec.nominal_rows:.3g}",
        )
    if spec.relation == "replace_one" and spec.unit.max_rows > 1:
        raise SpecError(
            f"found {spec.unit.max_rows}, and under relation: replace_one the number of rows is"
            " public: another person with more or fewer rows would change it",
            field="unit.max_rows",
            allowed="1, or relation: add_or_remove_one",
        )
    if spec.generator.method == AUTO and spec.generator.settings:
        raise SpecError(
            "method: auto has no settings; delete it, or name a method",
            field=f"generator.settings.{min(spec.generator.settings)}",
        )
    if spec.shares.generator <= 0:
        raise SpecError("found 0", field="shares.generator", allowed="a number > 0, at most 1")
    if spec.weights.wanted and spec.shares.weights <= 0:
        raise SpecError("found 0", field="shares.weights", allowed="> 0, or weights.method: none")


def _check_series(spec: ReleaseSpec) -> None:
    series, path = spec.series, spec.source.path
    if (series or PERIOD in path) and re.search("[{}]", path.replace(PERIOD, "")):
        allowed = f"no bracket but those of {PERIOD}"
        raise SpecError("holds { or }", field="source.path", allowed=allowed)
    if series is None:
        return
    for name, label in (("first", series.first), ("last", series.last or series.first)):
        near = nearest_period(spec.cadence, label)
        if near != label or spec.cadence == "once":
            meant = f"; did you mean {near!r}?" if near else ""
            allowed = f"the label of a period of cadence {spec.cadence}{meant}"
            if spec.cadence == "once":
                allowed = "no `series` with cadence once, which has one period"
            raise SpecError(field=f"series.{name}", allowed=allowed)
    first, last = (
        first_day(spec.cadence, at) for at in (series.first, series.last or series.first)
    )
    if last < first:
        raise SpecError(field="series.last", allowed=f"{series.first}, which is first, or later")


def _check_retention(spec: ReleaseSpec) -> None:
    """Refuse a retention that one file would serve: it cannot hold every period's table."""
    if spec.retention > 1 and PERIOD not in spec.source.path:
        raise SpecError(
            f"found {spec.retention}, and source.path names one file, which cannot hold the table"
            " of every period",
            field="series.retention",
            allowed=f"1, or {PERIOD} in source.path, such as data/{PERIOD}.csv",
        )


def parse_spec(mapping: dict[str, Any]) -> ReleaseSpec:
    """Check settings and return the spec; SpecError names the field and the allowed range."""
    if "back_fill" in mapping:
        allowed = "series.retention, the number of periods back that may be published"
        raise SpecError("is retired; delete it", field="back_fill", allowed=allowed)
    spec = validated(ReleaseSpec, mapping)
    if fault := source_fault(spec.source.written, file_format=spec.source.format):
        raise SpecError(fault[1], field=f"source.{fault[0]}")
    _check_promise(spec)
    _check_series(spec)
    steps = parse_post_processing(spec.weights.post_processing)
    steps.check(self_normalised=spec.weights.normalisation == "self")
    if steps.calibrate is not None:
        _check_calibration(spec, steps.calibrate)
    return spec


def load_spec(path: Path) -> ReleaseSpec:
    """Read a spec file; its relative paths become absolute, from the file's own folder."""
    name = path.name or str(path)
    mapping = load_file(path, what=name, exact=True)
    if not isinstance(mapping, dict):
        allowed = "a mapping of settings, `key: value`"
        raise SpecError("holds no release spec", field=name, allowed=allowed)
    if "columns" in mapping and "source" not in mapping:
        allowed = f"the release spec that names it{_beside(path)}"
        raise SpecError("is a data dictionary", field=name, allowed=allowed)
    refuse_open(mapping, what=name, error=SpecError, also=_dictionary(mapping, path.parent))
    with marked(path, SpecError):
        spec = parse_spec(mapping)
        _check_retention(spec)
        return located_spec(spec, path.resolve().parent)


def _beside(path: Path) -> str:
    draft = path.parent / "release.yaml"
    return f": {draft}" if os.path.isfile(draft) else ""


def _dictionary(mapping: dict[str, Any], base: Path) -> Path | None:
    """Return an unfinished spec's dictionary; None if it may be the confidential source."""
    schema_path, source = mapping.get("schema"), mapping.get("source")
    place = source.get("path", "") if isinstance(source, dict) else ""
    if not all(isinstance(value, str) and is_plain(value) for value in (schema_path, place)):
        return None
    path = base / str(schema_path)
    is_table = is_source(path, base / str(place))
    return None if is_table or path.suffix not in (".yaml", ".yml") else path


def located_spec(spec: ReleaseSpec, base: Path) -> ReleaseSpec:
    """Make paths absolute and add the SHA-256 of public rows for a calibration.

    Raises SpecError if a public file is confidential or not the stated one.
    """

    def absolute(field: str, text: str) -> str:
        return str(located(base, field, text).resolve(strict=False))

    # The source's last component is not resolved: a symbolic link is refused at ingest.
    source = located(base, "source.path", spec.source.path)
    places = {
        "source": spec.source.model_copy(
            update={"path": str(source.parent.resolve() / source.name)}
        ),
        "schema_path": absolute("schema", spec.schema_path),
        "state": absolute("state", spec.state),
        "signing_key": absolute("signing_key", spec.signing_key),
        "publish_to": absolute("publish_to", spec.publish_to),
        "ledger": None if spec.ledger is None else absolute_location(spec.ledger, base),
    }
    spec = spec.model_copy(update=places)

    def public(field: str, text: str) -> str:
        path = located(base, field, text)
        spec.confidential.refuse(path, field=field)
        return str(path.resolve(strict=False))

    generator = _located_generator(spec, public)
    steps = [
        named_file(step, Path(public(FIELD, step["rows"])))
        if "rows" in files_of(step) and step.get("rows")
        else step
        for step in spec.weights.post_processing
    ]
    return spec.model_copy(
        update={
            "generator": generator,
            "weights": spec.weights.model_copy(update={"post_processing": steps}),
        }
    )


def _located_generator(spec: ReleaseSpec, public: _Public) -> GeneratorSpec:
    """Make the path of rows made elsewhere absolute; open no file, as a run may keep a copy."""
    method, settings = spec.generator.method, spec.generator.settings
    places = settings.keys() - public_settings(method, settings).keys()
    placed = {
        name: public(f"generator.settings.{name}", settings[name])
        for name in places
        if isinstance(settings[name], str)
    }
    if not placed:
        return spec.generator
    return spec.generator.model_copy(update={"settings": settings | placed})


def located(base: Path, field: str, text: str) -> Path:
    """Return a path relative to the spec's folder, `~` expanded."""
    with contextlib.suppress(RuntimeError, OSError):  # no such user; a loop of links
        path = base / Path(text).expanduser()
        path.resolve(strict=False)
        return path
    raise SpecError("cannot be followed: ~ names no user, or links form a loop", field=field)


def load_schema(spec: ReleaseSpec) -> PublicSchema:
    """Read a spec's data dictionary, and check that they fit."""
    zone = spec.confidential
    zone.refuse(Path(spec.schema_path), field="schema")
    schema = PublicSchema.from_yaml(Path(spec.schema_path), confidential=zone)
    with marked(Path(spec.schema_path), SchemaError):
        check_fit(spec, schema)
    return schema


def check_fit(spec: ReleaseSpec, schema: PublicSchema) -> None:
    """Raise SpecError or SchemaError if they differ on the person or on how cells are written."""
    column, person = spec.unit.id_column, schema.identifier
    if column is not None and (person is None or person.name != column):
        fault, allowed = "the data dictionary gives no column `role: identifier`", f"it at {column}"
        if person is not None:
            fault = f"the data dictionary has `role: identifier` at {person.name}"
            allowed = f"unit.id_column: {person.name}, or that role at {column}"
        raise SpecError(fault, field=f"unit.id_column={column}", allowed=allowed)
    settled_formats(schema, spec.source.written, file_format=spec.source.format)


def check_header(text: str, source: SourceSpec, schema: PublicSchema) -> str:
    """Refuse a header line, or a Parquet file's columns, that are not as declared; else say so.

    `text`: a CSV file's first line as typed, or the path of a Parquet file.

    Privacy:
        Of a Parquet file only names and types in its footer are used. Types may depend on cells,
        so no type that a column's values may take is refused or named.

    Raises:
        SchemaError, SourceError: as `typed_line`, `header_cells`, `check_names`; or column
            types that dpiw does not read, with all columns named at once.
    """
    from dpiw.data.source.batches import is_parquet, parquet_types
    from dpiw.data.source.headers import check_names, header_cells, typed_line
    from dpiw.data.source.validation import types_fault

    names, most = [column.name for column in schema.columns], source.max_columns
    agrees = f"header: its {len(names)} names are those of the data dictionary"
    if not is_parquet(Path(text)):
        cells = header_cells(typed_line(text, encoding=source.encoding), names, source.delimiter)
        check_names(cells, names, max_columns=most, encoding=source.encoding, typed=True)
        return agrees
    if source.format != "parquet":
        raise SourceError(
            f"{text} is a Parquet file", field="header", allowed="source.format: parquet"
        )
    types = parquet_types(Path(text))
    check_names([name for name, _ in types], names, max_columns=most, typed=True)
    if fault := types_fault(dict(types), schema.columns, file_format="parquet"):
        raise SourceError(fault, field="header")
    return f"{agrees}, and its types are read"
