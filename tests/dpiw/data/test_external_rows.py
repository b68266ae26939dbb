"""A Parquet file of rows made elsewhere: taken as declared, or refused without telling a cell."""

import datetime as dt
import hashlib
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpiw.data.public_rows import check_rows_file, read_rows_file
from dpiw.data.schema import Column, ColumnKind, ColumnRole, PublicSchema
from dpiw.errors import SpecError

SCHEMA = PublicSchema(
    name="every-kind",
    columns=(
        Column(name="id", role=ColumnRole.IDENTIFIER),
        Column(name="x", kind=ColumnKind.CONTINUOUS, lower=0.0, upper=10.0, nullable=True),
        Column(name="n", kind=ColumnKind.INTEGER, lower=0, upper=99),
        Column(name="job", kind=ColumnKind.CATEGORICAL, levels=("a", "b")),
        Column(name="day", kind=ColumnKind.DATE, lower="2020-01-01", upper="2021-12-31"),
        Column(name="sick", kind=ColumnKind.BOOLEAN, role=ColumnRole.TARGET),
    ),
)
GOOD: dict[str, Any] = {
    "x": pa.array([1.5, None, 10.0]),
    "n": pa.array([0, 99, 7]),
    "job": pa.array(["a", "b", "a"]),
    "day": pa.array([dt.date(2020, 2, 29)] * 3),
    "sick": pa.array([True, False, True]),
}


def written(path: Path, **changes: Any) -> str:
    """The good file with other columns; None: without it."""
    columns = {name: one for name, one in (GOOD | changes).items() if one is not None}
    pq.write_table(pa.table(columns), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_the_dictionary_admits_is_read_as_it_is(tmp_path: Path) -> None:
    digest = written(tmp_path / "made.parquet")
    frame = SCHEMA.unscale(read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=SCHEMA))
    assert frame["n"].tolist() == [0, 99, 7]
    assert frame["job"].tolist() == ["a", "b", "a"]
    assert frame["x"].isna().tolist() == [False, True, False]


def test_rows_that_break_a_constraint_are_refused(tmp_path: Path) -> None:
    """A file has no further rows to draw, so a paid run would find too few of them."""
    digest = written(tmp_path / "made.parquet")
    for sick, admitted in ((True, False), (False, True)):  # the file's third row is a: 7, sick
        never = {"job": "a", "n": 7, "sick": sick}
        told = [{"name": "no-such-row", "never": never}]
        schema = PublicSchema.from_mapping(SCHEMA.to_mapping() | {"constraints": told})
        if admitted:
            assert read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=schema).rows == 3
            continue
        with pytest.raises(SpecError, match="rows that break constraint no-such-row"):
            read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=schema)


SECRET = 77_777
"""Stands in every hostile cell, and in no message."""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n": pa.array([1, 2, SECRET])}, r"column n: has cells outside \[0, 99\]"),
        ({"x": pa.array([1.0, 2.0, float(SECRET)])}, r"column x: has cells outside \[0.0, 10.0\]"),
        ({"x": pa.array([1.0, 2.0, float("-inf")])}, "column x: has cells outside"),
        ({"job": pa.array(["a", "b", str(SECRET)])}, "column job: has cells that are none of its"),
        ({"job": pa.array(["a", None, "b"])}, "column job: has missing cells, and is not nullable"),
        ({"n": pa.array([1, None, 2])}, "column n: has missing cells"),
        ({"n": pa.array([1.0, float(SECRET), 2.0])}, "column n: has cells outside"),
        ({"n": pa.array([1.0, 2.5, 2.0])}, "column n: has numbers that are not whole"),
        ({"x": pa.array(["1", "2", str(SECRET)])}, "column x: has cells outside"),
        ({"x": pa.array(["1", "2", "1,5"])}, "column x: has cells that are no continuous"),
        ({"x": pa.array([b"1"] * 3), "n": pa.array([True] * 3)},
         "column [nx]: not stored as.*column [nx]: not stored as"),
        ({"sick": pa.array(["true", str(SECRET), "false"])}, "column sick: has cells that are no"),
        ({"day": pa.array([dt.date(7777, 7, 7)] * 3)}, "column day: has cells outside"),
        ({"x": pa.array([[1.0], [2.0], [float(SECRET)]])}, "column x: not stored as .* lists"),
        ({"extra": pa.array([SECRET] * 3)}, "columns that the data dictionary does not declare"),
        ({"id": pa.array([SECRET] * 3)}, "columns that the data dictionary does not declare"),
        ({"job": None}, "columns missing in the file: job"),
        ({name: one.slice(0, 0) for name, one in GOOD.items()}, "at least one row"),
    ],
)  # fmt: skip
def test_what_it_does_not_admit_is_refused_untold(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    digest = written(tmp_path / "made.parquet", **changes)
    with pytest.raises(SpecError, match=told) as refused:
        read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=SCHEMA)
    assert str(SECRET) not in str(refused.value)
    assert digest not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_a_file_that_is_no_parquet_or_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "made.parquet"
    digest = written(path)
    with pytest.raises(SpecError, match="SHA-256 is not the one"):
        read_rows_file(path, sha256="0" * 64, schema=SCHEMA)
    for data in (b"n,x\n1,2\n", path.read_bytes()[:-30], b"", b"PAR1" + b"\0" * 50 + b"PAR1"):
        path.write_bytes(data)
        with pytest.raises(SpecError, match="expected a Parquet file"):
            read_rows_file(path, sha256=hashlib.sha256(data).hexdigest(), schema=SCHEMA)
    path.unlink()
    with pytest.raises(SpecError, match="cannot be read"):
        read_rows_file(path, sha256=digest, schema=SCHEMA)


def test_a_file_too_large_to_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpiw.data import public_rows
    from dpiw.data.sources import IngestLimits

    monkeypatch.setattr(public_rows, "_LIMITS", IngestLimits(max_memory_bytes=50))
    digest = written(tmp_path / "made.parquet")
    with pytest.raises(SpecError, match="exceeds max_memory_bytes"):
        read_rows_file(tmp_path / "made.parquet", sha256=digest, schema=SCHEMA)


def test_the_confidential_table_is_refused_by_whatever_name_and_not_opened(tmp_path: Path) -> None:
    source = tmp_path / "source.parquet"
    digest = written(source)
    os.link(source, tmp_path / "hard.parquet")
    (tmp_path / "soft.parquet").symlink_to(source)
    opened: list[object] = []
    real, Path.open = Path.open, lambda *given, **kw: opened.append(given)  # type: ignore[method-assign,assignment]
    try:
        for name in ("source", "hard", "soft"):
            with pytest.raises(SpecError, match=r"source\.path, the confidential table"):
                check_rows_file(tmp_path / f"{name}.parquet", sha256=digest, source=source)
    finally:
        Path.open = real  # type: ignore[method-assign]
    assert not opened
    (tmp_path / "pipe").mkdir()
    with pytest.raises(SpecError, match="cannot be read"):
        check_rows_file(tmp_path / "pipe", sha256=digest, source=source)


def test_dictionaries_and_pandas_files_are_read_alike(tmp_path: Path) -> None:
    """Index and metadata of pandas decide nothing."""
    path = tmp_path / "made.parquet"
    frame = pa.table(GOOD).to_pandas()
    frame.index = pd.RangeIndex(5, 8)
    frame.to_parquet(path, index=False)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_rows_file(path, sha256=digest, schema=SCHEMA).rows == 3
