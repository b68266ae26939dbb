"""One release by a peer, in the peers' own environment: codes in, codes out.

    python peer.py IN.npz OUT.npz

IN: `codes` (n, d) with public `sizes` (d,), and `method` (mst or aim), `epsilon`, `delta`, `rows`,
`seed`. The peers' own fit infers levels from the rows; here their mechanisms get the public domain,
so that nothing is inferred. They read the exact number of rows, and charge nothing for it. The seed
governs selection and sampling; their noise comes from OpenDP and cannot be seeded.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time

import numpy as np
import pandas as pd
from mbi import Dataset, Domain


def mst(codes: np.ndarray, domain: Domain, given: dict, rows: int) -> pd.DataFrame:
    """Maximum spanning tree of noisy two-way margins (McKenna et al. 2021)."""
    from snsynth.mst import MSTSynthesizer

    own = MSTSynthesizer(epsilon=given["epsilon"], delta=given["delta"])
    own.MST(Dataset(codes, domain=domain), own.epsilon, own.delta)
    return own.undo_compress_fn(own.synthesizer.synthetic_data(rows=rows)).df


def aim(codes: np.ndarray, domain: Domain, given: dict, rows: int) -> pd.DataFrame:
    """Adaptive and iterative choice of noisy two-way margins (McKenna et al. 2022)."""
    from snsynth.aim import AIMSynthesizer
    from snsynth.utils import cdp_rho

    own = AIMSynthesizer(epsilon=given["epsilon"], delta=given["delta"])
    data = Dataset(pd.DataFrame(codes, columns=list(domain.attrs)), domain=domain)
    own.rho = cdp_rho(own.epsilon, own.delta)
    own.AIM(data, own.get_workload(data, degree=own.degree, max_cells=own.max_cells))
    return own.synthesizer.synthetic_data(rows=rows).df


def main(source: str, target: str) -> None:
    found = np.load(source)
    codes, sizes = found["codes"], found["sizes"]
    given = {"epsilon": float(found["epsilon"]), "delta": float(found["delta"])}
    names = [f"c{j}" for j in range(len(sizes))]
    domain = Domain(names, [int(size) for size in sizes])
    method = {"mst": mst, "aim": aim}[str(found["method"])]
    np.random.seed(int(found["seed"]))  # noqa: NPY002 - the peers draw from the global generator
    started = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        drawn = method(codes, domain, given, int(found["rows"]))
    np.savez(target, codes=drawn[names].to_numpy(dtype=np.int32),
             cpu_seconds=time.process_time() - started)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
