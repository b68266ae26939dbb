"""What a rehearsal's scores say of each way to spend the budget, by a stated rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.registry import NONE
from dpiw.plan.rehearsal.candidates import OWN
from dpiw.plan.rehearsal.rehearsal import FAILED, FLOOR, Rehearsal, Score
from dpiw.plan.rehearsal.scores import MEASURES, RELATIVE

ERRORS = 2.0
LEAST_SHARE = 0.05
LEAST_GAINS = 2

SURE = f"by more than {ERRORS:g} standard errors and {LEAST_SHARE:.0%} of none's error"
"""Without the second part more runs would make every loss count: weights always take some budget
from the generator."""

RULE = (
    "weights help on a kind of population where, against none at the same total epsilon and paired"
    f" by population, at least {LEAST_GAINS} measures gain {SURE}, and more gain than lose as much;"
    " otherwise they trade where some gain and others lose, and hurt where some lose and none"
    " gains. Recommended are weights that help on every kind with dependence. Rows are"
    " used as their verdict says: unweighted under `do not use`. By chance alone a measure gains"
    " as much at most 3 times in 100 at 20 runs, 6 in 100 at 5"
)

NULL_KINDS = frozenset({"independent"})
"""Kinds without dependence to repair: they show the price, and weights are not asked to help."""

HELPS, TRADES, HURTS, UNCLEAR = "helps", "trades", "hurts", "no clear change"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Mean over populations with its standard error, and the paired difference to `none`.

    Attributes:
        mean, error: of the measure; NaN with fewer than two populations.
        difference, difference_error: to `none`, paired by population; negative is better.
    """

    mean: float
    error: float
    difference: float
    difference_error: float

    @property
    def gains(self) -> bool:
        """Better than none, surely and not by a trifle."""
        return -self.difference > self._least

    @property
    def loses(self) -> bool:
        """Worse than none, surely and not by a trifle."""
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
        population, candidate: names.
        changes: by measure.
        verdicts: how often each was given.
        ess_share: mean, as certified, whatever the verdict.
        paired: populations on which neither it nor `none` failed.
    """

    population: str
    candidate: str
    changes: Mapping[str, Change]
    verdicts: Mapping[str, int]
    ess_share: float
    paired: int

    @property
    def outcome(self) -> str:
        """`helps`, `trades`, `hurts` or `no clear change`, by `RULE`."""
        gained = sum(change.gains for change in self.changes.values())
        lost = sum(change.loses for change in self.changes.values())
        if gained >= LEAST_GAINS and gained > lost:
            return HELPS
        if lost:
            return TRADES if gained else HURTS
        return UNCLEAR

    def to_json(self) -> dict[str, Any]:
        """JSON values; NaN becomes null."""
        return {
            "population": self.population,
            "candidate": self.candidate,
            "measures": {
                name: {key: _finite(value) for key, value in vars(change).items()}
                for name, change in self.changes.items()
            },
            "verdicts": dict(self.verdicts),
            "ess_share": _finite(self.ess_share),
            "paired_populations": self.paired,
            "outcome": self.outcome,
        }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def summarise(rehearsal: Rehearsal, scores: Sequence[Score]) -> list[Line]:
    """One line per kind of population and candidate, in the order they were played."""
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
        paired=len(runs),
    )


def _mean(values: NDArray[np.float64]) -> tuple[float, float]:
    if len(values) < 2:
        return math.nan, math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What the rule says.

    Attributes:
        candidate: to publish with, `none` included.
        text: a sentence or three.
        named: the candidates that the text names, but for the spec's own.
    """

    candidate: str
    text: str
    named: tuple[str, ...]


def advise(lines: Sequence[Line]) -> Advice:
    """Apply `RULE` to every candidate; between equals, the larger mean relative gain decides."""
    weighted = [line for line in lines if line.candidate not in (NONE, FLOOR)]
    kinds = list(dict.fromkeys(line.population for line in weighted))
    asked = [kind for kind in kinds if kind not in NULL_KINDS] or kinds
    of: dict[str, list[Line]] = {}
    for line in weighted:
        of.setdefault(line.candidate, []).append(line)

    def where(name: str, *outcomes: str) -> list[str]:
        there = [line for line in of[name] if line.population in asked]
        return [line.population for line in there if line.outcome in outcomes]

    order = sorted(of, key=lambda name: (-len(where(name, HELPS)), -_gain(of[name], asked)))
    if not order or not where(order[0], HELPS):
        traded = sorted(of, key=lambda name: (-len(where(name, TRADES)), name != OWN))[:1]
        text = "".join(_trade(name, of[name], where(name, TRADES)) for name in traded)
        advised_names = tuple(name for name in traded if where(name, TRADES))
        return _advice(NONE, f"publish none: no weights help.{text}", of, *advised_names)
    best = order[0]
    best_weights = _weights(best)
    helped = _listed(where(best, HELPS))
    price = _price(of[best], asked)
    if len(where(best, HELPS)) < len(asked):
        rest = "".join(
            f"; on {_listed(names)} {word}"
            for names, word in (
                (where(best, TRADES), "they trade some measures for others"),
                (where(best, HURTS, UNCLEAR), "they do not"),
            )
            if names
        )
        text = f"publish none, unless public knowledge says that the table is like {helped}: there"
        verdicts = _verdicts(of[best], where(best, HELPS))
        return _advice(NONE, f"{text} {best_weights} help{rest}.{verdicts}{price}", of, best)
    text = f"publish {best_weights}: they help on {helped}.{_verdicts(of[best], asked)}{price}"
    if best != OWN and OWN in of:
        own_kinds = where(OWN, HELPS)
        text += (
            f" The spec's own help on {_listed(own_kinds)}."
            if own_kinds
            else " The spec's own do not help."
        )
    return _advice(best, text, of)


def _advice(candidate: str, text: str, of: Mapping[str, Any], *others: str) -> Advice:
    """`none` needs no words where the spec has no weights."""
    names = {candidate, *others} - ({OWN} if OWN in of else {OWN, NONE})
    return Advice(candidate=candidate, text=text, named=tuple(sorted(names)))


def _gain(lines: Sequence[Line], asked: Sequence[str]) -> float:
    """Mean relative gain over measures and kinds."""
    gains = [
        -change.difference / change.before
        for line in lines
        if line.population in asked
        for change in line.changes.values()
        if change.before > 0
    ]
    return float(np.mean(gains)) if gains else 0.0


def _trade(name: str, lines: Sequence[Line], kinds: Sequence[str]) -> str:
    """What a candidate gives for what, on the kinds where it does."""
    if not kinds:
        return ""
    changes = [
        (MEASURES[measure], change)
        for line in lines
        if line.population in kinds
        for measure, change in line.changes.items()
    ]
    gained = list(dict.fromkeys(measure for measure, change in changes if change.gains))
    lost = list(dict.fromkeys(measure for measure, change in changes if change.loses))
    return (
        f" {_weights(name).capitalize()} trade on {_listed(kinds)}: better {_listed(gained)},"
        f" worse {_listed(lost)}; they are for analysts who need the former more."
    )


def _weights(name: str) -> str:
    return "the spec's own weights" if name == OWN else f"`{name}` weights"


def _verdicts(lines: Sequence[Line], kinds: Sequence[str]) -> str:
    """How probable a verdict is: the release judges itself, whatever is recommended here."""
    counts: Counter[str] = Counter()
    for line in lines:
        if line.population in kinds:
            counts.update(line.verdicts)
    use, *others = (verdict.value for verdict in Verdict)
    rest = "".join(f", `{name}` in {counts[name]}" for name in (*others, FAILED) if counts[name])
    return (
        f" No promise: of {counts.total()} releases rehearsed there, {counts[use]}"
        f" ({counts[use] / counts.total():.0%}) had the verdict `{use}`{rest and ';'}"
        f"{rest.removeprefix(',')}."
    )


def _price(lines: Sequence[Line], asked: Sequence[str]) -> str:
    """What weights cost where nothing asks for them."""
    for line in lines:
        change = line.changes["one_way"]
        if line.population not in asked and change.difference > ERRORS * change.difference_error:
            return (
                f" The price where there is no dependence ({line.population}): sum of 1-way"
                f" TV {change.before:.3g} -> {change.mean:.3g}."
            )
    return ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else ", ".join(names[:-1]) + f" and {names[-1]}"
