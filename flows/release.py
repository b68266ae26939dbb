"""The release flow: a confidential table goes in, a signed release comes out.

    dpiw release examples/breast-cancer/release.yaml

Private rows are read by three tasks, each in a process of its own that hands back an exit code:
`ingest`, `fit_generator` and `fit_weights`.
Everything else works on what the fits released.
Prefect sees the name of a spec, a period, and which step succeeded: never a value.
"""

from __future__ import annotations

import sys
from pathlib import Path

from prefect import flow

from dpiw.plan.plan import Plan
from dpiw.plan.stages import GENERATOR_STAGE, WEIGHTS_STAGE, device_of
from dpiw.run.run import ReleaseRun
from flows import console
from tasks.debias import debias
from tasks.diagnose import diagnose
from tasks.draw_synthetic import draw_synthetic
from tasks.fit_generator import fit_generator
from tasks.fit_weights import fit_weights
from tasks.ingest import ingest
from tasks.plan import plan
from tasks.publish import publish
from tasks.reserve import reserve

GPU = "gpu"
"""Tag of a task that trains on a GPU: a server's concurrency limit on it makes such tasks queue."""


def gpu_tags(plan: Plan, stage: str) -> set[str]:
    """`GPU` where the method of a stage may use one, by its settings; else nothing."""
    return set() if device_of(plan, stage) == "cpu" else {GPU}


@flow(name="dpiw-release", retries=0, persist_result=False, log_prints=False)
def release(spec: str, period: str | None = None) -> str:
    """Publish the release that `spec` describes for `period`, once.

    Args:
        spec: path of a release spec; its name is all that Prefect stores.
        period: label of the period, such as `2027-q1`; None: the current one at the spec's cadence.

    Returns:
        The published folder.
    """
    run = plan(Path(spec), period)
    reserve(run)
    ingest(run)
    planned = ReleaseRun.load(run)
    fit_generator.with_options(tags=gpu_tags(planned.plan, GENERATOR_STAGE))(run)
    draw_synthetic(run)
    fit_weights.with_options(tags=gpu_tags(planned.plan, WEIGHTS_STAGE))(run)
    debias(run)
    diagnose(run)
    return str(publish(run))


if __name__ == "__main__":
    sys.exit(console.main(release, sys.argv[1:]))
