"""A training's progress: a line in the log of steps, and one progress artifact in Prefect.

A stage runs beside the table, so only pairs (step, steps) that the plan foretells pass, each once
and in order. Timing is not controlled: steps take longer with more rows (leak register, row 37).
"""

from pathlib import Path
from uuid import UUID

from dpiw.plan.plan import Plan
from dpiw.privacy.resumption import interval
from dpiw.run.launch import launch_stage
from dpiw.run.run import ReleaseRun
from tasks.step import announce, progress
from tasks.window import Window


def trained_steps(plan: Plan, stage: str) -> int | None:
    """Return the steps of a stage's training; None: it trains nothing."""
    parameters = next((each.parameters for each in plan.stages if each.name == stage), {})
    steps = parameters.get("steps")
    return steps if isinstance(steps, int) else None


class TrainingProgress:
    """A `dpiw.privacy.resumption.Progress` that shows people a planned training's step.

    Makes one artifact in the task's window, if the server takes it, and updates it. `cost`: the
    whole run's, as in its spec.
    """

    def __init__(self, stage: str, steps: int, cost: str, window: Window | None) -> None:
        self._stage, self._steps, self._cost, self._window = stage, steps, cost, window
        self._shown = -1
        self._made: UUID | None = None

    def __call__(self, step: int, steps: int) -> None:
        """Show the step if a regular training would report it now."""
        is_planned = steps == self._steps and 0 <= step <= steps and step % interval(steps) == 0
        if is_planned and step > self._shown:
            self._show(step)

    def finish(self) -> None:
        """Show a training whose stage ended well as complete, if it was shown at all."""
        if 0 <= self._shown < self._steps:
            self._show(self._steps)

    def _show(self, step: int) -> None:
        self._shown = step
        progress.info("at %s %d %d", self._stage, step, self._steps)
        if self._window is None:
            return
        text = (
            f"{self._stage}: step {step} of {self._steps}. The run's {self._cost} was charged in"
            " full before the first step."
        )
        percent = 100 * step / self._steps
        if self._made is None:
            key = f"{self._stage}-progress"  # the same for every run
            self._made = self._window.artifact(key, "progress", percent, text)
        else:
            self._window.update(self._made, percent, text)


def launch_fit(stage: str, directory: Path, *, without_gpu: bool) -> None:
    """Run a stage and show its training's progress; raises StageFailedError."""
    if without_gpu:
        announce(stage, "goes on from its checkpoint, without a GPU, at no further cost")
    plan = ReleaseRun.load(directory).plan
    steps = trained_steps(plan, stage)
    if steps is None:
        launch_stage(stage, directory)
        return
    cost = f"epsilon {plan.spec.epsilon} (delta {plan.spec.delta})"
    training = TrainingProgress(stage, steps, cost, Window.of_this_task())
    launch_stage(stage, directory, progress=training, without_gpu=without_gpu)
    training.finish()
