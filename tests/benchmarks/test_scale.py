"""A million rows take the memory that was measured, and hardly more."""

import re
import subprocess
import sys

import pytest

from tests.benchmarks.scripts import FOLDER

STATED = {"ingest": 523, "histogram": 291, "measured: fit_weights": 355}
"""Peak memory of a stage in MiB, measured on 1,000,000 rows of 15 columns."""


@pytest.mark.nightly
def test_a_million_rows_take_the_memory_that_was_stated() -> None:
    """By the script in a small process: a child's peak counts its parent's before the start."""
    words = ["--rows", "1000000", "--methods", "histogram", "measured"]
    done = subprocess.run(
        [sys.executable, FOLDER / "scale.py", *words], capture_output=True, text=True, check=True
    )
    lines = re.findall(r"^\| ([\w: ]+) \| [\d.]+ \| [\d.]+ \| (\d+) \|", done.stdout, re.M)
    peaks = {name: int(peak) for name, peak in lines}
    assert {name: peaks[name] for name in STATED if peaks[name] > 1.2 * STATED[name]} == {}
