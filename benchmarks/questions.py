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
from dataclasses import dataclass, replace
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


HOW = ("blind", "like", "same")
"""A forecast without an earlier release, or by one of other people and noise: without questions, or
with the same ones."""


@dataclass(frozen=True, kw_only=True, order=True)
class Outlook:
    """The plan's forecasts for one population."""

    source: str
    epsilon: str
    how: str

    @property
    def name(self) -> str:
        """A file name."""
        return f"forecast-{self.source}-{self.epsilon}-{self.how}"


def earlier(cell: Cell, data: Path) -> WeightedRows:
    """An earlier release of this kind."""
    source, plan = source_of(cell.source, data), plan_for(cell, data)
    rng = np.random.default_rng([EARLIER, len(cell.source), int(cell.epsilon)])
    private = PrivateTable(schema=source.schema, scaled=source.draw(rng, cell.source))
    noise = SeededNoise(int(rng.integers(2**62)))
    played = play(plan.recipe, private, noise=noise, rng=rng)
    weights = np.exp(played.weights.log_weights - played.weights.log_weights.max())
    return WeightedRows(
        scaled=played.rows.scaled,
        weights=weights / weights.sum(),
        credit=credit_of(played.weights.facts["measured"]),
    )


def outlook(cell: Outlook, store: Store) -> dict[str, Any]:
    """Of each question: half-width, and by how much widths of its intervals can differ least.

    That is one for whole numbers' quantiles, else 0.
    """

    def made() -> dict[str, Any]:
        kind = Cell(run=0, source=cell.source, epsilon=cell.epsilon, asked=cell.how == "same")
        schema = source_of(cell.source, store.data).schema
        like = None if cell.how == "blind" else earlier(kind, store.data)
        found = {
            str(each.question): [
                each.half_width,
                int(each.question.kind == "quantiles"
                    and schema.column(each.question.target).is_whole),
            ]
            for each in plan_for(replace(kind, asked=True), store.data).forecasts(like)
        }  # fmt: skip
        return vars(cell) | {"found": found}

    return store.kept(cell.name, made, files_of(cell.source, store))


def files_of(source: str, store: Store) -> list[Path]:
    """The file of a source, if it is a table."""
    return [store.data / DATASETS[source].file] if source in DATASETS else []


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
        answered = found[np.isfinite(found["estimate"])].assign(
            half=(found.upper - found.lower) / 2
        )
        widest = answered.sort_values("half").groupby("question").last()
        ends = widest[["half", "verdict"]].to_dict("split")
        return vars(cell) | {
            "kinds": both["question"].str.partition(":")[0].to_list(),
            "ratio": ((both.upper - both.lower) / (both.upper_exact - both.lower_exact)).to_list(),
            "held": both["truth"].between(both.lower, both.upper).to_list(),
            "verdict": both["verdict"].to_list(),
            "widest": dict(zip(ends["index"], ends["data"], strict=True)) if cell.asked else {},
        }

    return store.kept(cell.name, made, files_of(cell.source, store))


def values_of(found: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A line for each value of each answer."""
    parts = [
        pd.DataFrame({name: one[name] for name in ("kinds", "ratio", "held", "verdict")}).assign(
            source=one["source"], epsilon=one["epsilon"], asked=one["asked"]
        )
        for one in found
    ]
    values = pd.concat(parts).rename(columns={"kinds": "kind"})
    return values.assign(ratio=values["ratio"].replace([np.inf, -np.inf], math.nan))


def figures(part: pd.DataFrame) -> dict[str, Any]:
    """Of some values: their number, median width, and shares that held and that may be used."""
    shares = {"held": part["held"].mean(), "use": (part["verdict"] == "use").mean()}
    figures = {"width": part["ratio"].median(), **shares}
    return {"values": len(part)} | {name: float(f"{of:.4g}") for name, of in figures.items()}


def summary(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line for each source, epsilon and kind, with and without questions."""
    keys = ["source", "epsilon", "asked", "kind"]
    return [
        dict(zip(keys, key, strict=True)) | figures(part)
        for key, part in values_of(found).groupby(keys)
    ]


def by_kind(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line for each kind of declared question: of all, and of large populations at epsilon 2."""
    asked = values_of([one for one in found if one["asked"]])
    large = asked[(asked["source"] != "banknote") & (asked["epsilon"] == "2")]
    return [
        {"kind": kind, "all": figures(part), "large": figures(large[large["kind"] == kind])}
        for kind, part in asked.groupby("kind")
    ]


def near(found: Sequence[Mapping[str, Any]], seen: Mapping[str, Any]) -> list[list[float]]:
    """Share of forecasts within 20%, or a step, of the real width, and their number; of `use`."""
    told = []
    for one in found:
        if (one["source"], one["epsilon"]) == (seen["source"], seen["epsilon"]):
            for name, (real, verdict) in one["widest"].items():
                half, step = seen["found"][name]
                is_near = real / 1.2 < half < 1.2 * real or 2 * abs(half - real) <= step
                told.append((is_near, verdict == "use"))
    used = [is_near for is_near, is_use in told if is_use]
    return [[sum(is_near for is_near, _ in told), len(told)], [sum(used), len(used)]]


def page(record: Mapping[str, Any]) -> list[str]:
    """The page of a record."""
    blind, like, same = (
        [f"{close / of:.0%} of {of}" for close, of in record["near"][how]] for how in HOW
    )
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
        f" {blind[0]} cases ({blind[1]} whose widest interval is `use`). With `--like` an earlier"
        f" release, of other people and noise: {like[0]} ({like[1]}) if it had no questions,"
        f" {same[0]} ({same[1]}) if it had the same.",
    ]
    titles = ["declared", "values", "held", "use", "width at epsilon 2, 20,000 people and more"]
    lines += ["", *head([*titles, "held", "use"])]
    for each in record["kinds"]:
        whole, large = each["all"], each["large"]
        shown = [f"{one[of]:.1%}" for one in (whole, large) for of in ("held", "use")]
        lines.append(
            row([each["kind"], whole["values"], *shown[:2], f"{large['width']:.3g}", *shown[2:]])
        )
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
    views = [
        Outlook(source=source, epsilon=epsilon, how=how)
        for how in HOW for source in chosen.sources for epsilon in EPSILONS
    ]  # fmt: skip
    seen = records(views, partial(outlook, store=store), chosen.jobs)
    both = {
        how: np.sum([near(found, one) for one in seen if one["how"] == how], axis=0).tolist()
        for how in HOW
    }
    facts = {"runs": chosen.runs, "near": both, "cells": summary(found), "kinds": by_kind(found)}
    write(out, "questions", {**stamped, **facts}, page, again=chosen.again)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
