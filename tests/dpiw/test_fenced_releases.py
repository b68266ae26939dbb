"""Published folders stay readable: of every method, one verifies, loads and answers as before.

`tests/golden/releases.tar.xz` was made by `tests/golden/make_releases.py` at the commit that
`releases.json` names, which also holds what these releases answered then.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS
from tests.support.answers import answers_of
from tests.support.whole_runs import loaded

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CONTENT: dict[str, Any] = json.loads((GOLDEN / "releases.json").read_text())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key and the folders, each by its recipe's name."""
    root = tmp_path_factory.mktemp("releases")
    with tarfile.open(GOLDEN / "releases.tar.xz") as packed:
        packed.extractall(root, filter="data")
    return root


def test_every_method_has_a_folder() -> None:
    names = " ".join(CONTENT["answers"])
    assert [method for method in (*GENERATORS, *WEIGHTS) if method not in names] == []


@pytest.mark.parametrize("name", CONTENT["answers"])
def test_a_folder_verifies_and_answers_as_before(
    name: str, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = str(archive / "test.pub")
    assert main(["verify", str(archive / name), "--key", key]) == 0
    assert main(["describe", str(archive / name), "--key", key]) == 0
    assert answers_of(loaded(archive / name)) == near(CONTENT["answers"][name])


def near(value: Any) -> Any:
    """Numbers may differ by 1e-9 of them, as processors add up in another order."""
    if isinstance(value, dict):
        return {key: near(element) for key, element in value.items()}
    if isinstance(value, list):
        return [near(element) for element in value]
    return pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
