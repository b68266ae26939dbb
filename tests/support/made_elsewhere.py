"""Rows that another tool made, for tests: a Parquet file of the town, and its settings."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpiw.data.yaml import load_file

ROWS = 400


def rows_of_town(rows: int = ROWS, *, seed: int = 3) -> pd.DataFrame:
    """In the types that a Parquet file must store, and of another law than the town's."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(10, 80, rows),
            "income": np.where(rng.random(rows) < 0.1, np.nan, rng.uniform(0, 900, rows).round(2)),
            "region": rng.choice(["north", "south"], rows),
            "ill": rng.random(rows) < 0.5,
        }
    )


def written(path: Path, frame: pd.DataFrame) -> str:
    """Write the file; its SHA-256."""
    frame.to_parquet(path, index=False)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def settings(path: Path, sha256: str) -> dict[str, Any]:
    """Of `generator: external`."""
    return {
        "rows": str(path), "sha256": sha256, "tool": "sdg", "version": "1.2", "epsilon": 0.5,
        "delta": 1e-7, "relation": "add_or_remove_one", "declared_by": "A. Curator",
        "evidence": "its documentation",
    }  # fmt: skip


def write_spec(
    place: Any, *, weights: str = "measured", top: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """The workplace's spec with rows made elsewhere; `changes` of the generator's settings."""
    parquet = place.root / "made.parquet"
    digest = (
        written(parquet, rows_of_town())
        if not parquet.exists()
        else hashlib.sha256(parquet.read_bytes()).hexdigest()
    )
    spec = load_file(place.write_spec(), what="spec", exact=True)
    small = {"frequencies": 10, "omega_seed": 1, "base_rows": ROWS}
    spec |= {
        "epsilon": 1, "delta": "1e-6", "synthetic_rows": 100,
        "generator": {"method": "external",
                      "settings": settings(Path("made.parquet"), digest) | changes},
        "weights": {"method": weights, "settings": small if weights == "measured" else {}},
    } | (top or {})  # fmt: skip
    spec["generator"]["settings"] = {
        name: value for name, value in spec["generator"]["settings"].items() if value is not None
    }
    place.spec.write_text(json.dumps(spec, default=str))
    return place.spec
