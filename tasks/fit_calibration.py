"""Fit a beta calibration under differential privacy, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from dpiw.stages import launch_stage
from tasks.step import step


@step("fit_calibration")
def fit_calibration(directory: Path) -> None:
    """Leave the calibration's three noisy coefficients, drawn once and charged once."""
    launch_stage("fit_calibration", directory)
