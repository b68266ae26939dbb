"""Names of columns in the files of other packages: which a format holds, and what would do."""

from __future__ import annotations

import io
import itertools
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dpiw.data.columns import Column
from dpiw.data.declarations import RESERVED_NAMES, folded_name, name_fault
from dpiw.data.levels import is_formula
from dpiw.errors import ReleaseError, nearest


@dataclass(frozen=True, kw_only=True)
class NameRule:
    """Which names a format holds.

    Attributes:
        expected: in words.
        refused: those of some names that it does not hold.
    """

    expected: str
    refused: Callable[[Sequence[str]], list[str]]

    def holds(self, name: str) -> bool:
        """Whether this one is held."""
        return not self.refused([name])


def renamed(
    columns: Sequence[Column], names: Mapping[str, str], *, weights: Iterable[str], rule: NameRule
) -> list[Column]:
    """Columns by the names that they have in a file; a new one's old name is then its label.

    Args:
        columns: of a release.
        names: from old to new, where the two differ.
        weights: names of the columns of weights, which stand in the same file.
        rule: of the format.

    Raises:
        ReleaseError: `names` is of other columns or holds no name; two names are alike but for
            their case; or the format does not hold one: the message then has names for all these.
    """
    _check_new(columns, names)
    new = {column.name: names.get(column.name, column.name) for column in columns}
    _check_alike(new.values())
    needed = {folded_name(name) for name in weights}
    refused = set(rule.refused(list(new.values())))
    clashing = [old for old, name in new.items() if folded_name(name) in needed]
    bad = clashing + [old for old, name in new.items() if name in refused and old not in clashing]
    if bad:
        held = (folded_name(name) for old, name in new.items() if old not in bad)
        suggested = dict(names) | _suggested(bad, {*needed, *held, *RESERVED_NAMES}, rule)
        why = f"expected {rule.expected}, and no word that the format keeps for itself"
        why = "the weights need that name" if clashing else why
        raise ReleaseError(
            f"export: column {new[bad[0]]!r}: {why}; what would do: names={suggested!r}"
        )
    return [
        replace(column, name=new[column.name], description=column.description or column.name)
        if column.name in names
        else column
        for column in columns
    ]


def _check_new(columns: Sequence[Column], names: Mapping[str, str]) -> None:
    unknown = [name for name in names if name not in {column.name for column in columns}]
    if unknown:
        near = nearest(unknown[0], [column.name for column in columns])
        raise ReleaseError(f"export: names: no column {unknown[0]!r}{near}")
    for old, name in names.items():
        fault = name_fault(name)
        if fault is None and name in RESERVED_NAMES:
            fault = f"a release keeps {name!r} for itself"
        if fault is not None:
            raise ReleaseError(f"export: names: column {old!r}: {fault}")


def _check_alike(names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        folded = folded_name(name)
        if folded in seen:
            raise ReleaseError(f"export: columns {seen[folded]!r} and {name!r} would be one name")
        seen[folded] = name


def _suggested(bad: Sequence[str], taken: set[str], rule: NameRule) -> dict[str, str]:
    """A name for each that the format holds and no other column has."""
    seen, suggested = set(taken), {}
    for name in bad:
        suggested[name] = next(
            candidate
            for candidate in _likes(name)
            if folded_name(candidate) not in seen and rule.holds(candidate)
        )
        seen.add(folded_name(suggested[name]))
    return suggested


def _likes(name: str) -> Iterator[str]:
    """Names like this one: its letters, then those of ASCII, then with a prefix and a number."""
    name = name.replace("\N{MICRO SIGN}", "u")
    latin = name.replace("\N{GREEK SMALL LETTER MU}", "u")
    ascii_letters = unicodedata.normalize("NFKD", latin).encode("ascii", "ignore").decode()
    stem = re.sub(r"\W+", "_", ascii_letters).strip("_")[:24]
    yield re.sub(r"\W+", "_", name).strip("_")[:30]
    yield stem
    yield f"v_{stem}"
    yield from (f"v_{stem}_{number}" for number in itertools.count(2))


# --- the formats --------------------------------------------------------------------------------

_STATA_NAME, _SPSS_NAME = 32, 64
"""Longest name: of Stata in letters, of SPSS in bytes."""

_SPSS_WORDS = frozenset(
    {"ALL", "AND", "BY", "EQ", "GE", "GT", "LE", "LT", "NE", "NOT", "OR", "TO", "WITH"}
)


def _stata_refuses(names: Sequence[str]) -> list[str]:
    """Asks pandas, which would write another name and only warn: for all at once, then singly."""
    types = [name for name in names if re.fullmatch(r"str\d+", name) or not name.isidentifier()]
    candidates = [name for name in names if name not in types]
    if candidates and not _pandas_writes(candidates):
        types += [name for name in candidates if not _pandas_writes([name])]
    return types


def _pandas_writes(names: Sequence[str]) -> bool:
    with warnings.catch_warnings(action="error", category=pd.errors.InvalidColumnName):
        try:
            frame = pd.DataFrame([[0.0] * len(names)], columns=list(names))
            frame.to_stata(io.BytesIO(), write_index=False, version=118)
        except pd.errors.InvalidColumnName:
            return False
    return True


def _spss_refuses(names: Sequence[str]) -> list[str]:
    return [
        name
        for name in names
        if not (name.isidentifier() and name[0].isalpha() and len(name.encode()) <= _SPSS_NAME)
        or name.upper() in _SPSS_WORDS
    ]


CSV = NameRule(
    expected="a name that no spreadsheet computes",
    refused=lambda names: list(filter(is_formula, names)),
)
STATA = NameRule(expected=f"letters, digits and `_`, at most {_STATA_NAME}", refused=_stata_refuses)
SPSS = NameRule(
    expected=f"letters, digits and `_`, a letter first, at most {_SPSS_NAME} bytes",
    refused=_spss_refuses,
)
