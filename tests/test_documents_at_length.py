"""Commands of the documents that take long: as shell scripts, with servers, in a fresh copy."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.flows.conftest import prefect_server  # noqa: F401
from tests.support.documented_desk import (
    AT_LENGTH,
    curator_block,
    names_of,
    people,
    programs,
    released,
    set_out,
    shell,
)
from tests.support.documents import ROOT, blocks, commands, filled, lines_of

pytestmark = pytest.mark.nightly


def of_script(name: str) -> list[str]:
    """The commands that are typed in one script."""
    return [command for command, script in AT_LENGTH.items() if script == name]


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """An empty folder in which README's whole block for curators ran, but for `make serve`."""
    folder = tmp_path_factory.mktemp("reader") / "empty"
    folder.mkdir(mode=0o755)
    set_out(folder)
    lines = [line for line in curator_block() if line != "make serve"]
    last = next(place for place, line in enumerate(lines) if "my-release" in line)
    shell("\n".join(lines[:last]), folder)
    shell(filled("\n".join(lines[last:]), names_of(folder)["README.md"]), folder)
    return folder


def test_the_readme_s_commands_as_one_script(reader):
    assert (released(reader) / "certificate.json").exists()
    for command in of_script("readme"):
        assert filled(command, names_of(reader)["docs/spec.md"]) in curator_block()


def test_the_audit_runs_as_printed(reader):
    names = names_of(reader)["docs/operations.md"] | {"FOLDER": "state/releases"}
    (command,) = of_script("audit")
    shell(filled(command, names), reader)
    assert (reader / "audit" / "audit.html").exists()


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """The files that git knows, and an environment in which all is installed already."""
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    known = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    for name in filter(None, known.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").mkdir()
    programs(folder / ".venv" / "bin")
    for stamp in (".pipeline", ".test"):  # what `make` leaves when it has installed
        (folder / ".venv" / stamp).touch()
    for name in ("banknote", "adult"):
        (folder / "downloads").mkdir(exist_ok=True)
        people().to_csv(folder / "downloads" / f"{name}.csv", index=False)
    return folder


def test_what_is_typed_in_a_fresh_clone(clone):
    for command in ["make release", *of_script("clone")]:
        line = filled(command, {"FOLDER": "downloads"})
        shell(line, clone, PYTHONPATH=str(clone))
    assert len(list((clone / ".dpiw" / "releases").iterdir())) == 2
    assert len(list((clone / "downloads" / "releases").iterdir())) == 2
    shell(
        "make release-all\nmake release-bayes\nmake population\nmake mst\nmake external",
        clone,
        PYTHONPATH=str(clone),
    )
    assert len(list((clone / ".dpiw" / "releases").iterdir())) == 8


def test_the_commands_for_a_server_of_one_s_own(prefect_server, clone):  # noqa: F811
    page = [line for block in blocks("docs/operations.md", "sh") for line in lines_of(block)]
    inline = [c.text for c in commands() if c.page == "docs/operations.md" and not c.mention]
    ordered = [*page, *(line for line in inline if line not in page)]
    wanted = [line for line in ordered if line in of_script("prefect")]
    assert set(wanted) == set(of_script("prefect"))
    wanted.sort(key=lambda line: line.startswith("prefect deployment run"))
    variables = {
        "PREFECT_API_URL": prefect_server.url, "PREFECT_HOME": str(prefect_server.home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1",
    }  # fmt: skip
    done = shell("\n".join(wanted), clone, PYTHONPATH=str(clone), **variables)
    assert re.search(r"dpiw-release/gpu|Created flow run", done.stdout)
