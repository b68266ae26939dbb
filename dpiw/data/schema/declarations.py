"""Checks and messages for single fields of a data dictionary: names, provenance, bounds."""

import itertools
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dpiw.errors import nearest

Fault = tuple[str, str]
"""A field, and what is wrong with it."""

# Names

NAME = r"[a-z0-9][a-z0-9_-]{0,62}"
"""Pattern of names of tables, releases, populations and constraints, and of labels of periods."""

RESERVED_NAMES = frozenset({"weight", "log_weight"})
"""Columns that a release adds to the synthetic rows."""

MAX_NAME_LENGTH = 128


def folded_name(name: str) -> str:
    """Return the form in which names that differ by case, width or Unicode form are equal."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def name_fault(name: object) -> str | None:
    """What is wrong with a column's name, or None; not quoted: a typed header may be a row."""
    if name is not None and not isinstance(name, str):
        return 'is not text; write it in quotes, such as "2020"'
    if not name or not name.strip():
        return "is empty; give the column a name, in the table too, or take it out of both"
    if len(name) > MAX_NAME_LENGTH:
        return f"is longer than {MAX_NAME_LENGTH} characters"
    if not name.isprintable():
        return "holds a character that no screen shows; type the name again, in the table too"
    if name != name.strip():
        return "has white space at its ends; remove it, in the table too"
    return None


def bucket_names(buckets: int) -> tuple[str, ...]:
    """Return the levels of a column of hash buckets: `bucket 00`, `bucket 01`, ..."""
    digits = len(str(buckets - 1))
    return tuple(f"bucket {number:0{digits}}" for number in range(buckets))


# Provenance: nothing can check that a bound is public, but a stated origin lets a reader judge it.
# The plan and `schema.json` of a release show it.

PROVENANCES = ("law", "codebook", "earlier release", "other")
"""Kinds of public knowledge that a bound or a level may come from."""

_MAX_PROVENANCE = 500


def provenance_fault(text: object) -> str | None:
    """What is wrong with a provenance, or None; the empty text means not stated."""
    kind, _, words = text.partition(":") if isinstance(text, str) else ("", "", "")
    well_formed = kind in PROVENANCES and (kind != "other" or bool(words.strip()))
    short = len(str(text)) <= _MAX_PROVENANCE
    if text == "" or (well_formed and short and str(text).isprintable()):
        return None
    near = "" if kind in PROVENANCES else nearest(kind, PROVENANCES)
    return (
        f"expected one of {', '.join(PROVENANCES)}, then a colon and words (needed after `other`"
        f" only), at most {_MAX_PROVENANCE} printable characters; found {text!r:.40}{near}"
    )


def provenance_summary(stated: Iterable[str]) -> str:
    """Return one line: how many columns have each provenance; empty if none states any."""
    kinds = Counter(text.partition(":")[0] for text in stated)
    if not kinds.keys() - {""}:
        return ""
    parts = [f"{kinds[kind]} from {kind}" for kind in PROVENANCES if kinds[kind]]
    return ", ".join(parts + ([f"{kinds['']} not stated"] if kinds[""] else []))


# Bounds

MAX_INTEGER_RANGE = 2**53
"""Widest integer range whose every value survives [0, 1] doubles exactly."""

MOST_DIGITS = 14
"""Digits of a continuous value that doubles keep."""

LARGEST, NARROWEST = 1e60, 1e-60
"""Largest bound and narrowest range: sums of fourth powers over rows stay within doubles."""


def digits(magnitude: float) -> int:
    """Return the digits before the decimal mark of a number > 0."""
    return math.ceil(math.log10(magnitude))


def integer_fault(low: float | int, high: float | int) -> Fault | None:
    """What is wrong with the bounds of an integer column, or None."""
    if not (isinstance(low, int) and isinstance(high, int)):
        return "lower/upper", "expected whole numbers"
    if low < -(2**63) or high >= 2**63 or high - low > MAX_INTEGER_RANGE:
        return "lower/upper", "expected 64-bit whole numbers that are at most 2^53 apart"
    return None


def resolution_fault(low: float, high: float, decimals: object) -> Fault | None:
    """What is wrong with the bounds and decimals of a continuous column, or None."""
    largest = max(abs(low), abs(high))
    if largest > LARGEST or high - low < max(NARROWEST, largest * 2.0**-32):
        allowed = f"{LARGEST:g} at most, apart by {NARROWEST:g} and 2^-32 of the larger one"
        return "lower/upper", f"bounds too far apart or too close; expected {allowed}"
    if decimals is None:
        return None
    most = min(12, MOST_DIGITS - digits(largest))
    if not isinstance(decimals, int) or isinstance(decimals, bool) or not 0 <= decimals <= most:
        allowed = f"expected a whole number from 0 to {most}"
        return "decimals", allowed if most >= 0 else "bounds of this size leave none; remove it"
    if round(low, decimals) != low or round(high, decimals) != high:
        return "decimals", "lower or upper has more decimals; raise this number, or round the bound"
    return None


MOST_VALUES = 1000
"""Most listed values of a column of numbers."""


def values_fault(
    values: Sequence[Any], ends: Any, stated: Mapping[str, Any], *, whole: bool
) -> Fault | None:
    """What is wrong with the listed values of a column of numbers, or with what goes with them.

    `ends`: the stated bounds, or None; `stated`: settings that a list replaces.
    """
    kinds = (int,) if whole else (int, float)
    numbers = [v for v in values if isinstance(v, kinds) and not isinstance(v, bool)]
    good = len(numbers) == len(values) and all(abs(number) <= LARGEST for number in numbers)
    if not good or not 2 <= len(values) <= MOST_VALUES:
        return "values", f"expected 2 to {MOST_VALUES} {'whole ' * whole}numbers"
    numbers = numbers if whole else [*map(float, numbers)]
    least = (numbers[-1] - numbers[0]) / 10**9
    if not all(b - a > 0 and b - a >= least for a, b in itertools.pairwise(numbers)):
        return "values", "expected ascending numbers, apart by a billionth of their range or more"
    extra = [key for key, value in stated.items() if value not in (None, ())]
    if extra or ends not in (None, (numbers[0], numbers[-1])):
        return (*extra, "lower/upper")[0], "follows from `values`; remove it"
    return None


# Expectations of cells alone: counts add up. Readers return arguments in own units, or raise.


def _between(own: Any, *, min_value: Any = None, max_value: Any = None) -> dict[str, Any]:
    low = -math.inf if min_value is None else own(min_value)
    high = math.inf if max_value is None else own(max_value)
    if min_value is max_value is None or not -math.inf <= low <= high <= math.inf:
        raise ValueError
    return {"min_value": low, "max_value": high}


def _in_set(own: Any, *, value_set: Any) -> dict[str, Any]:
    if not isinstance(value_set, list | tuple) or not value_set:
        raise TypeError
    return {"value_set": [own(value) for value in value_set]}


_BETWEEN = _between, "min_value <= max_value, or one of them, and a column of numbers or dates"
_IN_SET = _in_set, "value_set: a list of values that the column can have; not for a boolean"
_ALONE: tuple[Callable[..., dict[str, Any]], str] = (lambda _: {}), "no argument"
EXPECTATIONS: Mapping[str, tuple[Callable[..., dict[str, Any]], str]] = {
    "expect_column_values_to_be_between": _BETWEEN,
    "expect_column_values_to_be_in_set": _IN_SET,
    "expect_column_values_to_not_be_in_set": _IN_SET,
    "expect_column_values_to_be_null": _ALONE,
    "expect_column_values_to_not_be_null": _ALONE,
}


# Messages that show how a value is written. They repeat public declarations, never a cell.

LEVELS_REQUIRED = (
    "public levels are required and never inferred from the table; list every level that can occur."
    " Without a public list, write hash_buckets, or `unseen: true` and generator.method: levels"
)

FREE_TEXT = (
    "free text is not released, as nothing public bounds what a cell may say; take the column out"
    " of the file, or declare it categorical, with levels, a hierarchy_file or hash_buckets"
)

_FORMS = {
    "date": "an ISO date (year-month-day), such as 2024-01-31",
    "datetime": "an ISO date and time, such as 2024-01-31T12:00:00",
    "integer": "a whole number, such as 18",
}


def no_value(value: object, kind: str) -> str:
    """Return the message for a bound, cut or fill that is no value of its kind."""
    form = _FORMS.get(kind, "a number with a decimal point, such as 18.5")
    return f"{value!r:.40} is no {kind} value; expected {form}"


def no_word(value: object, allowed: Sequence[str]) -> str:
    """Return an error's `allowed` for a field that is none of these words."""
    return f"one of {', '.join(allowed)}, not {value!r:.40}{nearest(value, allowed)}"


def quoted(values: Iterable[object]) -> str:
    """Show how values that should be text are written, as `["101", ...]`."""
    first = next(value for value in values if not isinstance(value, str))
    if isinstance(first, bool):
        return f'["{str(first).lower()}", ...]'
    return f'["{first}", ...]' if isinstance(first, int) else '["101", ...]'
