"""Where a training stands: a line on the log of steps, and one progress artefact in Prefect.

A training stage tells (step, steps) on a pipe (`dpiw.run.process`). It runs beside the table, so it
is not believed: only what the plan foretells gets through, each pair once and in order. What is
shown is public: the stage, these numbers, and the run's epsilon and delta. When it is shown is not
controlled: steps take longer with more rows (leak register, row 37).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import TaskRunContext
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from dpiw.privacy.resumption import interval
from dpiw.run.process import launch_stage
from dpiw.run.run import ReleaseRun
from tasks.step import progress

TIMEOUT_SECONDS = 3.0
"""For one request to Prefect; the HTTP client tries a connection four times."""

PATIENCE = 2
"""Updates in a row that may fail before an artefact is left as it is."""


@dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """The public facts of a training.

    Attributes:
        stage: its name.
        steps: T, noised steps.
        epsilon, delta: of the whole run, as its spec writes them.
    """

    stage: str
    steps: int
    epsilon: str
    delta: str

    @classmethod
    def of_stage(cls, directory: Path, stage: str) -> Self | None:
        """Of a stage of a prepared run; None: it trains nothing."""
        plan = ReleaseRun.load(directory).plan
        for planned in plan.stages:
            steps = planned.parameters.get("steps")
            if planned.name == stage and isinstance(steps, int):
                return cls(
                    stage=stage,
                    steps=steps,
                    epsilon=str(plan.spec.epsilon),
                    delta=str(plan.spec.delta),
                )
        return None

    def foretells(self, step: int, steps: int) -> bool:
        """Whether a training as planned tells this, whatever rows it reads."""
        return steps == self.steps and 0 <= step <= steps and step % interval(steps) == 0

    def describe(self, step: int) -> str:
        """The text of the artefact."""
        return (
            f"{self.stage}: step {step} of {self.steps}. The run's epsilon {self.epsilon} (delta"
            f" {self.delta}) was charged in full before the first step."
        )


class ProgressArtefact:
    """A progress artefact of one task run; a server that does not take it changes nothing else.

    Args:
        key: letters, digits and dashes; the same for every run.
        task_run: it belongs to.
        flow_run: it belongs to; None: to none.
        timeout: seconds for one request.
    """

    def __init__(
        self, key: str, *, task_run: UUID, flow_run: UUID | None, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self._key, self._timeout = key, timeout
        self._task_run, self._flow_run = task_run, flow_run
        self._made: UUID | None = None
        self._failures = 0

    @classmethod
    def of_this_task(cls, stage: str) -> Self | None:
        """For the task run under way; None outside of one."""
        context = TaskRunContext.get()
        if context is None:
            return None
        task = context.task_run
        key = f"{stage.replace('_', '-')}-progress"
        return cls(key, task_run=task.id, flow_run=task.flow_run_id, timeout=TIMEOUT_SECONDS)

    def show(self, percent: float, description: str) -> None:
        """Make or update it, unless the server let it down `PATIENCE` times running."""
        if self._failures == PATIENCE:
            return
        try:
            self._write(percent, description)
        except Exception:
            self._failures += 1
        else:
            self._failures = 0

    def _write(self, percent: float, description: str) -> None:
        settings = {"timeout": self._timeout}
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings=settings, sync_client=True) as client,
        ):
            if self._made is not None:
                update = ArtifactUpdate(data=percent, description=description)
                client.update_artifact(self._made, update)
                return
            new = ArtifactCreate(
                key=self._key,
                type="progress",
                data=percent,
                description=description,
                task_run_id=self._task_run,
                flow_run_id=self._flow_run,
            )
            self._made = client.create_artifact(new).id


class TrainingProgress:
    """A `dpiw.privacy.resumption.Progress` that shows people where a planned training stands."""

    def __init__(self, training: PlannedTraining, artefact: ProgressArtefact | None) -> None:
        self._training, self._artefact = training, artefact
        self._shown = -1

    def __call__(self, step: int, steps: int) -> None:
        """Show it, if a regular training would tell it now."""
        if step > self._shown and self._training.foretells(step, steps):
            self._show(step)

    def finish(self) -> None:
        """The stage ended well: a training that was shown is shown complete."""
        if 0 <= self._shown < self._training.steps:
            self._show(self._training.steps)

    def _show(self, step: int) -> None:
        self._shown = step
        training = self._training
        progress.info("at %s %d %d", training.stage, step, training.steps)
        if self._artefact is not None:
            self._artefact.show(100 * step / training.steps, training.describe(step))


def launch_fit(stage: str, directory: Path) -> None:
    """`dpiw.run.process.launch_stage`, showing where its training stands if it trains.

    Raises:
        StageFailedError: as `launch_stage`.
    """
    training = PlannedTraining.of_stage(directory, stage)
    if training is None:
        launch_stage(stage, directory)
        return
    shown = TrainingProgress(training, ProgressArtefact.of_this_task(stage))
    launch_stage(stage, directory, progress=shown)
    shown.finish()


__all__ = ["PlannedTraining", "ProgressArtefact", "TrainingProgress", "launch_fit"]
