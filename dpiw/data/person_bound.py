"""The bound on rows per person, over a table of any number of rows.

Memory: a byte a row, and about 80 bytes for each of some four million rows. Ids become 128-bit
hashes under fresh keys, so nobody can seek two persons of one hash (docs/privacy.md section 1).
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpiw.data.cell_reading import WHITE_SPACE
from dpiw.data.cells import cell_texts, in_one_form
from dpiw.data.columns import Column
from dpiw.data.raw_source import data_row
from dpiw.errors import SourceError
from dpiw.privacy.units import PrivacyUnit

Records = NDArray[np.void]

_HASH = np.dtype([("one", "u8"), ("two", "u8")])
_ROW = np.dtype([*_HASH.descr, ("key", "u8"), ("row", "i8")])

RANGE_ROWS = 1 << 22
"""Approximate rows of one range of hashes."""

_CHUNK = 1 << 20
_ALONE = np.uint64(0)
"""First half of the hash of a row that is a person of its own."""


def rows_within_unit(
    cells: Iterable[pd.Series[Any]], person: Column, unit: PrivacyUnit, *, directory: Path
) -> NDArray[np.bool_]:
    """Return a mask, shape (rows,) in file order, of at most `unit.max_rows` rows of each person.

    A person keeps the rows of the smallest of independent random keys from the operating system: no
    person's rows depend on another's, and file order decides nothing. `directory` is the run's
    private folder. Raises SourceError for a row without id, unless `null_is_own_person`.

    Privacy: afterwards adding or removing a person adds or removes at most `max_rows` rows.
    """
    with tempfile.TemporaryFile(dir=directory) as file:
        rows, alone = _hashed(cells, file)
        if alone is not None and not person.null_is_own_person:
            raise SourceError(
                f"column {person.name}: an id is missing and null_is_own_person is not set",
                place=data_row(alone),
            )
        mask = np.zeros(rows, dtype=np.bool_)
        ranges = max(1, -(-rows // RANGE_ROWS))
        for number in range(ranges):
            _keep(mask, _in_range(file, number, ranges), most=unit.max_rows)
        for start, hashes in _chunks(file):
            mask[start : start + len(hashes)] |= hashes["one"] == _ALONE
    return mask


def _hashed(cells: Iterable[pd.Series[Any]], file: IO[bytes]) -> tuple[int, int | None]:
    """Write a hash for each row; return the number of rows and the first whose id is missing."""
    keys, rows = (secrets.token_hex(8), secrets.token_hex(8)), 0
    alone: int | None = None
    for batch in cells:
        texts = pc.utf8_trim(in_one_form(cell_texts(batch)), characters=WHITE_SPACE)
        missing = pc.fill_null(pc.equal(texts, ""), True).to_numpy(zero_copy_only=False)
        hashes = np.zeros(len(texts), dtype=_HASH)
        for name, key in zip(_HASH.names or (), keys, strict=True):
            hashes[name] = _keyed(texts, key)
        hashes["one"][missing] = _ALONE
        file.write(hashes.tobytes())
        if alone is None and missing.any():
            alone = rows + int(missing.argmax())
        rows += len(hashes)
    return rows, alone


def _keyed(texts: pa.Array, key: str) -> NDArray[np.uint64]:
    """SipHash-2-4 of each text; never the value of `_ALONE`."""
    words = pc.fill_null(texts, "").to_numpy(zero_copy_only=False).astype(object)
    if not len(words):
        return np.empty(0, dtype=np.uint64)
    hashes: NDArray[np.uint64] = pd.util.hash_array(words, hash_key=key)
    return np.maximum(hashes, np.uint64(1), dtype=np.uint64)


def _chunks(file: IO[bytes]) -> Iterator[tuple[int, Records]]:
    file.seek(0)
    start = 0
    while data := file.read(_HASH.itemsize * _CHUNK):
        hashes = np.frombuffer(data, dtype=_HASH)
        yield start, hashes
        start += len(hashes)


def _in_range(file: IO[bytes], number: int, ranges: int) -> Iterator[Records]:
    for start, hashes in _chunks(file):
        first = hashes["one"]
        places = np.flatnonzero((first % np.uint64(ranges) == number) & (first != _ALONE))
        rows = np.empty(len(places), dtype=_ROW)
        for name in _HASH.names or ():
            rows[name] = hashes[name][places]
        rows["row"] = places + start
        keys = np.frombuffer(secrets.token_bytes(8 * len(hashes)), dtype=np.uint64)
        rows["key"] = keys[places]
        yield rows


def _keep(mask: NDArray[np.bool_], parts: Iterable[Records], *, most: int) -> None:
    """Mark the kept rows of one range; a person of very many rows is bounded on the way."""
    waiting: list[Records] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) > 2 * RANGE_ROWS:
            waiting = [_first_of_each(np.concatenate(waiting), most)]
    for rows in waiting[:1]:
        mask[_first_of_each(np.concatenate([rows, *waiting[1:]]), most)["row"]] = True


def _first_of_each(rows: Records, most: int) -> Records:
    rows = rows[np.lexsort((rows["key"], rows["two"], rows["one"]))]
    hashes = rows[["one", "two"]]
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]][: len(rows)])
    lengths = np.diff(np.r_[starts, len(rows)])
    return rows[np.arange(len(rows)) - np.repeat(starts, lengths) < most]
