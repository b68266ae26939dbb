"""A made-up table of any number of rows: 15 columns of every kind and an id, two rows a person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

BATCH = 1 << 18

LEVELS = {
    "work": ["private", "public", "self-employed", "none"],
    "education": [f"level {number}" for number in range(16)],
    "job": [f"job {number}" for number in range(40)],
    "sex": ["f", "m"],
}
NUMBERS = {
    "age": (17, 90), "hours": (1, 99), "children": (0, 9), "income": (0.0, 200_000.0),
    "kilos": (30.0, 150.0), "score": (0.0, 1.0), "bmi": (10.0, 60.0),
}  # fmt: skip


def _columns(suffix: str) -> list[str]:
    numbers = [
        f"  - {{name: {name}{suffix}, kind: {'integer' if isinstance(low, int) else 'continuous'},"
        f" lower: {low}, upper: {high}{', nullable: true' if name == 'bmi' else ''}}}"
        for name, (low, high) in NUMBERS.items()
    ]
    levels = [
        f"  - {{name: {name}{suffix}, kind: categorical, levels: [{', '.join(levels)}]}}"
        for name, levels in LEVELS.items()
    ]
    return [
        *numbers, *levels,
        f"  - {{name: married{suffix}, kind: boolean}}",
        f"  - {{name: ill{suffix}, kind: boolean{'' if suffix else ', role: target'}}}",
        f"  - {{name: born{suffix}, kind: date, lower: 1930-01-01, upper: 2010-01-01}}",
        f"  - {{name: seen{suffix}, kind: datetime, lower: 2010-01-01, upper: 2025-01-01}}",
    ]  # fmt: skip


def dictionary(copies: int = 1) -> str:
    """The table's data dictionary, with so many copies of its columns side by side."""
    suffixes = ["", *(f"_{number}" for number in range(2, copies + 1))]
    columns = [line for suffix in suffixes for line in _columns(suffix)]
    head = ["name: scale", "columns:", "  - {name: id, role: identifier}"]
    return "\n".join([*head, *columns, ""])


def batch(rng: np.random.Generator, start: int, rows: int) -> pa.Table:
    """Some rows, two of each person."""
    columns = {"id": (start + np.arange(rows)) // 2}
    for name, (low, high) in NUMBERS.items():
        if isinstance(low, int):
            columns[name] = rng.integers(low, high + 1, rows)
        else:
            columns[name] = np.round(low + (high - low) * rng.beta(2, 4, rows), 2)
    for name, levels in LEVELS.items():
        columns[name] = np.array(levels)[rng.binomial(len(levels) - 1, 0.4, rows)]
    columns |= {"married": rng.random(rows) < 0.5, "ill": rng.random(rows) < 0.1}
    columns["born"] = np.datetime64("1930-01-01") + rng.integers(0, 29_000, rows)
    columns["seen"] = np.datetime64("2010-01-01T00:00:00") + rng.integers(0, 47 * 10**7, rows)
    gaps = rng.random(rows) < 0.05
    return pa.table(
        {
            name: pa.array(values, mask=gaps if name == "bmi" else None)
            for name, values in columns.items()
        }
    )


def write_table(path: Path, rows: int) -> None:
    """As CSV, batch by batch."""
    rng = np.random.default_rng(17)
    with path.open("wb") as file:
        for start in range(0, rows, BATCH):
            options = pyarrow.csv.WriteOptions(include_header=start == 0, quoting_style="none")
            pyarrow.csv.write_csv(batch(rng, start, min(BATCH, rows - start)), file, options)
