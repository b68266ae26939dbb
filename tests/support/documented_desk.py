"""What a reader of the documents has: an empty folder, their own table, spec and schema."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

from tests.support.documents import ROOT, Command, blocks, lines_of

README = "README.md"
COLUMNS = ["mean_radius", "mean_texture", "mean_smoothness", "mean_concavity"]

AT_LENGTH = {
    "dpiw audit --ledger URL --releases FOLDER --key curator.pub --out audit": "audit",
    "dpiw rehearse SPEC": "readme",
    "make release": "clone",
    "python examples/prepare.py breast-cancer": "clone",
    "python examples/prepare.py breast-cancer-all": "clone",
    "python examples/prepare.py population": "clone",
    "python examples/prepare.py banknote --data FOLDER": "clone",
    "python examples/prepare.py adult --data FOLDER": "clone",
    "python examples/population/publish.py FOLDER": "clone",
    "python examples/population/publish.py FOLDER measured": "clone",
    "dpiw release examples/population-neural/release.yaml": "clone",
    "python examples/population/simulate.py": "clone",
    "python -m docs.journeys": "clone",
    "prefect concurrency-limit create gpu 1": "prefect",
    "prefect concurrency-limit reset gpu": "prefect",
    "prefect work-pool create dpiw --type process": "prefect",
    "prefect work-pool set-concurrency-limit dpiw 1": "prefect",
    "prefect work-pool create dpiw-gpu --type process": "prefect",
    "prefect work-pool set-concurrency-limit dpiw-gpu 1": "prefect",
    "DPIW_CHECKOUT=$PWD prefect --no-prompt deploy --all --prefect-file deployments/prefect.yaml":
        "prefect",
    "DPIW_CHECKOUT=$PWD prefect --no-prompt deploy --name monthly"
    " --param spec=$PWD/town/release.yaml --prefect-file deployments/prefect.yaml": "prefect",
    "DPIW_CHECKOUT=$PWD prefect --no-prompt deploy --name weekly"
    " --param ledger=$PWD/town/release.yaml --param key=$PWD/town/keys/curator.pub"
    " --param out=$PWD/town/audit --prefect-file deployments/prefect.yaml": "prefect",
    "prefect deployment schedule create dpiw-release/monthly --replace --accept-yes"
    ' --cron "0 3 2 * *"': "prefect",
    "prefect deployment run dpiw-release/gpu": "prefect",
}  # fmt: skip
"""Commands that the nightly tests type: which of their scripts."""


def curator_block() -> list[str]:
    """The commands of README's curators, in order."""
    return lines_of(blocks(README, "sh")[1])


def curator_commands() -> list[Command]:
    """The same, as `tests.support.documents.commands` finds them."""
    return [Command(README, line) for line in curator_block()]


@functools.cache
def people() -> pd.DataFrame:
    """The table of the worked example: five columns that ship with scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" ", "_"))[COLUMNS]
    return frame.assign(malignant=(data.target == 0).map({True: "true", False: "false"}))


def set_out(folder: Path) -> None:
    """What README takes for granted: the example's spec, with the reader's own paths and names."""
    example = ROOT / "examples" / "breast-cancer"
    spec = (example / "release.yaml").read_text()
    for field, value in {
        "name": "my-release", "population": "my-people", "  path": "people.csv", "state": "state",
        "signing_key": "keys/mine.key", "publish_to": "state/releases",
    }.items():  # fmt: skip
        spec, count = re.subn(rf"^{field}:.*$", f"{field}: {value}", spec, flags=re.M)
        assert count == 1
    (folder / "release.yaml").write_text(spec)
    (folder / "schema.yaml").write_text((example / "schema.yaml").read_text())
    people().to_csv(folder / "people.csv", index=False)


def programs(folder: Path) -> Path:
    """A folder with `python` and `dpiw`: this interpreter, as an installation would put them."""
    folder.mkdir()
    for name, call in {"python": "", "dpiw": "-m dpiw.cli.main"}.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
        path.chmod(0o755)
    return folder


def environment(tools: Path, **more: str) -> dict[str, str]:
    """A reader's shell: the programs on its path, this checkout as what is installed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "PYTEST", "DPIW"))}
    path = f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


def shell(script: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a reader would, to its end, with programs in `tools` beside the folder."""
    tools = folder.parent / "tools"
    if not tools.exists():
        programs(tools)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, check=False, text=True,
        env=environment(tools, **more), capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done


def released(folder: Path) -> Path:
    """The one release published below a folder."""
    (release,) = (folder / "state" / "releases").iterdir()
    return release


def names_of(folder: Path) -> dict[str, dict[str, str]]:
    """By page: what its names stand for, seen from the folder."""
    ledger = "state/ledger.sqlite"
    names: dict[str, dict[str, str]] = {"README.md": {}, "docs/operations.md": {}}
    names["docs/spec.md"] = {"SPEC": "release.yaml", "E": "6", "D": "1e-5"}
    if not (folder / "state" / "releases").exists():
        return names
    release = released(folder).relative_to(folder)
    stated = json.loads((folder / release / "certificate.json").read_text())
    names["README.md"] = {"state/releases/my-release": str(release)}
    names["docs/operations.md"] = {
        "URL": ledger, "PUBLISHED": "state/releases", "curator.pub": "keys/mine.pub",
        "DIR": "state", "RUN": "0" * 64, "KEY": stated["release_id"].rpartition("-")[2],
    }  # fmt: skip
    names["docs/privacy.md"] = {
        "FOLDER": str(release), "FILE": ledger, "HASH": stated["ledger_head"],
        "curator.pub": "keys/mine.pub", "NAME": "patients", "E": "4", "D": "1e-6",
        "R": "add_or_remove_one", "K": "3", "C": "person",
    }  # fmt: skip
    return names
