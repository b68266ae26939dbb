"""One run of a release: its identity, its private folder, and the files in it.

`<state>/workspace/<population>/<run>/`, mode 0700, holds `run.json` (spec, schema, plan),
`private/` (exact rows), `log/`, `fit_*.npz` (paid draws), and repeatable post-processing of those.
The key hashes population, decisions, input snapshot and period: the same run finds the same folder.
"""

from __future__ import annotations

import datetime
import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpiw.data.cells.statement import STATEMENT
from dpiw.data.files import check_state_folder, private_folder, write_durably
from dpiw.data.schema.declarations import NAME
from dpiw.data.schema.schema import PublicSchema
from dpiw.data.snapshots import write_snapshot
from dpiw.data.source.copy import copy_source
from dpiw.data.source.public_rows import read_public_rows
from dpiw.data.yaml import marked
from dpiw.errors import LedgerConflictError, SourceError, SpecError
from dpiw.ledger import Ledger
from dpiw.methods.generators.base import MadeElsewhere, Synthesizer
from dpiw.methods.generators.registry import AUTO, AUTOMATIC
from dpiw.methods.weights.paper.steps import parse_post_processing
from dpiw.plan.calendar import nearest_period, period_at
from dpiw.plan.plan import Plan, compile_plan, restore_plan, settled
from dpiw.plan.spec import (
    ReleaseSpec,
    check_fit,
    compact_json,
    load_schema,
    load_spec,
    parse_spec,
)
from dpiw.release.signing import PrivateKey, load_private_key
from dpiw.run.certifiable import check_certifiable

PUBLIC_ROWS = "public_rows.parquet"
"""The run's copy of a calibration's rows, scaled."""

MADE_ELSEWHERE = "made_elsewhere.parquet"
"""The run's copy of rows that another tool made."""


def current_label(spec: ReleaseSpec) -> str:
    """Return the label of the current period, at the spec's cadence and in its time zone."""
    return period_at(spec.cadence, datetime.datetime.now(datetime.UTC), spec.time_zone)


def _check_period(period: str, cadence: str) -> None:
    if not re.fullmatch(NAME, period):
        plain = re.sub("[^a-z0-9_-]+", "-", period.lower()).strip("-_")[:63]
        near = nearest_period(cadence, plain) or plain
        meant = f"; did you mean {near!r}?" if near else ""
        allowed = f"lower-case letters, digits, - and _, at most 63, such as 2027-q1{meant}"
        raise SpecError(field="period", allowed=allowed)


def ledger_url(spec: ReleaseSpec) -> str:
    """Return the URL of a spec's ledger: `ledger`, or a SQLite file in the state folder."""
    return spec.ledger or f"sqlite:///{Path(spec.state) / 'ledger.sqlite'}"


def workspace_folder(state: Path) -> Path:
    """Return the folder of all runs in a state folder."""
    return state / "workspace"


def run_folder(state: Path, population: str, key: str) -> Path:
    """Return a run's folder."""
    return workspace_folder(state) / population / key[:32]


def cells_file(folder: Path) -> Path:
    """Return the path of the statement of its cells in a run's folder."""
    return folder / "private" / STATEMENT


def measurement_file(folder: Path, stage: str) -> Path:
    """Return the path of a private stage's draw in a run's folder."""
    return folder / f"{stage}.npz"


def snapshot_file(folder: Path) -> Path:
    """Return the path of the scaled table in a run's folder, once ingested."""
    return folder / "private" / "scaled.parquet"


def _record_file(folder: Path) -> Path:
    return folder / "run.json"


def _record(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(_record_file(folder).read_bytes())
    return record


def begun(spec: ReleaseSpec, schema: PublicSchema, period: str) -> ReleaseSpec:
    """Return the spec with the generator that a begun run of the period has.

    Today's rule of `auto` may choose another. Unchanged where the spec names a generator, or no
    such run is in the workspace.
    """
    for method in AUTOMATIC if spec.generator.method == AUTO else ():
        named = spec.with_generator(method)
        key = named.run_key(schema, period)
        if _record_file(run_folder(Path(spec.state), spec.population, key)).exists():
            return named
    return spec


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A spec, its dictionary and a period, read once: which run is meant. Compiles `auto` alone.

    `path` is as typed; `spec` of a run that was prepared before has that run's public files, and
    names the generator.
    """

    path: Path
    spec: ReleaseSpec
    schema: PublicSchema
    period: str
    key: str

    @classmethod
    def read(cls, path: Path, *, period: str | None) -> RunRequest:
        """Read a spec and its dictionary; `period` None: today's, by the spec's cadence.

        Raises SpecError or SchemaError, and ReleaseError if the signing key cannot be read.
        """
        with marked(path, SpecError):
            spec = load_spec(path)
        return cls.of(spec, path, period=period)

    @classmethod
    def of(cls, spec: ReleaseSpec, path: Path, *, period: str | None) -> RunRequest:
        """Return the request of a spec that was loaded from `path`; raises as `read`."""
        if period is not None:
            _check_period(period, spec.cadence)
        label = period or current_label(spec)
        with marked(path, SpecError):
            spec.of_period(label).check_publish_to()
            schema = load_schema(spec)  # which no period's table may be
        load_private_key(Path(spec.signing_key))  # before the plan, which may take a minute
        return cls.settled(spec, schema, path, period=label)

    @classmethod
    def settled(
        cls, spec: ReleaseSpec, schema: PublicSchema, path: Path, *, period: str | None
    ) -> RunRequest:
        """Return the request without asking for the signing key, which an approver lacks."""
        label = period or current_label(spec)
        with marked(path, SpecError):
            spec = settled(begun(spec, schema, label), schema).of_period(label)
        return cls(
            path=path, spec=spec, schema=schema, period=label, key=spec.run_key(schema, label)
        )

    @property
    def directory(self) -> Path:
        """The run's folder, whether or not it exists."""
        return run_folder(Path(self.spec.state), self.spec.population, self.key)

    def prepared(self) -> ReleaseRun:
        """Compile the spec and open the run's folder; reads no data and spends nothing.

        A run that was prepared before keeps the plan of its first preparation.

        Raises SpecError or SchemaError if they are not admissible, or a confidential folder is open
        to others; NotPublishableError for a method that is not private; else `check_certifiable`.
        """
        directory = self.directory
        with marked(self.path, SpecError):
            was_prepared = _record_file(directory).exists()
            compiled = None if was_prepared else compile_plan(self.spec, self.schema)
        if compiled is not None:
            check_certifiable(compiled)
        check_state_folder(Path(self.spec.state))
        for folder in (directory.parents[1], directory.parent, directory,
                       directory / "private", directory / "log"):  # fmt: skip
            private_folder(folder)
        plan = compiled or restore_plan(self.spec, self.schema, _record(directory))
        run = ReleaseRun(directory=directory, key=self.key, period=self.period, plan=plan)
        _keep_rows_of_calibration(plan, directory)
        _keep_rows_made_elsewhere(plan, directory)
        run._store()
        return ReleaseRun.load(directory)

    def found(self) -> ReleaseRun | None:
        """Return the run if it was prepared before, else None without compiling anything."""
        return self.prepared() if _record_file(self.directory).exists() else None


@dataclass(frozen=True, kw_only=True)
class ReleaseRun:
    """A prepared run; `key` has 64 hexadecimal digits, `plan` is that of its first preparation."""

    directory: Path
    key: str
    period: str
    plan: Plan

    @classmethod
    def prepare(cls, path: Path, *, period: str | None) -> ReleaseRun:
        """Read a spec and prepare its run; raises as `RunRequest.read` and `prepared`."""
        return RunRequest.read(path, period=period).prepared()

    def _store(self) -> None:
        """Keep the plan of the first preparation; refresh the paths of files."""
        plan = self.plan
        record = {
            "key": self.key,
            "period": self.period,
            "spec": plan.spec.model_dump(mode="json", by_alias=True),
            "schema": plan.schema.to_mapping(),
            "effort": plan.effort,
            "publishes_weights": plan.weights is not None,
            "forecast": None if plan.forecast is None else vars(plan.forecast),
            "warnings": list(plan.warnings),
        }
        write_durably(_record_file(self.directory), compact_json(record).encode())

    @classmethod
    def load(cls, directory: Path) -> ReleaseRun:
        """Read a prepared run."""
        record = _record(directory)
        for retired in ("public_truth", "back_fill"):  # fields of earlier specs
            record["spec"].pop(retired, None)
        spec = parse_spec(record["spec"])
        schema = PublicSchema.from_mapping(record["schema"])
        check_fit(spec, schema)  # somebody may have changed the record and its key
        plan = restore_plan(spec, schema, record)
        if plan.run_key(record["period"]) != record["key"]:
            raise LedgerConflictError(
                "its key does not belong to its plan: go on with the version of dpiw that began the"
                " run, or get the file again from a backup",
                field="run.json",
            )
        return cls(directory=directory, key=record["key"], period=record["period"], plan=plan)

    @property
    def spec(self) -> ReleaseSpec:
        """The spec the plan was compiled from."""
        return self.plan.spec

    @property
    def release_id(self) -> str:
        """Name of the published folder: the spec's name, the period, the key's first digits."""
        return self.drawn_id

    @property
    def drawn_id(self) -> str:
        """Name of the release that paid for the draws."""
        return f"{self.spec.name}-{self.period}-{self.key[:8]}"

    @property
    def private(self) -> Path:
        """The folder of exact rows."""
        return self.directory / "private"

    @property
    def snapshot(self) -> Path:
        """Path of the scaled table, once ingested."""
        return snapshot_file(self.directory)

    @property
    def generator(self) -> Synthesizer:
        """The plan's generator; rows made elsewhere are read from the run's own copy."""
        generator = self.plan.generator
        if isinstance(generator, MadeElsewhere):
            return generator.at(self.directory / MADE_ELSEWHERE)
        return generator

    @property
    def public_rows(self) -> Path:
        """Path of the scaled rows of a calibration on public rows."""
        return self.directory / PUBLIC_ROWS

    def draws(self, stage: str) -> bool:
        """Return whether the plan has this private stage."""
        return any(planned.name == stage for planned in self.plan.stages)

    def measurement(self, stage: str) -> Path:
        """Return the path of a private stage's draw."""
        return measurement_file(self.directory, stage)

    def open_ledger(self, *, key: PrivateKey | None = None) -> Ledger:
        """Open the population's existing ledger. `key` signs entries."""
        return Ledger.open(ledger_url(self.spec), key=key)


def _keep_rows_of_calibration(plan: Plan, directory: Path) -> None:
    """Copy public rows that the run lacks, checked against the plan; SpecError if they changed."""
    step = parse_post_processing(plan.spec.weights.post_processing).calibrate
    snapshot = directory / PUBLIC_ROWS
    if step is None or snapshot.exists():
        return
    scaled = read_public_rows(
        Path(step.rows), sha256=str(step.sha256), schema=plan.schema,
        directory=directory / "private", limits=plan.spec.source.limits,
    )  # fmt: skip
    write_snapshot(scaled, snapshot)


def _keep_rows_made_elsewhere(plan: Plan, directory: Path) -> None:
    """As `_keep_rows_of_calibration`; of kept rows the original may be gone."""
    target, source = directory / MADE_ELSEWHERE, Path(plan.spec.source.path)
    if not isinstance(plan.generator, MadeElsewhere):
        return
    if target.exists():
        plan.generator.at(target).check_file(source)
        return
    plan.generator.check_file(source)
    copy = directory / f".{MADE_ELSEWHERE}-{secrets.token_hex(8)}"
    try:
        copy_source(Path(plan.spec.generator.settings["rows"]), copy)
        plan.generator.at(copy).kept(plan.schema)
        write_durably(target, copy.read_bytes())
    except SourceError:
        allowed = "a readable, uncompressed file that nobody changes meanwhile, and no link"
        raise SpecError(field="generator.settings.rows", allowed=allowed) from None
    finally:
        copy.unlink(missing_ok=True)
