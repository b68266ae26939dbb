"""Published folders stay readable: of every method, one verifies, loads and answers as before.

`tests/golden/releases.tar.xz` was made by `tests/golden/make_releases.py` at the commit that
`releases.json` names, which also holds what these releases answered then.
"""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from dpiw.cli.main import main
from dpiw.methods.generators.registry import GENERATORS
from dpiw.methods.weights.registry import WEIGHTS
from tests.golden import make_releases
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
    own = archive / f"{name}.pub"
    key = str(own if own.exists() else archive / "test.pub")
    assert main(["verify", str(archive / name), "--key", key]) == 0
    assert main(["describe", str(archive / name), "--key", key]) == 0
    assert answers_of(loaded(archive / name)) == near(CONTENT["answers"][name])


@pytest.mark.slow
def test_a_folder_that_is_added_leaves_the_others_as_they_are(
    archive: Path, tmp_path: Path
) -> None:
    """Those of settings that are gone among them, which nothing could make again."""
    for name in ("releases.tar.xz", "releases.json"):
        shutil.copy(GOLDEN / name, tmp_path)
    make_releases.main(["privbayes-none"], home=tmp_path)
    with tarfile.open(tmp_path / "releases.tar.xz") as packed:
        packed.extractall(tmp_path / "new", filter="data")
    before, after = digests(archive), digests(tmp_path / "new")
    changed = {Path(path).parts[0] for path, _ in before.items() ^ after.items()}
    assert changed == {"privbayes-none", "privbayes-none.pub"}
    answers = json.loads((tmp_path / "releases.json").read_text())["answers"]
    assert answers.keys() == CONTENT["answers"].keys()
    assert {name for name in answers if answers[name] != CONTENT["answers"][name]} == {
        "privbayes-none"
    }
    assert CONTENT["answers"].keys() - make_releases.RECIPES == {
        "privbayes-beta_noised-fourier", "privbayes-beta_noised-interactions",
        "dpgan-beta_noised-critic",
    }  # fmt: skip
    key = str(tmp_path / "new" / "privbayes-none.pub")
    assert main(["verify", str(tmp_path / "new" / "privbayes-none"), "--key", key]) == 0
    with pytest.raises(SystemExit):
        make_releases.main(["privbayes-beta_noised-fourier"], home=tmp_path)


def digests(folder: Path) -> dict[str, str]:
    """Of every file below a folder, by its path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def near(value: Any) -> Any:
    """Numbers may differ by 1e-9 of them, as processors add up in another order."""
    if isinstance(value, dict):
        return {key: near(element) for key, element in value.items()}
    if isinstance(value, list):
        return [near(element) for element in value]
    return pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
