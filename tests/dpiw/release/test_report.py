from __future__ import annotations

import functools
import html
import json
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from jinja2 import UndefinedError

from dpiw.data.schema import PublicSchema
from dpiw.errors import ReleaseError
from dpiw.methods.weights.measured import constants
from dpiw.methods.weights.paper import ratio as weigh
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.certificate import CHANCE, UNSEEN, Certificate
from dpiw.release.report.marginals import BINS, axis, marginals
from dpiw.release.report.pages import render
from dpiw.release.report.report import build_report
from dpiw.release.report.truth import PublicTruth
from tests.dpiw.release.release_example import (
    DTYPES,
    SCHEMA,
    example_certificate,
    example_frame,
    example_log_weights,
    shown,
)

_STATISTICS = ({"kind": "mean", "column": "age", "value": 30.0},)


def _report(certificate: Certificate | None = None, **changes: Any) -> str:
    arguments: dict[str, Any] = {
        "frames": [example_frame()],
        "log_weights": example_log_weights(),
        "log_weight_noise_sd": np.linspace(0.1, 0.3, 200),
        "schema": SCHEMA,
        "truth": None,
    } | changes
    return build_report(certificate or example_certificate(), **shown(arguments))


@functools.cache
def _usual() -> str:
    """The report of the example as it is, made once."""
    return _report()


def _truth(shares: Any, *statistics: dict[str, Any]) -> PublicTruth:
    return PublicTruth(marginals=shares, statistics=statistics)


def _words(page: str) -> str:
    body = page[page.index("<body>") :]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_report_is_one_file_without_scripts_or_outside_resources() -> None:
    page = _usual()
    assert page == _report()
    for mark in ("<script", "<link", "<img", "<iframe", "@import", "url(", " src=", " href="):
        assert mark not in page.lower()
    assert "default-src 'none'" in page
    assert "http:" not in page
    assert "https:" not in page


def test_the_report_says_what_was_promised_and_what_it_cost() -> None:
    words = _words(_usual())
    assert "example-2027-q1" in words
    assert "differ by one person's rows (at most 2) being there or not" in words
    assert "at most 2.72 times larger" in words
    # (e + 1e-6) / (1 + e) = 0.73106, rounded up.
    assert "at most 73.2% of the time" in words
    assert "generator: privbayes weights: beta_debiased all together" in words
    assert "privacy loss ε, a stage as if alone" in words
    assert "left: 5 of 8" in words
    assert "earlier releases: 0.000002" in words
    assert "ε = 1 and δ = 0.000001." in words
    assert "pld: ε = 0.9999, rdp: ε = 1.12" in words
    assert "Each person has at most two rows." in words
    assert "Rare levels are smoothed." in words
    assert '{"count": 1, "event": "gaussian", "noise_multiplier": 12.5}' in words
    assert "dpiw verify example-2027-q1 --key curator.pub" in words


def _paid_twice() -> Certificate:
    """A draw of the weights was lost, and the weights alone drawn again."""
    example = example_certificate()
    states = {"generator": "committed", "weights": "lost"}
    return replace(
        example, epsilon="1.512345678901", delta="2E-6", spent_epsilon="4", spent_delta="4E-6",
        attempts=(
            {"epsilon": "1", "delta": "1E-6", "stages": states},
            {"epsilon": "0.512345678901", "delta": "1E-6", "stages": {"weights": "committed"}},
        ),
    )  # fmt: skip


def test_what_earlier_attempts_paid_has_a_row_and_the_rows_add_up() -> None:
    page = _report(_paid_twice())
    words = _words(page)
    assert "attempt 1 attempt 2 all together" in words
    assert "1 0.5124 1.5124" in words  # 1 + 0.5124 = 1.5124
    assert "Of each attempt that was paid, and of all together, which is their sum." in words
    assert "A draw of this release was lost, and drawn again: what was paid for it stays" in words
    assert "attempt 1: generator committed, weights lost" in words
    assert "attempt 2: weights committed" in words
    assert "A complete attempt was computed as pld: ε = 0.9999, rdp: ε = 1.12: the first" in words
    assert "rests on the sum of all attempts, ε = 1.512345678901." in words
    assert "a stage costs: generator: privbayes: ε = 0.7; weights: beta_debiased: ε = 0.5" in words
    for contradiction in ("accounted jointly", "promise rests on it", "a stage as if alone"):
        assert contradiction not in words


def test_one_attempt_is_told_as_before() -> None:
    words = _words(_usual())
    assert "accounted jointly, which costs no more than their sum" in words
    assert "promise rests on it" in words
    assert "attempt 1" not in words


def test_a_charge_beyond_the_sum_of_stages_is_not_called_joint() -> None:
    """A second output of one draw is charged again, and the certificate has one attempt."""
    words = _words(_report(replace(example_certificate(), epsilon="2")))
    assert "accounted jointly" not in words


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ({}, "differ by the values of one row."),
        ({"id_column": "p"}, "differ by the values of one person's row."),
        ({"id_column": "p", "max_rows": 3}, "the values of one person's rows (at most 3)."),
    ],
)
def test_replace_one_is_worded_as_a_change(unit: dict[str, Any], words: str) -> None:
    certificate = example_certificate(
        unit=PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE, **unit)
    )
    page = _words(_report(certificate))
    assert words in page
    assert "which of two records a given person has" in page


def test_bounds_are_rounded_up() -> None:
    words = _words(_report(example_certificate(epsilon="0.7341", spent_epsilon="0.7341")))
    assert "at most 2.09 times" in words  # e^0.7341 = 2.0836
    assert "ε = 0.7341" in words
    pure = _words(_report(example_certificate(delta="0", spent_delta="0", budget_delta="0")))
    assert "apart from a probability" not in pure
    assert "Lifetime δ" not in pure


@pytest.mark.parametrize(
    ("verdict", "style", "words"),
    [
        ("use", "good", "Use the weights: they are stable"),
        ("use with care", "warn", "Compare both"),
        ("do not use", "bad", "Do not base results on these weights"),
    ],
)
def test_the_verdict_is_said_in_words_and_colour(verdict: str, style: str, words: str) -> None:
    facts = {"k_hat": None, "reasons": ["k-hat is <high>"], "verdict": verdict, "rule": "twice"}
    certificate = example_certificate(verdict=verdict, diagnostics=facts)
    page = _report(certificate)
    assert f'class="verdict {style}"><strong>Verdict: {verdict}</strong>' in page
    assert words in _words(page)
    assert "k-hat is &lt;high&gt;" in page
    assert "k-hat < 0.7" in _words(page)
    assert "twice" not in page


@pytest.mark.parametrize(
    ("facts", "unseen"),
    [
        ({"evidence_p_value": 0.14}, True),
        ({"signal_p_value": 0.04, "evidence_p_value": None}, True),
        ({"evidence_p_value": 0.05}, False),
        ({"signal_p_value": 0.03}, False),
        ({"signal_p_value": None}, False),
        ({}, False),
    ],
)
def test_nothing_seen_is_told_from_weights_that_are_too_noisy(facts: dict, unseen: bool) -> None:
    certificate = example_certificate(verdict="do not use", diagnostics={"reasons": ["p"], **facts})
    assert certificate.unseen == (UNSEEN if unseen else "")
    page = " ".join(_words(_report(certificate)).split())
    assert (UNSEEN in page) == unseen
    assert ("their bias is not corrected" in page) == (not unseen)


def test_chance_is_what_the_rules_of_verdicts_say() -> None:
    known = {
        "evidence_p_value": constants.P_VALUE_CARE,
        "signal_p_value": weigh.MOST_P_VALUE,
    }
    assert known == CHANCE


def test_every_text_is_escaped() -> None:
    mean = "<script>alert('x')</script>&\""
    certificate = example_certificate(
        verdict=mean,
        verdict_rule=mean,
        assumptions=(mean,),
        caveats=(mean,),
        post_processing=(mean,),
        versions={mean: mean},
        accountants={mean: 1.0},
        diagnostics={mean: mean, "reasons": [mean]},
        weights={"method": mean},
    )
    stage = replace(
        certificate.stages[0],
        parameters={mean: mean},
        events=({mean: mean},),
        noise=({mean: mean},),
    )
    page = _report(replace(certificate, stages=(stage,)))
    assert "<script" not in page
    assert "<i>x" not in page  # a level of the example schema
    assert "sex <b>" not in page
    assert "&lt;script&gt;" in page


class _Elements(HTMLParser):
    """Every element of a page as a browser reads it, with its attributes, and every text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_names_and_levels_cannot_leave_a_text_or_an_attribute() -> None:
    """Not of a plot's shapes and what is said of it, nor as words of the template language."""
    number = "\"><script>x</script><a onload='y' {{ 7 * 6 }} {% raw %}"
    letter, level = f"{number} b", f"</text></svg>{number}"
    columns = [
        {"name": number, "kind": "integer", "lower": 0, "upper": 9, "description": level},
        {"name": letter, "kind": "categorical", "levels": [level, "other"]},
    ]
    frame = pd.DataFrame({number: [1, 2], letter: pd.Series([level, "other"], dtype="str")})
    page = _report(
        frames=[frame],
        schema=PublicSchema.from_mapping({"name": "hostile", "columns": columns}),
        log_weights=np.zeros(2),
        log_weight_noise_sd=None,
        truth=_truth({}, {"kind": "mean", "column": number, "value": 1.0}),
    )
    elements, usual = _Elements(page), _Elements(_report(truth=_truth({}, *_STATISTICS)))
    assert elements.names == usual.names
    assert {name for name, _ in elements.attributes} == {name for name, _ in usual.attributes}
    for name in (number, letter):
        label = ("aria-label", f"Shares of column {name}, before and after weighting")
        assert label in elements.attributes
        assert name in elements.texts  # above its plot
    # What the first column is, and the hint of a level that its two lines cannot hold, on each.
    assert elements.texts.count(level) == 3
    assert '</text></svg>"><' in elements.texts  # the level beside its bar, its first line
    assert f"mean {number}" in elements.texts
    assert f"release.mean({json.dumps(number)})" in "".join(elements.texts)


def test_the_code_of_a_report_names_a_column_that_it_runs_for() -> None:
    """A mean of dates needs a function."""
    columns = [
        {"name": "day", "kind": "date", "lower": "2026-01-01", "upper": "2026-01-09"},
        {"name": "n", "kind": "integer", "lower": 0, "upper": 9},
    ]
    days = pd.to_datetime(["2026-01-01", "2026-01-02"]).astype("datetime64[s]")
    page = _report(
        frames=[pd.DataFrame({"day": days, "n": [1, 2]})],
        schema=PublicSchema.from_mapping({"name": "days", "columns": columns}),
        log_weights=np.zeros(2),
        log_weight_noise_sd=None,
    )
    code = "".join(_Elements(page).texts)
    assert 'release.mean("n")' in code
    assert 'release.mean("day")' not in code


def test_a_template_that_names_what_is_not_there_fails() -> None:
    @dataclass(frozen=True)
    class Half:
        certificate: Certificate

    with pytest.raises(UndefinedError, match="'weighted' is undefined"):
        render("release/report/report.html.j2", Half(example_certificate()))


def test_every_released_column_has_a_plot_and_identifiers_have_none() -> None:
    page = _usual()
    for name in DTYPES:
        assert f"<h3>{html.escape(name)}</h3>" in page
    assert "<h3>person</h3>" not in page


def test_every_plot_is_well_formed_and_finite() -> None:
    truth = marginals(example_frame(seed=9), schema=SCHEMA)
    drawings = re.findall(r"<svg.*?</svg>", _report(truth=_truth(truth)), flags=re.S)
    assert len(drawings) >= len(DTYPES) + 5
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)  # our own text
        assert root.get("aria-label")
        assert "nan" not in drawing.lower().replace("noise", "")
        assert "inf" not in drawing


def test_truth_is_drawn_and_labelled_only_where_it_is_given() -> None:
    truth = marginals(example_frame(seed=9), schema=SCHEMA)
    page = _report(truth=_truth(truth))
    assert "known truth (simulated example)" in page
    assert "stroke: var(--truth)" in page
    assert "known truth" not in _usual()
    assert "stroke: var(--truth)" not in _usual()


@pytest.mark.parametrize(
    "settings", [{"method": "none"}, {"method": "beta_debiased", "published": False}]
)
def test_a_release_without_weights_says_so(settings: dict[str, Any]) -> None:
    certificate = example_certificate(weights=settings, accountants={"pld": 1.0})
    words = _words(_report(certificate, log_weights=np.zeros(200), log_weight_noise_sd=None))
    assert "They were published without weights" in words
    assert "No weights were published: every row counts as one." in words
    assert "Use the weights:" not in words
    assert "Computed by one accountant: pld: ε = 1." in words


def test_truth_must_fit_the_schema() -> None:
    truth = {
        name: list(shares) for name, shares in marginals(example_frame(), schema=SCHEMA).items()
    }
    assert "known truth" in _report(truth=_truth({"age": truth["age"]}))
    for shares in (truth["age"][:-1], [*truth["age"][:-1], float("nan")]):
        with pytest.raises(
            ReleaseError, match="public_truth margins: column age: expected 17 finite"
        ):
            _report(truth=_truth(truth | {"age": shares}))


def test_weights_without_spread_or_noise_are_said_in_words() -> None:
    words = _words(_report(log_weights=np.zeros(200), log_weight_noise_sd=None))
    assert "All weights are one" in words
    assert "carry no privacy noise" in words
    assert "The heaviest 1% of the rows carry 1.0% of all weight" in words
    assert "carry no privacy noise" in _words(_report(log_weight_noise_sd=np.zeros(200)))


def test_noise_is_marked_at_tau_if_it_is_known() -> None:
    assert "forecast 0.2" in _words(_usual())
    without = example_certificate(diagnostics={"tau": float("inf")})
    assert "forecast 0.2" not in _words(_report(without))
    assert "multiplies or divides that weight by 1.22" in _words(_usual())  # exp(0.2)


def test_column_distributions_agree_with_counting() -> None:
    frame, weights = example_frame(), np.exp(example_log_weights())
    weighted = marginals(frame, schema=SCHEMA, weights=weights)
    plain = marginals(frame, schema=SCHEMA)
    assert list(weighted) == list(DTYPES)
    for shares in (*weighted.values(), *plain.values()):
        assert shares.sum() == pytest.approx(1)
    for index, level in enumerate(("female", "male", "<i>x</i>")):
        chosen = (frame["sex <b>&"] == level).to_numpy()
        assert plain["sex <b>&"][index] == pytest.approx(chosen.mean())
        assert weighted["sex <b>&"][index] == pytest.approx(weights[chosen].sum() / weights.sum())
    assert plain["smoker"] == pytest.approx([1 - frame.smoker.mean(), frame.smoker.mean()])
    assert plain["insured"][2] == pytest.approx(1 / 200)
    assert plain["income"][-1] == pytest.approx(1 / 200)
    naive = np.histogram(frame.income.dropna(), bins=BINS, range=(0, 9))[0] / 200
    assert plain["income"][:-1] == pytest.approx(naive)
    naive = [(frame.visits == n).sum() / 200 for n in range(10)]
    assert plain["visits"] == pytest.approx([*naive, 1 / 200])
    assert plain["seen"][-1] == pytest.approx(1 / 200)


def test_bins_are_public_and_whole_values_share_equal_widths() -> None:
    age = axis(SCHEMA.column("age"))
    assert age.labels == ("0", "100")
    assert set(np.diff(age.edges)) == {6.0}  # ceil(101 / 20)
    assert age.edges[0] == -0.5
    assert age.edges[-1] >= 100.5
    assert axis(SCHEMA.column("born")).labels == ("1900-01-01", "2020-12-31")
    assert axis(SCHEMA.column("seen")).labels == ("2024-01-01", "2024-12-31 23:59")
    assert axis(SCHEMA.column("grade")).labels == ("low", "high", "missing")


def test_dates_fall_into_the_bin_of_their_day() -> None:
    schema = PublicSchema.from_mapping(
        {
            "name": "dates",
            "columns": [
                {"name": "d", "kind": "date", "lower": "2024-01-01", "upper": "2024-01-03"}
            ],
        }
    )
    days = np.array(["2024-01-01", "2024-01-03", "2024-01-03"], dtype="datetime64[s]")
    shares = marginals(pd.DataFrame({"d": days}), schema=schema)["d"]
    assert shares == pytest.approx([1 / 3, 0, 2 / 3])


def test_many_levels_are_folded_into_one_row() -> None:
    levels = [f"level {n}" for n in range(40)]
    schema = PublicSchema.from_mapping(
        {"name": "many", "columns": [{"name": "c", "kind": "categorical", "levels": levels}]}
    )
    frame = pd.DataFrame({"c": pd.Series(levels * 5 + ["level 7"] * 100, dtype="str")})
    page = _report(
        frames=[frame],
        schema=schema,
        log_weights=np.zeros(300),
        log_weight_noise_sd=None,
        truth=_truth(marginals(frame, schema=schema)),
    )
    words = _words(page)
    assert "29 others" in words
    assert "level 7" in words
    assert "level 39" not in words


def test_a_verdict_and_its_figures_say_the_same_of_noisy_averages() -> None:
    """Weights made of averages: good in sums, noisy one by one; a forecast is of an average."""
    facts = {"tau": 0.004, "noise": 0.8, "verdict": "use", "resolution": None,
             "measured": {"evidence_p_value": 1e-9, "gain": 0.98, "rows": 571.3}}  # fmt: skip
    words = _words(_report(example_certificate(diagnostics=facts)))
    assert "The weight of a single row is noisy" in words
    assert "carry little noise" not in words
    assert "Noise of a measured average, forecast (tau) 0.004" in words
    assert "forecast 0.004" not in words  # no mark among the noise of the rows
    assert "Expected gain 98%" in words
    assert "Evidence test (p) below 0.000001" in words
    assert "571" not in words
    assert "too little is known: Resolution." in words


def test_what_the_weights_repaired_is_told_where_the_truth_is_public() -> None:
    frame = pd.DataFrame({"age": pd.Series([20, 60], dtype="int64")})
    schema = PublicSchema.from_mapping(
        {"name": "s", "columns": [{"name": "age", "kind": "integer", "lower": 0, "upper": 100}]}
    )
    page = _report(
        frames=[frame],
        schema=schema,
        log_weights=np.log([3.0, 1.0]),
        log_weight_noise_sd=None,
        truth=_truth({}, {"kind": "mean", "column": "age", "value": 30.0}),
    )
    words = _words(page)
    assert "With weights 1 of 1 statistics come closer to it; the median error is 0%" in words
    assert "mean age 30 40 30 0%" in words  # truth, unweighted (20+60)/2, weighted (60+60)/4
    assert "What the weights repaired" not in _words(_usual())
