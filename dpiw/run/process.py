"""The process of one confidential stage: `python -m dpiw.run.process STAGE RUN_FOLDER [SOCKET]`.

The exit code depends on the error's class alone; all failures that may depend on data share one
(`StageFailedError`). Progress on descriptor SOCKET is a line `step steps` of public numbers.
"""

import contextlib
import os
import resource
import sys
import traceback
from pathlib import Path

from dpiw.errors import (
    BudgetExceededError,
    GrantSpentError,
    LedgerError,
    SchemaError,
    SourceError,
    SpecError,
    StageFailedError,
)
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.resumption import Progress, silent
from dpiw.run import steps
from dpiw.run.launch import leave_failure
from dpiw.run.run import ReleaseRun

_FITS = {"fit_generator": steps.fit_generator, "fit_weights": steps.fit_weights}

_SPEAKING = (
    SpecError, SchemaError, SourceError, LedgerError, GrantSpentError, BudgetExceededError,
)  # fmt: skip
"""Errors that are the same for every admissible table; a `PrivacyError` may depend on its input."""


def _telling(pipe: int) -> Progress:
    """Write progress to a socket while somebody listens."""

    def tell(step: int, steps: int) -> None:
        with contextlib.suppress(OSError):
            os.write(pipe, b"%d %d\n" % (step, steps))

    return tell


def _confine(memory: int | None) -> None:
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def run_stage(stage: str, directory: Path, *, progress: Progress = silent) -> int:
    """Run one stage in this process and return its exit code; never raises."""
    try:
        _confine(None)
        run = ReleaseRun.load(directory)
        # CUDA reserves far more address space than it uses: under a limit it cannot start.
        limit = run.spec.source.max_memory_bytes
        _confine(limit if run.plan.device(stage) == "cpu" else None)
        if stage == "ingest":
            steps.ingest(run)
        else:
            _FITS[stage](run, noise=SecureNoise(), progress=progress)
    except _SPEAKING as error:
        # Names and ranges only, yet the texts stay in the workspace: only the code leaves.
        place = error.place if isinstance(error, SourceError) else ""
        with contextlib.suppress(OSError):  # a full disk changes no code
            leave_failure(directory, stage, f"{type(error).__name__}: {error}", place=place)
        return error.exit_code
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return StageFailedError.exit_code
    return 0


def main(arguments: list[str]) -> int:
    """Entry point of the stage process, whose words `dpiw.run.launch` writes."""
    stage, directory, *pipe = arguments
    progress = _telling(int(pipe[0])) if pipe else silent
    return run_stage(stage, Path(directory), progress=progress)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
