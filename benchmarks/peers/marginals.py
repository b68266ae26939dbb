"""MST and AIM on public codes, for `timed.py`: fitted, and as many rows drawn, each by itself.

As `peer.py`, whose functions these are, but that the package's own draw is left out of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import peer
from mbi import Domain


def fit(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Given: `codes` (n, d), `sizes` (d,), `method`, `epsilon`, `delta`, `seed`."""
    names = [f"c{j}" for j in range(len(given["sizes"]))]
    domain = Domain(names, [int(size) for size in given["sizes"]])
    method = {"mst": peer.mst, "aim": peer.aim}[str(given["method"])]
    np.random.seed(int(given["seed"]))  # noqa: NPY002 - the peers draw from the global generator
    asked = {name: float(given[name]) for name in ("epsilon", "delta")}
    model, undo = method(given["codes"], domain, asked)
    rng = np.random.default_rng(int(given["seed"]))
    rows = undo(peer.independent(model, len(given["codes"]), rng))
    return {"rows": rows.df[names].to_numpy(dtype=np.int32)}
