"""Local privacy: each person's device adds the noise, before anybody collects the report.

Importing this package loads NumPy only. SciPy loads with the first calibration, OpenDP with the
first draw (`pip install './dpiw[local]'`).
"""

from dpiw.local.client import privatise, refuse_unnamed, report_once, told_numbers, told_record
from dpiw.local.parameters import Feature, LocalParameters, calibrated

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
