"""A million rows take the memory that benchmarks/results/scale.md states, and hardly more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.scripts import load

scale = load("scale")

STATED = {"ingest": 523, "histogram": 291, "measured: fit_weights": 355}
"""Peak memory of a stage in MiB, measured on 1,000,000 rows of 15 columns (scale.md)."""


def peaks(folder: Path, rows: int) -> dict[str, float]:
    """Peak memory of each stage, in MiB."""
    scale.write_table(folder / "table.csv", rows, copies=1)
    scale.workplace(folder, most=1)
    found = scale.fits(folder, rows, ["histogram", "measured"], most=1)
    return {name: used.peak / 2**20 for name, used in found}


@pytest.mark.nightly
def test_a_million_rows_take_the_memory_that_was_stated(tmp_path: Path) -> None:
    found = peaks(tmp_path, 1_000_000)
    over = {name: found[name] for name, stated in STATED.items() if found[name] > 1.2 * stated}
    assert over == {}
