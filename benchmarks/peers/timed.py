"""One call of a peer, timed, in its own environment: arrays in, arrays and seconds out.

    python timed.py SCRIPT IN.npz OUT.npz

SCRIPT: a neighbour with `fit(given) -> arrays`, whose imports are not timed. OUT: what it returned,
and `wall` and `cpu`, seconds of the call, child processes and threads included.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import resource
import sys
import time
import warnings

import numpy as np


def cpu_seconds() -> float:
    """Of this process and of those it has waited for."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(told.ru_utime + told.ru_stime for told in map(resource.getrusage, whose))


def main(script: str, source: str, target: str) -> None:
    warnings.filterwarnings("ignore")
    fit = importlib.import_module(script).fit
    with np.load(source) as found:
        given = dict(found)
    wall, cpu = time.perf_counter(), cpu_seconds()
    with contextlib.redirect_stdout(io.StringIO()):
        made = fit(given)
    np.savez(target, **made, wall=time.perf_counter() - wall, cpu=cpu_seconds() - cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
