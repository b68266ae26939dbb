"""The steps of a run, in order. Each finds what is already there and continues from it.

    reserve                                     hold the budget
    ingest, fit_generator, fit_weights          confidential: a process of their own each
    draw_synthetic, debias, diagnose, publish   work on what the fits released

Repeating a step is free: a draw happens at most once for each time it was paid for, and everything
after it works on files.
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
