"""A training's progress: a line in the log of steps, and one progress artifact in Prefect.

A stage runs beside the table, so only pairs (step, steps) that the plan foretells pass, each once
and in order. Timing is not controlled: steps take longer with more rows (leak register, row 37).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import UUID

from dpiw.privacy.resumption import interval
from dpiw.run.launch import launch_stage
from dpiw.run.run import ReleaseRun
from tasks.step import announce, progress
from tasks.window import Window


@dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """The public facts of a training; `epsilon` and `delta` are the whole run's, as in its spec."""

    stage: str
    steps: int
    epsilon: str
    delta: str

    @classmethod
    def of_stage(cls, directory: Path, stage: str) -> Self | None:
        """Return the training of a prepared run's stage; None: it trains nothing."""
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
        """Return whether the planned training reports this, whatever rows it reads."""
        return steps == self.steps and 0 <= step <= steps and step % interval(steps) == 0

    def describe(self, step: int) -> str:
        """Return the artifact's text."""
        return (
            f"{self.stage}: step {step} of {self.steps}. The run's epsilon {self.epsilon} (delta"
            f" {self.delta}) was charged in full before the first step."
        )


class TrainingProgress:
    """A `dpiw.privacy.resumption.Progress` that shows people a planned training's step.

    Makes one artifact in the task's window, if the server takes it, and updates it.
    """

    def __init__(self, training: PlannedTraining, window: Window | None) -> None:
        self._training, self._window = training, window
        self._shown = -1
        self._made: UUID | None = None

    def __call__(self, step: int, steps: int) -> None:
        """Show the step if a regular training would report it now."""
        if step > self._shown and self._training.foretells(step, steps):
            self._show(step)

    def finish(self) -> None:
        """Show a training whose stage ended well as complete, if it was shown at all."""
        if 0 <= self._shown < self._training.steps:
            self._show(self._training.steps)

    def _show(self, step: int) -> None:
        self._shown = step
        training = self._training
        progress.info("at %s %d %d", training.stage, step, training.steps)
        if self._window is None:
            return
        percent, text = 100 * step / training.steps, training.describe(step)
        if self._made is None:
            key = f"{training.stage}-progress"  # the same for every run
            self._made = self._window.artifact(key, "progress", percent, text)
        else:
            self._window.update(self._made, percent, text)


def launch_fit(stage: str, directory: Path, *, without_gpu: bool) -> None:
    """Run a stage and show its training's progress; raises StageFailedError."""
    if without_gpu:
        announce(stage, "goes on from its checkpoint, without a GPU, at no further cost")
    training = PlannedTraining.of_stage(directory, stage)
    if training is None:
        launch_stage(stage, directory)
        return
    training_progress = TrainingProgress(training, Window.of_this_task())
    launch_stage(stage, directory, progress=training_progress, without_gpu=without_gpu)
    training_progress.finish()
