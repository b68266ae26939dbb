"""A whole release in this process, for tests that need one and not the way to it."""

from __future__ import annotations

from pathlib import Path

from dpiw.privacy.randomness import SecureNoise
from dpiw.run import steps
from dpiw.run.run import ReleaseRun


def publish_run(spec: Path, *, period: str | None = None) -> tuple[ReleaseRun, Path]:
    """The run of a spec, and the folder it published."""
    run = ReleaseRun.prepare(spec, period=period)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    steps.debias(run)
    steps.diagnose(run)
    return run, steps.publish(run)
