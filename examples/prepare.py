"""Set the stage for an example: a file that plays the confidential table, a key, a population.

    python examples/prepare.py breast-cancer | breast-cancer-all | population
    python examples/prepare.py banknote --data FOLDER    (with banknote.csv)
    python examples/prepare.py adult --data FOLDER       (with adult.csv)

It runs the commands a custodian would run once, and shows them. Repeating it changes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dpiw.cli.main import main as dpiw

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".dpiw"

LIFETIME = {
    "breast-cancer": ("wisconsin-breast-cancer", "7", "1e-5"),
    "breast-cancer-all": ("wisconsin-breast-cancer-all", "7", "1e-5"),
    "population": ("simulated-population", "10", "1e-5"),
    "banknote": ("banknote", "10", "1e-5"),
    "adult": ("adult", "10", "1e-5"),
}
"""Example: (population, lifetime epsilon, lifetime delta)."""


DOWNLOADED = ("banknote", "adult")
"""Examples whose data does not ship with a dependency of ours."""


def breast_cancer(columns: list[str] | None) -> pd.DataFrame:
    """The Wisconsin diagnostic data that ships inside scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" ", "_"))
    if columns is not None:
        frame = frame[columns]
    return frame.assign(malignant=(data.target == 0).map({True: "true", False: "false"}))


def table(example: str, data: Path | None) -> pd.DataFrame:
    if example in DOWNLOADED:
        if data is None:
            raise SystemExit(f"{example}: give the folder of {example}.csv with --data")
        import pandas as pd

        return pd.read_csv(data / f"{example}.csv", dtype=str, keep_default_na=False)
    if example == "breast-cancer":
        return breast_cancer(["mean_radius", "mean_texture", "mean_smoothness", "mean_concavity"])
    if example == "breast-cancer-all":
        return breast_cancer(None)
    sys.path.insert(0, str(ROOT / "examples" / "population"))
    import simulate

    return simulate.population(rows=50_000, seed=simulate.CONFIDENTIAL_SEED)


def write_table(example: str, data: Path | None) -> None:
    path = STATE / "examples" / f"{example}.csv"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    table(example, data).to_csv(path, index=False)
    path.chmod(0o600)
    print(f"wrote {path.relative_to(ROOT)}: for this example it plays the confidential table")


def run(*arguments: str) -> None:
    print("$ dpiw " + " ".join(arguments))
    with contextlib.chdir(ROOT):
        code = dpiw(list(arguments))
    if code:
        raise SystemExit(code)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("example", choices=sorted(LIFETIME))
    parser.add_argument("--data", type=Path, help="folder of a data set that is not bundled")
    chosen = parser.parse_args(arguments)
    example = chosen.example
    STATE.mkdir(mode=0o700, exist_ok=True)
    write_table(example, chosen.data)
    if not (STATE / "keys" / "demo.key").exists():
        run("key", "new", ".dpiw/keys/demo.key")
    population, epsilon, delta = LIFETIME[example]
    run(
        "ledger",
        "register",
        population,
        "--epsilon",
        epsilon,
        "--delta",
        delta,
        "--relation",
        "add_or_remove_one",
        "--ledger",
        ".dpiw/ledger.sqlite",
        "--create",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
