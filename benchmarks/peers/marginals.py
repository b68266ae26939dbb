"""MST and AIM on public codes, for `timed.py`: fitted, and rows drawn, each by itself.

The package's own `synthetic_data` gives rows whose columns share ranks, which is not by the fitted
model: two columns that are independent given a third come out correlated by .99.

The peers' own fit infers levels from the rows; here their mechanisms get the public domain, so that
nothing is inferred. They read the exact number of rows, and charge nothing for it. The seed governs
selection and sampling; their noise comes from OpenDP and cannot be seeded.
"""

from __future__ import annotations

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


def fit(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Rows of the public domain, shape (rows, d).

    Given: `codes` (n, d), `sizes` (d,), `method` (mst or aim), `epsilon`, `delta`, `seed`, and
    `rows`: as many as there are codes if it is not there.
    """
    names = [f"c{j}" for j in range(len(given["sizes"]))]
    domain = Domain(names, [int(size) for size in given["sizes"]])
    method = {"mst": mst, "aim": aim}[str(given["method"])]
    np.random.seed(int(given["seed"]))  # noqa: NPY002 - the peers draw from the global generator
    asked = {name: float(given[name]) for name in ("epsilon", "delta")}
    model, undo = method(given["codes"], domain, asked)
    rng = np.random.default_rng(int(given["seed"]))
    rows = undo(independent(model, int(given.get("rows", len(given["codes"]))), rng))
    return {"rows": rows.df[names].to_numpy(dtype=np.int32)}
