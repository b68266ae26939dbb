"""The noise that a certificate states, against the noise that its events were charged for.

The audit's own rule: noise of scale b on values that one unit moves by S, charged as an event of
multiplier m, must have b >= m S. A generator that draws less noise than it declares shows here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpiw.audit.findings import Finding
from dpiw.audit.folders import FolderFacts
from dpiw.release.certificate import CertifiedStage

_ROUNDING = 1e-9
"""Relative difference of two ways to one scale."""

_LAWS = {
    "gaussian": {"gaussian"},
    "poisson_sampled_gaussian": {"gaussian"},
    "laplace": {"laplace", "spherical"},
}
"""Laws of noise by the type of the event that may be charged for them."""


def check_stated_noise(folder: FolderFacts) -> list[Finding]:
    """Compare every stated scale with its event; say which events state none.

    Certificates of earlier versions state no sensitivity: a note says that nothing was checked.
    """
    if folder.release is None:
        return []
    findings: list[tuple[str, str]] = []
    for stage in folder.release.certificate.stages:
        try:
            findings += [("noise_too_small", text) for text in _faults(stage)]
            findings += [("noise_not_checked", text) for text in _unchecked(stage)]
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            text = f"stage {stage.stage}: what it states of its noise cannot be read"
            findings.append(("noise_too_small", text))
    subject = f"release {folder.name}"
    return [Finding(code=code, subject=subject, text=text) for code, text in findings]


def _faults(stage: CertifiedStage) -> Iterator[str]:
    for law in _with_sensitivity(stage):
        event = stage.events[_index(law["event"])]
        values = f"stage {stage.stage}: noise of {law['values']!r}"
        if law["law"] not in _LAWS.get(event["type"], ()):
            yield f"{values} is of another law than the event it names"
            continue
        scale, sensitivity = _positive(law["scale"]), _positive(law["sensitivity"])
        least = _positive(event["noise_multiplier"]) * sensitivity
        if scale < least * (1 - _ROUNDING):
            yield (
                f"{values} has scale {scale:.6g}; charged was noise of at least {least:.6g},"
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
    """An event but for how often it was drawn: equal ones share their noise."""
    return {name: value for name, value in event.items() if name != "count"}


def _index(place: object) -> int:
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        raise ValueError
    return place


def _positive(number: Any) -> float:
    if isinstance(number, bool) or not (math.isfinite(number) and number > 0):
        raise ValueError
    return float(number)
