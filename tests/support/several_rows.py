"""Simulated people of several rows each, and releases of them in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dpiw import analysis
from dpiw.analysis.sample import WeightedSample
from dpiw.data.schema import PublicSchema
from dpiw.data.tables import PrivateTable
from dpiw.methods.recipe import play
from dpiw.plan.plan import Plan, compile_plan
from dpiw.privacy.randomness import SeededNoise
from tests.support.played import played_sample
from tests.support.specs import spec

PEOPLE, ROWS_EACH = 800, 5

SCHEMA = {
    "name": "visits",
    "columns": [
        {"name": "person", "role": "identifier"},
        {"name": "age", "kind": "integer", "lower": 18, "upper": 90},
        {"name": "income", "kind": "continuous", "lower": 0, "upper": 10},
        {"name": "region", "kind": "categorical", "levels": ["n", "s", "e"]},
        {"name": "smoker", "kind": "boolean"},
    ],
}

QUESTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda s: analysis.mean(s, "age"),
    lambda s: analysis.mean(s, "income"),
    lambda s: analysis.mean(s, "smoker"),
    lambda s: analysis.value_counts(s, "region"),
    lambda s: analysis.median(s, "age"),
    lambda s: analysis.logistic_regression(s, "smoker", ["age", "region"]),
)


def people_of(count: int, rng: np.random.Generator) -> pd.DataFrame:
    """People, within the schema's bounds."""
    age = np.clip(np.rint(rng.normal(48, 15, count)), 18, 90)
    region = rng.choice(["n", "s", "e"], count, p=[0.5, 0.3, 0.2])
    income = np.clip(np.exp(0.8 + 0.01 * (age - 48) + 0.4 * rng.normal(size=count)), 0, 10)
    chance = 1 / (1 + np.exp(0.5 + 0.03 * (age - 48) - 0.5 * (region == "n")))
    smoker = rng.random(count) < chance
    return pd.DataFrame({"age": age, "income": income, "region": region, "smoker": smoker})


def table_of(rng: np.random.Generator) -> pd.DataFrame:
    """Each person's row, `ROWS_EACH` times."""
    people = people_of(PEOPLE, rng)
    return people.loc[people.index.repeat(ROWS_EACH)].reset_index(drop=True)


@cache
def plan(*, epsilon: str = "4") -> Plan:
    """Of a release with measured weights."""
    weights = {
        "method": "measured", "settings": {"omega_seed": 1, "frequencies": 60},
        "when_infeasible": "keep",
    }  # fmt: skip
    asked = spec(
        name="visits", population="visits", epsilon=epsilon, weights=weights,
        unit={"id_column": "person", "max_rows": ROWS_EACH}, nominal_rows=PEOPLE * ROWS_EACH,
        synthetic_rows=4000, generator={"method": "privbayes"},
    )  # fmt: skip
    return compile_plan(asked, PublicSchema.from_mapping(SCHEMA))


@cache
def truths() -> dict[Callable[[Any], Any], dict[str, float]]:
    """Each question's values by name, of so many people that their error does not matter."""
    people = people_of(1_000_000, np.random.default_rng(20261127))
    found = {question: question((people, None)) for question in QUESTIONS}
    return {
        question: dict(zip(estimate.names, estimate.values, strict=True))
        for question, estimate in found.items()
    }


def released(seed: int) -> tuple[WeightedSample, dict[Callable[[Any], Any], dict[str, float]]]:
    """A release of other people for each seed, and the truth."""
    rng = np.random.default_rng([27, seed])
    recipe = plan().recipe
    table = PrivateTable(schema=recipe.schema, scaled=recipe.schema.scale(table_of(rng)))
    played = play(recipe, table, noise=SeededNoise(int(rng.integers(2**62))), rng=rng)
    return played_sample(played), truths()
