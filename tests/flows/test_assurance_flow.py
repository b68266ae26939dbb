"""The assurance flow under a real Prefect server: green, red, and no more than counts."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from flows.assurance import KEY, page
from flows.assurance import SUITES as ALL
from tasks.assure import AssuranceFailedError, SuiteOutcome
from tests.assurance.parts import SUITES
from tests.flows.conftest import ROOT

INI = "[pytest]\naddopts = --import-mode=importlib -m 'not proof'\nmarkers =\n    proof: long\n"
CONFTEST = "def pytest_addoption(parser):\n    parser.addoption('--figures')\n"
TEST = """
import os, pytest
@pytest.mark.proof
@pytest.mark.parametrize("n", [1, 2])
def test_it(n):
    assert not [name for name in os.environ if name.startswith("PREFECT")]
    assert n < {limit}, "SECRETVALUE"
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    root = tmp_path / "toy"
    (root / "tests").mkdir(parents=True)
    (root / "pytest.ini").write_text(INI)
    (root / "tests" / "conftest.py").write_text(CONFTEST)
    return root


def run_assurance(server, toy, limit):
    (toy / "tests" / "test_it.py").write_text(TEST.format(limit=limit))
    return subprocess.run(
        [sys.executable, "-m", "flows.assurance", "--suites", "proof", "--root", toy],
        capture_output=True, text=True, cwd=ROOT, check=False,
        env=server.environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip


def newest(server, kind):
    bodies = {
        "flow_runs": {"sort": "START_TIME_DESC"},
        "artifacts": {"sort": "CREATED_DESC", "artifacts": {"key": {"any_": [KEY]}}},
    }
    request = urllib.request.Request(
        f"{server.url}/{kind}/filter", data=json.dumps(bodies[kind]).encode(),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())[0]


@pytest.mark.flow
def test_a_green_suite_ends_well_and_a_red_one_alarms(prefect_server, toy):
    green = run_assurance(prefect_server, toy, limit=3)
    assert green.returncode == 0, green.stdout + green.stderr
    assert newest(prefect_server, "flow_runs")["state_type"] == "COMPLETED"
    artifact = newest(prefect_server, "artifacts")
    assert "| proof | ok | 2 | 2 | 0 | 0 | 0 | unknown |" in artifact["data"]
    (folder,) = (toy / "build" / "assurance").iterdir()  # named by the week
    assert "2 parts: 2 green" in (folder / "proof.md").read_text()

    red = run_assurance(prefect_server, toy, limit=2)
    assert red.returncode == AssuranceFailedError.exit_code == 34, red.stdout + red.stderr
    assert "proof failed" in red.stdout
    run = newest(prefect_server, "flow_runs")
    assert run["state_type"] == "FAILED"
    artifact = newest(prefect_server, "artifacts")
    assert artifact["flow_run_id"] == run["id"]
    assert "| proof | **FAILED** | 2 | 1 | 1 | 0 | 0 | unknown |" in artifact["data"]
    assert "`tests/test_it.py::test_it[2]`" in artifact["data"]
    assert "SECRETVALUE" in (folder / "proof.log").read_text()
    assert b"SECRETVALUE" not in prefect_server.everything_stored()


def test_a_suite_that_left_no_summary_or_another_code_has_failed(tmp_path):
    summary = tmp_path / "proof.json"
    assert not SuiteOutcome.read(summary, "proof", 0).ok
    counts = {"total": 1, "green": 1, "failed": 0, "kept": 0, "commits": [], "failures": []}
    summary.write_text(json.dumps(counts | {"ok": True}))
    assert SuiteOutcome.read(summary, "proof", 0).ok
    assert not SuiteOutcome.read(summary, "proof", 1).ok
    summary.write_text(json.dumps(counts | {"ok": False}))
    assert not SuiteOutcome.read(summary, "proof", 0).ok
    summary.write_text("{")
    assert not SuiteOutcome.read(summary, "proof", 0).ok
    assert "| proof | **FAILED** | 0 |" in page([SuiteOutcome(suite="proof", ok=False)])


def test_the_flow_runs_every_suite_there_is():
    assert set(ALL) == set(SUITES)
