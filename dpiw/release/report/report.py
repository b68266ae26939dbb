"""`report.html`: the release in words and plots for people who are not specialists.

One self-contained page without scripts or outside resources. Everything in it is computed from the
certificate, the public schema and the released rows, so it is free post-processing; every text
from these is escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpiw.data.row_weights import mean_one_weights
from dpiw.data.schema import PublicSchema
from dpiw.privacy.units import NeighbouringRelation
from dpiw.release.certificate import Certificate, StageRecord
from dpiw.release.report.figures import (
    columns_section,
    cost_section,
    truth_section,
    weights_section,
)
from dpiw.release.report.markup import (
    bullets,
    code_text,
    details,
    number,
    page,
    paragraph,
    section,
    short_decimal,
    table,
    tiles,
)
from dpiw.release.report.truth import PublicTruth

Array = NDArray[np.float64]

_DIAGNOSTIC_NAMES = {
    "effective_sample_size": "Effective sample size",
    "design_effect": "Design effect (rows / effective sample size)",
    "k_hat": "Pareto k-hat of the heaviest weights",
    "tau": "Noise in a log weight, forecast (tau)",
    "noise": "Noise in a log weight",
    "log_ratio_variance": "Spread of the released log ratio (variance)",
    "noise_variance": "of that, privacy noise",
    "sampling_variance": "of that, sampling",
    "signal_to_noise": "Signal to noise",
    "signal_p_value": "Chance of such a spread if rows and people had the same law",
    "resolution": "Resolution (share of the signal that survives)",
    "rows": "Synthetic rows",
}


def build_report(
    certificate: Certificate,
    *,
    frame: pd.DataFrame,
    log_weights: Array,
    log_weight_noise_sd: Array | None,
    schema: PublicSchema,
    truth: PublicTruth | None = None,
) -> str:
    """Return the report as one HTML document; the same arguments give the same text.

    Args:
        certificate: of the release.
        frame: the synthetic rows in declared types.
        log_weights: shape (rows,), natural log.
        log_weight_noise_sd: shape (rows,), standard deviation of the privacy noise in each log
            weight; None: not known.
        schema: the public schema.
        truth: of a simulated example whose truth is public. Never of confidential rows.

    Raises:
        ReleaseError: a log weight is not finite, or the truth's margins do not fit the schema.
    """
    weights = mean_one_weights(log_weights)
    parts = [
        _header(certificate, len(frame)),
        _promise(certificate),
        cost_section(certificate),
        _verdict(certificate),
        weights_section(certificate, weights, log_weight_noise_sd),
        truth_section(frame, weights, truth),
        columns_section(frame, weights, schema, None if truth is None else truth.margins),
        _usage(certificate, schema),
        _events(certificate.stages),
        _conditions(certificate),
        _checking(certificate),
    ]
    return page(f"Release {certificate.release_id}", parts)


def _header(certificate: Certificate, rows: int) -> str:
    boxes = (
        ("Privacy loss", f"ε = {short_decimal(certificate.epsilon)}", f"δ = {certificate.delta}"),
        ("Protects", _unit_words(certificate), _relation_words(certificate)),
        ("Synthetic rows", f"{rows:,}", "a public choice"),
        _weights_tile(certificate),
    )
    place = escape(f"{certificate.population} · {certificate.period}")
    return (
        f'<header><p class="eyebrow">Synthetic data release · {place}</p>'
        f"<h1>{escape(certificate.release_id)}</h1>"
        '<p class="lede">These rows were drawn from a model. None of them describes a person. '
        f"{_lede(certificate)}</p>"
        f"{tiles(boxes)}</header>"
    )


def _lede(certificate: Certificate) -> str:
    if not _weighted(certificate):
        return "They were published without weights."
    return (
        "Each row carries a weight that says how much it should count, so that weighted results "
        "come closer to the real population."
    )


def _promise(certificate: Certificate) -> str:
    epsilon, delta = float(certificate.epsilon), float(certificate.delta)
    growth = math.exp(min(epsilon, 700.0))
    guess = (growth + delta) / (1 + growth)
    question = (
        "whether a given person is in the data"
        if certificate.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE
        else "which of two records a given person has"
    )
    slack = f", apart from a probability of {certificate.delta}" if delta > 0 else ""
    return section(
        "What was promised",
        paragraph(
            "Take any two versions of the confidential table that differ by "
            f"{_difference(certificate)}. Whatever anybody may conclude from this release, the "
            f"probability of that conclusion is at most {_above(growth)} times larger with one "
            f"version than with the other{slack}. "
            f"This is differential privacy with ε = {certificate.epsilon} and "
            f"δ = {certificate.delta}."
        ),
        paragraph(
            f"For example: somebody who must guess {question}, with nothing but a coin flip to go "
            f"by, is right half of the time. After reading this release, and knowing everything "
            f"about everybody else, at most {_percent_above(guess)} of the time."
        ),
        paragraph(
            "The promise holds whatever else is known, now or later, and covers every file of this "
            "folder. It does not say that nothing can be learned about groups: that is what the "
            "data are for.",
            soft=True,
        ),
    )


def _verdict(certificate: Certificate) -> str:
    style = {"use": "good", "use with care": "warn"}.get(certificate.verdict, "bad")
    if not _weighted(certificate):
        return section(
            "May the weights be used?",
            paragraph("No weights were published: every row counts as one."),
        )
    diagnostics = dict(certificate.diagnostics)
    reasons = diagnostics.pop("reasons", [])
    for name in ("verdict", "rule"):  # said in the box and below it
        diagnostics.pop(name, None)
    why = bullets(reasons) if isinstance(reasons, list) and reasons else ""
    rows = [
        (_DIAGNOSTIC_NAMES.get(name, name.replace("_", " ")), number(value))
        for name, value in diagnostics.items()
        if value is None or isinstance(value, int | float | str)
    ]
    return section(
        "May the weights be used?",
        f'<div class="verdict {style}"><strong>Verdict: {escape(certificate.verdict)}</strong>'
        f"{why}<p>{_verdict_words(style)}</p></div>",
        details("The rule behind this verdict", paragraph(certificate.verdict_rule)),
        table(("Diagnostic", "Value"), rows, numbers=(1,)),
        paragraph(
            "All of this is computed from released values, never from the confidential table.",
            soft=True,
        ),
    )


def _verdict_words(style: str) -> str:
    return {
        "good": "Use the weights: they are stable and carry little noise. Where the model of the "
        "rows was off they bring results closer to the real population; where it was right they "
        "can only add a little noise.",
        "warn": "Weighted results are likely better than unweighted ones, but few rows or much "
        "noise carry them. Compare both, and report the effective sample size.",
        "bad": "Do not base results on these weights. The unweighted rows keep the same privacy "
        "promise; their bias is not corrected.",
    }[style]


def _usage(certificate: Certificate, schema: PublicSchema) -> str:
    numeric = [column.name for column in schema.released if column.is_numeric]
    discrete = [column for column in schema.released if column.is_discrete and column.levels]
    lines = [
        "from dpiw import load_release",
        "",
        f'release = load_release({_quoted(certificate.release_id)}, public_key="curator.pub")',
        "release.table      # the rows, in declared types",
        "release.weights    # one weight per row, mean one",
    ]
    if numeric:
        lines.append(f"release.mean({_quoted(numeric[0])})")
    if discrete:
        name, level = discrete[0].name, discrete[0].levels[0]
        lines.append(f"release.mean(lambda table: table[{_quoted(name)}] == {_quoted(level)})")
    lines.append("release.resample(1000, rng)   # rows to be used without weights")
    return section(
        "How to use it",
        f"<pre>{escape(chr(10).join(lines))}</pre>",
        paragraph(
            "Any tool that reads Parquet can use the file: column weight has mean one (pass it as "
            "sample_weight in scikit-learn, or as weights in R), column log_weight is its natural "
            "log before scaling. Never treat the number of synthetic rows as a sample size: more "
            "synthetic rows do not bring more knowledge about the population."
        ),
    )


def _events(stages: Sequence[StageRecord]) -> str:
    rows = [
        (record.stage, record.method, code_text(event))
        for record in stages
        for event in record.events
    ]
    settings = [
        (
            record.stage,
            code_text(record.parameters),
            "; ".join(code_text(law) for law in record.noise),
        )
        for record in stages
    ]
    return section(
        "What was done to the confidential table",
        table(("Stage", "Method", "Privacy event"), rows, code=(2,)),
        details(
            "Public parameters and noise laws",
            table(("Stage", "Parameters", "Noise"), settings, code=(1, 2)),
        ),
    )


def _conditions(certificate: Certificate) -> str:
    steps = certificate.post_processing or ("none",)
    versions = sorted(certificate.versions.items())
    return section(
        "Assumptions and limits",
        "<h3>The promise assumes</h3>" + bullets(certificate.assumptions or ("nothing further",)),
        "<h3>Keep in mind</h3>" + bullets(certificate.caveats) if certificate.caveats else "",
        "<h3>Steps after the noise was drawn, which cost nothing</h3>" + bullets(steps),
        details("Software", table(("Package", "Version"), versions)),
    )


def _checking(certificate: Certificate) -> str:
    folder = certificate.release_id
    recipe = (
        f"dpiw verify {folder} --key curator.pub\n\n"
        "# the same without dpiw\n"
        f"cd {folder}\n"
        "(printf 'dpiw-manifest-v1\\n'; cat manifest.json) > /tmp/message\n"
        "openssl pkeyutl -verify -pubin -inkey curator.pub -rawin \\\n"
        "        -in /tmp/message -sigfile manifest.sig\n"
        "sha256sum *.parquet *.json *.html   # compare with manifest.json"
    )
    return section(
        "How to check this folder",
        paragraph(
            "manifest.json lists every file with its size and SHA-256 and is signed. Get the "
            "curator's public key from somewhere else than this folder."
        ),
        f"<pre>{escape(recipe)}</pre>",
        f"<footer>Plan {escape(certificate.plan_digest)} · ledger head "
        f"{escape(certificate.ledger_head)} · nominal rows "
        f"{certificate.nominal_rows:,}</footer>",
    )


def _unit_words(certificate: Certificate) -> str:
    unit = certificate.unit
    if unit.id_column is None:
        return "each row"
    rows = "1 row" if unit.max_rows == 1 else f"up to {unit.max_rows} rows"
    return f"each person ({rows})"


def _difference(certificate: Certificate) -> str:
    unit = certificate.unit
    if unit.id_column is None:
        whose = "one row"
    elif unit.max_rows == 1:
        whose = "one person's row"
    else:
        whose = f"one person's rows (at most {unit.max_rows})"
    if certificate.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        return f"{whose} being there or not"
    return f"the values of {whose}"


def _relation_words(certificate: Certificate) -> str:
    if certificate.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        return "being in the data or not"
    return "having other values"


def _weighted(certificate: Certificate) -> bool:
    """Whether weights were estimated and published; if not, every weight is one."""
    settings = certificate.weights
    return settings.get("method") != "none" and settings.get("published") is not False


def _weights_tile(certificate: Certificate) -> tuple[str, str, str]:
    if not _weighted(certificate):
        return "Weights", "none", "every row counts as one"
    method = certificate.weights.get("method", "not stated")
    return "Weights", certificate.verdict, f"method: {method}"


def _percent_above(probability: float) -> str:
    """Round a bound up, never down: it is an upper bound."""
    return f"{math.ceil(probability * 1000 - 1e-9) / 10:g}%"


def _above(value: float) -> str:
    """Three significant digits, rounded up."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / scale - 1e-9) * scale:.4g}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
