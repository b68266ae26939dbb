"""The wheel alone is a curator's whole pipeline: installed, in an empty folder, to a release."""

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dpiw.release.verification import verify
from tests.flows.conftest import ROOT
from tests.support.documented_desk import released, set_out

pytestmark = pytest.mark.flow

BETWEEN = "--- between two commands ---\n"
TOGETHER = f"""
import json, sys
import dpiw
from dpiw.cli.main import main
print(dpiw.__file__)
for words in json.loads(sys.argv[1]):
    sys.stdout.write({BETWEEN!r})
    assert main(words) == 0, words
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    """`bin` of an environment with this wheel, and with the libraries of this interpreter."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
         "--no-deps", "--disable-pip-version-check", wheel],
        check=True,
    )  # fmt: skip
    # A path in such a file is one more to look in; what is installed there in editable form is not.
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return home / "bin"


@pytest.mark.slow
def test_the_wheel_holds_dpiw_alone_and_the_flows_under_no_name_of_their_own(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dpiw"}
    pages = {"audit/audit.html.j2", "release/report/report.css"}
    pages |= {f"release/report/{name}.html.j2" for name in ("base", "parts", "report")}
    assert {f"dpiw/{name}" for name in pages} <= set(names)
    carried = {name.removeprefix("dpiw/_pipeline/") for name in names if "_pipeline" in name}
    for top in ("flows", "tasks"):
        assert {name for name in carried if name.startswith(f"{top}/")} == {
            path.relative_to(ROOT).as_posix() for path in (ROOT / top).glob("*.py")
        }
    assert not [name for name in names if name.endswith(".pyc")]


@pytest.mark.crash
def test_an_installed_wheel_goes_from_an_empty_folder_to_a_release(
    programs, prefect_server, tmp_path
):
    desk = tmp_path / "desk"
    desk.mkdir()
    clean = prefect_server.environment()
    clean.pop("PYTHONPATH", None)

    def run(program, *words):
        done = subprocess.run(
            [programs / program, *words], cwd=desk, env=clean, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def dpiw(*commands):
        """What each command prints; several share a process, as that is not the matter here."""
        outputs = run("python", "-c", TOGETHER, json.dumps(commands)).split(BETWEEN)
        assert Path(outputs[0].strip()).is_relative_to(programs.parent)  # not the checkout's
        return outputs[1:]

    terms = ("--epsilon", "6", "--delta", "1e-5", "--relation", "add_or_remove_one")
    (desk / "state").mkdir(mode=0o700)
    ledger = ("--ledger", "state/ledger.sqlite")
    set_out(desk)
    _, _, schema_text, planned = dpiw(
        ("key", "new", "keys/mine"),
        ("ledger", "register", "my-people", *terms, *ledger, "--create"),
        ("schema", "spec"),
        ("plan", "release.yaml"),
    )
    schema: dict[str, Any] = json.loads(schema_text)
    assert schema["additionalProperties"] is False
    assert "more such release" in planned
    assert "more such release" in run("dpiw", "release", "release.yaml")
    assert not verify(released(desk)).pinned
    (text,) = dpiw(("ledger", "show", *ledger, "--csv"))
    assert text.splitlines()[1].startswith("my-people,my-release,once,")
