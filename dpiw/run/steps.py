"""The steps of a run, in order; each continues from files, and each draw happens once."""

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
