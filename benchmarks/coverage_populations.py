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
from dpiw.data.schema import PublicSchema

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


def estate(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Skewed incomes, wealth with a heavy tail that follows them, and a score of five steps."""
    g = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    age = np.clip(np.rint(rng.normal(40 + 5 * g, 14, rows)), 0, 110)
    z = rng.normal(size=rows)
    income = np.clip(np.exp(2 + 0.6 * z + 0.01 * (age - 40)), 0, 100)
    wealth = -5 + 0.5 * income * np.exp(0.8 * rng.normal(size=rows)) + 20 * (age > 55)
    score = np.clip(np.rint(3.05 + 0.35 * z + 0.3 * rng.normal(size=rows) + 0.2 * (g == 2)), 1, 5)
    ill = rng.random(rows) < _logistic(-1 + 0.04 * (age - 40) - 0.5 * z * (g != 1))
    return pd.DataFrame({
        "income": income, "wealth": np.clip(wealth, -50, 500), "age": age, "score": score,
        "g": np.array(list("abc"))[g], "ill": ill,
    })  # fmt: skip


def factors(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Two hidden factors behind a skewed, a two-humped, a bent and a counted column."""
    f, noise = rng.normal(size=(rows, 2)), rng.normal(size=(rows, 4))
    loads = np.array([[0.9, -0.6], [0.2, 0.7], [-0.5, 0.8], [1.0, 0.4]])
    z = f @ loads.T + 0.5 * noise
    y = rng.random(rows) < _logistic(-0.3 - 0.8 * z[:, 0] + 0.5 * z[:, 1])
    return pd.DataFrame({
        "skewed": np.exp(0.6 * z[:, 0]), "humps": z[:, 1] + 2 * np.sign(f[:, 0]),
        "bent": 0.6 * z[:, 2] ** 2 + 0.3 * z[:, 2],
        "count": rng.poisson(np.exp(np.clip(0.5 + 0.5 * z[:, 3], -3, 3))).astype(float),
        "g": np.array(list("pqr"))[np.searchsorted([-0.3, 0.8], f[:, 1])], "y": y,
    })  # fmt: skip


def pupils(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Pupils of five schools: scores that rise with the grade, and days that most never miss."""
    school = rng.choice(5, rows, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    grade = rng.integers(1, 13, rows)
    home = rng.binomial(4, _logistic(0.6 * (school - 1.5)))
    gift = rng.normal(size=rows)
    reading = 30 + 3.5 * grade + 3 * home + 9 * gift + 6 * rng.normal(size=rows)
    maths = 25 + 3 * grade + 2 * school + 8 * gift + (4 + 0.5 * grade) * rng.normal(size=rows)
    absent = np.where(rng.random(rows) < 0.35, 0, rng.geometric(0.12, rows) - 1)
    passed = rng.random(rows) < _logistic(-2 + 0.06 * (maths - 20) - 0.08 * absent)
    return pd.DataFrame({
        "grade": grade, "school": np.array(list("abcde"))[school], "home": home,
        "reading": reading, "maths": maths, "absent": absent, "passed": passed,
    })  # fmt: skip


def clinic(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Patients: pressure that bends with age, a marker of two groups, and a rare event."""
    age = np.clip(rng.normal(58, 16, rows), 18, 100).round()
    smoker = rng.random(rows) < _logistic(0.4 - 0.03 * (age - 30))
    arm = rng.choice(3, rows, p=[0.4, 0.35, 0.25])
    bmi = 18 + rng.gamma(4, 2.2, rows) + 1.5 * (arm == 2)
    pressure = 112 + 0.012 * (age - 20) ** 2 + 0.8 * (bmi - 26) - 5 * (arm == 1)
    marker = rng.exponential(np.where(smoker, 5.0, 2.0)) + 0.03 * age
    event = rng.random(rows) < _logistic(-3.5 + 0.035 * (age - 50) + 0.2 * marker)
    return pd.DataFrame({
        "age": age, "smoker": smoker, "bmi": bmi, "pressure": pressure + rng.normal(0, 11, rows),
        "marker": marker, "arm": np.array(list("xyz"))[arm], "event": event,
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


def _mean(column: Any) -> Callable[[Any], Any]:
    return lambda source: analysis.mean(source, column)


def _quantile(column: str, p: float) -> Callable[[Any], Any]:
    return lambda source: analysis.quantile(source, column, p)


def _correlation(first: str, second: str) -> Callable[[Any], Any]:
    return lambda source: analysis.correlation(source, first, second)


def _linear(target: str, *features: str) -> Callable[[Any], Any]:
    return lambda source: analysis.linear_regression(source, target, features)


def _logit(target: str, *features: str) -> Callable[[Any], Any]:
    return lambda source: analysis.logistic_regression(source, target, features)


POPULATIONS = (
    Population(
        name="tilt", draw=tilt,
        schema=_schema("tilt", _number("a", 0, 1), _number("b", 0, 1), _number("c", 0, 1),
                       _levels("g", "pqr"), _flag("y", role="target")),
        estimands={"mean": _mean("a"), "share": _mean("y"), "median": _quantile("b", 0.5),
                   "q90": _quantile("c", 0.9),
                   "correlation": _correlation("a", "b"),
                   "linear": _linear("a", "b", "g"),
                   "logistic": _logit("y", "a", "c")},
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
                   "logistic": _logit("y", "x", "g")},
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
                   "logistic": _logit("smoker", "school", "region")},
    ),
)  # fmt: skip


HELD_OUT = (
    Population(
        name="estate", draw=estate,
        schema=_schema("estate", _number("income", 0, 100), _number("wealth", -50, 500),
                       _whole("age", 0, 110), _whole("score", 1, 5), _levels("g", "abc"),
                       _flag("ill", role="target")),
        estimands={"mean": _mean("income"), "count": _mean("wealth"), "share": _mean("ill"),
                   "median": _quantile("age", 0.5), "q90": _quantile("wealth", 0.9),
                   "correlation": _correlation("income", "wealth"),
                   "linear": _linear("wealth", "income", "age"),
                   "logistic": _logit("ill", "age", "income")},
    ),
    Population(
        name="factors", draw=factors,
        schema=_schema("factors", _number("skewed", 0, 25), _number("humps", -7, 7),
                       _number("bent", -1, 8), _whole("count", 0, 30), _levels("g", "pqr"),
                       _flag("y", role="target")),
        estimands={"mean": _mean("skewed"), "count": _mean("count"), "share": _mean("y"),
                   "median": _quantile("humps", 0.5), "q90": _quantile("skewed", 0.9),
                   "correlation": _correlation("skewed", "count"),
                   "linear": _linear("skewed", "humps", "g"),
                   "logistic": _logit("y", "skewed", "humps")},
    ),
)  # fmt: skip
"""Heavy tails within wide bounds, and humps with a gap: `means_verdict.GUESSED` was chosen on them,
and nothing else."""


UNSEEN = (
    Population(
        name="pupils", draw=pupils,
        schema=_schema("pupils", _whole("grade", 1, 12), _levels("school", "abcde"),
                       _whole("home", 0, 4), _number("reading", 0, 100), _number("maths", 0, 100),
                       _whole("absent", 0, 60), _flag("passed", role="target")),
        estimands={"mean": _mean("reading"), "count": _mean("absent"), "share": _mean("passed"),
                   "median": _quantile("maths", 0.5), "q90": _quantile("reading", 0.9),
                   "correlation": _correlation("reading", "maths"),
                   "linear": _linear("maths", "reading", "home"),
                   "logistic": _logit("passed", "maths", "absent")},
    ),
    Population(
        name="clinic", draw=clinic,
        schema=_schema("clinic", _whole("age", 18, 100), _flag("smoker"), _number("bmi", 12, 60),
                       _number("pressure", 80, 220), _number("marker", 0, 30),
                       _levels("arm", "xyz"), _flag("event", role="target")),
        estimands={"mean": _mean("pressure"), "count": _mean("marker"), "share": _mean("event"),
                   "median": _quantile("bmi", 0.5), "q90": _quantile("pressure", 0.9),
                   "correlation": _correlation("bmi", "pressure"),
                   "linear": _linear("pressure", "age", "bmi", "arm"),
                   "logistic": _logit("event", "age", "marker")},
    ),
)  # fmt: skip
"""On which nothing was chosen but that quantiles are not asked for `GUESSED`."""


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

EVERY = (*POPULATIONS, *HELD_OUT, *UNSEEN, *SEVERAL)


def truth(population: Population) -> dict[str, float]:
    """Every estimand's value on `TRUTH_ROWS` rows of the law."""
    table = population.table(TRUTH_ROWS, np.random.default_rng(TRUTH_SEED))
    values: dict[str, float] = {}
    for name, estimand in population.estimands.items():
        estimate = estimand((table, None))
        for label, value in zip(estimate.names, estimate.values, strict=True):
            if label != "intercept":
                key = name if estimate.values.size == 1 else f"{name}.{label}"
                values[key] = float(value)
    return values
