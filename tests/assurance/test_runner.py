"""The runner on a toy suite: killed and resumed, changed, red, skipped, empty."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
TOY = {
    "pytest.ini": (
        "[pytest]\naddopts = --import-mode=importlib --strict-markers -m 'not proof'\n"
        "pythonpath = .\nmarkers =\n    proof: long\n    crash: kills\n    nightly: longer\n"
    ),
    "dpiw/__init__.py": "",
    "dpiw/one.py": "VALUE = 1\n",
    "dpiw/two.py": "VALUE = 2\n",
    "tests/conftest.py": """
import json, pathlib, pytest
def pytest_addoption(parser):
    parser.addoption("--figures", type=pathlib.Path)
@pytest.fixture
def tell(request):
    def say(**line):
        with request.config.getoption("--figures").open("a") as file:
            file.write(json.dumps(line) + "\\n")
    return say
@pytest.fixture(autouse=True)
def ran(request):
    with (request.config.rootpath / "build" / "ran").open("a") as file:
        file.write(request.node.name + "\\n")
""",
    "tests/test_one.py": """
import pytest
from dpiw.one import VALUE
@pytest.mark.proof
@pytest.mark.parametrize("n", [1, 2])
def test_one(n, tell):
    tell(test="proof P1", what=f"sums | {n}", node="test_one.py::test_one", power="10% is found",
         reached=f"{VALUE} of {n}", limit="a search")
def test_short():
    pass
""",
    "tests/test_two.py": """
import pytest
from dpiw.two import VALUE
@pytest.mark.proof
def test_two(tell):
    assert VALUE == 2, "tail of a red part"
    tell(test="toy kills", kills=7, lost=0)
""",
    "tests/test_slow.py": """
import pathlib, time, pytest
HERE = pathlib.Path(__file__).parent
@pytest.mark.proof
def test_slow():
    while (HERE / ".wait").exists():
        time.sleep(0.05)
""",
}
ALL = {"test_one[1]", "test_one[2]", "test_two", "test_slow"}


class Toy:
    """A small checkout and its runner."""

    def __init__(self, root: Path) -> None:
        self.root, self.keep = root, root / "build" / "assurance"
        for name, text in TOY.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def start(self, *arguments: str, suite: str = "proof") -> subprocess.Popen[str]:
        self.write("build/ran", "")
        self.write("build/tmp/here", "")
        return subprocess.Popen(
            [sys.executable, "-m", "tests.assurance", suite, "--root", self.root, *arguments],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | {
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(self.root / "build" / "tmp"),
            },
        )  # fmt: skip

    def run(self, *arguments: str, suite: str = "proof") -> tuple[int, str]:
        process = self.start(*arguments, suite=suite)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def ran(self) -> list[str]:
        return sorted((self.root / "build" / "ran").read_text().split())

    def parts(self) -> dict[str, dict[str, object]]:
        records = [json.loads(path.read_text()) for path in (self.keep / "parts").glob("*.json")]
        return {part["node"].rpartition("::")[2]: part for part in records}

    def summary(self, suite: str = "proof") -> dict[str, object]:
        return json.loads((self.keep / f"{suite}.json").read_text())


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "toy")


def test_a_green_run_ends_with_its_table_and_is_kept(toy, tmp_path):
    figures = tmp_path / "figures.jsonl"
    code, output = toy.run("--figures", str(figures))
    assert code == 0, output
    assert toy.ran() == sorted(ALL)
    table = (toy.keep / "proof.md").read_text()
    assert table in output
    for row in (
        "| P1: sums \\| 1 | `test_one.py::test_one` | 10% is found | 1 of 1 | a search | unknown |",
        "| toy kills | `test_two.py::test_two` |  | kills 7; lost 0 |  | unknown |",
    ):
        assert row in table
    assert "| `test_slow.py::test_slow` |  | 1 passed, " in table
    assert "4 parts: 4 green, 0 failed, 0 missing; 0 kept from earlier, 4 run now" in table
    records = [json.loads(line) for line in figures.read_text().splitlines()]
    assert [line["test"] for line in records] == ["proof P1", "proof P1", "toy kills"]
    assert {part["outcome"] for part in toy.parts().values()} == {"green"}

    code, output = toy.run()
    assert (code, toy.ran()) == (0, [])
    assert "4 kept from earlier, 0 run now" in output

    toy.write("dpiw/two.py", "VALUE = 2  # no change of value\n")
    code, _ = toy.run()
    assert (code, toy.ran()) == (0, ["test_slow", "test_two"])
    toy.write("dpiw/other.py", "")
    code, _ = toy.run()
    assert (code, toy.ran()) == (0, ["test_slow"])  # it says __file__, so it depends on all


def test_a_red_part_is_told_and_never_kept_as_green(toy):
    toy.write("dpiw/two.py", "VALUE = 3\n")
    for _ in range(2):  # it is run again each time
        code, output = toy.run("--only", "test_two")
        assert (code, toy.ran()) == (1, ["test_two"])
        assert "FAILED" in output
        assert "tail of a red part" in output
        assert "**FAILED**: failure" in (toy.keep / "proof.md").read_text()
        summary = toy.summary()
        assert (summary["ok"], summary["failed"], summary["green"]) == (False, 1, 0)
        assert summary["failures"] == ["tests/test_two.py::test_two"]
        assert toy.parts()["test_two"]["outcome"] == "red"
    toy.write("dpiw/two.py", "VALUE = 2\n")
    assert toy.run("--only", "test_two")[0] == 0


ODD = """
import os, pytest
pytestmark = pytest.mark.proof
def test_skipped():
    pytest.skip("no tool")
def test_xfailed():
    pytest.xfail("known")
def test_died():
    os._exit(0)
def test_teardown(request):
    request.addfinalizer(lambda: 1 / 0)
def test_gpu():
    pytest.skip("torch finds no CUDA device here")
"""
WHY = {
    "test_skipped": "skipped: no tool", "test_xfailed": "skipped: known", "test_teardown": "error",
    "test_died": "pytest ended with code 0 and left no record", "test_gpu": "",
}  # fmt: skip


def test_what_did_not_pass_is_red_but_for_a_gpu_that_is_not_there(toy):
    toy.write("tests/test_odd.py", ODD)
    code, output = toy.run("--only", "test_odd.py")
    assert code == 1, output
    assert {name: part["why"] for name, part in toy.parts().items()} == WHY
    assert {n for n, part in toy.parts().items() if part["outcome"] == "green"} == {"test_gpu"}
    assert "0 passed, 1 skipped" in output


def test_nothing_collected_is_a_failure(toy):
    assert toy.run("--only", "no_such_test")[0] == 2
    code, output = toy.run(suite="nightly")
    assert code == 2
    assert "nothing to run" in output
    toy.write("tests/test_broken.py", "import no_such_module\n")
    code, output = toy.run()
    assert code == 2
    assert "no_such_module" in output
    assert toy.ran() == []


@pytest.mark.crash
def test_an_edit_while_a_part_runs_voids_it(toy):
    """It may have read the old file or the new one; nobody knows."""
    toy.write("tests/.wait", "")
    process = toy.start("--only", "test_slow")
    wait_for(toy, {"test_slow"})
    toy.write("dpiw/one.py", "VALUE = 10\n")
    (toy.root / "tests" / ".wait").unlink()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "changed while it ran" in output
    assert toy.run("--only", "test_slow")[0] == 0


def wait_for(toy: Toy, names: set[str]) -> None:
    for _ in range(1200):
        if names <= set(toy.ran()):
            return
        time.sleep(0.1)
    raise AssertionError(toy.ran())


def of_the_toy(toy: Toy) -> list[psutil.Process]:
    """Processes that work in the toy's folder."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, FileNotFoundError):  # it has ended meanwhile
            if process.cwd() == str(toy.root) and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


INTERRUPTS = [
    signal.SIGKILL,
    pytest.param(signal.SIGTERM, marks=pytest.mark.crash),
    pytest.param(signal.SIGINT, marks=pytest.mark.crash),
]


@pytest.mark.parametrize("number", INTERRUPTS)
def test_a_killed_run_loses_what_was_in_flight_and_nothing_else(toy, number):
    toy.write("tests/.wait", "")
    process = toy.start("--jobs", "2")
    wait_for(toy, ALL)  # the slow one runs on beside the others
    for _ in range(1200):
        if len(toy.parts()) == 3:
            break
        time.sleep(0.1)
    assert of_the_toy(toy) != []
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    for _ in range(100):
        left = [path.name for path in (toy.root / "build" / "tmp").iterdir()]
        if not of_the_toy(toy) and left == ["here"]:
            break
        time.sleep(0.1)
    assert (of_the_toy(toy), left) == ([], ["here"])
    assert set(toy.parts()) == ALL - {"test_slow"}
    assert not (toy.keep / "proof.md").exists()

    (toy.root / "tests" / ".wait").unlink()
    code, output = toy.run()
    assert (code, toy.ran()) == (0, ["test_slow"]), output
    assert "3 kept from earlier, 1 run now" in output


@pytest.mark.crash
def test_a_damaged_file_is_run_again(toy):
    assert toy.run("--only", "test_one")[0] == 0
    path, _ = sorted((toy.keep / "parts").glob("*.json"))
    path.write_text(path.read_text()[:40])
    code, _ = toy.run("--only", "test_one")
    assert code == 0
    assert len(toy.ran()) == 1
