"""The report as people see it, in a real browser."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpiw.data.schema.schema import PublicSchema
from tests.dpiw.release.release_example import (
    answers_of_every_kind,
    example_answers,
    example_certificate,
    example_report,
)
from tests.support.browser import CORNERS

ROOT = Path(__file__).resolve().parents[3]

BAD = """<!doctype html><html><head><title>x</title></head><body>
<script>console.log("said")</script><img src="https://example.invalid/x.png">
<p style="color: #eee; background: #fff">pale</p><div style="width: 3000px">wide</div>
<pre style="overflow: auto; width: 9rem">%s</pre>
<svg width="80" height="40" role="img" aria-label="x"><text x="60" y="20">clipped</text>
<text x="2" y="20">one</text><text x="4" y="21">two</text></svg>
<svg width="80" height="40" role="img"></svg></body></html>"""


def test_every_fault_is_told(look_at):
    faults = " ".join(look_at(BAD % ("long " * 99), CORNERS[:1]))
    for fault in (
        "console: said", "request: https://example.invalid", "axe color-contrast", "axe image-alt",
        "axe svg-img-alt",
        "the page is wider", "off: div wide", "scrolls: pre", "outside its figure: text clipped",
        "text one on text two",
    ):  # fmt: skip
        assert fault in faults


@pytest.mark.parametrize("required", [True, False])
def test_without_a_browser_a_test_is_skipped_and_never_on_ci(required, monkeypatch, request):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("DPIW_BROWSER", "required" if required else "")
    outcome = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(outcome, match="no Chromium"):
        request.getfixturevalue("browser_path")
    assert "export DPIW_BROWSER=required" in (ROOT / ".ci/run").read_text()


@pytest.mark.nightly
@pytest.mark.usefixtures("browser_path")
def test_the_readme_s_picture_is_small_and_can_be_taken_again(tmp_path):
    (tmp_path / "report.html").write_text(example_report())
    out = tmp_path / "images" / "report.png"
    subprocess.run([sys.executable, ROOT / "examples/picture.py", tmp_path, out], check=True)
    for picture in (out, ROOT / "docs/images/report.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 150_000


def _unweighted():
    certificate = example_certificate(weights={"method": "none"}, verdict="none")
    return example_report(certificate, weighted=False)


def _long_and_strange():
    """Long names without a blank, other scripts, many levels, mathematics, tags, large numbers."""
    unbroken, tags = "long_" * 25, "<b>\"$x_1$\" & 'y'</b>"
    levels = [unbroken, tags, "日本語の長い名前がここに続きます", "a few words that go on for long",
              *(f"level {n}" for n in range(30))]  # fmt: skip
    columns = [
        {"name": unbroken, "kind": "continuous", "lower": -1.5e12, "upper": 2.5e12},
        {"name": tags, "kind": "categorical", "levels": levels, "description": unbroken * 3},
    ]
    wide = "とても長い列の名前" * 8
    columns.append({"name": wide, "kind": "integer", "lower": 0, "upper": 1, "nullable": True})
    frame = pd.DataFrame(
        {
            wide: pd.array([None, *([0, 1] * 68)][:136], dtype="Int64"),
            unbroken: np.linspace(-1.5e12, 2.5e12, 34 * 4),
            tags: pd.Series(sorted(levels * 4), dtype="str"),
        }
    )
    certificate = example_certificate(
        release_id=unbroken, population=unbroken, verdict="use with care", spent_epsilon="7.99999",
        delta="1E-12", accountants={unbroken: 1.0},
        diagnostics={
            "rows": 136, "k_hat": None, "verdict": "use with care",
            "reasons": [unbroken], "measured": {"gain": 0.98, "evidence_p_value": 1e-9},
            unbroken: unbroken,
        },
    )  # fmt: skip
    return example_report(
        certificate, frames=[frame], log_weights=np.linspace(-12, 3, 136),
        log_weight_noise_sd=np.linspace(0, 40, 136), answers=example_answers(unbroken, tags),
        schema=PublicSchema.from_mapping({"name": "s", "columns": columns}),
    )  # fmt: skip


def _asked():
    return example_report(answers=answers_of_every_kind())


PAGES = [example_report, _unweighted, _long_and_strange, _asked]


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.__name__)
def test_nothing_is_cut_off_or_hard_to_read_at_any_width(page, look_at):
    assert look_at(page()) == []


@pytest.mark.parametrize("page", PAGES[2:], ids=lambda page: page.__name__)
@pytest.mark.slow
def test_nothing_strange_is_cut_off_on_a_telephone_or_a_wide_screen(page, look_at):
    assert look_at(page(), CORNERS) == []
