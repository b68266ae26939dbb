"""Which rows of a generator are let through: those that satisfy the dictionary's constraints.

Rows are rejected or projected after they were drawn from a fitted model: post-processing, free. No
confidential row is looked at, and what is said of how often constraints bound is public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpiw.data.constraints import Repair
from dpiw.data.lattice import Mask
from dpiw.data.rules import Rules
from dpiw.data.scaled import ScaledTable
from dpiw.errors import SchemaError

MOST_DRAWN = 16
"""Rows drawn for each one wanted; where so few satisfy the constraints, the rest are projected."""

_LEAST_DRAWN = 100


@dataclass(frozen=True, kw_only=True)
class Admission:
    """How often constraints bound the rows of a generator; of synthetic rows alone, so public.

    Attributes:
        drawn: rows that the model gave.
        rejected: of these, left out.
        projected: of these, replaced by the nearest rows that satisfy the constraints.
        repeated: rows let through once more, in the place of some that no projection mended.
        broken: by constraint, rows that broke it as they were drawn.
        given_up: whether rejection was too rare, so that rows were projected instead.
    """

    drawn: int
    rejected: int
    projected: int
    repeated: int
    broken: Mapping[str, int]
    given_up: bool

    @classmethod
    def together(cls, several: Sequence[Admission]) -> Self:
        """Of several tables of one model; at least one."""
        return cls(
            drawn=sum(one.drawn for one in several),
            rejected=sum(one.rejected for one in several),
            projected=sum(one.projected for one in several),
            repeated=sum(one.repeated for one in several),
            broken={name: sum(one.broken[name] for one in several) for name in several[0].broken},
            given_up=any(one.given_up for one in several),
        )

    @property
    def steps(self) -> tuple[str, ...]:
        """What was done to the rows, as a certificate says it."""
        shares = ((self.rejected, "rejected"), (self.projected, "projected"))
        told = ", ".join(f"{count / self.drawn:.3g} {what}" for count, what in shares)
        steps = [f"satisfy declared constraints: of {self.drawn} rows drawn, {told}"]
        if self.given_up:
            steps.append(
                f"too few of {MOST_DRAWN} rows for each one wanted satisfied the constraints: the"
                " rest were projected onto them"
            )
        if self.repeated:
            steps.append(f"repeat {self.repeated} rows in the place of some without a projection")
        return tuple(steps)

    def to_json(self) -> dict[str, Any]:
        """Shares of the rows drawn; JSON values."""
        return {
            "drawn": self.drawn,
            "rejected": self.rejected / self.drawn,
            "projected": self.projected / self.drawn,
            "repeated": self.repeated,
            "given_up": self.given_up,
            "broken": {name: count / self.drawn for name, count in self.broken.items()},
        }


def admitted(
    draw: Callable[[int], ScaledTable],
    rows: int,
    *,
    rules: Rules | None,
    rng: np.random.Generator,
) -> tuple[ScaledTable, Admission | None]:
    """Rows that satisfy every constraint.

    Rows that break a constraint of the repair `project` become the nearest that do not; what then
    breaks another constraint is left out, and further rows are drawn in its place. After
    `MOST_DRAWN` rows for each one wanted, further rows are drawn and projected onto all
    constraints, for what is paid must not be lost; one that cannot be mended gives way to another.

    Args:
        draw: independent admissible rows, as many as it is told.
        rows: wanted.
        rules: of the schema; None: there are none, and nothing is done.
        rng: of repetitions; no privacy noise.

    Returns:
        The rows, and how often constraints bound; None where there are none, or no row is wanted.

    Raises:
        SchemaError: names the constraint that most rows break, if not one could be mended.
    """
    if rules is None or rows == 0:
        return draw(rows), None
    batches: list[_Batch] = []
    missing = rows
    while missing and sum(batch.drawn for batch in batches) < MOST_DRAWN * rows:
        wanted = min(rows, 2 * missing + _LEAST_DRAWN)
        batches.append(_batch(draw, wanted, rules, only=Repair.PROJECT, most=missing))
        missing -= batches[-1].good.rows
    given_up = missing > 0
    if given_up:
        batches.append(_batch(draw, missing, rules, only=None, most=missing))
        missing -= batches[-1].good.rows
    broken = {name: sum(batch.broken[name] for batch in batches) for name in batches[0].broken}
    good = ScaledTable.concatenate([batch.good for batch in batches])
    if not good.rows:
        worst = max(broken, key=broken.__getitem__)
        raise SchemaError(f"constraint {worst}: no row of the generator can be made to satisfy it")
    again = rng.integers(good.rows, size=missing) if missing else np.arange(0)
    return good.take(np.r_[np.arange(good.rows), again]), Admission(
        drawn=sum(batch.drawn for batch in batches),
        rejected=sum(batch.refused for batch in batches),
        projected=sum(batch.projected for batch in batches),
        repeated=missing,
        broken=broken,
        given_up=given_up,
    )


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Rows drawn at once: how many, those let through, and what became of them."""

    drawn: int
    good: ScaledTable
    refused: int
    projected: int
    broken: Mapping[str, int]


def _batch(
    draw: Callable[[int], ScaledTable], rows: int, rules: Rules, *, only: Repair | None, most: int
) -> _Batch:
    """Rows, projected by the constraints of one repair or of all; at most so many let through."""
    table = draw(rows)
    faults = rules.broken(table)
    mended = rules.projected(table, only=only)
    good = ~_any(rules.broken(mended).values())
    repaired = [c.name for c in rules.constraints if only in (None, c.repair)]
    changed = _any(faults[name] for name in repaired) if repaired else np.zeros_like(good)
    return _Batch(
        drawn=rows,
        good=mended.take(np.flatnonzero(good)[:most]),
        refused=int(np.sum(~good)),
        projected=int(np.sum(good & changed)),
        broken={name: int(np.sum(mask)) for name, mask in faults.items()},
    )


def _any(masks: Iterable[Mask]) -> Mask:
    return np.asarray(np.logical_or.reduce([*masks]))
