"""Whether an interval of weights made of noisy coefficients is to be used, and why not.

Thresholds: our choice, made after looking at simulations (docs/analysts.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.objections import Objection, unsupported

Array = NDArray[np.float64]

SUPPORT_USE, SUPPORT_CARE = 0.9, 0.5
"""Least support for the verdicts `use` and `use with care`."""

SHRINKAGE_USE = 0.25
"""Most that shrinkage may be of an interval's variance for the verdict `use`."""

SHRUNK = Objection(Verdict.CARE, "shrinkage is much of its error")


def objections(
    support: Array, parts: Mapping[str, Array], *, is_unshrunk: bool = False
) -> list[list[Objection]]:
    """Of each value, what keeps it from `use`.

    Args:
        support: of each, shape (p,).
        parts: of each value's variance, shape (p,) each.
        is_unshrunk: under `unshrunk` weights, whose intervals held the truth in two of three cases
            where support was less than `use` asks for: by support nothing lies between `use` and
            `do not use`.
    """
    care = SUPPORT_USE if is_unshrunk else SUPPORT_CARE
    known = [part for name, part in parts.items() if name != "people"]  # a bound may be too large
    most = SHRINKAGE_USE * np.asarray(sum(known))
    much = np.broadcast_to(parts.get("shrinkage", np.zeros(1)), most.shape) > most
    return [
        unsupported(float(seen), use=SUPPORT_USE, care=care) + [SHRUNK] * bool(shrunk)
        for seen, shrunk in zip(support, much, strict=True)
    ]
