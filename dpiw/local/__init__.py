"""Local privacy: each person's report is noised where they are, before anybody collects it.

Stands alone: importing it loads NumPy only; SciPy comes with the first calibration and OpenDP with
the first draw (`pip install './dpiw[local]'`).

>>> from dpiw.local import LocalParameters, report_once
>>> parameters = LocalParameters.read("parameters.json")  # doctest: +SKIP
>>> report_once("me.report", {"age": 44}, parameters=parameters)  # doctest: +SKIP
"""

from dpiw.local.client import refuse_unnamed, report_once
from dpiw.local.parameters import Feature, LocalParameters, calibrated
from dpiw.local.reports import privatise, told_numbers, told_record

__all__ = [
    "Feature",
    "LocalParameters",
    "calibrated",
    "privatise",
    "refuse_unnamed",
    "report_once",
    "told_numbers",
    "told_record",
]
