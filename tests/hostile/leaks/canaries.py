"""Canary tokens, the encodings they may hide in, and a search that knows them all.

Tokens are texts with letters outside ASCII, quotes and slashes, numbers, and a date: what cells
are. A token is found as UTF-8, UTF-16, base64 (at any offset), hexadecimal, percent-encoded, with
JSON escapes, or reversed; of a text also its twelve letters and digits alone; of a number also the
eight bytes of a float or an integer.
"""

import base64
import hashlib
import json
import re
import struct
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TOKENS = 20


def tokens(label: str) -> tuple[str, ...]:
    """Twenty tokens of their own for each label."""
    digest = hashlib.sha256(label.encode()).hexdigest()
    texts = [f'Zoë/{digest[4 * i : 4 * i + 12]} "{i}" O\'Neil' for i in range(14)]
    number = int(digest[:12], 16)
    reals = [f"{200 + number % 500}.{number % 899_999 + 100_000 + i}" for i in range(3)]
    wholes = [str(-(10**11) - number % 10**10), str(10**13 + number)]
    date = f"{1901 + number % 90}-0{1 + number % 9}-{10 + number % 18}T0{number % 9}:17:43"
    return (*texts, *reals, *wholes, date)


def _base64_parts(data: bytes) -> list[bytes]:
    """What base64 of anything that holds `data` must contain, at each of three offsets."""
    parts = []
    for lead in range(3):
        # drop the letters that depend on the bytes before and after
        text = base64.b64encode(b"\x00" * lead + data)
        parts.append(text[(0, 2, 3)[lead] :].rstrip(b"=")[:-1])
    return parts


def encodings(token: str) -> dict[str, tuple[bytes, ...]]:
    """All byte strings that stand for a token, by the name of the encoding."""
    data = token.encode()
    quoted = urllib.parse.quote(token, safe="").encode()
    escaped = json.dumps(token)[1:-1].encode()
    forms = {
        "utf-8": (data,),
        "utf-16": (token.encode("utf-16-le"), token.encode("utf-16-be")),
        "base64": tuple(_base64_parts(data)),
        "hex": (data.hex().encode(), data.hex().upper().encode()),
        "url": (quoted, quoted.lower(), urllib.parse.quote_plus(token).encode()),
        "json": (escaped, json.dumps(escaped.decode())[1:-1].encode()),
        "reversed": (token[::-1].encode(),),
        # whatever quoting did to the rest of it (`repr` escapes one of two kinds of quotes)
        "core": tuple(core.encode() for core in re.findall("[0-9a-f]{12}", token)),
    }
    try:
        number = float(token)
    except ValueError:
        return forms
    forms["binary"] = (struct.pack("<d", number), struct.pack(">d", number))
    if number.is_integer():
        forms["binary"] += (struct.pack("<q", int(number)), struct.pack(">q", int(number)))
    return forms


def hits(data: bytes, wanted: Iterable[str]) -> list[tuple[str, str]]:
    """(token, encoding) of every token found in `data`."""
    return [
        (token, name)
        for token in wanted
        for name, forms in encodings(token).items()
        if any(form in data for form in forms)
    ]


def readable(path: Path) -> Iterator[bytes]:
    """A file's bytes, and the cells of a Parquet file, which compression hides.

    A file of another program may be gone, or half written; then what is there is looked at.
    """
    try:
        yield path.read_bytes()
        table = pq.read_table(path) if path.suffix == ".parquet" else None
    except (OSError, pa.ArrowInvalid):
        return
    if table is not None:
        yield repr(table.to_pydict()).encode()
        for name in table.column_names:
            for chunk in table.column(name).chunks:
                yield b"".join(buffer for buffer in chunk.buffers() if buffer is not None)


def everything(paths: Iterable[Path]) -> bytes:
    """All that can be read in files and below folders, and their names."""
    parts: list[bytes] = []
    for root in paths:
        for path in [root, *root.rglob("*")] if root.is_dir() else [root]:
            parts.append(str(path).encode())
            if path.is_file() and not path.is_symlink():
                parts += readable(path)
    return b"\n".join(parts)
