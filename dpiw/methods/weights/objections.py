"""What keeps one estimate from the verdict `use`: how far, and in which words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from dpiw.methods.weights.diagnostics import Verdict


class Objection(NamedTuple):
    """What keeps a value from `use`: the best verdict that it leaves, and why."""

    leaves: Verdict
    reason: str


def unsupported(support: float, *, use: float, care: float) -> list[Objection]:
    """What a value's support leaves, if it is below the least for `use`."""
    if support >= use:
        return []
    if math.isnan(support):
        return [Objection(Verdict.DO_NOT_USE, f"support not known (expected >= {use:g})")]
    leaves = Verdict.CARE if support >= care else Verdict.DO_NOT_USE
    # Cut, not rounded: nobody is told 0.85 where 0.85 is what was expected.
    return [
        Objection(leaves, f"support {math.floor(100 * support) / 100:.2f} (expected >= {use:g})")
    ]


def worst(objections: Iterable[Objection]) -> Verdict:
    """The verdict that all of these leave; `use` where there are none."""
    order = tuple(Verdict)
    return max((objection.leaves for objection in objections), key=order.index, default=Verdict.USE)
