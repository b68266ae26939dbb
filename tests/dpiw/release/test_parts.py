"""A large table is published in parts: the same rows, signed and refused as one file is."""

import errno
import json
import os
import shutil
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dpiw.analysis.release import load_release
from dpiw.data.files import link_file
from dpiw.data.schema.schema import ScaledTable
from dpiw.errors import ChecksumError, ManifestError, ReleaseError
from dpiw.release import parquet
from dpiw.release.manifest import listed_row_files, row_files
from dpiw.release.publication import build_folder
from dpiw.release.report.figures import RowsShown
from dpiw.release.verification import verify
from tests.dpiw.release.release_example import (
    SCHEMA,
    example_certificate,
    example_contents,
    example_frame,
    example_key,
    marginals,
    publish_example,
)
from tests.support.worlds import declared

PARTS = row_files(4)


def pieces(frame=None):
    whole = example_frame() if frame is None else frame
    return (whole[start : start + 64] for start in range(0, len(whole), 64))


def write(folder, frames, logs, schema=SCHEMA):
    """The order in which rows are written."""
    return parquet.write_synthetic(
        folder, frames=frames, log_weights=logs, schema=schema,
        facts=parquet.footer_facts(example_certificate()), rng=np.random.default_rng(1),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "PART_ROWS", 64)
    return publish_example(tmp_path, frames=pieces())


def test_parts_hold_the_rows_of_one_file(folder, tmp_path, monkeypatch):
    assert listed_row_files(verify(folder).manifest.files) == PARTS
    assert PARTS[0] == "synthetic-00001-of-00004.parquet"
    monkeypatch.undo()
    (tmp_path / "one").mkdir()
    whole = publish_example(tmp_path / "one")
    assert listed_row_files(verify(whole).manifest.files) == ("synthetic.parquet",)
    one, parts = load_release(whole), load_release(folder)
    assert parts.table.dtypes.equals(one.table.dtypes)
    both = [
        release.table.assign(w=release.weights, log=release.log_weights)
        .sort_values("log")
        .reset_index(drop=True)
        for release in (one, parts)
    ]
    pd.testing.assert_frame_equal(*both, check_exact=True)
    assert parts.mean("age").value == pytest.approx(one.mean("age").value)
    scanned = ds.dataset(sorted(folder.glob("synthetic*.parquet"))).to_table()
    assert scanned.column("log_weight").to_numpy() == pytest.approx(parts.log_weights, abs=0)
    # The report and the facts are those of one file.
    assert (folder / "report.html").read_bytes() == (whole / "report.html").read_bytes()
    assert verify(folder).manifest.facts == verify(whole).manifest.facts


def test_the_catalogue_lists_every_part(folder):
    page = json.loads((folder / "croissant.json").read_bytes())
    assert [file["name"] for file in page["distribution"]] == [*PARTS, "parts"]
    (records,) = page["recordSet"]
    assert {field["source"]["fileSet"]["@id"] for field in records["field"]} == {"parts"}


def test_a_changed_missing_or_further_part_is_refused(folder):
    part = folder / PARTS[1]
    data = part.read_bytes()
    part.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.raises(ChecksumError, match=PARTS[1]):
        verify(folder)
    part.unlink()
    with pytest.raises(ManifestError, match=f"{PARTS[1]}: listed"):
        verify(folder)
    part.write_bytes(data)
    shutil.copy(part, folder / "synthetic-00005-of-00005.parquet")
    with pytest.raises(ManifestError):
        verify(folder)


@pytest.mark.parametrize(
    "files", [PARTS[:3], ("synthetic.parquet", *PARTS), (*PARTS[:3], "synthetic-4.parquet")]
)
def test_a_signed_list_that_is_not_all_parts_of_one_table_is_refused(files):
    with pytest.raises(ManifestError):
        listed_row_files(["report.html", *files])


def test_a_part_of_another_certificate_or_too_few_rows_are_refused(folder, tmp_path):
    works = [tmp_path / name for name in ("w1", "w2")]
    for work in works:
        work.mkdir()
    one, facts = example_contents(works[0], frames=pieces())
    two, _ = example_contents(works[1], example_certificate(verdict="none"), frames=pieces())
    key = example_key(tmp_path, "other")
    for name, files, words in (
        ("mixed", {**one, PARTS[2]: two[PARTS[2]]}, "facts in the Parquet footer"),
        ("twice", {**one, PARTS[3]: one[PARTS[2]]}, "row count"),
    ):
        build_folder(tmp_path / name, files=files, facts=facts, key=key)
        with pytest.raises(ManifestError, match=words):
            verify(tmp_path / name)


@pytest.mark.parametrize("rows", [64, 128, 150, 192])
def test_fewer_or_more_rows_than_weights_are_refused(rows, tmp_path, monkeypatch):
    """At the end of a part and within it."""
    monkeypatch.setattr(parquet, "PART_ROWS", 64)
    for weights, given in ((200, rows), (rows, 200)):
        folder = tmp_path / str(given)
        folder.mkdir()
        with pytest.raises(ReleaseError, match="log_weights: expected"):
            write(folder, pieces(example_frame()[:given]), np.zeros(weights))


def test_replicates_follow_their_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "PART_ROWS", 64)
    order = write(tmp_path, pieces(), np.linspace(-1, 1, 200))
    assert sorted(order) == [*range(200)]
    tables = [pq.read_table(tmp_path / name) for name in PARTS]
    _, _, logs = parquet.as_frame(tables)
    assert logs == pytest.approx(np.linspace(-1, 1, 200)[order], abs=0)


def test_only_values_that_repeat_are_written_by_a_dictionary(tmp_path):
    """Which they do by the public schema, whatever the rows are."""
    bounds = {
        "few": {"kind": "integer", "lower": 0, "upper": 16_000},
        "many": {"kind": "integer", "lower": 0, "upper": 17_000},
        "tenths": {"kind": "continuous", "lower": 0, "upper": 1600, "decimals": 1},
        "fine": {"kind": "continuous", "lower": 0, "upper": 1, "decimals": 9},
        "day": {"kind": "date", "lower": "2000-01-01", "upper": "2030-01-01"},
        "moment": {"kind": "datetime", "lower": "2000-01-01", "upper": "2030-01-01"},
        "level": {"kind": "categorical", "levels": ["a", "b"]},
    }
    schema = declared(*({"name": name} | column for name, column in bounds.items()), name="wide")
    one = ScaledTable(
        {name: np.zeros(9, np.int32 if name == "level" else float) for name in bounds}, 9
    )
    write(tmp_path, [schema.unscale(one)], np.linspace(0, 1, 9), schema)
    group = pq.ParquetFile(tmp_path / "synthetic.parquet").metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    repeating = {c.path_in_schema for c in columns if "RLE_DICTIONARY" in c.encodings}
    assert repeating == {"few", "tenths", "day", "level"}


def test_what_a_report_shows_is_counted_as_the_rows_pass():
    logs = np.linspace(-2, 1, 200)
    rows = RowsShown(SCHEMA, logs)
    assert [len(frame) for frame in rows.passing(pieces())] == [64, 64, 64, 8]
    for weighted, weights in ((False, None), (True, np.exp(logs))):
        at_once = marginals(example_frame(), schema=SCHEMA, weights=weights)
        shares = rows.shares(weighted=weighted)
        assert list(shares) == list(at_once)
        for name, expected in at_once.items():
            assert shares[name] == pytest.approx(expected)


@pytest.mark.parametrize("fault", [None, errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK])
def test_a_file_has_another_name_or_is_copied(fault, tmp_path, monkeypatch):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"rows")

    def refused(fault):
        return mock.Mock(side_effect=OSError(fault, "no links here"))

    if fault is not None:
        monkeypatch.setattr(os, "link", refused(fault))
    link_file(source, target)
    assert target.read_bytes() == b"rows"
    assert target.samefile(source) is (fault is None)
    with pytest.raises(FileExistsError):
        link_file(source, target)
    monkeypatch.setattr(os, "link", refused(errno.EIO))
    with pytest.raises(OSError, match="no links here"):  # a failing disk is no reason to copy
        link_file(source, tmp_path / "c")
    assert not (tmp_path / "c").exists()
