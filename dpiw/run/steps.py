"""The steps of a run, in order. Each continues from files of earlier starts; draws happen once.

`reserve` holds the budget. `ingest`, `fit_generator` and `fit_weights` are confidential, each in a
process of its own. The others post-process what the fits released.
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
