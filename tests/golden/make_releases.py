"""Publish one small release with every method, and keep the folders in `releases.tar.xz`.

`python -m tests.golden.make_releases NAME ...` makes the named recipes, of methods that are new or
differently published. All other folders of the archive stay as they are, with their answers: they
are releases of their own time, must load, and some are of settings that are gone.
"""

import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpiw.ledger import Ledger, Population
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.signing import create_key_pair
from tests.support.answers import answers_of
from tests.support.whole_runs import loaded, publish_run

HERE = Path(__file__).resolve().parent
SCHEMA = """
name: town
columns:
  - {name: age, kind: integer, lower: 0, upper: 100}
  - {name: income, kind: continuous, lower: 0, upper: 1000, decimals: 2, nullable: true}
  - {name: region, kind: categorical, levels: [north, south, other], other: other}
  - {name: stage, kind: ordinal, levels: [low, mid, high]}
  - {name: seen, kind: date, lower: "2020-01-01", upper: "2024-12-31"}
  - {name: ill, kind: boolean, role: target}
"""
FOUND = """
name: town
columns:
  - {name: age, kind: integer, lower: 0, upper: 100}
  - {name: region, kind: categorical, unseen: true, other: rest}
"""
MEASURED = {"method": "measured", "settings": {"frequencies": 10, "omega_seed": 1}}
NONE = {"method": "none"}
PRIVBAYES = {"method": "privbayes", "settings": {"bins": 5}}
STEPS = [{"step": "temper", "alpha": 0.5}, {"step": "pareto_smooth"}, {"step": "clip", "at": 5}]


def weights(method: str, *post: dict[str, Any], **settings: Any) -> dict[str, Any]:
    said = {"method": method, "settings": settings, "when_infeasible": "keep"}
    return said | ({"post_processing": list(post)} if post else {})


RECIPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{
        f"{method}-measured": ({"method": method}, MEASURED)
        for method in ("privbayes", "histogram", "mst", "aim", "external")
    },
    **{f"{method}-none": ({"method": method}, NONE) for method in ("bayes", "levels")},
    "dpgan-measured": ({"method": "dpgan", "settings": {"steps": 20}}, MEASURED),
    "dpcgan-discriminator": (
        {"method": "dpcgan", "settings": {"steps": 20}}, weights("discriminator")
    ),
    "pategan-measured": (
        {"method": "pategan", "settings": {"teachers": 4, "queries": 50}}, MEASURED
    ),
    "privbayes-beta_debiased": (PRIVBAYES, weights("beta_debiased")),
    "privbayes-beta_debiased-steps": (PRIVBAYES, weights("beta_debiased", *STEPS)),
    "privbayes-beta_noised": (PRIVBAYES, weights("beta_noised")),
    "privbayes-output_noised": (PRIVBAYES, weights("output_noised", allow_more_rows=True)),
    "privbayes-dp_mlp": (PRIVBAYES, weights("dp_mlp", steps=20)),
    "privbayes-none": (PRIVBAYES, NONE),
}  # fmt: skip


def people(count: int, *, seed: int) -> pd.DataFrame:
    """A made-up table of the schema."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, count)
    income = (8 * age + rng.normal(0, 80, count)).clip(0, 1000).round(2)
    days = rng.integers(0, 1500, count).astype("timedelta64[D]")
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(rng.random(count) < 0.1, np.nan, income),
            "region": rng.choice(["north", "south", "other"], count),
            "stage": rng.choice(["low", "mid", "high"], count),
            "seen": (np.datetime64("2020-06-01") + days).astype("datetime64[s]"),
            "ill": rng.random(count) < age / 120,
        }
    )


def prepare(root: Path) -> None:
    """A workplace with a ledger, a key, the table and rows that another tool made."""
    (root / "state" / "keys").mkdir(parents=True, mode=0o700)
    (root / "state").chmod(0o700)
    town = people(2000, seed=7)
    town.to_csv(root / "data.csv", index=False)
    town[["age", "region"]].to_csv(root / "narrow.csv", index=False)
    people(300, seed=8).to_parquet(root / "made.parquet", index=False)
    create_key_pair(root / "state" / "keys", "test")
    Ledger.create(root / "state" / "ledger.sqlite").register(
        Population(
            name="town", relation=NeighbouringRelation.ADD_OR_REMOVE_ONE, max_rows=1,
            epsilon=Decimal(400), delta=Decimal("1e-2"), max_unpaid_reads=99,
        )
    )  # fmt: skip


def spec_of(name: str, root: Path) -> Path:
    """The spec of a recipe, written."""
    generator, chosen = RECIPES[name]
    if generator["method"] == "external":
        digest = hashlib.sha256((root / "made.parquet").read_bytes()).hexdigest()
        generator = generator | {"settings": {
            "rows": "made.parquet", "sha256": digest, "tool": "sdg", "version": "1",
            "epsilon": 1, "delta": 1e-6, "relation": "add_or_remove_one",
            "declared_by": "A. Curator", "evidence": "its documentation",
        }}  # fmt: skip
        chosen = chosen | {"settings": chosen["settings"] | {"base_rows": 300}}
    narrow = generator["method"] == "levels"
    dictionary = root / f"{name}-schema.yaml"
    dictionary.write_text(FOUND if narrow else SCHEMA)
    path = root / f"{name}.yaml"
    path.write_text(json.dumps({
        "format": 1, "name": name, "population": "town", "cadence": "once",
        "source": {"path": "narrow.csv" if narrow else "data.csv", "format": "csv"},
        "schema": dictionary.name,
        "relation": "add_or_remove_one", "epsilon": 4, "delta": "1e-5", "nominal_rows": 2000,
        "generator": generator, "weights": chosen, "synthetic_rows": 60,
        "state": "state", "signing_key": "state/keys/test.key", "publish_to": "state/releases",
    }))  # fmt: skip
    return path


def made(names: Sequence[str], root: Path) -> dict[str, Any]:
    """Publish recipes into `root/NAME`, with the key; what they answer."""
    place, answers = root / "place", {}
    place.mkdir()
    prepare(place)
    for name in names:
        _, published = publish_run(spec_of(name, place))
        shutil.copytree(published, root / name)
        answers[name] = answers_of(loaded(published))
    shutil.copy(place / "state" / "keys" / "test.pub", root / "test.pub")
    shutil.rmtree(place)
    return answers


def main(names: Sequence[str], *, home: Path = HERE) -> None:
    """Add the named recipes to an archive, and their answers to its list.

    What was there stays: each folder is verified by its own key, `NAME.pub` where it was added
    later than `test.pub`.
    """
    unknown = set(names) - set(RECIPES)
    if unknown or not names:
        raise SystemExit(f"expected names of {', '.join(RECIPES)}")
    content = json.loads((home / "releases.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        kept, new = Path(folder) / "kept", Path(folder) / "new"
        new.mkdir()
        with tarfile.open(home / "releases.tar.xz") as packed:
            packed.extractall(kept, filter="data")
        content["answers"] |= made(names, new)
        for name in names:
            shutil.rmtree(kept / name, ignore_errors=True)
            shutil.copytree(new / name, kept / name)
            shutil.copy(new / "test.pub", kept / f"{name}.pub")
        with tarfile.open(home / "releases.tar.xz", "w:xz") as archive:
            for path in sorted(kept.iterdir()):
                archive.add(path, path.name)
    lines = ",\n".join(
        f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content["answers"].items()
    )
    text = f'{{"commit": {json.dumps(content["commit"])}, "answers": {{\n{lines}\n}}}}\n'
    (home / "releases.json").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
