"""Simulated populations with known truth for `coverage.py`: laws, schemas and estimands.

Truth is each estimand on 1,000,000 rows of the same law, passed through the schema's clamp: its
own error is below a twentieth of the interval widths at 4,000 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpiw import analysis
from dpiw.data.schema.schema import PublicSchema

TRUTH_ROWS, TRUTH_SEED = 1_000_000, 20261121


@dataclass(frozen=True, kw_only=True)
class Population:
    """A law, its public schema, and what analysts ask of it.

    Of a law whose people have several rows `max_rows` is how many, and `draw` still takes rows.
    """

    name: str
    schema: PublicSchema
    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    estimands: Mapping[str, Callable[[Any], Any]]
    max_rows: int = 1

    def table(self, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        """`rows` rows as the schema clamps them."""
        return self.schema.unscale(self.schema.scale(self.draw(rows, rng)))


def _schema(name: str, *columns: dict[str, Any]) -> PublicSchema:
    return PublicSchema.from_mapping({"name": name, "columns": list(columns)})


def _number(name: str, lower: float, upper: float, **options: Any) -> dict[str, Any]:
    return {"name": name, "kind": "continuous", "lower": lower, "upper": upper, **options}


def _whole(name: str, lower: int, upper: int, **options: Any) -> dict[str, Any]:
    return {"name": name, "kind": "integer", "lower": lower, "upper": upper, **options}


def _levels(name: str, levels: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "kind": "categorical", "levels": list(levels), **options}


def _flag(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "kind": "boolean", **options}


def _logistic(t: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-t))


def tilt(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """A log-linear law: exponentials truncated to [0, 1], levels and a flag, independent."""
    u = rng.random((rows, 3))
    rate = np.array([2.0, -1.5, 0.8])
    x = np.log1p(u * np.expm1(rate)) / rate
    return pd.DataFrame({
        "a": x[:, 0], "b": x[:, 1], "c": x[:, 2],
        "g": rng.choice(list("pqr"), rows, p=[0.6, 0.3, 0.1]),
        "y": rng.random(rows) < 0.35,
    })  # fmt: skip


def correlated(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Correlated normals and a logistic outcome."""
    cov = 0.5 * np.ones((3, 3)) + 0.5 * np.eye(3)
    x = rng.multivariate_normal(np.zeros(3), cov, rows)
    y = rng.random(rows) < _logistic(-0.4 + x[:, 0] - 0.6 * x[:, 1])
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})


def interaction(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """The slope of z on x depends on a group; the outcome on their product."""
    g = rng.choice(list("pqr"), rows, p=[0.5, 0.3, 0.2])
    x = rng.uniform(-1, 1, rows)
    slope = np.select([g == "p", g == "q"], [0.8, -0.8], 0.0)
    z = slope * x + rng.normal(0, 0.4, rows)
    y = rng.random(rows) < _logistic(-0.2 + 2.0 * x * (g == "p") - 1.0 * (g == "r"))
    return pd.DataFrame({"x": x, "z": z, "g": g, "y": y})


def mixture(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Two clusters that a category hints at."""
    k = rng.random(rows) < 0.4
    x = np.where(k, rng.normal(1.2, 0.5, rows), rng.normal(-0.8, 0.6, rows))
    z = np.where(k, rng.normal(-0.7, 0.5, rows), rng.normal(0.6, 0.7, rows))
    hint = np.where(rng.random(rows) < 0.8, k, ~k)
    n = rng.poisson(np.where(k, 6.0, 2.5))
    return pd.DataFrame({"x": x, "z": z, "n": n, "h": np.where(hint, "p", "q"), "y": k})


def skewed(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Incomes, counts with many zeros, and cells that are missing more often for some."""
    age = np.clip(rng.gamma(9, 5, rows), 18, 95).round()
    income = np.exp(rng.normal(0.2 + 0.012 * (age - 45), 0.6, rows))
    visits = np.where(rng.random(rows) < 0.5, 0, rng.poisson(1 + 0.05 * (age - 18)))
    gone = rng.random(rows) < _logistic(-2 + 0.03 * (age - 45))
    ill = rng.random(rows) < _logistic(-2.5 + 0.04 * (age - 45) + 0.15 * visits)
    return pd.DataFrame({
        "age": age, "income": pd.Series(income).mask(gone), "visits": visits, "ill": ill,
    })  # fmt: skip


def town(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Six mixed columns with weak to middling dependence."""
    region = rng.choice(list("nsew"), rows, p=[0.35, 0.3, 0.2, 0.15])
    shift = np.select([region == "n", region == "s"], [1.0, -1.0], 0.0)
    school = np.clip(rng.binomial(4, _logistic(0.4 * shift)), 0, 4)
    age = np.clip(rng.normal(45 - 2 * school, 15, rows), 18, 90).round()
    hours = np.clip(rng.normal(36 - 0.2 * np.maximum(age - 60, 0), 8), 0, 70).round()
    wage = np.exp(rng.normal(2.4 + 0.12 * school + 0.004 * (age - 40), 0.35, rows))
    smoker = rng.random(rows) < _logistic(-0.3 - 0.35 * school + 0.3 * shift)
    return pd.DataFrame({
        "region": region, "school": school, "age": age, "hours": hours, "wage": wage,
        "smoker": smoker,
    })  # fmt: skip


VISITS = 5
"""Rows of each person of `visits` and `wards`."""


def _repeated(people: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Each person's row `VISITS` times; of fewer people than rows."""
    return people.loc[np.repeat(people.index, VISITS)[:rows]].reset_index(drop=True)


def visits(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Five visits a person: all but the number of drugs a person has once."""
    people = -(-rows // VISITS)
    age = np.clip(rng.normal(48, 15, people), 18, 90).round()
    region = rng.choice(list("nsew"), people, p=[0.4, 0.3, 0.2, 0.1])
    income = np.exp(0.8 + 0.01 * (age - 48) + 0.4 * rng.normal(size=people))
    smoker = rng.random(people) < _logistic(-0.5 - 0.03 * (age - 48) + 0.5 * (region == "n"))
    table = _repeated(
        pd.DataFrame({"age": age, "income": income, "region": region, "smoker": smoker}), rows
    )
    return table.assign(drugs=rng.poisson(2 + 0.04 * (table["age"] - 18)))


def wards(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Five measurements a person: half of their variance is between people, half within."""
    people = -(-rows // VISITS)
    health = rng.normal(size=people)
    ward = np.array(list("abc"))[np.searchsorted([-0.5, 0.7], health + rng.normal(size=people))]
    table = _repeated(pd.DataFrame({"health": health, "ward": ward}), rows)
    both = (table["health"] + rng.normal(size=rows)) / 2**0.5
    return pd.DataFrame({
        "ward": table["ward"], "pulse": 75 + 11 * both,
        "score": 50 + 6 * both + 8 * rng.normal(size=rows),
        "fever": rng.random(rows) < _logistic(-0.8 + 0.9 * both),
    })  # fmt: skip


def _asked(function: Any) -> Callable[..., Callable[[Any], Any]]:
    return lambda *words: lambda source: function(source, *words)


def _fit(function: Any) -> Callable[..., Callable[[Any], Any]]:
    return lambda target, *features: lambda source: function(source, target, features)


_mean, _quantile = _asked(analysis.mean), _asked(analysis.quantile)
_correlation = _asked(analysis.correlation)
_linear, _logit = map(_fit, (analysis.linear_regression, analysis.logistic_regression))


POPULATIONS = (
    Population(
        name="tilt", draw=tilt,
        schema=_schema("tilt", _number("a", 0, 1), _number("b", 0, 1), _number("c", 0, 1),
                       _levels("g", "pqr"), _flag("y", role="target")),
        estimands={"mean": _mean("a"), "share": _mean("y"), "median": _quantile("b", 0.5),
                   "q90": _quantile("c", 0.9),
                   "correlation": _correlation("a", "b"),
                   "linear": _linear("a", "b", "g"),
                   "logistic": _logit("y", "a", "c"), "multinomial": _logit("g", "a", "b")},
    ),
    Population(
        name="correlated", draw=correlated,
        schema=_schema("correlated", *[_number(c, -3.5, 3.5) for c in "abc"],
                       _flag("y", role="target")),
        estimands={"mean": _mean("a"), "share": _mean("y"), "median": _quantile("b", 0.5),
                   "q90": _quantile("c", 0.9),
                   "correlation": _correlation("a", "b"),
                   "linear": _linear("a", "b", "c"),
                   "logistic": _logit("y", "a", "b")},
    ),
    Population(
        name="interaction", draw=interaction,
        schema=_schema("interaction", _number("x", -1, 1), _number("z", -2.2, 2.2),
                       _levels("g", "pqr"), _flag("y", role="target")),
        estimands={"mean": _mean("z"), "share": _mean("y"),
                   "group_mean": lambda s: analysis.mean(s, "y", where=lambda t: t["g"] == "p"),
                   "median": _quantile("z", 0.5), "q90": _quantile("z", 0.9),
                   "correlation": _correlation("x", "z"),
                   "linear": _linear("z", "x", "g"),
                   "logistic": _logit("y", "x", "g"), "multinomial": _logit("g", "x", "z")},
    ),
    Population(
        name="mixture", draw=mixture,
        schema=_schema("mixture", _number("x", -3.0, 3.0), _number("z", -2.6, 2.8),
                       _whole("n", 0, 15), _levels("h", "pq"), _flag("y", role="target")),
        estimands={"mean": _mean("x"), "count": _mean("n"), "share": _mean("y"),
                   "median": _quantile("x", 0.5), "q90": _quantile("z", 0.9),
                   "correlation": _correlation("x", "z"),
                   "linear": _linear("x", "z", "n"),
                   "logistic": _logit("y", "x", "h")},
    ),
    Population(
        name="skewed", draw=skewed,
        schema=_schema("skewed", _whole("age", 18, 95), _number("income", 0, 8, nullable=True),
                       _whole("visits", 0, 12), _flag("ill", role="target")),
        estimands={"mean": _mean("income"), "count": _mean("visits"), "share": _mean("ill"),
                   "median": _quantile("income", 0.5), "q90": _quantile("income", 0.9),
                   "correlation": _correlation("income", "age"),
                   "linear": _linear("income", "age"),
                   "logistic": _logit("ill", "age", "visits")},
    ),
    Population(
        name="town", draw=town,
        schema=_schema("town", _levels("region", "nsew"), _whole("school", 0, 4),
                       _whole("age", 18, 90), _whole("hours", 0, 70), _number("wage", 0, 50),
                       _flag("smoker", role="target")),
        estimands={"mean": _mean("wage"), "hours": _mean("hours"), "share": _mean("smoker"),
                   "median": _quantile("wage", 0.5), "q90": _quantile("wage", 0.9),
                   "correlation": _correlation("wage", "age"),
                   "linear": _linear("wage", "school", "age"),
                   "logistic": _logit("smoker", "school", "region"),
                   "multinomial": _logit("region", "school", "smoker")},
    ),
)  # fmt: skip


_PERSON = {"name": "person", "role": "identifier"}

SEVERAL = (
    Population(
        name="visits", draw=visits, max_rows=VISITS,
        schema=_schema("visits", _PERSON, _whole("age", 18, 90), _number("income", 0, 10),
                       _levels("region", "nsew"), _flag("smoker", role="target"),
                       _whole("drugs", 0, 20)),
        estimands={"mean": _mean("age"), "count": _mean("drugs"), "share": _mean("smoker"),
                   "hours": _mean("income"), "median": _quantile("age", 0.5),
                   "q90": _quantile("income", 0.9),
                   "correlation": _correlation("income", "age"),
                   "linear": _linear("income", "age"),
                   "logistic": _logit("smoker", "age", "region")},
    ),
    Population(
        name="wards", draw=wards, max_rows=VISITS,
        schema=_schema("wards", _PERSON, _levels("ward", "abc"), _number("pulse", 30, 120),
                       _number("score", 0, 100), _flag("fever", role="target")),
        estimands={"mean": _mean("pulse"), "count": _mean("score"), "share": _mean("fever"),
                   "median": _quantile("pulse", 0.5), "q90": _quantile("score", 0.9),
                   "correlation": _correlation("pulse", "score"),
                   "linear": _linear("score", "pulse", "ward"),
                   "logistic": _logit("fever", "pulse")},
    ),
)  # fmt: skip
"""800 people in 4,000 rows, on which nothing was chosen."""

EVERY = (*POPULATIONS, *SEVERAL)


def truth(population: Population) -> dict[str, float]:
    """Every estimand's value on `TRUTH_ROWS` rows of the law."""
    table = population.table(TRUTH_ROWS, np.random.default_rng(TRUTH_SEED))
    values: dict[str, float] = {}
    for name, estimand in population.estimands.items():
        estimate = estimand((table, None))
        for label, value in zip(estimate.names, estimate.values, strict=True):
            if not label.endswith("intercept"):
                key = name if estimate.values.size == 1 else f"{name}.{label}"
                values[key] = float(value)
    return values
