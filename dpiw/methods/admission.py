"""Admission of generated rows: reject or project rows that break the dictionary's constraints.

Free post-processing; reads no confidential row, and never fails, so no paid measurement is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpiw.data.scaled import ScaledTable
from dpiw.data.schema.constraints import Repair
from dpiw.data.schema.rule_kinds import Mask
from dpiw.data.schema.rules import Rules
from dpiw.methods.weights.diagnostics import Objection, objection

MOST_DRAWN = 16
"""Rows drawn for each one wanted, before the rest are projected."""

_LEAST_DRAWN = 100
"""Least rows drawn at once after the first batch, and least `rows` that `MOST_DRAWN` multiplies."""

MOST_FORCED = 0.5
"""Share of forced rows above which weights are `do not use`."""

ADMITTED = "satisfy declared constraints: "
"""First words of the certificate's step: rows stay independent, and weights keep their noise law
(docs/method.md section 15)."""

RULE = (
    " Constraints: at best `use with care` if rows had to be projected as too few satisfied the"
    f" constraints, or were replaced by rows made of the dictionary; `do not use` if these are more"
    f" than {MOST_FORCED:.0%} of the rows."
)
"""What constraints add to a verdict's rule."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    """How often constraints rejected or changed synthetic rows; public.

    Attributes:
        projected: drawn rows replaced by the nearest rows that satisfy the constraints.
        forced: admitted rows projected onto all constraints because too few passed, or `replaced`.
        replaced: rows that no projection repaired, rebuilt from the dictionary.
        broken: by constraint, rows that broke it as drawn.
    """

    rows: int
    drawn: int
    rejected: int
    projected: int
    forced: int
    replaced: int
    broken: Mapping[str, int]

    @classmethod
    def together(cls, several: Sequence[Admission]) -> Self:
        """Sum over several draws of one model; at least one."""
        names = ("rows", "drawn", "rejected", "projected", "forced", "replaced")
        counts = {name: sum(getattr(admission, name) for admission in several) for name in names}
        broken = {name: sum(a.broken[name] for a in several) for name in several[0].broken}
        return cls(**counts, broken=broken)

    @property
    def steps(self) -> tuple[str, ...]:
        """What was done to the rows, in the certificate's words."""
        shares = ((self.rejected, "rejected"), (self.projected, "projected"))
        rates_text = ", ".join(f"{count / self.drawn:.3g} {what}" for count, what in shares)
        return (
            f"{ADMITTED}of {self.drawn} rows drawn, {rates_text}",
            *(finding.reason for finding in self.findings),
        )

    @property
    def findings(self) -> list[Objection]:
        """By `RULE`: what lowers the verdict on weights below `use`."""
        text = (
            f"{self.forced} of {self.rows} rows were projected onto the constraints, as too few"
            " of those drawn satisfied them"
        )
        if self.replaced:
            text += (
                f"; {self.replaced} of these became rows made of the data dictionary alone, as no"
                " projection repaired them"
            )
        much = self.forced > MOST_FORCED * self.rows
        return objection(self.forced > 0, much, text)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats on the use of the rows."""
        if not self.forced:
            return ()
        text = (
            f"{self.forced} of {self.rows} rows (those that weights are fitted on included) hold"
            " cells that constraints dictate and not the model: they heap at the constraints' edges"
        )
        if self.replaced:
            text += f", and {self.replaced} of them have constrained cells of a few public rows"
        return (f"{text}. Weights of such rows have no noise-aware intervals.",)

    def to_json(self) -> dict[str, Any]:
        """Shares of the rows drawn, and numbers of admitted rows; JSON values."""
        return {
            "drawn": self.drawn,
            "rejected": self.rejected / self.drawn,
            "projected": self.projected / self.drawn,
            "forced": self.forced,
            "replaced": self.replaced,
            "broken": {name: count / self.drawn for name, count in self.broken.items()},
        }


def forced_rows(diagnostics: Mapping[str, Any]) -> str:
    """Constraints that forced rows of a release, by its certificate; empty if none did."""
    bound = diagnostics.get("constraints", {})
    if not bound.get("forced"):
        return ""
    names = ", ".join(name for name, share in bound["broken"].items() if share)
    return f"; {bound['forced']} rows were forced to satisfy {names}"


def admitted(
    draw: Callable[[int], ScaledTable], rows: int, *, rules: Rules | None
) -> tuple[ScaledTable, Admission | None]:
    """Draw rows that satisfy every constraint, and report how often constraints acted.

    Constraints with the repair `project` move a row to the nearest admissible one; rows that still
    break a constraint are redrawn. After `MOST_DRAWN` rows for each row wanted (at least 1,600 in
    all), all constraints project, and `Rules.replaced` replaces rows that stay bad. First calls
    `draw` with exactly `rows`. Reports None if `rules` is None.
    """
    if rules is None or rows == 0:
        return draw(rows), None
    batches = [_batch(draw, rows, rules, only=Repair.PROJECT, most=rows)]
    missing, remaining = rows - batches[0][1].rows, MOST_DRAWN * max(rows, _LEAST_DRAWN) - rows
    while missing and remaining > 0:
        size = min(remaining, 2 * missing + _LEAST_DRAWN)
        batches.append(_batch(draw, size, rules, only=Repair.PROJECT, most=missing))
        missing, remaining = missing - batches[-1][1].rows, remaining - size
    if missing:
        batches.append(_batch(draw, missing, rules, only=None, most=missing))
    tables, admissions = zip(*batches, strict=True)
    return ScaledTable.concatenate([*tables]), Admission.together(admissions)


def _batch(
    draw: Callable[[int], ScaledTable], rows: int, rules: Rules, *, only: Repair | None, most: int
) -> tuple[ScaledTable, Admission]:
    """Project by the constraints of one repair (None: all) and admit the first `most` good rows."""
    table = draw(rows)
    faults = rules.broken(table)
    projected = rules.projected(table, only=only)
    good = ~_any(rules.broken(projected).values())
    repaired = [c.name for c in rules.constraints if only in (None, c.repair)]
    changed = _any(faults[name] for name in repaired) if repaired else np.zeros_like(good)
    let_through, bad = projected.take(np.flatnonzero(good)[:most]), int(np.sum(~good))
    if only is None and bad:
        others = rules.replaced(table.take(~good))
        let_through = ScaledTable.concatenate([let_through, others])
    moved, replaced = int(np.sum(good & changed)), bad if only is None else 0
    return let_through, Admission(
        rows=let_through.rows,
        drawn=rows,
        rejected=bad - replaced,
        projected=moved,
        forced=moved + replaced if only is None else 0,
        replaced=replaced,
        broken={name: int(np.sum(mask)) for name, mask in faults.items()},
    )


def _any(masks: Iterable[Mask]) -> Mask:
    return np.asarray(np.logical_or.reduce([*masks]))
