"""Names of columns: what they may be, and when two of them are too alike."""

from __future__ import annotations

import unicodedata

RESERVED_NAMES = frozenset({"weight", "log_weight"})
"""Names a release adds to the synthetic rows."""

MAX_NAME_LENGTH = 128


def folded_name(name: str) -> str:
    """Two names with the same folded form differ by case, width or Unicode form only."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def name_fault(name: object) -> str | None:
    """What is wrong with a column's name, repeated where it can be shown; None if nothing is."""
    if not isinstance(name, str) or not name.strip():
        return "a column name is empty, or not text"
    if len(name) > MAX_NAME_LENGTH or not name.isprintable():
        return f"a column name has over {MAX_NAME_LENGTH} characters or unprintable ones"
    if name != name.strip():
        return f"column {name}: name: white space at its ends, which no name has"
    return None
