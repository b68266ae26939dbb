"""A rehearsal as a table for people, and as JSON values for programs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from dpiw import __version__
from dpiw.methods.weights.registry import NONE
from dpiw.plan.rehearsal.candidates import Candidate
from dpiw.plan.rehearsal.populations import KINDS
from dpiw.plan.rehearsal.rehearsal import FLOOR, Rehearsal, Score
from dpiw.plan.rehearsal.scores import MEASURES
from dpiw.plan.rehearsal.summary import RULE, SURE, Change, Line, advise
from dpiw.plan.spec import ReleaseSpec

LEGEND = (
    "mean±standard error over populations, lower is better. Indented: the difference to none,"
    f" paired by population; * better, ! worse {SURE}. TV: total variation of public bins, missing"
    " cells included. W: Wasserstein distance in units of the public range. Coefficients: of the"
    " target on the other columns, the same penalty per row on both sides, squared error over the"
    " truth's squared norm. Means: of the encoded row, error over the truth's norm. ESS share:"
    " effective sample size of the weights, as certified. Stand-in rows: the table itself, a floor"
)

UNFINISHED = "the figures are of the populations that were played before it was stopped"

_NAME, _CELL = 16, 17


def report_lines(
    rehearsal: Rehearsal,
    lines: Sequence[Line],
    *,
    stand_in: str | None = None,
    finished: bool = True,
) -> list[str]:
    """The table and the recommendation, as text.

    Args:
        rehearsal: what was played.
        lines: of `summarise`.
        stand_in: what public rows were resampled; None for random populations.
        finished: whether every population was played; else nothing is recommended.
    """
    report: list[str] = []
    for population in rehearsal.populations:
        description = stand_in if stand_in is not None else KINDS[population].told
        here = [line for line in lines if line.population == population]
        runs = max((sum(line.verdicts.values()) for line in here), default=0)
        report += ["", f"{population}: {description}; {runs} runs"]
        names = [MEASURES[name] for name in rehearsal.scorer.measures]
        report.append(" " * _NAME + "".join(f"{name:<{_CELL}}" for name in names) + "ESS share")
        for line in here:
            report += _table_rows(line)
    advice = advise(lines).text if finished else f"none, for it is unfinished: {UNFINISHED}"
    texts = (LEGEND, f"rule: {RULE}", f"recommendation: {advice.removesuffix('.')}")
    for text in texts:
        report += ["", *textwrap.wrap(f"{text}.", width=100, break_on_hyphens=False)]
    if finished:
        advised_names = advise(lines).named
        report += [
            spec_line
            for c in rehearsal.candidates
            if c.name in advised_names
            for spec_line in _spec_lines(c)
        ]
    return report


def _spec_lines(candidate: Candidate) -> list[str]:
    """What to write into the spec for a candidate that the recommendation names."""
    what = "no" if candidate.name == NONE else f"`{candidate.name}`"
    head = f"to publish {what} weights, in the spec, in the place of its `weights` and `shares`:"
    return ["", head, *(f"  {line}" for line in candidate.spec_lines())]


def candidate_lines(rehearsal: Rehearsal) -> list[str]:
    """What is compared, and what the plans forecast of it."""
    heading = ["candidates, all at the same total (epsilon, delta)"]
    return [*heading, *[_candidate(candidate) for candidate in rehearsal.candidates]]


def _candidate(candidate: Candidate) -> str:
    start = f"  {candidate.name:<{_NAME - 2}}{candidate.told}"
    plan = candidate.plan
    if plan is None:
        return f"{start}; not played: {candidate.reason}"
    if plan.forecast is None:
        return start
    worth = "" if plan.forecast.feasible else ", below the plan's floor: not worth their budget"
    return f"{start}; resolution {plan.forecast.shown}{worth}"


def _table_rows(line: Line) -> list[str]:
    changes = line.changes.values()
    cells = "".join(f"{_pm(change.mean, change.error):<{_CELL}}" for change in changes)
    weighted = line.candidate not in (NONE, FLOOR)
    share = f"{line.ess_share:.2f}" if weighted else ""
    row = [f"  {line.candidate:<{_NAME - 2}}{cells}{share}".rstrip()]
    if not weighted:
        return row
    differences = "".join(
        f"{_pm(c.difference, c.difference_error, sign='+') + _mark(c):<{_CELL}}" for c in changes
    )
    counts = ", ".join(f"{name} {count}" for name, count in sorted(line.verdicts.items()))
    return [
        *row,
        f"{'    - none':<{_NAME}}{differences}".rstrip(),
        f"    {line.outcome}; verdicts: {counts}",
    ]


def _mark(change: Change) -> str:
    return "*" if change.gains else "!" if change.loses else ""


def _pm(value: float, error: float, *, sign: str = "") -> str:
    """`0.312±0.004`: one digit of the error, two if the first is a one."""
    if math.isnan(value):
        return "-"
    if error <= 0:
        return f"{value:{sign}.3g}"
    power = math.floor(math.log10(error))
    decimals = min(9, max(0, (error < 2 * 10.0**power) - power))
    return f"{value:{sign}.{decimals}f}±{error:.{decimals}f}"


def to_json(
    spec: ReleaseSpec,
    rehearsal: Rehearsal,
    scores: Sequence[Score],
    lines: Sequence[Line],
    *,
    finished: bool = True,
) -> dict[str, Any]:
    """Everything a rehearsal found, as JSON values; public. Unfinished, it recommends nothing."""
    advice = advise(lines) if finished else None
    rehearsed_spec = next(c.plan.spec for c in rehearsal.candidates if c.plan is not None)
    return {
        "dpiw": __version__,
        "name": spec.name,
        "epsilon": str(spec.epsilon),
        "delta": str(spec.delta),
        "relation": spec.relation,
        "seed": rehearsal.seed,
        "runs": rehearsal.runs,
        "synthetic_rows": rehearsed_spec.synthetic_rows,
        "stand_in_rows": rehearsed_spec.nominal_rows,
        "pairs_compared": len(rehearsal.scorer.pairs),
        "candidates": [candidate.to_json() for candidate in rehearsal.candidates],
        "summary": [line.to_json() for line in lines],
        "scores": [
            {key: dict(v) if isinstance(v, Mapping) else v for key, v in vars(score).items()}
            for score in scores
        ],
        "rule": RULE,
        "finished": finished,
        "recommended": None if advice is None else advice.candidate,
        "recommendation": UNFINISHED if advice is None else advice.text,
    }
