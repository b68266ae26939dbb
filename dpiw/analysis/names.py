"""Column names: the table's own, as typed by analysts, and as other libraries read them.

Python, pandas and formulaic give words such as `inf`, `log` or `1` a meaning of their own, so
conditions and formulas use private names. Only this module looks up a name: exactly, then in NFKC.
"""

import keyword
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

import pandas as pd

from dpiw.errors import MOST_TOLD, ReleaseError, nearest

B = TypeVar("B")
P = ParamSpec("P")

_TEXT = r"'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_BACKTICKS = r"`(?P<name>(?:[^`]|``)+)`"

TOKENS = re.compile(rf"(?:{_TEXT})|{_BACKTICKS}|#[^\n]*|[&|]", re.DOTALL)
"""Quoted text, names in backticks (group `name`), comments, and the signs `&` and `|`."""

_WORD = r"(?<![\w.])(?P<word>[^\W\d][^\s!-,/:-@\[-^`{-~\-]*)"
_QUOTED = r"(?<![\w.])Q\(\s*(?P<sign>['\"])(?P<quoted>.+?)(?P=sign)\s*\)"

_FORMULA_TOKENS = re.compile(rf"{_QUOTED}|(?:{_TEXT})|{_BACKTICKS}|{_WORD}", re.DOTALL)
"""`Q('name')`, quoted text, names in backticks, and words, which may hold dots."""


def checked_column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return the column of that name; raises ReleaseError as `column_name`."""
    return table[column_name(table, name)]


def column_name(table: pd.DataFrame, name: str, *, normalised: bool = False) -> str:
    """Return the table's own spelling of a column's name.

    `normalised`: Python has changed the form of `name`, so that an exact match proves nothing.
    Raises ReleaseError for no such column (names the nearest), if several could be meant, or for
    what names no single column.
    """
    if not isinstance(name, Hashable):
        raise ReleaseError(field="column", allowed="the name of one column")
    alike = _alike(table, name)
    if name in table.columns and (not normalised or len(alike) < 2):
        if not table.columns.is_unique and list(table.columns).count(name) > 1:
            raise ReleaseError(
                "several columns have this name; rename them", field=f"column {name!r}"
            )
        return name
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise ReleaseError(
            f"the names {', '.join(map(ascii, alike))} differ in their Unicode form alone;"
            " write the one you mean in backticks",
            field=f"column {name!r}",
        )
    raise no_column(table, name)


def known_name(table: pd.DataFrame, name: str) -> str:
    """Return `column_name`, or the name itself if there is no such column."""
    alike = _alike(table, name)
    return name if name in table.columns or len(alike) != 1 else alike[0]


def no_column(table: pd.DataFrame, name: str) -> ReleaseError:
    """Return the error for an unknown column; it names the nearest."""
    names = [str(column) for column in table.columns]
    if alike := _alike(table, name):
        hint = f"; the table spells it {alike[0]!a}"
    else:
        hint = nearest(name, names) or f"; its columns: {', '.join(names)}"
    return ReleaseError(f"not in this table{hint}", field=f"column {name!r}")


def _alike(table: pd.DataFrame, name: str) -> list[str]:
    if not isinstance(name, str):
        return []
    form = _normal(name)
    names = (column for column in table.columns if isinstance(column, str))
    return list(dict.fromkeys(column for column in names if _normal(column) == form))


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def as_typed(name: str) -> str:
    """Return a column's name as in conditions and formulas: in backticks unless it is one word."""
    if name.isidentifier() and not keyword.iskeyword(name):
        return name
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def unquoted(name: str) -> str:
    """Return the text between backticks, where a doubled backtick means one."""
    return name.replace("``", "`")


def unused_stem(texts: Iterable[str]) -> str:
    """Return the start of a name that occurs in none of the texts, in any Unicode form."""
    known, stem = [_normal(text) for text in texts], "column_"
    while any(stem in text for text in known):
        stem = f"c{stem}"
    return stem


def private_formula(table: pd.DataFrame, formula: str) -> tuple[str, Mapping[str, str]]:
    """Return a formula with private names for columns, and the columns by these names.

    A column is text in backticks or in `Q(...)`, or a word that names a column and is no function
    (before a bracket), attribute or keyword (before `=`).
    """
    found: list[tuple[slice, str]] = []
    for match in _FORMULA_TOKENS.finditer(formula):
        quoted = match["quoted"] or match["name"]
        if quoted is not None:
            found.append((slice(*match.span()), column_name(table, unquoted(quoted))))
        elif match["word"] is not None and not re.match(r"\s*(\(|=(?!=))", formula[match.end() :]):
            name, length = _longest_name(table, match["word"])
            if name is not None:
                found.append((slice(match.start(), match.start() + length), name))
    columns = dict.fromkeys(name for _, name in found)
    texts = (str(level) for name in columns for level in _texts(table[name]))
    stem = unused_stem([formula, *texts])
    private = {name: f"{stem}{place}_" for place, name in enumerate(columns)}
    coded = formula
    for place, name in reversed(found):
        coded = f"{coded[: place.start]}{private[name]}{coded[place.stop :]}"
    return coded, {new: name for name, new in private.items()}


def _longest_name(table: pd.DataFrame, word: str) -> tuple[str | None, int]:
    """Return the column named by a word or by its part before a dot, and that part's length."""
    part = word
    while part:
        if part.replace(".", "_").isidentifier() and _alike(table, part):
            return column_name(table, part), len(part)
        part = part.rpartition(".")[0]
    return None, 0


def _texts(values: pd.Series) -> Iterable[object]:
    return values.dropna().unique() if values.dtype == object or values.dtype.kind == "O" else ()


def restored(text: str, names: Mapping[str, str]) -> str:
    """Return a text with columns' own names instead of private ones."""
    for private, name in names.items():
        text = text.replace(private, name)
    return text


def nearest_first(word: str, known: Iterable[str]) -> str:
    """Return `nearest first: 'south', 'north' and 12 more`."""
    import difflib

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(word, names, n=len(names) or 1, cutoff=0)
    rest = f" and {len(near) - MOST_TOLD} more" if len(near) > MOST_TOLD else ""
    return f"nearest first: {', '.join(map(repr, near[:MOST_TOLD]))}{rest}"


def spelt(**ours: str) -> Callable[[Callable[P, B]], Callable[P, B]]:
    """Refuse another library's name of an argument, and name ours."""

    def decorate(function: Callable[P, B]) -> Callable[P, B]:
        @wraps(function)
        def checked(*arguments: P.args, **keywords: P.kwargs) -> B:
            for theirs in ours.keys() & keywords.keys():
                field = f"{function.__name__}: {theirs}"
                raise ReleaseError(f"unknown argument; write {ours[theirs]}= instead", field=field)
            return function(*arguments, **keywords)

        return checked

    return decorate
