"""Counts a training's draws of noise on disk, and kills its process at the n-th passing of a point.

For children of the fork server, by `changes`, and for a stage's own process, by `SITE`.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpiw.ledger import Ledger
from dpiw.privacy.randomness import SecureNoise
from dpiw.run import checkpoints, steps
from dpiw.run import draw as confidential
from tests.support.around import around

POINTS = (
    "before_draw", "after_draw", "before_file", "after_file", "before_entry", "after_entry",
)  # fmt: skip
"""Passed once per step or checkpoint."""

ONCE = ("before_output", "after_output")
RESUMING = ("before_resume", "after_resume")

SITE = """
import pathlib, sys
if "dpiw.run.process" in " ".join(sys.orig_argv):
    from tests.crash.trainings import Deadly
    stage = sys.orig_argv[sys.orig_argv.index("dpiw.run.process") + 1]
    Deadly(pathlib.Path({folder!r}), *{dies!r}).install(lambda: stage)
"""
"""`sitecustomize.py` of a stage's own process."""


class Deadly:
    """A training that dies in a stage, at a point, when it has passed there so often."""

    def __init__(self, folder: Path, stage: str, point: str, passing: int) -> None:
        self._folder, self._stage, self._point, self._left = folder, stage, point, passing

    def install(self, current: Callable[[], str]) -> None:
        """`current` is the stage that is drawn now."""
        self._current = current
        around(SecureNoise, "gaussian_vector", before=self._drawn)
        for owner, name, what in (
            (SecureNoise, "gaussian_vector", "draw"), (checkpoints, "write_durably", "file"),
            (Ledger, "checkpoint", "entry"), (Ledger, "resume", "resume"),
            (confidential, "write_durably", "output"),
        ):  # fmt: skip
            around(
                owner, name,
                before=lambda *_, at=f"before_{what}", **__: self._passed(at),
                after=lambda *_, at=f"after_{what}", **__: self._passed(at),
            )  # fmt: skip

    def _drawn(self, *_: Any, **__: Any) -> None:
        with drawn_log(self._folder, self._current()).open("a") as log:
            log.write(".")

    def _passed(self, point: str) -> None:
        if (self._current(), point) == (self._stage, self._point):
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


def drawn_log(folder: Path, stage: str) -> Path:
    return folder / f"{stage}.drawn"


def deadly(watch, task):
    """In a child that takes all steps: the stage is the step that it is at."""
    at = ["none"]
    for stage in ("fit_generator", "fit_weights"):

        def begins(*_, name=stage, **__):
            at[0] = name

        around(steps, stage, before=begins)
    Deadly(Path(task["root"]), *task["dies"]).install(lambda: at[0])
