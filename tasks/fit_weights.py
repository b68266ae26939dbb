"""Fit the density ratio under differential privacy, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tasks.progress import launch_fit
from tasks.step import step


@step(
    "fit_weights",
    done="what the plan has of it is drawn once and committed in the ledger",
    drawn=True,
)
def fit_weights(directory: Path, *, without_gpu: bool = False) -> Path:
    """Leave the weights' noisy coefficients, drawn once and charged once."""
    launch_fit("fit_weights", directory, without_gpu=without_gpu)
    return directory
