"""Checks of a formula that formulaic accepts with another meaning, and the term that failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dpiw.analysis.names import as_typed, restored
from dpiw.errors import ReleaseError, optional


def check_meaning(formula: str, coded: str, names: Mapping[str, str]) -> None:
    """Refuse what formulaic, like R or not, reads otherwise than it looks.

    It reads `hours - 30` on the left side as `hours`, and `age**2` outside `I(...)` as `age`.
    `coded` is the formula with private names for the columns `names`.
    """
    parser = optional("formulaic.parser", extra="formula").DefaultFormulaParser
    tokens = list(parser(include_intercept=False).get_tokens(coded))
    signs, shown = [str(token) for token in tokens], {k: as_typed(n) for k, n in names.items()}

    def typed(first: int, last: int) -> str:
        text = coded[tokens[first].source_start : tokens[last].source_end + 1]
        return restored(text, shown)

    tilde = signs.index("~")
    if len([sign for sign in signs[:tilde] if sign not in ("(", ")")]) > 1:
        left, right = typed(0, tilde - 1), typed(tilde + 1, len(tokens) - 1)
        product = left.replace(":", " * ")
        raise ReleaseError(
            f"found arithmetic on the left side ({left!r}); put it in I(...): write "
            f"{f'I({product}) ~ {right}'!r}",
            field=f"formula {formula!r}",
        )
    for place in (k for k, sign in enumerate(signs) if sign in ("**", "^")):
        in_brackets = signs[place - 1] == ")" and signs[place - 3] == "("  # one name
        base = place - 1 - in_brackets
        if signs[base] != ")":
            alone, power = typed(base, base), typed(base - in_brackets, place + 1)
            written = f"I({alone}**{typed(place + 1, place + 1)})"
            raise ReleaseError(
                f"{power!r} means {alone!r} alone in a formula, as in R; for the power write"
                f" {written!r}",
                field=f"formula {formula!r}",
            )


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
        written = f"{formula.partition('~')[0].strip()} ~ 1"
        raise ReleaseError(
            f"the right side is empty; write {written!r} for the intercept alone",
            field=f"formula {formula!r}",
        )


def uncomputed(
    formula: str,
    parsed: Any,
    frame: pd.DataFrame,
    reason: Exception,
    names: Mapping[str, str],
) -> ReleaseError:
    """Return the error for a formula whose computation raised, with the term that did."""
    library = optional("formulaic", extra="formula")
    for factor in (f for side in (parsed.lhs, parsed.rhs) for term in side for f in term.factors):
        text = str(factor)
        try:
            with np.errstate(all="ignore"):
                library.Formula(f"0 + {text}").get_model_matrix(frame, context={})
        except Exception as fault:  # formulaic runs what the analyst wrote: anything can be raised
            mentioned = rf"(?<!\w)(?:{'|'.join(map(re.escape, map(str, frame.columns)))})(?!\w)"
            texts = [n for n in re.findall(mentioned, text) if frame[n].dtype == object]
            hint = f"; column {texts[0]!r} holds text" if texts else ""
            kind = type(fault.__cause__ or fault).__name__  # its text may hold cells
            why = restored(f"{text!r} cannot be computed ({kind}){hint}", names)
            return ReleaseError(why, field=f"formula {formula!r}")
    return ReleaseError(
        f"it cannot be computed ({type(reason).__name__})", field=f"formula {formula!r}"
    )
