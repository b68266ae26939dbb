"""The bytes that were compared are the bytes that are parsed, and no more of them than fit."""

import io
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpiw.analysis.release import load_release
from dpiw.data.schema.columns import Column, ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.errors import ManifestError, ReleaseError
from dpiw.release import manifest, parquet, verification
from dpiw.release.manifest import FileBytes
from dpiw.release.parquet import (
    RowReader,
    arrow_fields,
    arrow_schema,
    footer_facts,
    read_footer,
    write_table,
)
from dpiw.release.verification import verify
from tests.dpiw.release.release_example import example_certificate, example_facts
from tests.support.read import file_bytes


def other_rows(path):
    """The same file, its footer too, with every age 100: what a swap would show."""
    table, known = pq.read_table(path), pq.read_metadata(path).metadata
    ages = pa.array(np.full(table.num_rows, 100), pa.int64())
    place = table.column_names.index("age")
    changed = table.set_column(place, table.schema.field(place), ages)
    facts = {name.decode(): text.decode() for name, text in known.items()}
    write_table(path.parent.parent / "other", changed, facts=facts)
    return (path.parent.parent / "other").read_bytes()


@pytest.mark.parametrize("how", ["renamed", "rewritten"])
@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("opening", [1, 2, 3])
def test_a_file_that_changes_between_comparison_and_reading_is_never_read(
    folder, monkeypatch, how, pinned, opening
):
    """After each opening in turn, by another file of its name and in place."""
    key = folder.parent / "curator.pub" if pinned else None
    rows = folder / "synthetic.parquet"
    before, evil, opened = load_release(folder, key).table, other_rows(rows), 0
    real = verification.open_regular

    def opening_of(path):
        nonlocal opened
        with real(path) as stream:
            data = stream.read()
        if path == rows:
            opened += 1
            if opened == opening:
                if how == "renamed":
                    path.with_name("evil").write_bytes(evil)
                    os.replace(path.with_name("evil"), path)
                else:
                    path.write_bytes(evil)
        return io.BytesIO(data)

    monkeypatch.setattr(verification, "open_regular", opening_of)
    try:
        after = load_release(folder, key).table
    except ReleaseError:
        return
    pd.testing.assert_frame_equal(after, before)
    assert (rows.read_bytes() == evil) == (opening == 1)  # else it was not opened so often


def test_each_file_is_opened_once(folder, monkeypatch):
    opened = []
    real = verification.open_regular
    for module in (manifest, verification):
        monkeypatch.setattr(
            module, "open_regular", lambda path: opened.append(path.name) or real(path)
        )
    load_release(folder)
    assert sorted(opened) == sorted(path.name for path in folder.iterdir())


def test_a_footer_is_read_of_the_last_bytes_alone(folder):
    """However long the file is: what came before was hashed, and is not kept."""
    numbers = pa.table({"x": np.random.default_rng(1).normal(size=40_000)})
    write_table(folder.parent / "long", numbers, facts=footer_facts(example_certificate()))
    long = file_bytes(folder.parent / "long")
    assert len(long.data) > 200_000
    tail = FileBytes(name=long.name, data=long.data[-100_000:])
    assert read_footer(tail) == read_footer(long)
    with pytest.raises(ManifestError):
        read_footer(FileBytes(name=long.name, data=long.data[-20:]))


TWO = PublicSchema(
    name="two",
    columns=(
        Column(name="n", kind=ColumnKind.INTEGER, lower=0, upper=9),
        Column(name="g", kind=ColumnKind.CATEGORICAL, levels=("a" * 100_000, "b")),
    ),
)


def bomb(path, *, rows, text):
    """Constant columns: a byte of the file for thousands of cells."""
    ones = pa.array(np.ones(rows, dtype=np.int64))
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [text])
    table = pa.table(
        [ones, same, ones.cast("double"), ones.cast("double")],
        names=[field.name for field in arrow_schema(TWO)],
    )
    if len(text) < 10:
        table = table.cast(arrow_schema(TWO))
    write_table(path, table, facts=footer_facts(example_certificate()))
    return file_bytes(path)


def facts_of(rows, columns=None):
    return replace(example_facts(), rows=rows, columns=columns or arrow_fields(arrow_schema(TWO)))


def never(*arguments, **settings):
    raise AssertionError("decoded")


@pytest.mark.parametrize("rows", [20_000, 300_000])
def test_rows_that_no_file_of_this_size_holds_are_refused_before_they_are_decoded(
    tmp_path, monkeypatch, rows
):
    monkeypatch.setattr(parquet, "_FREE_CELLS", 10_000)
    monkeypatch.setattr(parquet, "_CELLS_A_BYTE", 8)
    file = bomb(tmp_path / "f", rows=rows, text="b")
    assert len(file.data) * 8 < rows * 4
    facts = facts_of(rows)
    trusted = RowReader(facts, size=None)(file)
    assert trusted.table.num_rows == rows
    monkeypatch.setattr(pq.ParquetFile, "read", never)
    with pytest.raises(ManifestError):
        RowReader(facts, size=len(file.data))
    for stated in (1, rows - 1):  # a manifest that says less than the files hold
        for size in (None, len(file.data)):
            with pytest.raises(ManifestError):
                RowReader(facts_of(stated), size=size)(file)
    with pytest.raises(ManifestError, match="Arrow schema"):
        RowReader(facts_of(rows, facts.columns[:2]), size=None)(file)


def test_parts_share_one_limit(tmp_path):
    file = bomb(tmp_path / "f", rows=100, text="b")
    read = RowReader(facts_of(250), size=None)
    read(file)
    read(file)
    with pytest.raises(ManifestError, match="row count"):
        read(file)


def made(path, columns, **options):
    """A file whose columns have the types that the reader sees, and what its manifest says."""
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False, **options)
    file = file_bytes(path)
    return file, facts_of(pq.read_metadata(path).num_rows, arrow_fields(pq.read_schema(path)))


def test_one_long_text_in_every_row_is_refused(tmp_path):
    """A dictionary holds it once, and a column of texts once a row: 2 GB of 100 KB."""
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), ["a" * 100_000])
    file, facts = made(tmp_path / "f", {"g": same})
    assert facts.columns[0].type == "string"
    assert len(file.data) < 200_000
    before = pa.total_allocated_bytes()
    with pytest.raises(ManifestError, match="its texts take more than dpiw reads"):
        RowReader(facts, size=len(file.data))(file)
    assert pa.total_allocated_bytes() - before < 2**24


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    "cells",
    [["a" * 2**23], ["a" * 2**19] * 16, [[1.0] * 2**20], [b"a"]],
    ids=["one text", "some texts", "lists", "bytes"],
)
def test_what_unpacks_to_more_than_its_cells_is_refused_before_it_is_decoded(
    tmp_path, monkeypatch, cells, listed
):
    """Long texts, and types that no release has: a cell of them may hold anything."""
    monkeypatch.setattr(parquet, "_FREE_CELLS", 2**13)
    monkeypatch.setattr(parquet, "_CELLS_A_BYTE", 1)
    file, facts = made(tmp_path / "f", {"g": cells}, use_dictionary=listed)
    monkeypatch.setattr(pq.ParquetFile, "read", never)
    with pytest.raises(ManifestError):
        RowReader(facts, size=len(file.data))(file)


def test_a_bomb_signed_by_its_maker_is_refused_by_load_release(folder, monkeypatch):
    """Without a key; who signs with the curator's is trusted to have made that many rows."""
    monkeypatch.setattr(parquet, "_FREE_CELLS", 100)
    monkeypatch.setattr(parquet, "_CELLS_A_BYTE", 0)
    assert verify(folder)  # it reads no row
    with pytest.raises(ManifestError):
        load_release(folder)
    assert len(load_release(folder, folder.parent / "curator.pub").table) == 200
