import functools
import html
import json
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.schema import PublicSchema
from dpiw.methods.weights.measured import constants
from dpiw.privacy.units import NeighbouringRelation, PrivacyUnit
from dpiw.release.certificate import CHANCE, UNSEEN
from dpiw.release.report import plots
from dpiw.release.report.figures import BINS, answers_of, axis
from tests.dpiw.release.release_example import (
    DTYPES,
    SCHEMA,
    answers_of_every_kind,
    example_answers,
    example_certificate,
    example_frame,
    example_log_weights,
    example_report,
    marginals,
)
from tests.support.undrawn import draw_no_figures


def _report(certificate=None, *, drawn=False, **changes):
    """The page; its figures, most of the work, where a test looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        if not drawn:
            draw_no_figures(patch.setattr)
        return example_report(certificate, **changes)


@functools.cache
def _usual():
    """The report of the example as it is, drawn, made once."""
    return _report(drawn=True)


def _words(page):
    body = page[page.index("<body>") :]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.mark.slow
def test_the_report_is_one_file_without_scripts_or_outside_resources():
    page = _usual()
    assert page == _report(drawn=True)
    for mark in ("<script", "<link", "<img", "<iframe", "@import", "url(", " src=", " href="):
        assert mark not in page.lower()
    assert "default-src 'none'" in page
    assert "http:" not in page
    assert "https:" not in page


def test_the_report_says_what_was_promised_and_what_it_cost():
    words = _words(_usual())
    for said in (
        "example-2027-q1", "differ only in one person's rows (at most 2), present in one version",
        "at most 2.72 times its probability", "What epsilon means for a person",
        "at most 73.2% of the time",  # (e + 1e-6) / (1 + e) = 0.73106, rounded up
        "generator: privbayes weights: beta_debiased all together", "left: 5 of 8",
        "earlier releases: 0.000002", "ε = 1 and δ = 0.000001.", "pld: ε = 0.9999, rdp: ε = 1.12",
        "Each person has at most two rows.", "Rare levels are smoothed.",
        '{"count": 1, "event": "gaussian", "noise_multiplier": 12.5}',
    ):  # fmt: skip
        assert said in words


def _paid_twice():
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


def test_what_earlier_attempts_paid_has_a_row_and_the_rows_add_up():
    words = _words(_report(_paid_twice(), drawn=True))
    assert "1 0.5124 1.5124" in words  # 1 + 0.5124 = 1.5124
    assert "attempt 1: generator committed, weights lost" in words
    assert "attempt 2: weights committed" in words
    assert "is the sum of all attempts, ε = 1.512345678901." in words
    joint = "counted together"
    assert joint in _words(_usual())
    assert "attempt 1" not in _words(_usual())
    # A second output of one draw is charged again, and the certificate has one attempt.
    for other in (words, _words(_report(replace(example_certificate(), epsilon="2")))):
        assert joint not in other


def _replaced(**unit):
    return {"unit": PrivacyUnit(relation=NeighbouringRelation.REPLACE_ONE, **unit)}


NO_NOISE = "have no privacy noise"
SAID = [
    (_replaced(), "differ only in the values of one row."),
    (_replaced(id_column="p"), "differ only in the values of one person's row."),
    (_replaced(id_column="p", max_rows=3), "the values of one person's rows (at most 3)."),
    (_replaced(), "which of two possible records a given row holds,"),
    (_replaced(), "A person with several rows in the table is protected less."),
    (_replaced(id_column="p"), "which of two possible records a given person has,"),
    (_replaced(id_column="p"), "not: is protected less"),
    ({"epsilon": "0.7341", "spent_epsilon": "0.7341"}, "at most 2.09 times"),  # e^0.7341 = 2.0836
    ({"delta": "0", "spent_delta": "0", "budget_delta": "0"}, "not: with the other version, plus"),
    ({"delta": "0", "spent_delta": "0", "budget_delta": "0"}, "not: Lifetime δ"),
    ({"weights": {"method": "none"}}, "The release has no weights"),
    ({"weights": {"method": "none"}}, "No weights were published: every row counts as one."),
    ({"weights": {"method": "none"}}, "not: Use the weights:"),
    ({"weights": {"method": "beta_debiased", "published": False}}, "No weights were published"),
    ({"accountants": {"pld": 1.0}}, "computed by one method of accounting: pld: ε = 1."),
    ({}, "All weights are one"), ({}, NO_NOISE),
    ({}, "with the largest weights have 1.0% of the total weight"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), SAID)
def test_what_a_release_is_is_said_in_words(changes, words):
    """Of rows without weights."""
    page = _words(_report(example_certificate(**changes), weighted=False))
    assert (words.removeprefix("not: ") in page) != words.startswith("not: ")


def test_noise_is_said_if_it_is_known():
    usual = _words(_usual())
    assert NO_NOISE not in usual
    assert NO_NOISE in _words(_report(log_weight_noise_sd=np.zeros(200)))
    assert "multiplies or divides the weight by 1.22" in usual  # exp(0.2)


@pytest.mark.slow
def test_declared_questions_and_pairs_of_columns_are_shown_with_their_verdicts():
    words = _words(_report(drawn=True, answers=example_answers()))
    for said in (
        "mean: visits by grade", "Values by verdict: use: 1, use with care: 1, do not use: 1.",
        "correlation: age, income Values by verdict: do not use: 1.",
        "grade=high, grade=nobody: fewer than 100 people",
        "2.5, from 2 to 3: use", "low <b>", "fewer than 100 people are behind it",
        "visits and grade: support 0.40; use with care: 2, do not use: 1",
        "grade: support 0.75; use: 3",
        "Values by verdict: use: 4, use with care: 2, do not use: 1.",
    ):  # fmt: skip
        assert said in words
    nothing = answers_of(pd.DataFrame(), pd.DataFrame())
    for without in (_usual(), _report(answers=nothing)):
        assert "What can be asked" not in without
    measured = example_certificate(diagnostics={"measured": {"evidence_p_value": 1e-9}})
    assert "This page shows no answers." in _report(measured)


def test_of_many_values_the_first_are_drawn_and_have_their_reasons():
    groups = [f"mean(age) | village={number}" for number in range(60)]
    told = {"question": "mean: age by village", "estimate": 1.0, "lower": 0.0, "upper": 2.0}
    lines = pd.DataFrame({"value": groups, "verdict": "do not use", "why": groups, **told})
    (card,) = answers_of(lines, pd.DataFrame()).cards
    assert len(card.why) == card.drawing.title.count(": do not use") == 12
    assert card.why[0] == "village=0: mean(age) | village=0"
    assert card.told == "do not use: 60; the first 12 are drawn"


@pytest.mark.slow
def test_a_figure_s_labels_are_apart_and_its_numbers_are_in_its_alternative_text():
    share, table = (answers_of_every_kind(scales=()).cards[place] for place in (1, 5))
    labels = [shape.text for card in (share, table) for shape in card.drawing.shapes if shape.text]
    assert {"False | female", "True | <i>x</i>", "female, low", "male, missing"} <= {*labels}
    assert "0.2" in labels  # a tick
    assert "; female, high: 0.2, from 0.1445" in table.drawing.title
    assert table.drawing.title.count(": not assessed") == 9


@pytest.mark.parametrize(
    ("verdict", "told", "style", "words"),
    [
        ("use", "better than none", "good", "Use the weights: they are stable"),
        ("use with care", "use with care", "warn", "Compare both"),
        ("do not use", "do not use", "bad", "Do not base results on these weights"),
    ],
)
def test_the_verdict_is_said_in_words_and_colour(verdict, told, style, words):
    facts = {"k_hat": None, "reasons": ["k-hat is <high>"], "verdict": verdict, "rule": "twice"}
    page = _report(example_certificate(verdict=verdict, diagnostics=facts))
    assert f'class="verdict {style}"><strong>Weights: {told}</strong>' in page
    assert words in _words(page)
    assert "k-hat is &lt;high&gt;" in page
    assert "k-hat < 0.7" in _words(page)
    assert "twice" not in page


@pytest.mark.parametrize(
    ("facts", "unseen"),
    [
        ({"evidence_p_value": 0.14}, True), ({"evidence_p_value": 0.05}, False),
        ({"signal_p_value": 0.04, "evidence_p_value": None}, True),
        ({"signal_p_value": 0.03}, False), ({"signal_p_value": None}, False), ({}, False),
    ],
)  # fmt: skip
def test_nothing_seen_is_told_from_weights_that_are_too_noisy(facts, unseen):
    certificate = example_certificate(verdict="do not use", diagnostics={"reasons": ["p"], **facts})
    assert certificate.unseen == (UNSEEN if unseen else "")
    page = _words(_report(certificate))
    assert (UNSEEN in page) == unseen
    assert ("Nothing corrects the errors" in page) == (not unseen)


def test_chance_is_what_the_rules_of_verdicts_say():
    known = {"evidence_p_value": constants.P_VALUE_CARE, "signal_p_value": 0.03}
    assert known == CHANCE


@pytest.mark.slow
def test_every_text_is_escaped():
    mean = "<script>alert('x')</script>&\""
    certificate = example_certificate(
        verdict=mean, verdict_rule=mean, assumptions=(mean,), caveats=(mean,),
        post_processing=(mean,), versions={mean: mean}, accountants={mean: 1.0},
        diagnostics={mean: mean, "reasons": [mean]}, weights={"method": mean},
    )  # fmt: skip
    stage = replace(
        certificate.stages[0], parameters={mean: mean}, events=({mean: mean},),
        noise=({mean: mean},),
    )  # fmt: skip
    page = _report(replace(certificate, stages=(stage,)), drawn=True)
    assert "<script" not in page
    assert "<i>x" not in page  # a level of the example schema
    assert "sex <b>" not in page
    assert "&lt;script&gt;" in page


class _Elements(HTMLParser):
    """Every element of a page as a browser reads it, with its attributes, and every text."""

    def __init__(self, page):
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.slow
def test_names_and_levels_cannot_leave_a_text_or_an_attribute():
    """Not of a plot's shapes and what is said of it, nor as words of the template language."""
    number = "\"><script>x</script><a onload='y' {{ 7 * 6 }} {% raw %}"
    letter, level = f"{number} b", f"</text></svg>{number}"
    columns = [
        {"name": number, "kind": "integer", "lower": 0, "upper": 9, "description": level},
        {"name": letter, "kind": "categorical", "levels": [level, "other"]},
    ]
    frame = pd.DataFrame({number: [1, 2], letter: pd.Series([level, "other"], dtype="str")})
    page = _report(
        weighted=False, frames=[frame],
        schema=PublicSchema.from_mapping({"name": "hostile", "columns": columns}), drawn=True,
    )  # fmt: skip
    usual = _Elements(_usual())
    elements = _Elements(page)
    assert elements.names == usual.names
    assert {name for name, _ in elements.attributes} == {name for name, _ in usual.attributes}
    for name in (number, letter):
        label = ("aria-label", f"Shares of column {name}, before and after weighting")
        assert label in elements.attributes
        assert name in elements.texts  # above its plot
    # What the first column is, and the hint of a level that its two lines cannot hold, on each.
    assert elements.texts.count(level) == 3
    assert '</text></svg>"><' in elements.texts  # the level beside its bar, its first line
    assert f"release.mean({json.dumps(number)})" in "".join(elements.texts)


def test_the_code_of_a_report_names_a_column_that_it_runs_for():
    """A mean of dates needs a function."""
    columns = [
        {"name": "day", "kind": "date", "lower": "2026-01-01", "upper": "2026-01-09"},
        {"name": "n", "kind": "integer", "lower": 0, "upper": 9},
    ]
    days = pd.to_datetime(["2026-01-01", "2026-01-02"]).astype("datetime64[s]")
    page = _report(
        weighted=False,
        frames=[pd.DataFrame({"day": days, "n": [1, 2]})],
        schema=PublicSchema.from_mapping({"name": "days", "columns": columns}),
    )
    code = "".join(_Elements(page).texts)
    assert 'release.mean("n")' in code
    assert 'release.mean("day")' not in code


def test_every_plot_is_well_formed_and_finite():
    page = _usual()
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    assert len(drawings) >= len(DTYPES) + 5
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)  # our own text
        assert root.get("aria-label")
        assert "nan" not in drawing.lower().replace("noise", "")
        assert "inf" not in drawing
    for name in DTYPES:
        assert f"<h3>{html.escape(name)}</h3>" in page
    assert "<h3>person</h3>" not in page


def test_column_distributions_agree_with_counting():
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


def test_bins_are_public_and_whole_values_share_equal_widths():
    age = axis(SCHEMA.column("age"))
    assert age.labels == ("0", "100")
    assert set(np.diff(age.edges)) == {6.0}  # ceil(101 / 20)
    assert age.edges[0] == -0.5
    assert age.edges[-1] >= 100.5
    assert axis(SCHEMA.column("born")).labels == ("1900-01-01", "2020-12-31")
    assert axis(SCHEMA.column("seen")).labels == ("2024-01-01", "2024-12-31 23:59")
    assert axis(SCHEMA.column("grade")).labels == ("low", "high", "missing")


def _shapes(shapes):
    for shape in shapes:
        yield shape
        yield from _shapes(shape.children)


def _extent(shape):
    """Least and greatest x of a path of straight lines."""
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", shape.attributes["d"])]
    return min(numbers[::2]), max(numbers[::2])


def test_a_budget_bar_never_leaves_its_track():
    parts = {"a": Decimal(9), "b": Decimal(5)}
    budget = plots.budget_bar("ε", Decimal(10), Decimal(14), parts, title="t")
    texts = ("a: 9", "b: 5", "left: 0 of 10")
    assert budget.legend == tuple(zip(("before", "after", "code"), texts, strict=True))
    bars = [shape for shape in budget.drawing.shapes if shape.hint]
    assert [bar.hint for bar in bars] == list(texts)
    (start, border), (same, end) = (_extent(bar.children[0]) for bar in bars[:2])
    assert same == border
    assert (border - start) / (end - start) == pytest.approx(0.9, abs=1e-3)
    assert end <= budget.drawing.width - 12
    assert plots.budget_bar("ε", Decimal(0), Decimal(0), parts, title="t") is None


def test_a_column_s_bins_and_its_missing_values_have_one_scale():
    shares = plots.Shares(before=np.array([0.1, 0.4, 0.2]))
    drawing = plots.histogram(shares, edges=[0, 1, 2], ticks={0: "0", 2: "2"}, axis="x", title="t")
    heights = []
    filled = [n for n in drawing.shapes if "var(--before)" in n.attributes.get("style", "")]
    for bar in filled:
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", bar.attributes["d"])]
        heights += sorted({max(numbers[1::2]) - y for y in numbers[1::2]} - {0.0})
    assert [n / heights[1] for n in heights] == pytest.approx([1 / 4, 1, 1 / 2], abs=1e-3)


def test_a_figure_does_not_ask_the_machine_how_to_look():
    """Not its fonts, nor what its users set for matplotlib; and nothing is changed for others."""
    import matplotlib as mpl

    def draw():
        return plots.bars(["a$x$", "日本"], plots.Shares(before=np.array([0.5, 0.5])), title="t")

    usual = draw()
    with mpl.rc_context({"font.size": 30, "font.family": "cursive", "svg.fonttype": "path"}):
        before = dict(mpl.rcParams)
        assert draw() == usual
        assert dict(mpl.rcParams) == before
    texts = [shape for shape in _shapes(usual.shapes) if shape.name == "text"]
    assert {"a$x$", "日本", "share of rows", "50%"} <= {shape.text for shape in texts}
    assert not any("font-family" in shape.attributes["style"] for shape in texts)
