"""A simulated town of mixed columns whose truth is known, because we wrote its law.

    python examples/population/simulate.py      writes truth.json, the statistics of the law

The confidential table is one draw of 50,000 people; the truth is the same statistics over
2,000,000 other people of the same law, so it says nothing about the 50,000.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

CONFIDENTIAL_SEED = 20261120
TRUTH_SEED = 20261121
TRUTH_ROWS = 2_000_000

EDUCATION = ("primary", "secondary", "vocational", "bachelor", "master")
REGION = ("north", "south", "east", "west", "islands")
EDUCATION_BY_REGION = np.array(
    [
        [0.10, 0.30, 0.25, 0.22, 0.13],
        [0.25, 0.40, 0.20, 0.10, 0.05],
        [0.15, 0.35, 0.25, 0.16, 0.09],
        [0.08, 0.22, 0.20, 0.28, 0.22],
        [0.30, 0.40, 0.18, 0.08, 0.04],
    ]
)


def _logistic(score: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-score))


def population(*, rows: int, seed: int) -> pd.DataFrame:
    """Draw `rows` people. Income is missing for some of the young; dates are days of one year."""
    rng = np.random.default_rng(seed)
    region = rng.choice(len(REGION), size=rows, p=[0.28, 0.24, 0.2, 0.2, 0.08])
    education = (
        (rng.random(rows)[:, None] > EDUCATION_BY_REGION.cumsum(axis=1)[region])
        .sum(axis=1)
        .clip(0, 4)
    )
    age = np.clip(rng.gamma(8.0, 5.6, rows) + 5 - 1.5 * education + 14, 18, 95)
    hours = np.clip(rng.normal(38 - 0.35 * np.maximum(age - 55, 0), 8), 0, 80).round()
    log_income = (
        9.6 + 0.22 * education + 0.018 * hours + 0.006 * (age - 40) + rng.normal(0, 0.35, rows)
    )
    income = np.clip(np.exp(log_income), 0, 150_000)
    smoker = rng.random(rows) < _logistic(-0.6 - 0.35 * education + 0.4 * (region == 1))
    ill = rng.random(rows) < _logistic(-4.2 + 0.05 * (age - 40) + 1.1 * smoker - 0.2 * education)
    missing = rng.random(rows) < 0.15 * (age < 30)
    visit = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, rows), unit="D")
    return pd.DataFrame(
        {
            "age": age.round().astype(int),
            "region": np.array(REGION)[region],
            "education": np.array(EDUCATION)[education],
            "hours": hours.astype(int),
            "income": pd.Series(income.round(2)).mask(missing),
            "smoker": np.where(smoker, "yes", "no"),
            "last_visit": visit.strftime("%Y-%m-%d"),
            "ill": np.where(ill, "yes", "no"),
        }
    )


def statistics(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Questions about the population, with their true answers."""
    wanted: list[dict[str, object]] = [
        {"kind": "mean", "column": "age"},
        {"kind": "mean", "column": "income"},
        {"kind": "mean", "column": "ill", "level": "true"},
        {"kind": "mean", "column": "income", "where": {"education": "master"}},
        {"kind": "mean", "column": "income", "where": {"education": "primary"}},
        {"kind": "mean", "column": "smoker", "level": "true", "where": {"education": "primary"}},
        {"kind": "mean", "column": "ill", "level": "true", "where": {"smoker": "true"}},
        {"kind": "mean", "column": "ill", "level": "true", "where": {"smoker": "false"}},
        {"kind": "correlation", "columns": ["age", "hours"]},
        {"kind": "correlation", "columns": ["hours", "income"]},
    ]
    return [{**item, "value": _answer(frame, **item)} for item in wanted]


def _answer(
    frame: pd.DataFrame,
    *,
    kind: str,
    column: str = "",
    columns: list[str] | None = None,
    level: str | None = None,
    where: dict[str, str] | None = None,
) -> float:
    for name, wanted in (where or {}).items():
        frame = frame[frame[name].astype(str).str.lower() == wanted]
    if kind == "correlation":
        return float(frame[columns].astype(float).corr().iloc[0, 1])
    cells = frame[column]
    return float((cells if level is None else cells.astype(str).str.lower() == level).mean())


def main() -> None:
    from dpiw.data.schema.schema import PublicSchema

    here = Path(__file__).parent
    schema = PublicSchema.from_yaml(here / "schema.yaml")
    frame = schema.unscale(schema.scale(population(rows=TRUTH_ROWS, seed=TRUTH_SEED)))
    truth = {"statistics": statistics(frame)}
    (here / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main()
