"""The steps of a run, in order. Each continues from the files of earlier starts.

    reserve                                     hold the budget
    ingest, fit_generator, fit_weights          confidential: a process of their own each
    draw_synthetic, debias, diagnose, publish   post-process what the fits released

Repeating a step is free: each paid draw happens at most once.
"""

from dpiw.run.draw import fit_generator, fit_weights, ingest
from dpiw.run.publish import publish
from dpiw.run.reserve import reserve
from dpiw.run.weigh import debias, diagnose, draw_synthetic

__all__ = [
    "debias",
    "diagnose",
    "draw_synthetic",
    "fit_generator",
    "fit_weights",
    "ingest",
    "publish",
    "reserve",
]
