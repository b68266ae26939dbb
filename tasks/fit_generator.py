"""Fit the generator under differential privacy, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tasks.progress import launch_fit
from tasks.step import step


@step("fit_generator", done="drawn once and committed in the ledger")
def fit_generator(directory: Path, *, without_gpu: bool = False) -> Path:
    """Leave the generator's noisy measurement, drawn once and charged once."""
    launch_fit("fit_generator", directory, without_gpu=without_gpu)
    return directory
