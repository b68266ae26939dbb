"""Checks of a formula that formulaic accepts with another meaning, and the term that failed."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.names import nearest_first, restored
from dpiw.errors import ReleaseError, optional, shown


def check_left(formula: str) -> None:
    """Refuse arithmetic on the left side: formulaic reads `hours - 30` as `hours`; R subtracts."""
    left, right = _sides(formula)
    if left and right and not _is_one_term(left):
        product = _bare(left).replace(":", " * ")
        raise ReleaseError(
            f"found arithmetic on the left side ({left!r}); put it in I(...): write "
            f"{f'I({product}) ~ {right}'!r}",
            field=f"formula {formula!r}",
        )


def check_powers(formula: str) -> None:
    """Refuse a power outside `I(...)`: `age**2` is `age` in a formula, as in R."""
    power = _POWER.search(_without_code(_blind(formula)))
    if power is not None:
        typed, base = (formula[power.start(k) : power.end(k)] for k in (0, "base"))
        number = formula[power.start("number") : power.end("number")]
        raise ReleaseError(
            f"{typed!r} means {base!r} alone in a formula, as in R; for the power write"
            f" {f'I({_bare(base)}**{number})'!r}",
            field=f"formula {formula!r}",
        )


_POWER = re.compile(r"(?P<base>[\w.]+|\([\w.]+\))\s*(?:\*\*|\^)\s*(?P<number>[\w.]+)")


def _without_code(blind: str) -> str:
    text = blind
    while call := re.search(r"(?:[\w.]+\(|\{)", text):
        end, depth = call.end(), 1
        while depth and end < len(text):
            depth += (text[end] in "([{") - (text[end] in ")]}")
            end += 1
        text = text[: call.start()] + "x" * (end - call.start()) + text[end:]
    return text


def as_in_r(formula: str) -> str:
    """Advice for R's `factor(region)`; empty without one."""
    factor = re.search(r"(?<![\w.])(?:as\.)?factor\(\s*(`[^`]*`|[\w.]*)", formula)
    return "" if factor is None else f"; write C({factor[1]}) for levels"


def check_right(formula: str, parsed: Any, names: Mapping[str, str]) -> None:
    """Raise ReleaseError unless the right side of `parsed` has a term, and none with the target."""
    targets = {str(factor) for term in parsed.lhs for factor in term.factors}
    repeated = targets & {str(factor) for term in parsed.rhs for factor in term.factors}
    if repeated:
        name = restored(sorted(repeated)[0], names)
        raise ReleaseError(
            f"{name!r} is the target; leave it out on the right of `~`",
            field=f"formula {formula!r}",
        )
    if not list(parsed.rhs):
        written = f"{_sides(formula)[0]} ~ 1"
        raise ReleaseError(
            f"the right side is empty; write {written!r} for the intercept alone",
            field=f"formula {formula!r}",
        )


def _sides(formula: str) -> tuple[str, str]:
    blind = _blind(formula)
    if blind.count("~") != 1:
        return "", ""
    place = blind.index("~")
    return formula[:place].strip(), formula[place + 1 :].strip()


def _blind(text: str) -> str:
    return re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", lambda match: "x" * len(match[0]), text)


def _bare(side: str) -> str:
    while side.startswith("(") and _closes_last(_blind(side)):
        side = side[1:-1].strip()
    return side


def _is_one_term(side: str) -> bool:
    blind = _blind(_bare(side))
    if re.fullmatch(r"[\w.]+", blind):
        return True
    brackets = re.sub(r"^[\w.]*(?=[({])", "", blind)
    return brackets[:1] in ("(", "{") and _closes_last(brackets)


def _closes_last(text: str) -> bool:
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            return place == len(text) - 1
    return False


def uncomputed(
    formula: str, parsed: Any, frame: pd.DataFrame, reason: Exception, names: Mapping[str, str]
) -> ReleaseError:
    """Return the error for a formula whose computation raised, with the term that did."""
    library = optional("formulaic", extra="formula")
    for factor in (f for side in (parsed.lhs, parsed.rhs) for term in side for f in term.factors):
        text = str(factor)
        try:
            with np.errstate(all="ignore"):
                library.Formula(f"0 + {text}").get_model_matrix(frame, context={})
        except Exception as fault:  # formulaic runs what the analyst wrote: anything can be raised
            why = restored(_fault(text, frame, fault), names)
            return ReleaseError(f"{restored(text, names)!r}: {why}", field=f"formula {formula!r}")
    return ReleaseError(
        f"its parts can be computed, but not together ({type(reason).__name__}): remove terms one"
        " at a time to find which",
        field=f"formula {formula!r}",
    )


def _fault(factor: str, frame: pd.DataFrame, fault: Exception) -> str:
    texts = [
        name
        for name in map(str, frame.columns)
        if frame[name].dtype == object and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", factor)
    ]
    for name in texts:
        levels = sorted(map(str, frame[name].unique()))
        for quote, word in re.findall(r"(['\"])(.*?)\1", factor):
            if quote and word not in levels:
                near = nearest_first(word, levels)
                return f"column {name!r} has no level {word!r}; its levels, {near}"
    if texts:
        return f"it cannot be computed: column {texts[0]!r} holds text"
    reason = fault.__cause__ or fault
    said = f"{type(reason).__name__}: {shown(reason, most=200)}"
    return f"it cannot be computed ({said}); change it, or leave it out"
