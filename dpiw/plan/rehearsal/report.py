"""A rehearsal's scores as one table, and one recommendation by a stated rule."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.registry import NONE
from dpiw.plan.rehearsal.candidates import OWN
from dpiw.plan.rehearsal.rehearsal import FAILED, FLOOR, Rehearsal, Score
from dpiw.plan.rehearsal.scores import MEASURES, RELATIVE

ERRORS = 2.0
LEAST_SHARE = 0.05
"""Least share of `none`'s error; by chance a measure gains 3 times in 100 at 20 runs, 6 at 5."""

LEAST_GAINS = 2
"""Measures that must gain before weights help."""

NULL_KINDS = frozenset({"independent"})
"""Kinds without dependence to repair: they show the price, and weights are not asked to help."""

HELPS, TRADES, HURTS, UNCLEAR = "helps", "trades", "hurts", "no clear change"

LEGEND = (
    f"lower is better; * better, ! worse than none by over {ERRORS:g} standard errors and"
    f" {LEAST_SHARE:.0%} of its error; USE: releases with the verdict `use`"
)

ASKED = (
    "declared questions: half-width of the widest 95% interval, forecast and played (median);"
    " held: share of the intervals that contained the truth"
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """Mean and standard error (NaN with fewer than two populations), and the change from `none`.

    Paired by population; a negative `difference` is better.
    """

    mean: float
    error: float
    difference: float
    difference_error: float

    @property
    def gains(self) -> bool:
        """Whether it is better than `none`, by the rule of `ERRORS`."""
        return -self.difference > self._least

    @property
    def loses(self) -> bool:
        """Whether it is worse than `none`, by the rule of `ERRORS`."""
        return self.difference > self._least

    @property
    def _least(self) -> float:
        # NaN where there are no figures: every comparison is then false.
        return float(np.maximum(ERRORS * self.difference_error, LEAST_SHARE * self.before))

    @property
    def before(self) -> float:
        """The mean of `none`."""
        return self.mean - self.difference


@dataclass(frozen=True, kw_only=True)
class Line:
    """One candidate on one kind of population.

    Attributes:
        verdicts: how often each was given.
        ess_share: mean, as certified, whatever the verdict.
    """

    population: str
    candidate: str
    changes: Mapping[str, Change]
    verdicts: Mapping[str, int]
    ess_share: float

    @property
    def outcome(self) -> str:
        """`helps`: `LEAST_GAINS` gains, and fewer losses; `trades`: both; `hurts`: losses only."""
        gained = sum(change.gains for change in self.changes.values())
        lost = sum(change.loses for change in self.changes.values())
        if gained >= LEAST_GAINS and gained > lost:
            return HELPS
        if lost:
            return TRADES if gained else HURTS
        return UNCLEAR


def summarise(rehearsal: Rehearsal, scores: Sequence[Score]) -> list[Line]:
    """Return a line per kind of population and candidate, in the order they were played."""
    lines = []
    for population in rehearsal.populations:
        here = [score for score in scores if score.population == population]
        for name in dict.fromkeys(score.candidate for score in here):
            lines.append(_line(rehearsal.scorer.measures, population, name, here))
    return lines


def _line(measures: Iterable[str], population: str, name: str, here: list[Score]) -> Line:
    scores = {score.run: score for score in here if score.candidate == name}
    base = {score.run: score for score in here if score.candidate == NONE}
    runs = [run for run in scores if FAILED not in (scores[run].verdict, base[run].verdict)]
    changes = {}
    for measure in measures:
        norms = [score.norms[measure] for score in base.values() if measure in RELATIVE]
        scale = max(float(np.mean(norms)), 1e-300) if norms else 1.0
        values = np.array([scores[run].distances[measure] for run in runs]) / scale
        others = np.array([base[run].distances[measure] for run in runs]) / scale
        mean, error = _mean(values)
        difference, difference_error = _mean(values - others)
        changes[measure] = Change(
            mean=mean, error=error, difference=difference, difference_error=difference_error
        )
    return Line(
        population=population,
        candidate=name,
        changes=changes,
        verdicts=Counter(score.verdict for score in scores.values()),
        ess_share=float(np.mean([scores[run].ess_share for run in runs])) if runs else math.nan,
    )


def _mean(values: NDArray[np.float64]) -> tuple[float, float]:
    if len(values) < 2:
        return math.nan, math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def recommended(lines: Sequence[Line]) -> str:
    """Return the weights that help on every kind with dependence, by mean gain; or `none`."""
    weighted = [line for line in lines if line.candidate not in (NONE, FLOOR)]
    by_candidate: dict[str, list[Line]] = {}
    for line in [line for line in weighted if line.population not in NULL_KINDS] or weighted:
        by_candidate.setdefault(line.candidate, []).append(line)
    gains = {
        name: _gain(own)
        for name, own in by_candidate.items()
        if all(line.outcome == HELPS for line in own)
    }
    return max(gains, key=gains.__getitem__, default=NONE)


def _gain(lines: Sequence[Line]) -> float:
    gains = [
        -change.difference / change.before
        for line in lines
        for change in line.changes.values()
        if change.before > 0
    ]
    return float(np.mean(gains)) if gains else 0.0


def table_rows(rehearsal: Rehearsal, lines: Sequence[Line]) -> list[list[str]]:
    """Return the heads, and a row per kind of population and candidate: its means and outcome."""
    heads = [MEASURES[name] for name in rehearsal.scorer.measures]
    return [["population", "plan", *heads, "ESS share", "USE", ""], *map(_row, lines)]


def _row(line: Line) -> list[str]:
    cells = [_cell(change) for change in line.changes.values()]
    row = [line.population, line.candidate, *cells]
    if line.candidate in (NONE, FLOOR):
        return [*row, "", "", ""]
    if {*line.verdicts} == {NONE}:  # unweighted rows of another generator
        return [*row, "", "", line.outcome]
    use = f"{line.verdicts.get(Verdict.USE.value, 0)}/{sum(line.verdicts.values())}"
    return [*row, f"{line.ess_share:.2f}", use, line.outcome]


def _cell(change: Change) -> str:
    """Write `0.312±0.004*`: one digit of the error, two if the first is a one."""
    if math.isnan(change.mean):
        return "-"
    mark = "*" if change.gains else "!" if change.loses else ""
    if change.error <= 0:
        return f"{change.mean:.3g}{mark}"
    power = math.floor(math.log10(change.error))
    decimals = min(9, max(0, (change.error < 2 * 10.0**power) - power))
    return f"{change.mean:.{decimals}f}±{change.error:.{decimals}f}{mark}"


def generator_lines(rehearsal: Rehearsal) -> list[str]:
    """Return which generator the spec has, and which others were played; empty without others."""
    played = [c for c in rehearsal.candidates if c.plan is not None]
    others = [f"`{candidate.name}`" for candidate in played if candidate.is_generator]
    own = next((c.plan.generator.method for c in played if c.plan and not c.is_generator), "")
    also = f"{', '.join(others)}: the spec with that generator"
    return [f"rows are of the spec's generator, `{own}`; {also}"] if others else []


def question_rows(rehearsal: Rehearsal, scores: Sequence[Score]) -> list[list[str]]:
    """Return the heads, and a row per kind of population and declared question, as `ASKED` says.

    Empty without questions.
    """
    if rehearsal.own is None or not rehearsal.questions:
        return []
    forecasts = rehearsal.own.forecasts(rehearsal.stand_in)
    rows = [["population", "question", "forecast", "played", "held"]]
    for population in rehearsal.populations:
        here = [score.answers for score in scores if score.population == population]
        for forecast in forecasts:
            name = str(forecast.question)
            found = [answers[name] for answers in here if name in answers]
            played = float(np.median([half for half, _ in found])) if found else math.nan
            held = f"{np.mean([share for _, share in found]):.0%}" if found else "-"
            shown = ("-" if math.isnan(h) else f"±{h:.3g}" for h in (forecast.half_width, played))
            rows.append([population, name, *shown, held])
    return rows


def recommendation_lines(rehearsal: Rehearsal, lines: Sequence[Line], *, spec: str) -> list[str]:
    """Return what was not played, the recommendation, its lines for the spec, and what to type."""
    unplayed = [
        f"`{candidate.name}` weights were not played: {candidate.reason}"
        for candidate in rehearsal.candidates
        if candidate.plan is None
    ]
    name = recommended(lines)
    known = {candidate.name: candidate for candidate in rehearsal.candidates}
    is_generator = name in known and known[name].is_generator
    own = "the spec's own weights"
    weights = {OWN: own, NONE: "no weights"}.get(name, f"`{name}` weights")
    if is_generator:
        weights = f"rows of `{name}`, with {own if OWN in known else 'no weights'}"
    why = "none help" if name == NONE else "they help"
    text = f"recommendation: publish {weights}: {why} wherever columns depend on each other"
    if name == (OWN if OWN in known else NONE):
        return [*unplayed, text, f"next: dpiw plan {spec}"]
    replaced = "`generator`, `weights`" if is_generator else "`weights`"
    return [
        *unplayed,
        text,
        f"next: dpiw plan {spec}, after these lines replaced its {replaced} and `shares`:",
        *(f"  {line}" for line in known[name].spec_lines()),
    ]
