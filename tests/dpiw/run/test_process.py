"""Stages in processes of their own: what the starter does and hears."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import StageFailedError
from dpiw.run import launch
from dpiw.run.launch import launch_stage
from dpiw.run.process import STAGES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Stages that tell some progress and end with code 12, or 13 where they see no GPU."""
    real, processes = subprocess.Popen, list[subprocess.Popen[bytes]]()
    told = "printf '1 4\\nx 4\\n2 4\\n99999999 1\\n'"
    words = f'{told}; test -z "$CUDA_VISIBLE_DEVICES" && exit 13; exit 12'

    def start(
        _: object, *, pass_fds: Sequence[int], env: dict[str, str], **__: Any
    ) -> subprocess.Popen[bytes]:
        processes.append(real(["sh", "-c", words], stdout=pass_fds[0], env=env))
        return processes[-1]

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    return processes


def test_each_stage_has_a_process_of_its_own_which_sees_a_gpu_unless_told(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    for number, stage in enumerate(STAGES, start=1):
        with pytest.raises(StageFailedError, match=f"{stage} ended with code 12"):
            launch_stage(stage, folder)
        assert len(started) == number
    with pytest.raises(StageFailedError, match="fit_weights ended with code 13"):
        launch_stage("fit_weights", folder, without_gpu=True)


def test_of_what_a_stage_says_only_its_progress_is_read(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    told: list[tuple[int, int]] = []

    def show(step: int, steps: int) -> None:
        told.append((step, steps))
        raise ValueError("whoever shows it does not stop the stage")

    with pytest.raises(StageFailedError, match="code 12"):
        launch_stage("fit_weights", folder, progress=show)
    assert told == [(1, 4), (2, 4)]


def test_a_stage_under_way_ends_with_an_interrupt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, processes = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def start(_: object, *, pass_fds: Sequence[int], **__: Any) -> subprocess.Popen[bytes]:
        processes.append(real(["sh", "-c", "echo 1 4; sleep 600"], stdout=pass_fds[0]))
        return processes[-1]

    def interrupted(*_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        launch_stage("ingest", folder, progress=interrupted)
    assert processes[0].returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(processes[0].pid, 0)
