"""Noise and thresholds that a certificate states, compared with the events that were charged.

Noise of scale b on values that one unit moves by S, charged as an event of multiplier m, must have
b >= m S. The threshold of found levels must fit the noise on a count and the probability that a
level held by one unit alone reaches it.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpiw.audit.findings import Finding
from dpiw.audit.folders import FolderFacts
from dpiw.methods.generators.registry import finds_levels
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.certificate import CertifiedStage

_ROUNDING = 1e-9
"""Relative difference of two ways to one scale."""

_LAWS = {
    "gaussian": {"gaussian"},
    "poisson_sampled_gaussian": {"gaussian"},
    "laplace": {"laplace", "spherical"},
}
"""Laws of noise by the type of the event that may be charged for them."""

_UNREADABLE = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)


def check_stated_noise(folder: FolderFacts) -> list[Finding]:
    """Compare every stated scale with its event; report certificates that state no sensitivity."""
    subject, findings = f"release {folder.name}", list[Finding]()
    for stage in () if folder.release is None else folder.release.certificate.stages:
        try:
            findings += [Finding("noise_too_small", subject, text) for text in _faults(stage)]
            findings += [Finding("noise_not_checked", subject, text) for text in _unchecked(stage)]
        except _UNREADABLE:
            text = f"stage {stage.stage}: the certificate's statement of its noise cannot be read"
            findings.append(Finding("noise_too_small", subject, text))
    return findings


def _faults(stage: CertifiedStage) -> Iterator[str]:
    for law in _with_sensitivity(stage):
        event = stage.events[_index(law["event"])]
        values = f"stage {stage.stage}: noise of {law['values']!r}"
        if law["law"] not in _LAWS.get(event["type"], ()):
            yield f"{values} is of law {law['law']!r}, and charged was {event['type']!r}"
            continue
        scale, sensitivity = _positive(law["scale"]), _positive(law["sensitivity"])
        least = _positive(event["noise_multiplier"]) * sensitivity
        if scale < least * (1 - _ROUNDING):
            yield (
                f"{values} has scale {scale:.6g}; the charge needs at least {least:.6g}, which is"
                f" multiplier {event['noise_multiplier']:.6g} times sensitivity {sensitivity:.6g}"
            )


def _unchecked(stage: CertifiedStage) -> Iterator[str]:
    checked = [_kind(stage.events[_index(law["event"])]) for law in _with_sensitivity(stage)]
    noisy = [event for event in stage.events if event["type"] in _LAWS]
    missing = sum(int(event["count"]) for event in noisy if _kind(event) not in checked)
    if missing:
        yield (
            f"stage {stage.stage}: the certificate states no sensitivity for {missing} of its"
            " draws; whether their noise is what was charged was not checked"
        )


def _with_sensitivity(stage: CertifiedStage) -> list[Mapping[str, Any]]:
    return [law for law in stage.noise if "sensitivity" in law]


def _kind(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "count"}


def _index(place: object) -> int:
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        raise ValueError
    return place


def _positive(number: Any) -> float:
    if isinstance(number, bool) or not (math.isfinite(number) and number > 0):
        raise ValueError
    return float(number)


_TAIL_ROUNDING = 1e-6
"""Relative difference of two ways to one tail."""

_STEP = 2.0**-20
"""Step of the lattice of counts, in scales: the audit's own copy of the number."""


def check_thresholds(folder: FolderFacts) -> list[Finding]:
    """Check that shown levels have the threshold and noise that the release paid for."""
    if folder.release is None:
        return []
    certificate = folder.release.certificate
    faults: list[str] = []
    for stage in certificate.stages:
        try:
            faults += _threshold_faults(stage, certificate.unit)
        except _UNREADABLE:
            faults.append(f"stage {stage.stage}: its stated threshold or noise cannot be read")
    return [Finding("threshold_too_low", f"release {folder.name}", text) for text in faults]


def _threshold_faults(stage: CertifiedStage, unit: PrivacyUnit) -> Iterator[str]:
    events = [event for event in stage.events if event["type"] == "threshold"]
    if not (events or "threshold" in stage.parameters or finds_levels(stage.method)):
        return
    columns = len(stage.parameters["columns"])
    if sum(event["count"] for event in events) != columns:
        yield f"stage {stage.stage}: shows levels of {columns} columns, and paid for another number"
        return
    scale, threshold = stage.noise[0]["scale"], stage.parameters["threshold"]
    if not (math.isfinite(scale) and math.isfinite(threshold)):
        raise ValueError
    replaced = unit.relation is not NeighbouringRelation.ADD_OR_REMOVE_ONE
    moved = unit.max_rows * (2**0.5 if replaced else 1)
    gaussians = [event for event in stage.events if event["type"] == "gaussian"]
    if sum(event["count"] for event in gaussians) != columns or not all(
        scale >= event["noise_multiplier"] * moved * (1 - _TAIL_ROUNDING) for event in gaussians
    ):
        yield f"stage {stage.stage}: its noise of {scale:.6g} rows is less than the charge needs"
    chance = _chance(threshold, scale, unit.max_rows)
    for event in events:
        if not chance <= event["delta"] * (1 + _TAIL_ROUNDING):
            yield (
                f"stage {stage.stage}: a level that only one person has is shown with probability"
                f" up to {chance:.3g}, and only delta={event['delta']:.3g} was charged"
            )


def _chance(threshold: float, scale: float, rows: int) -> float:
    """Probability that a level of one unit's rows, all on one or each on its own, is shown."""

    def passes(count: int) -> float:
        return math.erfc(((threshold - count) / scale - _STEP) / math.sqrt(2)) / 2

    return max(passes(rows), rows * passes(1))
