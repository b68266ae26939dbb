"""MST and AIM, the peers, in an environment of their own: one release each, unweighted.

They get the public codes of our PrivBayes, the same confidential half, the same (epsilon, delta) in
total and the same number of published rows. The environment is made in the cache folder from
`peers/requirements.txt` (about 1.1 GB with JAX; no torch) and is no dependency of `dpiw`.

Every fit gives two sets of rows: `mst` and `aim` draw each row independently from the fitted model,
`mst as shipped` and `aim as shipped` are what the package draws by default (`peers/sampling.py`).

For other benchmarks, which want a peer's rows as a generator's:

- `peer_tables(cell, store, python)`: published rows, and `FITTING_ROWS` more of the same law to fit
  weights on, at a cell's data set of the paper, run and epsilon, on the public scale. Run r is the
  split that `weights_cells.split` has of the same file.
- `peer_rows(cell, store, python)`: the same as codes, kept in the store as
  `peers-...-fit.json` with `independent`, `fitting`, `as_shipped` and `refused`: made once, for the
  noise cannot be seeded.
- `fit(python, codes, sizes, asked)`: of any codes at any (epsilon, delta) and numbers of rows;
  kept nowhere.

`python` is what `environment(folder)` returns.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paper_cells import FITTING_ROWS, GENERATORS, Cell
from paper_measure import measure
from paper_sets import SETS, PaperStore, split
from paper_summary import AS_SHIPPED

from dpiw.data.discretisation import Domain
from dpiw.data.schema import PublicSchema
from dpiw.data.tables import SyntheticTable
from dpiw.methods.generators.marginal_noise import useful_bins

HERE = Path(__file__).resolve().parent / "peers"
METHODS = ("mst", "aim")
PEERS = (*METHODS, *(method + AS_SHIPPED for method in METHODS))
"""Names of rows: each method's, and those of the same fit as its package draws them."""

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
    sources = (HERE / name for name in ("peer.py", "sampling.py", "requirements.txt"))
    for path in (Path(__file__), *sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


DIGEST = _digest()


def method_of(cell: Cell) -> str:
    """The method whose fit a cell's rows are of."""
    return cell.generator.removesuffix(AS_SHIPPED)


def peer_name(cell: Cell) -> str:
    """A cell's file name."""
    return f"peers-{DIGEST}-{cell.name}".replace(" ", "-")


def fit_name(cell: Cell) -> str:
    """The file name of a cell's fit; both rows of a fit have the same."""
    alone = Cell(run=cell.run, dataset=cell.dataset, generator=method_of(cell), weights="none",
                 epsilon=cell.epsilon)  # fmt: skip
    return f"{peer_name(alone)}-fit"


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
        for method in METHODS
        for dataset in SMALL[method]
        for peer in (method, method + AS_SHIPPED)
    ]


# Fits


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One fit by a peer.

    Attributes:
        method: `mst` or `aim`.
        epsilon, delta: of the fit, which is all that reads rows.
        rows: published, drawn in both ways.
        fitting: more rows to fit weights on, drawn independently; they cost nothing.
        seed: of selection and draws; the noise has none.
    """

    method: str
    epsilon: float
    delta: float
    rows: int
    fitting: int
    seed: int


def _no_rows() -> NDArray[np.int32]:
    return np.zeros((0, 0), dtype=np.int32)


@dataclass(frozen=True, kw_only=True)
class PeerRows:
    """The rows of one fit as public codes, each of shape (rows, columns).

    Attributes:
        independent: each drawn by itself from the fitted model.
        fitting: more of the same.
        as_shipped: as the package draws them.
        refused: empty, or why there are none.
    """

    independent: NDArray[np.int32] = field(default_factory=_no_rows)
    fitting: NDArray[np.int32] = field(default_factory=_no_rows)
    as_shipped: NDArray[np.int32] = field(default_factory=_no_rows)
    refused: str = ""

    def published(self, peer: str) -> NDArray[np.int32]:
        """Those of one of `PEERS`."""
        return self.as_shipped if peer.endswith(AS_SHIPPED) else self.independent

    def record(self) -> dict[str, Any]:
        """For the store."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def of(cls, record: dict[str, Any]) -> PeerRows:
        """From the store."""
        parts = ("independent", "fitting", "as_shipped")
        codes = {name: np.array(record[name], dtype=np.int32) for name in parts}
        return cls(**codes, refused=record["refused"])


def fit(python: Path, codes: NDArray[np.int32], sizes: Sequence[int], asked: Asked) -> PeerRows:
    """One fit, and rows of it.

    Args:
        python: of the peers' environment.
        codes: confidential, shape (n, columns).
        sizes: public number of codes of each column.
        asked: what to fit and to draw.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, codes=codes, sizes=np.array(sizes), **vars(asked))
        refused = _run(python, source, target)
        if refused:
            return PeerRows(refused=refused)
        with np.load(target) as archive:
            drawn, shipped = archive["independent"], archive["as_shipped"]
    return PeerRows(
        independent=drawn[: asked.rows], fitting=drawn[asked.rows :], as_shipped=shipped
    )


def _domain(dataset: str, schema: PublicSchema) -> Domain:
    return Domain.from_schema(schema, bins=useful_bins(BINS, SETS[dataset].nominal_rows))


def peer_rows(cell: Cell, store: PaperStore, python: Path) -> PeerRows:
    """The fit that a cell's rows are of, from the store, or made and kept.

    A fit that fails or runs into the time limit is kept as refused, with the reason.
    """
    known = store.read(cell.dataset, fit_name(cell))
    if known is not None:
        return PeerRows.of(known)
    halves, facts = split(cell.dataset, cell.run, store.data), SETS[cell.dataset]
    domain = _domain(cell.dataset, halves.schema)
    asked = Asked(method=method_of(cell), epsilon=cell.epsilon, delta=facts.delta,
                  rows=facts.nominal_rows, fitting=FITTING_ROWS, seed=cell.run)  # fmt: skip
    peer = fit(python, domain.codes(halves.train), domain.sizes, asked)
    store.write(cell.dataset, fit_name(cell), peer.record())
    return peer


def peer_tables(
    cell: Cell, store: PaperStore, python: Path
) -> tuple[SyntheticTable, SyntheticTable] | None:
    """Published rows of a cell, and more of the fitted model to fit weights on; None if refused.

    The rows to fit on are drawn independently: they are of another law than rows as shipped.
    """
    peer = peer_rows(cell, store, python)
    return None if peer.refused else _tables(peer, cell, store)


def _tables(peer: PeerRows, cell: Cell, store: PaperStore) -> tuple[SyntheticTable, SyntheticTable]:
    schema = split(cell.dataset, cell.run, store.data).schema
    domain, rng = _domain(cell.dataset, schema), np.random.default_rng([cell.run, 2])
    published, fitting = (
        SyntheticTable(schema=schema, scaled=domain.fill(codes, rng=rng))
        for codes in (peer.published(cell.generator), peer.fitting)
    )
    return published, fitting


def compute_peer(cell: Cell, store: PaperStore, python: Path) -> dict[str, Any]:
    """The record of one peer's rows, of a fit that its other rows share: kept, or made and kept."""
    known = store.read(cell.dataset, peer_name(cell))
    if known is not None:
        return known
    started = time.monotonic()
    peer = peer_rows(cell, store, python)
    record: dict[str, Any] = vars(cell) | {"refused": peer.refused}
    if not peer.refused:
        halves = split(cell.dataset, cell.run, store.data)
        rows = halves.ruler.rows(_tables(peer, cell, store)[0].scaled)
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
