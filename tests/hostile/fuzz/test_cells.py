"""No cell ends or changes a run: every declared kind, every stored type, the worst values.

For rows as declared an ingest ends with success, through Parquet and through CSV, and of two tables
that differ in one row's values each other row means the same in both. What operators see of whole
runs: leaks/test_non_interference.py. Seeds of the long run are fresh and shown.
"""

import dataclasses
import secrets
import time
import traceback
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpiw.data.cells.formats import CANONICAL, FORMAT_FIELDS
from dpiw.data.cells.reading import canonical_frame, settled_formats
from dpiw.data.cells.statement import CellTally, statement
from dpiw.data.schema import encoding as scaling
from dpiw.data.schema.columns import Column, ColumnKind, ColumnRole
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.snapshots import write_snapshot
from dpiw.data.source import batches as sources
from dpiw.data.source.batches import IngestLimits, read_csv
from dpiw.data.source.ingest import rows_within_unit
from dpiw.data.source.validation import admissible_types, scaled_extremes, scaled_limits
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.hostile.fuzz import cells as fuzz
from tests.hostile.fuzz.cells import ARROW, SCHEMA, Case, make_case, neighbour
from tests.support.read import read_parquet, read_snapshot

UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=2, id_column="person")
SECONDS = 20
"""More for one case of 15 rows is a hang: it takes hundredths of a second."""


def test_every_type_that_is_admitted_is_drawn():
    admitted = {name for c in SCHEMA.columns for name in admissible_types(c, file_format="parquet")}
    assert admitted == set(ARROW)
    for name, kinds in ARROW.items():  # by the names that `validate_structure` reads
        physical = {sources._physical_type(pa.field("x", kind)) for kind in kinds}
        assert {text.split("[")[0].split("(")[0] for text in physical} == {name}
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


# As ingest, without Great Expectations and the ledger


def frame_of(case: Case, folder):
    path = folder / "source"
    path.write_bytes(case.content())
    names = list(case.cells)
    if case.file_format == "csv":
        return read_csv(path, names, limits=IngestLimits(), encoding=case.encoding,
                        delimiter=",")  # fmt: skip
    return read_parquet(path, names, limits=IngestLimits())


def scaled_of(case: Case, folder) -> ScaledTable:
    """What the rows of a case become, read from its file."""
    raw = frame_of(case, folder)
    assert len(raw) == case.rows, "another number of rows"
    formats = settled_formats(SCHEMA, case.written, file_format=case.file_format)
    frame = canonical_frame(raw, SCHEMA, formats)
    tally = CellTally(SCHEMA)
    tally.add(raw, frame)
    assert f"rows read: {case.rows}" in statement(tally, formats=formats, kept=case.rows)
    person = SCHEMA.column("person")
    within_unit = rows_within_unit([frame["person"]], person, UNIT, directory=folder)
    scaled = SCHEMA.scale(frame)
    check_admissible(scaled)
    write_snapshot(scaled.take(within_unit), folder / "snapshot")
    back = read_snapshot(folder / "snapshot")
    assert back is not None, "the snapshot cannot be read"
    assert back.equals(scaled.take(within_unit)), "another snapshot"
    return scaled


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
        table, changed_table = scaled_of(case, folder), scaled_of(changed, folder)
        assert table.take(rest).equals(changed_table.take(rest)), "a row changed another"
        assert time.monotonic() - started < SECONDS, "hang"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"seed {seed} case {index}: {type(error).__name__} at {where.name}: {error}"[:400]
    return None


def run_cases(seed: int, cases: int, folder) -> Iterator[str]:
    verdicts = (judge(seed, index, folder) for index in range(cases))
    return (fault for fault in verdicts if fault is not None)


@pytest.mark.slow
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
    real = scaling._moments
    monkeypatch.setattr(scaling, "_moments", lambda column, cells: deed(*real(column, cells)))
    assert any(told in fault for fault in run_cases(20_270_131, 6, tmp_path))
