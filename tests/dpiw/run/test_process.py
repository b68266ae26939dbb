"""Stages that are started ahead of their time wait for their word, and look at nothing before."""

import gc
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dpiw.errors import StageFailedError
from dpiw.run import launch, process
from dpiw.run.launch import launch_stage, stages_ahead
from dpiw.run.process import STAGES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path


TOLD = "test $(head -c 1 | wc -c) = 1 && exit 12; exit 3"
UNTOLD = (-9, 3)
"""Killed, or sooner at an end by itself: nobody holds the pipe any more."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Stages that do nothing but wait for their word; they end with code 12, without it with 3."""
    real, processes = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def start(_: object, *, pass_fds: Sequence[int], **__: Any) -> subprocess.Popen[bytes]:
        processes.append(real(["sh", "-c", TOLD], stdin=pass_fds[0]))
        return processes[-1]

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    return processes


def nothing() -> None:
    """Nothing else is to be got ready."""


def test_each_stage_begins_when_it_is_launched(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """The first one waits from the start, the others while it works; each is started once."""
    with stages_ahead(folder, meanwhile=nothing):
        assert len(started) == 1
        for number, stage in enumerate(STAGES):
            with pytest.raises(StageFailedError, match=f"{stage} ended with code 12"):
                launch_stage(stage, folder)
            assert len(started) == len(STAGES)
            alive = [child.poll() is None for child in started]
            assert alive == [place > number for place in range(len(STAGES))]


def test_what_else_there_is_to_get_ready_is_done_once_while_the_first_stage_works(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    seen: list[int] = []

    def meanwhile() -> None:
        seen.append(len(started))

    with stages_ahead(folder, meanwhile=meanwhile):
        assert seen == []
        for _ in range(2):
            with pytest.raises(StageFailedError):
                launch_stage("ingest", folder)
    assert seen == [len(STAGES)]


def test_what_cannot_be_done_ahead_of_its_time_stops_no_stage_that_works(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    tried: list[str] = []

    def broken() -> None:
        tried.append("the report")
        raise ImportError

    with (
        stages_ahead(folder, meanwhile=broken),
        pytest.raises(StageFailedError, match="fit_generator ended with code 12"),
    ):
        launch_stage("fit_generator", folder)
    assert tried == ["the report"]


def test_a_run_that_goes_on_starts_no_stage_that_it_has_behind_it(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    with stages_ahead(folder, meanwhile=nothing):
        with pytest.raises(StageFailedError, match="fit_weights ended with code 12"):
            launch_stage("fit_weights", folder)
        assert len(started) == 2  # and the one that waited for nothing
    assert started[0].returncode in UNTOLD
    assert started[1].returncode == 12


def test_a_stage_of_another_run_and_a_second_attempt_have_processes_of_their_own(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    second = folder / "other"
    (second / "log").mkdir(parents=True)
    with stages_ahead(folder, meanwhile=nothing):
        for place, number in ((second, 2), (folder, 4), (folder, 5)):
            with pytest.raises(StageFailedError):
                launch_stage("ingest", place)
            assert len(started) == number
    with pytest.raises(StageFailedError):
        launch_stage("fit_weights", folder)  # nothing waits outside
    assert len(started) == 6


def test_a_stage_without_a_gpu_has_a_process_of_its_own_that_sees_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = subprocess.Popen, []

    def start(
        _: object, *, pass_fds: Sequence[int], env: dict[str, str], **__: Any
    ) -> subprocess.Popen[bytes]:
        seen.append(env["CUDA_VISIBLE_DEVICES"])
        return real(["sh", "-c", "head -c 1 >/dev/null; exit 12"], stdin=pass_fds[0])

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with stages_ahead(folder, meanwhile=nothing):
        for stage, without_gpu in (("ingest", False), ("fit_generator", True)):
            with pytest.raises(StageFailedError):
                launch_stage(stage, folder, without_gpu=without_gpu)
    assert seen == ["0"] * len(STAGES) + [""]


def test_what_was_never_told_to_begin_is_ended(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), stages_ahead(folder, meanwhile=interrupted):
        launch_stage("ingest", folder)
    assert len(started) == len(STAGES)
    assert {child.returncode for child in started[1:]} <= set(UNTOLD)
    assert started[0].returncode in (-9, 12)  # it was told: it may have been over


def test_a_stage_that_is_killed_while_it_waits_is_started_anew(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    with stages_ahead(folder, meanwhile=nothing):
        started[0].kill()
        started[0].wait()
        with pytest.raises(StageFailedError, match="ingest ended with code 12"):
            launch_stage("ingest", folder)
        assert len(started) == len(STAGES) + 1


def told_nothing(stage: str) -> int:
    """The code of a stage of a run that is not there, whose starter is gone."""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        return process.main([stage, "/nowhere", str(theirs.fileno())])


def test_a_stage_looks_at_nothing_before_its_word() -> None:
    assert told_nothing("fit_generator") == 0


def test_a_library_that_is_broken_is_for_the_stage_to_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ahead of its time it ends nothing; with the stage it has a code and the custodian's log."""
    tried: list[str] = []

    def broken() -> None:
        tried.append("Great Expectations")
        raise ImportError

    monkeypatch.setattr(process, "load_checks", broken)
    assert told_nothing("ingest") == 0
    assert tried == ["Great Expectations"]
    assert gc.isenabled()
