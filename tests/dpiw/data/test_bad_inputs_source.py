"""docs/privacy.md section 6, the rows about a source file: structure fails loudly.

Most cases of that table stand in `tests/hostile/bad_inputs`, here the finer ones. Every refusal is
also searched for the canary a hostile cell holds: in its text and in every error chained to it.
"""

import os
import re
import traceback

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpiw.data.raw_source
from dpiw.data.ingest import IngestLimits, ingest
from dpiw.data.sources import read_csv
from dpiw.errors import SourceError
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from tests.dpiw.data.schema_example import toy_schema
from tests.support.read import read_snapshot

CANARY = "CANARY-7f3a"
UNIT = PrivacyUnit(relation=NeighbouringRelation.ADD_OR_REMOVE_ONE)

SCHEMA = toy_schema(levels=("é", "b", "z"))


def _ingest(tmp_path, content, *, suffix="csv", limits=None, schema=SCHEMA, **settings):
    private = tmp_path / "private"
    private.mkdir(mode=0o700, exist_ok=True)
    source = tmp_path / f"source.{suffix}"
    source.write_bytes(content)
    path = ingest(
        source, file_format=suffix, schema=schema, unit=UNIT, directory=private,
        limits=limits or IngestLimits(), **settings,
    )  # fmt: skip
    return schema.unscale(read_snapshot(path))


def _refused(tmp_path, content, match, **settings):
    with pytest.raises(SourceError, match=match) as caught:
        _ingest(tmp_path, content, **settings)
    _check_silent(caught.value)
    assert not list((tmp_path / "private").iterdir())  # nothing is left behind


def _check_silent(error):
    chain, seen = [error], []
    while chain:
        link = chain.pop()
        seen.append(link)
        chain += [cause for cause in (link.__cause__, link.__context__) if cause is not None]
    assert seen == [error]
    assert CANARY not in str(error)
    assert CANARY not in "".join(traceback.format_exception(error)).replace(__file__, "")


def _written(table):
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    return buffer.getvalue().to_pybytes()


def _parquet(**columns):
    return _written(pa.table(columns))


def _good(**columns):
    return {"id": pa.array([1, 2]), "n": pa.array([1, 2]), "c": pa.array(["b", CANARY])} | columns


# CSV structure


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (f'id,n,c\n1,2,b\n3,4,"{CANARY}', "unbalanced quote"),
        (f'id,n,c\n1,2,"{CANARY}\n3,4,"b\n', "unbalanced quote"),
        ('"id,n,c\n"1,1,b\n', "header|missing"),
        (f"\n{CANARY}\n", "missing"),
        ("", "missing in the file"),
        (f"id;n;c\n1;2;{CANARY}\n", "names between ';'"),
    ],
)
def test_csv_structure_is_refused(tmp_path, text, match):
    _refused(tmp_path, text.encode(), match)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"id,n,c\n1,2,b\n3,4,{CANARY},5\n", "row 2 of the data "),
        (f'id,n,c\n"1\n1",2,b\n\n\n3,4\n"Row #9: {CANARY}"\n', "row 2 of the data "),
        ("id,n,c\n" + "1,2,b\n" * 200_000 + f"3,{CANARY}\n", "row 200001 of the data "),
        (f'id,n,c\n"1\r\n1",2,b\r\n3,4,"{CANARY}\r\n1,1,b\r\n', "begins in line 4 of the file"),
        (f'id,n,c\n1,2,"{CANARY}"b\n', "begins in line 2 of the file"),
        (f"id,n,c\n1,2,b\n3,4,{CANARY * 1000}\n", "row 2 of the data "),
        (f'id,n,c\n1,2,a"{CANARY}\n1,2,"{CANARY * 1000}"\n', "row 2 of the data "),
    ],
)
def test_the_place_of_a_fault_is_known_beside_the_message(tmp_path, text, place):
    """Its number alone, and no message holds it."""
    with pytest.raises(SourceError) as caught:
        _ingest(tmp_path, text.encode())
    _check_silent(caught.value)
    assert place in caught.value.place
    assert CANARY not in caught.value.place
    assert not re.search(r"row \d|line \d", str(caught.value))


def test_want_of_memory_is_not_told_as_a_fault_of_the_file(tmp_path, monkeypatch):
    """Arrow reads blocks ahead: cells that may be long, in a wide table, can be too much."""

    def short(*_, **__):
        raise pa.ArrowMemoryError(f"malloc of size 32 failed near {CANARY}")

    monkeypatch.setattr("pyarrow.csv.open_csv", short)
    _refused(tmp_path, b"id,n,c\n1,2,b\n", "more memory than source.max_memory_bytes admits")


def test_csv_structure_that_is_admissible(tmp_path):
    frame = _ingest(tmp_path, b'c,n,id\r\n"b\nb",1,x\r\n"b ","2","a,b"')
    assert frame["n"].tolist() == [1, 2]
    assert frame["c"].tolist() == ["z", "b"]
    assert _ingest(tmp_path, b'id,n,c\n5" pipe,1,"say ""b"""\n')["c"].tolist() == ["z"]
    assert _ingest(tmp_path, b"id;n;c\n1;2;b\n", delimiter=";")["n"].tolist() == [2]


# Values never abort


@pytest.mark.parametrize(
    ("content", "encoding", "expected"),
    [
        ("\ufeffid,n,c\n1,1,é\n".encode(), "utf-8", "é"),
        ("id,n,c\n1,1,é\n".encode("latin-1"), "latin-1", "é"),
        ("id,n,c\n1,1,é\n".encode("latin-1"), "utf-8", "z"),  # invalid bytes: an unknown cell
        ("id,n,c\n1,1,é\n".encode("utf-16"), "utf-16", "é"),
        (b"id,n,c\n1,1,\xed\xa0\x80\n", "utf-8", "z"),
    ],
)
def test_declared_encodings(tmp_path, content, encoding, expected):
    assert _ingest(tmp_path, content, encoding=encoding)["c"].tolist() == [expected]


def test_utf_16_is_told_by_its_mark(tmp_path):
    """Read in another encoding its first line holds no declared name: `columns missing`."""
    text = f"id,n,c\n1,1,{CANARY}\n".encode("utf-16")
    _refused(tmp_path, text, "expected source.encoding: utf-16", encoding="cp1252")


def test_other_encodings_are_refused(tmp_path):
    text = f"id,n,c\n1,1,{CANARY}\n"
    for name in ("klingon", "rot13", "hex", ""):
        _refused(tmp_path, text.encode(), "text encoding", encoding=name)


# Limits


@pytest.mark.parametrize(
    ("limits", "match"),
    [
        ({"max_columns": 2}, "max_columns=2"),
        ({"max_cell_bytes": 5}, "column c: a cell exceeds max_cell_bytes=5"),
    ],
)
def test_limits(tmp_path, limits, match):
    rows = "".join(f"{i},1,{CANARY}\n" for i in range(3))
    _refused(tmp_path, ("id,n,c\n" + rows).encode(), match, limits=IngestLimits(**limits))
    three = {"id": pa.array([1, 2, 3]), "n": pa.array([1, 2, 3]), "c": pa.array([CANARY] * 3)}
    _refused(tmp_path, _parquet(**three), match, suffix="parquet", limits=IngestLimits(**limits))


def test_only_what_is_read_whole_has_a_limit_of_memory(tmp_path):
    limits = IngestLimits(max_memory_bytes=20)
    text = f"id,n,c\n1,1,{CANARY}\n".encode()
    assert len(_ingest(tmp_path, text, limits=limits)) == 1
    with pytest.raises(SourceError, match="max_memory_bytes=20"):
        read_csv(tmp_path / "source.csv", ["id", "n", "c"], limits=limits, encoding="utf-8",
                 delimiter=",")  # fmt: skip


@pytest.mark.parametrize("change", ["rewrite", "append", "touch"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, change):
    source = tmp_path / "source.csv"
    digest = dpiw.data.raw_source._digest

    def meddling(*arguments):
        found = digest(*arguments)
        if change == "rewrite":
            with source.open("r+b") as stream:
                stream.write(b"id,n,c\n9")
        elif change == "append":
            with source.open("ab") as stream:
                stream.write(b"2,2,b\n")
        else:
            os.utime(source, ns=(1, 1))
        return found

    monkeypatch.setattr(dpiw.data.raw_source, "_digest", meddling)
    _refused(tmp_path, f"id,n,c\n1,1,{CANARY}\n".encode(), "changed while")


# Parquet


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"n": pa.array([CANARY.encode(), b"2"])}, "column n: not stored as integer"),
        ({"c": pa.array([CANARY.encode(), b"b"]).dictionary_encode()}, "column c: not stored as"),
        ({CANARY: pa.array([1, 2])}, "does not declare"),
        ({"id": pa.array([True, False])}, "column id: not stored as"),
        ({"c": pa.array([b"", b""]), "n": pa.array([[1], [2]])}, "column n: .* column c: not "),
    ],
)
def test_parquet_structure_is_refused(tmp_path, columns, match):
    _refused(tmp_path, _parquet(**_good(**columns)), match, suffix="parquet")


def test_parquet_invalid_utf8_is_an_unknown_cell(tmp_path):
    bad = pa.array([b"b", b"\xff\xfe", None]).view(pa.string())
    columns = {"id": pa.array([1, 2, 3]), "n": pa.array([1, 2, 3]), "c": bad}
    assert _ingest(tmp_path, _parquet(**columns), suffix="parquet")["c"].tolist() == ["b", "z", "z"]


@pytest.mark.nightly
def test_damaged_parquet_is_refused_or_read_within_bounds(tmp_path):
    data = _parquet(**_good())
    for cut in (0, 3, 4, 11, len(data) // 2, len(data) - 1):
        _refused(tmp_path, data[:cut], "Parquet", suffix="parquet")
    _refused(tmp_path, data[:-4] + b"PARE", "damaged or encrypted", suffix="parquet")
    _refused(tmp_path, b"PARE" + data[4:-4] + b"PARE", "plain Parquet", suffix="parquet")
    rng = np.random.default_rng(5)
    for _ in range(60):
        mutant = bytearray(data)
        mutant[rng.integers(4, len(data) - 4)] ^= 1 << int(rng.integers(8))
        try:
            frame = _ingest(tmp_path, bytes(mutant), suffix="parquet")
        except SourceError as error:
            _check_silent(error)
        else:
            assert frame["n"].dropna().between(0, 9).all()
            assert frame["c"].isin(["é", "b", "z"]).all()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_random_bytes_are_refused(tmp_path, suffix):
    rng = np.random.default_rng(9)
    for _ in range(10):
        _refused(tmp_path, rng.bytes(500), ".", suffix=suffix)
