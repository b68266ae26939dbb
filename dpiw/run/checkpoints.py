"""Checkpoints of a training stage: `<run>/<stage>.<step>.<arm's digits>.checkpoint`.

First line: digest of the plan's settings. A file is synced before its ledger entry, and the next
step is drawn after the entry: a resumed training repeats at most one interval. Source:
docs/operations.md, "Resuming a killed training".
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpiw.data.files import write_durably
from dpiw.errors import LedgerTamperedError
from dpiw.ledger import Grant, Ledger, RunRecord, StageRecord, StageState
from dpiw.privacy.resumption import Progress, Resumption
from dpiw.run.run import ReleaseRun

_TOKEN_DIGITS = 16
_END = b"\n"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StageCheckpoints:
    """A `dpiw.privacy.resumption.TrainingWatch` that keeps checkpoints and reports progress.

    `terms` None keeps no checkpoint; `last` None begins.
    """

    run: ReleaseRun
    ledger: Ledger
    grant: Grant
    settings: str
    terms: Resumption | None
    last: bytes | None
    progress: Progress

    def resumed(self) -> bytes | None:
        """The state to resume from; None: begin."""
        return None if self.last is None else self.last.partition(_END)[2]

    def at(self, step: int, steps: int, state: Callable[[], bytes]) -> None:
        """Keep a checkpoint, record it in the ledger, and report the step."""
        if self.terms is not None:
            stage, data = self.grant.stage, self.settings.encode() + _END + state()
            path = _file(self.run.directory, self.grant, step)
            write_durably(path, data)
            self.ledger.checkpoint(self.grant, step=step, digest=hashlib.sha256(data).hexdigest())
            forget_checkpoints(path.parent, stage, kept=path)
        self.progress(step, steps)


def last_checkpoint(run: ReleaseRun, stage: StageRecord) -> bytes | None:
    """Return the checkpoint that a dead stage resumes from; None: no snapshot, file or resume."""
    checkpoint = stage.checkpoint
    if stage.state is not StageState.ARMED or checkpoint is None or stage.resumes_left < 1:
        return None
    if not run.snapshot.exists():
        return None
    for path in _files(run.directory, stage.stage):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() == checkpoint.digest:
            return data
    return None


def is_cut_off(run: ReleaseRun, stage: StageRecord) -> bool:
    """Return whether an armed stage left neither an output nor a checkpoint to resume from."""
    if stage.state is not StageState.ARMED or run.measurement(stage.stage).exists():
        return False
    return last_checkpoint(run, stage) is None


def is_of(data: bytes, settings: str) -> bool:
    """Return whether a checkpoint was drawn under these settings; earlier versions state none."""
    return data.partition(_END)[0] == settings.encode()


def goes_on_without_gpu(run: ReleaseRun, stage: str) -> bool:
    """Return whether an ended stage of `device: auto` may resume without a GPU.

    What ended it is not examined: it may depend on rows.
    """
    if run.plan.device(stage) != "auto" or run.measurement(stage).exists():
        return False
    record = run.open_ledger().find_run(run.key)
    return record is not None and last_checkpoint(run, record.stages[stage]) is not None


def check_checkpoints(folder: Path, stage: str, record: RunRecord) -> None:
    """Raise LedgerTamperedError if the ledger does not know a stage's checkpoints on disk.

    A checkpoint may be at most one interval beyond the last on record, under a recorded arm.
    """
    steps_by_token = {
        token[:_TOKEN_DIGITS]: _furthest(attempt.stages[stage])
        for attempt in record.attempts
        if stage in attempt.stages
        for token in attempt.stages[stage].tokens
    }
    for path in _files(folder, stage):
        _, step, token, _ = path.name.split(".")
        if not step.isdecimal() or int(step) > steps_by_token.get(token, -1):
            raise old_copy(
                "the workspace holds a checkpoint of a draw that the ledger does not know", stage
            )


def old_copy(fault: str, stage: str) -> LedgerTamperedError:
    """Return the error for a draw on disk that the ledger does not know."""
    return LedgerTamperedError(
        f"{fault}: the ledger was restored from an old copy. A reservation of this run without an"
        " armed stage pays for that draw. If there is none, charge it with `dpiw ledger recover"
        " --loss-only`: the epsilon that `dpiw plan` shows for its stage, and the spec's delta."
        " Then start a new run, with another period or source.snapshot",
        field=f"stage {stage}",
    )


def _furthest(stage: StageRecord) -> int:
    if stage.checkpoint is None or stage.resumption is None:
        return 0
    return stage.checkpoint.step + stage.resumption.every


def take_over(run: ReleaseRun, grant: Grant, *, step: int, data: bytes) -> None:
    """Rename the checkpoint to the arm that resumes it, before that arm draws.

    The file then shows a restored ledger that this arm existed.
    """
    path = _file(run.directory, grant, step)
    write_durably(path, data)
    forget_checkpoints(path.parent, grant.stage, kept=path)


def forget_checkpoints(folder: Path, stage: str, *, kept: Path | None = None) -> None:
    """Remove a stage's checkpoints except `kept`; None: it is committed or drawn again."""
    for path in _files(folder, stage):
        if path != kept:
            path.unlink(missing_ok=True)


def _file(folder: Path, grant: Grant, step: int) -> Path:
    return folder / f"{grant.stage}.{step:08d}.{grant.digest[:_TOKEN_DIGITS]}.checkpoint"


def _files(folder: Path, stage: str) -> list[Path]:
    return sorted(folder.glob(f"{stage}.*.*.checkpoint"))
