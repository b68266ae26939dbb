"""`tests/suite.sh` on a toy checkout: green parts stay, red ones run again, skips are red."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("suite.sh")
TOY = {
    "pytest.ini": "[pytest]\naddopts = -ra -m 'not proof'\nmarkers =\n    proof: long\n",
    ".gitignore": "build/\n__pycache__/\nran\n",
    "tests/__init__.py": "",
    "tests/proof/__init__.py": "",
    "tests/proof/figures.py": Path(__file__).with_name("proof").joinpath("figures.py").read_text(),
    "tests/conftest.py": """
import json, pathlib, pytest
def pytest_addoption(parser):
    parser.addoption("--figures", type=pathlib.Path)
@pytest.fixture(autouse=True)
def ran(request):
    with (request.config.rootpath / "ran").open("a") as file:
        file.write(request.node.originalname + "\\n")
    with request.config.getoption("--figures").open("a") as file:
        line = {"test": "proof P1: " + request.node.name, "node": "toy", "reached": "10% | more"}
        file.write(json.dumps(line) + "\\n")
""",
    "tests/test_toy.py": """
import pathlib, pytest
HERE = pathlib.Path(__file__).parents[1]
@pytest.mark.proof
@pytest.mark.parametrize("n", [1, 2])
def test_green(n):
    pass
@pytest.mark.proof
def test_red():
    assert not (HERE / "build" / "red").exists()
@pytest.mark.proof
def test_skipped():
    if (HERE / "build" / "skip").exists():
        pytest.skip("a library is missing")
def test_short():
    raise AssertionError
""",
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A checkout of its own, committed."""
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "build").mkdir()
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "toy"]):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.example", *words]
        subprocess.run(git, cwd=tmp_path, check=True)
    return tmp_path


def suite(toy: Path, word: str = "") -> tuple[int, str, list[str]]:
    """Exit code, output, and the test functions that ran now."""
    (toy / "ran").unlink(missing_ok=True)
    done = subprocess.run(
        ["bash", SCRIPT, "proof", "proof", "2", word], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "SUITE_ROOT": str(toy),
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    ran = (toy / "ran").read_text().split() if (toy / "ran").exists() else []
    return done.returncode, done.stdout, sorted(ran)


@pytest.mark.nightly
def test_green_parts_stay_and_red_ones_run_again(toy: Path) -> None:
    (toy / "build" / "red").touch()
    (toy / "build" / "skip").touch()
    code, text, ran = suite(toy)
    assert (code, ran) == (1, ["test_green", "test_green", "test_red", "test_skipped"])
    assert "1 of 3 parts green" in text
    assert text.count("| P1: test_green") == 2
    assert "10% \\| more" in text
    (toy / "build" / "red").unlink()
    (toy / "build" / "skip").unlink()
    code, text, ran = suite(toy)
    assert (code, ran) == (0, ["test_red", "test_skipped"])
    assert "3 of 3 parts green" in text
    assert suite(toy)[::2] == (0, [])
    (toy / "tests" / "test_toy.py").write_text(TOY["tests/test_toy.py"] + "\n")
    for _ in range(2):  # in a changed checkout nothing is kept
        assert suite(toy, "green")[::2] == (0, ["test_green", "test_green"])


@pytest.mark.slow
def test_a_suite_without_tests_is_not_green(toy: Path) -> None:
    assert suite(toy, "nothing like it")[0] == 2
    (toy / "tests" / "test_toy.py").write_text("import no_such_module\n")
    assert suite(toy)[0] == 2
