"""A whole release in this process, for tests that need one and not the way to it."""

from __future__ import annotations

from pathlib import Path

from dpiw.privacy.randomness import NoiseSource, SecureNoise
from dpiw.run import steps
from dpiw.run.run import ReleaseRun


def draw_run(
    spec: Path, *, period: str | None = None, noise: NoiseSource | None = None
) -> ReleaseRun:
    """The run of a spec, with everything drawn that its plan asks for."""
    run = ReleaseRun.prepare(spec, period=period)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=noise or SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=noise or SecureNoise())
    return run


def finish_run(run: ReleaseRun) -> Path:
    """The folder that a run publishes, all of which is drawn."""
    steps.debias(run)
    steps.diagnose(run)
    return steps.publish(run)


def publish_run(spec: Path, *, period: str | None = None) -> tuple[ReleaseRun, Path]:
    """The run of a spec, and the folder it published."""
    run = draw_run(spec, period=period)
    return run, finish_run(run)
