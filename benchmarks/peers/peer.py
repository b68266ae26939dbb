"""One fit by a peer, in the peers' own environment: codes in, codes out.

    python peer.py IN.npz OUT.npz

IN: `codes` (n, d) with public `sizes` (d,), and `method` (mst or aim), `epsilon`, `delta`, `rows`,
`seed`. OUT, from one fit: `independent` (rows, d), drawn as `sampling` says, and `as_shipped`
(rows, d), by the package's own `synthetic_data`, whose columns share ranks.

The peers' own fit infers levels from the rows; here their mechanisms get the public domain, so that
nothing is inferred. They read the exact number of rows, and charge nothing for it. The seed governs
selection and sampling; their noise comes from OpenDP and cannot be seeded.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from mbi import Dataset, Domain, junction_tree, marginal_oracles
from sampling import independent_rows, parents_of

Undo = Callable[[Dataset], Dataset]
"""From the levels of the model to those of the public domain."""


def mst(codes: np.ndarray, domain: Domain, given: dict) -> tuple[Any, Undo]:
    """Maximum spanning tree of noisy two-way margins (McKenna et al. 2021)."""
    from snsynth.mst import MSTSynthesizer

    own = MSTSynthesizer(epsilon=given["epsilon"], delta=given["delta"])
    own.MST(Dataset(codes, domain=domain), own.epsilon, own.delta)
    return own.synthesizer, own.undo_compress_fn


def aim(codes: np.ndarray, domain: Domain, given: dict) -> tuple[Any, Undo]:
    """Adaptive and iterative choice of noisy two-way margins (McKenna et al. 2022)."""
    from snsynth.aim import AIMSynthesizer
    from snsynth.utils import cdp_rho

    own = AIMSynthesizer(epsilon=given["epsilon"], delta=given["delta"])
    data = Dataset(pd.DataFrame(codes, columns=list(domain.attrs)), domain=domain)
    own.rho = cdp_rho(own.epsilon, own.delta)
    own.AIM(data, own.get_workload(data, degree=own.degree, max_cells=own.max_cells))
    return own.synthesizer, lambda drawn: drawn


def independent(model: Any, rows: int, rng: np.random.Generator) -> Dataset:
    """Rows of mbi's model, each drawn by itself."""
    tree, eliminated = junction_tree.make_junction_tree(model.domain, model.cliques)
    margins = marginal_oracles.message_passing_stable(model.potentials.expand(list(tree.nodes)))
    found = independent_rows(
        parents_of(eliminated[::-1], tree.nodes),
        lambda columns: margins.project(columns).datavector(flatten=False),
        rows,
        rng,
    )
    return Dataset(found, model.domain)


def both(model: Any, undo: Undo, given: dict, names: list[str]) -> dict[str, np.ndarray]:
    """The rows of one fit, drawn in both ways; as shipped first, as if it were alone."""
    rng = np.random.default_rng([given["seed"], 3])
    shipped = undo(model.synthetic_data(rows=given["rows"]))
    drawn = undo(independent(model, given["rows"], rng))
    parts = {"independent": drawn, "as_shipped": shipped}
    return {name: own.df[names].to_numpy(dtype=np.int32) for name, own in parts.items()}


def main(source: str, target: str) -> None:
    found = np.load(source)
    codes, sizes = found["codes"], found["sizes"]
    given = {name: float(found[name]) for name in ("epsilon", "delta")}
    given |= {name: int(found[name]) for name in ("rows", "seed")}
    names = [f"c{j}" for j in range(len(sizes))]
    domain = Domain(names, [int(size) for size in sizes])
    method = {"mst": mst, "aim": aim}[str(found["method"])]
    np.random.seed(given["seed"])  # noqa: NPY002 - the peers draw from the global generator
    started = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        rows = both(*method(codes, domain, given), given, names)
    np.savez(target, **rows, cpu_seconds=time.process_time() - started)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
