"""A release rehearsed on public stand-ins whose truth is known, before any budget is spent.

Rows are scored as their certificate tells analysts to use them.

Privacy: costs nothing, because source, ledger and state folder are not touched. The noise has a
simulation seed, and no result can be published.
"""

import multiprocessing
import signal
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd

from dpiw.analysis.errors.law import played_sample
from dpiw.analysis.questions import answers
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.errors import WeightError, setting_error
from dpiw.methods.recipe import Fitted, Played, fit, play
from dpiw.methods.weights.diagnostics import Verdict
from dpiw.methods.weights.questions import Question
from dpiw.plan.plan import Plan
from dpiw.plan.rehearsal.candidates import OWN, Candidate
from dpiw.plan.rehearsal.populations import KINDS, TRUTH_ROWS, WeightedRows, random_law
from dpiw.plan.rehearsal.scores import Scorer
from dpiw.privacy.randomness import SeededNoise

LEAST_RUNS = 5
"""Fewest runs for a usable standard error."""

FLOOR = "stand-in rows"
"""The stand-in table itself, scored: a bound for every synthetic table."""

FAILED = "failed"

Place = tuple[int, int]
"""A kind of population by its number, and the run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RehearsedRelease:
    """A release as an analyst would use it.

    Attributes:
        rows: rows with the weights to use, whose sum is one.
        verdict: of the certificate; `none` where rows are published unweighted.
        played: the release itself, with the weights as certified.
    """

    rows: WeightedRows
    verdict: str
    played: Played


@dataclass(frozen=True, kw_only=True)
class Score:
    """One candidate (or `FLOOR`) on one stand-in population.

    Attributes:
        distances: by measure, lower is better (`Scorer.distances`).
        norms: divisors of relative measures (`Scorer.norms`).
        verdict: of the certificate; `none` without weights, `failed` where a stage would fail.
        ess_share: effective sample size of the weights over their number.
        answers: of the spec's own weights, by declared question: half-width of its widest 95%
            interval, and share of its intervals that contain the truth.
    """

    population: str
    run: int
    candidate: str
    distances: Mapping[str, float]
    norms: Mapping[str, float]
    verdict: str
    ess_share: float
    answers: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rehearsal:
    """Everything that decides a rehearsal's result.

    Attributes:
        populations: names of `KINDS`; or one name for `stand_in`, public rows to resample.
        runs: populations of each kind.
        labelled_rows: public rows that a calibration would be fitted on.
        scorer: set here: the measures.
    """

    schema: PublicSchema
    candidates: tuple[Candidate, ...]
    populations: tuple[str, ...]
    stand_in: WeightedRows | None = None
    runs: int
    seed: int
    labelled_rows: int = 0
    scorer: Scorer = field(init=False)

    def __post_init__(self) -> None:
        if self.runs < LEAST_RUNS:
            raise setting_error(self, "runs", f"at least {LEAST_RUNS}")
        if self.seed < 0:
            raise setting_error(self, "seed", "a whole number >= 0")
        unknown = [name for name in self.populations if name not in KINDS]
        if not self.populations or (unknown and self.stand_in is None):
            raise setting_error(self, "populations", f"some of {', '.join(KINDS)}")
        rng = np.random.default_rng([self.seed, 0])
        object.__setattr__(self, "scorer", Scorer.of(self.schema, rng=rng))

    @property
    def places(self) -> list[Place]:
        """Return every (population, run), in order; one unit of work each."""
        return [(p, run) for run in range(self.runs) for p in range(len(self.populations))]

    @property
    def own(self) -> Plan | None:
        """Return the plan with the spec's own weights, if it has some."""
        return next((each.plan for each in self.candidates if each.name == OWN), None)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Return the declared questions, which the spec's own weights measure."""
        return () if self.own is None or self.own.weights is None else self.own.weights.questions


def rehearse(
    rehearsal: Rehearsal, *, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> list[Score]:
    """Play every candidate on every population; the result is the same for any `jobs` (processes).

    `progress` is called after each population with the numbers of those done and of all.
    """
    scores: dict[Place, list[Score]] = {}
    places = rehearsal.places
    with closing(_scores(rehearsal, places, jobs)) as results:
        for place, here in results:
            scores[place] = here
            if progress is not None:
                progress(len(scores), len(places))
    return [score for place in places for score in scores[place]]


def _scores(
    rehearsal: Rehearsal, places: list[Place], jobs: int
) -> Generator[tuple[Place, list[Score]]]:
    """Yield scores as they are ready; an interrupt leaves no process behind."""
    work = partial(_on_one_population, rehearsal)
    if jobs <= 1:
        yield from ((place, work(place)) for place in places)
        return
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(
        max_workers=jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,  # a terminal's Ctrl-C reaches every process
        initargs=(signal.SIGINT, signal.SIG_IGN),
    ) as pool:
        try:
            waiting = {pool.submit(work, place): place for place in places}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            for worker in multiprocessing.active_children():
                if worker not in others:
                    worker.kill()
            raise


def _on_one_population(rehearsal: Rehearsal, place: Place) -> list[Score]:
    """Score all candidates on one table, from the same random numbers."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):  # more threads would round sums differently
        return _play(rehearsal, *place)


def _play(rehearsal: Rehearsal, number: int, run: int) -> list[Score]:
    name, scorer = rehearsal.populations[number], rehearsal.scorer

    def stream(which: int) -> np.random.Generator:
        return np.random.default_rng([rehearsal.seed, 1 + number, run, which])

    rng = stream(0)
    population = rehearsal.stand_in or random_law(rehearsal.schema, KINDS[name], rng=rng)
    size = next(c.plan.spec.nominal_rows for c in rehearsal.candidates if c.plan is not None)
    table = population.draw(size, rng=rng)
    labelled = population.draw(rehearsal.labelled_rows, rng=rng)
    exact = rehearsal.stand_in or WeightedRows.even(population.draw(TRUTH_ROWS, rng=rng))
    truth = scorer.portrait(exact)
    blank = Score(
        population=name, run=run, candidate="", distances={}, norms=scorer.norms(truth),
        verdict="none", ess_share=1.0,
    )  # fmt: skip

    frame = rehearsal.schema.unscale(exact.scaled) if rehearsal.questions else pd.DataFrame()
    known = answers((frame, exact.weights), rehearsal.questions)

    def scored(rows: WeightedRows) -> dict[str, float]:
        return scorer.distances(scorer.portrait(rows), truth)

    fits: dict[str, Fitted] = {}
    scores = [replace(blank, candidate=FLOOR, distances=scored(WeightedRows.even(table)))]
    for candidate in rehearsal.candidates:
        if candidate.plan is None:
            continue
        try:
            release = rehearse_release(
                candidate.plan, table, labelled=labelled, rng=stream(1), fits=fits
            )
        except WeightError:
            scores.append(replace(blank, candidate=candidate.name, verdict=FAILED))
            continue
        diagnostics = release.played.weights.diagnostics
        questions = rehearsal.questions if candidate.name == OWN else ()
        scores.append(
            replace(
                blank,
                candidate=candidate.name,
                distances=scored(release.rows),
                verdict=release.verdict,
                ess_share=diagnostics.effective_sample_size / diagnostics.rows,
                answers=_answers(release.played, known, questions),
            )
        )
    return scores


def _answers(
    played: Played, known: pd.DataFrame, questions: tuple[Question, ...]
) -> dict[str, tuple[float, float]]:
    """Compute `Score.answers` from the true answers; values without an estimate do not count."""
    if not questions:
        return {}
    found, on = answers(played_sample(played), questions), ["question", "value"]
    found = found.merge(known[[*on, "estimate"]], on=on, suffixes=("", "_known")).dropna(
        subset=["estimate", "estimate_known"]
    )
    found["half_width"] = (found["upper"] - found["lower"]) / 2
    found["held"] = found["estimate_known"].between(found["lower"], found["upper"])
    return {
        str(question): (float(lines["half_width"].max()), float(lines["held"].mean()))
        for question, lines in found.groupby("question")
    }


def rehearse_release(
    plan: Plan,
    stand_in: ScaledTable,
    *,
    labelled: ScaledTable,
    rng: np.random.Generator,
    fits: dict[str, Fitted] | None = None,
) -> RehearsedRelease:
    """Make the release of `plan` from public rows, and use it as its verdict says.

    `labelled`: other rows of the same law, for a calibration on public rows; else may be empty.
    `fits`: generators fitted so far to this `stand_in` from this state of `rng`, by the settings
    of their stage; takes the plan's from there, or adds it. The release is the same either way.
    WeightError if a stage would fail.

    Privacy: costs nothing: the rows are public. The noise has the scale that the plan's events
        promise for confidential rows, and is seeded: no result can be published.
    """
    fits = {} if fits is None else fits
    table = PrivateTable(schema=plan.schema, scaled=stand_in)
    noise, stage = SeededNoise(int(rng.integers(2**62))), plan.stages[0].settings
    if stage not in fits:
        fits[stage] = fit(plan.recipe, table, noise=noise)
    release = play(
        plan.recipe.with_public_rows(labelled), table, noise=noise, rng=rng, fitted=fits[stage]
    )
    weights = release.weights
    verdict = "none" if release.estimator is None else weights.diagnostics.verdict.value
    used = np.exp(weights.log_weights - weights.log_weights.max())
    if verdict == Verdict.DO_NOT_USE.value:  # resampled rows cannot be unweighted
        used = np.ones_like(used)
    rows = WeightedRows(scaled=release.rows.scaled, weights=used / used.sum())
    return RehearsedRelease(rows=rows, verdict=verdict, played=release)
