"""Thresholds of found levels, counted again from what a certificate states of them.

The audit's own formulas, from the definitions alone: the noise on a count against the unit's rows,
and the chance that levels which one unit alone holds reach the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpiw.audit.findings import Finding
from dpiw.audit.folders import FolderFacts
from dpiw.methods.generators.registry import finds_levels
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.certificate import CertifiedStage

_ROUNDING = 1e-6
"""Relative difference of two ways to one tail."""

_STEP = 2.0**-20
"""Of the lattice of counts, in scales: the audit's own copy of the agreed number."""


def check_thresholds(folder: FolderFacts) -> list[Finding]:
    """Whether a release that shows levels has the threshold and the noise that it paid for.

    That its lists keep to this threshold, `dpiw.release.verification.verify` has seen.
    """
    if folder.release is None:
        return []
    certificate = folder.release.certificate
    faults: list[str] = []
    for stage in certificate.stages:
        try:
            faults += _faults(stage, certificate.unit)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            faults.append(f"stage {stage.stage}: what it states of its threshold cannot be read")
    return [
        Finding(code="threshold_too_low", subject=f"release {folder.name}", text=text)
        for text in faults
    ]


def _faults(stage: CertifiedStage, unit: PrivacyUnit) -> Iterator[str]:
    events = [event for event in stage.events if event["type"] == "threshold"]
    if not (events or "threshold" in stage.parameters or finds_levels(stage.method)):
        return
    columns = len(stage.parameters["columns"])
    if sum(event["count"] for event in events) != columns:
        yield f"stage {stage.stage}: shows levels of {columns} columns; charged for fewer or more"
        return
    scale, threshold = _finite(stage.noise[0]["scale"]), _finite(stage.parameters["threshold"])
    moved = unit.max_rows * (
        1 if unit.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE else 2**0.5
    )
    gaussians = [event for event in stage.events if event["type"] == "gaussian"]
    if sum(event["count"] for event in gaussians) != columns or not all(
        scale >= event["noise_multiplier"] * moved * (1 - _ROUNDING) for event in gaussians
    ):
        yield f"stage {stage.stage}: its noise of {scale:.6g} rows is less than what it paid for"
    chance = _chance(threshold, scale, unit.max_rows)
    for event in events:
        if not chance <= event["delta"] * (1 + _ROUNDING):
            yield (
                f"stage {stage.stage}: a level of one person alone is shown with probability up to"
                f" {chance:.3g}; charged was {event['delta']:.3g}"
            )


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError
    return number


def _chance(threshold: float, scale: float, rows: int) -> float:
    """Of levels of one unit's rows, all on one or each on its own: that one is shown."""

    def passes(count: int) -> float:
        return math.erfc(((threshold - count) / scale - _STEP) / math.sqrt(2)) / 2

    return max(passes(rows), rows * passes(1))
