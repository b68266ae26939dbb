"""A stage's process: what it inherits, its exit code, and that no process is left behind."""

import subprocess
from typing import Any

import pytest

from dpiw.errors import StageFailedError
from dpiw.run import launch
from dpiw.run.launch import launch_stage


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log").mkdir()
    return tmp_path


def typed(monkeypatch: pytest.MonkeyPatch, script: str) -> list[dict[str, str]]:
    """Let stages run a shell script, with their socket as its output; their environments."""
    real, environments = subprocess.Popen, list[dict[str, str]]()

    def start(_: object, *, pass_fds: list[int], env: dict[str, str], **__: Any) -> Any:
        environments.append(env)
        return real(["sh", "-c", script], stdout=pass_fds[0])

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    return environments


def test_progress_is_two_numbers_and_nothing_else(folder, monkeypatch):
    told: list[tuple[int, int]] = []
    typed(monkeypatch, "echo 1 20; echo 12 a; echo 123456789 1; echo cell 7; echo 20 20")
    launch_stage("fit_generator", folder, progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 20), (20, 20)]


@pytest.mark.parametrize(("script", "code"), [("exit 12", 12), ("kill -9 $$", 70)])
def test_a_stage_that_fails_tells_its_name_and_its_code(folder, monkeypatch, script, code):
    typed(monkeypatch, script)
    with pytest.raises(StageFailedError, match=f"ingest ended with code {code}"):
        launch_stage("ingest", folder)


def test_a_stage_without_a_gpu_sees_none(folder, monkeypatch):
    environments = typed(monkeypatch, "exit 0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    launch_stage("fit_generator", folder)
    launch_stage("fit_generator", folder, without_gpu=True)
    assert [env["CUDA_VISIBLE_DEVICES"] for env in environments] == ["0", ""]


def test_an_interrupted_start_leaves_no_process(folder, monkeypatch):
    real, started = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def start(_, *, pass_fds, **__):
        started.append(real(["sh", "-c", "echo 1 2; sleep 60"], stdout=pass_fds[0]))
        return started[-1]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        launch_stage("ingest", folder, progress=interrupted)
    assert started[0].returncode == -9
