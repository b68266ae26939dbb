"""MST and AIM, the peers, in an environment of their own: one release each, unweighted.

They get the public codes of our PrivBayes, the same confidential half, the same (epsilon, delta) in
total and the same number of published rows. The environment is made in the cache folder from
`peers/requirements.txt` (about 1.1 GB with JAX; no torch) and is no dependency of `dpiw`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from paper_cells import GENERATORS, Cell
from paper_measure import measure
from paper_sets import SETS, PaperStore, split

from dpiw.domain import Domain
from dpiw.generators.marginal_noise import useful_bins

HERE = Path(__file__).resolve().parent / "peers"
PEERS = ("mst", "aim")
SMALL: dict[str, tuple[str, ...]] = {
    "mst": ("banknote", "iris", "boston", "breast", "tgfb"),
    "aim": ("banknote", "iris"),
}
"""AIM fits a model in each of 16 d rounds: slow on wide tables, and not tried there."""

BINS = int(GENERATORS["privbayes"]["bins"])
LIMIT_S = 1800


def _digest() -> str:
    """Of all that makes a peer's cell besides what the store's folder is named by."""
    digest = hashlib.sha256()
    for path in (Path(__file__), HERE / "peer.py", HERE / "requirements.txt"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


DIGEST = _digest()


def peer_name(cell: Cell) -> str:
    """A cell's file name."""
    return f"peers-{DIGEST}-{cell.name}"


def environment(folder: Path) -> Path:
    """The peers' Python, made on the first call."""
    python = folder / "peers" / "bin" / "python"
    ready = folder / "peers" / ".ready"
    wanted = (HERE / "requirements.txt").read_text()
    if ready.exists() and ready.read_text() == wanted:
        return python
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "venv", str(folder / "peers")], check=True)
    subprocess.run(
        [str(python), "-m", "pip", "install", *quiet, "--no-deps", "-r",
         str(HERE / "requirements.txt")],
        check=True,
    )  # fmt: skip
    ready.write_text(wanted)
    return python


def peer_cells(runs: int) -> list[Cell]:
    """Every peer's releases, run by run."""
    return [
        Cell(run=run, dataset=dataset, generator=peer, weights="none")
        for run in range(runs)
        for peer in PEERS
        for dataset in SMALL[peer]
    ]


def compute_peer(cell: Cell, store: PaperStore, python: Path) -> dict[str, Any]:
    """The record of one release by a peer: from the store, or made and kept.

    A release that fails or runs into the time limit is kept as refused, with the reason.
    """
    known = store.read(cell.dataset, peer_name(cell))
    if known is not None:
        return known
    started = time.monotonic()
    halves, own = split(cell.dataset, cell.run, store.data), SETS[cell.dataset]
    domain = Domain.from_schema(halves.schema, bins=useful_bins(BINS, own.nominal_rows))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(
            source, codes=domain.codes(halves.train), sizes=domain.sizes, method=cell.generator,
            epsilon=cell.epsilon, delta=own.delta, rows=own.nominal_rows, seed=cell.run,
        )  # fmt: skip
        refused = _run(python, source, target)
        record: dict[str, Any] = vars(cell) | {"refused": refused}
        if not refused:
            codes = np.load(target)["codes"]
            filled = domain.fill(codes, rng=np.random.default_rng([cell.run, 2]))
            rows = halves.ruler.rows(filled)
            ones = np.ones(len(rows))
            record["metrics"] = measure(halves, rows, ones, run=cell.run, data=store.data)
    record["seconds"] = time.monotonic() - started
    store.write(cell.dataset, peer_name(cell), record)
    return record


def _run(python: Path, source: Path, target: Path) -> str:
    """Empty, or why there is no result."""
    command = [str(python), str(HERE / "peer.py"), str(source), str(target)]
    single = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    try:
        done = subprocess.run(
            command, env=os.environ | single, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"not done in {LIMIT_S} s"
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:200]
