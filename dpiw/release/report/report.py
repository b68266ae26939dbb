"""`report.html`: one page without scripts for people who are not specialists.

`report.html.j2` holds the words and escapes every text; the numbers come from the certificate, the
public schema and the released rows, so the page is free post-processing.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpiw.data.schema.columns import ColumnKind
from dpiw.data.schema.schema import PublicSchema
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.certificate import Certificate, flat
from dpiw.release.report import figures
from dpiw.release.report.figures import Answers, RowsShown
from dpiw.release.report.pages import (
    number,
    percent_above,
    plain,
    render,
    short_decimal,
    three_digits_above,
)

_GROUPS = {
    "Rows": {
        "rows": ("Synthetic rows", "published"),
        "effective_sample_size": (
            "Effective sample size", "results vary as those of this many rows of equal weight",
        ),
        "design_effect": ("Design effect", "rows / effective sample size; 1: all weights equal"),
        "base_rows": ("Base rows", "drawn from the model; the published rows are chosen from them"),
        "effective_base_rows": ("Effective base rows", "effective sample size of the base rows"),
    },
    "Weights: signal against chance": {
        "evidence_p_value": (
            "Evidence test (p)", "how often chance alone corrects as much; lower is better",
        ),
        "gain": (
            "Expected gain", "share of the measured averages' squared error that weights remove",
        ),
        "signal_p_value": (
            "Signal test (p)", "how often chance alone spreads weights as much; lower is better",
        ),
        "log_ratio_variance": ("Variance of the log weights", "before debiasing and scaling"),
        "chance_variance": ("Chance in that variance", "from privacy noise and sampling error"),
        "k_hat": ("Pareto k-hat", "how far the largest weights exceed others; below 0.7 is stable"),
    },
    "Privacy noise in the weights": {
        "noise": ("Noise in a log weight", "standard deviation; rows count by their weights"),
    },
}  # fmt: skip
_SAID_ELSEWHERE = {"reasons", "verdict", "rule"}


@dataclass(frozen=True, kw_only=True)
class DiagnosticsView:
    """Diagnostics for a page: rows of (name, value, meaning) by title, and names without a value.

    `of_means`: the weights come from noisy averages.
    """

    groups: Mapping[str, tuple[tuple[str, str, str], ...]]
    missing: tuple[str, ...]
    of_means: bool


def diagnostics_view(diagnostics: Mapping[str, Any]) -> DiagnosticsView:
    """Group a certificate's diagnostics, including a method's own (`flat`)."""
    values = flat(diagnostics)
    groups, missing = {}, []
    for title, texts in _GROUPS.items():
        rows = []
        for key, (name, meaning) in texts.items():
            if key in values and values[key] is not None:
                rows.append((name, _value(key, values[key]), meaning))
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
    of_means = "evidence_p_value" in values
    return DiagnosticsView(groups=nonempty, missing=tuple(missing), of_means=of_means)


def _value(key: str, value: object) -> str:
    if not isinstance(value, int | float):
        return number(value)
    if key == "gain":
        return f"{value:.0%}"
    if key.endswith("p_value") and value < 1e-6:
        return "below 0.000001"
    return number(round(value) if key.endswith(("rows", "sample_size")) else value)


Array = NDArray[np.float64]


def build_report(
    certificate: Certificate,
    *,
    shown: RowsShown,
    log_weight_noise_sd: Array | None,
    schema: PublicSchema,
    answers: Answers | None = None,
) -> str:
    """Return the report as one HTML document; the same arguments give the same text.

    `log_weight_noise_sd` is the standard deviation of the privacy noise in each log weight, shape
    (rows,), or of evenly spaced rows.
    """
    weights = shown.weights
    growth = math.exp(min(float(certificate.epsilon), 700.0))
    diagnostics = diagnostics_view(certificate.diagnostics)
    reasons = certificate.diagnostics.get("reasons")
    return render(
        "release/report/report.html.j2",
        certificate=certificate,
        epsilon=short_decimal(certificate.epsilon),
        delta=plain(certificate.delta),
        ratio=three_digits_above(growth),  # how much likelier one neighbour makes a conclusion
        guess=percent_above((growth + float(certificate.delta)) / (1 + growth)),  # about a person
        presence=certificate.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE,
        rows=f"{weights.size:,}",
        weighted=certificate.is_weighted,
        diagnostics=diagnostics,
        reasons=tuple(reasons) if isinstance(reasons, list) else (),
        cost=figures.cost_of(certificate),
        spread=figures.spread_of(weights, log_weight_noise_sd),
        columns=figures.column_cards(shown, schema, weighted=certificate.is_weighted),
        answers=answers,
        usage=_usage(certificate, schema),
        constraints=_constraints(certificate, schema),
        events=tuple(
            (stage.stage, stage.method, _code(event))
            for stage in certificate.stages
            for event in stage.events
        ),
        settings=tuple(
            (stage.stage, _code(stage.parameters), "; ".join(map(_code, stage.noise)))
            for stage in certificate.stages
        ),
    )


def _usage(certificate: Certificate, schema: PublicSchema) -> dict[str, str]:
    usage = {"release": _code(certificate.release_id)}
    for column in reversed(schema.released):
        if column.kind in (ColumnKind.CONTINUOUS, ColumnKind.INTEGER):  # dates need a function
            usage["numeric"] = _code(column.name)
        elif column.levels:
            usage |= {"discrete": _code(column.name), "level": _code(column.levels[0])}
    return usage


def _constraints(
    certificate: Certificate, schema: PublicSchema
) -> tuple[tuple[str, str, str], ...]:
    bound = certificate.diagnostics.get("constraints", {})
    broken = bound.get("broken", {}) if isinstance(bound, Mapping) else {}
    mappings = [(constraint.name, constraint.to_mapping()) for constraint in schema.constraints]
    return tuple(
        (name, _code({k: v for k, v in mapping.items() if k != "name"}), _share(broken.get(name)))
        for name, mapping in mappings
    )


def _share(value: object) -> str:
    return f"{value:.2%}" if isinstance(value, int | float) else "not stated"


def _code(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
