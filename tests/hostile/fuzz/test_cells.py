"""No cell ends or changes a run: every declared kind, every stored type, the worst values.

For rows as declared an ingest ends with success, through Parquet and through CSV, and two tables
that differ in one row's values end alike: same code, same files for operators, same entries in the
ledger. Each other row means the same in both tables. Seeds of the long run are fresh and shown.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import time
import traceback
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpiw.data import encoding as scaling
from dpiw.data import sources
from dpiw.data.cell_formats import CANONICAL, FORMAT_FIELDS
from dpiw.data.cell_reading import canonical_frame, settled_formats
from dpiw.data.cell_statement import STATEMENT, CellTally, statement
from dpiw.data.columns import Column, ColumnKind, ColumnRole
from dpiw.data.ingest import rows_within_unit
from dpiw.data.schema import PublicSchema, ScaledTable
from dpiw.data.snapshots import write_snapshot
from dpiw.data.sources import IngestLimits, read_csv
from dpiw.data.validation import admissible_types, scaled_extremes, scaled_limits
from dpiw.ledger import Ledger
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.run import process as stages
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.hostile.bad_inputs.workbench import Bench
from tests.hostile.fuzz import cells as fuzz
from tests.hostile.fuzz.cells import ARROW, SCHEMA, Case, make_case, neighbour
from tests.support.read import read_parquet, read_snapshot

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=2, id_column="person")
SECONDS = 20
"""More for one case of 15 rows is a hang: it takes hundredths of a second."""


# Nothing forgotten


UNMADE = {pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME}
"""Types that pyarrow cannot make; Parquet has none of them."""


def arrow_types():
    """An example of every type that Arrow has, and all units."""
    whole = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
    plain = [
        pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(),
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
        pa.binary_view(), pa.binary(3), pa.month_day_nano_interval(),
    ]  # fmt: skip
    units = [make(unit) for make in (pa.timestamp, pa.duration) for unit in fuzz.UNITS]
    times = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    decimals = [make(9, 2) for make in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)]
    inner = pa.int8()
    nested = [
        pa.list_(inner), pa.large_list(inner), pa.list_view(inner), pa.large_list_view(inner),
        pa.list_(inner, 2), pa.struct([("x", inner)]), pa.map_(inner, inner),
        pa.dictionary(inner, pa.string()), pa.run_end_encoded(pa.int16(), inner),
        pa.dense_union([pa.field("x", inner)]), pa.sparse_union([pa.field("x", inner)]),
        pa.uuid(), pa.json_(), pa.bool8(),
    ]  # fmt: skip
    return [*whole, *plain, *units, *times, *decimals, *nested]


def name_of(kind):
    """What `validate_structure` goes by."""
    return sources._physical_type(pa.field("x", kind)).split("[")[0].split("(")[0]


def test_every_type_that_is_admitted_is_drawn():
    ids = {getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}
    abstract = {kind.id for kind in arrow_types() if isinstance(kind, pa.ExtensionType)}
    assert ids - abstract <= {kind.id for kind in arrow_types()} | UNMADE
    admitted = {name for c in SCHEMA.columns for name in admissible_types(c, file_format="parquet")}
    assert admitted == set(ARROW)
    assert {name_of(kind) for kind in arrow_types()} >= admitted
    for kind in arrow_types():
        if name_of(kind) in admitted:
            alike = [k.id for k in ARROW[name_of(kind)]]
            assert kind.id in alike, f"{kind} is read, and never drawn"
    assert all(name_of(kind) == name for name, kinds in ARROW.items() for kind in kinds)
    drawn = {
        (name, kind) for index in range(600) for name, kind in fuzz.make_kinds(3, index).items()
    }
    every = {(c.name, kind) for c in SCHEMA.columns
             for n in admissible_types(c, file_format="parquet") for kind in ARROW[n]}  # fmt: skip
    assert {kind for _, kind in every} <= {kind for _, kind in drawn}
    assert len(every & drawn) > 0.9 * len(every)
    assert all((column.name, None) in drawn for column in SCHEMA.columns)


def test_every_kind_and_every_option_has_a_column():
    kinds = {column.kind for column in SCHEMA.released}
    assert kinds == set(ColumnKind)
    assert {column.role for column in SCHEMA.columns} == set(ColumnRole)
    for field in dataclasses.fields(Column):
        if field.name not in fuzz.MEANS_NOTHING_TO_CELLS:
            used = [c for c in SCHEMA.columns if getattr(c, field.name) != field.default]
            assert used, f"{field.name}: no column uses it"
    for name in FORMAT_FIELDS:
        used = [
            source for source in fuzz.WRITTEN if getattr(source, name) != getattr(CANONICAL, name)
        ]
        assert used, f"{name}: no source uses it"
    for kind in kinds:
        assert {c.nullable for c in SCHEMA.released if c.kind is kind} == {False, True} or (
            kind is ColumnKind.ORDINAL
        )


def test_a_case_is_the_same_again_and_its_neighbour_differs_in_one_row():
    for index in range(9):
        case, again = make_case(5, index), make_case(5, index)
        assert case.content() == again.content()
        changed, row = neighbour(case, 5, index)
        for name, before in case.cells.items():
            rest = [*before[:row], *before[row + 1 :]]
            assert str(rest) == str([*changed.cells[name][:row], *changed.cells[name][row + 1 :]])
        assert str(changed.cells) != str(case.cells)


# The short way: as ingest, without Great Expectations and the ledger


def frame_of(case: Case, folder):
    path = folder / "source"
    path.write_bytes(case.content())
    names = list(case.cells)
    if case.file_format == "csv":
        return read_csv(path, names, limits=IngestLimits(), encoding=case.encoding,
                        delimiter=",").frame  # fmt: skip
    return read_parquet(path, names, limits=IngestLimits()).frame


def scaled_of(case: Case, folder) -> list[ScaledTable]:
    """What the rows of a case become, read from its file and, if of Parquet, from memory too."""
    frames = [frame_of(case, folder)]
    if case.file_format == "parquet":
        table = case.table().combine_chunks()
        plain = [
            _in_memory(column.combine_chunks(), sources._plain_type(column.type))
            for column in table.columns
        ]
        frames.append(sources._to_frame(pa.table(plain, names=table.column_names)))
    tables = []
    for frame in frames:
        assert len(frame) == case.rows, "another number of rows"
        formats = settled_formats(SCHEMA, case.written, file_format=case.file_format)
        raw, frame = frame, canonical_frame(frame, SCHEMA, formats)
        tally = CellTally(SCHEMA)
        tally.add(raw, frame)
        assert f"rows read: {case.rows}" in statement(tally, SCHEMA, formats, case.rows)
        person = SCHEMA.column("person")
        within_unit = rows_within_unit([frame["person"]], person, UNIT, directory=folder)
        scaled = SCHEMA.scale(frame)
        check_admissible(scaled)
        write_snapshot(scaled.take(within_unit), folder / "snapshot")
        back = read_snapshot(folder / "snapshot")
        assert back is not None, "the snapshot cannot be read"
        assert back.equals(scaled.take(within_unit)), "another snapshot"
        tables.append(scaled)
    return tables


def _in_memory(column, kind):
    if pa.types.is_dictionary(column.type):
        return _in_memory(column.dictionary, kind).take(column.indices)
    return sources._plain_column(column, kind)


def check_admissible(scaled: ScaledTable) -> None:
    extremes = scaled_extremes(scaled, SCHEMA)
    for column in SCHEMA.released:
        low, high = scaled_limits(column)
        assert extremes[column.name].between(low, high).all(), f"{column.name}: out of range"
        values = scaled.columns[column.name]
        missing = pd.isna(values) if column.is_numeric or column.unseen else values < 0
        assert column.nullable or not missing.any(), f"{column.name}: missing"
    columns = tuple(column for column in SCHEMA.columns if not column.unseen)
    listed = PublicSchema(name="listed", columns=columns)
    grid = ScaledTable({c.name: scaled.columns[c.name] for c in listed.released}, scaled.rows)
    assert listed.project(grid).equals(grid), "not on the grid"


def judge(seed: int, index: int, folder) -> str | None:
    """What a case and its neighbour did wrong, or None."""
    case = make_case(seed, index)
    changed, row = neighbour(case, seed, index)
    started = time.monotonic()
    try:
        rest = np.delete(np.arange(case.rows), row)
        pairs = zip(scaled_of(case, folder), scaled_of(changed, folder), strict=True)
        for table, changed_table in pairs:
            assert table.take(rest).equals(changed_table.take(rest)), "a row changed another"
        assert time.monotonic() - started < SECONDS, "hang"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"seed {seed} case {index}: {type(error).__name__} at {where.name}: {error}"[:400]
    return None


def run_cases(seed: int, cases: int, folder) -> Iterator[str]:
    verdicts = (judge(seed, index, folder) for index in range(cases))
    return (fault for fault in verdicts if fault is not None)


def test_no_cell_changes_more_than_its_row(tmp_path):
    faults = [*run_cases(20_270_131, 8, tmp_path)]
    assert not faults, "\n".join(faults)


@pytest.mark.nightly
def test_no_cell_of_very_many_changes_more_than_its_row(tmp_path, figures):
    seed, cases = secrets.randbits(32), 300
    faults = [*run_cases(seed, cases, tmp_path)]
    drawn = sum(len(c.cells) * c.rows for c in (make_case(seed, i) for i in range(cases)))
    figures("fuzz cells", seed=seed, cases=cases, cells=2 * drawn, violations=len(faults))
    assert not faults, "\n".join(faults)


# The real way: a stage of a run, its exit code, what operators see


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    from tests.conftest import make_workplace

    place = make_workplace.__wrapped__(tmp_path_factory)(epsilon="100000", reads=10**6)
    (place.root / "schema.yaml").write_text(fuzz.STAGES_YAML)
    return Bench(place=place, run=ReleaseRun.prepare(place.spec, period=None))


@pytest.fixture
def run_of(bench, monkeypatch):
    """The run that reads a case; the stage is told to load it."""
    runs = {}
    monkeypatch.setattr(stages, "_confine", lambda memory: None)
    monkeypatch.setattr(stages.ReleaseRun, "load", lambda directory: runs[directory])

    def make(case: Case, label: str) -> ReleaseRun:
        path = bench.place.root / "table.source"
        path.write_bytes(case.content())
        run = bench.with_source(
            bench.fresh(label), path, format=case.file_format, encoding=case.encoding,
            **vars(case.written),
        )  # fmt: skip
        runs[run.directory] = run
        return run

    return make


def visible(run: ReleaseRun, ledger: Ledger, since: int) -> dict[str, object]:
    """What operators see of an ingest: codes are beside. Names, sizes and modes; ledger entries."""
    folder = run.directory
    files = {
        str(path.relative_to(folder)): (oct(path.stat().st_mode), path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name not in ("private", "log")
    }
    entries = [(e.kind.value, e.population, e.attempt, e.stage) for e in ledger.entries()[since:]]
    return {"files": files, "entries": entries}


def ends(run: ReleaseRun, ledger: Ledger) -> dict[str, object]:
    since = len(ledger.entries())
    steps.reserve(run)
    code = stages.run_stage("ingest", run.directory)
    private = sorted(re.sub("[0-9a-f]{16}", "", path.name) for path in run.private.iterdir())
    return {"code": code, "private": private, **visible(run, ledger, since)}


def run_pairs(seed: int, cases: range, run_of, bench, *, fits: int = 0) -> list[str]:
    faults = []
    for index in cases:
        case = make_case(seed, index)
        changed, _ = neighbour(case, seed, index)
        endings = []
        for label, table in (("one", case), ("two", changed)):
            run = run_of(table, f"{seed} {index} {label}")
            endings.append(ends(run, bench.ledger))
            if index < fits and endings[-1]["code"] == 0:
                steps.fit_generator(run, noise=SecureNoise())
                steps.draw_synthetic(run)
                steps.fit_weights(run, noise=SecureNoise())
        if (
            endings[0] != endings[1]
            or endings[0]["code"] != 0
            or STATEMENT not in endings[0]["private"]
        ):
            faults.append(f"seed {seed} case {index}: {endings}")
    return faults


def test_runs_of_neighbours_end_alike(run_of, bench):
    """One case of Parquet and one of CSV."""
    faults = run_pairs(20_270_131, range(1, 3), run_of, bench)
    assert not faults, "\n".join(faults)


@pytest.mark.nightly
def test_many_runs_of_neighbours_end_alike(run_of, bench, figures):
    seed, cases = secrets.randbits(32), 24  # two runs each: the lifetime delta is that of 100
    faults = run_pairs(seed, range(cases), run_of, bench, fits=3)
    figures("fuzz cells, whole stages", seed=seed, pairs=cases, violations=len(faults))
    assert not faults, "\n".join(faults)


# Controls: a reader that minds a value is found


def planted(monkeypatch, deed):
    real = scaling._moments

    def reading(column, cells):
        seconds, missing = real(column, cells)
        return deed(seconds, missing)

    monkeypatch.setattr(scaling, "_moments", reading)


def fail_on_a_late_day(seconds, missing):
    if (seconds[~missing] > 2_900_000).any():
        raise OverflowError("year 10000 is out of range")
    return seconds, missing


def read_as_the_mean(seconds, missing):
    """Missing cells become the table's mean moment."""
    return np.where(missing, int(seconds.mean()), seconds), np.zeros_like(missing)


@pytest.mark.parametrize(
    ("deed", "told"),
    [(fail_on_a_late_day, "OverflowError"), (read_as_the_mean, "a row changed another")],
)
def test_a_planted_reader_is_found(monkeypatch, tmp_path, deed, told):
    planted(monkeypatch, deed)
    assert any(told in fault for fault in run_cases(20_270_131, 6, tmp_path))


def test_a_planted_end_is_found_in_whole_runs(run_of, bench, monkeypatch):
    planted(monkeypatch, fail_on_a_late_day)
    (fault, *_) = run_pairs(7, range(1), run_of, bench)
    assert "'code': 70" in fault
