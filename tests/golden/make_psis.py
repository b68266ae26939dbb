"""Makes psis.json: Pareto smoothed weights by ArviZ. Needs arviz-stats 0.8.0 (extra `test`)."""

import importlib.metadata
import json
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats


def case(rows: int, spread: float) -> dict[str, object]:
    rng = np.random.default_rng(rows)
    log_weights = (spread * rng.standard_normal(rows)).round(6)
    smoothed, shape = array_stats.psislw(-log_weights)
    return {
        "rows": rows, "spread": spread, "log_weights": log_weights.tolist(), "k_hat": float(shape),
        "smoothed": smoothed.tolist(),
    }  # fmt: skip


if __name__ == "__main__":
    found = {
        "source": f"arviz-stats {importlib.metadata.version('arviz-stats')}, psislw, r_eff 1",
        "cases": [case(100, 0.5), case(225, 2.0), case(400, 1.0), case(400, 3.0)],
    }
    (Path(__file__).parent / "psis.json").write_text(json.dumps(found) + "\n")
