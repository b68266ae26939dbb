"""Publish releases of simulated people in this process: no server, no schedule.

    python examples/population/publish.py FOLDER
    python examples/population/publish.py FOLDER measured

The second has `measured` weights with replicate weights; `totals` instead of `measured` makes
unnormalised ones. For the notebook beside this file, documents and tests. The steps are those of
`flows/release.py`; what is left out is Prefect, and a process of its own for every confidential
stage: for simulated rows only.
"""

from __future__ import annotations

import json
import secrets
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import simulate

from dpiw.data.yaml import load_file
from dpiw.ledger import Ledger, Population
from dpiw.privacy.randomness import SecureNoise
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.signing import create_key_pair
from dpiw.run import steps
from dpiw.run.run import ReleaseRun

HERE = Path(__file__).resolve().parent
MEASURED = {"omega_seed": 1, "frequencies": 100, "replicates": 200}
RELEASES: dict[str, dict[str, Any]] = {
    "once": {},
    "measured": {
        "name": "population-measured",
        "weights": {"method": "measured", "settings": MEASURED},
    },
    "totals": {
        "name": "population-totals",
        "weights": {"method": "beta_debiased", "normalisation": "unnormalised"},
    },
}
"""What the documents for analysts use: fields of `release.yaml` to replace, by a word."""


def publish(folder: Path, *, rows: int = 50_000, **changes: Any) -> tuple[Path, Path]:
    """Simulate people and publish a release about them.

    Args:
        folder: a curator's place: their key, ledger, workspace and releases; made if missing.
        rows: people, drawn anew for every folder and number; also `nominal_rows`, and the number
            of synthetic rows.
        changes: fields of `release.yaml` to replace; releases in one folder differ in `name`.

    Returns:
        The release folder, and the public key file.
    """
    (folder / "state").mkdir(mode=0o700, parents=True, exist_ok=True)
    key = folder / "curator.key"
    if not key.exists():
        create_key_pair(folder, "curator")
    spec = load_file(HERE / "release.yaml", what="release.yaml") | {
        "source": {"path": f"people-{rows}.csv", "format": "csv"},
        "schema": str(HERE / "schema.yaml"),
        "nominal_rows": rows,
        "synthetic_rows": rows,
        "state": "state",
        "signing_key": key.name,
        "publish_to": "releases",
    }
    spec |= changes
    people = folder / f"people-{rows}.csv"
    if not people.exists():
        simulate.population(rows=rows, seed=secrets.randbits(64)).to_csv(people, index=False)
    path = folder / f"{spec['name']}.yaml"
    path.write_text(json.dumps(spec))
    Ledger.create(folder / "state" / "ledger.sqlite").register(
        Population(
            name=spec["population"],
            relation=NeighbouringRelation.ADD_OR_REMOVE_ONE,
            max_rows=1,
            epsilon=Decimal(10),
            delta=Decimal("1e-4"),
        )
    )
    run = ReleaseRun.prepare(path, period=None)
    steps.reserve(run)
    steps.ingest(run)
    steps.fit_generator(run, noise=SecureNoise())
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=SecureNoise())
    steps.debias(run)
    steps.diagnose(run)
    return steps.publish(run), key.with_suffix(".pub")


if __name__ == "__main__":
    (wanted,) = sys.argv[2:] or ["once"]
    release, public_key = publish(Path(sys.argv[1]), **RELEASES[wanted])
    print(f"{release}\nsigned by {public_key}")
