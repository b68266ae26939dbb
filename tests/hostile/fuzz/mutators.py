"""Own mutators: bytes, and the structure of CSV, YAML and Parquet. Seeded by the caller."""

from collections.abc import Callable, Sequence

import numpy as np

from tests.hostile.fuzz import corpus

Rng = np.random.Generator

TOKENS: tuple[bytes, ...] = (
    b"", b"\x00", b"\n", b"\r", b"\r\n", b'"', b'""', b"'", b",", b";", b"\t", b"\\", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"nan", b"NaN", b"inf", b"-inf", b"1e400",
    b"-1e-400", b"9" * 400, b"0x10", b"1_000", b"true", b"null", b"~", b"=cmd|'/C'!A0", b"\x1a",
    "é".encode(), "\u2028".encode(), "\u202e".encode(), b"1" * 20_000, b"PAR1", b"- ", b": ", b"&a",
    b"*a", b"!!python/object:os.system", b"? ", b"{", b"}", b"[", b"]", b"|", b">", b"#", b"%YAML",
    b"---", b"...", b"<<: ", b"18446744073709551616", b"2147483648", b"0001-01-01", b"9999-12-31",
    corpus.CANARY.encode(),
)  # fmt: skip


def _place(data: bytes, rng: Rng) -> int:
    return int(rng.integers(0, len(data) + 1))


def _slice(data: bytes, rng: Rng) -> tuple[int, int]:
    start, stop = sorted((_place(data, rng), _place(data, rng)))
    return start, min(stop, start + int(2 ** rng.integers(0, 12)))


def flip(data: bytes, rng: Rng) -> bytes:
    """Flip a few bits."""
    if not data:
        return data
    mutant = bytearray(data)
    for _ in range(int(2 ** rng.integers(0, 5))):
        mutant[rng.integers(len(mutant))] ^= 1 << int(rng.integers(8))
    return bytes(mutant)


def overwrite(data: bytes, rng: Rng) -> bytes:
    """Random, zero or full bytes in place of a slice."""
    start, stop = _slice(data, rng)
    fill = (rng.bytes(stop - start), b"\x00" * (stop - start), b"\xff" * (stop - start))
    return data[:start] + fill[rng.integers(3)] + data[stop:]


def truncate(data: bytes, rng: Rng) -> bytes:
    return data[: _place(data, rng)] if rng.random() < 0.7 else data[_place(data, rng) :]


def duplicate(data: bytes, rng: Rng) -> bytes:
    start, stop = _slice(data, rng)
    times = int(2 ** rng.integers(0, 8)) if stop - start < 200 else 2
    return data[:stop] + data[start:stop] * times + data[stop:]


def remove(data: bytes, rng: Rng) -> bytes:
    start, stop = _slice(data, rng)
    return data[:start] + data[stop:]


def swap(data: bytes, rng: Rng) -> bytes:
    a, b, c, d = sorted(_place(data, rng) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def insert(data: bytes, rng: Rng) -> bytes:
    place = _place(data, rng)
    token = TOKENS[rng.integers(len(TOKENS))] if rng.random() < 0.8 else rng.bytes(7)
    return data[:place] + token + data[place:]


BYTES: tuple[Callable[[bytes, Rng], bytes], ...] = (
    flip, overwrite, truncate, duplicate, remove, swap, insert,
)  # fmt: skip


def _pick(values: Sequence[bytes], rng: Rng) -> bytes:
    return values[int(rng.integers(len(values)))]


def _bytes_mutated(data: bytes, rng: Rng) -> bytes:
    for _ in range(int(rng.integers(1, 4))):
        data = BYTES[rng.integers(len(BYTES))](data, rng)
    return data


def csv_structure(data: bytes, rng: Rng) -> bytes:
    """Swap, drop, double or poison cells, rows and columns."""
    rows = [line.split(b",") for line in data.split(b"\n")]
    for _ in range(int(rng.integers(1, 5))):
        row = int(rng.integers(len(rows)))
        rows[row] = rows[row] or [b""]
        cell = int(rng.integers(len(rows[row])))
        match int(rng.integers(9)):
            case 0:
                rows[row][cell] = TOKENS[rng.integers(len(TOKENS))]
            case 1:
                rows[row].insert(cell, rows[row][cell])
            case 2:
                del rows[row][cell:]
                rows[row] = rows[row] or [b""]
            case 3:
                rows.insert(row, list(rows[row]))
            case 4:
                partner = int(rng.integers(len(rows)))
                rows[row], rows[partner] = rows[partner], rows[row]
            case 5:
                order = rng.permutation(len(rows[0]))
                rows = [[r[i] for i in order if i < len(r)] or [b""] for r in rows]
            case 6:
                rows[row][cell] = b'"' + rows[row][cell].replace(b'"', b"") + b'"'
            case 7:
                rows[row][cell] = str(rng.integers(-(2**63), 2**63 - 1)).encode() + b"." * int(
                    rng.integers(2)
                )
            case 8:
                rows = rows[:1] if rng.random() < 0.1 else rows * int(rng.integers(1, 30))
        rows = rows or [[b""]]
    return b"\n".join(b",".join(row) for row in rows)


def csv_case(rng: Rng) -> bytes:
    data = _pick(corpus.csv_files(), rng)
    if rng.random() < 0.6:
        data = csv_structure(data, rng)
    if rng.random() < 0.5:
        data = _bytes_mutated(data, rng)
    if rng.random() < 0.05:
        data = rng.bytes(int(rng.integers(0, 400)))
    return data


_SCALARS: tuple[bytes, ...] = (
    b"0", b"-1", b"1", b"2", b"10", b"1e-7", b"0.1", b"1e400", b".nan", b".inf", b"-.inf",
    b"9" * 30, b"1" * 5000, b"1" + b"0" * 400, b"1e308", b"1e-320", b"true", b"no", b"null",
    b"~", b'""', b"[]", b"{}", b"{a: {b: 1}}", b"'x'", b"../../etc/passwd", b"/dev/null",
    b"'\\u0000'", b'"\\u0000"', b'"\\ud800"', b"1970-01-01", b"2000-02-30", b"0000-00-00",
    b"'9999-12-31T23:59:59+23:59'", b"!!binary aGk=", b"&x 1", b"*x", b"[" * 40, b"{a: " * 40,
    b"x" * 5000, "é".encode(), b"weight", b"integer", b"date", b"continuous", b"privbayes",
    b"histogram", b"none", b"replace_one", b"fourier", b"interactions", b"Etc/UTC",
    b"../UTC", b"~nobody-of-that-name/x", b"1.5", b"9007199254740993",
    b"18446744073709551616", b"-9223372036854775809",
)  # fmt: skip
_KEYS: tuple[bytes, ...] = (
    b"name", b"kind", b"lower", b"upper", b"levels", b"other", b"fill", b"cuts", b"bins", b"role",
    b"decimals", b"time_zone", b"true_values", b"nullable", b"normaliser", b"epsilon", b"delta",
    b"settings", b"method", b"seed", b"columns", b"unit", b"shares", b"max_rows", b"features",
    b"omega_seed", b"a=b", b"weight",
)  # fmt: skip


def yaml_structure(data: bytes, rng: Rng) -> bytes:
    """Replace or drop values and keys, double lines, change the indentation."""
    lines = data.split(b"\n")
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        parts = lines[at].split(b": ")
        place = int(rng.integers(len(parts)))
        match int(rng.integers(7)):
            case 0 | 1 if place:
                tail = parts[place].partition(b",")
                parts[place] = _pick(_SCALARS, rng) + tail[1] + tail[2]
                lines[at] = b": ".join(parts)
            case 2:
                head, comma, key = parts[place].rpartition(b" ")
                parts[place] = head + comma + (_pick(_KEYS, rng) if key else b"")
                lines[at] = b": ".join(parts)
            case 3:
                del lines[at]
                lines = lines or [b""]
            case 4:
                lines.insert(int(rng.integers(len(lines))), lines[at])
            case 5:
                lines[at] = b" " * int(rng.integers(8)) + lines[at].lstrip()
            case 6:
                lines.insert(at, b"  " + _pick(_KEYS, rng) + b": " + _pick(_SCALARS, rng))
    return b"\n".join(lines)


def _yaml_case(text: str, rng: Rng) -> bytes:
    data = yaml_structure(text.encode(), rng) if rng.random() < 0.75 else text.encode()
    return _bytes_mutated(data, rng) if rng.random() < 0.4 else data


def spec_case(rng: Rng) -> bytes:
    text = corpus.SPEC_YAML
    if rng.random() < 0.7:  # without the password, so that more of the spec is reached
        text = text.replace(f"user:{corpus.SECRET}@", "")
    return _yaml_case(text, rng)


def parquet_case(rng: Rng) -> bytes:
    """Odd names and types, which need no fuzz: bad_inputs; every type's worst values: cells.py."""
    data = _pick(corpus.parquet_files(), rng)
    way = rng.random()
    if way < 0.1:
        return data
    if way < 0.5:  # the footer alone, where a reader's trust begins
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        block = (flip if rng.random() < 0.8 else overwrite)(data[start:-8], rng)
        length = len(block) + int(rng.choice([0, 0, 0, 1, -1, 2**31]))
        return data[:start] + block + length.to_bytes(4, "little") + data[-4:]
    return flip(data, rng) if rng.random() < 0.6 else _bytes_mutated(data, rng)


CASES: dict[str, Callable[[Rng], bytes]] = {
    "csv": csv_case, "parquet": parquet_case, "spec": spec_case,
    "schema": lambda rng: _yaml_case(corpus.SCHEMA_YAML, rng),
}  # fmt: skip


def make_case(kind: str, seed: int, index: int) -> bytes:
    """Case `index` of a campaign: the same bytes for the same three arguments."""
    return CASES[kind](np.random.default_rng([seed, index, *kind.encode()]))
