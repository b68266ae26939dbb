"""Declared questions: widths, coverage and verdicts with and without them, at equal total epsilon.

    python benchmarks/questions.py --data FOLDER [--jobs 2] [--runs 10]
    python benchmarks/questions.py --page

People are rows of a table, drawn with replacement, and the table's answers are the truth; or they
are drawn from a simulated law, and the answers of a million rows of it are the truth. FOLDER
contains the tables of `weights_cells.DATASETS`. Noise, people and rows are seeded per run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from coverage_populations import POPULATIONS, TRUTH_ROWS, TRUTH_SEED
from provenance import RESULTS, stamp
from study import Store, head, options, parsed, read, records, row, write
from weights_cells import DATASETS, DELTA, table

from dpiw.analysis.errors.law import played_sample
from dpiw.analysis.questions import answers
from dpiw.data.schema.schema import PublicSchema, ScaledTable
from dpiw.data.tables import PrivateTable
from dpiw.methods.recipe import play
from dpiw.methods.weights.questions import parse_questions
from dpiw.plan.plan import Plan, compile_plan
from dpiw.plan.rehearsal.populations import WeightedRows, credit_of
from dpiw.plan.spec import parse_spec
from dpiw.privacy.randomness import SeededNoise

PEOPLE, PUBLISHED = 20_000, 4000
"""Of a simulated population; rows of every release."""

EARLIER = 1_000_003
"""Seed of the earlier releases."""

EPSILONS = ("1", "2", "4")

ASKED: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "adult": (
        {"mean": "hours_per_week by sex", "spread": 12}, {"mean": "age by workclass", "spread": 14},
        {"share": "income by sex"}, {"correlation": ["age", "hours_per_week"], "spread": 14},
        {"regression": "hours_per_week ~ age + education_num + sex", "spread": 12},
        {"quantiles": "age", "spread": 14}, {"table": ["sex", "workclass"]},
        {"mean": "education_num", "spread": 3},
    ),
    "acs": (
        {"mean": "AGEP by SEX"}, {"share": "OWN_RENT by RAC1P"}, {"mean": "POVPIP by OWN_RENT"},
        {"correlation": ["AGEP", "POVPIP"]}, {"regression": "POVPIP ~ AGEP + SEX"},
        {"quantiles": "AGEP"}, {"table": ["HOUSING_TYPE", "SEX"]}, {"mean": "NPF", "spread": 1.5},
    ),
    "banknote": (
        {"mean": "variance by class", "spread": 3}, {"share": "class"},
        {"mean": "entropy", "spread": 2}, {"mean": "skewness by class", "spread": 6},
        {"correlation": ["variance", "skewness"], "spread": 3},
        {"regression": "variance ~ skewness + class", "spread": 3},
        {"quantiles": "variance", "spread": 3}, {"mean": "curtosis", "spread": 4},
    ),
    "skewed": (
        {"mean": "income", "spread": 1}, {"mean": "visits by ill", "spread": 3}, {"share": "ill"},
        {"correlation": ["income", "age"], "spread": 1}, {"mean": "age by ill", "spread": 15},
        {"regression": "income ~ age + visits", "spread": 1}, {"quantiles": "income", "spread": 1},
        {"quantiles": "age", "spread": 15},
    ),
    "town": (
        {"mean": "wage by region", "spread": 8}, {"share": "smoker by region"},
        {"correlation": ["wage", "age"], "spread": 8}, {"quantiles": "wage", "spread": 8},
        {"regression": "wage ~ school + age + smoker", "spread": 8}, {"quantiles": "hours"},
        {"table": ["region", "smoker"]}, {"mean": "hours", "spread": 12},
    ),
}  # fmt: skip
"""Eight questions each. Spreads are round guesses, made before any run."""


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """One release; `asked`: its questions were declared."""

    run: int
    source: str
    epsilon: str
    asked: bool

    @property
    def name(self) -> str:
        """A file name."""
        return f"{self.source}-{self.epsilon}-{'asked' if self.asked else 'general'}-{self.run}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A population, and the answers to its questions."""

    schema: PublicSchema
    people: int
    truth: pd.DataFrame
    rows: ScaledTable | None = None

    def draw(self, rng: np.random.Generator, name: str) -> ScaledTable:
        """People: rows of the table with replacement, or of the law."""
        if self.rows is not None:
            return self.rows.take(rng.integers(0, self.rows.rows, self.people))
        law = next(each for each in POPULATIONS if each.name == name)
        return self.schema.scale(law.draw(self.people, rng))


@lru_cache(maxsize=8)
def source_of(name: str, data: Path) -> Source:
    """The population of that name."""
    if name in DATASETS:
        schema, rows = table(name, data)
        people, frame, kept = rows.rows, schema.unscale(rows), rows
    else:
        law = next(each for each in POPULATIONS if each.name == name)
        schema, people, kept = law.schema, PEOPLE, None
        frame = law.table(TRUTH_ROWS, np.random.default_rng(TRUTH_SEED))
    truth = answers((frame, None), parse_questions(ASKED[name], schema))
    return Source(schema=schema, people=people, truth=truth, rows=kept)


@lru_cache(maxsize=32)
def plan_for(cell: Cell, data: Path) -> Plan:
    """The compiled plan of any run of a cell; the number of people is taken as known."""
    source = source_of(cell.source, data)
    return compile_plan(
        parse_spec(
            {
                "format": 1, "name": "asked", "population": cell.source, "schema": "unused",
                "source": {"path": "unused", "format": "csv"}, "epsilon": cell.epsilon,
                "delta": DELTA, "nominal_rows": source.people, "synthetic_rows": PUBLISHED,
                "generator": {"method": "privbayes"},
                "weights": {"method": "measured", "when_infeasible": "keep"},
                "questions": [*ASKED[cell.source]] if cell.asked else [],
                "state": "unused", "signing_key": "unused", "publish_to": "unused",
            }
        ),
        source.schema,
    )  # fmt: skip


def earlier(name: str, epsilon: str, data: Path) -> WeightedRows:
    """An earlier release without questions, of other people and noise."""
    source, plan = (
        source_of(name, data),
        plan_for(Cell(run=0, source=name, epsilon=epsilon, asked=False), data),
    )
    rng = np.random.default_rng([EARLIER, len(name), int(epsilon)])
    private = PrivateTable(schema=source.schema, scaled=source.draw(rng, name))
    noise = SeededNoise(int(rng.integers(2**62)))
    played = play(plan.recipe, private, noise=noise, rng=rng)
    weights = np.exp(played.weights.log_weights - played.weights.log_weights.max())
    return WeightedRows(
        scaled=played.rows.scaled,
        weights=weights / weights.sum(),
        credit=credit_of(played.weights.facts["measured"]),
    )


@lru_cache(maxsize=32)
def forecasts(name: str, epsilon: str, how: str, data: Path) -> list[tuple[str, float, int]]:
    """Of each declared question: name, half-width, and the least step of its intervals' widths.

    The step is that of whole numbers' quantiles; else 0.
    """
    plan = plan_for(Cell(run=0, source=name, epsilon=epsilon, asked=True), data)
    found, schema = [], source_of(name, data).schema
    for each in plan.forecasts(earlier(name, epsilon, data) if how == "like" else None):
        asked = each.question
        is_whole = asked.kind == "quantiles" and schema.column(asked.target).is_whole
        found.append((str(asked), each.half_width, int(is_whole)))
    return found


def compute(cell: Cell, store: Store) -> dict[str, Any]:
    """The cell's answers: from the store, or made and kept."""

    def made() -> dict[str, Any]:
        source, plan = source_of(cell.source, store.data), plan_for(cell, store.data)
        seed = [cell.run, len(cell.source), int(cell.epsilon)]
        rng = np.random.default_rng(seed)
        people = source.draw(rng, cell.source)
        private = PrivateTable(schema=source.schema, scaled=people)
        noise = SeededNoise(int(rng.integers(2**62)))
        sample = played_sample(play(plan.recipe, private, noise=noise, rng=rng))
        questions = parse_questions(ASKED[cell.source], source.schema)
        found = answers(sample, questions)
        exact = answers((source.schema.unscale(people), None), questions)
        both = found.merge(exact, on=["question", "value"], suffixes=("", "_exact"))
        both = both.merge(source.truth[["question", "value", "estimate"]].rename(
            columns={"estimate": "truth"}), on=["question", "value"])  # fmt: skip
        answered = found[np.isfinite(found["estimate"])].assign(half=found.upper - found.lower)
        widest = answered.sort_values("half").groupby("question").last()
        near = {
            how: [
                [2 * half / widest["half"][name], widest["verdict"][name],
                 bool(abs(2 * half - widest["half"][name]) <= step)]
                for name, half, step in forecasts(cell.source, cell.epsilon, how, store.data)
            ]
            for how in ("blind", "like") if cell.asked
        }  # fmt: skip
        return vars(cell) | {
            "kinds": both["question"].str.partition(":")[0].to_list(),
            "ratio": ((both.upper - both.lower) / (both.upper_exact - both.lower_exact)).to_list(),
            "held": both["truth"].between(both.lower, both.upper).to_list(),
            "verdict": both["verdict"].to_list(),
            "forecast": near,
        }

    data = [store.data / DATASETS[cell.source].file] if cell.source in DATASETS else []
    return store.kept(cell.name, made, data)


def summary(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line for each source, epsilon and kind, with and without questions."""
    parts = [
        pd.DataFrame({name: one[name] for name in ("kinds", "ratio", "held", "verdict")}).assign(
            source=one["source"], epsilon=one["epsilon"], asked=one["asked"]
        )
        for one in found
    ]
    lines = []
    for key, part in pd.concat(parts).groupby(["source", "epsilon", "asked", "kinds"]):
        finite = part["ratio"].replace([np.inf, -np.inf], math.nan).dropna()
        lines.append(
            dict(zip(("source", "epsilon", "asked", "kind"), key, strict=True))
            | {
                "values": len(part), "width": float(f"{finite.median():.4g}"),
                "held": float(f"{part['held'].mean():.4g}"),
                "use": float(f"{(part['verdict'] == 'use').mean():.4g}"),
            }
        )  # fmt: skip
    return lines


def near(found: Sequence[Mapping[str, Any]], how: str) -> list[list[float]]:
    """Share of forecasts within 20%, or a step, of the real width, and their number; of `use`."""
    told = [one for each in found for one in each["forecast"].get(how, ())]
    used = [one for one in told if one[1] == "use"]
    return [
        [float(np.mean([1 / 1.2 < ratio < 1.2 or beside for ratio, _, beside in part])), len(part)]
        for part in (told, used)
    ]


def page(record: Mapping[str, Any]) -> list[str]:
    """The page of a record."""
    blind, like = record["near"]["blind"], record["near"]["like"]
    lines = [
        "# Declared questions, at equal total epsilon",
        "",
        f"`{record['command']}`, dpiw {record['dpiw']} ({record['commit']}). PrivBayes with"
        f" `measured` weights at their defaults, {PUBLISHED} rows published, {record['runs']} runs;"
        " the same eight questions are asked of both releases. People: rows of the table with"
        f" replacement, as many as it has; {PEOPLE:,} of a simulated population (`skewed`,"
        " `town`).",
        "",
        "- width: median over values and runs of the interval's width over that of the same people"
        " without privacy. held: share of 95% intervals that contain the truth. use: share with"
        " that verdict.",
        "- The plan's forecast of a question's widest interval is within a factor of 1.2 of the"
        " real width, or a whole number (the least step) for quantiles of whole numbers, in"
        f" {blind[0][0]:.0%} of {blind[0][1]:.0f} cases; for people like those of an"
        f" earlier release (`--like`; other people and noise, no questions) in {like[0][0]:.0%},"
        f" and in {like[1][0]:.0%} of the {like[1][1]:.0f} whose widest interval is `use`.",
    ]
    for name in dict.fromkeys(cell["source"] for cell in record["cells"]):
        lines += ["", f"## {name}", ""]
        titles = ["epsilon", "kind", "values", "width, general", "width, asked"]
        lines += head([*titles, "held, general", "held, asked", "use, general", "use, asked"])
        own = [cell for cell in record["cells"] if cell["source"] == name]
        for key in dict.fromkeys((cell["epsilon"], cell["kind"]) for cell in own):
            general, asked = (
                next(c for c in own if (c["epsilon"], c["kind"], c["asked"]) == (*key, declared))
                for declared in (False, True)
            )
            shown = [f"{one['width']:.3g}" for one in (general, asked)]
            shown += [f"{one[of]:.0%}" for of in ("held", "use") for one in (general, asked)]
            lines.append(row([*key, asked["values"], *shown]))
    return lines


def main(arguments: list[str]) -> int:
    parser = options(__doc__, "questions")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--sources", nargs="+", default=[*ASKED], choices=[*ASKED])
    chosen = parsed(parser, arguments)
    out = chosen.out or RESULTS
    if chosen.page:
        write(out, "questions", read(out, "questions"), page)
        return 0
    store = Store(folder=chosen.cache.resolve(), data=chosen.data.resolve())
    grid = [
        Cell(run=run, source=source, epsilon=epsilon, asked=asked)
        for run in range(chosen.runs) for source in chosen.sources for epsilon in EPSILONS
        for asked in (False, True)
    ]  # fmt: skip
    stamped = stamp(f"python benchmarks/questions.py --data FOLDER --runs {chosen.runs}")
    found = records(grid, partial(compute, store=store), chosen.jobs)
    both = {how: near(found, how) for how in ("blind", "like")}
    facts = {"runs": chosen.runs, "near": both, "cells": summary(found)}
    write(out, "questions", {**stamped, **facts}, page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
