"""How values of a data dictionary are written, for who wrote one otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpiw.errors import nearest

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
    """That a declared bound, cut or fill is no value of its kind, and how one is written."""
    form = _FORMS.get(kind, "a number with a decimal point, such as 18.5")
    return f"{value!r:.40} is no {kind} value; expected {form}"


def no_word(value: object, allowed: Sequence[str]) -> str:
    """That a declared field is none of its words: what is allowed, what stands there, the nearest.

    Args:
        value: of a public data dictionary, which is repeated; never a cell.
        allowed: the admissible words.
    """
    return f"expected one of {', '.join(allowed)}, not {value!r:.40}{nearest(value, allowed)}"


def quoted(values: Iterable[object]) -> str:
    """How values that should be text are written: `["101", ...]`, by the first that is none."""
    first = next(value for value in values if not isinstance(value, str))
    if isinstance(first, bool):
        return f'["{str(first).lower()}", ...]'
    return f'["{first}", ...]' if isinstance(first, int) else '["101", ...]'
