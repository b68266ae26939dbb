"""Levels of a column: which texts mean which, and two public rules that reduce many to few.

Both depend on the cell alone and cost no budget; only the generator `levels` selects, and pays.
"""

import hashlib
import re
from collections.abc import Callable, Iterable

from dpiw.data.cells.plain import LONGEST
from dpiw.data.schema.columns import Column

_MAX_SHRINKING = 32
"""Bound on the length of a text over that of its normal form."""

_NEAR, _FEW_LEVELS = 0.5, 10
"""Share of `nominal_rows` from which on listed texts may be the table's own; fewer never are."""

NOISY_COUNT = "noisy_count"
"""Name of the second column in a list of found levels; the first has the column's own name."""

_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20].+", re.DOTALL)
_SIGNED = re.compile(r"[+-][0-9]{1,30}([.,][0-9]{1,30})?%?")
_GUARD = "'"
"""Makes a spreadsheet read a cell as text; the spreadsheet does not show it."""


def bucket_of(text: str, buckets: int) -> int:
    """Return a text's bucket: first 8 bytes of its SHA-256, modulo `buckets`; no key, no salt."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "big") % buckets


def level_file(place: int) -> str:
    """Return the file name of the list of found levels of column number `place`, from 1."""
    return f"levels-{place:03}.csv"


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute a cell of this text; a signed number is none."""
    return _FORMULA.match(text) is not None and _SIGNED.fullmatch(text) is None


def guarded(text: str) -> str:
    """Return a text for a published list: with an apostrophe in front of a formula."""
    return _GUARD + text if is_formula(text.lstrip(_GUARD)) else text


def unguarded(text: str) -> str:
    """Undo `guarded`."""
    bare = text.removeprefix(_GUARD)
    return bare if guarded(bare) == text else text


def level_reader(column: Column) -> Callable[[str], int | None]:
    """Return the reader of a cell's text: a level's index, -1 if empty, None if no level. Total."""
    codes = column.level_codes()
    longest = _MAX_SHRINKING * max(map(len, codes), default=0)
    buckets = column.hash_buckets

    def read(text: str) -> int | None:
        text = text.strip()
        if buckets is None and len(text) > longest:
            return None
        too_long = len(text) > max(longest, LONGEST)  # hashed as it is
        normalised = text if too_long else column.normalised(text)
        if not normalised:
            return -1
        code = codes.get(normalised)
        return bucket_of(normalised, buckets) if code is None and buckets is not None else code

    return read


def marker(word: str, levels: Iterable[object]) -> str:
    """Put a word of ours into brackets until it is none of a column's levels."""
    taken = {str(level) for level in levels}
    while word in taken:
        word = f"({word})"
    return word


def known_texts(column: Column) -> Callable[[str], bool]:
    """Return the function that says whether a text is, or means, one of the column's levels."""
    read = column.unlisted_level if column.unseen else level_reader(column)
    return lambda text: read(text) is not None


def level_warning(column: Column, *, nominal_rows: int) -> str | None:
    """Return a plan's warning on a column that lists nearly as many texts as rows, or None."""
    listed = 0 if column.hash_buckets is not None else len(column.level_codes())
    if listed < max(_FEW_LEVELS, nominal_rows * _NEAR):
        return None
    return (
        f"column {column.name}: lists {listed:,} levels for {nominal_rows:,} nominal_rows; expected"
        " levels of a public code list, never of the table: a release publishes every level"
    )


def level_caveat(column: Column) -> str | None:
    """Return a caveat on the column's levels for readers of released rows, or None."""
    if column.unseen:
        return (
            f"Column {column.name}: its levels are those whose noisy count reached a public"
            " threshold; rarer ones are not listed, and which they are is not told."
        )
    if column.hash_buckets is not None:
        return (
            f"Column {column.name} holds hash buckets: texts that share one cannot be told apart,"
            " and which of them a row stands for is not known."
        )
    if column.members:
        return (
            f"Column {column.name} holds groups: which member of a group a row stands for was not"
            " measured."
        )
    return None
