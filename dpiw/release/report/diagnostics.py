"""The weights' diagnostics for people: grouped by what they tell, each with what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpiw.release.certificate import flat
from dpiw.release.report.formats import number

_GROUPS = {
    "Rows": {
        "rows": ("Synthetic rows", "published"),
        "effective_sample_size": (
            "Effective sample size", "as steady as so many rows of equal weight",
        ),
        "design_effect": ("Design effect", "rows over effective sample size; 1: all weights equal"),
        "base_rows": ("Base rows", "drawn from the model; the published rows are chosen from them"),
        "effective_base_rows": ("Effective base rows", "effective sample size of the base rows"),
    },
    "Weights: signal against chance": {
        "evidence_p_value": (
            "Evidence test (p)", "how often chance alone would correct as much; small is good",
        ),
        "gain": (
            "Expected gain", "share of the measured averages' squared error that weights remove",
        ),
        "signal_p_value": (
            "Signal test (p)", "how often chance alone would spread them as much; small is good",
        ),
        "log_ratio_variance": ("Variance of the log weights", "before debiasing and scaling"),
        "chance_variance": ("Chance in that variance", "privacy noise and sampling error"),
        "resolution": ("Resolution", "forecast: share of the signal that survives; at most 1"),
        "k_hat": ("Pareto k-hat", "how far the largest weights stick out; below 0.7 is steady"),
    },
    "Privacy noise in the weights": {
        "tau": ("Noise in a log weight, forecast (tau)", "before data were read"),
        "noise": ("Noise in a log weight", "standard deviation, over rows by their weights"),
    },
}  # fmt: skip
_SAID_ELSEWHERE = {"reasons", "verdict", "rule"}
_TAU_OF_MEANS = "Noise of a measured average, forecast (tau)"


@dataclass(frozen=True, kw_only=True)
class DiagnosticsView:
    """Diagnostics as a page shows them.

    Attributes:
        groups: title to rows of (name, value, meaning).
        missing: names of those that have no value in this release.
        of_means: whether the weights were made from noisy averages, not from a ratio per row; a
            forecast of noise is then that of an average.
    """

    groups: Mapping[str, tuple[tuple[str, str, str], ...]]
    missing: tuple[str, ...]
    of_means: bool


def diagnostics_view(diagnostics: Mapping[str, Any]) -> DiagnosticsView:
    """Group a certificate's diagnostics, those of a method's own among them (`flat`)."""
    values = flat(diagnostics)
    of_means = "evidence_p_value" in values
    groups, missing = {}, []
    for title, texts in _GROUPS.items():
        rows = []
        for key, (name, meaning) in texts.items():
            if key in values and values[key] is not None:
                label = _TAU_OF_MEANS if key == "tau" and of_means else name
                rows.append((label, _value(key, values[key]), meaning))
            elif key in diagnostics:
                missing.append(name)
        groups[title] = tuple(rows)
    known = _SAID_ELSEWHERE.union(*_GROUPS.values())
    groups["Others"] = tuple(
        (key.replace("_", " "), *(("", value) if isinstance(value, str) else (number(value), "")))
        for key, value in diagnostics.items()
        if key not in known and isinstance(value, int | float | str)
    )
    nonempty = {title: rows for title, rows in groups.items() if rows}
    return DiagnosticsView(groups=nonempty, missing=tuple(missing), of_means=of_means)


def _value(key: str, value: object) -> str:
    if not isinstance(value, int | float):
        return number(value)
    if key == "gain":
        return f"{value:.0%}"
    if key.endswith("p_value") and value < 1e-6:
        return "below 0.000001"
    return number(round(value) if key.endswith(("rows", "sample_size")) else value)
