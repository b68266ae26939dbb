"""Fit the density ratio under differential privacy, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tasks.progress import launch_fit
from tasks.step import step


@step("fit_weights")
def fit_weights(directory: Path) -> None:
    """Leave the weights' noisy coefficients, drawn once and charged once."""
    launch_fit("fit_weights", directory)
